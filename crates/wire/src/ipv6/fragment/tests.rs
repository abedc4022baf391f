//! Fragments against a receiver that puts them together again.

use super::*;
use crate::ipv6::Fields;
use proptest::prelude::*;
use std::net::Ipv6Addr;

const ID: u32 = 0xfeed_0001;

fn packet(next_header: Protocol, payload: &[u8]) -> Vec<u8> {
    let fields = Fields {
        traffic_class: 0x2b,
        payload_len: payload.len() as u16,
        next_header,
        hop_limit: 64,
        src: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1),
        dst: Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2),
    };
    [&fields.to_bytes()[..], payload].concat()
}

fn split(packet: &[u8], mtu: u16) -> Vec<Vec<u8>> {
    let mut fragments = fragment(packet, mtu, ID).unwrap();
    let mut pieces = Vec::new();
    for left in (0..fragments.remaining()).rev() {
        let mut out = vec![0xee; usize::from(mtu)];
        let len = fragments.write_next(&mut out).unwrap().expect("as many as were announced");
        assert!(out[len..].iter().all(|octet| *octet == 0xee));
        out.truncate(len);
        pieces.push(out);
        assert_eq!(fragments.remaining(), left);
    }
    assert_eq!(fragments.write_next(&mut [0; 2000]), Ok(None));
    pieces
}

/// Checks that the pieces follow each other and agree; returns what they carry.
fn join(pieces: &[Vec<u8>]) -> Vec<u8> {
    let mut payload = Vec::new();
    for (number, piece) in pieces.iter().enumerate() {
        let ip = Ipv6::parse(piece).unwrap();
        assert_eq!(ip.total_len(), piece.len());
        assert_eq!((ip.traffic_class(), ip.hop_limit()), (0x2b, 64));
        assert_eq!([ip.src().octets()[15], ip.dst().octets()[15]], [1, 2]);
        let upper = ip.upper().unwrap();
        assert_eq!(upper.protocol, Protocol::ESP);
        let found = upper.fragment.unwrap();
        assert_eq!((found.id, found.offset), (ID, payload.len()));
        assert_eq!(found.more, number + 1 < pieces.len());
        assert!(!found.more || upper.payload.len().is_multiple_of(8));
        payload.extend(upper.payload);
    }
    payload
}

#[test]
fn pieces_are_as_large_as_they_may_be() {
    let whole = packet(Protocol::ESP, &[7; 1300]);
    let lengths: Vec<usize> = split(&whole, 1280).iter().map(Vec::len).collect();
    assert_eq!(lengths, [1280, 48 + 1300 - 1232]);
    assert_eq!(
        split(&packet(Protocol::ESP, &[7; 1233]), 1281).len(),
        1,
        "the last uses all the room there is"
    );
}

#[test]
fn packets_that_cannot_be_split_are_refused() {
    let refused = |packet: &[u8], mtu| fragment(packet, mtu, ID).map(|_| ()).unwrap_err();
    let whole = packet(Protocol::ESP, &[7; 1300]);
    assert_eq!(refused(&whole, 55), Error::Unfragmentable);
    for header in [Protocol::FRAGMENT, Protocol::ROUTING, Protocol::HOP_BY_HOP, Protocol::DEST_OPTIONS] {
        assert_eq!(refused(&packet(header, &[0; 1300]), 1280), Error::Unfragmentable);
    }
    assert!(matches!(refused(&whole[..100], 1280), Error::Truncated { .. }));
}

#[test]
fn without_room_nothing_happens() {
    let whole = packet(Protocol::ESP, &[7; 1300]);
    let mut fragments = fragment(&whole, 1280, ID).unwrap();
    assert_eq!(fragments.write_next(&mut [0; 1279]), Err(Error::NoRoom { found: 1279, expected: 1280 }));
    assert_eq!(fragments.remaining(), 2);
}

proptest! {
    #[test]
    fn pieces_put_together_are_the_packet(
        payload in proptest::collection::vec(any::<u8>(), 0..4000),
        mtu in 56u16..2000,
    ) {
        let pieces = split(&packet(Protocol::ESP, &payload), mtu);
        prop_assert!(pieces.iter().all(|piece| piece.len() <= usize::from(mtu)));
        prop_assert_eq!(join(&pieces), payload);
    }
}
