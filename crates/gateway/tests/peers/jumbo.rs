//! Networks with an MTU of 9000: packets that no single chunk of AF_XDP holds.

use crate::common::{Pair, SOON, Scenario, Watch};
use crate::mtu::{headers, ping, pings_pass};
use crate::ports::port;
use testudo_lab::gateway::Kind;
use testudo_lab::swanctl_conf::Connection;
use testudo_lab::topology::{Family, HOST, INNER, OUTER, Side};
use testudo_lab::wait_until;

const MTU: u16 = 9000;
const SIDES: [Side; 2] = [Side::One, Side::Two];

/// The largest packet that fits into one ESP packet of that size; see [`crate::mtu`].
fn largest(outer: Family, mtu: u16) -> u32 {
    let header = match outer {
        Family::V4 => 20,
        Family::V6 => 40,
    };
    (u32::from(mtu) - header - 32) / 4 * 4 - 2
}

fn passes(pair: &Pair, from: Side, inner: Family, packet: u32) {
    pings_pass(pair, from, inner, packet - headers(inner), "do");
}

/// Nothing was lost in the ports, and all packets are accounted for.
fn check(pair: &Pair, sides: &[Side]) {
    for side in sides {
        let status = pair.status(*side);
        let counters = &status["counters"];
        for name in ["rx_not_joined", "tx_invalid", "rx_dropped"] {
            assert!(counters["drops"][name].as_u64().unwrap_or(0) == 0, "{side:?}: {name}: {counters}");
        }
    }
}

fn everywhere(outer: Family) {
    let scenario = Scenario::new("jumbo", Kind::Testudo).outer(outer);
    let pair = scenario.inner_mtu(MTU).outer_mtu(MTU).start();
    pair.up(Side::One);
    let watch = Watch::start(&pair.t);
    let fitting = largest(outer, MTU);
    for from in SIDES {
        for inner in [Family::V4, Family::V6] {
            // Around the ends of chunks, with and without room for a trailer there, and of the path.
            for packet in [1500, 3600, 3648, 3650, 3680, 3698, 3700, 3712, 4000, 7400, 8192, 8900, fitting] {
                passes(&pair, from, inner, packet);
            }
            let said = ping(&pair, from, inner, fitting + 1 - headers(inner), "do");
            assert!(
                said.contains(&format!("mtu = {fitting}")) || said.contains(&format!("mtu={fitting}")),
                "{said}"
            );
        }
        // Fragments of 9000 octets.
        pings_pass(&pair, from, Family::V4, 30_000, "dont");
    }
    for inner in [Family::V4, Family::V6] {
        pair.tcp_both_ways(inner);
    }
    check(&pair, &[Side::One, Side::Two]);
    watch.saw_nothing();
}

#[test]
fn jumbo_over_ipv4() {
    everywhere(Family::V4);
}

#[test]
#[ignore = "make test-all: the other family"]
fn jumbo_over_ipv6() {
    everywhere(Family::V6);
}

/// The untrusted network takes a sixth of what the protected ones do.
#[test]
fn jumbo_inside_only() {
    let pair = Scenario::new("jumbo", Kind::Testudo).inner_mtu(MTU).start();
    pair.up(Side::One);
    // Before any host has learned the fitting size.
    for inner in [Family::V4, Family::V6] {
        pair.tcp_both_ways(inner);
    }
    let fitting = largest(Family::V4, 1500);
    for from in [Side::One, Side::Two] {
        pings_pass(&pair, from, Family::V4, 8000, "dont");
        for inner in [Family::V4, Family::V6] {
            passes(&pair, from, inner, fitting);
            let said = ping(&pair, from, inner, 8000, "do");
            assert!(
                said.contains(&format!("mtu = {fitting}")) || said.contains(&format!("mtu={fitting}")),
                "{said}"
            );
        }
    }
    let totals = &pair.one.status().unwrap()["counters"]["totals"];
    assert!(totals["split"].as_u64() > Some(0) && totals["mss_clamped"].as_u64() > Some(0), "{totals}");
    check(&pair, &[Side::One, Side::Two]);
}

