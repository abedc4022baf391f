//! Selectors: what was not negotiated does not pass, and what is to be dropped enters no tunnel.

use crate::common::{Pair, SOON, Scenario, Watch};
use std::time::Duration;
use testudo_lab::download::Download;
use testudo_lab::gateway::Kind;
use testudo_lab::nginx::Nginx;
use testudo_lab::ping::Ping;
use testudo_lab::swanctl_conf::Connection;
use testudo_lab::topology::{Family, Side};
use testudo_lab::wait_until;

const FAMILIES: [Family; 2] = [Family::V4, Family::V6];
const LIMIT: Duration = Duration::from_secs(60);

/// Both networks, the second side's restricted by `limit`.
fn selectors(side: Side, limit: &str) -> Vec<String> {
    let restricted = |family| match side {
        Side::One => side.network(family),
        Side::Two => format!("{}{limit}", side.network(family)),
    };
    FAMILIES.map(restricted).to_vec()
}

/// A connection between the sides, the server's side of its child restricted.
fn restrict(side: Side, connection: &mut Connection, limit: &str) {
    connection.local_ts = selectors(side, limit);
    connection.remote_ts = selectors(side.other(), limit);
}

/// The connection with another child beside its own.
fn with_child(connection: &Connection, child: &str) -> String {
    connection.to_string().replacen("children {\n", &format!("children {{\n{child}\n"), 1)
}

/// A policy without SA, from the networks of `side`, about the server's side with that limit.
fn shunt(side: Side, mode: &str, limit: &str) -> String {
    let (local, remote) = (selectors(side, limit).join(","), selectors(side.other(), limit).join(","));
    format!("shunt {{\n mode = {mode}\n start_action = trap\n local_ts = {local}\n remote_ts = {remote}\n }}")
}

fn download(pair: &Pair, family: Family) -> u64 {
    Download::run(&pair.t.client, Side::Two.host(family), "file", LIMIT).unwrap().bytes
}

/// Pings of which none is answered.
fn ping_in_vain(pair: &Pair, from: Side, family: Family) {
    let pong = Ping::new(from.other().host(family)).count(5).brief().run(pair.t.host(from)).unwrap();
    assert_eq!((pong.sent, pong.received), (5, 0), "{family} from {from:?}");
}

/// A child for one port carries that port alone, both ways; everything else is discarded where it
/// would enter.
fn one_port_alone(peer: Kind) {
    let pair =
        Scenario::new("port", peer).start_with(|side, connection| restrict(side, connection, "[tcp/80]"));
    let watch = Watch::start(&pair.t);
    pair.up(Side::One);
    let nginx = Nginx::start(&pair.t.server).unwrap();
    nginx.add_file("file", 1 << 20, 1).unwrap();
    // strongSwan forwards packets without a policy in clear; that is not the subject here.
    let sides = if peer == Kind::Testudo { &[Side::One, Side::Two][..] } else { &[Side::One] };
    let discarded = || -> Vec<u64> { sides.iter().map(|side| pair.drops(*side)["no_policy"]).collect() };
    let expected: Vec<u64> = discarded().into_iter().map(|count| count + 10).collect();
    for family in FAMILIES {
        assert_eq!(download(&pair, family), 1 << 20);
        sides.iter().for_each(|side| ping_in_vain(&pair, *side, family));
    }
    // On a busy machine a ping may still be on its way.
    wait_until("ten packets that no policy is about", SOON, || {
        let found = discarded();
        Ok(if found == expected { Ok(()) } else { Err(format!("{found:?}, expected {expected:?}")) })
    })
    .unwrap();
    watch.saw_nothing();
}

#[test]
fn one_port_alone_with_strongswan() {
    one_port_alone(Kind::Strongswan);
}

#[test]
#[ignore = "make test-all: the other peer"]
fn one_port_alone_with_testudo() {
    one_port_alone(Kind::Testudo);
}

