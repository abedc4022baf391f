//! Wycheproof's vectors of AES-GCM and ChaCha20-Poly1305 through both libraries.

use crate::common::libraries;
use testudo_crypto::{AeadAlgorithm, AeadKey, Library, NONCE_LEN, SALT_LEN, TAG_LEN};
use wycheproof::TestResult;
use wycheproof::aead::{Test, TestGroup, TestName, TestSet};

/// The parameters that ESP has: everything else in the set is for other nonces, tags or keys.
fn algorithm(name: TestName, group: &TestGroup) -> Option<AeadAlgorithm> {
    match (name, group.key_size, group.nonce_size, group.tag_size) {
        (TestName::AesGcm, 128, 96, 128) => Some(AeadAlgorithm::Aes128Gcm),
        (TestName::AesGcm, 192, 96, 128) => Some(AeadAlgorithm::Aes192Gcm),
        (TestName::AesGcm, 256, 96, 128) => Some(AeadAlgorithm::Aes256Gcm),
        (TestName::ChaCha20Poly1305, 256, 96, 128) => Some(AeadAlgorithm::ChaCha20Poly1305),
        _ => None,
    }
}

fn check(library: Library, algorithm: AeadAlgorithm, test: &Test) {
    let name = format!("{library}, {algorithm:?}, test {} ({})", test.tc_id, test.comment);
    let nonce: [u8; NONCE_LEN] = test.nonce[..].try_into().expect("96 bits");
    let (salt, iv) = nonce.split_first_chunk::<SALT_LEN>().expect("12 octets");
    let iv = iv.try_into().expect("8 octets");
    let tag: [u8; TAG_LEN] = test.tag[..].try_into().expect("128 bits");
    let key = AeadKey::new(library, algorithm, &test.key, *salt).expect(&name);

    let mut text = test.ct.to_vec();
    let authentic = key.open(iv, &test.aad, &mut text, &tag);
    if test.result == TestResult::Invalid {
        assert!(!authentic, "{name}: accepted");
        assert!(text.iter().all(|b| *b == 0), "{name}: plaintext left behind");
        return;
    }
    assert!(authentic, "{name}: refused");
    assert_eq!(text, test.pt[..], "{name}: plaintext");

    let mut sealed_tag = [0; TAG_LEN];
    key.seal(iv, &test.aad, &mut text, &mut sealed_tag);
    assert_eq!(text, test.ct[..], "{name}: ciphertext");
    assert_eq!(sealed_tag, tag, "{name}: tag");
}

fn agrees(name: TestName) {
    let set = TestSet::load(name).expect("the vectors parse");
    let cases = || {
        let groups = set.test_groups.iter().filter_map(|g| Some((algorithm(name, g)?, g)));
        groups.flat_map(|(algorithm, group)| group.tests.iter().map(move |test| (algorithm, test)))
    };
    assert!(cases().count() > 100, "only {} vectors fit: has the set changed?", cases().count());
    assert!(cases().any(|(_, test)| test.result == TestResult::Invalid), "no vector to refuse");
    for library in libraries() {
        cases().for_each(|(algorithm, test)| check(library, algorithm, test));
    }
}

#[test]
fn aes_gcm() {
    agrees(TestName::AesGcm);
}

#[test]
fn chacha20_poly1305() {
    agrees(TestName::ChaCha20Poly1305);
}
