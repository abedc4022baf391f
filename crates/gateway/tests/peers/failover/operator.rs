//! Commands of operators on one node take effect in the whole cluster.

use super::{LIMIT, Trial};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use testudo_lab::bed::{Bed, BedOptions, Failure, connection};
use testudo_lab::gateway::Kind;
use testudo_lab::testudo::Testudo;
use testudo_lab::{Lab, wait_until};
use testudo_vici::client::Client;

const EVENTS: [&str; 4] = ["ike-updown", "child-updown", "ike-rekey", "child-rekey"];

/// Three nodes, of which the first alone was told of the peers.
fn one_told() -> BedOptions {
    BedOptions { loads_one: true, peers: vec![Kind::Strongswan; 2], ..BedOptions::default() }
}

fn other_than(owner: u8) -> u8 {
    owner % 3 + 1
}

/// Events at that node: their names, and whether something came up.
fn listen(node: &Testudo) -> Receiver<(String, bool)> {
    let mut client = Client::connect(node.socket()).unwrap();
    EVENTS.iter().for_each(|event| client.register(event).unwrap());
    let (heard, events) = channel();
    thread::spawn(move || {
        // Until the daemon ends.
        while let Ok((name, message)) = client.next_event() {
            let _ = heard.send((name, message.text("up") == Some("yes")));
        }
    });
    events
}

/// Waits until each listener has heard that, whatever else it hears.
fn all_hear(listeners: &[Receiver<(String, bool)>], name: &str, up: bool) {
    for (listener, node) in listeners.iter().zip(1..) {
        let hears = || loop {
            match listener.recv_timeout(LIMIT) {
                Ok(event) if event == (name.to_owned(), up) => return,
                Ok(_) => {}
                Err(error) => panic!("a listener at node {node} does not hear {name}: {error}"),
            }
        };
        hears();
    }
}

/// Waits until none of the peer's Child SAs is one of those before.
fn await_new_keys(trial: &Trial, peer: u8, before: &[String]) {
    wait_until("new keys", LIMIT, || {
        let now = trial.spis(peer);
        Ok(if now.iter().all(|spi| !before.contains(spi)) { Ok(()) } else { Err(format!("{now:?}")) })
    })
    .unwrap();
}

fn why(node: &Testudo) -> String {
    node.cluster().unwrap()["why"].to_string()
}

fn await_why(bed: &mut Bed, node: u8, expected: &str) {
    let node = bed.node(node);
    wait_until(expected, LIMIT, || {
        let why = why(node);
        Ok(if why.contains(expected) { Ok(()) } else { Err(why) })
    })
    .unwrap();
}

#[test]
fn one_node_is_told_and_all_of_them_list_and_command() {
    let mut trial = Trial::start("operator", &one_told());
    let listeners: Vec<_> = trial.bed.nodes.iter().map(listen).collect();
    for peer in 1..=2 {
        let owner = trial.bed.owner(peer).unwrap();
        let name = format!("peer{peer}");
        // Every node shows it, with the node that has it, and all show the same.
        let shown: Vec<_> = trial.bed.nodes.iter().map(|node| node.swanctl().list_sas().unwrap()).collect();
        for sas in &shown {
            let sa = sas.iter().find(|sa| sa.name == name).unwrap();
            assert!(sa.is_up(), "{sa:?}");
            assert_eq!(sa.get("node"), Some(&*owner.to_string()));
            let spis = |sa: &testudo_lab::swanctl::IkeSa| {
                sa.children.first().and_then(|child| child.get("spi-in").map(str::to_owned))
            };
            let first = shown[0].iter().find(|sa| sa.name == name).unwrap();
            assert_eq!((sa.get("responder-spi"), spis(sa)), (first.get("responder-spi"), spis(first)));
        }

        // Another node is told to renew it: its owner does.
        let elsewhere = trial.bed.nodes[usize::from(other_than(owner)) - 1].swanctl().clone();
        let before = trial.spis(peer);
        elsewhere.run(["--rekey", "--child", &name]).unwrap();
        await_new_keys(&trial, peer, &before);
        all_hear(&listeners, "child-rekey", false);
        elsewhere.run(["--rekey", "--ike", &name]).unwrap();
        all_hear(&listeners, "ike-rekey", false);

        // And to take it down, and bring it up again.
        elsewhere.terminate(&name).unwrap();
        all_hear(&listeners, "ike-updown", false);
        assert!(trial.bed.tunnel(peer).unwrap().is_none());
        for node in &trial.bed.nodes {
            let sas = node.swanctl().list_sas().unwrap();
            assert!(sas.iter().all(|sa| sa.name != name || !sa.is_up()), "{sas:?}");
        }
        // Wherever its home is, two of the three are others.
        for node in 1..=3 {
            let done = trial.bed.node(node).swanctl().initiate(&name, LIMIT).unwrap();
            assert!(done.stdout.contains("initiate completed successfully"), "{}", done.stdout);
        }
        all_hear(&listeners, "ike-updown", true);
        trial.await_traffic(peer, "an initiation by another node");
        trial.established[usize::from(peer) - 1] += 1;
    }
    trial.all_is_well("commands on other nodes");
}

