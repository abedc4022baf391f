//! IPv6 headers and the way through extension headers to the upper protocol (RFC 8200).

mod fragment;

pub(crate) use fragment::FRAGMENT_HEADER;
pub use fragment::{Fragments, fragment};

use crate::Error;
use crate::ip::Protocol;
use std::net::Ipv6Addr;

/// Octets of the fixed header.
pub const HEADER: usize = 40;
/// The smallest MTU of a link (RFC 8200 §5).
pub const MIN_MTU: u16 = 1280;
/// Bound on the extension headers of a packet; more are refused.
pub const MAX_EXTENSIONS: usize = 8;

/// A packet whose header has been checked against the octets that are there.
#[derive(Clone, Copy, Debug)]
pub struct Ipv6<'a> {
    fixed: &'a [u8; HEADER],
    payload: &'a [u8],
}

/// The fragment header (RFC 8200 §4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FragmentHeader {
    /// Offset of this fragment's payload in the whole, in octets.
    pub offset: usize,
    /// More fragments follow.
    pub more: bool,
    /// Identification.
    pub id: u32,
}

/// A fragment header in its packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) fragment: FragmentHeader,
    /// Its offset.
    pub(crate) at: usize,
    /// Offset of the octet that names it.
    pub(crate) named_at: usize,
    /// The next header that it names.
    pub(crate) next: Protocol,
}

/// The part behind the extension headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Upper<'a> {
    /// The upper protocol. In fragments other than the first, the next header of the fragment
    /// header: it may be another extension header, and the upper protocol is then unknown.
    pub protocol: Protocol,
    /// The octets behind the last extension header.
    pub payload: &'a [u8],
    /// Set if the packet is a fragment.
    pub fragment: Option<FragmentHeader>,
}

impl FragmentHeader {
    fn read(head: &[u8; 8]) -> Self {
        let place = u16::from_be_bytes([head[2], head[3]]);
        let id = u32::from_be_bytes([head[4], head[5], head[6], head[7]]);
        Self { offset: usize::from(place & !7), more: place & 1 == 1, id }
    }
}

impl Upper<'_> {
    /// True if the upper protocol's header is not in this packet.
    #[inline]
    pub fn is_later_fragment(&self) -> bool {
        self.fragment.is_some_and(|fragment| fragment.offset != 0)
    }
}

impl<'a> Ipv6<'a> {
    /// Checks version and payload length. Octets behind the payload length are ignored. Jumbograms
    /// are not supported.
    #[inline]
    pub fn parse(packet: &'a [u8]) -> Result<Self, Error> {
        Self::parse_as(packet, false)
    }

    /// Parses a packet whose end may be missing, as ICMP errors quote it. Its payload, and its
    /// total length, are what is there.
    pub fn parse_cut(packet: &'a [u8]) -> Result<Self, Error> {
        Self::parse_as(packet, true)
    }

    #[inline(always)]
    fn parse_as(packet: &'a [u8], may_be_cut: bool) -> Result<Self, Error> {
        let truncated = Error::Truncated { found: packet.len(), expected: HEADER };
        let (fixed, rest) = packet.split_first_chunk::<HEADER>().ok_or(truncated)?;
        if fixed[0] >> 4 != 6 {
            return Err(Error::Version { found: fixed[0] >> 4, expected: 6 });
        }
        let len = usize::from(u16::from_be_bytes([fixed[4], fixed[5]]));
        let truncated = Error::Truncated { found: packet.len(), expected: HEADER + len };
        let payload = match rest.get(..len) {
            None if may_be_cut => rest,
            whole => whole.ok_or(truncated)?,
        };
        Ok(Self { fixed, payload })
    }

    /// DSCP and ECN.
    #[inline]
    pub fn traffic_class(&self) -> u8 {
        self.fixed[0] << 4 | self.fixed[1] >> 4
    }

    /// Octets of the packet, by its header.
    #[inline]
    pub fn total_len(&self) -> usize {
        HEADER + self.payload.len()
    }

    /// The first next header.
    #[inline]
    pub fn next_header(&self) -> Protocol {
        Protocol(self.fixed[6])
    }

    /// Hop limit.
    #[inline]
    pub fn hop_limit(&self) -> u8 {
        self.fixed[7]
    }

    /// Source address.
    #[inline]
    pub fn src(&self) -> Ipv6Addr {
        let [_, _, _, _, _, _, _, _, src @ .., _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _] = *self.fixed;
        Ipv6Addr::from(src)
    }

    /// Destination address.
    #[inline]
    pub fn dst(&self) -> Ipv6Addr {
        self.fixed.last_chunk().map_or(Ipv6Addr::UNSPECIFIED, |dst: &[u8; 16]| Ipv6Addr::from(*dst))
    }

    /// The octets after the fixed header.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Walks the extension headers to the first fragment header; `None` if there is none.
    pub(crate) fn find_fragment(&self) -> Result<Option<Found>, Error> {
        let (mut next, mut at, mut named_at) = (self.next_header(), 0, 6);
        for _ in 0..=MAX_EXTENSIONS {
            if !next.is_extension() {
                return Ok(None);
            }
            let left = self.payload.get(at..).unwrap_or_default();
            let head = left.first_chunk::<8>().ok_or(Error::Truncated { found: left.len(), expected: 8 })?;
            if next == Protocol::FRAGMENT {
                let fragment = FragmentHeader::read(head);
                return Ok(Some(Found { fragment, at: HEADER + at, named_at, next: Protocol(head[0]) }));
            }
            (next, named_at) = (Protocol(head[0]), HEADER + at);
            at += (usize::from(head[1]) + 1) * 8;
        }
        Err(Error::TooManyHeaders)
    }

