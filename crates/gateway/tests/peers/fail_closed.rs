//! Clear text never leaves a protected path: not before the tunnel is there, not while the daemon
//! dies under traffic, not after its death, not while a new one takes over. And the instruments do
//! see clear text where there is some.

use crate::common::{Pair, SOON, Scenario, Watch, at_once, each_ping, nothing_is_left};
use testudo_lab::capture::Capture;
use testudo_lab::count::Counters;
use testudo_lab::gateway::{Gateway, Kind};
use testudo_lab::iperf::IperfServer;
use testudo_lab::ping::Ping;
use testudo_lab::process::Process;
use testudo_lab::swanctl_conf::Connection;
use testudo_lab::topology::{Family, INNER, OUTER, Side};
use testudo_lab::wait_until;

const FAMILIES: [Family; 2] = [Family::V4, Family::V6];

/// Unanswered pings, from the client and from the gateway itself, to protected hosts.
fn nobody_gets_through(pair: &Pair) {
    at_once(FAMILIES.map(|family| {
        move || {
            let server = Side::Two.host(family);
            at_once([&pair.t.client, &pair.t.gw1].map(|from| {
                move || {
                    let pong = Ping::new(server).count(5).brief().run(from).unwrap();
                    assert_eq!((pong.sent, pong.received), (5, 0), "{family} from {}", from.role());
                }
            }));
            // With a source that no policy covers, too.
            let outer = Side::One.outer(family).to_string();
            let args = ["-n", "-c", "3", "-i", "0.02", "-W", "1", "-I", &outer, &server.to_string()];
            let done = pair.t.gw1.cmd("ping").args(args).run_any().unwrap();
            assert!(!done.status.success() && !done.stdout.contains("3 packets transmitted, 3 received"));
        }
    }));
}

/// Prefixes of an earlier run that no connection has claimed.
fn inherited(pair: &Pair) -> String {
    pair.one.status().unwrap()["counters"]["inherited"].to_string()
}

/// Load in both directions and both families for as long as it lives.
fn load(pair: &Pair) -> (IperfServer, Vec<Process>) {
    let server = IperfServer::start(&pair.t.server).unwrap();
    let client = &pair.t.client;
    let v4 = Side::Two.host(Family::V4).to_string();
    let v6 = Side::Two.host(Family::V6).to_string();
    let iperf = client.cmd("iperf3").args(["--client", &v4, "--bidir", "--time", "60"]);
    let flood = client.cmd("ping").args(["-n", "-q", "-f", &v6]);
    let own = pair.t.gw1.cmd("ping").args(["-n", "-q", "-i", "0.002", &v4]);
    let load = vec![
        client.start("iperf3-client", iperf).unwrap(),
        client.start("flood", flood).unwrap(),
        pair.t.gw1.start("own-ping", own).unwrap(),
    ];
    let sent = || pair.t.gw1.statistic(OUTER, "tx_packets");
    let begin = sent().unwrap();
    wait_until("the load to flow", SOON, || {
        let flown = sent()? - begin;
        Ok(if flown > 1000 { Ok(()) } else { Err(format!("{flown} packets")) })
    })
    .unwrap();
    (server, load)
}

#[test]
fn nothing_leaves_when_the_daemon_is_killed_under_traffic() {
    let mut pair = Scenario::new("kill", Kind::Testudo).start();
    pair.up(Side::One);
    let watch = Watch::start(&pair.t);
    let load = load(&pair);
    let before = watch.esp_packets();
    pair.one.process().kill();
    // The load continues: ping sends a hundred a second without answers.
    let came = || pair.t.gw1.statistic(INNER, "rx_packets");
    let begin = came().unwrap();
    wait_until("clear packets at the dead gateway", SOON, || {
        let more = came()? - begin;
        Ok(if more > 200 { Ok(()) } else { Err(format!("{more} packets")) })
    })
    .unwrap();
    nobody_gets_through(&pair);
    assert!(watch.esp_packets() > before, "there was no traffic to protect");

    // A new daemon inherits the shut prefixes, and keeps them shut.
    pair.one.restart().unwrap();
    for family in FAMILIES {
        let prefix = Side::Two.network(family);
        assert!(inherited(&pair).contains(&prefix), "{}", inherited(&pair));
    }
    nobody_gets_through(&pair);

    // With the connection it is shut as before, and open to the tunnel once that is there.
    pair.swanctl(Side::One).load(&Connection::of(Side::One, Family::V4).to_string()).unwrap();
    assert_eq!(inherited(&pair), "[]");
    nobody_gets_through(&pair);
    drop(load);
    pair.swanctl(Side::One).initiate("lab", SOON).unwrap();
    pair.ping_both_ways();
    let own = Ping::new(Side::Two.host(Family::V4)).run(&pair.t.gw1).unwrap();
    assert_eq!(own.received, own.sent);
    watch.saw_nothing();
}

