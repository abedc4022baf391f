//! IPv4 headers (RFC 791).

mod fragment;
mod likeness;
mod options;

pub use fragment::{Fragments, fragment};
pub use likeness::Likeness;
pub(crate) use options::{is_routed_on, split as split_option};

use crate::checksum::{Sum, update_u16};
use crate::ip::Protocol;
use crate::{Error, ip};
use std::net::Ipv4Addr;

/// Octets of a header without options.
pub const HEADER: usize = 20;
/// The least MTU of IPv4 (RFC 791 §3.2).
pub const MIN_MTU: u16 = 68;
/// A header without options and the ports behind it.
const MIN_COMPARED: usize = HEADER + 4;

const DF: u16 = 0x4000;
const MF: u16 = 0x2000;
const OFFSET: u16 = 0x1fff;

/// A packet whose header has been checked against the octets that are there. The checksum is a
/// separate step.
#[derive(Clone, Copy, Debug)]
pub struct Ipv4<'a> {
    fixed: &'a [u8; HEADER],
    options: &'a [u8],
    payload: &'a [u8],
}

impl<'a> Ipv4<'a> {
    /// Checks version, header length, total length and options. Octets behind the total length are
    /// ignored.
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
        if fixed[0] >> 4 != 4 {
            return Err(Error::Version { found: fixed[0] >> 4, expected: 4 });
        }
        let header = usize::from(fixed[0] & 15) * 4;
        let total = usize::from(u16::from_be_bytes([fixed[2], fixed[3]]));
        let Some(options) = header.checked_sub(HEADER) else {
            return Err(Error::Length { found: header, expected: HEADER });
        };
        let Some(payload) = total.checked_sub(header) else {
            return Err(Error::Length { found: total, expected: header });
        };
        let truncated = Error::Truncated { found: packet.len(), expected: total };
        let (options, rest) = rest.split_at_checked(options).ok_or(truncated)?;
        let payload = match rest.get(..payload) {
            None if may_be_cut => rest,
            whole => whole.ok_or(truncated)?,
        };
        if !options.is_empty() {
            options::check(options)?;
        }
        Ok(Self { fixed, options, payload })
    }

    /// Parses, and verifies the header's checksum.
    #[inline(always)]
    pub fn parse_verified(packet: &'a [u8]) -> Result<Self, Error> {
        let parsed = Self::parse(packet)?;
        if parsed.has_valid_checksum() { Ok(parsed) } else { Err(Error::Checksum) }
    }

    /// True if the header's checksum is valid.
    #[inline]
    pub fn has_valid_checksum(&self) -> bool {
        let sum = Sum::new().words(self.fixed);
        // Options are rare, and summing even zero of them costs time.
        let sum = if self.options.is_empty() { sum } else { sum.bytes(self.options) };
        sum.is_valid()
    }

    #[inline]
    #[cfg_attr(not(test), expect(clippy::indexing_slicing, reason = "the compiler has checked `AT`"))]
    fn u16_at<const AT: usize>(&self) -> u16 {
        const { assert!(AT + 1 < HEADER) };
        u16::from_be_bytes([self.fixed[AT], self.fixed[AT + 1]])
    }

    /// DSCP and ECN.
    #[inline]
    pub fn tos(&self) -> u8 {
        self.fixed[1]
    }

    /// Octets of the header, options included.
    #[inline]
    pub fn header_len(&self) -> usize {
        HEADER + self.options.len()
    }

    /// Octets of the packet, by its header.
    #[inline]
    pub fn total_len(&self) -> usize {
        self.header_len() + self.payload.len()
    }

    /// Identification.
    #[inline]
    pub fn id(&self) -> u16 {
        self.u16_at::<4>()
    }

    /// Don't Fragment.
    #[inline]
    pub fn df(&self) -> bool {
        self.u16_at::<6>() & DF != 0
    }

    /// More Fragments.
    #[inline]
    pub fn mf(&self) -> bool {
        self.u16_at::<6>() & MF != 0
    }

    /// Offset of this fragment's payload in the whole, in octets.
    #[inline]
    pub fn fragment_offset(&self) -> usize {
        usize::from(self.u16_at::<6>() & OFFSET) * 8
    }

    /// True for every piece of a fragmented packet.
    #[inline]
    pub fn is_fragment(&self) -> bool {
        self.u16_at::<6>() & (MF | OFFSET) != 0
    }

    /// Time to live.
    #[inline]
    pub fn ttl(&self) -> u8 {
        self.fixed[8]
    }

    /// The protocol of the payload.
    #[inline]
    pub fn protocol(&self) -> Protocol {
        Protocol(self.fixed[9])
    }

    /// Source address.
    #[inline]
    pub fn src(&self) -> Ipv4Addr {
        let f = self.fixed;
        Ipv4Addr::new(f[12], f[13], f[14], f[15])
    }

    /// Destination address.
    #[inline]
    pub fn dst(&self) -> Ipv4Addr {
        let f = self.fixed;
        Ipv4Addr::new(f[16], f[17], f[18], f[19])
    }

    /// Options with their padding.
    #[inline]
    pub fn options(&self) -> &'a [u8] {
        self.options
    }

    /// The payload.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// The fixed part of a header, to be changed in place; each setter keeps the checksum valid (RFC
