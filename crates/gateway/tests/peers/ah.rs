//! AH in ESP's place, between two of us.

use crate::common::{Pair, Scenario};
use testudo_lab::capture::Capture;
use testudo_lab::gateway::Kind;
use testudo_lab::swanctl_conf::Connection;
use testudo_lab::topology::{Family, Side};

const SIDES: [Side; 2] = [Side::One, Side::Two];

fn with_ah(connection: &mut Connection, proposal: &str) {
    connection.esp_proposals = String::new();
    connection.more_child.push(format!("ah_proposals = {proposal}"));
}

/// Both sides say that it is AH, with that algorithm.
fn is_agreed(pair: &Pair, (mode, integrity, esn): (&str, &str, bool)) {
    for side in SIDES {
        let sas = pair.sas(side);
        let child = &sas[0].children[0];
        let found = ["protocol", "mode", "encr-alg", "integ-alg", "esn"].map(|key| child.get(key));
        let expected = [Some("AH"), Some(mode), None, Some(integrity), esn.then_some("1")];
        assert_eq!(found, expected, "{side:?}: {child:?}");
    }
}

fn between_ourselves(outer: Family) {
    let pair = Scenario::new("ah", Kind::Testudo)
        .outer(outer)
        .start_with(|_, connection| with_ah(connection, "sha256-esn"));
    let first = Capture::everything(&pair.t.wire, 40).unwrap();
    pair.up(Side::One);
    is_agreed(&pair, ("TUNNEL", "HMAC_SHA2_256_128", true));
    pair.ping_both_ways();
    pair.tcp_both_ways(outer);
    let wire = first.stop().unwrap().show(40).unwrap();
    assert!(wire.contains("AH(spi=0x") && !wire.contains("ESP(spi=0x"), "{wire}");
    assert_eq!(pair.dropped("auth_failed"), 0);
}

#[test]
fn tunnels_of_ah_over_ipv4() {
    between_ourselves(Family::V4);
}

#[test]
fn tunnels_of_ah_over_ipv6() {
    between_ourselves(Family::V6);
}
