//! Why the worker itself let a packet go. The pipeline's reasons are `testudo_ipsec::drops`.

testudo_base::reasons! {
    /// Why the worker dropped a packet.
    pub enum WorkerDrop {
        /// Without the stamp of our filter: nothing says which way it should go.
        NoStamp = "no_stamp",
        /// Too short for an Ethernet header, or neither IPv4 nor IPv6 in it.
        BadEthernet = "bad_ethernet",
        /// To be protected, and the route to its source does not lead out of the port that it came
        /// in by: forged, or the port has asymmetric routes.
        SpoofedSource = "spoofed_source",
        /// To be routed, and no route matches.
        NoRoute = "no_route",
        /// Decrypted, and nothing but the default route is left for it, out of the port that its
        /// peer is reached by: on from there it would go in clear over the way that it came by
        /// protected.
        InnerRouteLost = "inner_route_lost",
        /// The route says unreachable.
        Unreachable = "unreachable",
        /// The route says prohibit.
        Prohibited = "prohibited",
        /// The route says blackhole.
        Blackhole = "blackhole",
        /// The route leads to a port that this worker does not have.
        NoPort = "no_port",
        /// The port's interface is down or gone.
        PortDown = "port_down",
        /// Larger than the link takes, and must not be fragmented.
        LinkTooBig = "link_too_big",
        /// A packet that waited for its neighbour had to make room for a later one.
        NeighbourQueueFull = "neighbour_queue_full",
        /// As many neighbours as we wait for at a time are being asked for: had to make room for a
        /// later neighbour, or found none.
        NeighbourTableFull = "neighbour_table_full",
        /// The neighbour did not answer in time.
        NeighbourTimeout = "neighbour_timeout",
        /// The port cannot send as fast as packets come.
        TxRingFull = "tx_ring_full",
        /// For the kernel, and there is no TUN.
        NoTun = "no_tun",
        /// The kernel did not take it from the TUN.
        TunWriteFailed = "tun_write_failed",
        /// Came from the kernel and would go back to it as it is.
        TunLoop = "tun_loop",
        /// The kernel left something to be done to it that its octets do not allow.
        BadOffload = "bad_offload",
        /// No free frame to put it into.
        NoFrame = "no_frame",
        /// Was to be split, and cannot be.
        NotSplit = "not_split",
        /// Was about to leave when this node was fenced: others may have taken its shards.
        FencedLate = "fenced_late",
        /// A fragment that was there already.
        FragmentDuplicate = "fragment_duplicate",
        /// A fragment whose lengths contradict each other, or without payload.
        FragmentInvalid = "fragment_invalid",
        /// A fragment smaller than any link asks for.
        FragmentTiny = "fragment_tiny",
        /// Of a datagram whose fragments overlap, or contradict each other about its end.
        FragmentOverlap = "fragment_overlap",
        /// Of a datagram that is larger than a frame, or in too many fragments.
        FragmentTooLarge = "fragment_too_large",
        /// Of a datagram of which some fragments have met congestion and others cannot carry the
        /// mark (RFC 3168 §5.3).
        FragmentEcn = "fragment_ecn",
        /// A fragment that had to make room for a later one.
        FragmentDisplaced = "fragment_displaced",
        /// A fragment that waited for the others in vain.
        FragmentTimeout = "fragment_timeout",
        /// Of a shard that is about to come here, and had to make room for a later packet.
        TransitDisplaced = "transit_displaced",
        /// Waited in vain for its shard to come here: another node has carried it on.
        TransitTimeout = "transit_timeout",
        /// Has been here too often: a piece that was to be split again, or an answer to an answer.
        Resubmitted = "resubmitted",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_are_unique() {
        let names: HashSet<_> = WorkerDrop::ALL.iter().map(|reason| reason.name()).collect();
        assert_eq!(names.len(), WorkerDrop::COUNT);
    }
}