/// The peer takes less than we offer (RFC 7296 §2.9): the rest of our policy has no SA, and does
/// not pass.
#[test]
fn traffic_that_the_peer_narrows_away_does_not_pass() {
    for peer in [Kind::Strongswan, Kind::Testudo] {
        let pair = Scenario::new("narrow", peer).start_with(|side, connection| {
            if side == Side::Two {
                connection.local_ts = vec!["10.2.0.0/30".into(), "fd00:2::/126".into()];
            }
        });
        let watch = Watch::start(&pair.t);
        pair.up(Side::One);
        let negotiated = pair.sas(Side::One)[0].children[0].get("remote-ts").unwrap_or_default().to_owned();
        assert_eq!(negotiated, "10.2.0.0/30 fd00:2::/126");
        for family in FAMILIES {
            pair.ping_from(Side::One, family, 56);
            let before = pair.dropped("no_sa");
            let beyond = match family {
                Family::V4 => "10.2.0.4",
                Family::V6 => "fd00:2::4",
            };
            let pong = Ping::new(beyond.parse().unwrap()).count(5).brief().run(&pair.t.client).unwrap();
            assert_eq!((pong.sent, pong.received), (5, 0), "{peer}, {family}");
            pair.await_dropped("no_sa", before + 5);
        }
        watch.saw_nothing();
    }
}

/// A part of what is protected may be dropped: it enters no tunnel.
#[test]
fn traffic_of_a_drop_policy_is_dropped() {
    let pair = Scenario::new("drop", Kind::Testudo).start_empty();
    for side in [Side::One, Side::Two] {
        let shunt = shunt(side, "drop", "[tcp/80]").replace("mode", "priority = 10\n mode");
        pair.swanctl(side).load(&with_child(&Connection::of(side, Family::V4), &shunt)).unwrap();
    }
    let watch = Watch::start(&pair.t);
    pair.up(Side::One);
    let _nginx = Nginx::start(&pair.t.server).unwrap();
    let before = pair.dropped("policy_discard");
    for family in FAMILIES {
        let host = match family {
            Family::V4 => "10.2.0.2".to_owned(),
            Family::V6 => "[fd00:2::2]".to_owned(),
        };
        let args = ["-sS", "--noproxy", "*", "--connect-timeout", "1", &format!("http://{host}/")];
        let done = pair.t.client.cmd("curl").args(args).run_any().unwrap();
        assert_eq!(done.status.code(), Some(28), "curl: timed out; {}", done.stderr);
    }
    assert!(pair.dropped("policy_discard") >= before + 2);
    pair.ping_both_ways();
    watch.saw_nothing();
}

/// A part of what is protected may pass in clear: the answers come back, also to the gateway
/// itself, and the rest stays protected.
#[test]
fn traffic_of_a_pass_policy_is_answered() {
    let pair = Scenario::new("pass", Kind::Testudo).start_empty();
    let mut connection = Connection::of(Side::One, Family::V4);
    connection.remote_ts = vec!["10.0.0.0/8".into(), "fd00::/16".into()];
    let shunt = shunt(Side::One, "pass", "");
    pair.swanctl(Side::One).load(&with_child(&connection, &shunt)).unwrap();
    for family in FAMILIES {
        pair.ping_from(Side::One, family, 1200);
        pair.ping_from(Side::Two, family, 1200);
        let own = Ping::new(Side::Two.host(family)).run(&pair.t.gw1).unwrap();
        assert_eq!(own.received, own.sent, "{family} from the gateway");
        let before = pair.dropped("no_sa");
        let beyond = match family {
            Family::V4 => "10.3.0.2",
            Family::V6 => "fd00:3::2",
        };
        let pong = Ping::new(beyond.parse().unwrap()).count(5).brief().run(&pair.t.client).unwrap();
        assert_eq!(pong.received, 0);
        pair.await_dropped("no_sa", before + 5);
    }
}
