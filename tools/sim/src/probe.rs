//! Numbered clear packets, for traffic through the tunnels.

use std::net::Ipv4Addr;
use testudo_wire::ip::Protocol;
use testudo_wire::ipv4::{Fields, HEADER, Ipv4};

/// An IP protocol for experiments (RFC 3692).
const PROTOCOL: Protocol = Protocol(253);

/// The packet with that number.
pub fn packet(from: Ipv4Addr, to: Ipv4Addr, number: u64) -> Vec<u8> {
    let fields = Fields {
        tos: 0,
        total_len: (HEADER + 8) as u16,
        id: number as u16,
        df: false,
        ttl: 64,
        protocol: PROTOCOL,
        src: from,
        dst: to,
    };
    [fields.to_bytes().as_slice(), &number.to_be_bytes()].concat()
}

/// The number of a packet. `None`: it is not one of these.
pub fn number(packet: &[u8]) -> Option<u64> {
    let packet = Ipv4::parse(packet).ok().filter(|packet| packet.protocol() == PROTOCOL)?;
    Some(u64::from_be_bytes(packet.payload().get(..8)?.try_into().ok()?))
}

/// The fields of an ESP packet that an observer can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Esp {
    /// SPI.
    pub spi: u32,
    /// The low half of its sequence number.
    pub sequence: u32,
    /// IV.
    pub iv: u64,
    /// The outer destination.
    pub to: Ipv4Addr,
}

/// Reads an ESP packet, with or without UDP. `None`: it is not ESP.
pub fn esp(packet: &[u8]) -> Option<Esp> {
    let packet = Ipv4::parse(packet).ok()?;
    let payload = match packet.protocol() {
        Protocol(50) => packet.payload(),
        Protocol::UDP => packet.payload().get(8..)?,
        _ => return None,
    };
    let word = |at: usize| Some(u32::from_be_bytes(payload.get(at..at + 4)?.try_into().ok()?));
    let iv = u64::from(word(8)?) << 32 | u64::from(word(12)?);
    // In UDP a zero in place of the SPI marks IKE (RFC 3948 §2.2).
    word(0)
        .filter(|spi| *spi != 0)
        .and_then(|spi| Some(Esp { spi, sequence: word(4)?, iv, to: packet.dst() }))
}

/// The destination of any packet.
pub fn destination(packet: &[u8]) -> Option<Ipv4Addr> {
    Ipv4::parse(packet).ok().map(|packet| packet.dst())
}
