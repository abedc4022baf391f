//! AH's header, and the part of a packet that its integrity check covers (RFC 4302). The check
//! itself is made elsewhere.

use crate::Error;
use crate::ip::{self, Protocol};
use crate::ipv4::{self, Ipv4};
use crate::ipv6::{self, Ipv6, for_each_header};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Octets of the header before the ICV.
pub const HEADER: usize = 12;

/// The largest ICV with its padding.
const MAX_ICV_LEN: usize = 64;
const ZEROS: [u8; 256] = [0; 256];

/// An AH header whose length has been checked against the octets that are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ah<'a> {
    /// The next header.
    pub next: Protocol,
    /// Security Parameters Index.
    pub spi: u32,
    /// The low 32 bits of the sequence number.
    pub sequence: u32,
    /// The ICV with its padding.
    pub icv: &'a [u8],
    /// The octets after the header.
    pub payload: &'a [u8],
}

impl<'a> Ah<'a> {
    /// Reads the header. Its length field counts words, without the first two (RFC 4302 §2.2).
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Error> {
        let truncated = |expected| Error::Truncated { found: bytes.len(), expected };
        let (head, rest) = bytes.split_first_chunk::<HEADER>().ok_or(truncated(HEADER))?;
        let &[next, words, _, _, s0, s1, s2, s3, n0, n1, n2, n3] = head;
        let len = (usize::from(words) + 2) * 4;
        let icv = len.checked_sub(HEADER).ok_or(Error::Length { found: len, expected: HEADER })?;
        let (icv, payload) = rest.split_at_checked(icv).ok_or(truncated(len))?;
        let (spi, sequence) = (u32::from_be_bytes([s0, s1, s2, s3]), u32::from_be_bytes([n0, n1, n2, n3]));
        Ok(Self { next: Protocol(next), spi, sequence, icv, payload })
    }
}

/// Octets of a header with an ICV of `icv` octets: a multiple of four, and of eight in IPv6 (RFC
/// 4302 §2.6).
pub const fn header_len(icv: usize, v6: bool) -> usize {
    (HEADER + icv).next_multiple_of(if v6 { 8 } else { 4 })
}

/// Fills `header` with an ICV of zeros. Returns false, and changes nothing, if no header has its
/// length.
#[must_use]
pub fn write(header: &mut [u8], next: Protocol, spi: u32, sequence: u32) -> bool {
    let len = header.len();
    let words = u8::try_from(len / 4).ok().and_then(|words| words.checked_sub(2));
    let (Some(words), true, true) = (words, len.is_multiple_of(4), len >= HEADER) else { return false };
    header.fill(0);
    let ([s0, s1, s2, s3], [n0, n1, n2, n3]) = (spi.to_be_bytes(), sequence.to_be_bytes());
    if let Some(head) = header.first_chunk_mut::<HEADER>() {
        *head = [next.0, words, 0, 0, s0, s1, s2, s3, n0, n1, n2, n3];
    }
    true
}

/// Calls `covered`, piece by piece, with the octets of a packet that the ICV covers (RFC 4302
/// §3.3.3): immutable fields as they are, predictable ones as the receiver sees them, and zeros for
/// the rest. AH is at offset `at`, and its ICV has `icv` octets. The caller adds the high half of
/// an extended sequence number.
///
/// # Errors
/// The octets are no packet, or its headers cannot be predicted: an IPv4 source route that does not
/// end here, an IPv6 routing header of a type other than 0 and 2, or a fragment header before AH.
pub fn cover(packet: &[u8], at: usize, icv: usize, mut covered: impl FnMut(&[u8])) -> Result<(), Error> {
    let total = match ip::version(packet) {
        Some(4) => {
            let ip = Ipv4::parse(packet)?;
            cover_v4(&ip, at, &mut covered)?;
            ip.total_len()
        }
        _ => {
            let ip = Ipv6::parse(packet)?;
            cover_v6(&ip, at, &mut covered)?;
            ip.total_len()
        }
    };
    let ah = packet.get(at..total).ok_or(Error::Truncated { found: total, expected: at })?;
    let parsed = Ah::parse(ah)?;
    if parsed.icv.len() < icv || icv > MAX_ICV_LEN {
        return Err(Error::Length { found: parsed.icv.len(), expected: icv });
    }
    let (head, rest) =
        ah.split_at_checked(HEADER).ok_or(Error::Truncated { found: ah.len(), expected: HEADER })?;
    covered(head);
    covered(ZEROS.get(..icv).unwrap_or_default());
    // The padding is covered (§3.3.3.2.1).
    covered(rest.get(icv..).unwrap_or_default());
    Ok(())
}

/// Whether [`cover`] accepts the headers of a packet before `at`, where AH will be.
pub fn check_headers(packet: &[u8], at: usize) -> Result<(), Error> {
    match ip::version(packet) {
        Some(4) => cover_v4(&Ipv4::parse(packet)?, at, &mut |_| ()),
        _ => cover_v6(&Ipv6::parse(packet)?, at, &mut |_| ()),
    }
}

