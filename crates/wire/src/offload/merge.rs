//! Merging TCP segments that follow each other into one large one, so that the kernel's stack
//! handles them as one. Cut again, it gives the same segments: segments that would lose something
//! are not merged.
#![cfg_attr(
    not(test),
    expect(
        clippy::indexing_slicing,
        reason = "`segment` has parsed the headers, which are as long as it says"
    )
)]

use super::Offload;
use crate::checksum::Sum;
use crate::ip::{self, Protocol};
use crate::ipv4::{self, Ipv4};
use crate::ipv6::{self, Ipv6};
use crate::tcp::{self, ACK, ECE, FIN, PSH};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Bound on the octets of a merged packet's headers: IPv6, and TCP with all its options.
pub const MERGED_HEADERS: usize = ipv6::HEADER + 60;
/// Bound on the octets of a merged packet.
const MAX_MERGED_LEN: usize = 65_535;

/// Addresses and ports of a TCP segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    ports: [u8; 4],
    addresses: FlowAddresses,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FlowAddresses {
    V4(Ipv4Addr, Ipv4Addr),
    V6(Ipv6Addr, Ipv6Addr),
}

/// A segment that may be merged: it has payload and nothing special, and its checksums are valid. A
/// segment with an invalid one is not touched, so that it stays invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Offset of TCP.
    tcp: usize,
    /// Octets of all headers.
    headers: usize,
    payload: usize,
    seq: u32,
    flags: u8,
    /// Identification, if it matters: in IPv4 packets that may be fragmented (RFC 6864 §4).
    id: Option<u16>,
}

impl Segment {
    /// Octets of all headers; the payload is the rest of the packet.
    #[inline]
    pub fn headers(&self) -> usize {
        self.headers
    }
}

/// How a packet can be merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// It is no TCP, or not recognisable as such.
    Other,
    /// TCP that must not change. Later segments of its flow must not be merged with earlier ones.
    Alone(Flow),
    /// TCP that may be merged.
    Mergeable(Flow, Segment),
}

/// Examines a packet.
#[inline]
pub fn look(packet: &[u8]) -> Look {
    match ip::version(packet) {
        Some(4) => look_v4(packet),
        Some(6) => look_v6(packet),
        _ => None,
    }
    .unwrap_or(Look::Other)
}

#[inline]
fn look_v4(packet: &[u8]) -> Option<Look> {
    let ip = Ipv4::parse(packet).ok()?;
    if ip.protocol() != Protocol::TCP || ip.is_fragment() {
        return None;
    }
    let (src, dst, payload) = (ip.src(), ip.dst(), ip.payload());
    let flow = Flow { ports: *payload.first_chunk()?, addresses: FlowAddresses::V4(src, dst) };
    let plain = ip.header_len() == ipv4::HEADER && ip.total_len() == packet.len() && ip.has_valid_checksum();
    let sum = Sum::new().pseudo_v4(src, dst, Protocol::TCP.0, payload.len() as u16);
    let id = (!ip.df()).then(|| ip.id());
    let segment = plain.then(|| segment(payload, sum, ipv4::HEADER, id)).flatten();
    Some(segment.map_or(Look::Alone(flow), |segment| Look::Mergeable(flow, segment)))
}

#[inline]
fn look_v6(packet: &[u8]) -> Option<Look> {
    let ip = Ipv6::parse(packet).ok()?;
    let upper = ip.upper().ok()?;
    if upper.protocol != Protocol::TCP || upper.fragment.is_some() {
        return None;
    }
    let (src, dst, payload) = (ip.src(), ip.dst(), upper.payload);
    let flow = Flow { ports: *payload.first_chunk()?, addresses: FlowAddresses::V6(src, dst) };
    let plain = ip.next_header() == Protocol::TCP && ip.total_len() == packet.len();
    let sum = Sum::new().pseudo_v6(src, dst, Protocol::TCP.0, payload.len() as u32);
    let segment = plain.then(|| segment(payload, sum, ipv6::HEADER, None)).flatten();
    Some(segment.map_or(Look::Alone(flow), |segment| Look::Mergeable(flow, segment)))
}

#[inline]
fn segment(bytes: &[u8], pseudo: Sum, tcp: usize, id: Option<u16>) -> Option<Segment> {
    let header = tcp::header_len(bytes).ok()?;
    let (payload, flags) = (bytes.len() - header, bytes[13]);
    let usual = flags & ACK != 0 && flags & !(ACK | PSH | FIN | ECE) == 0 && bytes[12] & 0x0f == 0;
    if payload == 0 || !usual || !pseudo.bytes(bytes).is_valid() {
        return None;
    }
    let seq = u32::from_be_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
    Some(Segment { tcp, headers: tcp + header, payload, seq, flags, id })
}

/// Segments that go to the kernel as one. It holds no octets: the caller keeps the packets, and
/// passes the first again.
#[derive(Clone, Copy, Debug)]
pub struct Train {
    flow: Flow,
    first: Segment,
    next_seq: u32,
    last_id: Option<u16>,
    /// Octets of the merged packet.
    len: usize,
    flags: u8,
    segments: usize,
    closed: bool,
}

