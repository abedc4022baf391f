//! Every suite of ESP with Debian's strongSwan, whose libipsec has no extended sequence numbers,
//! and with ourselves.

use crate::common::{Pair, SOON, Scenario, Watch};
use std::time::Duration;
use testudo_lab::gateway::Kind;
use testudo_lab::ping::Ping;
use testudo_lab::swanctl_conf::Connection;
use testudo_lab::topology::{Family, Side};

const SIDES: [Side; 2] = [Side::One, Side::Two];

/// A size that leaves room for any suite, in UDP too: hosts fragment larger packets.
pub(crate) const INNER_MTU: u16 = 1400;

/// A proposal, and what `--list-sas` calls cipher, key size and integrity algorithm.
pub(crate) type Suite = (&'static str, [Option<&'static str>; 3]);

const fn cbc(bits: &'static str, mac: &'static str) -> [Option<&'static str>; 3] {
    [Some("AES_CBC"), Some(bits), Some(mac)]
}

const SUITES: [Suite; 14] = [
    ("aes128-sha256", cbc("128", "HMAC_SHA2_256_128")),
    ("aes256-sha512", cbc("256", "HMAC_SHA2_512_256")),
    ("aes192-sha384", cbc("192", "HMAC_SHA2_384_192")),
    ("aes128-sha1", cbc("128", "HMAC_SHA1_96")),
    ("null-sha256", [Some("NULL"), None, Some("HMAC_SHA2_256_128")]),
    ("aes128-aesxcbc", cbc("128", "AES_XCBC_96")),
    ("aes256-aescmac", cbc("256", "AES_CMAC_96")),
    ("null-aesxcbc", [Some("NULL"), None, Some("AES_XCBC_96")]),
    ("aes256gcm16", [Some("AES_GCM_16"), Some("256"), None]),
    ("aes192gcm16", [Some("AES_GCM_16"), Some("192"), None]),
    ("chacha20poly1305", [Some("CHACHA20_POLY1305"), None, None]),
    ("aes128ccm8", [Some("AES_CCM_8"), Some("128"), None]),
    ("aes192ccm12", [Some("AES_CCM_12"), Some("192"), None]),
    ("aes256ccm16", [Some("AES_CCM_16"), Some("256"), None]),
];

/// Suites that `legacy = true` allows.
const LEGACY: [Suite; 3] = [
    ("3des-sha1", [Some("3DES_CBC"), None, Some("HMAC_SHA1_96")]),
    ("aes128-md5", cbc("128", "HMAC_MD5_96")),
    ("3des-md5", [Some("3DES_CBC"), None, Some("HMAC_MD5_96")]),
];

/// Loads a connection with that proposal into both sides and brings it up.
pub(crate) fn connect(pair: &Pair, outer: Family, proposal: &str, initiator: Side) {
    for side in SIDES {
        let mut connection = Connection::of(side, outer);
        connection.esp_proposals = proposal.into();
        pair.swanctl(side).load(&connection.to_string()).unwrap();
    }
    pair.up(initiator);
}

/// Both sides name the suite alike.
pub(crate) fn is_agreed(pair: &Pair, (proposal, expected): Suite) {
    for side in SIDES {
        let sas = pair.sas(side);
        let child = &sas[0].children[0];
        let found = ["encr-alg", "encr-keysize", "integ-alg"].map(|key| child.get(key));
        assert_eq!(found, expected, "{proposal} at {side:?}: {child:?}");
    }
}

/// Packets of many sizes, of every remainder by a cipher's block; each is answered with one of its
/// size. Either side asks, in one of the families.
pub(crate) fn sizes_are_answered(pair: &Pair, family: Family) {
    let from = if family == Family::V4 { Side::One } else { Side::Two };
    for size in (1..=32).chain((33..=1400).step_by(171)) {
        // The next size follows as soon as this one is answered.
        let ping = Ping::new(from.other().host(family)).size(size).count(1);
        let ping = Ping { interval: Duration::from_millis(1), ..ping };
        let pong = ping.run(pair.t.host(from)).unwrap();
        let drops = || (pair.drops(Side::One), pair.drops(Side::Two));
        assert_eq!(pong.received, pong.sent, "{family}, {size} octets, from {from:?}; drops {:?}", drops());
    }
}

fn end(pair: &Pair, initiator: Side) {
    pair.swanctl(initiator).terminate("lab").unwrap();
    for side in SIDES {
        pair.await_sas(side, 0, SOON);
    }
}

