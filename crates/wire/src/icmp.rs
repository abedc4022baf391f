//! ICMP errors that a gateway sends (RFC 792, RFC 1191, RFC 4443), built in place around the packet
//! that caused them; and the packets that other errors quote.

mod quiet;

use crate::Error;
use crate::checksum::Sum;
use crate::ip::{self, Protocol};
use crate::ipv4::{self, Ipv4};
use crate::ipv6::{self, Ipv6};
use crate::packet::PacketBuf;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Octets of an ICMP error's own header.
const ICMP_HEADER: usize = 8;
/// The longest ICMP error over IPv4 (RFC 1812 §4.3.2.3).
const MAX_V4_LEN: usize = 576;
/// The longest ICMPv6 error (RFC 4443 §2.4(c)).
const MAX_V6_LEN: usize = ipv6::MIN_MTU as usize;
/// TOS of ICMP errors: precedence "internetwork control" (RFC 1812 §4.3.2.5).
const TOS: u8 = 0xc0;
const TTL: u8 = 64;

/// The kind of error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// "Fragmentation needed and DF set" (RFC 1191 §4) or "packet too big" (RFC 4443 §3.2), with
    /// the MTU that fits.
    TooBig {
        /// The largest packet that would have passed.
        mtu: u16,
    },
    /// "Time to live exceeded in transit" or "hop limit exceeded in transit".
    TimeExceeded,
}

impl Kind {
    fn header_v4(self) -> [u8; ICMP_HEADER] {
        match self {
            Self::TooBig { mtu } => {
                let [m0, m1] = mtu.to_be_bytes();
                [3, 4, 0, 0, 0, 0, m0, m1]
            }
            Self::TimeExceeded => [11, 0, 0, 0, 0, 0, 0, 0],
        }
    }

    fn header_v6(self) -> [u8; ICMP_HEADER] {
        match self {
            Self::TooBig { mtu } => {
                let [m0, m1] = mtu.to_be_bytes();
                [2, 0, 0, 0, 0, 0, m0, m1]
            }
            Self::TimeExceeded => [3, 0, 0, 0, 0, 0, 0, 0],
        }
    }
}

/// Source addresses of the error, by family. Without one, the source is the offending packet's
/// destination.
///
/// The destination is always inside the selectors through which the offending packet came, so that
/// the error can go back the same way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sources {
    /// Source of ICMP errors.
    pub v4: Option<Ipv4Addr>,
    /// Source of ICMPv6 errors.
    pub v6: Option<Ipv6Addr>,
}

/// True if the packet in the buffer may be answered with an error of this kind (RFC 1122 §3.2.2,
/// RFC 4443 §2.4(e)).
pub fn may_answer(packet: &[u8], kind: Kind) -> bool {
    match ip::version(packet) {
        Some(4) => Ipv4::parse(packet).is_ok_and(|packet| quiet::may_answer_v4(&packet)),
        Some(6) => Ipv6::parse(packet).is_ok_and(|packet| quiet::may_answer_v6(&packet, kind)),
        _ => false,
    }
}

/// The packet that an ICMP error quotes, with its end missing perhaps. `None` for anything but a
/// whole ICMP error: destination unreachable, time exceeded, parameter problem, or the four errors
/// of ICMPv6. The checksum is not examined.
pub fn quoted(packet: &[u8]) -> Option<&[u8]> {
    let (protocol, message) = match ip::version(packet)? {
        4 => {
            let packet = Ipv4::parse(packet).ok().filter(|packet| !packet.is_fragment())?;
            (packet.protocol(), packet.payload())
        }
        _ => {
            let upper = Ipv6::parse(packet).ok()?.upper().ok()?;
            // A fragment that is the whole datagram is none (RFC 6946).
            let is_whole = upper.fragment.is_none_or(|fragment| !fragment.more && fragment.offset == 0);
            (upper.protocol, is_whole.then_some(upper.payload)?)
        }
    };
    let ([kind, ..], quote) = message.split_first_chunk::<ICMP_HEADER>()?;
    let is_error = match (ip::version(packet)?, protocol) {
        (4, Protocol::ICMP) => matches!(kind, 3 | 11 | 12),
        (6, Protocol::ICMPV6) => matches!(kind, 1..=4),
        _ => false,
    };
    is_error.then_some(quote)
}

