//! Every suite of IKE with Debian's strongSwan, both sides initiating in turn.

use crate::common::{Pair, SOON, Scenario};
use testudo_lab::gateway::Kind;
use testudo_lab::swanctl::IkeSa;
use testudo_lab::swanctl_conf::Connection;
use testudo_lab::topology::{Family, Side};

/// A proposal, and what `--list-sas` calls cipher, key size, integrity algorithm, PRF and key
/// exchange.
type Suite = (&'static str, [Option<&'static str>; 5]);

const fn aead(
    cipher: &'static str,
    bits: &'static str,
    prf: &'static str,
    ke: &'static str,
) -> [Option<&'static str>; 5] {
    [Some(cipher), Some(bits), None, Some(prf), Some(ke)]
}

const SUITES: [Suite; 9] = [
    (
        "aes128-sha256-prfsha256-modp2048",
        [
            Some("AES_CBC"),
            Some("128"),
            Some("HMAC_SHA2_256_128"),
            Some("PRF_HMAC_SHA2_256"),
            Some("MODP_2048"),
        ],
    ),
    (
        "aes192-sha384-modp3072",
        [
            Some("AES_CBC"),
            Some("192"),
            Some("HMAC_SHA2_384_192"),
            Some("PRF_HMAC_SHA2_384"),
            Some("MODP_3072"),
        ],
    ),
    (
        "aes256-sha512-modp4096",
        [
            Some("AES_CBC"),
            Some("256"),
            Some("HMAC_SHA2_512_256"),
            Some("PRF_HMAC_SHA2_512"),
            Some("MODP_4096"),
        ],
    ),
    (
        "aes256-sha256-prfaesxcbc-x25519",
        [
            Some("AES_CBC"),
            Some("256"),
            Some("HMAC_SHA2_256_128"),
            Some("PRF_AES128_XCBC"),
            Some("CURVE_25519"),
        ],
    ),
    ("aes128ccm16-prfaesxcbc-ecp384", aead("AES_CCM_16", "128", "PRF_AES128_XCBC", "ECP_384")),
    ("aes192ccm16-prfsha512-ecp521", aead("AES_CCM_16", "192", "PRF_HMAC_SHA2_512", "ECP_521")),
    ("aes256ccm16-prfsha256-ecp256", aead("AES_CCM_16", "256", "PRF_HMAC_SHA2_256", "ECP_256")),
    ("aes192gcm16-prfsha384-ecp384", aead("AES_GCM_16", "192", "PRF_HMAC_SHA2_384", "ECP_384")),
    (
        "chacha20poly1305-prfsha512-x25519",
        [Some("CHACHA20_POLY1305"), None, None, Some("PRF_HMAC_SHA2_512"), Some("CURVE_25519")],
    ),
];

#[test]
fn every_suite_in_both_roles() {
    let pair = Scenario::new("suites", Kind::Strongswan).start_empty();
    // Which of the defaults is chosen is the responder's to say.
    come_and_go(&pair, "default", Side::One, |_| {});
    for (index, (proposals, expected)) in SUITES.into_iter().enumerate() {
        let first = if index % 2 == 0 { Side::One } else { Side::Two };
        come_and_go(&pair, proposals, first, |sa| {
            let keys = ["encr-alg", "encr-keysize", "integ-alg", "prf-alg", "dh-group"];
            assert_eq!(keys.map(|key| sa.get(key)), expected, "{proposals}");
        });
    }
}

/// Algorithms that RFC 8247 discourages, if an operator insists.
const LEGACY: [Suite; 2] = [
    (
        "aes128-sha1-modp1024",
        [Some("AES_CBC"), Some("128"), Some("HMAC_SHA1_96"), Some("PRF_HMAC_SHA1"), Some("MODP_1024")],
    ),
    ("aes128gcm16-prfsha1-modp1536", aead("AES_GCM_16", "128", "PRF_HMAC_SHA1", "MODP_1536")),
];

#[test]
fn weak_suites_are_for_those_who_ask_for_them() {
    let modern = Scenario::new("modern", Kind::Testudo).start_empty();
    let mut connection = Connection::of(Side::One, Family::V4);
    connection.proposals = LEGACY[0].0.into();
    let refused = modern.swanctl(Side::One).load(&connection.to_string()).unwrap_err().to_string();
    assert!(refused.contains("\"sha1\" is refused as weak"), "{refused}");
    drop(modern);
    let pair = Scenario::new("legacy", Kind::Strongswan).settings("legacy = true").start_empty();
    for (proposals, expected) in LEGACY {
        come_and_go(&pair, proposals, Side::Two, |sa| {
            let keys = ["encr-alg", "encr-keysize", "integ-alg", "prf-alg", "dh-group"];
            assert_eq!(keys.map(|key| sa.get(key)), expected, "{proposals}");
        });
    }
}

/// Each side initiates and deletes once.
fn come_and_go(pair: &Pair, proposals: &str, first: Side, check: impl Fn(&IkeSa)) {
    for side in [Side::One, Side::Two] {
        let mut connection = Connection::of(side, Family::V4);
        connection.proposals = proposals.into();
        pair.swanctl(side).load(&connection.to_string()).unwrap();
    }
    for initiator in [first, first.other()] {
        pair.up(initiator);
        for side in [Side::One, Side::Two] {
            check(&pair.sas(side)[0]);
        }
        pair.ping_from(initiator, Family::V4, 56);
        // The delete is sealed with the suite, too.
        pair.swanctl(initiator).terminate("lab").unwrap();
        for side in [Side::One, Side::Two] {
            pair.await_sas(side, 0, SOON);
        }
    }
}
