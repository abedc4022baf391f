//! Offloads: work on a packet that a kernel and a reader of its TUN leave to each other. These are
//! checksums to fill in, and TCP segments of up to 64 kB that are cut late on the way out
//! ([`Cutter`]) and merged early on the way in ([`Train`]). Work that a kernel leaves to its
//! neighbour on a virtual link shows only in the packet: [`fill_open`].
//!
//! The header before each packet is virtio's (Virtual I/O Device 1.2, §5.1.6) without its count of
//! buffers, in the machine's own byte order, as the TUN driver uses it.

mod cut;
mod merge;
mod open;
mod sctp;
#[cfg(test)]
mod tests;

pub use cut::Cutter;
pub use merge::{Flow, Look, MERGED_HEADERS, Segment, Train, look};
pub use open::fill_open;

use crate::Error;
use crate::checksum::Sum;

/// Octets of the header.
pub const HEADER: usize = 10;

const NEEDS_CHECKSUM: u8 = 1;
const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
/// Flag of a large segment with CWR, which its own flags show too.
const GSO_ECN: u8 = 0x80;
/// Offset of the checksum in a TCP header.
const TCP_CHECKSUM: u16 = 16;

/// Work that is left to do on a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Offload {
    /// None: the packet is in its final form.
    #[default]
    None,
    /// The checksum over everything from `start` on must be written `offset` octets behind it,
    /// where the sum of the pseudo-header is now.
    Checksum {
        /// Offset of the upper protocol in the packet.
        start: u16,
        /// Offset of the checksum in it.
        offset: u16,
    },
    /// The packet must be cut into TCP segments with `size` octets of payload each, the last with
    /// the rest.
    Tcp {
        /// Over IPv6.
        v6: bool,
        /// Octets of payload.
        size: u16,
        /// Offset of the TCP header in the packet.
        start: u16,
        /// Octets of all headers.
        headers: u16,
    },
}

impl Offload {
    /// Reads the header before a packet.
    #[inline]
    pub fn parse(header: &[u8; HEADER]) -> Result<Self, Error> {
        let [flags, kind, rest @ ..] = *header;
        let [headers, size, start, offset] = words(rest);
        match kind & !GSO_ECN {
            GSO_NONE if flags & NEEDS_CHECKSUM == 0 => Ok(Self::None),
            GSO_NONE => Ok(Self::Checksum { start, offset }),
            GSO_TCPV4 | GSO_TCPV6 if size == 0 => Err(Error::Length { found: 0, expected: 1 }),
            kind @ (GSO_TCPV4 | GSO_TCPV6) => Ok(Self::Tcp { v6: kind == GSO_TCPV6, size, start, headers }),
            _ => Err(Error::Options),
        }
    }

    /// The header's octets.
    #[inline]
    pub fn to_bytes(self) -> [u8; HEADER] {
        let (flags, kind, words) = match self {
            Self::None => (0, GSO_NONE, [0; 4]),
            Self::Checksum { start, offset } => (NEEDS_CHECKSUM, GSO_NONE, [0, 0, start, offset]),
            Self::Tcp { v6, size, start, headers } => {
                let kind = if v6 { GSO_TCPV6 } else { GSO_TCPV4 };
                (NEEDS_CHECKSUM, kind, [headers, size, start, TCP_CHECKSUM])
            }
        };
        let [[a, b], [c, d], [e, f], [g, h]] = words.map(u16::to_ne_bytes);
        [flags, kind, a, b, c, d, e, f, g, h]
    }
}

fn words([a, b, c, d, e, f, g, h]: [u8; 8]) -> [u16; 4] {
    [[a, b], [c, d], [e, f], [g, h]].map(u16::from_ne_bytes)
}

/// Fills in an open checksum ([`Offload::Checksum`]).
#[inline]
pub fn complete(packet: &mut [u8], start: u16, offset: u16) -> Result<(), Error> {
    let expected = usize::from(start) + usize::from(offset) + 2;
    let truncated = Error::Truncated { found: packet.len(), expected };
    let covered = packet.get_mut(usize::from(start)..).ok_or(truncated)?;
    // For TCP and ICMP both zeroes stand for the same sum; UDP must send only one of them (RFC
    // 768).
    let checksum = Sum::new().bytes(covered).finish_udp();
    let field = covered.get_mut(usize::from(offset)..).and_then(<[u8]>::first_chunk_mut).ok_or(truncated)?;
    *field = checksum.to_be_bytes();
    Ok(())
}
