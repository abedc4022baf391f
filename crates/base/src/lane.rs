//! Lanes: the shard by which a packet of a spread tunnel finds its node.
//!
//! The packets of a tunnel usually have one home: the shard of its SPI. Those of a tunnel that is
//! spread over the nodes are dealt out to all 256 shards, each packet by itself, so every node
//! works on those whose shard it carries. For such a packet the shard is called its lane.
//!
//! Inbound, the lane follows from SPI and sequence number, which every node can read. Outbound, it
//! follows from a keyed hash of the clear packet, or from what the node has counted
//! ([`crate::turn`]). `crates/fastpath/bpf/lane.h` computes the same.

use crate::siphash::SipKey;
use crate::spi::{Shard, Spi};
use crate::turn::Rule;
use serde::{Deserialize, Serialize};

/// How the outbound packets of a tunnel are spread over the nodes ([FLAT]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Spread {
    /// All packets of a session take one lane: of one pair of addresses, and of ports where there
    /// are any. They keep their order.
    SessionHash,
    /// Each packet takes a lane of its own, by a number that it carries ([RPS]): the sequence
    /// number of TCP, the identification of IPv4, the first octets of a datagram. Without any such
    /// number its session decides.
    PacketHash,
    /// Packets take turns.
    PacketRr,
    /// Each packet takes a lane on which few octets were sent lately.
    PacketSqf,
    /// Sessions take turns, and all packets of a session take its lane.
    SessionRr,
    /// Each session takes a lane on which few octets were sent lately, and all of its packets take
    /// that lane.
    SessionSqf,
}

impl Spread {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::SessionHash,
        Self::SessionRr,
        Self::SessionSqf,
        Self::PacketHash,
        Self::PacketRr,
        Self::PacketSqf,
    ];

    /// Its name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::SessionHash => "session-hash",
            Self::PacketHash => "packet-hash",
            Self::PacketRr => "packet-rr",
            Self::PacketSqf => "packet-sqf",
            Self::SessionRr => "session-rr",
            Self::SessionSqf => "session-sqf",
        }
    }

    /// True if all packets of a session take one lane.
    pub fn is_by_session(self) -> bool {
        matches!(self, Self::SessionHash | Self::SessionRr | Self::SessionSqf)
    }

    /// True if sessions take turns ([`crate::session`]).
    pub fn has_sessions(self) -> bool {
        self.is_by_session() && self.turns().is_some()
    }

    /// How lanes take turns. `None` if a hash decides.
    pub fn turns(self) -> Option<Rule> {
        match self {
            Self::SessionHash | Self::PacketHash => None,
            Self::PacketRr | Self::SessionRr => Some(Rule::RoundRobin),
            Self::PacketSqf | Self::SessionSqf => Some(Rule::ShortestQueue),
        }
    }

    /// The scheme of packets that cannot be counted: fragments, and packets that only one node has.
    #[must_use]
    pub fn by_hash(self) -> Self {
        if self.is_by_session() { Self::SessionHash } else { Self::PacketHash }
    }
}

const TCP: u8 = 6;
const UDP: u8 = 17;
const SCTP: u8 = 132;
const FRAGMENT: u8 = 44;
/// Hop-by-hop options, routing, fragment, and destination options (RFC 8200 §4.1).
const EXTENSIONS: [u8; 4] = [0, 43, FRAGMENT, 60];
/// Octets of an IPv6 header.
const HEADER6: u32 = 40;
/// Octets of a payload that are read: a UDP header and eight octets behind it.
const HEAD: usize = 16;

/// Odd and close to 2^32 divided by the golden ratio: consecutive numbers, and those of any small
/// stride, fall far apart.
const GOLDEN: u32 = 0x9e37_79b1;

/// The lane of a received ESP or AH packet, by its SPI and the sequence number that it carries. It
/// needs no key: whoever can choose numbers without the SA's key can only choose the node that
/// refuses them.
#[inline]
pub fn of_number(spi: Spi, number: u32) -> Shard {
    Shard((number.wrapping_mul(GOLDEN).wrapping_add(spi.0) >> 24) as u8)
}

/// What a packet shows of its session, and of itself.
#[derive(Clone, Copy, Default)]
struct Shown {
    ports: [u8; 4],
    /// The identification of a fragmented datagram, whose fragments take one lane. With
    /// [`Spread::PacketHash`] and the like, that of any IPv4 packet.
    identification: [u8; 4],
    own: [u8; 8],
}

