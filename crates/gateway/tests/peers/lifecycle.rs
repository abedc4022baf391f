//! How tunnels come and go: by command, with a daemon's end, with a peer's death, by traffic, by
//! themselves.

use crate::common::{Pair, SOON, Scenario, UP_LIMIT, Watch};
use std::time::{Duration, Instant};
use testudo_lab::gateway::{Gateway, Kind};
use testudo_lab::ping::Ping;
use testudo_lab::strongswan::Strongswan;
use testudo_lab::swanctl::IkeSa;
use testudo_lab::swanctl_conf::Connection;
use testudo_lab::topology::{Family, OUTER, Side, WIRE_PORTS};
use testudo_lab::wait_until;

/// Each side deletes the tunnel once; each time it is gone on both, and comes up again.
fn deletes_from_each_side(peer: Kind) {
    let mut pair = Scenario::new("delete", peer).start();
    let watch = Watch::start(&pair.t);
    for (side, reason) in [(Side::One, "terminated by request"), (Side::Two, "deleted by the peer")] {
        pair.up(Side::One);
        pair.ping_from(Side::One, Family::V4, 56);
        pair.swanctl(side).terminate("lab").unwrap();
        for side in [Side::One, Side::Two] {
            pair.await_sas(side, 0, SOON);
        }
        pair.await_log(&format!("closed: {reason}"));
        nothing_passes(&pair);
    }
    pair.up(Side::Two);
    pair.ping_both_ways();
    watch.saw_nothing();
}

/// Without an SA what should be protected is dropped, and counted.
fn nothing_passes(pair: &Pair) {
    let before = pair.dropped("no_sa");
    let pong = Ping::new(Side::Two.host(Family::V4)).count(5).brief().run(&pair.t.client).unwrap();
    assert_eq!((pong.sent, pong.received), (5, 0));
    pair.await_dropped("no_sa", before + 5);
}

#[test]
fn strongswan_and_we_delete() {
    deletes_from_each_side(Kind::Strongswan);
}

#[test]
#[ignore = "make test-all: the other peer"]
fn testudo_and_we_delete() {
    deletes_from_each_side(Kind::Testudo);
}

/// A Child SA goes alone, at the word of either side, and can come up again.
fn a_child_is_deleted(peer: Kind, side: Side) {
    let mut pair = Scenario::new("child", peer).start();
    let watch = Watch::start(&pair.t);
    pair.up(Side::One);
    pair.ping_from(Side::One, Family::V4, 56);
    pair.swanctl(side).run(["--terminate", "--child", "lab"]).unwrap();
    for side in [Side::One, Side::Two] {
        let what = format!("an IKE SA without a child at side {side:?}");
        wait_until(&what, SOON, || {
            let sas = pair.swanctl(side).list_sas()?;
            let alone = |sa: &IkeSa| sa.state == "ESTABLISHED" && sa.children.is_empty();
            Ok(if matches!(&sas[..], [sa] if alone(sa)) { Ok(()) } else { Err(format!("{sas:?}")) })
        })
        .unwrap();
    }
    let reason = if side == Side::One { "terminated by request" } else { "deleted by the peer" };
    pair.await_log(&format!("CHILD_SA lab{{1}} closed: {reason}"));
    nothing_passes(&pair);
    // Up again, on the IKE SA that is there.
    pair.up(side);
    pair.ping_from(Side::One, Family::V4, 56);
    watch.saw_nothing();
}

#[test]
fn we_delete_a_child_that_we_share_with_strongswan() {
    a_child_is_deleted(Kind::Strongswan, Side::One);
}

#[test]
fn strongswan_deletes_a_child_that_it_shares_with_us() {
    a_child_is_deleted(Kind::Strongswan, Side::Two);
}