/// 1624).
#[derive(Debug)]
pub struct Ipv4Mut<'a>(&'a mut [u8; HEADER]);

impl<'a> Ipv4Mut<'a> {
    /// The header at the front of `packet`, which a parser has accepted before. `None` if it is
    /// shorter than one.
    #[inline]
    pub fn new(packet: &'a mut [u8]) -> Option<Self> {
        packet.first_chunk_mut().map(Self)
    }

    /// Replaces the 16-bit word at `AT`.
    #[inline]
    #[cfg_attr(not(test), expect(clippy::indexing_slicing, reason = "the compiler has checked `AT`"))]
    fn replace<const AT: usize>(&mut self, change: impl FnOnce([u8; 2]) -> [u8; 2]) {
        const { assert!(AT + 1 < HEADER && AT.is_multiple_of(2)) };
        let old = [self.0[AT], self.0[AT + 1]];
        let new = change(old);
        self.0[AT] = new[0];
        self.0[AT + 1] = new[1];
        let check = u16::from_be_bytes([self.0[10], self.0[11]]);
        let check = update_u16(check, u16::from_be_bytes(old), u16::from_be_bytes(new));
        [self.0[10], self.0[11]] = check.to_be_bytes();
    }

    /// Sets DSCP and ECN.
    #[inline]
    pub fn set_tos(&mut self, tos: u8) {
        self.replace::<0>(|[first, _]| [first, tos]);
    }

    /// Sets the octets of the packet.
    #[inline]
    pub fn set_total_len(&mut self, total: u16) {
        self.replace::<2>(|_| total.to_be_bytes());
    }

    /// Sets the protocol.
    #[inline]
    pub fn set_protocol(&mut self, protocol: Protocol) {
        self.replace::<8>(|[ttl, _]| [ttl, protocol.0]);
    }

    /// Sets the time to live.
    #[inline]
    pub fn set_ttl(&mut self, ttl: u8) {
        self.replace::<8>(|[_, protocol]| [ttl, protocol]);
    }

    /// Decrements the TTL; zero stays zero.
    #[inline]
    pub fn decrement_ttl(&mut self) {
        self.replace::<8>(|[ttl, protocol]| [ttl.saturating_sub(1), protocol]);
    }
}

/// The fields of a header without options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fields {
    /// DSCP and ECN.
    pub tos: u8,
    /// Octets of the whole packet.
    pub total_len: u16,
    /// Identification.
    pub id: u16,
    /// Don't Fragment.
    pub df: bool,
    /// Time to live.
    pub ttl: u8,
    /// The protocol.
    pub protocol: Protocol,
    /// Source address.
    pub src: Ipv4Addr,
    /// Destination address.
    pub dst: Ipv4Addr,
}

impl Fields {
    /// The header's octets, checksum included.
    pub fn to_bytes(self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[0] = 0x45;
        bytes[1] = self.tos;
        bytes[2..4].copy_from_slice(&self.total_len.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.id.to_be_bytes());
        bytes[6..8].copy_from_slice(&(if self.df { DF } else { 0 }).to_be_bytes());
        bytes[8] = self.ttl;
        bytes[9] = self.protocol.0;
        bytes[12..16].copy_from_slice(&self.src.octets());
        bytes[16..20].copy_from_slice(&self.dst.octets());
        let checksum = Sum::new().bytes(&bytes).finish();
        bytes[10..12].copy_from_slice(&checksum.to_be_bytes());
        bytes
    }
}

/// True if the packet is IPv4 with Don't Fragment set.
#[inline]
pub fn is_df(packet: &[u8]) -> bool {
    ip::version(packet) == Some(4) && packet.get(6).is_some_and(|flags| flags & 0x40 != 0)
}

#[cfg(test)]
mod tests;
