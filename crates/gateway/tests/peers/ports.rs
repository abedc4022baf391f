//! Interfaces that change while a daemon has them as ports.

use crate::common::{Pair, SOON, Scenario, each_ping};
use testudo_lab::gateway::Kind;
use testudo_lab::swanctl_conf::Connection;
use testudo_lab::topology::{Family, HOST, INNER, OUTER, Side, WIRE_PORTS};
use testudo_lab::{Namespace, wait_until};

fn set_queues(namespace: &Namespace, interface: &str, count: u32) {
    let count = count.to_string();
    namespace.run("ethtool", ["-L", interface, "rx", &count, "tx", &count]).unwrap();
}

/// Two gateways; the interfaces of ours have four queues, of which they use two at the start.
fn start() -> Pair {
    let scenario = Scenario::new("ports", Kind::Testudo).queues([4, 1]).prepare(|t| {
        set_queues(&t.client, HOST, 2);
        set_queues(&t.gw1, INNER, 2);
    });
    let pair = scenario.start();
    pair.up(Side::One);
    pair
}

/// A port reports changes that it cannot follow, and continues with its original settings.
#[test]
fn an_interface_that_grows_is_warned_of_and_goes_on_with_what_it_had() {
    let mut pair = start();
    let inner = [(&pair.t.gw1.clone(), INNER), (&pair.t.client.clone(), HOST)];
    inner.iter().for_each(|(namespace, interface)| set_queues(namespace, interface, 4));
    pair.await_log("port inner0: 4 receive queues, found 2 at the start");
    inner.iter().rev().for_each(|(namespace, interface)| set_queues(namespace, interface, 2));
    pair.ping_both_ways();
    let (gw1, gw2, wire) = (&pair.t.gw1, &pair.t.gw2, &pair.t.wire);
    for (namespace, interface) in
        [(wire, WIRE_PORTS[0]), (wire, WIRE_PORTS[1]), (wire, "br0"), (gw1, OUTER), (gw2, OUTER)]
    {
        namespace.ip(&format!("link set {interface} mtu 9000")).unwrap();
    }
    pair.await_log("port outer0: MTU 9000, and what was set up at the start takes 1600");
    let tun = format!("link show dev tu-{}", pair.t.gw1.lab().instance("gw1"));
    wait_until("a TUN that takes what ports can send", SOON, || {
        let shown = pair.t.gw1.ip(&tun)?.stdout;
        Ok(if shown.contains("mtu 1600") { Ok(()) } else { Err(shown) })
    })
    .unwrap();
    pair.ping_both_ways();
    // Its ESP is more than a port can send, and less than the link takes.
    let (to, from) = (Side::Two.host(Family::V4).to_string(), Side::One.inner(Family::V4).to_string());
    each_ping(&pair.t.gw1, 5, &["-M", "dont", "-s", "1560", "-I", &from, &to]).unwrap();
    assert_eq!(pair.dropped("tx_invalid"), 0);
}

/// The status of our gateway's port at that interface.
pub(crate) fn port(pair: &Pair, interface: &str) -> serde_json::Value {
    let status = pair.status(Side::One);
    let ports = status["counters"]["ports"].as_array().unwrap();
    ports.iter().find(|port| port["name"] == interface).unwrap().clone()
}

fn await_state(pair: &Pair, interface: &str, state: &str) -> serde_json::Value {
    wait_until(&format!("port {interface} to be {state}"), SOON, || {
        let port = port(pair, interface);
        Ok(if port["state"] == state { Ok(()) } else { Err(port.to_string()) })
    })
    .unwrap();
    port(pair, interface)
}

/// Makes an interface of our gateway again.
fn make(pair: &Pair, interface: &str) {
    match interface {
        INNER => pair.t.connect_inside(Side::One, &pair.options).unwrap(),
        OUTER => pair.t.connect_outside_again(Side::One, &pair.options).unwrap(),
        other => panic!("{other}"),
    }
}

/// Waits until the port is in use again, with its filter and its routes.
fn await_use(pair: &Pair, interface: &str) {
    let port = await_state(pair, interface, "up");
    assert_eq!((&port["filter"], &port["queues"]), (&"native".into(), &1.into()), "{port}");
    assert_eq!(port["mtu"], 1500, "{port}");
    wait_until("routes through the port", SOON, || {
        let port = self::port(pair, interface);
        Ok(if port["routes"].as_u64() >= Some(2) { Ok(()) } else { Err(port.to_string()) })
    })
    .unwrap();
}