#[test]
fn a_clean_end_deletes_the_sas_at_the_peer() {
    let mut pair = Scenario::new("shutdown", Kind::Strongswan).start();
    let watch = Watch::start(&pair.t);
    pair.up(Side::One);
    pair.one.stop().unwrap();
    pair.await_sas(Side::Two, 0, SOON);
    let log = pair.one.log().unwrap();
    assert!(log.contains("ending: deleting all SAs at the peers"), "{log}");
    assert!(log.contains("protected prefixes stay closed"), "{log}");
    let pong = Ping::new(Side::Two.host(Family::V4)).count(5).brief().run(&pair.t.client).unwrap();
    assert_eq!(pong.received, 0);
    watch.saw_nothing();
}

/// SIGHUP is what a shell sends when its terminal goes: the tunnels stay.
#[test]
fn a_hangup_changes_nothing() {
    let mut pair = Scenario::new("hangup", Kind::Testudo).start();
    pair.up(Side::One);
    pair.one.process().signal(nix::sys::signal::Signal::SIGHUP).unwrap();
    pair.await_log("SIGHUP changes nothing");
    pair.ping_from(Side::One, Family::V4, 56);
}

/// A peer that cannot answer does not hold up the end for longer than a few seconds.
#[test]
fn an_end_with_a_silent_peer_is_short() {
    let mut pair = Scenario::new("silent", Kind::Testudo).start();
    pair.up(Side::One);
    cut(&pair);
    let begun = Instant::now();
    pair.one.stop().unwrap();
    // It would wait for minutes until it gave the peer up.
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
}

/// Takes the carrier from the peer's cable.
fn cut(pair: &Pair) {
    pair.t.wire.ip(&format!("link set {} down", WIRE_PORTS[1])).unwrap();
}

fn mend(pair: &Pair) {
    let (wire, port) = (&pair.t.wire, WIRE_PORTS[1]);
    wire.ip(&format!("link set {port} up")).unwrap();
    // The kernel may take a second to notice, on either side.
    for (namespace, interface) in [(wire, port), (&pair.t.gw2, OUTER)] {
        namespace.await_link(interface).unwrap();
    }
}

/// A peer that has sent this many liveness checks has received answers to the earlier ones: a
/// window has room for one request (RFC 7296 §2.3).
const CHECKS: usize = 3;

/// Liveness (RFC 7296 §2.4): checks after a second of silence each, and one that stays without an
/// answer ends the SA.
#[test]
fn a_peer_that_is_cut_off_is_found_dead() {
    let mut pair = Scenario::new("dpd", Kind::Testudo)
        .impatient()
        // A check spares the other side its own, so the slower one never asks while both live.
        .start_with(|side, connection| connection.dpd_delay = if side == Side::One { 1 } else { 2 });
    let watch = Watch::start(&pair.t);
    pair.up(Side::One);
    // A peer that answers checks lives on without traffic.
    pair.await_log_times("sending a liveness check", CHECKS);
    pair.await_sas(Side::One, 1, SOON);

    cut(&pair);
    for side in [Side::One, Side::Two] {
        pair.await_sas(side, 0, SOON);
    }
    pair.await_log("closed: no answer from 192.0.2.2:500 after 3 transmissions");
    nothing_passes(&pair);

    mend(&pair);
    pair.up(Side::Two);
    pair.ping_from(Side::One, Family::V4, 56);
    watch.saw_nothing();
}

/// charon's liveness checks get their answers: both sides keep their tunnel without traffic.
#[test]
fn a_strongswan_that_checks_us_finds_us_alive() {
    let mut pair = Scenario::new("asked", Kind::Strongswan)
        .start_with(|side, connection| connection.dpd_delay = if side == Side::Two { 1 } else { 0 });
    let watch = Watch::start(&pair.t);
    pair.up(Side::One);
    let up = |pair: &Pair| [Side::One, Side::Two].map(|side| spis(&pair.sas(side)));
    let before = up(&pair);
    // The third is answered only after the first two: its window is one.
    pair.two.process().wait_log("parsed INFORMATIONAL response 2", SOON).unwrap();
    assert_eq!(up(&pair), before);
    pair.ping_both_ways();
    watch.saw_nothing();
}

