//! A tunnel for everything, and what else a gateway has to do beside it.

use crate::common::{Pair, SOON, Scenario, Watch, counted, each_ping};
use serde_json::{Value, json};
use std::net::UdpSocket;
use testudo_lab::count::Counters;
use testudo_lab::gateway::Kind;
use testudo_lab::iperf::Direction;
use testudo_lab::ping::Ping;
use testudo_lab::streams::Streams;
use testudo_lab::swanctl_conf::Connection;
use testudo_lab::topology::{Family, OUTER, Side};
use testudo_lab::wait_until;

const FAMILIES: [Family; 2] = [Family::V4, Family::V6];

fn all() -> Vec<String> {
    vec!["0.0.0.0/0".into(), "::/0".into()]
}

/// Traffic of side one's network uses the tunnel, whatever its destination.
fn everything(side: Side, connection: &mut Connection) {
    match side {
        Side::One => connection.remote_ts = all(),
        Side::Two => connection.local_ts = all(),
    }
}

/// From gw2, with an address of its network, past its tunnel.
fn ping_in_clear(pair: &Pair, to: &str) -> String {
    let args = ["-n", "-c", "5", "-i", "0.05", "-W", "1", "-I", "10.2.0.1", to];
    pair.t.gw2.cmd("ping").args(args).run_any().unwrap().stdout
}

/// Leads what gw2 itself sends from its network to side one's past its tunnel.
fn lead_past_the_tunnel(pair: &Pair) {
    pair.t.gw2.ip("route add table 100 10.1.0.0/24 via 192.0.2.1").unwrap();
    pair.t.gw2.ip("rule add pref 100 from 10.2.0.1 to 10.1.0.0/24 lookup 100").unwrap();
}

/// Has gw1's kernel take in what comes to its own addresses by the port, as with every gateway
/// whose answers leave by the tunnel's interface; refuse what comes to the outer ones by another
/// way; and count echo requests.
fn watch_arrivals(pair: &Pair) {
    pair.t.gw1.sysctl(&[(&format!("net.ipv4.conf.{OUTER}.rp_filter"), "0")]).unwrap();
    let rules = format!(
        "table inet arrivals {{\n counter outer {{ }}\n counter inner {{ }}\n counter own {{ }}\n chain input {{\n \
         type filter hook input priority 0;\n \
         iifname != {{ \"lo\", \"{OUTER}\" }} ip daddr 192.0.2.1 drop\n \
         iifname != {{ \"lo\", \"{OUTER}\" }} ip6 daddr 2001:db8::1 drop\n \
         ip daddr 192.0.2.1 icmp type echo-request counter name outer\n \
         ip daddr 10.1.0.1 icmp type echo-request counter name inner\n \
         ip daddr 10.79.0.1 icmp type echo-request counter name own\n }}\n}}"
    );
    pair.t.gw1.run("nft", [rules.as_str()]).unwrap();
}

/// Echo requests that gw1's kernel has got so far.
fn arrived(pair: &Pair, counter: &str) -> u64 {
    counted(&pair.t.gw1, ["inet", "arrivals", counter])
}

/// A question of the gateway's own from its outer address, like one of DNS, and the answer to it.
fn ask(pair: &Pair, family: Family) {
    let bind =
        |addr| move || UdpSocket::bind((addr, 0)).and_then(|s| s.set_read_timeout(Some(SOON)).map(|()| s));
    let far = pair.t.server.enter(bind(Side::Two.host(family))).unwrap().unwrap();
    let own = pair.t.gw1.enter(bind(Side::One.outer(family))).unwrap().unwrap();
    own.send_to(b"question", far.local_addr().unwrap()).unwrap();
    let mut octets = [0; 16];
    let (len, from) = far.recv_from(&mut octets).unwrap();
    assert_eq!((&octets[..len], from), (&b"question"[..], own.local_addr().unwrap()));
    far.send_to(b"answer", from).unwrap();
    let (len, from) = own.recv_from(&mut octets).unwrap();
    assert_eq!((&octets[..len], from), (&b"answer"[..], far.local_addr().unwrap()));
}

