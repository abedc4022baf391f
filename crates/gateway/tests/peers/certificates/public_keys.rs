//! Public keys without a certificate: strongSwan neither sends nor takes them, and has them from
//! its configuration.

use super::{come_and_go, own};
use crate::common::{Pair, SOON, Scenario, UP_LIMIT, give_key};
use testudo_lab::gateway::Kind;
use testudo_lab::pki::{KeyKind, Pki};
use testudo_lab::swanctl_conf::Connection;
use testudo_lab::topology::{Family, Side};

/// A kind of key, and what both logs call its signature.
const KEYS: [(KeyKind, &str); 3] = [
    (KeyKind::Rsa, "RSA_EMSA_PKCS1_SHA2_256"),
    (KeyKind::Ecdsa("P-384"), "ECDSA_WITH_SHA384_DER"),
    (KeyKind::Ed25519, "ED25519"),
];

/// Gateways without a connection, and a CA that signs for neither.
fn start(name: &'static str, peer: Kind) -> (Pair, Pki) {
    let pair = Scenario::new(name, peer).impatient().start_empty();
    let pki = Pki::new(pair.t.gw1.lab()).unwrap();
    (pair, pki)
}

/// By the keys of both sides; `ids`: whether the connection names the sides.
fn connection(side: Side, ids: bool) -> Connection {
    let mut connection = Connection::of(side, Family::V4);
    let by = |side: Side, id: &str| {
        let lines = ["auth = pubkey".to_owned(), format!("pubkeys = {}.pub", own(side))];
        lines.into_iter().chain(ids.then(|| format!("id = {id}"))).collect()
    };
    connection.local = by(side, &connection.local_id);
    connection.remote = by(side.other(), &connection.remote_id);
    connection
}

fn load(pair: &Pair, adjust: impl Fn(Side, &mut Connection), ids: bool) {
    for side in [Side::One, Side::Two] {
        let mut connection = connection(side, ids);
        adjust(side, &mut connection);
        let swanctl = pair.swanctl(side);
        swanctl.write_conf(&connection.to_string()).unwrap();
        let loaded = swanctl.run(["--load-all", "--noprompt", "--clear"]).unwrap().stdout;
        assert!(loaded.contains("pubkey/gw2.pub'"), "the directory is loaded: {loaded}");
    }
}

fn both_roles(name: &'static str, peer: Kind) {
    let (mut pair, pki) = start(name, peer);
    for (index, (kind, scheme)) in KEYS.into_iter().enumerate() {
        // The two sides have different kinds of keys: the next one is the peer's.
        let (other, other_scheme) = KEYS[(index + 1) % KEYS.len()];
        give_key(&pair, &pki, (own(Side::One), kind), Side::One);
        give_key(&pair, &pki, (own(Side::Two), other), Side::Two);
        load(&pair, |_, _| {}, true);
        come_and_go(&pair);
        let theirs = format!("with {other_scheme} successful, by public key");
        pair.await_log(&theirs);
        let ours = format!("with {scheme} successful");
        pair.two.process().wait_log(&ours, SOON).unwrap();
    }
    // Without an identity, the KEY_ID of the key is used.
    load(&pair, |_, _| {}, false);
    come_and_go(&pair);
}

#[test]
fn with_strongswan_in_both_roles() {
    both_roles("pubkeys", Kind::Strongswan);
}

/// They ask each other for the keys, and show them.
#[test]
#[ignore = "make test-all: the other peer"]
fn between_two_gateways_in_both_roles() {
    both_roles("rawkeys", Kind::Testudo);
}

/// Each side has another key of the peer than the peer has.
#[test]
fn another_key_is_refused_by_both() {
    let (mut pair, pki) = start("wrongpub", Kind::Strongswan);
    for side in [Side::One, Side::Two] {
        give_key(&pair, &pki, (own(side), KeyKind::Ed25519), side);
    }
    pki.bare("mars", KeyKind::Ed25519).unwrap();
    for wrong in [Side::One, Side::Two] {
        pki.give(pair.swanctl(wrong), "mars.pub", "pubkey").unwrap();
        load(
            &pair,
            |side, connection| {
                if side == wrong {
                    connection.remote[1] = "pubkeys = mars.pub".into();
                }
            },
            true,
        );
        for initiator in [Side::One, Side::Two] {
            assert!(pair.swanctl(initiator).initiate("lab", UP_LIMIT).is_err(), "{wrong:?} {initiator:?}");
            for side in [Side::One, Side::Two] {
                pair.await_sas(side, 0, crate::common::SOON);
            }
        }
    }
    pair.await_log("was not made with a public key allowed by the connection");
}