    /// Walks the extension headers to the upper protocol.
    #[inline]
    pub fn upper(&self) -> Result<Upper<'a>, Error> {
        let protocol = self.next_header();
        if protocol.is_extension() {
            walk(protocol, self.payload)
        } else {
            Ok(Upper { protocol, payload: self.payload, fragment: None })
        }
    }
}

/// The extension headers before `at`, each whole.
pub(crate) fn for_each_header(
    ip: &Ipv6<'_>,
    at: usize,
    mut each: impl FnMut(Protocol, &[u8]) -> Result<(), Error>,
) -> Result<(), Error> {
    let (mut protocol, mut payload) = (ip.next_header(), ip.payload());
    let mut here = HEADER;
    for _ in 0..=MAX_EXTENSIONS {
        if here == at {
            return Ok(());
        }
        let truncated = |expected| Error::Truncated { found: payload.len(), expected };
        if here > at || !protocol.is_extension() {
            return Err(Error::Options);
        }
        let &[next, words] = payload.first_chunk().ok_or(truncated(2))?;
        let len = if protocol == Protocol::FRAGMENT { 8 } else { (usize::from(words) + 1) * 8 };
        let (header, rest) = payload.split_at_checked(len).ok_or(truncated(len))?;
        each(protocol, header)?;
        (protocol, payload, here) = (Protocol(next), rest, here + len);
    }
    Err(Error::TooManyHeaders)
}

/// The way through the extension headers. Stops at the first fragment header of a later fragment,
/// because what follows is not a header.
fn walk(mut protocol: Protocol, mut payload: &[u8]) -> Result<Upper<'_>, Error> {
    let mut fragment = None;
    for position in 0..=MAX_EXTENSIONS {
        if !protocol.is_extension() {
            return Ok(Upper { protocol, payload, fragment });
        }
        // Hop-by-hop options stand first or not at all (RFC 8200 §4.1).
        if protocol == Protocol::HOP_BY_HOP && position > 0 {
            return Err(Error::Options);
        }
        let truncated = |expected| Error::Truncated { found: payload.len(), expected };
        let head: &[u8; 8] = payload.first_chunk().ok_or(truncated(8))?;
        let is_fragment = protocol == Protocol::FRAGMENT;
        let len = if is_fragment { 8 } else { (usize::from(head[1]) + 1) * 8 };
        payload = payload.get(len..).ok_or(truncated(len))?;
        protocol = Protocol(head[0]);
        if is_fragment {
            let found = FragmentHeader::read(head);
            if fragment.replace(found).is_some() {
                return Err(Error::Options);
            }
            if found.offset != 0 {
                return Ok(Upper { protocol, payload, fragment });
            }
        }
    }
    Err(Error::TooManyHeaders)
}

/// The fixed header, to be changed in place.
#[derive(Debug)]
pub struct Ipv6Mut<'a>(&'a mut [u8; HEADER]);

impl<'a> Ipv6Mut<'a> {
    /// The header at the front of `packet`, which a parser has accepted before. `None` if it is
    /// shorter than one.
    #[inline]
    pub fn new(packet: &'a mut [u8]) -> Option<Self> {
        packet.first_chunk_mut().map(Self)
    }

    /// Sets DSCP and ECN.
    #[inline]
    pub fn set_traffic_class(&mut self, class: u8) {
        self.0[0] = self.0[0] & 0xf0 | class >> 4;
        self.0[1] = self.0[1] & 0x0f | class << 4;
    }

    /// Sets the octets behind the fixed header.
    #[inline]
    pub fn set_payload_len(&mut self, payload: u16) {
        self.0[4..6].copy_from_slice(&payload.to_be_bytes());
    }

    /// Decrements the hop limit; zero stays zero.
    #[inline]
    pub fn decrement_hop_limit(&mut self) {
        self.0[7] = self.0[7].saturating_sub(1);
    }
}

/// The fields of a fixed header; the flow label is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fields {
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// Octets behind the fixed header.
    pub payload_len: u16,
    /// The next header.
    pub next_header: Protocol,
    /// Hop limit.
    pub hop_limit: u8,
    /// Source address.
    pub src: Ipv6Addr,
    /// Destination address.
    pub dst: Ipv6Addr,
}

impl Fields {
    /// The header's octets.
    pub fn to_bytes(self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[0] = 0x60 | self.traffic_class >> 4;
        bytes[1] = self.traffic_class << 4;
        bytes[4..6].copy_from_slice(&self.payload_len.to_be_bytes());
        bytes[6] = self.next_header.0;
        bytes[7] = self.hop_limit;
        bytes[8..24].copy_from_slice(&self.src.octets());
        bytes[24..40].copy_from_slice(&self.dst.octets());
        bytes
    }
}

#[cfg(test)]
mod tests;
