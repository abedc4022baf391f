//! Other features of strongSwan configurations than tunnels between addresses: IKE SAs without a
//! child, names, traps for any peer, policies installed by an operator.

use crate::common::{Pair, SOON, Scenario, Watch, each_ping};
use crate::transport::between_hosts;
use testudo_lab::gateway::Kind;
use testudo_lab::ping::Ping;
use testudo_lab::swanctl_conf::Connection;
use testudo_lab::topology::{Family, Side};
use testudo_lab::wait_until;

const SIDES: [Side; 2] = [Side::One, Side::Two];
const NAME: &str = "peer.lab.example";
const HOSTS: &str = "127.0.0.1 localhost\n192.0.2.2 peer.lab.example\n";

/// Waits until that side has one IKE SA with `count` children.
fn await_children(pair: &Pair, side: Side, count: usize) {
    wait_until(&format!("an IKE SA with {count} children at side {side:?}"), SOON, || {
        let sas = pair.sas(side);
        let fits = matches!(sas.as_slice(), [sa] if sa.state == "ESTABLISHED" && sa.children.len() == count);
        Ok(if fits { Ok(()) } else { Err(format!("{sas:?}")) })
    })
    .unwrap();
}

/// `swanctl --initiate --ike`, and the child after it (RFC 6023), from either side.
#[test]
fn an_ike_sa_comes_up_alone_and_gets_its_child_later() {
    let pair = Scenario::new("childless", Kind::Strongswan).start();
    for initiator in SIDES {
        let swanctl = pair.swanctl(initiator);
        swanctl.cmd(["--initiate", "--ike", "lab", "--timeout", "60"]).limit(SOON).run().unwrap();
        SIDES.iter().for_each(|side| await_children(&pair, *side, 0));
        swanctl.initiate("lab", SOON).unwrap();
        SIDES.iter().for_each(|side| await_children(&pair, *side, 1));
        pair.ping_both_ways();
        swanctl.terminate("lab").unwrap();
        SIDES.iter().for_each(|side| pair.await_sas(*side, 0, SOON));
    }
}

/// `childless = force` on both sides: the first child has a key exchange of its own.
#[test]
fn the_first_child_has_an_exchange_of_its_own() {
    let pair = Scenario::new("childless", Kind::Strongswan).start_with(|_, connection| {
        connection.more.push("childless = force".into());
        connection.esp_proposals = "aes128gcm16-x25519".into();
    });
    for initiator in SIDES {
        pair.up(initiator);
        pair.ping_both_ways();
        pair.swanctl(initiator).terminate("lab").unwrap();
        SIDES.iter().for_each(|side| pair.await_sas(*side, 0, SOON));
    }
}

/// The peer is known by its name, to initiate to and when it comes.
#[test]
fn a_peer_is_found_by_its_name() {
    let mut pair = Scenario::new("names", Kind::Strongswan).hosts(HOSTS).start();
    let named = |name: &str| {
        let text = Connection::of(Side::One, Family::V4).to_string();
        text.replace("remote_addrs = 192.0.2.2", &format!("remote_addrs = {name}"))
    };
    pair.swanctl(Side::One).load(&named(NAME)).unwrap();
    pair.await_log("peer.lab.example is 192.0.2.2");
    for initiator in SIDES {
        pair.up(initiator);
        pair.ping_both_ways();
        pair.swanctl(initiator).terminate("lab").unwrap();
        SIDES.iter().for_each(|side| pair.await_sas(*side, 0, SOON));
    }
    let listed = pair.swanctl(Side::One).run(["--list-conns"]).unwrap().stdout;
    assert!(listed.contains(NAME), "{listed}");
    // A name without an address matches no peer.
    pair.swanctl(Side::One).load(&named("nobody.invalid")).unwrap();
    pair.await_log("cannot resolve nobody.invalid");
    for initiator in SIDES {
        let args = ["--initiate", "--child", "lab", "--timeout", "30"];
        let done = pair.swanctl(initiator).cmd(args).limit(SOON).run_any().unwrap();
        assert!(!done.status.success(), "{initiator:?}: {}", done.stdout);
    }
}

