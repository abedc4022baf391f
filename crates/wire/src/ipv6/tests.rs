//! Headers, and the way through extension headers.

use super::*;
use proptest::prelude::*;

const SRC: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
const DST: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 1, 2, 3, 4, 5, 6);

fn packet(next_header: Protocol, payload: &[u8]) -> Vec<u8> {
    let fields = Fields {
        traffic_class: 0xb9,
        payload_len: payload.len() as u16,
        next_header,
        hop_limit: 64,
        src: SRC,
        dst: DST,
    };
    let mut bytes = fields.to_bytes().to_vec();
    bytes.extend(payload);
    bytes
}

/// Extension headers of eight octets, each naming the next.
fn chain(kinds: &[Protocol], upper: Protocol) -> Vec<u8> {
    let next = kinds.iter().skip(1).chain([&upper]);
    let headers: Vec<u8> = next.flat_map(|next| [next.0, 0, 0, 0, 0, 0, 0, 0]).collect();
    let mut bytes = packet(kinds[0], &headers);
    bytes.extend(b"upper");
    let len = (bytes.len() - HEADER) as u16;
    bytes[4..6].copy_from_slice(&len.to_be_bytes());
    bytes
}

#[test]
fn reads_every_field() {
    let mut bytes = packet(Protocol::UDP, b"payload");
    bytes.extend(b"padding");
    let ip = Ipv6::parse(&bytes).unwrap();
    assert_eq!((ip.traffic_class(), ip.hop_limit(), ip.next_header()), (0xb9, 64, Protocol::UDP));
    assert_eq!((ip.src(), ip.dst(), ip.total_len()), (SRC, DST, 47));
    assert_eq!(ip.payload(), b"payload");
    let upper = ip.upper().unwrap();
    assert_eq!(upper, Upper { protocol: Protocol::UDP, payload: &b"payload"[..], fragment: None });
}

#[test]
fn refuses_headers_that_contradict_themselves() {
    let mut bytes = packet(Protocol::UDP, b"payload");
    assert_eq!(Ipv6::parse(&bytes[..39]).unwrap_err(), Error::Truncated { found: 39, expected: 40 });
    assert_eq!(Ipv6::parse(&bytes[..46]).unwrap_err(), Error::Truncated { found: 46, expected: 47 });
    bytes[0] = 0x45;
    assert_eq!(Ipv6::parse(&bytes).unwrap_err(), Error::Version { found: 4, expected: 6 });
}

#[test]
fn walks_to_the_upper_protocol() {
    use Protocol as P;
    let kinds = [P::HOP_BY_HOP, P::DEST_OPTIONS, P::ROUTING, P::FRAGMENT, P::DEST_OPTIONS];
    let bytes = chain(&kinds, P::TCP);
    let upper = Ipv6::parse(&bytes).unwrap().upper().unwrap();
    assert_eq!((upper.protocol, upper.payload), (P::TCP, &b"upper"[..]));
    assert_eq!(upper.fragment, Some(FragmentHeader { offset: 0, more: false, id: 0 }));
    assert!(!upper.is_later_fragment());
}

#[test]
fn a_longer_extension_header_is_skipped_whole() {
    let mut headers = vec![Protocol::UDP.0, 1];
    headers.resize(16, 0);
    headers.extend(b"upper");
    let bytes = packet(Protocol::DEST_OPTIONS, &headers);
    assert_eq!(Ipv6::parse(&bytes).unwrap().upper().unwrap().payload, b"upper");
    let short = packet(Protocol::DEST_OPTIONS, &headers[..15]);
    assert_eq!(Ipv6::parse(&short).unwrap().upper(), Err(Error::Truncated { found: 15, expected: 16 }));
    let none = packet(Protocol::DEST_OPTIONS, &headers[..7]);
    assert_eq!(Ipv6::parse(&none).unwrap().upper(), Err(Error::Truncated { found: 7, expected: 8 }));
}

#[test]
fn stops_at_a_later_fragment() {
    // The following octets look like a truncated extension header, but are the middle of
    // something.
    let bytes = packet(Protocol::FRAGMENT, &[Protocol::DEST_OPTIONS.0, 0, 0x05, 0xc9, 1, 2, 3, 4, 9]);
    let upper = Ipv6::parse(&bytes).unwrap().upper().unwrap();
    assert_eq!(upper.protocol, Protocol::DEST_OPTIONS);
    assert_eq!(upper.fragment, Some(FragmentHeader { offset: 0x5c8, more: true, id: 0x0102_0304 }));
    assert!(upper.is_later_fragment());
}

#[test]
fn refuses_chains_that_no_sane_host_sends() {
    use Protocol as P;
    let upper = |kinds: &[Protocol]| {
        let bytes = chain(kinds, P::UDP);
        Ipv6::parse(&bytes).unwrap().upper().map(|upper| upper.protocol)
    };
    assert_eq!(upper(&[P::DEST_OPTIONS; MAX_EXTENSIONS]), Ok(P::UDP));
    assert_eq!(upper(&[P::DEST_OPTIONS; MAX_EXTENSIONS + 1]), Err(Error::TooManyHeaders));
    assert_eq!(upper(&[P::DEST_OPTIONS, P::HOP_BY_HOP]), Err(Error::Options));
    assert_eq!(upper(&[P::FRAGMENT, P::FRAGMENT]), Err(Error::Options));
}

#[test]
fn setters_change_only_their_field() {
    for value in 0..=255 {
        let mut bytes = packet(Protocol::UDP, b"");
        bytes[1] |= 0x0a;
        bytes[2] = 0xbc;
        let mut header = Ipv6Mut::new(&mut bytes).unwrap();
        header.set_traffic_class(value);
        header.decrement_hop_limit();
        let ip = Ipv6::parse(&bytes).unwrap();
        assert_eq!((ip.traffic_class(), ip.hop_limit()), (value, 63));
        assert_eq!((bytes[0] >> 4, bytes[1] & 15, bytes[2]), (6, 0x0a, 0xbc), "flow label");
    }
    let mut bytes = packet(Protocol::UDP, b"");
    bytes[7] = 0;
    Ipv6Mut::new(&mut bytes).unwrap().decrement_hop_limit();
    assert_eq!(bytes[7], 0);
    assert!(Ipv6Mut::new(&mut bytes[..39]).is_none());
}

proptest! {
    #[test]
    fn any_bytes_are_safe(payload in prop::collection::vec(any::<u8>(), 0..200), start in 0usize..5) {
        let kinds = [Protocol::HOP_BY_HOP, Protocol::ROUTING, Protocol::FRAGMENT, Protocol::DEST_OPTIONS, Protocol::TCP];
        let bytes = packet(kinds[start], &payload);
        let ip = Ipv6::parse(&bytes).unwrap();
        if let Ok(upper) = ip.upper() {
            prop_assert!(payload.ends_with(upper.payload));
            prop_assert!(upper.is_later_fragment() || !upper.protocol.is_extension());
        }
        for len in 0..bytes.len() {
            let cut = Ipv6::parse_cut(&bytes[..len]);
            prop_assert_eq!(cut.is_ok(), len >= HEADER);
            let Ok(found) = cut.and_then(|cut| cut.upper()) else { continue };
            // As far as it goes, it is the same packet.
            if let Ok(upper) = ip.upper() {
                prop_assert_eq!((found.protocol, found.fragment), (upper.protocol, upper.fragment));
                prop_assert!(upper.payload.starts_with(found.payload));
            }
        }
    }
}
