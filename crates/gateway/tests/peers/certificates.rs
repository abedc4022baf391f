//! Authentication with certificates, with Debian's strongSwan, both sides initiating in turn.

mod identities;
mod listing;
mod methods;
mod public_keys;
mod refusals;
mod surprise;

use crate::common::{Pair, Scenario};
use testudo_lab::gateway::Kind;
use testudo_lab::pki::{KeyKind, Pki};
use testudo_lab::swanctl_conf::Connection;
use testudo_lab::topology::{Family, Side};

const ECDSA: KeyKind = KeyKind::Ecdsa("P-256");

/// The identity of that side's gateway, as OpenSSL writes it.
fn subject(side: Side) -> &'static str {
    match side {
        Side::One => "/C=CH/O=Testudo Lab/CN=gw1",
        Side::Two => "/C=CH/O=Testudo Lab/CN=gw2",
    }
}

/// The same as swanctl writes it.
fn dn(side: Side) -> &'static str {
    match side {
        Side::One => "C=CH, O=Testudo Lab, CN=gw1",
        Side::Two => "C=CH, O=Testudo Lab, CN=gw2",
    }
}

fn names(side: Side) -> &'static str {
    match side {
        Side::One => "DNS:gw1.lab.example,email:gw1@lab.example,IP:192.0.2.1",
        Side::Two => "DNS:gw2.lab.example,email:gw2@lab.example,IP:192.0.2.2",
    }
}

/// File name of that side's certificate.
fn own(side: Side) -> &'static str {
    match side {
        Side::One => "gw1",
        Side::Two => "gw2",
    }
}

/// Gateways that know nothing yet, and a CA `root` that both trust.
fn start(name: &'static str) -> (Pair, Pki) {
    start_at(Scenario::new(name, Kind::Strongswan))
}

fn start_at(scenario: Scenario) -> (Pair, Pki) {
    let pair = scenario.impatient().start_empty();
    let pki = trust_one_root(&pair);
    (pair, pki)
}

fn trust_one_root(pair: &Pair) -> Pki {
    let pki = Pki::new(pair.t.gw1.lab()).unwrap();
    pki.ca("root", ECDSA, "/C=CH/O=Testudo Lab/CN=Root", None).unwrap();
    for side in [Side::One, Side::Two] {
        pki.give(pair.swanctl(side), "root.pem", "x509ca").unwrap();
    }
    pki
}

/// Makes that side's certificate and key, and puts them where swanctl finds them.
fn equip(pair: &Pair, pki: &Pki, side: Side, kind: KeyKind, issuer: &str) {
    pki.end(own(side), kind, subject(side), issuer, names(side)).unwrap();
    for (file, directory) in [("pem", "x509"), ("key", "private")] {
        pki.give(pair.swanctl(side), &format!("{}.{file}", own(side)), directory).unwrap();
    }
}

/// A connection by certificate on both sides.
fn connection(side: Side) -> Connection {
    let mut connection = Connection::of(side, Family::V4);
    connection.local = vec!["auth = pubkey".into(), format!("certs = {}.pem", own(side))];
    connection.remote = vec!["auth = pubkey".into(), format!("id = \"{}\"", dn(side.other()))];
    connection
}

fn load(pair: &Pair, adjust: impl Fn(Side, &mut Connection)) {
    for side in [Side::One, Side::Two] {
        let mut connection = connection(side);
        adjust(side, &mut connection);
        let swanctl = pair.swanctl(side);
        swanctl.write_conf(&connection.to_string()).unwrap();
        swanctl.run(["--load-all", "--noprompt", "--clear"]).unwrap();
    }
}

/// Each side initiates and deletes once; traffic passes.
fn come_and_go(pair: &Pair) {
    for initiator in [Side::One, Side::Two] {
        pair.up(initiator);
        pair.ping_from(initiator, Family::V4, 56);
        pair.swanctl(initiator).terminate("lab").unwrap();
        for side in [Side::One, Side::Two] {
            pair.await_sas(side, 0, crate::common::SOON);
        }
    }
}
