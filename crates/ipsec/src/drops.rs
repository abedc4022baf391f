//! Drop reasons. Every reason has a name that operators and programs may rely on.

testudo_base::reasons! {
    /// Why a packet was dropped.
    pub enum DropReason {
        /// Neither IPv4 nor IPv6, a header that contradicts itself, a wrong header checksum, or too
        /// short for its ports.
        Malformed = "malformed",
        /// No policy matches: the default is to discard (RFC 4301 §5.1).
        NoPolicy = "no_policy",
        /// A policy says discard.
        PolicyDiscard = "policy_discard",
        /// A policy says protect, and it has no SA yet.
        NoSa = "no_sa",
        /// A policy says protect, and its SA was negotiated for less than the policy covers.
        OutsideSa = "outside_sa",
        /// It came in clear although a policy says protect (RFC 4301 §5.2).
        ClearButProtected = "clear_but_protected",
        /// The TTL or hop limit ran out here.
        TtlExceeded = "ttl_exceeded",
        /// It is larger than the path MTU, and must not be fragmented.
        TooBig = "too_big",
        /// The policy's SA is one in transport mode, which carries what this host itself sends, and
        /// the packet came by a port.
        NotFromHost = "not_from_host",
        /// Its frame has no room for headers and trailer.
        NoRoom = "no_room",
        /// The SA's sequence numbers are used up.
        SequenceExhausted = "sequence_exhausted",
        /// The SA has no block of sequence numbers here, or has used it up before the cluster
        /// granted the next.
        NoBlock = "no_block",
        /// The sender ID's IVs are used up.
        IvExhausted = "iv_exhausted",
        /// The cluster has not granted this node a sender ID.
        NoSender = "no_sender",
        /// Another node of the cluster carries its shard.
        OtherNode = "other_node",
        /// Another node has relayed it, and it is neither ESP nor AH to us, nor does a policy
        /// protect it.
        RelayedStray = "relayed_stray",
        /// Another node worked on it before its shard came here.
        HandledElsewhere = "handled_elsewhere",
        /// This node has not heard from enough of the cluster: others may have taken its shards.
        Fenced = "fenced",
        /// The outer destination is not ours.
        NotLocal = "not_local",
        /// It is neither ESP nor AH nor for our UDP port.
        NotEsp = "not_esp",
        /// The UDP header's length is wrong.
        MalformedUdp = "malformed_udp",
        /// A NAT keepalive (RFC 3948 §2.3), which has served its purpose by arriving.
        NatKeepalive = "nat_keepalive",
        /// It is too short for an ESP packet.
        EspTooShort = "esp_too_short",
        /// It is too short for AH and the ICV of its SA, or AH's length field is wrong.
        AhTooShort = "ah_too_short",
        /// Headers before AH of which cannot be told what becomes of them on the way, so that it
        /// cannot cover them (RFC 4302 §3.3.3).
        AhNotCovered = "ah_not_covered",
        /// The SA with this SPI is of ESP and the packet of AH, or the other way round.
        OtherProtocol = "other_protocol",
        /// ESP that came bare, or in AH of another peer, although a policy puts AH around it (RFC
        /// 4301 §5.2); or that would leave in UDP, which AH does not cover.
        NotInAh = "not_in_ah",
        /// No inbound SA has this SPI, and none got it in time.
        UnknownSpi = "unknown_spi",
        /// The sequence number is 0, or beyond the last one.
        SequenceInvalid = "sequence_invalid",
        /// It is left of the replay window; with ESN, it is not authentic and by its number most
        /// likely late.
        ReplayTooOld = "replay_too_old",
        /// Its sequence number was accepted before.
        Replayed = "replayed",
        /// The ICV does not verify: forged or damaged.
        AuthFailed = "auth_failed",
        /// A dummy packet (RFC 4303 §2.6); or, outbound in transport mode, one that the peer would
        /// take for a dummy.
        Dummy = "dummy",
        /// It is authentic, but has padding that RFC 4303 §2.4 does not allow.
        BadPadding = "bad_padding",
        /// It is authentic, but holds neither IPv4 nor IPv6.
        BadNextHeader = "bad_next_header",
        /// Authentic, but in transport mode a fragment, of which ESP carries none (RFC 4303
        /// §3.1.1).
        FragmentInside = "fragment_inside",
        /// It is authentic, but the inner packet is malformed.
        MalformedInner = "malformed_inner",
        /// It is authentic, but outside the SA's selectors (RFC 4301 §5.2).
        SelectorMismatch = "selector_mismatch",
        /// Congestion was marked on the outer header of a packet that cannot carry the mark (RFC
        /// 6040 §4.2).
        EcnNotCapable = "ecn_not_capable",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_are_snake_case_and_unique() {
        let names: HashSet<_> = DropReason::ALL.iter().map(|reason| reason.name()).collect();
        assert_eq!(names.len(), DropReason::COUNT);
        for name in names {
            assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{name}");
        }
    }
}
