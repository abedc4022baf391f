//! Cutting and merging against what a plain sender would have sent.

use super::*;
use crate::ip::Protocol;
use crate::ipv4::{self, Ipv4};
use crate::ipv6::Ipv6;
use proptest::prelude::*;
use std::net::{Ipv4Addr, Ipv6Addr};

const ACK: u8 = 0x10;
const PSH: u8 = 0x08;
const FIN: u8 = 0x01;
const CWR: u8 = 0x80;

/// A TCP packet as its sender means it.
#[derive(Clone, Debug)]
struct Plain {
    v6: bool,
    tos: u8,
    ttl: u8,
    id: u16,
    df: bool,
    seq: u32,
    ack: u32,
    flags: u8,
    window: u16,
    options: Vec<u8>,
    payload: Vec<u8>,
}

impl Plain {
    fn new(v6: bool, payload: Vec<u8>) -> Self {
        let options = vec![1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2];
        Self {
            v6,
            tos: 2,
            ttl: 64,
            id: 77,
            df: true,
            seq: u32::MAX - 2000,
            ack: 9,
            flags: ACK,
            window: 500,
            options,
            payload,
        }
    }

    fn tcp(&self) -> Vec<u8> {
        let mut tcp = [[0x30, 0x39], [0x14, 0x51]].concat();
        tcp.extend(self.seq.to_be_bytes());
        tcp.extend(self.ack.to_be_bytes());
        tcp.extend([((20 + self.options.len()) * 4) as u8, self.flags]);
        tcp.extend(self.window.to_be_bytes());
        tcp.extend([0; 4]);
        tcp.extend(&self.options);
        tcp.extend(&self.payload);
        tcp
    }

    /// With all checksums.
    fn bytes(&self) -> Vec<u8> {
        let mut tcp = self.tcp();
        let (pseudo, header) = self.around(tcp.len());
        let checksum = pseudo.bytes(&tcp).finish();
        tcp[16..18].copy_from_slice(&checksum.to_be_bytes());
        [header, tcp].concat()
    }

