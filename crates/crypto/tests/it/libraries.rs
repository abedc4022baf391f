//! Each library opens what the other seals, bursts have the same results as single calls, and no
//! forgery passes.

use crate::common::{self, libraries};
use proptest::prelude::*;
use testudo_crypto::{
    Aad, AeadAlgorithm, AeadKey, CryptoError, Library, OpenJob, SealJob, TAG_LEN, open_burst, seal_burst,
};

const ALGORITHMS: [AeadAlgorithm; 7] = AeadAlgorithm::ALL;

/// One packet of a burst, independent of any library.
#[derive(Clone, Debug)]
struct Packet {
    algorithm: AeadAlgorithm,
    key: [u8; 32],
    salt: [u8; 4],
    iv: [u8; 8],
    aad: Vec<u8>,
    text: Vec<u8>,
}

impl Packet {
    fn key(&self, library: Library) -> AeadKey {
        let key = &self.key[..self.algorithm.key_len()];
        AeadKey::new(library, self.algorithm, key, self.salt).expect("a key of the right length")
    }
}

proptest! {
    #[test]
    fn a_key_without_a_schedule_does_the_same(packet in packet(300)) {
        for library in Library::ALL.into_iter().filter(|library| library.available().is_ok()) {
            let expanded = packet.key(library);
            let bare = expanded.copy();
            prop_assert!(expanded.is_expanded() && !bare.is_expanded());
            let (mut text, mut tag) = (packet.text.clone(), [0; TAG_LEN]);
            bare.seal(packet.iv, &packet.aad, &mut text, &mut tag);
            prop_assert!(expanded.open(packet.iv, &packet.aad, &mut text.clone(), &tag));
            let mut forged = tag;
            forged[3] ^= 1;
            prop_assert!(!bare.open(packet.iv, &packet.aad, &mut text.clone(), &forged));
            prop_assert!(bare.open(packet.iv, &packet.aad, &mut text, &tag));
            prop_assert_eq!(&text, &packet.text);
            prop_assert!(!bare.is_expanded());
            bare.expand().unwrap();
            prop_assert!(bare.is_expanded() && AeadKey::schedule_len(library) > 0);
            prop_assert!(bare.open(packet.iv, &packet.aad, &mut sealed(&expanded, &packet), &tag));
        }
    }
}

fn sealed(key: &AeadKey, packet: &Packet) -> Vec<u8> {
    let mut text = packet.text.clone();
    key.seal(packet.iv, &packet.aad, &mut text, &mut [0; TAG_LEN]);
    text
}

prop_compose! {
    fn packet(max: usize)(
        algorithm in prop::sample::select(ALGORITHMS.to_vec()),
        key in any::<[u8; 32]>(),
        salt in any::<[u8; 4]>(),
        iv in any::<[u8; 8]>(),
        aad in prop::collection::vec(any::<u8>(), 0..=Aad::MAX),
        text in common::octets(0..=max),
    ) -> Packet {
        Packet { algorithm, key, salt, iv, aad, text }
    }
}

/// Seals with the given library for each packet, in one burst. Returns ciphertexts and tags.
fn seal_all(packets: &[(Packet, Library)]) -> Vec<(Vec<u8>, [u8; TAG_LEN])> {
    let keys: Vec<_> = packets.iter().map(|(p, library)| p.key(*library)).collect();
    let mut out: Vec<_> = packets.iter().map(|(p, _)| (p.text.clone(), [0; TAG_LEN])).collect();
    let mut jobs: Vec<_> = (packets.iter().zip(&keys).zip(&mut out))
        .map(|(((p, _), key), (text, tag))| SealJob {
            key,
            iv: p.iv,
            aad: Aad::new(&p.aad).expect("it fits"),
            text,
            tag,
        })
        .collect();
    seal_burst(&mut jobs);
    out
}

/// Opens in one burst. Returns what each packet turned into and whether it was authentic.
fn open_all(packets: &[(Packet, Library)], sealed: &[(Vec<u8>, [u8; TAG_LEN])]) -> Vec<(Vec<u8>, bool)> {
    let keys: Vec<_> = packets.iter().map(|(p, library)| p.key(*library)).collect();
    let mut texts: Vec<_> = sealed.iter().map(|(text, _)| text.clone()).collect();
    let mut jobs: Vec<_> = (packets.iter().zip(&keys).zip(&mut texts).zip(sealed))
        .map(|((((p, _), key), text), (_, tag))| OpenJob {
            key,
            iv: p.iv,
            aad: Aad::new(&p.aad).expect("it fits"),
            text,
            tag,
            ok: false,
        })
        .collect();
    open_burst(&mut jobs);
    let verdicts: Vec<_> = jobs.iter().map(|job| job.ok).collect();
    texts.into_iter().zip(verdicts).collect()
}

