//! ICMP errors of a router behind the peer whose address no selector holds.

use crate::common::{Pair, Scenario, Watch};
use testudo_lab::gateway::Kind;
use testudo_lab::swanctl_conf::Connection;
use testudo_lab::topology::{Family, HOST, INNER, Side};
use testudo_lab::{Namespace, Topology};

const FAMILIES: [Family; 2] = [Family::V4, Family::V6];

/// The router's own address.
fn router(family: Family) -> &'static str {
    match family {
        Family::V4 => "10.9.0.1",
        Family::V6 => "fd00:9::1",
    }
}

/// A host of the second side's network that is not there: the router is on the way to it.
fn beyond(family: Family) -> &'static str {
    match family {
        Family::V4 => "10.2.0.200",
        Family::V6 => "fd00:2::8000:1",
    }
}

/// Makes the server a router with an address elsewhere.
fn make_router(t: &Topology) {
    t.server.forward().unwrap();
    t.server.sysctl(&[("net.ipv4.icmp_ratelimit", "0"), ("net.ipv6.icmp.ratelimit", "0")]).unwrap();
    for (family, version, bits) in [(Family::V4, "-4", 32), (Family::V6, "-6", 128)] {
        let ip = |ns: &Namespace, words: String| ns.ip(&format!("{version} route {words}")).unwrap();
        let (own, gateway) = (router(family), Side::Two.inner(family));
        t.server.address("lo", &format!("{own}/{bits}")).unwrap();
        ip(&t.server, format!("replace default via {gateway} dev {HOST} src {own}"));
        for to in [own, beyond(family)] {
            ip(&t.gw2, format!("add {to} via {} dev {INNER}", Side::Two.host(family)));
        }
    }
}

/// What ping says of three requests whose TTL ends at the router, behind two gateways.
fn heard(pair: &Pair, family: Family) -> String {
    let ping = pair.t.client.cmd("ping").args(["-n", "-c", "3", "-i", "0.2", "-W", "3", "-t", "3"]);
    ping.arg(beyond(family)).run_any().unwrap().stdout
}

/// Nothing is heard of the router, and that side drops its errors for that reason.
fn assert_silent(pair: &Pair, side: Side, reason: &str) {
    for family in FAMILIES {
        let before = pair.drops(side)[reason];
        let said = heard(pair, family);
        assert!(!said.contains("From "), "{family}: {said}");
        let dropped = pair.drops(side)[reason] - before;
        assert!(dropped >= 3, "{family}: {dropped} as {reason}, {:?}", pair.all_dropped());
    }
}

fn load(pair: &Pair, side: Side, line: &str) {
    let mut connection = Connection::of(side, Family::V4);
    connection.more_child.push(line.into());
    pair.swanctl(side).load(&connection.to_string()).unwrap();
}

/// With `icmp = yes` at both ends the client hears of the router; with less it does not. A change
/// holds for the SA that there is.
#[test]
fn errors_of_a_router_outside_of_the_selectors() {
    let pair = Scenario::new("icmp", Kind::Testudo).prepare(make_router).start();
    let watch = Watch::start(&pair.t);
    pair.up(Side::One);
    let spi = || pair.sas(Side::One)[0].children[0].get("spi-in").unwrap().to_owned();
    let first = spi();
    pair.ping_from(Side::One, Family::V4, 56);
    assert_silent(&pair, Side::Two, "no_policy");
    load(&pair, Side::Two, "icmp = yes");
    assert_silent(&pair, Side::One, "selector_mismatch");
    load(&pair, Side::One, "icmp = yes");
    for family in FAMILIES {
        let said = heard(&pair, family);
        let lines = said.lines().filter(|line| line.starts_with(&format!("From {}", router(family))));
        let exceeded = lines.filter(|line| line.contains("exceeded")).count();
        assert_eq!(exceeded, 3, "{family}: {said}; drops {:?}", pair.all_dropped());
    }
    load(&pair, Side::Two, "icmp = no");
    assert_silent(&pair, Side::Two, "no_policy");
    assert_eq!(spi(), first, "the SA is the one from before");
    watch.saw_nothing();
}