/// From off-link to the outer address, and from there to others: neither is selected by the policy.
#[test]
fn a_tunnel_for_everything_does_not_cut_the_gateway_off() {
    let mut pair = Scenario::new("full-host", Kind::Testudo).start_with(everything);
    watch_arrivals(&pair);
    pair.up(Side::One);
    let watch = Watch::start(&pair.t);
    pair.ping_both_ways();
    watch.saw_nothing();
    for family in FAMILIES {
        let outer = Side::One.outer(family);
        let pong = Ping::new(outer).count(5).run(&pair.t.server).unwrap();
        assert_eq!(pong.received, 5, "{family}: drops {:?}", pair.drops(Side::One));
        Streams::one(Direction::Up, 1 << 20).carry(&pair.t.server, &pair.t.gw1, outer).unwrap();
        ask(&pair, family);
    }

    // The inner address is selected, whether a daemon runs or not.
    lead_past_the_tunnel(&pair);
    let is_shut = |pair: &Pair| {
        let (outer, inner) = (arrived(pair, "outer"), arrived(pair, "inner"));
        assert!(ping_in_clear(pair, "10.1.0.1").contains(" 0 received"));
        ping_in_clear(pair, "192.0.2.1");
        wait_until("five at the outer address", SOON, || {
            let now = arrived(pair, "outer") - outer;
            Ok(if now >= 5 { Ok(()) } else { Err(format!("{now}")) })
        })
        .unwrap();
        assert_eq!((arrived(pair, "outer") - outer, arrived(pair, "inner") - inner), (5, 0));
    };
    is_shut(&pair);
    pair.one.process().kill();
    is_shut(&pair);
    // Nor does a new daemon open it before it has the connection, and then.
    pair.one.restart().unwrap();
    is_shut(&pair);
    let mut connection = Connection::of(Side::One, Family::V4);
    everything(Side::One, &mut connection);
    pair.swanctl(Side::One).load(&connection.to_string()).unwrap();
    is_shut(&pair);
    // Unloaded by mistake.
    pair.swanctl(Side::One).load("connection {\n}\n").unwrap();
    is_shut(&pair);
}

/// Clear packets that a policy selects are dropped, and counted as such.
#[test]
fn clear_packets_that_a_tunnel_for_everything_selects_are_dropped() {
    let pair = Scenario::new("full", Kind::Testudo).start_with(everything);
    pair.up(Side::One);
    let watch = Watch::start(&pair.t);
    pair.ping_both_ways();
    watch.saw_nothing();
    let before = pair.dropped("clear_but_protected");
    lead_past_the_tunnel(&pair);
    for to in ["10.1.0.2", "10.1.0.1"] {
        let pinged = ping_in_clear(&pair, to);
        assert!(pinged.contains(" 0 received"), "{pinged}");
    }
    pair.await_dropped("clear_but_protected", before + 10);
}

/// A part of everything passes in clear: for all of our side, or for one host of it.
#[test]
fn a_bypass_inside_a_tunnel_for_everything_passes() {
    let pair = Scenario::new("full-pass", Kind::Testudo).start_empty();
    let load = |local: &str| {
        let mut connection = Connection::of(Side::One, Family::V4);
        everything(Side::One, &mut connection);
        let pass = ["mode = pass", "start_action = trap", local, "remote_ts = 10.2.0.0/24"];
        connection.children.push(("pass".into(), pass.map(String::from).into()));
        pair.swanctl(Side::One).load(&connection.to_string()).unwrap();
    };
    let words = ["-I", "10.1.0.1", "10.2.0.2"];
    load("local_ts = 10.1.0.0/24");
    pair.ping_from(Side::One, Family::V4, 1200);
    pair.ping_from(Side::Two, Family::V4, 1200);
    each_ping(&pair.t.gw1, 5, &words).unwrap();
    load("local_ts = 10.1.0.2/32");
    pair.ping_from(Side::One, Family::V4, 1200);
    pair.ping_from(Side::Two, Family::V4, 1200);
    let before = pair.dropped("no_sa");
    let in_vain = pair.t.gw1.cmd("ping").args(["-n", "-c", "5", "-i", "0.05", "-W", "2"]).args(words);
    assert!(in_vain.run_any().unwrap().stdout.contains(" 0 received"));
    pair.await_dropped("no_sa", before + 5);
}

/// A peer that asks a full tunnel for one network beside its own: what it sends there goes out here
/// by the default route, towards the peer too.
#[test]
fn a_full_tunnel_breaks_out_however_little_its_peer_asks_for() {
    let asked = |side: Side, connection: &mut Connection| match side {
        Side::One => connection.local_ts = all(),
        Side::Two => connection.remote_ts = vec!["10.1.0.0/24".into(), "203.0.113.0/24".into()],
    };
    let pair = Scenario::new("full-less", Kind::Testudo).start_with(asked);
    pair.t.gw1.route("default", &Side::Two.outer(Family::V4).to_string()).unwrap();
    pair.up(Side::Two);
    pair.ping_from(Side::Two, Family::V4, 1200);
    let counters = Counters::start(&pair.t.wire).unwrap();
    let pong = Ping::new("203.0.113.9".parse().unwrap()).count(5).brief().run(&pair.t.server).unwrap();
    assert_eq!(pong.received, 0, "nobody is there");
    wait_until("what breaks out", SOON, || {
        let out = counters.sent(Side::One)?.clear.packets;
        Ok(if out >= 5 { Ok(()) } else { Err(format!("{out} packets; drops {:?}", pair.drops(Side::One))) })
    })
    .unwrap();
    assert_eq!(pair.dropped("inner_route_lost"), 0);
}