/// What all nodes find alike in a clear packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// The keyed hash of the session, or of the packet. Its last octet is the lane.
    pub(crate) hash: u64,
    /// Octets according to the IP header.
    pub(crate) octets: u32,
    /// It is no fragment. All fragments of a datagram must meet at one node, so none takes turns.
    /// IPv6 does not show before its last extension header whether it is one.
    pub(crate) is_whole: bool,
}

/// The lane of a clear packet by its hash, from the IP header on. A packet that is no IP has lane 0.
#[inline]
pub fn of_packet(key: SipKey, spread: Spread, packet: &[u8]) -> Shard {
    Shard(Seen::of(key, spread, packet).hash as u8)
}

impl Seen {
    #[inline]
    pub(crate) fn of(key: SipKey, spread: Spread, packet: &[u8]) -> Self {
        match packet.first().map(|octet| octet >> 4) {
            Some(4) => of_ipv4(key, spread, packet),
            Some(6) => of_ipv6(key, spread, packet),
            _ => None,
        }
        .unwrap_or_default()
    }
}

fn of_ipv4(key: SipKey, spread: Spread, packet: &[u8]) -> Option<Seen> {
    let header: &[u8; 20] = packet.first_chunk()?;
    let [first, _, t0, t1, i0, i1, f0, f1, _, protocol, _, _, addresses @ ..] = *header;
    let octets = u16::from_be_bytes([t0, t1]);
    let payload = packet
        .get(..usize::from(octets))
        .and_then(|whole| whole.get(usize::from(first & 15) * 4..))
        .unwrap_or_default();
    let is_fragment = [f0 & 0x3f, f1] != [0, 0];
    let mut shown = if is_fragment { Shown::default() } else { Shown::of(spread, protocol, payload) };
    if is_fragment || !spread.is_by_session() {
        shown.identification = [i0, i1, 0, 0];
    }
    let hash = shown.hash(key, spread, &addresses);
    Some(Seen { hash, octets: octets.into(), is_whole: !is_fragment })
}

fn of_ipv6(key: SipKey, spread: Spread, packet: &[u8]) -> Option<Seen> {
    let (fixed, rest): (&[u8; 8], _) = packet.split_first_chunk()?;
    let (addresses, rest): (&[u8; 32], _) = rest.split_first_chunk()?;
    let [_, _, _, _, l0, l1, next, _] = *fixed;
    let length = u16::from_be_bytes([l0, l1]);
    let payload = rest.get(..usize::from(length)).unwrap_or_default();
    let mut shown = Shown::default();
    match payload.first_chunk::<8>() {
        Some([_, _, _, _, identification @ ..]) if next == FRAGMENT => {
            let identification: &[u8; 4] = identification;
            shown.identification = *identification;
        }
        _ => shown = Shown::of(spread, next, payload),
    }
    let hash = shown.hash(key, spread, addresses);
    Some(Seen { hash, octets: u32::from(length) + HEADER6, is_whole: !EXTENSIONS.contains(&next) })
}

impl Shown {
    /// The fields that a worker or a router on the way may still fill in, as checksums, do not
    /// count: all nodes must find the same lane.
    fn of(spread: Spread, protocol: u8, payload: &[u8]) -> Self {
        let mut shown = Self::default();
        let Some(head) = payload.first_chunk::<8>() else { return shown };
        let [ports @ .., _, _, _, _] = *head;
        if [TCP, UDP, SCTP].contains(&protocol) {
            shown.ports = ports;
        }
        if spread.is_by_session() {
            return shown;
        }
        let long: Option<&[u8; HEAD]> = payload.first_chunk();
        shown.own = match (protocol, long) {
            (UDP, Some([_, _, _, _, _, _, _, _, data @ ..])) => *data,
            (UDP, None) => [0; 8],
            _ => *head,
        };
        shown
    }

    /// What shows only the packet itself is not hashed by session.
    fn hash<const N: usize>(self, key: SipKey, spread: Spread, addresses: &[u8; N]) -> u64 {
        let rest = if spread.is_by_session() { 8 } else { 16 };
        let mut octets = [0_u8; 32 + 16];
        let fields = addresses.iter().chain(&self.ports).chain(&self.identification).chain(&self.own);
        octets.iter_mut().zip(fields).for_each(|(octet, field)| *octet = *field);
        let all = octets.get(..N + rest).unwrap_or(&octets);
        key.short_hash(all)
    }
}

#[cfg(test)]
mod tests;
