//! The packets of the benchmark: UDP over IPv4 of one flow, the simplest traffic for a gateway.

use std::fmt;
use std::net::Ipv4Addr;
use std::ops::RangeInclusive;
use std::str::FromStr;
use testudo_wire::ip::Protocol;
use testudo_wire::{ipv4, udp};

/// A host behind the local gateway.
pub(crate) const SOURCE: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 10);
/// A host behind the peer.
pub(crate) const DESTINATION: Ipv4Addr = Ipv4Addr::new(10, 2, 0, 20);
/// TTL of a packet when it leaves its host.
pub(crate) const TTL: u8 = 64;
/// Inner packets from the smallest with a UDP header to the largest that a tunnel with MTU 1500
/// carries unfragmented.
pub(crate) const SIZES: RangeInclusive<i64> = 28..=1446;

/// The largest with an MTU of 9000.
const LARGEST: u16 = 8946;
/// Seven short, four medium and one long packet: the simple Internet mixture, limited to what a
/// tunnel with MTU 1500 carries unfragmented.
const IMIX: [u16; 12] = [64, 570, 64, 64, 570, 64, 1420, 64, 570, 64, 64, 570];

/// The packets that arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Traffic {
    /// All of one size.
    Size([u16; 1]),
    /// Of several sizes.
    Imix,
}

impl Traffic {
    /// Packets of that many octets.
    pub(crate) fn of(size: u16) -> Self {
        Self::Size([size])
    }

    /// The sizes, used cyclically.
    pub(crate) fn sizes(&self) -> &[u16] {
        match self {
            Self::Size(size) => size,
            Self::Imix => &IMIX,
        }
    }

    /// Mean octets of a packet.
    pub(crate) fn mean(&self) -> f64 {
        let sizes = self.sizes();
        sizes.iter().copied().map(f64::from).sum::<f64>() / sizes.len() as f64
    }

    /// True if some packets do not fit a link of MTU 1500.
    pub(crate) fn is_jumbo(&self) -> bool {
        self.sizes().iter().any(|size| !SIZES.contains(&i64::from(*size)))
    }
}

impl fmt::Display for Traffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Size([size]) => f.pad(&size.to_string()),
            Self::Imix => f.pad("imix"),
        }
    }
}

/// An argument is no size that is measured, and no mixture.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("expected {} to {LARGEST} octets, or imix", SIZES.start())]
pub(crate) struct SizeError;

impl FromStr for Traffic {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        let smallest = *SIZES.start() as u16;
        match text.parse() {
            _ if text.eq_ignore_ascii_case("imix") => Ok(Self::Imix),
            Ok(size) if (smallest..=LARGEST).contains(&size) => Ok(Self::of(size)),
            _ => Err(SizeError),
        }
    }
}

/// A packet of `size` octets with that TTL.
pub(crate) fn packet(size: u16, ttl: u8) -> Vec<u8> {
    Template::new(size, ttl).between(SOURCE, DESTINATION).to_vec()
}

/// A packet that is written once, and then gets different addresses: only its IP header changes,
/// which takes a few nanoseconds.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    packet: Vec<u8>,
    ttl: u8,
}

impl Template {
    /// A template of `size` octets with that TTL.
    pub(crate) fn new(size: u16, ttl: u8) -> Self {
        let mut packet = vec![0; ipv4::HEADER];
        packet.extend(udp::header(40_000, 9, size - ipv4::HEADER as u16));
        let filler = (0..=u8::MAX).cycle();
        packet.extend(filler.take(usize::from(size) - ipv4::HEADER - udp::HEADER));
        Self { packet, ttl }
    }

    /// The packet with these addresses.
    pub(crate) fn between(&mut self, src: Ipv4Addr, dst: Ipv4Addr) -> &[u8] {
        let (total_len, ttl) = (self.packet.len() as u16, self.ttl);
        let header =
            ipv4::Fields { tos: 0, total_len, id: 0, df: true, ttl, protocol: Protocol::UDP, src, dst };
        self.packet[..ipv4::HEADER].copy_from_slice(&header.to_bytes());
        &self.packet
    }
}
