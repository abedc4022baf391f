//! A new IKE SA from scratch takes the place of the old one while traffic runs, and no packet is lost (RFC 7296 §2.8.3).

use crate::common::{Scenario, Watch};
use crate::rekeying::{renew, under_traffic};
use testudo_lab::gateway::Kind;
use testudo_lab::topology::Side;

/// One side reauthenticates by command, under traffic both ways. charon has `make_before_break = yes`.
fn by_command(peer: Kind, side: Side) {
    let pair = Scenario::new("reauth", peer).start();
    let watch = Watch::start(&pair.t);
    pair.up(side);
    under_traffic(&pair, || renew(&pair, side, &["--ike", "lab", "--reauth"]));
    pair.ping_both_ways();
    watch.saw_nothing();
    if side == Side::One {
        let log = pair.one.log().unwrap();
        assert!(log.contains("reauthenticated: it is [2] now"), "{log}");
    }
}

#[test]
fn by_us_with_strongswan() {
    by_command(Kind::Strongswan, Side::One);
}

#[test]
fn by_strongswan() {
    by_command(Kind::Strongswan, Side::Two);
}

#[test]
#[ignore = "make test-all: the other peer"]
fn by_either_of_us() {
    by_command(Kind::Testudo, Side::One);
}
