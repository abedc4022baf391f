//! Frames by hand: Ethernet, IPv4 and IPv6, UDP, ESP and IKE headers that say what the attacker
//! wants them to say.

use crate::topology::{Family, Side};
use std::net::IpAddr;

/// Octets of an Ethernet header.
pub const ETHERNET: usize = 14;
/// IP protocol of ESP.
pub const ESP: u8 = 50;
/// IP protocol of UDP.
pub const UDP: u8 = 17;
/// IP protocol of ICMP.
pub const ICMP: u8 = 1;
/// An unassigned protocol.
pub const UNASSIGNED: u8 = 201;
const FRAGMENT: u8 = 44;

/// Marsaglia, "Xorshift RNGs" (2003): the same attack for the same seed.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Random numbers of this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number from `low` up to and without `high`.
    pub fn range(&mut self, low: usize, high: usize) -> usize {
        low + (self.draw() >> 16) as usize % (high - low)
    }

    /// So many octets.
    pub fn octets(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.draw().to_be_bytes()[0]).collect()
    }
}

/// Source and destination of an attacker's packets: it pretends to be a peer of its victim.
#[derive(Clone, Copy, Debug)]
pub struct Road {
    /// The family of both addresses.
    pub family: Family,
    /// The peer's address.
    pub from: IpAddr,
    /// The victim's address.
    pub to: IpAddr,
    /// The victim's MAC address.
    pub to_mac: [u8; 6],
}

impl Road {
    /// From the outer address of the other gateway to that of this side's.
    pub fn to(victim: Side, family: Family, to_mac: [u8; 6]) -> Self {
        Self { family, from: victim.other().outer(family), to: victim.outer(family), to_mac }
    }

    /// The road that a frame with IPv4 has come by.
    pub fn of(frame: &[u8]) -> Option<Self> {
        let address = |at: usize| Some(IpAddr::from(*frame.get(at..)?.first_chunk::<4>()?));
        let (from, to) = (address(ETHERNET + 12)?, address(ETHERNET + 16)?);
        Some(Self { family: Family::V4, from, to, to_mac: *frame.first_chunk()? })
    }

    /// A frame around an IP packet.
    pub fn frame(&self, packet: &[u8]) -> Vec<u8> {
        let ethertype: [u8; 2] = match self.family {
            Family::V4 => [0x08, 0x00],
            Family::V6 => [0x86, 0xdd],
        };
        [&self.to_mac[..], &[2, 0, 0, 0, 0, 0x66], &ethertype, packet].concat()
    }

    /// A frame with a packet from the peer to the victim.
    pub fn packet(&self, protocol: u8, payload: &[u8]) -> Vec<u8> {
        let (from, to) = (octets(self.from), octets(self.to));
        self.between(&from, &to, protocol, payload)
    }

    /// A frame with a packet between any two addresses of the family.
    pub fn between(&self, from: &[u8], to: &[u8], protocol: u8, payload: &[u8]) -> Vec<u8> {
        let header = match self.family {
            Family::V4 => ipv4(from, to, protocol, payload.len(), 0, 0),
            Family::V6 => ipv6(from, to, protocol, payload.len()),
        };
        self.frame(&[&header, payload].concat())
    }

    /// A fragment of a packet from the peer to the victim. `offset` counts 8 octets.
    pub fn fragment(&self, protocol: u8, id: u16, offset: u16, more: bool, payload: &[u8]) -> Vec<u8> {
        let (from, to) = (octets(self.from), octets(self.to));
        let packet = match self.family {
            Family::V4 => {
                let field = offset | if more { 0x2000 } else { 0 };
                [&ipv4(&from, &to, protocol, payload.len(), id, field)[..], payload].concat()
            }
            Family::V6 => {
                let [high, low] = (offset << 3 | u16::from(more)).to_be_bytes();
                let [id_high, id_low] = id.to_be_bytes();
                let header = [protocol, 0, high, low, 0x70, 0, id_high, id_low];
                let ip = ipv6(&from, &to, FRAGMENT, payload.len() + header.len());
                [&ip[..], &header, payload].concat()
            }
        };
        self.frame(&packet)
    }

    /// A UDP datagram from the peer to one of the victim's ports, with a checksum that fits.
    pub fn datagram(&self, port: u16, payload: &[u8]) -> Vec<u8> {
        let length = (8 + payload.len()) as u16;
        self.packet(UDP, &self.udp(port, length, payload))
    }

    /// UDP header and payload; the length field says what it is told.
    pub fn udp(&self, port: u16, length: u16, payload: &[u8]) -> Vec<u8> {
        let ports = [port.to_be_bytes(), port.to_be_bytes()].concat();
        let mut datagram = [&ports[..], &length.to_be_bytes(), &[0, 0], payload].concat();
        let (from, to) = (octets(self.from), octets(self.to));
        let pseudo = [&from[..], &to, &[0, UDP], &(datagram.len() as u16).to_be_bytes()].concat();
        let sum = match checksum(&[&pseudo[..], &datagram].concat()) {
            0 => 0xffff,
            sum => sum,
        };
        datagram[6..8].copy_from_slice(&sum.to_be_bytes());
        datagram
    }
}

/// An ESP packet: SPI, number, and what stands for IV, ciphertext and ICV.
pub fn esp(spi: u32, sequence: u32, rest: &[u8]) -> Vec<u8> {
    [&spi.to_be_bytes()[..], &sequence.to_be_bytes(), rest].concat()
}

/// An IKE header (RFC 7296 §3.1) with a length that fits.
pub fn ike(
    spis: (u64, u64),
    next: u8,
    version: u8,
    exchange: u8,
    flags: u8,
    id: u32,
    body: &[u8],
) -> Vec<u8> {
    let length = (28 + body.len()) as u32;
    let kind = [next, version, exchange, flags];
    [&spis.0.to_be_bytes()[..], &spis.1.to_be_bytes(), &kind, &id.to_be_bytes(), &length.to_be_bytes(), body]
        .concat()
}

/// An address as it stands in a header.
pub fn octets(addr: IpAddr) -> Vec<u8> {
    match addr {
        IpAddr::V4(addr) => addr.octets().to_vec(),
        IpAddr::V6(addr) => addr.octets().to_vec(),
    }
}

fn ipv4(from: &[u8], to: &[u8], protocol: u8, payload: usize, id: u16, fragment: u16) -> Vec<u8> {
    let total = (20 + payload) as u16;
    let mut header = vec![0x45, 0];
    for field in [total, id, fragment] {
        header.extend(field.to_be_bytes());
    }
    header.extend([64, protocol, 0, 0]);
    header.extend([from, to].concat());
    let sum = checksum(&header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    header
}

fn ipv6(from: &[u8], to: &[u8], next: u8, payload: usize) -> Vec<u8> {
    let [high, low] = (payload as u16).to_be_bytes();
    [&[0x60, 0, 0, 0, high, low, next, 64][..], from, to].concat()
}

/// RFC 1071.
pub fn checksum(octets: &[u8]) -> u16 {
    let words = octets.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}