/// Each goes and comes again under a running daemon, which has it carry again, with the SAs that
/// there were.
#[test]
fn an_interface_that_is_deleted_and_made_again_carries_again() {
    let mut pair = Scenario::new("again", Kind::Strongswan).start();
    pair.up(Side::One);
    pair.ping_both_ways();
    let spis = |pair: &Pair| pair.sas(Side::One)[0].children[0].get("spi-in").map(str::to_owned);
    let before = spis(&pair);
    assert!(before.is_some());
    for (interface, other) in [(INNER, OUTER), (OUTER, INNER), (INNER, OUTER)] {
        let was = port(&pair, interface);
        pair.t.delete(Side::One, interface).unwrap();
        let gone = await_state(&pair, interface, "missing");
        assert_eq!((&gone["filter"], &gone["queues"], &gone["routes"]), (&().into(), &0.into(), &0.into()));
        assert_eq!(port(&pair, other)["state"], "up");
        assert_eq!(gone["rx_packets"], was["rx_packets"], "what it has counted stays");
        make(&pair, interface);
        await_use(&pair, interface);
        assert_ne!(port(&pair, interface)["ifindex"], was["ifindex"]);
        // The peer knows the MAC address of before, until the gateway asks for the peer's.
        pair.ping_from(Side::One, Family::V4, 56);
        pair.ping_both_ways();
    }
    assert_eq!(spis(&pair), before, "no SA has been made anew");
    pair.await_log_times("port inner0: interface is gone; waiting for it", 2);
    pair.await_log_times("port inner0: interface is there after", 2);
    pair.await_log("port outer0: interface is gone; waiting for it");
    pair.one.stop().unwrap();
}

/// The daemon begins without one, and without any: it comes up, and uses each when it comes.
#[test]
fn a_daemon_waits_for_interfaces_that_are_missing_at_its_start() {
    let scenario = Scenario::new("late", Kind::Strongswan);
    let mut pair = scenario.prepare(|t| t.delete(Side::One, INNER).unwrap()).start();
    pair.await_log("port inner0: there is no interface of that name; waiting for it");
    assert_eq!(port(&pair, INNER)["state"], "missing");
    assert_eq!(port(&pair, OUTER)["state"], "up");
    // The outer one carries IKE and ESP already.
    pair.up(Side::One);
    make(&pair, INNER);
    await_use(&pair, INNER);
    pair.ping_both_ways();
    pair.one.stop().unwrap();

    for interface in [INNER, OUTER] {
        pair.t.delete(Side::One, interface).unwrap();
    }
    pair.one.restart().unwrap();
    for interface in [INNER, OUTER] {
        await_state(&pair, interface, "missing");
    }
    pair.swanctl(Side::One).load(&Connection::of(Side::One, Family::V4).to_string()).unwrap();
    for interface in [OUTER, INNER] {
        make(&pair, interface);
        await_use(&pair, interface);
    }
    pair.up(Side::One);
    pair.ping_both_ways();
}

/// A link that goes and comes is said once each, and shown.
#[test]
fn a_change_of_a_link_is_logged_once() {
    let mut pair = Scenario::new("links", Kind::Strongswan).start();
    let (client, line) = (pair.t.client.clone(), "port inner0: link is ");
    for (times, state) in [(1, "down"), (1, "up"), (2, "down"), (2, "up")] {
        client.ip(&format!("link set {HOST} {state}")).unwrap();
        await_state(&pair, INNER, if state == "up" { "up" } else { "link-down" });
        pair.await_log_times(&format!("{line}{state}"), times);
    }
    assert_eq!(pair.one.log().unwrap().matches(line).count(), 4);
}

/// An interface comes with fewer queues than workers need: that is said, with what to do, and the
/// port waits. One with enough is used.
#[test]
fn an_interface_that_comes_with_too_few_queues_is_said_and_waited_for() {
    let scenario = Scenario::new("narrow", Kind::Strongswan).large().settings("\n[worker]\ncount = 2\n");
    let scenario = scenario.queues([2, 1]).prepare(|t| t.delete(Side::One, INNER).unwrap());
    let mut pair = scenario.start();
    pair.up(Side::One);
    pair.options.queues = [1; 2];
    make(&pair, INNER);
    let waiting = await_state(&pair, INNER, "waiting");
    let why = "1 queues to receive by and 1 to send by, expected at least 2 of each";
    assert!(waiting["why"].as_str().is_some_and(|said| said.starts_with(why)), "{waiting}");
    assert_eq!((&waiting["filter"], &waiting["queues"]), (&"native".into(), &0.into()), "it fails closed");
    pair.await_log(&format!("port {INNER}: interface cannot be used yet: {why}"));
    assert_eq!(port(&pair, OUTER)["state"], "up");

    pair.t.delete(Side::One, INNER).unwrap();
    await_state(&pair, INNER, "missing");
    pair.options.queues = [2, 1];
    make(&pair, INNER);
    assert_eq!(await_state(&pair, INNER, "up")["queues"], 2);
    pair.ping_both_ways();
}
