//! Path MTUs from routers: which ICMP errors are believed, and for how long.
//!
//! These messages are not signed (RFC 4301 §6.1.1, §8.2). They quote a packet of ours, and a sender
//! that has not seen one has to guess both addresses, the SPI that the peer chose, and a sequence
//! number that was sent recently. A path MTU is never taken to be less than every path must allow,
//! and what was learned expires.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;
use std::time::Duration;
use testudo_base::spi::Spi;

/// After this time a path may have improved (RFC 1191 §6.3, RFC 8201 §4).
pub const LIFETIME: Duration = Duration::from_secs(600);
/// The least IPv4 path MTU (RFC 1122 §3.3.3). A smaller report is taken as this, because less would
/// only multiply packets.
pub(crate) const MIN_IPV4_MTU: u16 = 576;
/// The least IPv6 path MTU. A smaller report is a router's error (RFC 8201 §4).
const MIN_IPV6_MTU: u16 = 1280;
/// Bound on the sequence numbers sent since the quoted one: a second's worth of a fast line.
const MAX_NUMBERS_SINCE_QUOTED: u64 = 1 << 21;
/// Bound on the remembered paths. On a path that is not remembered a large packet is lost now and
/// then, no more.
const MAX_PATHS: usize = 1 << 16;

const ESP: u8 = 50;
const AH: u8 = 51;
const UDP: u8 = 17;
const FRAGMENT: u8 = 44;
const NAT_PORT: [u8; 2] = 4500_u16.to_be_bytes();

/// A report that a packet of ours was larger than a link on its way takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooBig {
    /// Our address.
    pub local: IpAddr,
    /// The destination.
    pub remote: IpAddr,
    /// SPI of the quoted packet, which the peer chose.
    pub spi: Spi,
    /// Low half of its sequence number.
    pub sequence: u32,
    /// True if a UDP header precedes it.
    pub udp: bool,
    /// MTU of the link.
    pub mtu: u16,
}

impl TooBig {
    /// Reads an ICMP message in its IPv4 packet: destination unreachable, fragmentation needed (RFC
    /// 792, RFC 1191 §4).
    pub fn read_ipv4(packet: &[u8]) -> Option<Self> {
        let (_, icmp) = ipv4(packet, 1)?;
        let (header, quoted) = icmp.split_first_chunk::<8>()?;
        let [3, 4, _, _, _, _, high, low] = *header else { return None };
        if sum(icmp) != 0xffff {
            return None;
        }
        let mtu = u16::from_be_bytes([high, low]);
        let [_, _, length @ ..] = *quoted.first_chunk::<4>()?;
        // Routers from before RFC 1191 report zero. A packet that fits was not refused.
        if mtu == 0 || u16::from_be_bytes(length) <= mtu {
            return None;
        }
        let protocol = *quoted.get(9)?;
        let ([local, remote], payload) = ipv4(quoted, protocol)?;
        let (spi, sequence) = esp(protocol, payload)?;
        let mtu = mtu.max(MIN_IPV4_MTU);
        let udp = protocol == UDP;
        Some(Self { local: local.into(), remote: remote.into(), spi, sequence, udp, mtu })
    }

    /// Reads an ICMPv6 message without its IPv6 header, whose checksum was verified already: packet
    /// too big (RFC 4443 §3.2).
    pub fn read_ipv6(icmp: &[u8]) -> Option<Self> {
        let (header, quoted) = icmp.split_first_chunk::<8>()?;
        let [2, _, _, _, mtu @ ..] = *header else { return None };
        let mtu = u16::try_from(u32::from_be_bytes(mtu)).ok()?;
        let (ip, payload) = quoted.split_first_chunk::<40>()?;
        let length = usize::from(u16::from_be_bytes([ip[4], ip[5]])) + ip.len();
        if ip[0] >> 4 != 6 || mtu < MIN_IPV6_MTU || length <= mtu.into() {
            return None;
        }
        let addr = |at: usize| ip.get(at..)?.first_chunk::<16>().map(|octets| Ipv6Addr::from(*octets));
        let (protocol, payload) = if ip[6] == FRAGMENT { first_fragment(payload)? } else { (ip[6], payload) };
        let (spi, sequence) = esp(protocol, payload)?;
        let udp = protocol == UDP;
        Some(Self { local: addr(8)?.into(), remote: addr(24)?.into(), spi, sequence, udp, mtu })
    }

    /// True if the quoted number was sent recently; `used` are the used numbers.
    pub(crate) fn is_recent(&self, used: &Range<u64>) -> bool {
        let behind = (used.end as u32).wrapping_sub(self.sequence);
        // The first number is 1: zero, which anyone can guess, was never sent.
        behind != 0 && u64::from(behind) <= MAX_NUMBERS_SINCE_QUOTED.min(used.end.saturating_sub(used.start))
    }
}

