use super::*;
use proptest::prelude::*;

fn covered(packet: &[u8], at: usize, icv: usize) -> Result<Vec<u8>, Error> {
    let mut all = Vec::new();
    cover(packet, at, icv, |piece| all.extend_from_slice(piece)).map(|()| all)
}

fn octets(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

/// A packet, where AH stands in it, the octets of its ICV, and what another implementation (scapy
/// 2.5) takes the ICV over.
type Vector = (&'static str, usize, usize, &'static str);

const VECTORS: [Vector; 5] = [
    (
        "45b90033424240003f337499c0000201c0000202 fd040000112233440000000701020304 05060708090a0b0c 7061796c6f6164",
        20,
        12,
        "4500003342420000003300 00c0000201c0000202 fd040000112233440000000700000000 0000000000000000 7061796c6f6164",
    ),
    // Router alert stays, a record of the route does not.
    (
        "48000043000100003f335577c0000201c0000202 9404000007070400000000 01 fd050000112233440000000701020304
         05060708090a0b0c0d0e0f10 7061796c6f6164",
        32,
        16,
        "4800004300010000003300 00c0000201c0000202 9404000000000000000000 01 fd050000112233440000000700000000
         000000000000000000000000 7061796c6f6164",
    ),
    (
        "6b912345001f333f20010db800000000000000000000000120010db8000000000000000000000002 fd040000112233440000
         00070102030405060708090a0b0c 7061796c6f6164",
        40,
        12,
        "60000000001f330020010db800000000000000000000000120010db8000000000000000000000002 fd040000112233440000
         0007000000000000000000000000 7061796c6f6164",
    ),
    // Of two options in a header, one changes on the way.
    (
        "601000000037003f20010db800000000000000000000000120010db8000000000000000000000002 3c013e0401020304
         1e05050607080900 33001e0401020304 fd04000011223344000000070102030405060708090a0b0c 7061796c6f6164",
        64,
        12,
        "600000000037000020010db800000000000000000000000120010db8000000000000000000000002 3c013e0400000000
         1e05050607080900 33001e0401020304 fd0400001122334400000007000000000000000000000000 7061796c6f6164",
    ),
    // As it leaves, three hops before its end.
    (
        "6000000000572b3f20010db800000000000000000000000120010db8000000000000000000000002 3306000300000000
         20010db8000000000000000000000003 20010db8000000000000000000000004 20010db8000000000000000000000005
         fd04000011223344000000070102030405060708090a0b0c 7061796c6f6164",
        96,
        12,
        "6000000000572b0020010db800000000000000000000000120010db8000000000000000000000005 3306000000000000
         20010db8000000000000000000000002 20010db8000000000000000000000003 20010db8000000000000000000000004
         fd0400001122334400000007000000000000000000000000 7061796c6f6164",
    ),
];

#[test]
fn covers_what_another_implementation_covers() {
    for (packet, at, icv, expected) in VECTORS {
        assert_eq!(covered(&octets(packet), at, icv), Ok(octets(expected)), "{packet}");
    }
}

/// RFC 2460 §4.4, hop by hop: all see the same.
#[test]
fn a_route_covers_the_same_at_every_hop() {
    let (packet, at, icv, expected) = VECTORS[4];
    let mut packet = octets(packet);
    for left in (0..3).rev() {
        let next = 48 + 16 * (2 - left);
        let (dst, address): (Vec<u8>, Vec<u8>) = (packet[24..40].to_vec(), packet[next..next + 16].to_vec());
        packet[24..40].copy_from_slice(&address);
        packet[next..next + 16].copy_from_slice(&dst);
        packet[43] = left as u8;
        packet[7] -= 1;
        assert_eq!(covered(&packet, at, icv), Ok(octets(expected)), "{left} left");
    }
}

#[test]
fn headers_are_read_as_written() {
    for (icv, v6, len) in [(12, false, 24), (12, true, 24), (16, false, 28), (16, true, 32), (24, true, 40)] {
        assert_eq!(header_len(icv, v6), len);
        let mut bytes = vec![0xee; len + 5];
        assert!(write(&mut bytes[..len], Protocol::TCP, 0x1122_3344, 7));
        let ah = Ah::parse(&bytes).unwrap();
        assert_eq!((ah.next, ah.spi, ah.sequence), (Protocol::TCP, 0x1122_3344, 7));
        assert_eq!((ah.icv, ah.payload), (&vec![0; len - HEADER][..], &[0xee; 5][..]));
        assert!(Ah::parse(&bytes[..len - 1]).is_err());
    }
    for len in [0, 11, 13, 1032] {
        let mut bytes = vec![0xee; len];
        assert!(!write(&mut bytes, Protocol::TCP, 1, 1) && bytes.iter().all(|octet| *octet == 0xee), "{len}");
    }
    assert_eq!(
        Ah::parse(&[6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        Err(Error::Length { found: 8, expected: 12 })
    );
}

#[test]
fn unpredictable_headers_are_refused() {
    let edit = |vector: usize, change: fn(&mut Vec<u8>)| {
        let (packet, at, icv, _) = VECTORS[vector];
        let mut packet = octets(packet);
        change(&mut packet);
        covered(&packet, at, icv)
    };
    // A source route that does not end here; one that does.
    assert_eq!(edit(1, |p| p[24..31].copy_from_slice(&[131, 7, 4, 192, 0, 2, 9])), Err(Error::Options));
    assert!(edit(1, |p| p[24..31].copy_from_slice(&[137, 7, 8, 192, 0, 2, 9])).is_ok());
    // Another type of routing header, one that counts more hops than it has, a fragment header.
    assert_eq!(edit(4, |p| p[42] = 4), Err(Error::Options));
    assert_eq!(edit(4, |p| p[43] = 4), Err(Error::Options));
    assert_eq!(edit(3, |p| (p[40], p[57]) = (44, 0)), Err(Error::Options));
    // An option that runs past its header, an ICV longer than the header has room for, AH
    // elsewhere.
    assert_eq!(edit(3, |p| p[49] = 7), Err(Error::Options));
    let (packet, at, icv, _) = VECTORS[0];
    let packet = octets(packet);
    assert_eq!(covered(&packet, at, icv + 4), Err(Error::Length { found: 12, expected: 16 }));
    assert!(covered(&packet, at + 4, icv).is_err() && covered(&packet, 0, icv).is_err());
}

/// Octets of each vector, with the bits that routers change.
fn mutable(packet: &[u8], at: usize) -> Vec<(usize, u8)> {
    let icv = (at + HEADER..packet.len() - 7).map(|place| (place, 0xff));
    match packet[0] >> 4 {
        4 => [(1, 0xff), (6, 0xff), (7, 0xff), (8, 0xff), (10, 0xff), (11, 0xff)]
            .into_iter()
            .chain(icv)
            .collect(),
        _ => [(0, 0x0f), (1, 0xff), (2, 0xff), (3, 0xff), (7, 0xff)].into_iter().chain(icv).collect(),
    }
}

proptest! {
    /// A bit changes what is covered if and only if routers leave it alone.
    #[test]
    fn every_bit_counts_or_does_not(vector in prop::sample::select(vec![0usize, 2]), place: prop::sample::Index, bit in 0u8..8) {
        let (packet, at, icv, expected) = VECTORS[vector];
        let mut packet = octets(packet);
        let place = place.index(packet.len());
        packet[place] ^= 1 << bit;
        let is_mutable = mutable(&packet, at).iter().any(|(at, bits)| *at == place && bits & 1 << bit != 0);
        let same = covered(&packet, at, icv) == Ok(octets(expected));
        prop_assert_eq!(same, is_mutable, "octet {}, bit {}", place, bit);
    }

    #[test]
    fn any_bytes_are_safe(mut bytes in prop::collection::vec(any::<u8>(), 0..300), v6: bool, at in 0usize..120, icv in 0usize..80) {
        if let Some(first) = bytes.first_mut() {
            *first = if v6 { 0x60 } else { 0x40 | *first & 15 };
        }
        let total = bytes.len() as u16;
        if v6 && bytes.len() >= 40 {
            bytes[4..6].copy_from_slice(&(total - 40).to_be_bytes());
        } else if bytes.len() >= 20 {
            bytes[2..4].copy_from_slice(&total.to_be_bytes());
        }
        if let Ok(all) = covered(&bytes, at, icv) {
            prop_assert_eq!(all.len(), bytes.len());
        }
        if let Ok(ah) = Ah::parse(&bytes) {
            prop_assert_eq!(HEADER + ah.icv.len() + ah.payload.len(), bytes.len());
        }
    }
}
