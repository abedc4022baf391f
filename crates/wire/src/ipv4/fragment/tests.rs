//! Fragments against a receiver that puts them together again.

use super::*;
use crate::ip::Protocol;
use crate::ipv4::{Fields, MIN_MTU};
use proptest::prelude::*;
use std::net::Ipv4Addr;

/// A packet whose flags and offset are as given.
fn packet(place: u16, options: &[u8], payload: &[u8]) -> Vec<u8> {
    let fields = Fields {
        tos: 0x28,
        total_len: (HEADER + options.len() + payload.len()) as u16,
        id: 77,
        df: false,
        ttl: 9,
        protocol: Protocol::UDP,
        src: Ipv4Addr::new(10, 0, 0, 1),
        dst: Ipv4Addr::new(10, 0, 0, 2),
    };
    let mut bytes = fields.to_bytes().to_vec();
    bytes[0] = 0x40 | ((HEADER + options.len()) / 4) as u8;
    bytes[6..8].copy_from_slice(&place.to_be_bytes());
    bytes.extend(options);
    bytes[10..12].fill(0);
    let checksum = Sum::new().bytes(&bytes).finish();
    bytes[10..12].copy_from_slice(&checksum.to_be_bytes());
    bytes.extend(payload);
    bytes
}

fn split(packet: &[u8], mtu: u16) -> Vec<Vec<u8>> {
    let mut fragments = fragment(packet, mtu).unwrap();
    let count = fragments.remaining();
    let mut pieces = Vec::new();
    while let Some(len) = fragments.next_len() {
        let mut out = vec![0xee; usize::from(mtu)];
        assert_eq!(fragments.write_next(&mut out), Ok(Some(len)));
        assert!(out[len..].iter().all(|octet| *octet == 0xee));
        out.truncate(len);
        pieces.push(out);
        assert_eq!(fragments.remaining(), count - pieces.len());
    }
    assert_eq!(fragments.write_next(&mut [0; 2000]), Ok(None));
    assert_eq!(pieces.len(), count);
    pieces
}

/// Puts fragments together in the order given; checks that they follow each other and agree.
fn join(pieces: &[Vec<u8>]) -> (usize, bool, Vec<u8>) {
    let first = Ipv4::parse_verified(&pieces[0]).unwrap();
    let (start, mut payload) = (first.fragment_offset(), Vec::new());
    let mut more = true;
    for piece in pieces {
        let ip = Ipv4::parse_verified(piece).unwrap();
        assert_eq!(ip.total_len(), piece.len());
        assert_eq!((ip.tos(), ip.id(), ip.ttl(), ip.df()), (0x28, 77, 9, false));
        assert_eq!((ip.src(), ip.dst(), ip.protocol()), (first.src(), first.dst(), Protocol::UDP));
        assert!(more, "nothing follows the last");
        assert_eq!(ip.fragment_offset(), start + payload.len());
        payload.extend(ip.payload());
        more = ip.mf();
    }
    (start, more, payload)
}

#[test]
fn a_packet_that_fits_is_one_fragment() {
    let whole = packet(0, &[], &[7; 100]);
    assert_eq!(split(&whole, 120), [whole]);
}

#[test]
fn an_empty_packet_is_one_fragment() {
    let whole = packet(0, &[], &[]);
    assert_eq!(split(&whole, 68), [whole]);
}

#[test]
fn only_copied_options_are_repeated() {
    // No-operation, record route (not copied), loose source route (copied), end.
    let route = [0x83, 7, 4, 10, 0, 0, 9];
    let mut options = vec![1, 7, 3, 4];
    options.extend(route);
    options.push(0);
    let whole = packet(0, &options, &[7; 300]);
    let pieces = split(&whole, 128);
    assert_eq!(Ipv4::parse(&pieces[0]).unwrap().options(), options);
    for piece in &pieces[1..] {
        let mut repeated = route.to_vec();
        repeated.push(0);
        assert_eq!(Ipv4::parse(piece).unwrap().options(), repeated);
    }
    assert_eq!(join(&pieces), (0, false, vec![7; 300]));
}

#[test]
fn refuses_what_must_not_be_split() {
    let df = packet(0x4000, &[], &[7; 100]);
    assert_eq!(fragment(&df, 68).unwrap_err(), Error::Unfragmentable);
    let whole = packet(0, &[1; 40], &[7; 100]);
    assert_eq!(fragment(&whole, 67).unwrap_err(), Error::Unfragmentable);
    assert!(fragment(&whole, MIN_MTU).is_ok());
    assert!(fragment(&whole[..30], 68).is_err());
}

#[test]
fn a_small_buffer_changes_nothing() {
    let whole = packet(0, &[], &[7; 100]);
    let mut fragments = fragment(&whole, 68).unwrap();
    let no_room = Error::NoRoom { found: 67, expected: 68 };
    assert_eq!(fragments.write_next(&mut [0; 67]), Err(no_room));
    assert_eq!(fragments.write_next(&mut [0; 68]), Ok(Some(68)));
}

proptest! {
    #[test]
    fn fragments_hold_the_whole(
        len in 0usize..3000, mtu in 68u16..1600, words in 0usize..=10, offset in 0u16..4000, more in any::<bool>()
    ) {
        // Options of every kind of framing; what they say does not matter.
        let options: Vec<u8> = [[1, 0x82, 3, 9], [0x88, 4, 1, 2], [7, 2, 1, 1]].concat();
        let options: Vec<u8> = options.into_iter().cycle().take(words * 4).collect();
        let payload: Vec<u8> = (0..len).map(|i| i as u8).collect();
        let place = offset | if more { MF } else { 0 };
        let whole = packet(place, &options, &payload);
        let pieces = split(&whole, mtu);
        prop_assert!(pieces.iter().all(|piece| piece.len() <= usize::from(mtu)));
        for piece in &pieces[..pieces.len() - 1] {
            prop_assert!(Ipv4::parse(piece).unwrap().payload().len().is_multiple_of(8));
            prop_assert!(Ipv4::parse(piece).unwrap().mf());
        }
        prop_assert_eq!(join(&pieces), (usize::from(offset) * 8, more, payload));
    }

    #[test]
    fn any_bytes_are_safe(mut bytes in prop::collection::vec(any::<u8>(), 20..400), mtu in any::<u16>()) {
        bytes[0] = 0x40 | bytes[0] & 15;
        bytes[2] = 0;
        bytes[6] &= !0x40;
        if let Ok(mut fragments) = fragment(&bytes, mtu) {
            let mut out = [0; 500];
            while let Ok(Some(len)) = fragments.write_next(&mut out) {
                prop_assert!(len <= usize::from(mtu));
            }
            prop_assert_eq!(fragments.remaining(), 0);
        }
    }
}