    fn around(&self, len: usize) -> (Sum, Vec<u8>) {
        if self.v6 {
            let (src, dst): (Ipv6Addr, Ipv6Addr) =
                ("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap());
            let mut header = vec![0x60 | self.tos >> 4, self.tos << 4, 0, 1];
            header.extend((len as u16).to_be_bytes());
            header.extend([6, self.ttl]);
            header.extend(src.octets());
            header.extend(dst.octets());
            return (Sum::new().pseudo_v6(src, dst, 6, len as u32), header);
        }
        let (src, dst) = (Ipv4Addr::new(10, 1, 0, 1), Ipv4Addr::new(10, 2, 0, 1));
        let fields = ipv4::Fields {
            tos: self.tos,
            total_len: (20 + len) as u16,
            id: self.id,
            df: self.df,
            ttl: self.ttl,
            protocol: Protocol::TCP,
            src,
            dst,
        };
        (Sum::new().pseudo_v4(src, dst, 6, len as u16), fields.to_bytes().to_vec())
    }

    /// The packets of a sender without offloads.
    fn segments(&self, size: usize) -> Vec<Vec<u8>> {
        let pieces: Vec<&[u8]> = self.payload.chunks(size).collect();
        let one = |(at, piece): (usize, &&[u8])| {
            let mut segment = Self { payload: piece.to_vec(), ..self.clone() };
            segment.id = self.id.wrapping_add(at as u16);
            segment.seq = self.seq.wrapping_add((at * size) as u32);
            if at + 1 < pieces.len() {
                segment.flags &= !(FIN | PSH);
            }
            if at > 0 {
                segment.flags &= !CWR;
            }
            segment.bytes()
        };
        pieces.iter().enumerate().map(one).collect()
    }
}

fn cut(packet: &[u8], size: u16) -> Vec<Vec<u8>> {
    let mut cutter = Cutter::new(packet, size).unwrap();
    let mut segments = Vec::new();
    while let Some(expected) = cutter.next_len() {
        let mut out = vec![0xee; expected + 3];
        assert!(matches!(cutter.write_next(packet, &mut out[..expected - 1]), Err(Error::NoRoom { .. })));
        let len = cutter.write_next(packet, &mut out).unwrap().unwrap();
        assert_eq!((len, &out[len..]), (expected, &[0xee; 3][..]));
        segments.push(out[..len].to_vec());
    }
    assert_eq!(cutter.write_next(packet, &mut [0; 2000]), Ok(None));
    segments
}

/// As the host's side does: the packets of one flow in order, as trains and those that go alone.
fn merge(packets: &[Vec<u8>]) -> Vec<(Vec<u8>, Offload)> {
    let mut trains: Vec<(Option<Train>, Vec<&[u8]>)> = Vec::new();
    for packet in packets {
        let Look::Mergeable(flow, segment) = look(packet) else {
            trains.push((None, vec![packet]));
            continue;
        };
        let last = trains.last_mut();
        let joined = last.is_some_and(|(train, members)| {
            let taken = train.as_mut().is_some_and(|train| train.append(members[0], &flow, packet, &segment));
            if taken {
                members.push(&packet[segment.headers()..]);
            }
            taken
        });
        if !joined {
            trains.push((Some(Train::new(flow, segment)), vec![packet]));
        }
    }
    trains.into_iter().map(|(train, members)| whole(train, &members)).collect()
}

fn whole(train: Option<Train>, members: &[&[u8]]) -> (Vec<u8>, Offload) {
    match train {
        Some(train) if members.len() > 1 => {
            assert_eq!(train.segments(), members.len());
            let (headers, len, offload) = train.headers(members[0]).unwrap();
            let rest = members[1..].concat();
            ([&headers[..len], &members[0][len..], &rest].concat(), offload)
        }
        _ => (members[0].to_vec(), Offload::None),
    }
}

/// The kernel's completion: adds the rest of the sum, and verifies it.
fn check_merged(packet: &[u8], offload: Offload) {
    let Offload::Tcp { v6, size, start, headers } = offload else { return };
    assert!(size > 0 && usize::from(headers) < packet.len());
    let mut whole = packet.to_vec();
    complete(&mut whole, start, 16).unwrap();
    let upper = &whole[usize::from(start)..];
    let sum = if v6 {
        let ip = Ipv6::parse(&whole).unwrap();
        Sum::new().pseudo_v6(ip.src(), ip.dst(), 6, upper.len() as u32)
    } else {
        let ip = Ipv4::parse_verified(&whole).unwrap();
        assert_eq!(ip.total_len(), whole.len());
        Sum::new().pseudo_v4(ip.src(), ip.dst(), 6, upper.len() as u16)
    };
    assert!(sum.bytes(upper).is_valid());
}

fn plains() -> impl Strategy<Value = Plain> {
    let flags = prop::sample::select(vec![ACK, ACK | PSH, ACK | FIN, ACK | PSH | FIN, ACK | 0x40]);
    let payload = prop::collection::vec(any::<u8>(), 1..6000);
    (any::<bool>(), any::<bool>(), any::<u16>(), any::<u32>(), flags, 0usize..=10, payload).prop_map(
        |(v6, df, id, seq, flags, options, payload)| Plain {
            df,
            id,
            seq,
            flags,
            options: vec![1; options * 4],
            ..Plain::new(v6, payload)
        },
    )
}

proptest! {
    #[test]
    fn cutting_gives_what_a_plain_sender_sends(mut plain in plains(), cwr in any::<bool>(), size in 1u16..3000, trailer in 0usize..3) {
        prop_assume!(plain.payload.len() / usize::from(size) < 200);
        plain.flags |= if cwr { CWR } else { 0 };
        let mut packet = plain.bytes();
        packet.extend(vec![0; trailer]);
        // The kernel leaves the sum of a pseudo-header there.
        let tcp = if plain.v6 { 40 } else { 20 };
        packet[tcp + 16] ^= 0x5a;
        prop_assert_eq!(cut(&packet, size), plain.segments(size.into()));
    }

    #[test]
    fn what_is_merged_is_cut_into_the_same(plain in plains(), size in 100usize..3000) {
        let segments = plain.segments(size);
        let merged = merge(&segments);
        prop_assert_eq!(merged.len(), 1, "{} segments", segments.len());
        let (packet, offload) = &merged[0];
        check_merged(packet, *offload);
        let again = match offload {
            Offload::Tcp { size, .. } => cut(packet, *size),
            _ => vec![packet.clone()],
        };
        prop_assert_eq!(again, segments);
    }

    /// One octet changed anywhere: nothing is lost, and what was wrong stays wrong.
    #[test]
    fn damage_is_never_mended(v6 in any::<bool>(), which in 0usize..4, at in any::<prop::sample::Index>(), by in 1u8..) {
        let mut segments = Plain::new(v6, vec![0x5a; 400]).segments(100);
        let len = segments[which].len();
        segments[which][at.index(len)] ^= by;
        let damaged = segments[which].clone();
        let merged = merge(&segments);
        let all = merged.iter().flat_map(|(packet, offload)| match offload {
            Offload::Tcp { size, .. } => cut(packet, *size),
            _ => vec![packet.clone()],
        });
        let all: Vec<Vec<u8>> = all.collect();
        prop_assert_eq!(all.len(), 4);
        prop_assert!(all.contains(&damaged), "{merged:?}");
    }

    #[test]
    fn any_bytes_are_safe(mut bytes in prop::collection::vec(any::<u8>(), 0..200), v6 in any::<bool>(), size in any::<u16>(),
                          start in any::<u16>(), offset in any::<u16>(), header in any::<[u8; HEADER]>()) {
        if let Some(first) = bytes.first_mut() {
            *first = if v6 { 0x60 } else { 0x45 };
        }
        if let Some(protocol) = bytes.get_mut(if v6 { 6 } else { 9 }) {
            *protocol = 6;
        }
        look(&bytes);
        if let Ok(mut cutter) = Cutter::new(&bytes, size) {
            let mut out = vec![0; bytes.len()];
            while cutter.write_next(&bytes, &mut out).unwrap().is_some() {}
        }
        let _ = complete(&mut bytes, start % 300, offset % 300);
        if let Ok(offload) = Offload::parse(&header) {
            prop_assert_eq!(Offload::parse(&offload.to_bytes()), Ok(offload));
        }
    }
}

#[test]
fn segments_of_half_a_burst_each_end_a_train() {
    let plain = Plain { flags: ACK | PSH, ..Plain::new(false, vec![1; 350]) };
    let next = Plain { seq: plain.seq.wrapping_add(350), id: plain.id + 4, ..plain.clone() };
    let merged = merge(&[plain.segments(100), next.segments(100)].concat());
    assert_eq!(merged.len(), 2);
}

#[test]
fn a_merged_packet_is_no_longer_than_its_length_field_says() {
    for v6 in [false, true] {
        let packets: Vec<_> = (0..100)
            .map(|at: u32| {
                let base = Plain::new(v6, vec![at as u8; 1400]);
                Plain { seq: base.seq.wrapping_add(at * 1400), id: base.id + at as u16, ..base }.bytes()
            })
            .collect();
        let merged = merge(&packets);
        assert_eq!(merged.len(), 3);
        for (packet, offload) in merged {
            assert!(packet.len() <= 65_535);
            check_merged(&packet, offload);
        }
    }
}

/// Whatever merging would lose keeps two segments apart.
#[test]
fn segments_that_differ_are_not_merged() {
    type Change = fn(&mut Plain);
    let changes: &[(&str, Change)] = &[
        ("nothing", |_| ()),
        ("seq", |p| p.seq += 1),
        ("ack", |p| p.ack += 1),
        ("window", |p| p.window += 1),
        ("ecn", |p| p.tos = 3),
        ("dscp", |p| p.tos |= 0x20),
        ("ttl", |p| p.ttl -= 1),
        ("options", |p| p.options[7] += 1),
        ("fewer options", |p| p.options.truncate(8)),
        ("longer", |p| p.payload.push(0)),
        ("nothing in it", |p| p.payload.clear()),
        ("syn", |p| p.flags |= 2),
        ("rst", |p| p.flags |= 4),
        ("urg", |p| p.flags |= 0x20),
        ("ece", |p| p.flags |= 0x40),
        ("cwr", |p| p.flags |= CWR),
        ("no ack", |p| p.flags &= !ACK),
        ("id", |p| p.id += 1),
        ("df", |p| p.df = !p.df),
    ];
    for (v6, df) in [(false, false), (false, true), (true, true)] {
        for (what, change) in changes {
            let first = Plain { df, ..Plain::new(v6, vec![1; 100]) };
            let mut second = Plain { id: first.id + 1, seq: first.seq.wrapping_add(100), ..first.clone() };
            change(&mut second);
            let merged = merge(&[first.bytes(), second.bytes()]).len() == 1;
            let harmless = match *what {
                "id" => v6 || df,
                "df" => v6,
                "nothing" => true,
                _ => false,
            };
            assert_eq!(merged, harmless, "{what}, IPv6 {v6}, DF {df}");
        }
    }
}

#[test]
fn fragments_and_options_go_as_they_came() {
    let mut fragment = Plain::new(false, vec![1; 100]).bytes();
    fragment[6] |= 0x20;
    assert_eq!(look(&fragment), Look::Other);
    assert_eq!(Cutter::new(&fragment, 10).map(drop), Err(Error::Unfragmentable));
    let plain = Plain::new(false, vec![1; 100]).bytes();
    let mut options = [&plain[..20], &[1, 1, 1, 1], &plain[20..]].concat();
    options[0] = 0x46;
    options[2..4].copy_from_slice(&((plain.len() + 4) as u16).to_be_bytes());
    assert!(matches!(look(&options), Look::Alone(_)));
    assert!(matches!(look(&plain), Look::Mergeable(..)));
}

#[test]
fn a_udp_checksum_of_zero_is_sent_as_its_other_zero() {
    let mut packet = [0; 28];
    packet[26..].copy_from_slice(&[0xff, 0xff]);
    complete(&mut packet, 20, 6).unwrap();
    assert_eq!(packet[26..], [0xff, 0xff]);
    assert!(complete(&mut packet, 20, 7).is_err() && complete(&mut packet, 29, 0).is_err());
}

#[test]
fn headers_that_are_not_known_are_refused() {
    let udp = [1, 3, 0, 0, 1, 0, 0, 0, 0, 0];
    assert_eq!(Offload::parse(&udp), Err(Error::Options));
    let no_size = [1, 1, 0, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(Offload::parse(&no_size), Err(Error::Length { found: 0, expected: 1 }));
    assert_eq!(Offload::parse(&[2, 0, 0, 0, 0, 0, 0, 0, 0, 0]), Ok(Offload::None));
}
