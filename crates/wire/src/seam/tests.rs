use super::*;
use crate::checksum::Sum;
use proptest::prelude::*;
use std::net::{Ipv4Addr, Ipv6Addr};

fn v4(options: &[u8], payload: &[u8]) -> Vec<u8> {
    let fields = ipv4::Fields {
        tos: 0,
        total_len: (ipv4::HEADER + options.len() + payload.len()) as u16,
        id: 7,
        df: true,
        ttl: 64,
        protocol: Protocol::UDP,
        src: Ipv4Addr::new(192, 0, 2, 1),
        dst: Ipv4Addr::new(192, 0, 2, 2),
    };
    let mut packet = [&fields.to_bytes()[..], options, payload].concat();
    packet[0] = 0x45 + (options.len() / 4) as u8;
    packet[10..12].fill(0);
    let header = ipv4::HEADER + options.len();
    let checksum = Sum::new().bytes(&packet[..header]).finish();
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    packet
}

/// Extension headers of 8 octets each, and 16 octets of TCP.
fn v6(extensions: &[Protocol]) -> Vec<u8> {
    let chain: Vec<Protocol> = extensions.iter().copied().chain([Protocol::TCP]).collect();
    let mut payload = Vec::new();
    for next in &chain[1..] {
        payload.extend([next.0, 0, 0, 0, 1, 2, 0, 0]);
    }
    payload.extend([0xab; 16]);
    let fields = ipv6::Fields {
        traffic_class: 0,
        payload_len: payload.len() as u16,
        next_header: chain[0],
        hop_limit: 64,
        src: Ipv6Addr::LOCALHOST,
        dst: Ipv6Addr::LOCALHOST,
    };
    [&fields.to_bytes()[..], &payload].concat()
}

#[test]
fn behind_ipv4_and_its_options() {
    for options in [&[][..], &[1, 1, 1, 0], &[0x94, 4, 0, 0, 1, 1, 1, 1]] {
        let packet = v4(options, b"payload");
        let seam = Seam::find(&packet).unwrap();
        assert_eq!((seam.offset(), seam.protocol(&packet)), (20 + options.len(), Some(Protocol::UDP)));
        assert_eq!(Seam::at(&packet, 20 + options.len()), Some(seam));
        assert_eq!(Seam::at(&packet, 19), None);
    }
}

#[test]
fn behind_what_routers_look_at() {
    const HBH: Protocol = Protocol::HOP_BY_HOP;
    const DST: Protocol = Protocol::DEST_OPTIONS;
    const RTG: Protocol = Protocol::ROUTING;
    const FRG: Protocol = Protocol::FRAGMENT;
    // How many of the headers stay before it (RFC 4303 §3.1.1).
    let table: &[(&[Protocol], usize)] = &[
        (&[], 0),
        (&[HBH], 1),
        (&[DST], 0),
        (&[HBH, DST], 1),
        (&[HBH, DST, RTG], 3),
        (&[DST, RTG, DST], 2),
        (&[HBH, RTG, FRG, DST], 3),
        (&[FRG], 1),
        (&[FRG, DST], 1),
    ];
    for (extensions, before) in table {
        let packet = v6(extensions);
        let seam = Seam::find(&packet).unwrap();
        let next = extensions.get(*before).copied().unwrap_or(Protocol::TCP);
        assert_eq!((seam.offset(), seam.protocol(&packet)), (40 + 8 * before, Some(next)), "{extensions:?}");
        for at in 0..=extensions.len() {
            let header = extensions.get(at).copied().unwrap_or(Protocol::TCP);
            let found = Seam::at(&packet, 40 + 8 * at).unwrap();
            assert_eq!(found.protocol(&packet), Some(header), "{extensions:?} at {at}");
        }
        assert_eq!(Seam::at(&packet, 41), None);
        assert_eq!(Seam::at(&packet, 48 + 8 * extensions.len()), None);
    }
}

#[test]
fn naming_changes_protocol_length_and_checksum() {
    let mut packet = v4(&[1, 1, 1, 1], b"payload");
    packet.extend([0; 9]);
    let seam = Seam::find(&packet).unwrap();
    assert!(seam.name(&mut packet, Protocol::ESP, 40));
    let ip = Ipv4::parse_verified(&packet).unwrap();
    assert_eq!((ip.protocol(), ip.total_len(), ip.id(), ip.df()), (Protocol::ESP, 40, 7, true));

    let mut packet = v6(&[Protocol::HOP_BY_HOP, Protocol::DEST_OPTIONS]);
    let seam = Seam::find(&packet).unwrap();
    assert!(seam.name(&mut packet, Protocol::ESP, 60));
    let ip = Ipv6::parse(&packet).unwrap();
    assert_eq!((ip.next_header(), ip.total_len()), (Protocol::HOP_BY_HOP, 60));
    assert_eq!(ip.upper().unwrap().protocol, Protocol::ESP);
    assert!(!seam.name(&mut packet, Protocol::ESP, 39));
    assert!(!seam.name(&mut [], Protocol::ESP, 60));
}

#[test]
fn too_many_and_truncated_headers_are_refused() {
    let packet = v6(&[Protocol::DEST_OPTIONS; MAX_EXTENSIONS + 1]);
    assert_eq!(Seam::find(&packet), Err(Error::TooManyHeaders));
    let mut packet = v6(&[Protocol::ROUTING]);
    packet[41] = 200;
    assert_eq!(Seam::find(&packet), Err(Error::Truncated { found: 24, expected: 1608 }));
}

proptest! {
    /// Whatever is found is a place inside the packet, and there is a header there.
    #[test]
    fn any_bytes_are_safe(mut bytes in prop::collection::vec(any::<u8>(), 0..200), v6: bool, at in 0usize..200) {
        if let Some(first) = bytes.first_mut() {
            *first = *first & 15 | if v6 { 0x60 } else { 0x40 };
        }
        if v6 && bytes.len() >= 40 {
            let len = (bytes.len() - 40) as u16;
            bytes[4..6].copy_from_slice(&len.to_be_bytes());
        }
        if let Ok(seam) = Seam::find(&bytes) {
            prop_assert!(seam.offset() <= bytes.len());
            prop_assert_eq!(Seam::at(&bytes, seam.offset()), Some(seam));
            let named = seam.protocol(&bytes).unwrap();
            let mut again = bytes.clone();
            prop_assert!(seam.name(&mut again, Protocol::ESP, 300));
            prop_assert_eq!(seam.protocol(&again), Some(Protocol::ESP));
            prop_assert!(seam.name(&mut again, named, bytes.len() as u16));
            let (mut before, mut after) = (bytes.clone(), again);
            if !v6 {
                // The length may have been less than the octets there, and the checksum wrong.
                before[2..12].fill(0);
                after[2..12].fill(0);
            }
            prop_assert_eq!(after, before);
        }
        let _ = Seam::at(&bytes, at);
    }
}
