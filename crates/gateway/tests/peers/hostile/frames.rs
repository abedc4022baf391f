//! Frames by hand: Ethernet, IPv4 and IPv6, UDP, ESP and IKE headers that say what the attacker
//! wants them to say.

use testudo_lab::topology::{Family, Side};

pub(super) const ETHERNET: usize = 14;
pub(super) const ESP: u8 = 50;
pub(super) const UDP: u8 = 17;
/// An unassigned protocol.
pub(super) const UNASSIGNED: u8 = 201;
const FRAGMENT: u8 = 44;

/// Marsaglia, "Xorshift RNGs" (2003): the same attack for the same seed.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number from `low` up to and without `high`.
    pub(super) fn range(&mut self, low: usize, high: usize) -> usize {
        low + (self.next() >> 16) as usize % (high - low)
    }

    pub(super) fn octets(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next().to_be_bytes()[0]).collect()
    }
}

/// Source and destination: the attacker pretends to be the peer.
#[derive(Clone, Copy)]
pub(super) struct Road {
    pub(super) family: Family,
    pub(super) to_mac: [u8; 6],
}

impl Road {
    /// A frame around an IP packet.
    pub(super) fn frame(&self, packet: &[u8]) -> Vec<u8> {
        let ethertype: [u8; 2] = match self.family {
            Family::V4 => [0x08, 0x00],
            Family::V6 => [0x86, 0xdd],
        };
        [&self.to_mac[..], &[2, 0, 0, 0, 0, 0x66], &ethertype, packet].concat()
    }

    /// A frame with a packet from the peer to us.
    pub(super) fn packet(&self, protocol: u8, payload: &[u8]) -> Vec<u8> {
        let (from, to) = (octets(Side::Two.outer(self.family)), octets(Side::One.outer(self.family)));
        self.between(&from, &to, protocol, payload)
    }

    /// A frame with a packet between any two addresses of the family.
    pub(super) fn between(&self, from: &[u8], to: &[u8], protocol: u8, payload: &[u8]) -> Vec<u8> {
        let header = match self.family {
            Family::V4 => ipv4(from, to, protocol, payload.len(), 0, 0),
            Family::V6 => ipv6(from, to, protocol, payload.len()),
        };
        self.frame(&[&header, payload].concat())
    }

    /// A fragment of a packet from the peer to us. `offset` counts 8 octets.
    pub(super) fn fragment(&self, protocol: u8, id: u16, offset: u16, more: bool, payload: &[u8]) -> Vec<u8> {
        let (from, to) = (octets(Side::Two.outer(self.family)), octets(Side::One.outer(self.family)));
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

    /// A UDP datagram from the peer to one of our ports, with a checksum that fits.
    pub(super) fn datagram(&self, port: u16, payload: &[u8]) -> Vec<u8> {
        let length = (8 + payload.len()) as u16;
        self.packet(UDP, &self.udp(port, length, payload))
    }

    /// UDP header and payload; the length field says what it is told.
    pub(super) fn udp(&self, port: u16, length: u16, payload: &[u8]) -> Vec<u8> {
        let ports = [port.to_be_bytes(), port.to_be_bytes()].concat();
        let mut datagram = [&ports[..], &length.to_be_bytes(), &[0, 0], payload].concat();
        let (from, to) = (octets(Side::Two.outer(self.family)), octets(Side::One.outer(self.family)));
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
pub(super) fn esp(spi: u32, sequence: u32, rest: &[u8]) -> Vec<u8> {
    [&spi.to_be_bytes()[..], &sequence.to_be_bytes(), rest].concat()
}

/// An IKE header (RFC 7296 §3.1) with a length that fits.
pub(super) fn ike(
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
pub(super) fn octets(addr: std::net::IpAddr) -> Vec<u8> {
    match addr {
        std::net::IpAddr::V4(addr) => addr.octets().to_vec(),
        std::net::IpAddr::V6(addr) => addr.octets().to_vec(),
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
pub(super) fn checksum(octets: &[u8]) -> u16 {
    let words = octets.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}
