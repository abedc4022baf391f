//! Inner packets, written without the help of the code under test where that is easy.

use std::net::{Ipv4Addr, Ipv6Addr};
use testudo_wire::checksum::Sum;
use testudo_wire::ip::Protocol;
use testudo_wire::{ipv4, ipv6, udp};

pub(crate) const A4: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 2);
pub(crate) const B4: Ipv4Addr = Ipv4Addr::new(10, 2, 0, 2);
pub(crate) const A6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 2);
pub(crate) const B6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 2);

/// An IPv4 packet from A's host to B's.
pub(crate) fn v4(protocol: Protocol, payload: &[u8]) -> Vec<u8> {
    v4_with(|_| (), protocol, payload)
}

/// The same with some fields changed.
pub(crate) fn v4_with(change: impl FnOnce(&mut ipv4::Fields), protocol: Protocol, payload: &[u8]) -> Vec<u8> {
    let mut fields = ipv4::Fields {
        tos: 0,
        total_len: (ipv4::HEADER + payload.len()) as u16,
        id: 0x4242,
        df: false,
        ttl: 64,
        protocol,
        src: A4,
        dst: B4,
    };
    change(&mut fields);
    [&fields.to_bytes()[..], payload].concat()
}

/// An IPv6 packet from A's host to B's.
pub(crate) fn v6(next_header: Protocol, payload: &[u8]) -> Vec<u8> {
    v6_with(|_| (), next_header, payload)
}

/// The same with some fields changed.
pub(crate) fn v6_with(
    change: impl FnOnce(&mut ipv6::Fields),
    next_header: Protocol,
    payload: &[u8],
) -> Vec<u8> {
    let mut fields = ipv6::Fields {
        traffic_class: 0,
        payload_len: payload.len() as u16,
        next_header,
        hop_limit: 64,
        src: A6,
        dst: B6,
    };
    change(&mut fields);
    [&fields.to_bytes()[..], payload].concat()
}

/// A UDP datagram of this many octets, header included, without checksum.
pub(crate) fn datagram(len: usize) -> Vec<u8> {
    let mut bytes = udp::header(1000, 2000, len as u16).to_vec();
    bytes.extend((udp::HEADER..len).map(|i| i as u8));
    bytes
}

/// A UDP packet of either family and this many octets in all.
pub(crate) fn sized(is_v6: bool, len: usize) -> Vec<u8> {
    if is_v6 {
        v6(Protocol::UDP, &datagram(len - ipv6::HEADER))
    } else {
        v4(Protocol::UDP, &datagram(len - ipv4::HEADER))
    }
}

/// The packet after one hop.
pub(crate) fn one_hop_on(packet: &[u8]) -> Vec<u8> {
    let mut packet = packet.to_vec();
    if packet[0] >> 4 == 6 {
        packet[7] -= 1;
    } else {
        packet[8] -= 1;
        packet[10..12].fill(0);
        let header = usize::from(packet[0] & 15) * 4;
        let checksum = Sum::new().bytes(&packet[..header]).finish();
        packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    }
    packet
}