/// Turns the packet in the buffer into an ICMP error about itself, addressed to its sender.
///
/// Needs 28 octets of headroom for IPv4 and 48 for IPv6. On an error the buffer is unchanged.
/// [`may_answer`] decides whether the packet may be answered at all.
pub fn answer(buf: &mut PacketBuf<'_>, kind: Kind, sources: &Sources) -> Result<(), Error> {
    match ip::version(buf.data()) {
        Some(4) => answer_v4(buf, kind, sources.v4),
        found => answer_v6(buf, kind, sources.v6, found),
    }
}

/// Keeps the first octets of the packet, at most `room` and at most `total`, and puts `header`
/// octets before them.
fn reshape(buf: &mut PacketBuf<'_>, total: usize, room: usize, header: usize) -> Result<usize, Error> {
    let quoted = total.min(room - header);
    let surplus = buf.len().saturating_sub(quoted);
    if !buf.grow_front(header) {
        return Err(Error::NoRoom { found: buf.headroom(), expected: header });
    }
    if !buf.shrink_back(surplus) {
        return Err(Error::Truncated { found: buf.len(), expected: surplus });
    }
    Ok(header + quoted)
}

#[cfg_attr(not(test), expect(clippy::indexing_slicing, reason = "`reshape` has made room for both headers"))]
fn answer_v4(buf: &mut PacketBuf<'_>, kind: Kind, source: Option<Ipv4Addr>) -> Result<(), Error> {
    const HEADERS: usize = ipv4::HEADER + ICMP_HEADER;
    let packet = Ipv4::parse(buf.data())?;
    let (src, dst) = (source.unwrap_or(packet.dst()), packet.src());
    let len = reshape(buf, packet.total_len(), MAX_V4_LEN, HEADERS)?;
    let fields = ipv4::Fields {
        tos: TOS,
        total_len: len as u16,
        // Never fragmented on its way, so any identification will do (RFC 6864 §4.1).
        id: 0,
        df: true,
        ttl: TTL,
        protocol: Protocol::ICMP,
        src,
        dst,
    };
    let (ip, icmp) = buf.data_mut().split_at_mut(ipv4::HEADER);
    ip.copy_from_slice(&fields.to_bytes());
    icmp[..ICMP_HEADER].copy_from_slice(&kind.header_v4());
    let checksum = Sum::new().bytes(icmp).finish();
    icmp[2..4].copy_from_slice(&checksum.to_be_bytes());
    Ok(())
}

#[cfg_attr(not(test), expect(clippy::indexing_slicing, reason = "`reshape` has made room for both headers"))]
fn answer_v6(
    buf: &mut PacketBuf<'_>,
    kind: Kind,
    source: Option<Ipv6Addr>,
    version: Option<u8>,
) -> Result<(), Error> {
    const HEADERS: usize = ipv6::HEADER + ICMP_HEADER;
    if version.is_some_and(|version| version != 6) {
        return Err(Error::Version { found: version.unwrap_or(0), expected: 6 });
    }
    let packet = Ipv6::parse(buf.data())?;
    let (src, dst) = (source.unwrap_or(packet.dst()), packet.src());
    let len = reshape(buf, packet.total_len(), MAX_V6_LEN, HEADERS)? - ipv6::HEADER;
    let fields = ipv6::Fields {
        traffic_class: TOS,
        payload_len: len as u16,
        next_header: Protocol::ICMPV6,
        hop_limit: TTL,
        src,
        dst,
    };
    let (ip, icmp) = buf.data_mut().split_at_mut(ipv6::HEADER);
    ip.copy_from_slice(&fields.to_bytes());
    icmp[..ICMP_HEADER].copy_from_slice(&kind.header_v6());
    let checksum = Sum::new().pseudo_v6(src, dst, Protocol::ICMPV6.0, len as u32).bytes(icmp).finish();
    icmp[2..4].copy_from_slice(&checksum.to_be_bytes());
    Ok(())
}

#[cfg(test)]
mod tests;