impl Train {
    /// A train of one segment.
    #[inline]
    pub fn new(flow: Flow, first: Segment) -> Self {
        let mut train = Self {
            flow,
            first,
            next_seq: first.seq,
            last_id: first.id,
            len: first.headers,
            flags: first.flags,
            segments: 0,
            closed: false,
        };
        train.take(&first);
        train
    }

    /// The flow.
    #[inline]
    pub fn flow(&self) -> &Flow {
        &self.flow
    }

    /// Number of its segments.
    #[inline]
    pub fn segments(&self) -> usize {
        self.segments
    }

    /// Closes the train: it takes no more segments.
    #[inline]
    pub fn close(&mut self) {
        self.closed = true;
    }

    /// Adds the segment in `packet`, if it continues the train and differs from `head`, the train's
    /// first packet, in nothing that merging would lose. Otherwise returns false, and changes
    /// nothing.
    #[inline]
    #[must_use]
    pub fn append(&mut self, head: &[u8], flow: &Flow, packet: &[u8], segment: &Segment) -> bool {
        let follows = !self.closed
            && self.flow == *flow
            && segment.seq == self.next_seq
            && segment.payload <= self.first.payload
            && self.len + segment.payload <= MAX_MERGED_LEN
            && segment.id == self.last_id.map(|id| id.wrapping_add(1))
            && has_same_headers(head, packet, self.first, *segment);
        if follows {
            self.take(segment);
        }
        follows
    }

    #[inline]
    fn take(&mut self, segment: &Segment) {
        self.segments += 1;
        self.len += segment.payload;
        // Less than 65536.
        self.next_seq = self.next_seq.wrapping_add(segment.payload as u32);
        self.last_id = segment.id;
        self.flags |= segment.flags;
        self.closed |= segment.flags & (PSH | FIN) != 0 || segment.payload < self.first.payload;
    }

    /// Headers of the merged packet, made from those of `head`: the array, the number of its octets
    /// in use, and the offload for the kernel. `None` if `head` is too short.
    #[inline]
    pub fn headers(&self, head: &[u8]) -> Option<([u8; MERGED_HEADERS], usize, Offload)> {
        let Segment { tcp, headers, payload, .. } = self.first;
        let mut out = [0; MERGED_HEADERS];
        out.get_mut(..headers)?.copy_from_slice(head.get(..headers)?);
        let upper = self.len - tcp;
        // All lengths are below 65536.
        let sum = match self.flow.addresses {
            FlowAddresses::V4(src, dst) => {
                out[2..4].copy_from_slice(&(self.len as u16).to_be_bytes());
                out[10..12].fill(0);
                let checksum = Sum::new().bytes(&out[..tcp]).finish();
                out[10..12].copy_from_slice(&checksum.to_be_bytes());
                Sum::new().pseudo_v4(src, dst, Protocol::TCP.0, upper as u16)
            }
            FlowAddresses::V6(src, dst) => {
                out[4..6].copy_from_slice(&(upper as u16).to_be_bytes());
                Sum::new().pseudo_v6(src, dst, Protocol::TCP.0, upper as u32)
            }
        };
        out[tcp + 13] = self.flags;
        // The sum itself, to be continued.
        out[tcp + 16..tcp + 18].copy_from_slice(&(!sum.finish()).to_be_bytes());
        let v6 = matches!(self.flow.addresses, FlowAddresses::V6(..));
        let (size, start, headers16) = (payload as u16, tcp as u16, headers as u16);
        Some((out, headers, Offload::Tcp { v6, size, start, headers: headers16 }))
    }
}

/// Compares TOS or traffic class with ECN, flow label, TTL, DF; acknowledgement, window, flags
/// except for those of the end, and options.
#[inline]
fn has_same_headers(a: &[u8], b: &[u8], of_a: Segment, of_b: Segment) -> bool {
    if of_a.headers != of_b.headers || of_a.tcp != of_b.tcp {
        return false;
    }
    let (Some(a), Some(b)) = (a.get(..of_a.headers), b.get(..of_b.headers)) else { return false };
    let ((ip_a, tcp_a), (ip_b, tcp_b)) = (a.split_at(of_a.tcp), b.split_at(of_b.tcp));
    let same_ip = match of_a.tcp {
        ipv4::HEADER => ip_a[..2] == ip_b[..2] && ip_a[6..10] == ip_b[6..10],
        _ => ip_a[..4] == ip_b[..4] && ip_a[6..8] == ip_b[6..8],
    };
    same_ip
        && tcp_a[8..13] == tcp_b[8..13]
        && (tcp_a[13] ^ tcp_b[13]) & !(PSH | FIN) == 0
        && tcp_a[14..16] == tcp_b[14..16]
        && tcp_a[18..] == tcp_b[18..]
}
