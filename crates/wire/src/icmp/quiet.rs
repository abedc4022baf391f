//! Packets that must not be answered with an ICMP error, so that errors do not cause errors.

use super::Kind;
use crate::ip::Protocol;
use crate::ipv4::Ipv4;
use crate::ipv6::Ipv6;
use std::net::Ipv4Addr;

/// RFC 1122 §3.2.2: no error about an ICMP error, a broadcast or multicast, a fragment other than
/// the first, or a packet whose source is no single host. (The port checks for a link-layer
/// broadcast.)
pub(super) fn may_answer_v4(packet: &Ipv4<'_>) -> bool {
    is_host_v4(packet.src())
        && !packet.dst().is_multicast()
        && !packet.dst().is_broadcast()
        && packet.fragment_offset() == 0
        && !(packet.protocol() == Protocol::ICMP && is_icmp_error(packet.payload()))
}

/// Not 0/8, loopback, multicast, reserved or broadcast.
fn is_host_v4(addr: Ipv4Addr) -> bool {
    let first = addr.octets()[0];
    first != 0 && first != 127 && first < 224
}

/// ICMP messages count as errors unless they are known to be queries; a message that is too short
/// to tell is not answered.
fn is_icmp_error(message: &[u8]) -> bool {
    const QUERIES: [u8; 10] = [0, 8, 9, 10, 13, 14, 15, 16, 17, 18];
    message.first().is_none_or(|kind| !QUERIES.contains(kind))
}

/// RFC 4443 §2.4(e): no error about an ICMPv6 error or redirect, to a multicast (except "packet too
/// big"), or to a source that is no single host. A later fragment may hide an ICMPv6 error and is
/// not answered either.
pub(super) fn may_answer_v6(packet: &Ipv6<'_>, kind: Kind) -> bool {
    const REDIRECT: u8 = 137;
    let too_big = matches!(kind, Kind::TooBig { .. });
    if packet.src().is_multicast()
        || packet.src().is_unspecified()
        || packet.src().is_loopback()
        || (packet.dst().is_multicast() && !too_big)
    {
        return false;
    }
    match packet.upper() {
        Ok(upper) if upper.is_later_fragment() => upper.protocol != Protocol::ICMPV6,
        Ok(upper) if upper.protocol == Protocol::ICMPV6 => {
            upper.payload.first().is_some_and(|kind| *kind >= 128 && *kind != REDIRECT)
        }
        Ok(_) => true,
        Err(_) => false,
    }
}
