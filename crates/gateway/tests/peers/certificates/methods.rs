//! Every kind of key and signature, both ways at once and each its own way, and chains.

use super::{ECDSA, come_and_go, equip, load, start, start_at, trust_one_root};
use crate::common::{SOON, Scenario};
use testudo_lab::capture::Capture;
use testudo_lab::gateway::{Gateway, Kind};
use testudo_lab::pki::KeyKind;
use testudo_lab::topology::Side;
use testudo_lab::wait_until;

/// A kind of key, what `auth` says for its owner, and what both logs call the signature.
const METHODS: [(KeyKind, &str, &str); 6] = [
    (KeyKind::Rsa, "pubkey", "RSA_EMSA_PKCS1_SHA2_256"),
    (KeyKind::Rsa, "ike:rsa/pss-sha384", "RSA_EMSA_PSS_SHA2_384_SALT_48"),
    (KeyKind::Ecdsa("P-256"), "ecdsa", "ECDSA_WITH_SHA256_DER"),
    (KeyKind::Ecdsa("P-384"), "pubkey", "ECDSA_WITH_SHA384_DER"),
    (KeyKind::Ecdsa("P-521"), "pubkey", "ECDSA_WITH_SHA512_DER"),
    (KeyKind::Ed25519, "pubkey", "ED25519"),
];

#[test]
fn every_method_in_both_roles() {
    let (mut pair, pki) = start("methods");
    for (index, (kind, auth, scheme)) in METHODS.into_iter().enumerate() {
        // The two sides have different kinds of keys: the next one is the peer's.
        let (other, other_auth, other_scheme) = METHODS[(index + 1) % METHODS.len()];
        equip(&pair, &pki, Side::One, kind, "root");
        equip(&pair, &pki, Side::Two, other, "root");
        load(&pair, |side, connection| {
            let auth = if side == Side::One { auth } else { other_auth };
            connection.local[0] = format!("auth = {auth}");
        });
        come_and_go(&pair);
        let ours = format!("'C=CH, O=Testudo Lab, CN=gw1' with {scheme} successful");
        let theirs = format!("'C=CH, O=Testudo Lab, CN=gw2' with {other_scheme} successful");
        pair.await_log(&theirs);
        pair.two.process().wait_log(&ours, SOON).unwrap();
    }
}

/// Without digital signatures charon has ECDSA as in RFC 4754, and RSA with SHA-1.
#[test]
fn a_peer_without_digital_signatures() {
    let mut pair = Scenario::new("old-auth", Kind::Strongswan).settings("legacy = true").start_empty();
    let pki = trust_one_root(&pair);
    let Gateway::Strongswan(charon) = &pair.two else { panic!("strongSwan is asked for") };
    charon.forget_digital_signatures().unwrap();
    for (kind, method) in [
        (KeyKind::Ecdsa("P-256"), "ECDSA-256 signature"),
        (KeyKind::Ecdsa("P-384"), "ECDSA-384 signature"),
        (KeyKind::Ecdsa("P-521"), "ECDSA-521 signature"),
        (KeyKind::Rsa, "RSA_EMSA_PKCS1_SHA1 (weak, allowed by legacy = true)"),
    ] {
        for side in [Side::One, Side::Two] {
            equip(&pair, &pki, side, kind, "root");
        }
        load(&pair, |_, _| {});
        come_and_go(&pair);
        pair.await_log(&format!("'C=CH, O=Testudo Lab, CN=gw2' with {method} successful"));
        pair.await_log(&format!("'C=CH, O=Testudo Lab, CN=gw1' (myself) with {method}"));
    }
}

#[test]
fn a_shared_key_one_way_and_a_certificate_the_other() {
    let (pair, pki) = start("mixed");
    for by_key in [Side::One, Side::Two] {
        equip(&pair, &pki, by_key.other(), ECDSA, "root");
        load(&pair, |side, connection| {
            let psk = |id: &str| vec!["auth = psk".into(), format!("id = {id}")];
            if side == by_key {
                connection.local = psk(&connection.local_id);
            } else {
                connection.remote = psk(&connection.remote_id);
            }
            // Only one of the two has a name that the key could belong to.
            let owner = if side == by_key { &connection.local_id } else { &connection.remote_id }.clone();
            (connection.local_id, connection.remote_id) = (owner.clone(), owner);
        });
        come_and_go(&pair);
    }
}

/// Four certificates each way do not fit into a datagram of a network with MTU 1280, nor do they
/// have to (RFC 7383).
#[test]
fn a_chain_of_four_certificates_at_mtu_1280() {
    let (mut pair, pki) = start_at(Scenario::new("chain", Kind::Strongswan).outer_mtu(1280));
    for (side, issuers) in [(Side::One, ["a1", "a2", "a3"]), (Side::Two, ["b1", "b2", "b3"])] {
        let mut above = "root";
        for issuer in issuers {
            let subject = format!("/C=CH/O=Testudo Lab/CN=Intermediate {issuer}");
            pki.ca(issuer, KeyKind::Rsa, &subject, Some(above)).unwrap();
            // As certificates between, not as roots of the other side.
            pki.give(pair.swanctl(side), &format!("{issuer}.pem"), "x509ca").unwrap();
            above = issuer;
        }
        equip(&pair, &pki, side, KeyKind::Rsa, above);
    }
    load(&pair, |_, _| {});
    let wire = Capture::everything(&pair.t.wire, 80).unwrap();
    come_and_go(&pair);
    let shown = wire.stop().unwrap().show(80).unwrap();
    assert!(!shown.contains("frag"), "no IP datagram is fragmented: {shown}");
    pair.two.process().wait_log("splitting IKE message (", SOON).unwrap();
    let charon = pair.two.process();
    wait_until("charon to have received all certificates", SOON, || {
        let log = charon.log()?;
        let came = |issuer: &str| log.lines().any(|line| line.contains("received ") && line.contains(issuer));
        let all = ["Intermediate a1", "Intermediate a2", "Intermediate a3", "CN=gw1"].into_iter().all(came);
        Ok(if all { Ok(()) } else { Err(log) })
    })
    .unwrap();
    pair.await_log("by certificate 'C=CH, O=Testudo Lab, CN=gw2' of CA 'C=CH, O=Testudo Lab, CN=Root'");
}