/// A charon that is cut off is found dead by our checks; it does not look, and still has its SA.
#[test]
#[ignore = "make test-all: the other peer"]
fn a_strongswan_that_is_cut_off_is_found_dead() {
    let mut pair = Scenario::new("dead", Kind::Strongswan)
        .impatient()
        .start_with(|side, connection| connection.dpd_delay = if side == Side::One { 1 } else { 0 });
    let watch = Watch::start(&pair.t);
    pair.up(Side::One);
    // As long as it answers, it lives.
    pair.await_log_times("sending a liveness check to 192.0.2.2:4500", CHECKS);
    for side in [Side::One, Side::Two] {
        pair.await_sas(side, 1, SOON);
    }
    cut(&pair);
    pair.await_sas(Side::One, 0, SOON);
    pair.await_log("closed: no answer from 192.0.2.2:4500 after 3 transmissions");
    pair.await_sas(Side::Two, 1, SOON);
    nothing_passes(&pair);

    // The new tunnel replaces what charon has left of the old one.
    mend(&pair);
    pair.up(Side::One);
    pair.ping_both_ways();
    watch.saw_nothing();
}

/// The SPIs by which both sides know an IKE SA.
fn spis(sas: &[IkeSa]) -> Vec<[String; 2]> {
    let spi = |sa: &IkeSa, key| sa.get(key).expect("an SPI").to_owned();
    sas.iter().map(|sa| ["initiator-spi", "responder-spi"].map(|key| spi(sa, key))).collect()
}

/// ESP that authenticates is a sign of life: no check is sent while it comes in. A gateway that had
/// no processor for two seconds checks all the same, so it may take some rounds until one is
/// without; if traffic were no sign of life, each would have two.
#[test]
fn traffic_saves_liveness_checks() {
    const ROUNDS: u32 = 20;
    let pair = Scenario::new("alive", Kind::Testudo).start_with(|side, connection| {
        connection.dpd_delay = if side == Side::One { 2 } else { 0 };
    });
    pair.up(Side::One);
    let ping = Ping { interval: Duration::from_millis(100), ..Ping::new(Side::Two.host(Family::V4)) };
    let checks = || pair.one.log().unwrap().matches("sending a liveness check").count();
    let round = ping.count(50);
    let is_quiet = || {
        let before = checks();
        let pong = round.run(&pair.t.client).unwrap();
        assert_eq!(pong.received, pong.sent);
        checks() == before
    };
    assert!((0..ROUNDS).any(|_| is_quiet()), "{} checks in {ROUNDS} rounds of traffic", checks());
}

#[test]
fn start_is_tried_until_it_succeeds() {
    let mut pair = Scenario::new("start", Kind::Testudo).impatient().start_empty();
    cut(&pair);
    let mut connection = Connection::of(Side::One, Family::V4);
    connection.more = vec!["keyingtries = 0".into()];
    connection.more_child = vec!["start_action = start".into()];
    // Loading does not wait for the tunnel.
    pair.one.swanctl().load(&connection.to_string()).unwrap();
    pair.await_log("trying again (3)");
    pair.swanctl(Side::Two).load(&Connection::of(Side::Two, Family::V4).to_string()).unwrap();
    mend(&pair);
    pair.await_sas(Side::One, 1, SOON);
    // Beside it the peer may have what came of earlier attempts, half open.
    assert_eq!(pair.sas(Side::Two).iter().filter(|sa| sa.is_up()).count(), 1);
    pair.ping_both_ways();
}

