//! Cutting a large TCP segment into the segments that go out (RFC 9293), as its sender would have
//! made them.
#![cfg_attr(
    not(test),
    expect(
        clippy::indexing_slicing,
        reason = "`new` has parsed the headers, and `write_next` checks what it reads and writes"
    )
)]

use crate::Error;
use crate::checksum::Sum;
use crate::ip::{self, Protocol};
use crate::ipv4::Ipv4;
use crate::ipv6::{self, Ipv6};
use crate::tcp::{self, CWR, FIN, PSH};
use std::net::{Ipv4Addr, Ipv6Addr};

/// The rest of a large segment. It holds no octets: the caller keeps the packet that it gave to
/// [`Cutter::new`].
#[derive(Clone, Copy, Debug)]
pub struct Cutter {
    addresses: AddressPair,
    /// Offset of TCP.
    tcp: usize,
    /// Octets of all headers.
    headers: usize,
    /// Octets of the whole packet.
    total: usize,
    /// Octets of payload in a segment.
    size: usize,
    /// Octets of payload that are cut off already.
    done: usize,
    /// The number of the segment.
    index: u16,
    finished: bool,
}

#[derive(Clone, Copy, Debug)]
enum AddressPair {
    V4(Ipv4Addr, Ipv4Addr),
    V6(Ipv6Addr, Ipv6Addr),
}

impl Cutter {
    /// Prepares to cut `packet` into segments with `size` octets of payload.
    pub fn new(packet: &[u8], size: u16) -> Result<Self, Error> {
        if size == 0 {
            return Err(Error::Length { found: 0, expected: 1 });
        }
        let (addresses, tcp, total) = match ip::version(packet) {
            Some(6) => over_v6(packet)?,
            _ => over_v4(packet)?,
        };
        let headers = tcp + tcp::header_len(&packet[tcp..total])?;
        let (done, index, finished) = (0, 0, false);
        Ok(Self { addresses, tcp, headers, total, size: size.into(), done, index, finished })
    }

    /// Octets of the next segment; `None` when all are written.
    #[inline]
    pub fn next_len(&self) -> Option<usize> {
        (!self.finished).then(|| self.headers + self.next_payload())
    }

    #[inline]
    fn next_payload(&self) -> usize {
        self.size.min(self.total - self.headers - self.done)
    }

    /// Writes the next segment of `packet` to the front of `out` and returns its octets; `None`
    /// when all are written.
    ///
    /// If `out` is too small nothing happens, and the same segment can be asked for again.
    #[inline]
    pub fn write_next(&mut self, packet: &[u8], out: &mut [u8]) -> Result<Option<usize>, Error> {
        let Some(len) = self.next_len() else { return Ok(None) };
        let no_room = Error::NoRoom { found: out.len(), expected: len };
        let truncated = Error::Truncated { found: packet.len(), expected: self.total };
        let out = out.get_mut(..len).ok_or(no_room)?;
        let packet = packet.get(..self.total).ok_or(truncated)?;
        let from = self.headers + self.done;
        let payload = len - self.headers;
        let (headers, body) = out.split_at_mut(self.headers);
        headers.copy_from_slice(&packet[..self.headers]);
        body.copy_from_slice(&packet[from..from + payload]);
        let last = from + payload == self.total;
        self.adjust_ip(out);
        self.adjust_tcp(out, last);
        self.done += payload;
        self.index = self.index.wrapping_add(1);
        self.finished = last;
        Ok(Some(len))
    }

    /// Adjusts the lengths; in IPv4 also the identification, which counts on, and the checksum.
    #[inline]
    fn adjust_ip(&self, out: &mut [u8]) {
        // A segment is no longer than the packet, whose own length field held that.
        let len = out.len() as u16;
        match self.addresses {
            AddressPair::V4(..) => {
                let header = &mut out[..self.tcp];
                let id = u16::from_be_bytes([header[4], header[5]]).wrapping_add(self.index);
                header[2..4].copy_from_slice(&len.to_be_bytes());
                header[4..6].copy_from_slice(&id.to_be_bytes());
                header[10..12].fill(0);
                let checksum = Sum::new().bytes(header).finish();
                header[10..12].copy_from_slice(&checksum.to_be_bytes());
            }
            AddressPair::V6(..) => out[4..6].copy_from_slice(&(len - ipv6::HEADER as u16).to_be_bytes()),
        }
    }

    /// The sequence number counts on; FIN and PSH belong to the end, CWR to the first (RFC 3168
    /// §6.1.2).
    #[inline]
    fn adjust_tcp(&self, out: &mut [u8], last: bool) {
        let segment = &mut out[self.tcp..];
        let seq = u32::from_be_bytes([segment[4], segment[5], segment[6], segment[7]]);
        // Less than 65536.
        let seq = seq.wrapping_add(self.done as u32);
        segment[4..8].copy_from_slice(&seq.to_be_bytes());
        if !last {
            segment[13] &= !(FIN | PSH);
        }
        if self.index > 0 {
            segment[13] &= !CWR;
        }
        segment[16..18].fill(0);
        let len = segment.len();
        let sum = match self.addresses {
            AddressPair::V4(src, dst) => Sum::new().pseudo_v4(src, dst, Protocol::TCP.0, len as u16),
            AddressPair::V6(src, dst) => Sum::new().pseudo_v6(src, dst, Protocol::TCP.0, len as u32),
        };
        let checksum = sum.bytes(segment).finish();
        segment[16..18].copy_from_slice(&checksum.to_be_bytes());
    }
}

fn over_v4(packet: &[u8]) -> Result<(AddressPair, usize, usize), Error> {
    let ip = Ipv4::parse(packet)?;
    if ip.protocol() != Protocol::TCP || ip.is_fragment() {
        return Err(Error::Unfragmentable);
    }
    Ok((AddressPair::V4(ip.src(), ip.dst()), ip.header_len(), ip.total_len()))
}

fn over_v6(packet: &[u8]) -> Result<(AddressPair, usize, usize), Error> {
    let ip = Ipv6::parse(packet)?;
    let upper = ip.upper()?;
    if upper.protocol != Protocol::TCP || upper.fragment.is_some() {
        return Err(Error::Unfragmentable);
    }
    Ok((AddressPair::V6(ip.src(), ip.dst()), ip.total_len() - upper.payload.len(), ip.total_len()))
}
