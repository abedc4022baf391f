//! Reassembly against the packets that were split.

use super::*;
use proptest::prelude::*;
use std::net::{Ipv4Addr, Ipv6Addr};
use testudo_wire::ip::Protocol;
use testudo_wire::{ipv4, ipv6};

const LIMITS: Limits = Limits {
    datagrams: 8,
    per_source: 4,
    fragments: 64,
    fragments_per_source: 48,
    octets: 16_000,
    patience: 15_000,
    stale: 100,
};

fn empty(limits: Limits) -> Reassembler<Vec<u8>> {
    Reassembler::new(limits, SipKey::new([7; 16]))
}

type Lost = Vec<(Vec<u8>, Loss)>;

fn packet(v6: bool, source: u8, payload: &[u8]) -> Vec<u8> {
    if v6 {
        let fields = ipv6::Fields {
            traffic_class: 2,
            payload_len: payload.len() as u16,
            next_header: Protocol::ESP,
            hop_limit: 9,
            src: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, source.into()),
            dst: Ipv6Addr::LOCALHOST,
        };
        return [&fields.to_bytes()[..], payload].concat();
    }
    let fields = ipv4::Fields {
        tos: 2,
        total_len: (ipv4::HEADER + payload.len()) as u16,
        id: 0,
        df: false,
        ttl: 9,
        protocol: Protocol::ESP,
        src: Ipv4Addr::new(192, 0, 2, source),
        dst: Ipv4Addr::new(192, 0, 2, 200),
    };
    [&fields.to_bytes()[..], payload].concat()
}

fn octets(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + at / 251 + seed) as u8).collect()
}

/// The same packet under another identification, and its fragments.
fn split(mut packet: Vec<u8>, id: u16, mtu: u16) -> (Vec<u8>, Vec<Vec<u8>>) {
    let mut out = vec![0; usize::from(mtu)];
    let mut pieces = Vec::new();
    if packet[0] >> 4 == 6 {
        let mut fragments = ipv6::fragment(&packet, mtu, id.into()).unwrap();
        while let Some(len) = fragments.write_next(&mut out).unwrap() {
            pieces.push(out[..len].to_vec());
        }
    } else {
        packet[4..6].copy_from_slice(&id.to_be_bytes());
        set_checksum(&mut packet);
        let mut fragments = ipv4::fragment(&packet, mtu).unwrap();
        while let Some(len) = fragments.write_next(&mut out).unwrap() {
            pieces.push(out[..len].to_vec());
        }
    }
    (packet, pieces)
}

