//! TCP segmentation: each segment is a packet with correct checksums, and all together have the
//! content of the large one. Partial checksums are completed, and nothing else is changed.

use crate::input::Input;
use testudo_wire::checksum::Sum;
use testudo_wire::offload::{Cutter, HEADER, Look, Offload, Train, complete, fill_open, look};
use testudo_wire::{Error, ip, ipv4::Ipv4, ipv6::Ipv6};

/// `header:10 | flags:8 | size:16 | packet`.
pub fn target(data: &[u8]) {
    let mut input = Input::new(data);
    let mut header = [0; HEADER];
    input.take(HEADER).iter().zip(&mut header).for_each(|(from, to)| *to = *from);
    let (flags, size) = (input.u8(), input.u16());
    let packet = super::packet(&mut input, flags);
    if let Ok(offload) = Offload::parse(&header) {
        assert_eq!(Offload::parse(&offload.to_bytes()), Ok(offload));
        if let Offload::Checksum { start, offset } = offload {
            let mut completed = packet.clone();
            let end = usize::from(start) + usize::from(offset) + 2;
            assert_eq!(complete(&mut completed, start, offset).is_ok(), end <= packet.len());
            assert_eq!(completed.len(), packet.len());
        }
    }
    fill(&packet);
    fill(&opened(&packet));
    let segments = cut(&packet, size);
    merge(&segments);
}

/// The packet with a partial checksum, if it is TCP.
fn opened(packet: &[u8]) -> Vec<u8> {
    let mut packet = packet.to_vec();
    if let Some(Parts { at, open, .. }) = parts(&packet)
        && let Some(field) = packet.get_mut(at + 16..at + 18)
    {
        field.copy_from_slice(&open.to_be_bytes());
    }
    packet
}

/// A completed checksum is correct, and stays.
fn fill(packet: &[u8]) {
    let mut filled = packet.to_vec();
    let changed = fill_open(&mut filled);
    let differ = packet.iter().zip(&filled).filter(|(before, after)| before != after).count();
    assert!(differ <= 2 && filled.len() == packet.len());
    assert_eq!(changed, differ > 0);
    let is_tcp = |packet: &[u8]| Ipv4::parse(packet).is_ok_and(|ip| ip.protocol().0 == 6);
    if changed && is_tcp(&filled) {
        assert!(parts(&filled).is_none_or(|parts| parts.tcp_sum_is_right));
    }
    assert!(!fill_open(&mut filled));
}

/// All segments of a packet, if it can be segmented.
fn cut(packet: &[u8], size: u16) -> Vec<Vec<u8>> {
    let mut segments: Vec<Vec<u8>> = Vec::new();
    let Ok(mut cutter) = Cutter::new(packet, size) else { return segments };
    let whole = parts(packet).expect("only TCP is cut");
    let mut payload: Vec<u8> = Vec::new();
    while let Some(len) = cutter.next_len() {
        let mut out = vec![0xee; len];
        let short = cutter.write_next(packet, &mut out[..len - 1]);
        assert_eq!(short, Err(Error::NoRoom { found: len - 1, expected: len }));
        assert_eq!(cutter.write_next(packet, &mut out), Ok(Some(len)));
        let part = parts(&out).expect("a segment is TCP");
        assert!(part.sums_are_right, "of segment {}", segments.len());
        assert!(part.payload.len() <= usize::from(size));
        assert_eq!(part.seq, whole.seq.wrapping_add(payload.len() as u32));
        payload.extend(part.payload);
        segments.push(out);
        assert!(segments.len() <= 1 + packet.len(), "it ends");
    }
    assert_eq!(payload, whole.payload);
    assert_eq!(cutter.write_next(packet, &mut []), Ok(None));
    segments
}

struct Parts<'a> {
    /// Offset of TCP.
    at: usize,
    seq: u32,
    payload: &'a [u8],
    /// The sum of the pseudo-header.
    open: u16,
    tcp_sum_is_right: bool,
    sums_are_right: bool,
}

fn parts(packet: &[u8]) -> Option<Parts<'_>> {
    let (total, segment, pseudo, header_is_right) = if ip::version(packet) == Some(6) {
        let ip = Ipv6::parse(packet).ok()?;
        let segment = ip.upper().ok()?.payload;
        let pseudo = Sum::new().pseudo_v6(ip.src(), ip.dst(), 6, segment.len() as u32);
        (ip.total_len(), segment, pseudo, true)
    } else {
        let ip = Ipv4::parse(packet).ok()?;
        let segment = ip.payload();
        let pseudo = Sum::new().pseudo_v4(ip.src(), ip.dst(), 6, segment.len() as u16);
        (ip.total_len(), segment, pseudo, ip.has_valid_checksum())
    };
    let header = usize::from(segment.get(12)? >> 4) * 4;
    let seq = u32::from_be_bytes(*segment.get(4..)?.first_chunk()?);
    let tcp_sum_is_right = pseudo.bytes(segment).is_valid();
    let sums_are_right = header_is_right && tcp_sum_is_right;
    let (at, open) = (total - segment.len(), !pseudo.finish());
    Some(Parts { at, seq, payload: segment.get(header..)?, open, tcp_sum_is_right, sums_are_right })
}

/// Merging consecutive segments loses no octet.
fn merge(segments: &[Vec<u8>]) {
    let mut train: Option<(Train, &[u8], usize)> = None;
    for packet in segments {
        let Look::Mergeable(flow, segment) = look(packet) else { continue };
        assert!(segment.headers() < packet.len(), "a segment without payload is left alone");
        if let Some((train, head, count)) = &mut train
            && train.append(head, &flow, packet, &segment)
        {
            *count += 1;
            assert_eq!(train.segments(), *count);
            continue;
        }
        train = Some((Train::new(flow, segment), packet, 1));
    }
}