/// A connection that cannot be used, and is refused, takes nothing with it: neither what the one in
/// its place protects nor what an earlier run protected.
#[test]
fn a_refused_connection_opens_nothing() {
    let mut pair = Scenario::new("refused", Kind::Testudo).start();
    let watch = Watch::start(&pair.t);
    let flood = pair.t.client.cmd("ping").args(["-n", "-q", "-f", &Side::Two.host(Family::V4).to_string()]);
    let _flood = pair.t.client.start("flood", flood).unwrap();
    let refuse = |pair: &Pair, remote_ts: &str| {
        let mut connection = Connection::of(Side::One, Family::V4);
        connection.remote_ts = vec![remote_ts.into()];
        connection.more_child.push("start_action = trap".into());
        let anybody = connection.to_string().replace("remote_addrs = 192.0.2.2", "remote_addrs = %any");
        let said = pair.swanctl(Side::One).load(&anybody).unwrap_err().to_string();
        assert!(said.contains("the connection has no remote address"), "{said}");
        nobody_gets_through(pair);
    };
    refuse(&pair, "10.77.0.0/16");

    pair.one.process().kill();
    pair.one.restart().unwrap();
    let before = inherited(&pair);
    assert!(before.contains(&Side::Two.network(Family::V4)), "{before}");
    refuse(&pair, &Side::Two.network(Family::V4));
    assert_eq!(inherited(&pair), before);
    watch.saw_nothing();
}