/// A network whose child was unloaded stays shut beside a tunnel for everything, to what the
/// gateway itself sends from an address that no policy selects too.
#[test]
fn what_was_unloaded_beside_a_tunnel_for_everything_is_shut_to_the_gateway_too() {
    let mut pair = Scenario::new("full-gone", Kind::Testudo).start_empty();
    for network in ["10.77.0.0/16", "10.78.0.0/16"] {
        pair.t.gw1.route(network, &Side::Two.outer(Family::V4).to_string()).unwrap();
    }
    let mut connection = Connection::of(Side::One, Family::V4);
    everything(Side::One, &mut connection);
    let alone = connection.to_string();
    let other = ["local_ts = 10.1.0.0/24", "remote_ts = 10.77.0.0/16"].map(String::from);
    connection.children.push(("other".into(), other.into()));
    pair.swanctl(Side::One).load(&connection.to_string()).unwrap();
    pair.swanctl(Side::One).load(&alone).unwrap();

    let counters = Counters::start(&pair.t.wire).unwrap();
    let send = |pair: &Pair, to: &str| {
        let args = ["-n", "-c", "5", "-i", "0.05", "-W", "1", "-I", "192.0.2.1", to];
        pair.t.gw1.cmd("ping").args(args).run_any().unwrap();
    };
    let is_shut = |pair: &Pair| {
        let before = pair.dropped("no_policy");
        send(pair, "10.77.0.9");
        pair.await_dropped("no_policy", before + 5);
    };
    is_shut(&pair);
    pair.one.process().kill();
    pair.one.restart().unwrap();
    pair.swanctl(Side::One).load(&alone).unwrap();
    is_shut(&pair);
    assert_eq!(counters.sent(Side::One).unwrap().clear.packets, 0);

    // What the tunnel for everything alone holds back does leave, from that address.
    send(&pair, "10.78.0.9");
    wait_until("what leaves in clear", SOON, || {
        let out = counters.sent(Side::One)?.clear.packets;
        Ok(if out >= 5 { Ok(()) } else { Err(format!("{out} packets; drops {:?}", pair.drops(Side::One))) })
    })
    .unwrap();
}

/// An address of the gateway's own that a former tunnel for everything had on our side is let go
/// beside another such tunnel, which keeps its own side shut. It stays open after the daemon ends.
#[test]
fn an_own_address_is_released_beside_another_tunnel_for_everything() {
    let mut pair = Scenario::new("full-own", Kind::Testudo).start_empty();
    watch_arrivals(&pair);
    pair.t.gw1.ip("addr add 10.79.0.1/32 dev lo").unwrap();
    lead_past_the_tunnel(&pair);
    pair.t.gw2.ip("route add 10.79.0.1/32 via 192.0.2.1").unwrap();
    let mut connection = Connection::of(Side::One, Family::V4);
    everything(Side::One, &mut connection);
    let alone = connection.to_string();
    let other = ["local_ts = 10.79.0.1/32", "remote_ts = 0.0.0.0/0"].map(String::from);
    connection.children.push(("other".into(), other.into()));
    let arrive = |pair: &Pair| {
        let each = [("own", "10.79.0.1"), ("inner", "10.1.0.1")];
        each.map(|(counter, to)| {
            let before = arrived(pair, counter);
            ping_in_clear(pair, to);
            arrived(pair, counter) - before
        })
    };
    assert_eq!(arrive(&pair), [5, 5]);
    pair.swanctl(Side::One).load(&connection.to_string()).unwrap();
    assert_eq!(arrive(&pair), [0, 0]);
    let refused = |pair: &Pair, prefix: &str, why: &str| {
        let said = pair.one.release(prefix).unwrap_err().to_string();
        assert!(said.contains(why), "{said}");
    };
    refused(&pair, "10.79.0.1/32", "is protected by connection");
    pair.swanctl(Side::One).load(&alone).unwrap();
    assert_eq!(arrive(&pair), [0, 0]);

    // An operator finds what to release in the list.
    let own_sides = |pair: &Pair| -> Vec<Value> {
        let shown = pair.one.shut().unwrap();
        let rows = shown["prefixes"].as_array().unwrap().iter();
        rows.filter(|row| row["own_side"] == true).cloned().collect()
    };
    let [row] = own_sides(&pair).try_into().unwrap();
    assert_eq!((&row["prefix"], &row["reason"]), (&json!("10.79.0.1/32"), &json!("connection-changed")));
    assert_eq!((&row["name"], &row["protected_by"]), (&json!("lab"), &json!([])));
    assert!(row["since"].as_str().unwrap().ends_with('Z'), "{row}");

    refused(&pair, "10.1.0.0/24", "is protected by connection");
    pair.one.release("10.79.0.1/32").unwrap();
    assert_eq!(own_sides(&pair), Vec::<Value>::new());
    pair.await_log(
        "10.79.0.1/32 is released: what comes in clear to this host's addresses in it passes from now on",
    );
    assert_eq!(arrive(&pair), [5, 0]);
    refused(&pair, "10.79.0.1/32", "is protected by connection");
    pair.one.process().kill();
    assert_eq!(arrive(&pair), [5, 0]);
    pair.one.restart().unwrap();
    assert_eq!(arrive(&pair), [5, 0]);
}
