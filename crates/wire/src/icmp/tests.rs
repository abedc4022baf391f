//! Errors as the receiver sees them, and who gets none.

use super::*;
use crate::{ipv4, ipv6};
use proptest::prelude::*;

const ROOM: usize = 64;

fn v4(src: [u8; 4], dst: [u8; 4], protocol: Protocol, payload: &[u8]) -> Vec<u8> {
    let fields = ipv4::Fields {
        tos: 0,
        total_len: (ipv4::HEADER + payload.len()) as u16,
        id: 1,
        df: true,
        ttl: 1,
        protocol,
        src: src.into(),
        dst: dst.into(),
    };
    [&fields.to_bytes()[..], payload].concat()
}

fn v6(src: &str, dst: &str, next_header: Protocol, payload: &[u8]) -> Vec<u8> {
    let fields = ipv6::Fields {
        traffic_class: 0,
        payload_len: payload.len() as u16,
        next_header,
        hop_limit: 1,
        src: src.parse().unwrap(),
        dst: dst.parse().unwrap(),
    };
    [&fields.to_bytes()[..], payload].concat()
}

/// The answer to a packet with some octets of Ethernet padding behind it.
fn answered(packet: &[u8], kind: Kind, sources: &Sources) -> Vec<u8> {
    let mut frame = vec![0; ROOM];
    frame.extend(packet);
    frame.extend([0xee; 4]);
    let mut buf = PacketBuf::new(&mut frame, ROOM, packet.len() + 4).unwrap();
    answer(&mut buf, kind, sources).unwrap();
    buf.data().to_vec()
}

#[test]
fn fragmentation_needed() {
    let packet = v4([10, 1, 0, 2], [10, 2, 0, 2], Protocol::UDP, &[7; 1480]);
    let bytes = answered(&packet, Kind::TooBig { mtu: 1438 }, &Sources::default());
    let ip = Ipv4::parse_verified(&bytes).unwrap();
    assert_eq!((ip.total_len(), bytes.len()), (576, 576));
    // Without an address of our own the error comes from where the packet was going.
    assert_eq!((ip.src(), ip.dst()), ([10, 2, 0, 2].into(), [10, 1, 0, 2].into()));
    assert_eq!((ip.protocol(), ip.is_fragment()), (Protocol::ICMP, false));
    assert!(Sum::new().bytes(ip.payload()).is_valid());
    assert_eq!(ip.payload()[..2], [3, 4]);
    assert_eq!(ip.payload()[4..8], [0, 0, 0x05, 0x9e]);
    assert_eq!(ip.payload()[8..], packet[..548]);
}

#[test]
fn time_exceeded_quotes_a_short_packet_whole() {
    let packet = v4([10, 1, 0, 2], [10, 2, 0, 2], Protocol::UDP, b"abc");
    let sources = Sources { v4: Some([10, 1, 0, 1].into()), v6: None };
    let bytes = answered(&packet, Kind::TimeExceeded, &sources);
    let ip = Ipv4::parse_verified(&bytes).unwrap();
    assert_eq!(ip.src(), Ipv4Addr::new(10, 1, 0, 1));
    assert_eq!(ip.payload()[..2], [11, 0]);
    assert_eq!(ip.payload()[8..], packet, "and without the padding");
}

#[test]
fn packet_too_big() {
    let packet = v6("2001:db8:1::2", "2001:db8:2::2", Protocol::UDP, &[7; 1460]);
    let bytes = answered(&packet, Kind::TooBig { mtu: 1438 }, &Sources::default());
    let ip = Ipv6::parse(&bytes).unwrap();
    assert_eq!((ip.total_len(), bytes.len()), (1280, 1280));
    assert_eq!(
        (ip.src().to_string(), ip.dst().to_string()),
        ("2001:db8:2::2".into(), "2001:db8:1::2".into())
    );
    let len = ip.payload().len() as u32;
    assert!(Sum::new().pseudo_v6(ip.src(), ip.dst(), 58, len).bytes(ip.payload()).is_valid());
    assert_eq!(ip.payload()[..2], [2, 0]);
    assert_eq!(ip.payload()[4..8], [0, 0, 0x05, 0x9e]);
    assert_eq!(ip.payload()[8..], packet[..1232]);
}