fn set_checksum(packet: &mut [u8]) {
    packet[10..12].fill(0);
    let sum = testudo_wire::checksum::Sum::new().bytes(&packet[..20]).finish();
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// The form in which a packet is given to reassembly.
fn read(piece: &[u8]) -> (Vec<u8>, Fragment) {
    (piece.to_vec(), Fragment::parse(piece).unwrap().expect("a fragment"))
}

fn written(whole: &Whole<Vec<u8>>) -> Vec<u8> {
    let mut out = vec![0xee; whole.packet_len()];
    assert!(!whole.write(&mut out[..whole.packet_len() - 1]));
    assert!(whole.write(&mut out));
    out
}

/// Gives all pieces at one time; answers what comes of them.
fn give(
    reassembler: &mut Reassembler<Vec<u8>>,
    pieces: &[Vec<u8>],
    now: u64,
    lost: &mut Lost,
) -> Vec<Vec<u8>> {
    let mut wholes = Vec::new();
    for piece in pieces {
        let (packet, fragment) = read(piece);
        let whole = reassembler.add(packet, fragment, 0, now, &mut |piece, why| lost.push((piece, why)));
        wholes.extend(whole.map(|whole| written(&whole)));
    }
    wholes
}

fn reasons(lost: &Lost) -> Vec<Loss> {
    lost.iter().map(|(_, why)| *why).collect()
}

/// A datagram, its pieces, and who is to put them together.
type Begun = (Vec<u8>, Vec<Vec<u8>>, Reassembler<Vec<u8>>, Lost);

fn begin(v6: bool, len: usize, mtu: u16) -> Begun {
    let (whole, pieces) = split(packet(v6, 1, &octets(1, len)), 7, mtu);
    (whole, pieces, empty(LIMITS), Lost::new())
}

#[test]
fn fragments_in_any_order_are_the_packet() {
    for v6 in [false, true] {
        let (whole, mut pieces, mut reassembler, mut lost) = begin(v6, 4000, 1300);
        for _ in 0..pieces.len() {
            pieces.rotate_left(1);
            assert_eq!(give(&mut reassembler, &pieces, 0, &mut lost), [&whole[..]]);
            pieces.reverse();
            assert_eq!(give(&mut reassembler, &pieces, 0, &mut lost), [&whole[..]]);
        }
        assert!(lost.is_empty() && reassembler.is_empty() && reassembler.held() == 0);
    }
}

#[test]
fn doubled_fragments_do_no_harm() {
    let (whole, pieces, mut reassembler, mut lost) = begin(false, 4000, 1300);
    let mut twice: Vec<Vec<u8>> = pieces.iter().flat_map(|piece| [piece.clone(), piece.clone()]).collect();
    twice.pop();
    assert_eq!(give(&mut reassembler, &twice, 0, &mut lost), [whole]);
    assert_eq!(reasons(&lost), vec![Loss::Duplicate; pieces.len() - 1]);
}

/// RFC 5722: the datagram is lost with all that comes of it later.
#[test]
fn an_overlap_ends_the_datagram() {
    for v6 in [false, true] {
        let (_, pieces, mut reassembler, mut lost) = begin(v6, 4000, 1300);
        let (_, others) = split(packet(v6, 1, &octets(2, 4000)), 7, 1400);
        assert!(give(&mut reassembler, &pieces[..2], 0, &mut lost).is_empty());
        assert!(give(&mut reassembler, &others[1..2], 0, &mut lost).is_empty());
        assert_eq!(reasons(&lost), [Loss::Overlap; 3]);
        assert!(give(&mut reassembler, &pieces, 1, &mut lost).is_empty());
        assert_eq!((lost.len(), reassembler.held()), (3 + pieces.len(), 0));
        // It is another datagram when the number is used again.
        reassembler.expire(15_000, &mut |_, _| panic!("nothing was kept"));
        assert_eq!(give(&mut reassembler, &pieces, 15_000, &mut lost).len(), 1);
    }
}

#[test]
fn the_same_place_with_other_octets_is_an_overlap() {
    let (_, pieces, mut reassembler, mut lost) = begin(false, 4000, 1300);
    let (_, others) = split(packet(false, 1, &octets(2, 4000)), 7, 1300);
    give(&mut reassembler, &[pieces[0].clone(), others[0].clone()], 0, &mut lost);
    assert_eq!(reasons(&lost), [Loss::Overlap; 2]);
}

#[test]
fn two_ends_contradict_each_other() {
    let (_, long, mut reassembler, mut lost) = begin(false, 4000, 1300);
    let (_, short) = split(packet(false, 1, &octets(1, 2500)), 7, 1300);
    give(&mut reassembler, &[long.last().unwrap().clone(), short.last().unwrap().clone()], 0, &mut lost);
    assert_eq!(reasons(&lost), [Loss::Overlap; 2]);
    let (mut reassembler, mut lost) = (empty(LIMITS), Lost::new());
    give(&mut reassembler, &[short.last().unwrap().clone(), long[2].clone()], 0, &mut lost);
    assert_eq!(reasons(&lost), [Loss::Overlap; 2], "behind the end");
}

/// A piece of an IPv4 datagram as an attacker writes it.
fn forged(offset: u16, more: bool, len: usize) -> Vec<u8> {
    let mut piece = packet(false, 9, &octets(0, len));
    piece[6..8].copy_from_slice(&((offset / 8) | (u16::from(more) << 13)).to_be_bytes());
    set_checksum(&mut piece);
    piece
}

#[test]
fn fragments_smaller_than_any_link_requires_are_refused() {
    let refused = |piece: Vec<u8>| {
        let (mut reassembler, mut lost) = (empty(LIMITS), Lost::new());
        assert!(give(&mut reassembler, &[piece], 0, &mut lost).is_empty());
        assert!(lost.is_empty() || reassembler.held() == 0);
        reasons(&lost).first().copied()
    };
    assert_eq!(refused(forged(0, true, 40)), Some(Loss::Tiny));
    assert_eq!(refused(forged(8, false, 40)), Some(Loss::Tiny), "RFC 1858: behind a first one of 8 octets");
    assert_eq!(refused(forged(0, true, 48)), None);
    assert_eq!(refused(forged(48, false, 1)), None);
    assert_eq!(refused(forged(0, true, 49)), Some(Loss::Invalid));
    assert_eq!(refused(forged(48, false, 0)), Some(Loss::Invalid));
    assert_eq!(refused(forged(65_528, false, 8)), Some(Loss::Invalid), "beyond 65535 octets");
    assert_eq!(refused(forged(15_000, true, 1000)), Some(Loss::TooLarge));
    assert_eq!(refused(forged(15_000, true, 976)), None);
}

#[test]
fn too_many_fragments_are_refused() {
    let (mut reassembler, mut lost) = (empty(LIMITS), Lost::new());
    for at in 0..=MAX_FRAGMENTS {
        give(&mut reassembler, &[forged(48 * at as u16, true, 48)], 0, &mut lost);
    }
    assert_eq!(reasons(&lost), [Loss::TooLarge; MAX_FRAGMENTS + 1]);
    assert_eq!(reassembler.held(), 0);
}

#[test]
fn incomplete_datagrams_expire() {
    let (_, pieces, mut reassembler, mut lost) = begin(true, 4000, 1300);
    give(&mut reassembler, &pieces[1..], 100, &mut lost);
    reassembler.expire(15_099, &mut |_, _| panic!("too early"));
    assert!(!reassembler.is_empty());
    reassembler.expire(15_100, &mut |piece, why| lost.push((piece, why)));
    assert_eq!(reasons(&lost), vec![Loss::Timeout; pieces.len() - 1]);
    assert!(reassembler.is_empty() && reassembler.held() == 0);
    assert!(give(&mut reassembler, &pieces[..1], 15_101, &mut lost).is_empty());
}

/// RFC 4963: a fast peer comes to the same identification before what was lost of the last time is
/// forgotten.
#[test]
fn a_beginning_takes_the_place_of_half_an_older_datagram() {
    for half in [0..1, 1..2, 1..3] {
        let (_, old, mut reassembler, mut lost) = begin(false, 4000, 1300);
        let (whole, new) = split(packet(false, 1, &octets(2, 4000)), 7, 1300);
        give(&mut reassembler, &old[half.clone()], 0, &mut lost);
        assert_eq!(give(&mut reassembler, &new, 100, &mut lost), [whole]);
        assert_eq!(reasons(&lost), vec![Loss::Displaced; half.len()]);
        assert!(reassembler.is_empty() && reassembler.held() == 0);
    }
    // A datagram that an attacker has spoilt is a new one when its number is reused.
    let (whole, pieces, mut reassembler, mut lost) = begin(false, 4000, 1300);
    let (_, forged) = split(packet(false, 1, &octets(2, 4000)), 7, 1400);
    give(&mut reassembler, &[pieces[0].clone(), forged[1].clone(), pieces[1].clone()], 0, &mut lost);
    assert_eq!(give(&mut reassembler, &pieces, 100, &mut lost), [whole]);
}

/// The same fragment once more is a copy, however late; and IPv6 has identifications enough for RFC
/// 5722 to hold.
#[test]
fn a_repeated_first_fragment_replaces_nothing() {
    let (whole, pieces, mut reassembler, mut lost) = begin(false, 4000, 1300);
    give(&mut reassembler, &pieces[..2], 0, &mut lost);
    assert_eq!(give(&mut reassembler, &pieces, 5000, &mut lost), [whole]);
    assert_eq!(reasons(&lost), [Loss::Duplicate; 2]);
    let (_, pieces, mut reassembler, mut lost) = begin(true, 4000, 1300);
    let (_, others) = split(packet(true, 1, &octets(2, 4000)), 7, 1300);
    give(&mut reassembler, &pieces[..2], 0, &mut lost);
    assert!(give(&mut reassembler, &others, 5000, &mut lost).is_empty());
    assert_eq!(reasons(&lost), vec![Loss::Overlap; 2 + others.len()]);
}

/// A packet has the header of its first fragment, which may come last and be longer than the
/// others'.
#[test]
fn the_first_fragments_header_counts_as_the_packets() {
    let options = |piece: Vec<u8>| {
        let mut longer = [&piece[..20], &[1; 40], &piece[20..]].concat();
        longer[0] = 0x4f;
        let len = longer.len() as u16;
        longer[2..4].copy_from_slice(&len.to_be_bytes());
        longer[10..12].fill(0);
        let sum = testudo_wire::checksum::Sum::new().bytes(&longer[..60]).finish();
        longer[10..12].copy_from_slice(&sum.to_be_bytes());
        longer
    };
    let first = options(forged(0, true, 48));
    for (len, expected) in
        [(LIMITS.octets - 60 - 48, None), (LIMITS.octets - 60 - 48 + 1, Some(Loss::TooLarge))]
    {
        let (mut reassembler, mut lost) = (empty(LIMITS), Lost::new());
        let found = give(&mut reassembler, &[forged(48, false, len), first.clone()], 0, &mut lost);
        assert_eq!(
            (found.len(), reasons(&lost).first().copied()),
            (usize::from(expected.is_none()), expected)
        );
        assert!(found.iter().all(|whole| whole.len() == LIMITS.octets));
    }
}

fn first_of(source: u8, id: u16) -> Vec<u8> {
    split(packet(false, source, &octets(1, 2000)), id, 1300).1.remove(0)
}

#[test]
fn one_source_does_not_take_the_others_places() {
    let (mut reassembler, mut lost) = (empty(LIMITS), Lost::new());
    let (whole, honest) = split(packet(false, 1, &octets(1, 2000)), 1, 1300);
    give(&mut reassembler, &honest[..1], 0, &mut lost);
    for id in 0..100 {
        give(&mut reassembler, &[first_of(2, id)], 0, &mut lost);
    }
    assert_eq!((lost.len(), reassembler.held()), (96, 5));
    assert!(reasons(&lost).iter().all(|why| *why == Loss::Displaced));
    assert_eq!(give(&mut reassembler, &honest[1..], 0, &mut lost), [whole]);
}

/// Nor with datagrams of many fragments.
#[test]
fn one_source_does_not_take_all_fragments() {
    let limits = Limits { fragments: 20, fragments_per_source: 12, ..LIMITS };
    let (mut reassembler, mut lost) = (empty(limits), Lost::new());
    let (whole, honest) = split(packet(false, 1, &octets(1, 9000)), 1, 1300);
    give(&mut reassembler, &honest[..7], 0, &mut lost);
    for id in 1..5 {
        let (_, pieces) = split(packet(false, 2, &octets(1, 12_000)), id, 1300);
        give(&mut reassembler, &pieces[1..], 0, &mut lost);
        assert!(reassembler.held() <= 7 + 12);
    }
    assert_eq!(give(&mut reassembler, &honest[7..], 0, &mut lost), [whole]);
}

#[test]
fn with_many_sources_the_oldest_datagram_is_dropped() {
    let (mut reassembler, mut lost) = (empty(LIMITS), Lost::new());
    for source in 1..=9 {
        give(&mut reassembler, &[first_of(source, 5)], 0, &mut lost);
    }
    assert_eq!((lost.len(), reassembler.held()), (1, 8));
    assert_eq!(lost[0], (first_of(1, 5), Loss::Displaced));
}

#[test]
fn no_more_fragments_are_kept_than_may_be() {
    let limits = Limits { fragments: 10, ..LIMITS };
    let (mut reassembler, mut lost) = (empty(limits), Lost::new());
    let mut given = 0;
    for source in 1..=4 {
        let (_, pieces) = split(packet(false, source, &octets(1, 9000)), 1, 1300);
        give(&mut reassembler, &pieces[1..], 0, &mut lost);
        given += pieces.len() - 1;
        assert!(reassembler.held() <= 10);
    }
    assert_eq!(given, lost.len() + reassembler.held());
    // One datagram alone may have too many.
    let (_, pieces) = split(packet(false, 9, &octets(1, 15_000)), 1, 1300);
    assert!(give(&mut reassembler, &pieces, 0, &mut lost).is_empty());
    assert!(reassembler.held() <= 10);
}

#[test]
fn fragments_that_came_different_ways_do_not_belong_together() {
    let (_, pieces, mut reassembler, mut lost) = begin(false, 2000, 1300);
    give(&mut reassembler, &pieces[..1], 0, &mut lost);
    let (packet, fragment) = read(&pieces[1]);
    assert!(reassembler.add(packet, fragment, 1, 0, &mut |_, _| panic!("kept")).is_none());
    assert_eq!(reassembler.held(), 2);
}

#[test]
fn congestion_on_a_fragment_is_congestion_on_the_packet() {
    let mark = |piece: &mut Vec<u8>, ecn: u8| {
        piece[1] = ecn;
        set_checksum(piece);
    };
    let (_, mut pieces, mut reassembler, mut lost) = begin(false, 4000, 1300);
    mark(&mut pieces[2], 3);
    let whole = give(&mut reassembler, &pieces, 0, &mut lost).remove(0);
    assert_eq!(whole[1], 3);
    assert!(ipv4::Ipv4::parse_verified(&whole).is_ok());
    mark(&mut pieces[1], 0);
    assert!(give(&mut reassembler, &pieces, 0, &mut lost).is_empty());
    assert_eq!(reasons(&lost), vec![Loss::Ecn; pieces.len()]);
}

#[derive(Clone, Debug)]
struct Sent {
    v6: bool,
    len: usize,
    mtu: u16,
    source: u8,
    /// Boundaries of an attacker's fragments of the same datagram, if there is one.
    attack: Option<u16>,
    /// Fragments that are lost on the way, by the bits of it.
    missing: u32,
    doubled: u32,
}

fn sent() -> impl Strategy<Value = Sent> {
    let attack = prop_oneof![3 => Just(None), 1 => (0..40_u16).prop_map(Some)];
    let bits = |often| prop_oneof![often => Just(0), 1 => any::<u32>()];
    (any::<bool>(), 1500..9000_usize, 1280..1500_u16, 1..3_u8, attack, bits(3), bits(1)).prop_map(
        |(v6, len, mtu, source, attack, missing, doubled)| Sent {
            v6,
            len,
            mtu,
            source,
            attack,
            missing,
            doubled,
        },
    )
}

proptest! {
    /// Interleaved datagrams, fragments in any order, some doubled, some lost, some forged: what
    /// comes out is what was sent, once, or nothing; and nothing is lost without a reason.
    #[test]
    fn out_comes_what_was_sent_or_nothing(
        sent in proptest::collection::vec(sent(), 1..4),
        order in proptest::collection::vec(any::<u32>(), 200),
    ) {
        let mut arriving: Vec<(u32, Vec<u8>)> = Vec::new();
        let mut orders = order.iter().copied().cycle();
        let mut expected = Vec::new();
        let mut forged = Vec::new();
        for (id, sent) in (1..).zip(&sent) {
            let (whole, pieces) = split(packet(sent.v6, sent.source, &octets(id.into(), sent.len)), id, sent.mtu);
            let is_missing = |at: usize| sent.missing >> (at % 32) & 1 == 1;
            for (at, piece) in pieces.iter().enumerate() {
                let times = if is_missing(at) { 0 } else { 1 + (sent.doubled >> (at % 32) & 1) };
                for _ in 0..times {
                    arriving.push((orders.next().unwrap(), piece.clone()));
                }
            }
            if let Some(shift) = sent.attack {
                let mtu = sent.mtu - 8 - shift;
                let others = split(packet(sent.v6, sent.source, &octets(99, sent.len)), id, mtu.max(600)).1;
                // In the middle: its boundaries are none of the real ones'.
                if others.len() > 2 && Fragment::parse(&others[1]).unwrap().unwrap().offset
                    != Fragment::parse(&pieces[1]).unwrap().unwrap().offset {
                    arriving.push((orders.next().unwrap(), others[1].clone()));
                    forged.push(whole.clone());
                }
            }
            let is_complete = (0..pieces.len()).all(|at| !is_missing(at));
            expected.push((whole, is_complete));
        }
        arriving.sort_by_key(|(order, _)| *order);
        let pieces: Vec<Vec<u8>> = arriving.into_iter().map(|(_, piece)| piece).collect();
        let (mut reassembler, mut lost) = (empty(LIMITS), Lost::new());
        let (mut wholes, mut joined) = (Vec::new(), 0);
        for piece in &pieces {
            let (packet, fragment) = read(piece);
            let whole = reassembler.add(packet, fragment, 0, 0, &mut |piece, why| lost.push((piece, why)));
            if let Some(whole) = whole {
                wholes.push(written(&whole));
                joined += whole.into_packets().count();
            }
        }
        prop_assert_eq!(pieces.len(), joined + lost.len() + reassembler.held());
        for (whole, is_complete) in &expected {
            let times = wholes.iter().filter(|found| *found == whole).count();
            // Where doubles make up a datagram again, it is there twice, as on any network.
            prop_assert!(times == 0 || *is_complete);
            if *is_complete && !forged.contains(whole) {
                prop_assert!(times >= 1, "{:?}", reasons(&lost));
            }
        }
        prop_assert!(wholes.iter().all(|found| expected.iter().any(|(whole, _)| whole == found)));
        reassembler.clear(&mut |piece, why| lost.push((piece, why)));
        prop_assert_eq!((reassembler.held(), pieces.len()), (0, joined + lost.len()));
    }
}
