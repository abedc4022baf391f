//! A NAT on the way to Debian's strongSwan (RFC 7296 §2.23, RFC 3947, RFC 3948), before either
//! side.

use crate::common::{Pair, SOON, Scenario, UP_LIMIT, Watch};
use testudo_lab::capture::Capture;
use testudo_lab::gateway::Kind;
use testudo_lab::ping::Ping;
use testudo_lab::swanctl::IkeSa;
use testudo_lab::topology::{Family, Side};
use testudo_lab::wait_until;

/// The side behind the NAT sends a keepalive after a second, a liveness check after two, and gives
/// up after seven.
const REMINDING: &str =
    "\n[ike]\nkeepalive_interval = 1\nretransmit_timeout_ms = 500\nretransmit_tries = 4\n";

/// A NAT before that side, which brings the tunnel up.
fn behind_nat(peer: Kind, hidden: Side) -> Pair {
    let pair = Scenario::new("nat", peer).nat(hidden).settings(REMINDING).start_with(|side, connection| {
        // Only the side behind the NAT can reach the other again.
        connection.dpd_delay = if side == hidden { 2 } else { 0 };
    });
    pair.up(hidden);
    pair
}

/// The only IKE SA of that side.
fn sa(pair: &Pair, side: Side) -> IkeSa {
    let sas = pair.sas(side);
    assert_eq!(sas.len(), 1, "{side:?}: {sas:?}");
    sas[0].clone()
}

/// The port from which the hidden side's messages come, as the other side sees it.
fn mapped_port(pair: &Pair, hidden: Side) -> u16 {
    let sa = sa(pair, hidden.other());
    sa.get("remote-port").and_then(|port| port.parse().ok()).unwrap_or_else(|| panic!("{sa:?}"))
}

fn crosses_the_nat(hidden: Side) {
    let pair = behind_nat(Kind::Strongswan, hidden);
    let watch = Watch::start(&pair.t);
    pair.ping_both_ways();
    // charon's own ESP makes it always say that it is behind a NAT; but about us it tells the
    // truth.
    let ours = sa(&pair, Side::One);
    assert_eq!(ours.get("nat-local").is_some(), hidden == Side::One, "{ours:?}");
    assert_eq!(sa(&pair, Side::Two).get("nat-remote").is_some(), hidden == Side::One);
    assert_eq!(ours.children[0].get("encap"), Some("yes"));
    assert!((20_000..21_000).contains(&mapped_port(&pair, hidden)));
    watch.saw_nothing();
}

#[test]
fn we_initiate_from_behind_a_nat() {
    crosses_the_nat(Side::One);
}

#[test]
fn the_peer_initiates_from_behind_a_nat() {
    crosses_the_nat(Side::Two);
}

/// RFC 3948 §4: in silence a keepalive is sent in each interval, only by the side behind the NAT.
fn is_kept_open(hidden: Side) {
    let pair = behind_nat(Kind::Strongswan, hidden);
    let keepalives = Capture::keepalives(&pair.t.wire).unwrap();
    keepalives.await_packets(2, SOON).unwrap();
    let captured = keepalives.stop().unwrap();
    let shown = captured.show(100).unwrap();
    assert!(captured.packets >= 2, "{shown}");
    let from = format!("IP {}.{} > ", hidden.outer(Family::V4), mapped_port(&pair, hidden));
    assert!(shown.lines().all(|line| line.contains(&from)), "{shown}");
    pair.ping_both_ways();
}

#[test]
fn we_keep_a_nat_open() {
    is_kept_open(Side::One);
}

#[test]
fn the_peer_keeps_a_nat_open() {
    is_kept_open(Side::Two);
}