fn other(library: Library) -> Library {
    let libraries = libraries();
    *libraries.iter().find(|l| **l != library).unwrap_or(&library)
}

/// Flips one bit of what the tag protects: the packet, its data, its IV or the tag itself.
fn tamper(packet: &mut Packet, sealed: &mut (Vec<u8>, [u8; TAG_LEN]), bit: usize) {
    let (text, tag) = sealed;
    let parts: [&mut [u8]; 4] = [text, tag, &mut packet.aad, &mut packet.iv];
    let octets: usize = parts.iter().map(|part| part.len()).sum();
    let (octet, bit) = (bit / 8 % octets, bit % 8);
    let target = parts.into_iter().flatten().nth(octet).expect("within the parts");
    *target ^= 1 << bit;
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn libraries_agree_on_mixed_bursts(packets in prop::collection::vec((packet(9000), any::<bool>()), 1..=16)) {
        let libraries = libraries();
        let sealers: Vec<_> = packets.into_iter()
            .map(|(p, first)| (p, if first { libraries[0] } else { libraries[libraries.len() - 1] }))
            .collect();
        let openers: Vec<_> = sealers.iter().map(|(p, library)| (p.clone(), other(*library))).collect();

        let sealed = seal_all(&sealers);
        prop_assert_eq!(&sealed, &seal_all(&openers), "the libraries seal differently");
        for ((text, ok), (packet, _)) in open_all(&openers, &sealed).into_iter().zip(&sealers) {
            prop_assert!(ok);
            prop_assert_eq!(&text, &packet.text);
        }
    }

    #[test]
    fn tampered_packets_are_refused_and_wiped_alone(
        packets in prop::collection::vec(packet(300), 2..=8),
        victim in any::<prop::sample::Index>(),
        bit in any::<usize>(),
    ) {
        for library in libraries() {
            let mut packets: Vec<_> = packets.iter().map(|p| (p.clone(), library)).collect();
            let mut sealed = seal_all(&packets);
            let victim = victim.index(packets.len());
            tamper(&mut packets[victim].0, &mut sealed[victim], bit);
            for (i, (text, ok)) in open_all(&packets, &sealed).into_iter().enumerate() {
                prop_assert_eq!(ok, i != victim);
                let expected = if ok { packets[i].0.text.clone() } else { vec![0; text.len()] };
                prop_assert_eq!(text, expected);
            }
        }
    }
}

/// Every length up to a few times the widest kernel's stride, and the neighbourhood of larger
/// strides.
#[test]
fn libraries_agree_on_every_length() {
    let packet = |algorithm, len: usize| Packet {
        algorithm,
        key: std::array::from_fn(|i| i as u8),
        salt: [1, 2, 3, 4],
        iv: len.to_be_bytes(),
        aad: (0..12).collect(),
        text: (0..len).map(|i| (i * 7) as u8).collect(),
    };
    let lengths = (0..1100).chain((1..=9).flat_map(|k| k * 1024 - 3..k * 1024 + 3));
    for len in lengths {
        for algorithm in ALGORITHMS {
            let sealed: Vec<_> =
                libraries().into_iter().map(|l| seal_all(&[(packet(algorithm, len), l)])).collect();
            assert!(sealed.windows(2).all(|pair| pair[0] == pair[1]), "{algorithm:?}, {len} octets");
        }
    }
}