#[test]
fn jumbo_outside_only() {
    let pair = Scenario::new("jumbo", Kind::Testudo).outer_mtu(MTU).start();
    pair.up(Side::One);
    for from in [Side::One, Side::Two] {
        for inner in [Family::V4, Family::V6] {
            passes(&pair, from, inner, 1500);
        }
    }
    check(&pair, &[Side::One, Side::Two]);
}

/// libipsec takes packets of that size too; its own interface asks for smaller ones.
#[test]
fn jumbo_with_strongswan() {
    let pair = Scenario::new("jumbo", Kind::Strongswan).inner_mtu(MTU).outer_mtu(MTU).start();
    pair.up(Side::One);
    for packet in [1000, 3700, 5000, 8900] {
        pings_pass(&pair, Side::One, Family::V4, packet - headers(Family::V4), "dont");
    }
    pair.tcp_both_ways(Family::V4);
    check(&pair, &[Side::One]);
}

/// Makes the inner interface of our gateway again, as [`testudo_lab::Topology::connect_inside`] does,
/// but leaves its MTU alone.
fn connect_inside(pair: &Pair) {
    let (gateway, side) = (&pair.t.gw1, Side::One);
    let mut of_host = vec![
        format!("link add {HOST} type veth peer name {INNER} netns {}", gateway.name()),
        format!("link set {HOST} mtu {MTU} up"),
    ];
    let mut of_gateway = vec![format!("link set {INNER} up")];
    for (family, prefix) in [(Family::V4, "24"), (Family::V6, "64 nodad")] {
        of_gateway.push(format!("address add {}/{prefix} dev {INNER}", side.inner(family)));
        of_host.push(format!("address add {}/{prefix} dev {HOST}", side.host(family)));
        of_host.push(format!("route add default via {}", side.inner(family)));
    }
    pair.t.client.ip_each(of_host).unwrap();
    gateway.ip_each(of_gateway).unwrap();
}

/// The gateway's interfaces have 1500 where all others have 9000. `testudo.toml` gives them 9000, at
/// the start, and when one comes again.
#[test]
fn ports_are_given_their_mtu() {
    let scenario = Scenario::new("jumbo-mtu", Kind::Testudo).inner_mtu(MTU).outer_mtu(MTU);
    let small = scenario.prepare(|t| {
        for interface in [INNER, OUTER] {
            t.gw1.ip(&format!("link set {interface} mtu 1500")).unwrap();
        }
    });
    let mut pair = small.start();
    pair.one.stop().unwrap();
    let with_mtu = |text: String, interface: &str| {
        let port = format!("interface = \"{interface}\"\n");
        text.replace(&port, &format!("{port}mtu = {MTU}\n"))
    };
    pair.one.reconfigure(|text| with_mtu(with_mtu(text, INNER), OUTER)).unwrap();
    pair.one.restart().unwrap();
    for interface in [INNER, OUTER] {
        pair.await_log(&format!("port {interface}: MTU changed from 1500 to {MTU}"));
    }
    pair.await_sas(Side::Two, 0, SOON);
    pair.swanctl(Side::One).load(&Connection::of(Side::One, Family::V4).to_string()).unwrap();
    pair.up(Side::One);
    let fitting = largest(Family::V4, MTU);
    let all_pass = |pair: &Pair| {
        for from in SIDES {
            for inner in [Family::V4, Family::V6] {
                passes(pair, from, inner, fitting);
            }
        }
    };
    all_pass(&pair);

    pair.t.delete(Side::One, INNER).unwrap();
    pair.await_log(&format!("port {INNER}: interface is gone"));
    connect_inside(&pair);
    pair.await_log_times(&format!("port {INNER}: MTU changed from 1500 to {MTU}"), 2);
    wait_until("routes through the port", SOON, || {
        let port = port(&pair, INNER);
        let is_used = port["mtu"] == MTU && port["state"] == "up" && port["routes"].as_u64() >= Some(2);
        Ok(if is_used { Ok(()) } else { Err(port.to_string()) })
    })
    .unwrap();
    pair.ping_from(Side::One, Family::V4, 56);
    pair.ping_both_ways();
    all_pass(&pair);
    check(&pair, &SIDES);

    // One that has it is left alone, and it stays when the daemon ends.
    pair.one.stop().unwrap();
    pair.one.restart().unwrap();
    assert!(!pair.one.log().unwrap().contains("MTU changed"));
}