#[test]
fn hop_limit_exceeded_comes_from_our_address() {
    let packet = v6("2001:db8:1::2", "2001:db8:2::2", Protocol::TCP, &[7; 20]);
    let sources = Sources { v4: None, v6: Some("2001:db8:1::1".parse().unwrap()) };
    let bytes = answered(&packet, Kind::TimeExceeded, &sources);
    let ip = Ipv6::parse(&bytes).unwrap();
    assert_eq!(ip.src().to_string(), "2001:db8:1::1");
    assert_eq!(ip.payload()[..2], [3, 0]);
    assert_eq!(ip.payload()[8..], packet);
}

#[test]
fn without_headroom_nothing_changes() {
    for packet in
        [v4([10, 0, 0, 1], [10, 0, 0, 2], Protocol::UDP, &[7; 600]), v6("::2", "::3", Protocol::UDP, &[7; 9])]
    {
        let mut frame = vec![0; 20];
        frame.extend(&packet);
        let mut buf = PacketBuf::new(&mut frame, 20, packet.len()).unwrap();
        let refused = answer(&mut buf, Kind::TimeExceeded, &Sources::default());
        assert!(matches!(refused, Err(Error::NoRoom { found: 20, .. })), "{refused:?}");
        assert_eq!(buf.data(), packet);
    }
}

#[test]
fn packets_that_get_no_icmp_error_over_ipv4() {
    let (a, b) = ([10, 0, 0, 1], [10, 0, 0, 2]);
    let may = |packet: &[u8]| may_answer(packet, Kind::TimeExceeded);
    assert!(may(&v4(a, b, Protocol::UDP, b"x")));
    assert!(may(&v4(a, b, Protocol::ICMP, &[8, 0])), "an echo request is no error");
    for error in [3, 4, 5, 11, 12, 200] {
        assert!(!may(&v4(a, b, Protocol::ICMP, &[error, 0])), "ICMP type {error}");
    }
    assert!(!may(&v4(a, b, Protocol::ICMP, b"")), "cannot tell");
    assert!(!may(&v4(a, [224, 0, 0, 1], Protocol::UDP, b"x")), "multicast");
    assert!(!may(&v4(a, [255; 4], Protocol::UDP, b"x")), "broadcast");
    for src in [[0, 0, 0, 0], [127, 0, 0, 1], [224, 0, 0, 1], [240, 0, 0, 1], [255; 4]] {
        assert!(!may(&v4(src, b, Protocol::UDP, b"x")), "from {src:?}");
    }
    let mut later = v4(a, b, Protocol::UDP, b"x");
    later[7] = 1;
    assert!(!may(&later), "a later fragment");
    later[6..8].copy_from_slice(&[0x20, 0]);
    assert!(may(&later), "the first fragment");
}

#[test]
fn packets_that_get_no_icmp_error_over_ipv6() {
    let (a, b) = ("2001:db8::1", "2001:db8::2");
    let may = |packet: &[u8]| may_answer(packet, Kind::TimeExceeded);
    assert!(may(&v6(a, b, Protocol::UDP, b"x")));
    assert!(may(&v6(a, b, Protocol::ICMPV6, &[128, 0])));
    for kind in [1, 2, 3, 4, 127, 137] {
        assert!(!may(&v6(a, b, Protocol::ICMPV6, &[kind, 0])), "ICMPv6 type {kind}");
    }
    assert!(!may(&v6(a, b, Protocol::ICMPV6, b"")), "cannot tell");
    for src in ["::", "::1", "ff02::1"] {
        assert!(!may(&v6(src, b, Protocol::UDP, b"x")), "from {src}");
    }
    let multicast = v6(a, "ff0e::1", Protocol::UDP, b"x");
    assert!(!may(&multicast));
    assert!(may_answer(&multicast, Kind::TooBig { mtu: 1400 }), "the exception of RFC 4443 §2.4(e.3)");
    // An ICMPv6 error behind a destination options header is one all the same.
    assert!(!may(&v6(a, b, Protocol::DEST_OPTIONS, &[58, 0, 1, 4, 0, 0, 0, 0, 1, 0])));
    let later = [58, 0, 0, 8, 0, 0, 0, 1, 128, 0];
    assert!(!may(&v6(a, b, Protocol::FRAGMENT, &later)), "cannot tell");
    assert!(!may(&v6(a, b, Protocol::DEST_OPTIONS, b"x")), "malformed");
}

