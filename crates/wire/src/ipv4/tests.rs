//! Headers: what is refused, and that setters keep the checksum.

use super::*;
use proptest::prelude::*;

fn packet(options: &[u8], payload: &[u8]) -> Vec<u8> {
    assert!(options.len().is_multiple_of(4));
    let total_len = (HEADER + options.len() + payload.len()) as u16;
    let fields = Fields {
        tos: 0xb9,
        total_len,
        id: 0x1234,
        df: true,
        ttl: 64,
        protocol: Protocol::UDP,
        src: Ipv4Addr::new(192, 0, 2, 1),
        dst: Ipv4Addr::new(198, 51, 100, 2),
    };
    let mut bytes = fields.to_bytes().to_vec();
    bytes[0] = 0x40 | ((HEADER + options.len()) / 4) as u8;
    bytes.extend(options);
    fill_checksum(&mut bytes);
    bytes.extend(payload);
    bytes
}

fn fill_checksum(header: &mut [u8]) {
    header[10..12].fill(0);
    let checksum = Sum::new().bytes(header).finish();
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
}

#[test]
fn the_checksum_of_a_known_header() {
    // A header as a Linux host sent it: the checksum was written by another implementation.
    let bytes = [
        0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0xb8, 0x61, 0xc0, 0xa8, 0x00, 0x01, 0xc0,
        0xa8, 0x00, 0xc7,
    ];
    let fields = Fields {
        tos: 0,
        total_len: 0x73,
        id: 0,
        df: true,
        ttl: 64,
        protocol: Protocol::UDP,
        src: Ipv4Addr::new(192, 168, 0, 1),
        dst: Ipv4Addr::new(192, 168, 0, 199),
    };
    assert_eq!(fields.to_bytes(), bytes);
}

#[test]
fn reads_every_field() {
    let mut bytes = packet(&[1, 1, 1, 0], b"payload");
    bytes.extend(b"Ethernet padding");
    let ip = Ipv4::parse_verified(&bytes).unwrap();
    assert_eq!((ip.tos(), ip.id(), ip.ttl(), ip.protocol()), (0xb9, 0x1234, 64, Protocol::UDP));
    assert_eq!((ip.df(), ip.mf(), ip.is_fragment(), ip.fragment_offset()), (true, false, false, 0));
    assert_eq!((ip.header_len(), ip.total_len()), (24, 31));
    assert_eq!(ip.src(), Ipv4Addr::new(192, 0, 2, 1));
    assert_eq!(ip.dst(), Ipv4Addr::new(198, 51, 100, 2));
    assert_eq!((ip.options(), ip.payload()), (&[1, 1, 1, 0][..], &b"payload"[..]));
    assert!(is_df(&bytes));
}

#[test]
fn reads_fragments() {
    let mut bytes = packet(&[], b"payload");
    bytes[6..8].copy_from_slice(&(MF | 185).to_be_bytes());
    let ip = Ipv4::parse(&bytes).unwrap();
    assert_eq!((ip.df(), ip.mf(), ip.is_fragment(), ip.fragment_offset()), (false, true, true, 1480));
    bytes[6..8].copy_from_slice(&MF.to_be_bytes());
    assert!(Ipv4::parse(&bytes).unwrap().is_fragment(), "the first one too");
    assert!(!is_df(&bytes));
}

#[test]
fn refuses_headers_that_contradict_themselves() {
    let refused = |at: usize, value: &[u8]| {
        let mut bytes = packet(&[], b"payload");
        bytes[at..at + value.len()].copy_from_slice(value);
        Ipv4::parse(&bytes).unwrap_err()
    };
    assert_eq!(refused(0, &[0x65]), Error::Version { found: 6, expected: 4 });
    assert_eq!(refused(0, &[0x44]), Error::Length { found: 16, expected: 20 });
    assert_eq!(refused(0, &[0x47]), Error::Length { found: 27, expected: 28 });
    assert_eq!(refused(2, &[0, 19]), Error::Length { found: 19, expected: 20 });
    assert_eq!(refused(2, &[0, 28]), Error::Truncated { found: 27, expected: 28 });
    assert_eq!(Ipv4::parse(&[0x45; 19]).unwrap_err(), Error::Truncated { found: 19, expected: 20 });
}

#[test]
fn refuses_options_that_run_out() {
    for options in [[7, 0, 0, 0], [7, 1, 0, 0], [7, 5, 0, 0], [1, 1, 1, 7]] {
        assert_eq!(Ipv4::parse(&packet(&options, b"")).unwrap_err(), Error::Options, "{options:?}");
    }
    for options in [[7, 4, 0, 0], [1, 7, 3, 0], [0, 7, 0, 0], [7, 2, 7, 2]] {
        assert!(Ipv4::parse(&packet(&options, b"")).is_ok(), "{options:?}");
    }
}

#[test]
fn refuses_a_wrong_checksum() {
    let mut bytes = packet(&[1, 1, 1, 0], b"payload");
    for at in 0..24 {
        // Octets whose change is refused before the checksum is looked at are no matter here.
        for flip in [1, 0x80] {
            bytes[at] ^= flip;
            assert!(Ipv4::parse_verified(&bytes).is_err(), "octet {at}");
            bytes[at] ^= flip;
        }
    }
    assert!(Ipv4::parse_verified(&bytes).is_ok());
}

#[test]
fn setters_keep_the_checksum() {
    for value in 0..=255 {
        let mut bytes = packet(&[], b"");
        let mut header = Ipv4Mut::new(&mut bytes).unwrap();
        header.set_tos(value);
        header.set_ttl(value);
        let ip = Ipv4::parse_verified(&bytes).unwrap();
        assert_eq!((ip.tos(), ip.ttl(), ip.protocol()), (value, value, Protocol::UDP));
        Ipv4Mut::new(&mut bytes).unwrap().decrement_ttl();
        assert_eq!(Ipv4::parse_verified(&bytes).unwrap().ttl(), value.saturating_sub(1));
    }
    assert!(Ipv4Mut::new(&mut [0x45; 19]).is_none());
}

proptest! {
    #[test]
    fn any_bytes_are_safe(mut bytes in prop::collection::vec(any::<u8>(), 0..120)) {
        if let Some(first) = bytes.first_mut() {
            *first = 0x40 | *first & 15;
        }
        if let Ok(cut) = Ipv4::parse_cut(&bytes) {
            prop_assert!(cut.total_len() <= bytes.len());
            prop_assert!(cut.total_len() == bytes.len() || Ipv4::parse(&bytes).is_ok());
        }
        if let Ok(ip) = Ipv4::parse(&bytes) {
            prop_assert_eq!(Ipv4::parse_cut(&bytes).unwrap().payload(), ip.payload());
            prop_assert!(ip.total_len() <= bytes.len());
            prop_assert_eq!(ip.header_len() + ip.payload().len(), ip.total_len());
        }
    }
}
