//! ML-KEM (FIPS 203): Wycheproof for keys, ciphertexts and secrets, and what must be refused.

use crate::support::entropy::Script;
use testudo_ike::config::KeyExchange;
use testudo_ike::message::{KeMethod, KePayload};
use testudo_ike::suite::{KePrivate, SuiteError, respond};
use wycheproof::TestResult;
use wycheproof::mlkem::{Test, TestName, TestSet};

/// Method, octets of an encapsulation key and of a ciphertext, and Wycheproof's names of its tests.
const SETS: [(KeyExchange, usize, usize, [TestName; 3]); 3] = [
    (
        KeyExchange::MlKem512,
        800,
        768,
        [TestName::MlKem512KeyGenSeed, TestName::MlKem512Encaps, TestName::MlKem512],
    ),
    (
        KeyExchange::MlKem768,
        1184,
        1088,
        [TestName::MlKem768KeyGenSeed, TestName::MlKem768Encaps, TestName::MlKem768],
    ),
    (
        KeyExchange::MlKem1024,
        1568,
        1568,
        [TestName::MlKem1024KeyGenSeed, TestName::MlKem1024Encaps, TestName::MlKem1024],
    ),
];

fn tests(name: TestName) -> Vec<Test> {
    TestSet::load(name).unwrap().test_groups.into_iter().flat_map(|group| group.tests).collect()
}

fn ke(method: KeyExchange, data: &[u8]) -> KePayload {
    KePayload { method: method.into(), data: data.to_vec() }
}

fn octets(field: &Option<impl AsRef<[u8]>>) -> &[u8] {
    field.as_ref().map(AsRef::as_ref).unwrap_or_default()
}

#[test]
fn keys_agree_with_wycheproof() {
    for (method, length, _, [name, ..]) in SETS {
        let mut compared = 0;
        for test in tests(name) {
            let key = KePrivate::generate(method, &mut Script(octets(&test.seed).to_vec())).unwrap();
            assert_eq!(key.payload(), ke(method, octets(&test.encaps_key)), "test {}", test.tc_id);
            assert_eq!(key.payload().data.len(), length);
            compared += 1;
        }
        assert!(compared > 20, "only {compared} tests for {method:?}");
    }
}

#[test]
fn ciphertexts_agree_with_wycheproof() {
    for (method, _, length, [_, name, _]) in SETS {
        let (mut compared, mut refused) = (0, 0);
        for test in tests(name) {
            let script = &mut Script(octets(&test.msg).to_vec());
            let found = respond(method, &ke(method, octets(&test.encaps_key)), script);
            if test.result == TestResult::Invalid {
                // A coefficient that is not below the modulus, or another length.
                assert!(found.is_err(), "test {} ({}) was accepted", test.tc_id, test.comment);
                refused += 1;
                continue;
            }
            let (answer, shared) = found.unwrap_or_else(|error| panic!("test {}: {error}", test.tc_id));
            assert_eq!(answer, ke(method, octets(&test.ct)), "test {}", test.tc_id);
            assert_eq!(answer.data.len(), length);
            assert_eq!(shared.expose(), octets(&test.shared_secret), "test {}", test.tc_id);
            compared += 1;
        }
        assert!(compared > 20 && refused > 20, "only {compared} and {refused} tests for {method:?}");
    }
}

#[test]
fn secrets_agree_with_wycheproof() {
    for (method, _, length, [_, _, name]) in SETS {
        let (mut compared, mut refused) = (0, 0);
        for test in tests(name) {
            // Seeds of another length cannot occur here: we draw them ourselves.
            let seed = octets(&test.seed);
            if seed.len() != 64 {
                continue;
            }
            let key = KePrivate::generate(method, &mut Script(seed.to_vec())).unwrap();
            let found = key.agree(&ke(method, octets(&test.ct)));
            if test.result == TestResult::Invalid {
                assert_ne!(octets(&test.ct).len(), length, "test {}", test.tc_id);
                assert!(found.is_err(), "test {} ({}) was accepted", test.tc_id, test.comment);
                refused += 1;
                continue;
            }
            let found = found.unwrap_or_else(|error| panic!("test {}: {error}", test.tc_id));
            assert_eq!(found.expose(), octets(&test.shared_secret), "test {}", test.tc_id);
            compared += 1;
        }
        assert!(compared > 20 && refused > 0, "only {compared} and {refused} tests for {method:?}");
    }
}

#[test]
fn keys_that_were_stored_agree_like_fresh_ones() {
    for (method, ..) in SETS {
        let key = KePrivate::generate(method, &mut Script((1..=64).collect())).unwrap();
        let stored = postcard::to_allocvec(&key).unwrap();
        let restored: KePrivate = postcard::from_bytes(&stored).unwrap();
        assert_eq!(restored, key);
        let (answer, shared) =
            respond(method, &restored.payload(), &mut Script((65..=96).collect())).unwrap();
        assert_eq!(restored.agree(&answer).unwrap(), shared);
        assert_eq!(key.agree(&answer).unwrap(), shared);
    }
}

#[test]
fn values_of_another_method_or_length_and_keys_above_the_modulus_are_refused() {
    let script = || Script(vec![7]);
    for (method, key_length, answer_length, _) in SETS {
        let key = KePrivate::generate(method, &mut script()).unwrap();
        let name = KeMethod::from(method);
        for found in [0, 31, key_length - 1, key_length + 1] {
            let expected = Err(SuiteError::KeLength { method: name, found, expected: key_length });
            assert_eq!(respond(method, &ke(method, &vec![0; found]), &mut script()), expected);
        }
        for found in [0, answer_length - 1, answer_length + 1] {
            let expected = Err(SuiteError::KeLength { method: name, found, expected: answer_length });
            assert_eq!(key.agree(&ke(method, &vec![0; found])), expected);
        }
        let x25519 = ke(KeyExchange::X25519, &vec![9; key_length]);
        let expected = SuiteError::KeMethod { found: KeMethod::X25519, expected: name };
        assert_eq!(respond(method, &x25519, &mut script()), Err(expected.clone()));
        assert_eq!(key.agree(&x25519), Err(expected));
        // Twelve ones are 4095, and the modulus is 3329.
        let mut above = key.payload();
        above.data[..2].fill(0xff);
        assert_eq!(respond(method, &above, &mut script()), Err(SuiteError::KePublic(name)));
    }
}

/// FIPS 203 §6.3: implicit rejection.
#[test]
fn a_changed_ciphertext_gives_another_secret_and_always_the_same() {
    for (method, ..) in SETS {
        let key = KePrivate::generate(method, &mut Script((1..=64).collect())).unwrap();
        let (mut answer, shared) = respond(method, &key.payload(), &mut Script(vec![3])).unwrap();
        answer.data[17] ^= 1;
        let found = key.agree(&answer).unwrap();
        assert_ne!(found, shared);
        assert_eq!(key.agree(&answer).unwrap(), found);
    }
}
