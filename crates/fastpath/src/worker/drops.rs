//! Reasons for which the worker itself drops a packet. The pipeline's reasons are
//! `testudo_ipsec::drops`.

testudo_base::reasons! {
    /// Why the worker dropped a packet.
    pub enum WorkerDrop {
        /// It lacks the stamp of our filter, so its direction is unknown.
        NoStamp = "no_stamp",
        /// It is too short for an Ethernet header, or holds neither IPv4 nor IPv6.
        BadEthernet = "bad_ethernet",
        /// To be protected, and the route to its source does not lead out of the port that it came
        /// in by: forged, or the port has asymmetric routes.
        SpoofedSource = "spoofed_source",
        /// It was to be routed, and no route matches.
        NoRoute = "no_route",
        /// Decrypted, and nothing but the default route is left for it, out of the port that its
        /// peer is reached by: on from there it would go in clear over the way that it came by
        /// protected.
        InnerRouteLost = "inner_route_lost",
        /// The route's type is unreachable.
        Unreachable = "unreachable",
        /// The route's type is prohibit.
        Prohibited = "prohibited",
        /// The route's type is blackhole.
        Blackhole = "blackhole",
        /// The route leads to a port that this worker does not have.
        NoPort = "no_port",
        /// The port's interface is down or gone.
        PortDown = "port_down",
        /// It is larger than the link's MTU and must not be fragmented.
        LinkTooBig = "link_too_big",
        /// It waited for its neighbour and was displaced by a later packet.
        NeighbourQueueFull = "neighbour_queue_full",
        /// Too many neighbours are waited for: its neighbour was displaced by a later one, or found
        /// no place.
        NeighbourTableFull = "neighbour_table_full",
        /// The neighbour did not answer in time.
        NeighbourTimeout = "neighbour_timeout",
        /// The port cannot send as fast as packets come.
        TxRingFull = "tx_ring_full",
        /// It is for the kernel, and there is no TUN.
        NoTun = "no_tun",
        /// The kernel did not take it from the TUN.
        TunWriteFailed = "tun_write_failed",
        /// It came from the kernel and would go back to it unchanged.
        TunLoop = "tun_loop",
        /// The kernel sent it without a source address: a multicast listener report of the TUN,
        /// which has no other host (RFC 4291 §2.5.2).
        NoSource = "no_source",
        /// The kernel left a checksum or segmentation to do that the packet's octets do not allow.
        BadOffload = "bad_offload",
        /// No frame was free for it.
        NoFrame = "no_frame",
        /// It was to be split, and cannot be.
        NotSplit = "not_split",
        /// It was about to leave when this node was fenced: others may have taken its shards.
        FencedLate = "fenced_late",
        /// A fragment that had come before.
        FragmentDuplicate = "fragment_duplicate",
        /// A fragment without payload, or whose lengths contradict each other.
        FragmentInvalid = "fragment_invalid",
        /// A fragment smaller than any link requires.
        FragmentTiny = "fragment_tiny",
        /// A fragment of a datagram whose fragments overlap, or disagree about its end.
        FragmentOverlap = "fragment_overlap",
        /// A fragment of a datagram that is larger than a frame, or has too many fragments.
        FragmentTooLarge = "fragment_too_large",
        /// Of a datagram of which some fragments have met congestion and others cannot carry the
        /// mark (RFC 3168 §5.3).
        FragmentEcn = "fragment_ecn",
        /// A fragment that was displaced by a later one.
        FragmentDisplaced = "fragment_displaced",
        /// A fragment whose datagram was not completed in time.
        FragmentTimeout = "fragment_timeout",
        /// A packet of a shard that is about to come here, displaced by a later packet.
        TransitDisplaced = "transit_displaced",
        /// It waited for its shard, which did not come: the other node kept it.
        TransitTimeout = "transit_timeout",
        /// It went through the pipeline too often: a piece that was to be split again, or an answer
        /// to an answer.
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