#[test]
fn a_node_that_was_away_has_what_was_loaded_meanwhile() {
    let mut trial = Trial::start("configured", &one_told());
    trial.bed.strike(3, Failure::Testudod).unwrap();
    trial.bed.await_members(&[1, 2]).unwrap();
    // The second peer goes, and a third comes.
    let conf = format!("{}{}", connection(1), connection(3));
    trial.bed.node(2).swanctl().load(&conf).unwrap();
    // Its own file is old; its unit asks before it loads it.
    trial.bed.node(3).restart().unwrap();
    let configured = trial.bed.node(3).configured(10).unwrap();
    assert_eq!(configured["node"], 3, "{configured}");
    for node in 1..=3 {
        let shown = trial.bed.node(node).swanctl().run(["--list-conns"]).unwrap().stdout;
        let has = |name: &str| shown.contains(&format!("{name}: IKEv2"));
        assert_eq!([1, 2, 3].map(|peer| has(&format!("peer{peer}"))), [true, false, true], "{shown}");
    }
    trial.bed.await_all().unwrap();
    trial.bed.await_balance().unwrap();
    // It has the secret too: it can answer the peer.
    for owner in [1, 2] {
        trial.bed.node(owner).drain(&[]).unwrap();
    }
    assert_eq!(trial.bed.owner(1).unwrap(), 3);
    let peer = trial.bed.peers[0].swanctl().clone();
    peer.terminate("peer1").unwrap();
    trial.bed.bring_up(1).unwrap();
}

/// `swanctl --install` and `--uninstall` at one node hold on all of them, and on one that was away.
#[test]
fn a_policy_that_is_installed_on_one_node_stands_on_all() {
    let options = BedOptions { peers: vec![Kind::Strongswan], ..one_told() };
    let mut bed = Bed::start(&Lab::large("install-all", 2).unwrap(), &options).unwrap();
    let stands = |bed: &Bed, node: u8| {
        let swanctl = bed.nodes[usize::from(node) - 1].swanctl();
        swanctl.run(["--list-pols"]).unwrap().stdout.contains("peer1/peer1, TUNNEL")
    };
    let await_all = |bed: &Bed, expected: bool| {
        wait_until(&format!("the policy at all nodes or none: {expected}"), LIMIT, || {
            let found = [1, 2, 3].map(|node| stands(bed, node));
            Ok(if found == [expected; 3] { Ok(()) } else { Err(format!("{found:?}")) })
        })
        .unwrap();
    };
    await_all(&bed, false);
    bed.strike(3, Failure::Testudod).unwrap();
    bed.await_members(&[1, 2]).unwrap();
    bed.node(2).swanctl().run(["--install", "--child", "peer1"]).unwrap();
    bed.node(3).restart().unwrap();
    bed.await_all().unwrap();
    await_all(&bed, true);
    // Packets bring the tunnel up, whichever node has it.
    wait_until("a tunnel", LIMIT, || Ok(if bed.carries(1)? { Ok(()) } else { Err("no replies".to_owned()) }))
        .unwrap();
    bed.node(3).swanctl().run(["--uninstall", "--child", "peer1"]).unwrap();
    await_all(&bed, false);
    assert!(bed.carries(1).unwrap(), "its SAs stay");
}

#[test]
fn nodes_that_are_configured_by_themselves_say_where_they_differ() {
    let options = BedOptions {
        cluster: "replicate_config = false".into(),
        peers: vec![Kind::Strongswan],
        ..BedOptions::default()
    };
    let mut bed = Bed::start(&Lab::large("configured-apart", 2).unwrap(), &options).unwrap();
    bed.await_balance().unwrap();
    bed.node(2).swanctl().load(&format!("{}{}", connection(1), connection(2))).unwrap();
    await_why(&mut bed, 1, "node 2 has connection peer2, which this node has not");
    await_why(&mut bed, 2, "node 3 has no connection peer2, which this node has");
    assert!(bed.node(1).configured(0).unwrap_err().to_string().contains("replicate_config is off"));
}

/// An upgrade from an earlier version: as long as a node of it is there, all speak as it does. And
/// one step back.
#[test]
fn nodes_are_upgraded_one_after_another() {
    let options = BedOptions { cluster: "protocol = 15\nfence_ms = 300".into(), ..BedOptions::default() };
    let mut trial = Trial::start("upgrade", &options);
    for node in 1..=3 {
        let what = format!("the upgrade of node {node}");
        trial.under_traffic(&what, |bed| {
            bed.node(node).stop().unwrap();
            bed.node(node).reconfigure(|text| text.replace("protocol = 15\n", "")).unwrap();
            bed.mend(node, Failure::Testudod).unwrap();
            bed.await_all().unwrap();
        });
        let shown = trial.bed.node(node).cluster().unwrap();
        let (version, says) = if node < 3 { (15, true) } else { (29, false) };
        assert_eq!(shown["protocol"], version);
        assert_eq!(
            shown["why"].to_string().contains("nodes of an older version are in the cluster"),
            says,
            "{shown}"
        );
        trial.all_is_well(&what);
    }
    // Features of the new version work now.
    let owner = trial.bed.owner(1).unwrap();
    let before = trial.spis(1);
    trial.bed.node(other_than(owner)).swanctl().run(["--rekey", "--child", "peer1"]).unwrap();
    await_new_keys(&trial, 1, &before);
    let what = "the way back of node 2";
    trial.under_traffic(what, |bed| {
        bed.node(2).stop().unwrap();
        let back = |text: String| text.replace("fence_ms = 300", "protocol = 15\nfence_ms = 300");
        bed.node(2).reconfigure(back).unwrap();
        bed.mend(2, Failure::Testudod).unwrap();
        bed.await_all().unwrap();
    });
    assert_eq!(trial.bed.node(1).cluster().unwrap()["protocol"], 15);
    trial.all_is_well(what);
}