/// `remote_addrs = %any` with a trap: the host that a packet is for becomes the peer, although it
/// is on our own link. charon's kernel-libipsec has no transport mode between hosts, so the peer is
/// another Testudo.
#[test]
fn a_trap_takes_whatever_host_a_packet_is_for() {
    let mut pair = Scenario::new("anybody", Kind::Testudo).start_empty();
    let mut texts = Vec::new();
    for side in SIDES {
        let mut connection = Connection::of(side, Family::V4);
        between_hosts(Family::V4, side, &mut connection);
        connection.local_ts = vec!["dynamic".into()];
        let mut text = connection.to_string();
        if side == Side::One {
            let trap = "mode = transport\n                start_action = trap";
            text = text.replace("mode = transport", trap);
            text = text.replace("remote_addrs = 192.0.2.2", "remote_addrs = %any");
            text = text.replace("local_addrs = 192.0.2.1", "local_addrs = %any");
        }
        pair.swanctl(side).load(&text).unwrap();
        texts.push(text);
    }
    let watch = Watch::start(&pair.t);
    let words = ["-I", "192.0.2.1", "192.0.2.2"];
    // The first one finds no SA.
    pair.t.gw1.cmd("ping").args(["-n", "-c", "1", "-W", "1"]).args(words).run_any().unwrap();
    SIDES.iter().for_each(|side| pair.await_sas(*side, 1, SOON));
    each_ping(&pair.t.gw1, 5, &words).unwrap();
    let sas = pair.sas(Side::One);
    assert_eq!(sas[0].get("remote-host"), Some("192.0.2.2"), "{sas:?}");
    assert_eq!(sas[0].children[0].get("mode"), Some("TRANSPORT"), "{sas:?}");

    // Without the connection the peer on our link stays shut: after a restart, and unloaded.
    let is_shut = |pair: &Pair| {
        let pong = Ping::new(Side::Two.outer(Family::V4)).count(5).brief().run(&pair.t.gw1).unwrap();
        assert_eq!(pong.received, 0);
    };
    pair.one.process().kill();
    is_shut(&pair);
    pair.one.restart().unwrap();
    is_shut(&pair);
    pair.swanctl(Side::One).load(&texts[0]).unwrap();
    pair.swanctl(Side::One).load("connections {\n}\n").unwrap();
    is_shut(&pair);
    watch.saw_nothing();
}

/// `swanctl --install` and `--uninstall`: traps and shunts, without loading anything.
#[test]
fn policies_are_installed_and_uninstalled() {
    let pair = Scenario::new("install", Kind::Strongswan).start_with(|side, connection| {
        if side == Side::One {
            let lines = ["local_ts = 10.1.0.0/24", "remote_ts = 10.66.0.0/16", "mode = drop"];
            connection.children.push(("bad".into(), lines.map(String::from).to_vec()));
        }
    });
    let swanctl = pair.swanctl(Side::One);
    let run = |args: &[&str]| swanctl.cmd(args.iter().copied()).run().unwrap().stdout;
    let listed = || run(&["--list-pols"]);
    assert!(!listed().contains("lab/bad") && !listed().contains("lab/lab"), "{}", listed());
    run(&["--install", "--child", "bad"]);
    run(&["--install", "--child", "lab", "--ike", "lab"]);
    assert!(listed().contains("bad, DROP") && listed().contains("lab/lab, TUNNEL"), "{}", listed());
    // The trap brings the tunnel up.
    let ping = ["-n", "-c", "3", "-W", "1", "10.2.0.2"];
    pair.t.client.cmd("ping").args(ping).run_any().unwrap();
    pair.await_sas(Side::One, 1, SOON);
    swanctl.terminate("lab").unwrap();
    run(&["--uninstall", "--child", "lab"]);
    run(&["--uninstall", "--child", "bad"]);
    assert!(!listed().contains("bad, DROP") && !listed().contains("lab/lab"), "{}", listed());
    for args in [["--uninstall", "--child", "bad"], ["--install", "--child", "absent"]] {
        assert!(!swanctl.cmd(args).run_any().unwrap().status.success(), "{args:?}");
    }
}

/// `swanctl --reload-settings` follows `[ike]`, and refuses what cannot be read.
#[test]
fn settings_are_read_again() {
    let mut pair = Scenario::new("settings", Kind::Strongswan).start();
    pair.one.reconfigure(|text| format!("{text}\n[ike]\nretransmit_tries = 3\n")).unwrap();
    pair.swanctl(Side::One).run(["--reload-settings"]).unwrap();
    pair.await_log("[ike] holds from now on");
    pair.one.reconfigure(|text| text.replace("retransmit_tries", "retransmit_trys")).unwrap();
    let refused = pair.swanctl(Side::One).cmd(["--reload-settings"]).run_any().unwrap();
    assert!(!refused.status.success() && format!("{refused:?}").contains("retransmit_trys"), "{refused:?}");
    pair.up(Side::One);
    pair.ping_both_ways();
}