#[cfg_attr(not(test), expect(clippy::indexing_slicing, reason = "`split_option` gives one octet at least"))]
fn cover_v4(ip: &Ipv4<'_>, at: usize, covered: &mut impl FnMut(&[u8])) -> Result<(), Error> {
    if ip.header_len() != at {
        return Err(Error::Length { found: ip.header_len(), expected: at });
    }
    let fields = ipv4::Fields {
        tos: 0,
        total_len: ip.total_len() as u16,
        id: ip.id(),
        df: false,
        ttl: 0,
        protocol: ip.protocol(),
        src: ip.src(),
        dst: destination_v4(ip)?,
    };
    let mut header = fields.to_bytes();
    header[0] = 0x40 | (at / 4) as u8;
    header[10..12].fill(0);
    covered(&header);
    let mut options = ip.options();
    while let Some((option, rest)) = ipv4::split_option(options) {
        let is_kept = IMMUTABLE.contains(&option[0]);
        covered(if is_kept { option } else { ZEROS.get(..option.len()).unwrap_or_default() });
        options = rest;
    }
    // The end of the list, and the padding of the last word.
    covered(options);
    Ok(())
}

/// Types of options that no router changes (RFC 4302, appendix A1): no operation, security,
/// extended security, commercial security, router alert, sender directed multi-destination
/// delivery.
const IMMUTABLE: [u8; 6] = [1, 130, 133, 134, 148, 149];

/// The last destination: a source route names others until it is used up.
fn destination_v4(ip: &Ipv4<'_>) -> Result<Ipv4Addr, Error> {
    if ipv4::is_routed_on(ip.options()) { Err(Error::Options) } else { Ok(ip.dst()) }
}

fn cover_v6(ip: &Ipv6<'_>, at: usize, covered: &mut impl FnMut(&[u8])) -> Result<(), Error> {
    let mut dst = ip.dst();
    for_each_header(ip, at, |protocol, header| {
        if protocol == Protocol::ROUTING {
            dst = RoutingHeader::parse(header)?.last().unwrap_or(dst);
        }
        Ok(())
    })?;
    let fields = ipv6::Fields {
        traffic_class: 0,
        payload_len: ip.payload().len() as u16,
        next_header: ip.next_header(),
        hop_limit: 0,
        src: ip.src(),
        dst,
    };
    covered(&fields.to_bytes());
    for_each_header(ip, at, |protocol, header| match protocol {
        Protocol::ROUTING => {
            RoutingHeader::parse(header)?.cover(ip.dst(), covered);
            Ok(())
        }
        Protocol::HOP_BY_HOP | Protocol::DEST_OPTIONS => cover_options(header, covered),
        // AH does not see it.
        _ => Err(Error::Options),
    })
}

/// Options of IPv6: a bit of the type says that routers change the value (RFC 8200 §4.2).
fn cover_options(header: &[u8], covered: &mut impl FnMut(&[u8])) -> Result<(), Error> {
    const PAD1: u8 = 0;
    const CHANGES: u8 = 0x20;
    let (head, mut options) = header.split_at_checked(2).ok_or(Error::Options)?;
    covered(head);
    while let Some((&kind, rest)) = options.split_first() {
        let len = if kind == PAD1 { 1 } else { 2 + usize::from(*rest.first().ok_or(Error::Options)?) };
        let (option, rest) = options.split_at_checked(len).ok_or(Error::Options)?;
        match option.split_at_checked(2) {
            Some((head, data)) if kind & CHANGES != 0 => {
                covered(head);
                covered(ZEROS.get(..data.len()).unwrap_or_default());
            }
            _ => covered(option),
        }
        options = rest;
    }
    Ok(())
}

/// A routing header with a predictable end: type 0 (RFC 2460 §4.4), and type 2 (RFC 6275 §6.4),
/// which has one address.
struct RoutingHeader<'a> {
    head: [u8; 8],
    addresses: &'a [[u8; 16]],
    /// Number of addresses still to be visited.
    left: usize,
}

impl<'a> RoutingHeader<'a> {
    fn parse(header: &'a [u8]) -> Result<Self, Error> {
        let (head, rest) = header.split_first_chunk::<8>().ok_or(Error::Options)?;
        let (addresses, surplus) = rest.as_chunks::<16>();
        let left = usize::from(head[3]);
        if !matches!(head[2], 0 | 2) || !surplus.is_empty() || left > addresses.len() {
            return Err(Error::Options);
        }
        Ok(Self { head: *head, addresses, left })
    }

    /// The last destination, if it is not reached.
    fn last(&self) -> Option<Ipv6Addr> {
        self.addresses.last().filter(|_| self.left > 0).map(|last| Ipv6Addr::from(*last))
    }

    /// As the receiver sees it: each hop has replaced the next address by its own.
    fn cover(&self, dst: Ipv6Addr, covered: &mut impl FnMut(&[u8])) {
        let mut head = self.head;
        head[3] = 0;
        covered(&head);
        let (visited, left) = self.addresses.split_at(self.addresses.len() - self.left);
        visited.iter().for_each(|address| covered(address));
        if let Some((_, before_last)) = left.split_last() {
            covered(&dst.octets());
            before_last.iter().for_each(|address| covered(address));
        }
    }
}

#[cfg(test)]
mod tests;
