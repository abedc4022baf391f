//! Debian's strongSwan as the peer, in both roles. Its ESP always travels in UDP.

use crate::common::{Scenario, Watch};
use testudo_lab::gateway::Kind;
use testudo_lab::topology::{Family, Side};

fn tunnel(outer: Family, initiator: Side) {
    let pair = Scenario::new("strongswan", Kind::Strongswan).outer(outer).start();
    let watch = Watch::start(&pair.t);
    pair.up(initiator);
    pair.ping_both_ways();
    let sas = pair.sas(Side::One);
    let child = &sas[0].children[0];
    assert_eq!(child.get("encap"), Some("yes"), "{child:?}");
    assert!(child.number("packets-out").unwrap() >= 80, "{child:?}");
    assert!(child.number("packets-in").unwrap() >= 80, "{child:?}");
    watch.saw_nothing();
}

#[test]
fn we_initiate_over_ipv4() {
    tunnel(Family::V4, Side::One);
}

#[test]
fn we_initiate_over_ipv6() {
    tunnel(Family::V6, Side::One);
}

#[test]
fn the_peer_initiates_over_ipv4() {
    tunnel(Family::V4, Side::Two);
}

#[test]
#[ignore = "make test-all: the other family"]
fn the_peer_initiates_over_ipv6() {
    tunnel(Family::V6, Side::Two);
}