proptest! {
    #[test]
    fn any_bytes_are_safe(mut bytes in prop::collection::vec(any::<u8>(), 0..200), v6 in any::<bool>(), mtu in any::<u16>()) {
        if let Some(first) = bytes.first_mut() {
            *first = if v6 { 0x60 } else { 0x45 };
        }
        if bytes.len() > 5 {
            bytes[if v6 { 4 } else { 2 }] = 0;
        }
        let kind = Kind::TooBig { mtu };
        let _may = may_answer(&bytes, kind);
        let mut frame = vec![0; ROOM];
        frame.extend(&bytes);
        let mut buf = PacketBuf::new(&mut frame, ROOM, bytes.len()).unwrap();
        match answer(&mut buf, kind, &Sources::default()) {
            Ok(()) => prop_assert!(buf.len() <= bytes.len() + 48),
            Err(_) => prop_assert_eq!(buf.data(), &bytes),
        }
    }
}

#[test]
fn what_an_error_quotes() {
    let quote = v4([10, 1, 0, 2], [10, 2, 0, 2], Protocol::UDP, b"port");
    let (near, far) = ([10, 1, 0, 2], [10, 9, 0, 1]);
    let message = |kind: u8| [&[kind, 0, 0, 0, 0, 0, 0, 0], &quote[..]].concat();
    for kind in 0..=255 {
        let (icmp, errors) = (v4(far, near, Protocol::ICMP, &message(kind)), [3, 11, 12]);
        assert_eq!(quoted(&icmp), errors.contains(&kind).then_some(&quote[..]), "type {kind}");
        let icmp = v6("2001:db8:9::1", "2001:db8:1::2", Protocol::ICMPV6, &message(kind));
        assert_eq!(quoted(&icmp), (1..=4).contains(&kind).then_some(&quote[..]), "type {kind}");
    }
    for protocol in [Protocol::UDP, Protocol::ICMPV6] {
        assert_eq!(quoted(&v4(far, near, protocol, &message(3))), None);
    }
    assert_eq!(quoted(&v6("::2", "::1", Protocol::ICMP, &message(3))), None);
    assert_eq!(quoted(&v4(far, near, Protocol::ICMP, &message(3)[..7])), None);
    assert_eq!(quoted(&[]), None);
}

#[test]
fn a_fragment_quotes_nothing() {
    let message = [3, 0, 0, 0, 0, 0, 0, 0, 0x45];
    // The datagram whole, as one of several fragments, and as a later one.
    for (place, quotes) in [(0, true), (1, false), (8, false)] {
        let header = [&[Protocol::ICMPV6.0, 0, 0, place, 0, 0, 0, 1], &message[..]].concat();
        let packet = v6("2001:db8:9::1", "2001:db8:1::2", Protocol::FRAGMENT, &header);
        assert_eq!(quoted(&packet).is_some(), quotes, "{place}");
    }
    for place in [[0x20, 0], [0, 1]] {
        let mut packet = v4([10, 9, 0, 1], [10, 1, 0, 2], Protocol::ICMP, &message);
        packet[6..8].copy_from_slice(&place);
        assert_eq!(quoted(&packet), None);
    }
}

proptest! {
    #[test]
    fn any_bytes_quote_safely(mut bytes in prop::collection::vec(any::<u8>(), 0..200), is_v6: bool) {
        if let Some(first) = bytes.first_mut() {
            *first = if is_v6 { 0x60 } else { 0x40 } | *first & 15;
        }
        if let Some(quote) = quoted(&bytes) {
            prop_assert!(quote.len() + ICMP_HEADER <= bytes.len());
        }
    }
}
