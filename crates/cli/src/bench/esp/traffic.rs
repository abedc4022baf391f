//! The packets of the bench: UDP over IPv4 of one flow, the simplest that a gateway sees.

use std::net::Ipv4Addr;
use std::ops::RangeInclusive;
use testudo_wire::ip::Protocol;
use testudo_wire::{ipv4, udp};

/// A host behind our gateway.
pub(crate) const SOURCE: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 10);
/// A host behind the peer.
pub(crate) const DESTINATION: Ipv4Addr = Ipv4Addr::new(10, 2, 0, 20);
/// Hops left when a packet leaves its host.
pub(crate) const TTL: u8 = 64;
/// Inner packets from the smallest with a UDP header to the largest that a tunnel of MTU 1500 takes whole.
pub(crate) const SIZES: RangeInclusive<i64> = 28..=1446;

/// A packet of `size` octets, `ttl` hops before its end.
pub(crate) fn packet(size: u16, ttl: u8) -> Vec<u8> {
    between((SOURCE, DESTINATION), size, ttl)
}

/// The same from one address to another.
pub(crate) fn between((src, dst): (Ipv4Addr, Ipv4Addr), size: u16, ttl: u8) -> Vec<u8> {
    let header =
        ipv4::Fields { tos: 0, total_len: size, id: 0, df: true, ttl, protocol: Protocol::UDP, src, dst };
    let mut packet = header.to_bytes().to_vec();
    packet.extend(udp::header(40_000, 9, size - ipv4::HEADER as u16));
    let filler = (0..=u8::MAX).cycle();
    packet.extend(filler.take(usize::from(size) - ipv4::HEADER - udp::HEADER));
    packet
}
