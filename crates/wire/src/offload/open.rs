//! Checksums that a sender's kernel has left open, recognised by the packet's octets alone.
//!
//! A kernel leaves the checksum of TCP, UDP and SCTP to a device that has offered to compute it
//! (CHECKSUM_PARTIAL). Until then the field of TCP and UDP holds the sum of the pseudo-header,
//! folded and not complemented; that of SCTP is zero. A virtual device hands such a packet to its
//! neighbour as it is, and says beside it that the checksum is open. A reader that gets the octets
//! alone (AF_XDP) compares the field with that.
//!
//! One finished checksum in 65535, of SCTP in 2^32, equals it too. Completing it gives the octets
//! that were there.

use super::{TCP_CHECKSUM, complete, sctp};
use crate::Error;
use crate::checksum::Sum;
use crate::ip::{self, Protocol};
use crate::ipv4::{self, Ipv4};
use crate::ipv6::{Ipv6, for_each_header};
use crate::{tcp, udp};

/// Offset of the checksum in a UDP header.
const UDP_CHECKSUM: u16 = 6;
/// The destination option with a mobile node's own address (RFC 6275 §6.3).
const HOME_ADDRESS: u8 = 0xc9;
const PAD1: u8 = 0;

/// A TCP segment, UDP datagram or SCTP packet in its IP packet.
struct ChecksummedSpan {
    start: usize,
    end: usize,
    protocol: Protocol,
    pseudo: Sum,
}

/// Fills in the checksum of TCP, UDP or SCTP where it was left open. True if the packet changed.
///
/// Not touched are:
/// - other protocols;
/// - fragments: a kernel fills in the checksum before it makes them;
/// - UDP without a checksum, or with a length that differs from its packet's;
/// - packets whose pseudo-header has other addresses than their IP header: a source route continues
///   from here, or an option has the source's home address.
#[inline]
pub fn fill_open(packet: &mut [u8]) -> bool {
    find(packet).is_some_and(|(segment, checksum)| fill(packet, &segment, checksum))
}

/// A checksum that may be open.
#[derive(Clone, Copy)]
enum OpenChecksum {
    /// The complemented sum, so many octets behind the beginning.
    Sum(u16),
    /// SCTP's.
    Crc,
}

/// The segment whose checksum may be open.
#[inline]
fn find(packet: &[u8]) -> Option<(ChecksummedSpan, OpenChecksum)> {
    let found = match ip::version(packet)? {
        4 => over_v4(packet)?,
        6 => over_v6(packet)?,
        _ => return None,
    };
    let segment = packet.get(found.start..found.end)?;
    if found.protocol == Protocol::SCTP {
        return sctp::is_open(segment).then_some((found, OpenChecksum::Crc));
    }
    let offset = checksum_offset(found.protocol, segment)?;
    let field: &[u8; 2] = segment.get(usize::from(offset)..)?.first_chunk()?;
    // The sum is not zero, because the protocol's number is not: UDP without a checksum never has
    // it.
    (u16::from_be_bytes(*field) == !found.pseudo.finish()).then_some((found, OpenChecksum::Sum(offset)))
}

#[cold]
fn fill(packet: &mut [u8], segment: &ChecksummedSpan, checksum: OpenChecksum) -> bool {
    let Some(octets) = packet.get_mut(segment.start..segment.end) else { return false };
    let OpenChecksum::Sum(offset) = checksum else { return sctp::fill(octets) };
    let field = |octets: &[u8]| octets.get(usize::from(offset)..).and_then(<[u8]>::first_chunk::<2>).copied();
    let before = field(octets);
    complete(octets, 0, offset).is_ok() && field(octets) != before
}

/// Offset of the checksum, if there is room for the protocol's header.
#[inline]
fn checksum_offset(protocol: Protocol, segment: &[u8]) -> Option<u16> {
    match protocol {
        Protocol::TCP => (segment.len() >= tcp::HEADER).then_some(TCP_CHECKSUM),
        Protocol::UDP => {
            let &[_, _, _, _, high, low, ..] = segment.first_chunk::<{ udp::HEADER }>()?;
            (usize::from(u16::from_be_bytes([high, low])) == segment.len()).then_some(UDP_CHECKSUM)
        }
        _ => None,
    }
}

#[inline]
fn over_v4(packet: &[u8]) -> Option<ChecksummedSpan> {
    let ip = Ipv4::parse(packet).ok()?;
    let protocol = ip.protocol();
    if !has_checksum(protocol) || ip.is_fragment() || ipv4::is_routed_on(ip.options()) {
        return None;
    }
    // Below 65536, as the header's own field says.
    let pseudo = Sum::new().pseudo_v4(ip.src(), ip.dst(), protocol.0, ip.payload().len() as u16);
    Some(ChecksummedSpan { start: ip.header_len(), end: ip.total_len(), protocol, pseudo })
}

#[inline]
fn over_v6(packet: &[u8]) -> Option<ChecksummedSpan> {
    let ip = Ipv6::parse(packet).ok()?;
    let upper = ip.upper().ok()?;
    let protocol = upper.protocol;
    let len = upper.payload.len();
    let start = ip.total_len() - len;
    if !has_checksum(protocol) || upper.fragment.is_some() || !is_addressed_plainly(&ip, start) {
        return None;
    }
    let pseudo = Sum::new().pseudo_v6(ip.src(), ip.dst(), protocol.0, len as u32);
    Some(ChecksummedSpan { start, end: ip.total_len(), protocol, pseudo })
}

/// True for the protocols whose checksum this module knows.
#[inline]
fn has_checksum(protocol: Protocol) -> bool {
    matches!(protocol, Protocol::TCP | Protocol::UDP | Protocol::SCTP)
}

/// True if the pseudo-header has the addresses of the IPv6 header: no extension header before the
/// upper protocol names others (RFC 8200 §8.1, RFC 6275 §11.3.1).
#[inline]
fn is_addressed_plainly(ip: &Ipv6<'_>, upper: usize) -> bool {
    let is_plain = |protocol, header: &[u8]| match protocol {
        Protocol::HOP_BY_HOP => true,
        Protocol::ROUTING => header.get(3) == Some(&0),
        Protocol::DEST_OPTIONS => !may_have_home_address(header),
        _ => false,
    };
    let plain =
        |protocol, header: &[u8]| if is_plain(protocol, header) { Ok(()) } else { Err(Error::Options) };
    for_each_header(ip, upper, plain).is_ok()
}

/// True if destination options name a home address, or are malformed.
fn may_have_home_address(header: &[u8]) -> bool {
    let mut options = header.get(2..).unwrap_or_default();
    loop {
        options = match options {
            [] => return false,
            [HOME_ADDRESS, ..] => return true,
            [PAD1, rest @ ..] => rest,
            [_, len, rest @ ..] => match rest.get(usize::from(*len)..) {
                Some(behind) => behind,
                None => return true,
            },
            [_] => return true,
        };
    }
}

#[cfg(test)]
mod tests;
