//! A new IKE SA from scratch replaces the old one under traffic, and no packet is lost (RFC 7296
//! §2.8.3).

use crate::common::{Scenario, Watch};
use crate::rekeying::{renew, under_traffic_losing};
use testudo_lab::gateway::Kind;
use testudo_lab::topology::Side;

/// With its old IKE SA charon deletes the Child SAs at once, where it keeps those that are rekeyed
/// for five seconds: what we have sent through them, and it has not opened by then, is lost there.
/// A reply comes every 5 ms in each direction; seen once, on a busy machine: one of 800.
const CUT_OFF: u32 = 4;

/// One side reauthenticates by command, under traffic both ways. charon has
/// `make_before_break = yes`.
fn by_command(peer: Kind, side: Side) {
    let pair = Scenario::new("reauth", peer).start();
    let watch = Watch::start(&pair.t);
    pair.up(side);
    let limit = if (peer, side) == (Kind::Strongswan, Side::Two) { CUT_OFF } else { 0 };
    under_traffic_losing(&pair, limit, || renew(&pair, side, &["--ike", "lab", "--reauth"]));
    pair.ping_both_ways();
    watch.saw_nothing();
    if side == Side::One {
        pair.await_said("reauthenticated: it is [2] now");
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