/// After a restart our own side is no more shut than before, though the peer's lies around it: a
/// host behind another router, which no connected prefix covers, gets through as soon as the tunnel
/// is up again.
#[test]
fn a_restart_remembers_which_side_is_ours() {
    let mut pair = Scenario::new("own-side", Kind::Testudo).start_empty();
    let sides = |connection: &mut Connection, local: &str, remote: &str| {
        (connection.local_ts, connection.remote_ts) = (vec![local.into()], vec![remote.into()]);
    };
    let [mut one, mut two] = [Side::One, Side::Two].map(|side| Connection::of(side, Family::V4));
    sides(&mut one, "10.1.0.0/16", "10.0.0.0/8");
    sides(&mut two, "10.0.0.0/8", "10.1.0.0/16");
    pair.t.client.address("lo", "10.1.7.7/32").unwrap();
    pair.t.gw1.route("10.1.7.0/24", "10.1.0.2").unwrap();
    let watch = Watch::start(&pair.t);
    let ping = |pair: &Pair| {
        let answered = each_ping(&pair.t.client, 5, &["-I", "10.1.7.7", "10.2.0.2"]);
        assert_eq!(answered, Ok(()), "drops {:?}", pair.drops(Side::One));
    };
    pair.swanctl(Side::Two).load(&two.to_string()).unwrap();
    pair.swanctl(Side::One).load(&one.to_string()).unwrap();
    pair.up(Side::One);
    ping(&pair);

    pair.one.process().kill();
    pair.one.restart().unwrap();
    assert_eq!(inherited(&pair), r#"["10.0.0.0/8"]"#);
    pair.swanctl(Side::One).load(&one.to_string()).unwrap();
    assert_eq!(inherited(&pair), "[]");
    pair.swanctl(Side::One).initiate("lab", SOON).unwrap();
    ping(&pair);
    watch.saw_nothing();
}

/// Rules or routes that are removed by hand, or by a network manager, are restored within a second
/// or two.
#[test]
fn rules_and_routes_that_are_deleted_come_back() {
    let mut pair = Scenario::new("reassert", Kind::Testudo).start();
    let lists = ["-4 rule", "-6 rule", "-4 route show table 220", "-6 route show table 220"];
    let shown = |pair: &Pair| lists.map(|words| pair.t.gw1.ip(words).unwrap().stdout);
    let before = shown(&pair);
    assert!(before.iter().all(|list| list.contains("220") || list.contains("unreachable")), "{before:?}");
    for family in ["-4", "-6"] {
        pair.t.gw1.ip(&format!("{family} rule delete pref 220")).unwrap();
        pair.t.gw1.ip(&format!("{family} route flush table 220")).unwrap();
    }
    wait_until("rules and routes to be back", SOON, || {
        let now = shown(&pair);
        Ok(if now == before { Ok(()) } else { Err(format!("{now:?}")) })
    })
    .unwrap();
    let watch = Watch::start(&pair.t);
    nobody_gets_through(&pair);
    pair.await_log("routes of table 220 were missing; restored them");
    // The tunnel carries the gateway's own packets as before.
    pair.up(Side::One);
    for family in FAMILIES {
        let own = Ping::new(Side::Two.host(family)).run(&pair.t.gw1).unwrap();
        assert_eq!(own.received, own.sent, "{family}");
    }
    watch.saw_nothing();
}

/// The link inside goes down, and with it the route: what the tunnel brings must not follow the
/// default route back out in clear.
#[test]
fn nothing_is_turned_round_when_the_link_inside_goes_down() {
    let pair = Scenario::new("turned-round", Kind::Testudo).start();
    for family in FAMILIES {
        pair.t.gw1.route("default", &Side::Two.outer(family).to_string()).unwrap();
    }
    pair.up(Side::One);
    pair.ping_both_ways();
    let watch = Watch::start(&pair.t);
    pair.t.gw1.ip(&format!("link set {INNER} down")).unwrap();
    let mut sent = 0;
    for family in FAMILIES {
        let pong = Ping::new(Side::One.host(family)).count(10).brief().run(&pair.t.server).unwrap();
        assert_eq!(pong.received, 0);
        sent += u64::from(pong.sent);
    }
    // Those that came before the routes were gone had no neighbour.
    let drops = pair.drops(Side::One);
    assert!(drops["inner_route_lost"] > 0 && drops["inner_route_lost"] <= sent, "{drops:?}");
    watch.saw_nothing();
}

/// If the routes for an SA's prefix cannot be created, the SA is deleted. IKE continues.
#[test]
fn an_sa_that_cannot_be_guarded_is_taken_down() {
    let pair = Scenario::new("unguarded", Kind::Testudo).start_empty();
    // A peer from anywhere: what its SA takes is known when it comes, and has to be held back from
    // then on.
    let roaming = |side: Side, selectors: &str| {
        let connection = Connection::of(side, Family::V4).to_string();
        let child = format!("children {{\n roaming {{\n {selectors}\n esp_proposals = aes128gcm16\n }}\n");
        connection.replacen("children {\n", &child, 1)
    };
    let one = roaming(Side::One, "local_ts = 10.1.0.0/24");
    pair.swanctl(Side::One).load(&one.replace("remote_addrs = 192.0.2.2", "remote_addrs = %any")).unwrap();
    pair.swanctl(Side::Two).load(&roaming(Side::Two, "remote_ts = 10.1.0.0/24")).unwrap();
    let watch = Watch::start(&pair.t);
    let links = pair.t.gw1.ip("-br link show type tun").unwrap().stdout;
    let tun = links.split_whitespace().next().unwrap();
    let child_goes = || {
        wait_until("the child to go", SOON, || {
            let sas = pair.sas(Side::Two);
            let gone = matches!(sas.as_slice(), [sa] if sa.state == "ESTABLISHED" && sa.children.is_empty());
            Ok(if gone { Ok(()) } else { Err(format!("{sas:?}")) })
        })
        .unwrap();
    };

    pair.t.gw1.ip(&format!("link set {tun} down")).unwrap();
    pair.swanctl(Side::Two).initiate("roaming", SOON).unwrap();
    child_goes();
    pair.await_said("cannot install child roaming: cannot set the route to ");
    let words = ["-I", "192.0.2.2", "10.1.0.2"];
    let in_vain = pair.t.gw2.cmd("ping").args(["-n", "-c", "3", "-i", "0.05", "-W", "1"]).args(words);
    assert!(in_vain.run_any().unwrap().stdout.contains(" 0 received"));

    pair.t.gw1.ip(&format!("link set {tun} up")).unwrap();
    wait_until("the routes to be back", SOON, || {
        let routes = pair.t.gw1.ip("route show table 220")?.stdout;
        Ok(if routes.contains(tun) { Ok(()) } else { Err(routes) })
    })
    .unwrap();
    pair.swanctl(Side::Two).initiate("roaming", SOON).unwrap();
    each_ping(&pair.t.gw2, 3, &words).unwrap();
    watch.saw_nothing();
}

/// A mistake in its file makes swanctl unload a connection: that opens nothing. A connection that
/// lets the prefix pass does.
#[test]
fn an_unloaded_connection_opens_nothing() {
    let mut pair = Scenario::new("unloaded", Kind::Testudo).start();
    let watch = Watch::start(&pair.t);
    for side in [Side::One, Side::Two] {
        let said = pair.swanctl(side).load("connection {\n}\n").unwrap().stdout;
        assert!(said.contains("1 unloaded"), "{said}");
    }
    nobody_gets_through(&pair);
    pair.await_log("10.2.0.0/24 is protected by no connection any more: it stays shut");
    watch.saw_nothing();

    for side in [Side::One, Side::Two] {
        let [local, remote] =
            [side, side.other()].map(|side| FAMILIES.map(|family| side.network(family)).join(","));
        let child =
            format!("mode = pass\n start_action = trap\n local_ts = {local}\n remote_ts = {remote}\n");
        let auth = "local {\n auth = psk\n }\n remote {\n auth = psk\n }\n";
        let open =
            format!("connections {{\n open {{\n {auth} children {{\n open {{\n {child} }}\n }}\n }}\n}}\n");
        pair.swanctl(side).load(&open).unwrap();
    }
    assert_eq!(inherited(&pair), "[]");
    pair.ping_both_ways();
}

/// The list of `testudo shut`: prefixes with reason and name.
fn shut(pair: &Pair) -> Vec<(String, String, String)> {
    let shown = pair.one.shut().unwrap();
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let each = shown["prefixes"].as_array().unwrap().iter().map(|shut| {
        let since = text(&shut["since"]);
        assert!(since.len() == 20 && since.ends_with('Z') && since.contains('T'), "{since:?} is no RFC 3339");
        (text(&shut["prefix"]), text(&shut["reason"]), text(&shut["name"]))
    });
    each.collect()
}

/// Whether clear traffic of the client gets through to that network, and comes back.
fn passes(pair: &Pair) -> Vec<bool> {
    at_once(FAMILIES.map(|family| {
        move || {
            let pong = Ping::new(Side::Two.host(family)).count(5).brief().run(&pair.t.client).unwrap();
            assert!([0, pong.sent].contains(&pong.received), "{} of {}", pong.received, pong.sent);
            pong.received > 0
        }
    }))
}

/// A connection is unloaded for good. What it protected stays shut, and is listed; an operator lets
/// one prefix after the other go, while the daemon runs, and they stay open after it.
#[test]
fn shut_prefixes_are_listed_and_released_without_a_restart() {
    let mut pair = Scenario::new("released", Kind::Strongswan).start();
    pair.up(Side::One);
    let [v4, v6] = FAMILIES.map(|family| Side::Two.network(family));
    let refused = |pair: &Pair, prefix: &str, why: &str| {
        let said = pair.one.release(prefix).unwrap_err().to_string();
        assert!(said.contains(why), "{said}");
    };
    let watch = Watch::start(&pair.t);
    assert_eq!(shut(&pair), []);
    refused(&pair, &v4, "is protected by connection lab: ");
    for side in [Side::One, Side::Two] {
        let said = pair.swanctl(side).load("connection {\n}\n").unwrap().stdout;
        assert!(said.contains("1 unloaded"), "{said}");
    }
    let unloaded = |prefix: &String| (prefix.clone(), "connection-unloaded".to_owned(), "lab".to_owned());
    assert_eq!(shut(&pair), [&v4, &v6].map(unloaded));
    refused(&pair, &v4, "is protected by a Child SA of connection lab: ");
    pair.swanctl(Side::One).terminate("lab").unwrap();
    pair.await_sas(Side::Two, 0, SOON);
    nobody_gets_through(&pair);
    refused(&pair, "10.2.0.0/25", &format!("lies in {v4}, which stays shut"));
    refused(&pair, "10.0.0.0/8", "is not shut");
    refused(&pair, "10.2.0.1/24", "expected 10.2.0.0/24");
    watch.saw_nothing();

    let released = pair.one.release(&v4).unwrap();
    assert_eq!((&released["prefix"], &released["inside"]), (&v4.as_str().into(), &0.into()), "{released}");
    pair.await_log(&format!("{v4} is released: its clear traffic passes from now on"));
    assert_eq!(passes(&pair), [true, false]);
    assert_eq!(shut(&pair), [unloaded(&v6)]);

    // The filter no longer has it, whether or not a daemon runs.
    pair.one.process().kill();
    assert_eq!(passes(&pair), [true, false]);
    pair.one.restart().unwrap();
    assert_eq!(shut(&pair), [(v6.clone(), "earlier-run".to_owned(), String::new())]);
    assert_eq!(passes(&pair), [true, false]);
    pair.one.release(&v6).unwrap();
    assert_eq!(passes(&pair), [true, true]);
    assert_eq!((shut(&pair), inherited(&pair)), (vec![], "[]".to_owned()));
    refused(&pair, &v6, "is not shut");

    // And what is protected again is shut again.
    pair.swanctl(Side::One).load(&Connection::of(Side::One, Family::V4).to_string()).unwrap();
    let watch = Watch::start(&pair.t);
    nobody_gets_through(&pair);
    watch.saw_nothing();
}

/// The control: what all other tests would see if something went wrong.
#[test]
fn after_a_cleanup_everything_passes_in_clear_and_is_seen() {
    let mut pair = Scenario::new("cleanup", Kind::Testudo).start();
    let Gateway::Testudo(two) = &mut pair.two else { panic!("side two runs Testudo") };
    two.stop().unwrap();
    two.cleanup().unwrap();
    pair.one.process().kill();
    let watch = Watch::start(&pair.t);
    nobody_gets_through(&pair);
    watch.saw_nothing();

    pair.one.cleanup().unwrap();
    let counters = Counters::start(&pair.t.wire).unwrap();
    let capture = Capture::clear_text(&pair.t.wire).unwrap();
    for family in FAMILIES {
        for from in [&pair.t.client, &pair.t.gw1] {
            let pong = Ping::new(Side::Two.host(family)).count(5).run(from).unwrap();
            assert_eq!(pong.received, 5, "{family} from {}", from.role());
        }
    }
    assert_eq!(counters.clear_packets().unwrap(), 40);
    assert_eq!(capture.stop().unwrap().packets, 40);
    nothing_is_left(&pair.t.gw1, &pair.t.gw1.lab().instance("gw1"));
}

#[test]
fn without_a_tunnel_everything_is_dropped_and_counted() {
    let pair = Scenario::new("no-sa", Kind::Strongswan).start();
    let watch = Watch::start(&pair.t);
    let before = pair.dropped("no_sa");
    let mut sent = 0;
    for family in FAMILIES {
        for from in [&pair.t.client, &pair.t.gw1] {
            let pong = Ping::new(Side::Two.host(family)).count(20).brief().run(from).unwrap();
            assert_eq!(pong.received, 0);
            sent += u64::from(pong.sent);
        }
    }
    pair.await_dropped("no_sa", before + sent);
    nobody_gets_through(&pair);
    watch.saw_nothing();
}
