//! Debian's strongSwan as the peer, in both roles.

use crate::common::{Pair, UP_LIMIT};
use testudo_lab::capture::Capture;
use testudo_lab::gateway::Kind;
use testudo_lab::topology::{Family, Side};

fn tunnel(outer: Family, initiator: Side) {
    let pair = Pair::with("strongswan", Kind::Strongswan, outer, |_, _| {});
    let clear = Capture::clear_text(&pair.t.wire).unwrap();
    pair.gateway(initiator).swanctl().initiate("lab", UP_LIMIT).unwrap();
    for gateway in [&pair.one, &pair.two] {
        let sas = gateway.swanctl().list_sas().unwrap();
        assert!(matches!(sas.as_slice(), [sa] if sa.is_up()), "{sas:?}");
    }
    pair.ping_both_ways();
    let sas = pair.one.swanctl().list_sas().unwrap();
    assert!(sas[0].children[0].number("packets-out").unwrap() >= 80, "{sas:?}");
    assert!(sas[0].children[0].number("packets-in").unwrap() >= 80, "{sas:?}");
    let captured = clear.stop().unwrap();
    assert_eq!((captured.packets, captured.lost), (0, 0), "{}", captured.show(10).unwrap());
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
fn the_peer_initiates_over_ipv6() {
    tunnel(Family::V6, Side::Two);
}