fn every_suite(peer: Kind, esn: &str) {
    let pair = Scenario::new("esp-suites", peer).inner_mtu(INNER_MTU).start_empty();
    every_one(&pair, &SUITES, esn);
}

fn every_one(pair: &Pair, suites: &[Suite], esn: &str) {
    for ((proposal, expected), first) in suites.iter().copied().zip(SIDES.into_iter().cycle()) {
        for (initiator, family) in [(first, Family::V4), (first.other(), Family::V6)] {
            connect(pair, Family::V4, &format!("{proposal}{esn}"), initiator);
            let watch = Watch::start(&pair.t);
            is_agreed(pair, (proposal, expected));
            sizes_are_answered(pair, family);
            pair.tcp_both_ways(family);
            watch.saw_nothing();
            end(pair, initiator);
        }
    }
    for reason in ["auth_failed", "esp_too_short", "bad_padding", "malformed_inner"] {
        assert_eq!(pair.dropped(reason), 0, "{reason}");
    }
}

#[test]
#[ignore = "make test-all: each cipher"]
fn every_suite_with_strongswan() {
    every_suite(Kind::Strongswan, "");
}

#[test]
#[ignore = "make test-all: each cipher"]
fn every_suite_with_ourselves_and_extended_numbers() {
    every_suite(Kind::Testudo, "-esn");
}

#[test]
fn weak_suites_are_for_those_who_ask_for_them() {
    let modern = Scenario::new("esp-modern", Kind::Testudo).start_empty();
    for (proposal, word) in [("3des-sha256", "3des"), ("aes128-md5", "md5")] {
        let mut connection = Connection::of(Side::One, Family::V4);
        connection.esp_proposals = proposal.into();
        let refused = modern.swanctl(Side::One).load(&connection.to_string()).unwrap_err().to_string();
        assert!(refused.contains(&format!("{word:?} is refused as weak")), "{refused}");
    }
    drop(modern);
    let pair = Scenario::new("esp-legacy", Kind::Strongswan)
        .inner_mtu(INNER_MTU)
        .settings("legacy = true")
        .start_empty();
    every_one(&pair, &LEGACY, "");
}

/// With common suites in different orders, the responder's order decides. A suite that only one has
/// is never chosen.
#[test]
fn the_responders_order_decides() {
    let pair = Scenario::new("esp-order", Kind::Strongswan).start_empty();
    // Ours and the peer's; what integrity algorithm we choose, and which one the peer.
    let cases = [
        (["aes128-null-sha256-sha1", "aes256-aes128-sha1-sha256"], ["HMAC_SHA2_256_128", "HMAC_SHA1_96"]),
        (
            ["null-sha512,aes192-aes128-sha256", "aes256gcm16,aes128-sha512-sha256"],
            ["HMAC_SHA2_256_128", "HMAC_SHA2_256_128"],
        ),
    ];
    for (proposals, chosen) in cases {
        for (responder, mac) in SIDES.into_iter().zip(chosen) {
            for (side, proposals) in SIDES.into_iter().zip(proposals) {
                let mut connection = Connection::of(side, Family::V4);
                connection.esp_proposals = proposals.into();
                pair.swanctl(side).load(&connection.to_string()).unwrap();
            }
            pair.up(responder.other());
            is_agreed(&pair, (proposals[0], cbc("128", mac)));
            pair.ping_both_ways();
            end(&pair, responder.other());
        }
    }
}

/// A peer without AES-GCM needs no configuration, whichever side initiates.
#[test]
fn the_default_has_something_for_a_peer_without_gcm() {
    let pair = Scenario::new("espdefault", Kind::Strongswan).start_with(|side, connection| {
        connection.esp_proposals = if side == Side::One { "default" } else { "aes256-sha384" }.into();
    });
    for first in [Side::One, Side::Two] {
        pair.up(first);
        pair.ping_from(Side::One, Family::V4, 56);
        let sas = pair.sas(Side::One);
        let child = &sas[0].children[0];
        assert_eq!(child.get("encr-alg"), Some("AES_CBC"));
        assert_eq!(child.get("integ-alg"), Some("HMAC_SHA2_384_192"));
        pair.swanctl(first).terminate("lab").unwrap();
        for side in [Side::One, Side::Two] {
            pair.await_sas(side, 0, SOON);
        }
    }
}
