//! Repairs octets so that they look more like packets, and the fuzzer passes the first checks
//! without guessing checksums.

use std::net::IpAddr;
use testudo_wire::checksum::Sum;
use testudo_wire::{ip, ipv4, ipv6};

/// Sets the length field of the IP header to the number of octets.
pub(crate) fn length(packet: &mut [u8]) {
    let total = u16::try_from(packet.len()).unwrap_or(u16::MAX);
    match ip::version(packet) {
        Some(4) => put(packet, 2, &total.to_be_bytes()),
        Some(6) => put(packet, 4, &total.saturating_sub(ipv6::HEADER as u16).to_be_bytes()),
        _ => (),
    }
}

/// Sets the addresses, if they are of the packet's family.
pub(crate) fn addresses(packet: &mut [u8], src: IpAddr, dst: IpAddr) {
    match (ip::version(packet), src, dst) {
        (Some(4), IpAddr::V4(src), IpAddr::V4(dst)) => {
            put(packet, 12, &src.octets());
            put(packet, 16, &dst.octets());
        }
        (Some(6), IpAddr::V6(src), IpAddr::V6(dst)) => {
            put(packet, 8, &src.octets());
            put(packet, 24, &dst.octets());
        }
        _ => (),
    }
}

/// Computes the header checksum of IPv4.
pub(crate) fn checksum(packet: &mut [u8]) {
    let header = usize::from(packet.first().copied().unwrap_or_default() & 15) * 4;
    if ip::version(packet) != Some(4) || header < ipv4::HEADER || packet.len() < header {
        return;
    }
    put(packet, 10, &[0, 0]);
    let sum = Sum::new().bytes(&packet[..header]).finish();
    put(packet, 10, &sum.to_be_bytes());
}

fn put(packet: &mut [u8], at: usize, octets: &[u8]) {
    if let Some(place) = packet.get_mut(at..at + octets.len()) {
        place.copy_from_slice(octets);
    }
}