/// Addresses and payload of an IPv4 packet with this protocol that is no later fragment. It may be
/// cut off.
fn ipv4(packet: &[u8], protocol: u8) -> Option<([Ipv4Addr; 2], &[u8])> {
    let header = packet.first_chunk::<20>()?;
    let length = usize::from(header[0] & 0x0f) * 4;
    let fragment = u16::from_be_bytes([header[6], header[7]]) & 0x1fff;
    if header[0] >> 4 != 4 || length < 20 || header[9] != protocol || fragment != 0 {
        return None;
    }
    let addr = |at: usize| header.get(at..)?.first_chunk::<4>().map(|octets| Ipv4Addr::from(*octets));
    Some(([addr(12)?, addr(16)?], packet.get(length..)?))
}

/// The payload and protocol behind a Fragment header (RFC 8200 §4.5), if it is the first fragment,
/// which has the ESP header.
fn first_fragment(payload: &[u8]) -> Option<(u8, &[u8])> {
    let (header, rest) = payload.split_first_chunk::<8>()?;
    let offset = u16::from_be_bytes([header[2], header[3]]) >> 3;
    (offset == 0).then_some((header[0], rest))
}

/// SPI and sequence number of ESP, of ESP in UDP (RFC 3948 §2.1), or of AH (RFC 4302 §2).
fn esp(protocol: u8, payload: &[u8]) -> Option<(Spi, u32)> {
    let header = match protocol {
        ESP => payload,
        // Routers that quote no more than RFC 792 requires show no sequence number of AH: they are
        // not believed.
        AH => payload.get(4..)?,
        UDP if payload.starts_with(&NAT_PORT) => payload.get(8..)?,
        _ => return None,
    };
    let [a, b, c, d, sequence @ ..] = *header.first_chunk::<8>()?;
    let spi = u32::from_be_bytes([a, b, c, d]);
    // Zero is the marker before an IKE message.
    (spi != 0).then(|| (Spi(spi), u32::from_be_bytes(sequence)))
}

/// The Internet checksum (RFC 1071): all ones over octets that include their own checksum.
#[cfg_attr(not(test), expect(clippy::indexing_slicing, reason = "a chunk has one octet at least"))]
fn sum(octets: &[u8]) -> u16 {
    let words = octets.chunks(2).map(|word| u16::from_be_bytes([word[0], word.get(1).copied().unwrap_or(0)]));
    let mut sum: u32 = words.fold(0, |sum, word| sum.wrapping_add(word.into()));
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Learned path MTUs, by remote address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathMtus(BTreeMap<IpAddr, Learned>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Learned {
    mtu: u16,
    at: Duration,
}

impl PathMtus {
    /// Learns a path MTU at time `at`. A larger one than the known one means nothing: another
    /// router, or an old message. The same one again prolongs its life.
    pub fn learn(&mut self, at: Duration, remote: IpAddr, mtu: u16) {
        let mtu = mtu.max(if remote.is_ipv6() { MIN_IPV6_MTU } else { MIN_IPV4_MTU });
        let known = self.0.get(&remote).copied().filter(|known| known.is_fresh(at));
        let same = known.filter(|known| known.mtu == mtu);
        if known.is_none_or(|known| mtu <= known.mtu) && self.has_room(at, remote) {
            self.0.insert(remote, Learned { mtu, at: same.map_or(at, |same| same.at.max(at)) });
        }
    }

    /// True if a path MTU should be published to nodes that have this table: it is less than they
    /// know, or they would forget theirs much earlier.
    pub fn is_worth_telling(&self, now: Duration, remote: IpAddr, mtu: u16) -> bool {
        let known = self.0.get(&remote).filter(|known| known.is_fresh(now));
        known.is_none_or(|known| {
            mtu < known.mtu || mtu == known.mtu && now.saturating_sub(known.at) >= LIFETIME / 2
        })
    }

    fn has_room(&mut self, now: Duration, remote: IpAddr) -> bool {
        if self.0.len() >= MAX_PATHS && !self.0.contains_key(&remote) {
            self.expire(now);
        }
        self.0.len() < MAX_PATHS || self.0.contains_key(&remote)
    }

    /// The MTU of a path, if it was learned recently.
    pub fn get(&self, now: Duration, remote: IpAddr) -> Option<u16> {
        self.0.get(&remote).filter(|learned| learned.is_fresh(now)).map(|learned| learned.mtu)
    }

    /// Forgets expired path MTUs, and returns their addresses.
    pub fn expire(&mut self, now: Duration) -> Vec<IpAddr> {
        self.0.extract_if(.., |_, learned| !learned.is_fresh(now)).map(|(remote, _)| remote).collect()
    }

    /// All path MTUs, with the time since each was learned.
    pub fn all(&self, now: Duration) -> impl Iterator<Item = (IpAddr, u16, Duration)> + '_ {
        let fresh = self.0.iter().filter(move |(_, learned)| learned.is_fresh(now));
        fresh.map(move |(remote, learned)| (*remote, learned.mtu, now.saturating_sub(learned.at)))
    }
}

impl Learned {
    fn is_fresh(&self, now: Duration) -> bool {
        now.saturating_sub(self.at) < LIFETIME
    }
}

#[cfg(test)]
mod tests;