/// The NAT drops the mapping and creates another: traffic continues in both directions on the new
/// port, and so do the SAs. Only charon's user-space ESP cannot move them: it sets up new ones.
fn survives_a_new_mapping(peer: Kind, hidden: Side) {
    let pair = behind_nat(peer, hidden);
    let watch = Watch::start(&pair.t);
    let spis = |side| sa(&pair, side).get("initiator-spi").map(str::to_owned);
    let before = spis(Side::One);
    for ports in [30_000..=30_999, 40_000..=40_999] {
        pair.t.nat.as_ref().unwrap().remap(ports.clone()).unwrap();
        // Packets of the hidden side alone are enough, where ESP is followed; else its next
        // liveness check is. Who makes new SAs then may lose a few packets more.
        for from in [hidden, hidden.other()] {
            wait_until("traffic on the new port", UP_LIMIT, || {
                let pong = Ping::new(from.other().host(Family::V4)).brief().run(pair.t.host(from))?;
                Ok(if pong.received == pong.sent { Ok(()) } else { Err(format!("{pong:?}")) })
            })
            .unwrap();
        }
        assert!(ports.contains(&mapped_port(&pair, hidden)), "{}", mapped_port(&pair, hidden));
    }
    if (peer, hidden) != (Kind::Strongswan, Side::One) {
        assert_eq!((spis(Side::One), spis(Side::Two)), (before.clone(), before));
    }
    watch.saw_nothing();
}

#[test]
fn we_are_found_again_behind_a_new_mapping() {
    survives_a_new_mapping(Kind::Strongswan, Side::One);
}

#[test]
fn we_find_the_peer_again_behind_a_new_mapping() {
    survives_a_new_mapping(Kind::Strongswan, Side::Two);
}

/// Testudo follows ESP too, so that it does not need the liveness check.
#[test]
#[ignore = "make test-all: the other peer"]
fn testudo_finds_testudo_again_behind_a_new_mapping() {
    survives_a_new_mapping(Kind::Testudo, Side::One);
}

/// The old IKE SA goes from another mapping than the one that it came up with: what its children
/// have handed on does not come back to them, and what the other side sends finds the new ones.
#[test]
fn a_peer_that_reauthenticates_from_a_new_mapping_is_reached() {
    let pair = behind_nat(Kind::Testudo, Side::One);
    let watch = Watch::start(&pair.t);
    pair.t.nat.as_ref().unwrap().remap(30_000..=30_999).unwrap();
    pair.swanctl(Side::One).run(["--rekey", "--ike", "lab", "--reauth"]).unwrap();
    // The old IKE SA and its children are gone at both sides.
    for side in [Side::One, Side::Two] {
        wait_until("the new IKE SA alone, with one child", SOON, || {
            let sas = pair.swanctl(side).list_sas()?;
            let settled =
                matches!(&sas[..], [sa] if sa.get("uniqueid") != Some("1") && sa.children.len() == 1);
            Ok(if settled { Ok(()) } else { Err(format!("{sas:?}")) })
        })
        .unwrap();
    }
    let pong = Ping::new(Side::One.host(Family::V4)).run(pair.t.host(Side::Two)).unwrap();
    assert_eq!(pong.received, pong.sent, "{:?}", pair.drops(Side::Two));
    watch.saw_nothing();
}

/// `encap = yes` at our side only: charon takes us to be behind a NAT, and so do we say.
fn encapsulation_is_forced(initiator: Side) {
    let mut pair = Scenario::new("encap", Kind::Strongswan)
        .start_with(|side, connection| connection.encap = side == Side::One);
    let watch = Watch::start(&pair.t);
    pair.up(initiator);
    pair.ping_both_ways();
    assert_eq!(sa(&pair, Side::One).get("nat-fake"), Some("yes"));
    assert_eq!(sa(&pair, Side::Two).get("nat-remote"), Some("yes"));
    pair.two.process().wait_log("remote host is behind NAT", SOON).unwrap();
    watch.saw_nothing();
}

#[test]
fn we_force_encapsulation_as_initiator() {
    encapsulation_is_forced(Side::One);
}

#[test]
#[ignore = "make test-all: the other role"]
fn we_force_encapsulation_as_responder() {
    encapsulation_is_forced(Side::Two);
}