/// `start_action = trap`: the first packet of any host triggers the tunnel, even after the tunnel
/// has ended.
#[test]
fn a_trap_brings_the_tunnel_up_with_the_first_packet() {
    let pair = Scenario::new("trap", Kind::Strongswan).start_with(|side, connection| {
        if side == Side::One {
            connection.more_child = vec!["start_action = trap".into()];
        }
    });
    let watch = Watch::start(&pair.t);
    let server = Side::Two.host(Family::V6);
    assert_eq!(pair.sas(Side::One), []);
    for from in [&pair.t.client, &pair.t.gw1] {
        let _dropped = Ping::new(server).count(1).brief().run(from).unwrap();
        for side in [Side::One, Side::Two] {
            pair.await_sas(side, 1, SOON);
        }
        let pong = Ping::new(server).run(from).unwrap();
        assert_eq!(pong.received, pong.sent, "from {}", from.role());
        pair.swanctl(Side::Two).terminate("lab").unwrap();
        pair.await_sas(Side::One, 0, SOON);
    }
    assert!(pair.dropped("no_sa") >= 2);
    watch.saw_nothing();
}

/// `dpd_action = restart`: charon is cut off, found dead, and met again when the link is back.
#[test]
fn a_tunnel_to_strongswan_is_restarted_when_the_link_returns() {
    let mut pair = Scenario::new("restart", Kind::Strongswan).impatient().start_with(|side, connection| {
        if side == Side::One {
            connection.dpd_delay = 1;
            connection.more = vec!["keyingtries = 0".into()];
            connection.more_child = vec!["dpd_action = restart".into()];
        }
    });
    let watch = Watch::start(&pair.t);
    pair.up(Side::One);
    cut(&pair);
    pair.await_log("restarting CHILD_SA lab");
    pair.await_log("trying again (2)");
    nothing_passes(&pair);
    mend(&pair);
    wait_until("the tunnel", UP_LIMIT, || {
        let sas = pair.swanctl(Side::One).list_sas()?;
        Ok(if sas.iter().any(IkeSa::is_up) { Ok(()) } else { Err(format!("{sas:?}")) })
    })
    .unwrap();
    pair.ping_both_ways();
    watch.saw_nothing();
}

/// `close_action = start`: what charon deletes, the Child SA alone or all of it, comes up again.
#[test]
fn a_child_that_strongswan_closes_is_started_again() {
    let mut pair = Scenario::new("close", Kind::Strongswan).start_with(|side, connection| {
        if side == Side::One {
            connection.more_child = vec!["close_action = start".into()];
        }
    });
    let watch = Watch::start(&pair.t);
    pair.up(Side::One);
    for (what, number) in [("--child", 2), ("--ike", 3)] {
        pair.swanctl(Side::Two).run(["--terminate", what, "lab", "--timeout", "10"]).unwrap();
        pair.await_log(&format!("CHILD_SA lab{{{number}}} established"));
        pair.await_sas(Side::One, 1, SOON);
        pair.ping_both_ways();
    }
    watch.saw_nothing();
}

/// A peer that comes back knows of no SA (INITIAL_CONTACT, RFC 7296 §2.4): ours with it goes.
fn the_peer_begins_anew(pair: &mut Pair) {
    pair.up(Side::Two);
    let watch = Watch::start(&pair.t);
    restart_peer(pair);
    pair.swanctl(Side::Two).load(&Connection::of(Side::Two, Family::V4).to_string()).unwrap();
    pair.await_sas(Side::One, 1, SOON);
    pair.up(Side::Two);
    pair.await_log("closed: replaced: the peer started again");
    pair.ping_both_ways();
    watch.saw_nothing();
}

fn restart_peer(pair: &mut Pair) {
    pair.two.process().kill();
    match &mut pair.two {
        Gateway::Testudo(testudo) => testudo.restart().unwrap(),
        Gateway::Strongswan(_) => {
            pair.two = Gateway::Strongswan(Strongswan::start(&pair.t.gw2).unwrap());
        }
        Gateway::Guest(_) => panic!("a guest begins anew only by booting"),
    }
}

#[test]
#[ignore = "make test-all: the other peer"]
fn a_strongswan_that_begins_anew_replaces_its_old_tunnel() {
    the_peer_begins_anew(&mut Scenario::new("anew", Kind::Strongswan).start());
}

#[test]
fn a_testudo_that_begins_anew_replaces_its_old_tunnel() {
    the_peer_begins_anew(&mut Scenario::new("anew", Kind::Testudo).start());
}
