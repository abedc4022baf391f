//! Frames put together octet by octet, apart from the code under test.

use std::net::{Ipv4Addr, Ipv6Addr};

/// The port's own address.
pub(super) const PORT_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
/// The address that all nodes have.
pub(super) const CLUSTER_MAC: [u8; 6] = [3, 0, 0, 0, 0, 9];
const PEER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// One of the gateway's own addresses.
pub(super) const US4: &str = "192.0.2.1";
pub(super) const PEER4: &str = "198.51.100.9";
/// In a protected prefix.
pub(super) const REMOTE4: &str = "10.2.3.4";
/// In an exception inside that prefix.
pub(super) const EXEMPT4: &str = "10.2.9.4";
pub(super) const CLIENT4: &str = "172.16.0.7";
pub(super) const US6: &str = "2001:db8:1::1";
pub(super) const PEER6: &str = "2001:db8:ffff::9";
pub(super) const REMOTE6: &str = "2001:db8:2::4";
pub(super) const EXEMPT6: &str = "2001:db8:2:9::4";
pub(super) const CLIENT6: &str = "2001:db8:a::7";

pub(super) const ICMP: u8 = 1;
pub(super) const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;
pub(super) const ROUTING: u8 = 43;
pub(super) const FRAGMENT: u8 = 44;
pub(super) const ESP: u8 = 50;
pub(super) const AH: u8 = 51;
pub(super) const ICMPV6: u8 = 58;
pub(super) const NO_NEXT: u8 = 59;
pub(super) const OPTIONS: u8 = 60;
pub(super) const SCTP: u8 = 132;
pub(super) const HOP_BY_HOP: u8 = 0;

pub(super) fn ethernet_to(mac: [u8; 6], kind: u16, payload: &[u8]) -> Vec<u8> {
    [&mac[..], &PEER_MAC, &kind.to_be_bytes(), payload].concat()
}

pub(super) fn ethernet(kind: u16, payload: &[u8]) -> Vec<u8> {
    ethernet_to(PORT_MAC, kind, payload)
}

/// An IPv4 packet; `fragment` is the whole flags-and-offset field.
pub(super) struct Ipv4<'a> {
    pub(super) src: &'a str,
    pub(super) dst: &'a str,
    pub(super) proto: u8,
    pub(super) id: u16,
    pub(super) fragment: u16,
    pub(super) options: &'a [u8],
}

impl Ipv4<'_> {
    pub(super) fn packet(&self, payload: &[u8]) -> Vec<u8> {
        let header = 20 + self.options.len();
        let total = (header + payload.len()) as u16;
        let addr = |a: &str| a.parse::<Ipv4Addr>().expect(a).octets();
        let mut packet = vec![0x40 | (header / 4) as u8, 0];
        packet.extend(total.to_be_bytes());
        packet.extend(self.id.to_be_bytes());
        packet.extend(self.fragment.to_be_bytes());
        packet.extend([64, self.proto, 0, 0]);
        packet.extend(addr(self.src));
        packet.extend(addr(self.dst));
        packet.extend(self.options);
        packet.extend(payload);
        packet
    }

    pub(super) fn frame(&self, payload: &[u8]) -> Vec<u8> {
        ethernet(0x0800, &self.packet(payload))
    }
}

pub(super) fn ipv4<'a>(src: &'a str, dst: &'a str, proto: u8) -> Ipv4<'a> {
    Ipv4 { src, dst, proto, id: 7, fragment: 0, options: &[] }
}

pub(super) fn ipv6_packet(src: &str, dst: &str, next: u8, hop_limit: u8, payload: &[u8]) -> Vec<u8> {
    let addr = |a: &str| a.parse::<Ipv6Addr>().expect(a).octets();
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend((payload.len() as u16).to_be_bytes());
    packet.extend([next, hop_limit]);
    packet.extend(addr(src));
    packet.extend(addr(dst));
    packet.extend(payload);
    packet
}

pub(super) fn ipv6(src: &str, dst: &str, next: u8, payload: &[u8]) -> Vec<u8> {
    ethernet(0x86dd, &ipv6_packet(src, dst, next, 64, payload))
}

/// Hop-by-hop or destination options of 8 octets for each of `units`.
pub(super) fn options(next: u8, units: u8, payload: &[u8]) -> Vec<u8> {
    let mut header = vec![next, units - 1, 1, units * 8 - 4];
    header.resize(usize::from(units) * 8, 0);
    header.extend(payload);
    header
}

pub(super) fn routing(next: u8, segments_left: u8, payload: &[u8]) -> Vec<u8> {
    [&[next, 2, 0, segments_left, 0, 0, 0, 0][..], &[0; 16], payload].concat()
}

/// A fragment header; `offset` in units of 8 octets.
pub(super) fn fragment6(next: u8, offset: u16, more: bool, id: u32, payload: &[u8]) -> Vec<u8> {
    let field = offset << 3 | u16::from(more);
    [&[next, 0][..], &field.to_be_bytes(), &id.to_be_bytes(), payload].concat()
}

pub(super) fn udp(src: u16, dst: u16, payload: &[u8]) -> Vec<u8> {
    let length = (8 + payload.len()) as u16;
    [&src.to_be_bytes()[..], &dst.to_be_bytes(), &length.to_be_bytes(), &[0, 0], payload].concat()
}

/// AH with an ICV of 12 octets before a UDP header.
pub(super) fn ah() -> Vec<u8> {
    [&[UDP, 4, 0, 0], &esp()[..8], &[7; 12], &[1; 8]].concat()
}

/// An ESP packet that is long enough to be one.
pub(super) fn esp() -> Vec<u8> {
    let mut packet = vec![0xc0, 0, 0, 1, 0, 0, 0, 1];
    packet.resize(48, 0xab);
    packet
}

/// An IKE message with nothing in it.
pub(super) fn ike() -> Vec<u8> {
    let mut message = vec![0x11; 8];
    message.extend([0; 8]);
    message.extend([0, 0x20, 0x22, 0x08, 0, 0, 0, 0, 0, 0, 0, 28]);
    message
}

/// The marker before IKE on port 4500.
pub(super) fn marked_ike() -> Vec<u8> {
    [&[0; 4][..], &ike()].concat()
}