#[test]
fn every_bit_of_a_tag_counts() {
    for library in libraries() {
        let packet = Packet {
            algorithm: AeadAlgorithm::Aes128Gcm,
            key: [7; 32],
            salt: [8; 4],
            iv: [9; 8],
            aad: vec![1; 8],
            text: vec![0x5A; 40],
        };
        let sealed = seal_all(&[(packet.clone(), library)]);
        for bit in 0..TAG_LEN * 8 {
            let mut forged = sealed.clone();
            forged[0].1[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(
                open_all(&[(packet.clone(), library)], &forged),
                [(vec![0; 40], false)],
                "{library}, bit {bit}"
            );
        }
    }
}

/// A schedule is only read: threads that share a key do not disturb one another.
#[test]
fn one_key_serves_many_threads() {
    for library in libraries() {
        let key = AeadKey::new(library, AeadAlgorithm::Aes256Gcm, &[3; 32], [4; 4]).expect("a good key");
        let work = |thread: u64| {
            for n in 0..2000u64 {
                let (iv, aad) = ((thread << 32 | n).to_be_bytes(), [thread as u8; 12]);
                let (mut text, mut tag) = ([n as u8; 200], [0; TAG_LEN]);
                key.seal(iv, &aad, &mut text, &mut tag);
                assert!(key.open(iv, &aad, &mut text, &tag));
                assert_eq!(text, [n as u8; 200]);
            }
        };
        std::thread::scope(|scope| (0..4).for_each(|t| drop(scope.spawn(move || work(t)))));
    }
}

#[test]
fn keys_of_the_wrong_length_are_refused() {
    for library in libraries() {
        for algorithm in ALGORITHMS {
            for len in (0..=40).filter(|len| *len != algorithm.key_len()) {
                let refused =
                    AeadKey::new(library, algorithm, &vec![0; len], [0; 4]).expect_err("a wrong length");
                assert_eq!(refused, CryptoError::KeyLength { found: len, expected: algorithm.key_len() });
            }
        }
    }
}

#[test]
fn esp_data_is_spi_and_sequence_number() {
    assert_eq!(Aad::esp(0x0102_0304, 0x0506_0708).as_bytes(), [1, 2, 3, 4, 5, 6, 7, 8]);
    let esn = Aad::esp_esn(0x0102_0304, 0x0506_0708_090A_0B0C);
    assert_eq!(esn.as_bytes(), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
    assert_eq!(Aad::new(&[0; 21]), Err(CryptoError::AadLength { found: 21, limit: 20 }));
}

#[test]
#[cfg(target_arch = "x86_64")]
fn the_time_stamp_counter_advances() {
    let before = testudo_crypto::cycles::now().expect("x86-64 has one");
    std::thread::sleep(std::time::Duration::from_millis(1));
    assert!(testudo_crypto::cycles::now().expect("x86-64 has one") > before);
}

#[test]
fn jobs_fit_a_cache_line() {
    assert!(size_of::<SealJob<'_>>() <= 64);
}

#[test]
fn the_preferred_library_is_detected_and_named() {
    assert_eq!(Library::detect(), libraries()[0]);
    for library in Library::ALL {
        assert_eq!(library.name().parse(), Ok(library));
    }
    let unknown = CryptoError::UnknownLibrary { found: "openssl".into() };
    assert_eq!("openssl".parse::<Library>(), Err(unknown));
}

#[test]
fn keys_show_nothing_of_themselves() {
    for library in libraries() {
        let key =
            AeadKey::new(library, AeadAlgorithm::Aes128Gcm, &[0xAB; 16], [0xCD; 4]).expect("a good key");
        assert_eq!(format!("{key:?}"), format!("AeadKey(Aes128Gcm, {library})"));
    }
}

/// GMAC is GCM of no text, with header, IV and text as what is only authenticated (RFC 4543 §3.3).
#[test]
fn gmac_is_gcm_of_no_text() {
    let pairs = [
        (AeadAlgorithm::Aes128Gmac, AeadAlgorithm::Aes128Gcm),
        (AeadAlgorithm::Aes192Gmac, AeadAlgorithm::Aes192Gcm),
        (AeadAlgorithm::Aes256Gmac, AeadAlgorithm::Aes256Gcm),
    ];
    for library in libraries() {
        for (gmac, gcm) in pairs {
            let key: Vec<u8> = (0..gmac.key_len() as u8).collect();
            let [gmac, gcm] =
                [gmac, gcm].map(|algorithm| AeadKey::new(library, algorithm, &key, [7; 4]).unwrap());
            for len in (0..70).chain([1420, 8900]) {
                let (iv, header, text) = ([9; 8], [3; 12], vec![len as u8; len]);
                for header in [&header[..8], &header] {
                    let whole = [header, &iv, &text].concat();
                    let (mut expected, mut found, mut unchanged) = ([0; TAG_LEN], [0; TAG_LEN], text.clone());
                    gcm.seal(iv, &whole, &mut [], &mut expected);
                    gmac.seal(iv, header, &mut unchanged, &mut found);
                    assert_eq!((found, &unchanged), (expected, &text), "{library}, {len} octets");
                    assert!(gmac.open(iv, header, &mut unchanged, &expected) && unchanged == text);
                }
            }
        }
    }
}
