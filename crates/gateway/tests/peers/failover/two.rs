//! Two nodes: with a witness, whose vote lets one of them continue alone, and without: the table of
//! docs/how-to/witness.md.

use super::{FormerOwner, LIMIT, OUTAGE_LIMIT, Trial, behind, hardly_doubled, not_doubled, within};
use std::thread::sleep;
use std::time::Duration;
use testudo_lab::bed::{BedOptions, Failure, Votes};
use testudo_lab::cluster::{Cut, LINK, Net};
use testudo_lab::gateway::Kind;
use testudo_lab::ping::Ping;
use testudo_lab::wait_until;

/// As in the documentation.
const DEVICE_TIMEOUT: Duration = Duration::from_secs(2);
const CUT: Failure = Failure::AllLinks(Cut::Silent);
/// How long it is watched that nobody takes over: as long as a takeover with a witness needs, which
/// has to miss a node for [`DEVICE_TIMEOUT`] first. That nobody does later is proven in virtual
/// time, by the simulator.
const HELD: Duration = Duration::from_secs(3);

fn two(votes: Votes) -> BedOptions {
    BedOptions { nodes: 2, votes, ..BedOptions::default() }
}

fn witnessed() -> BedOptions {
    two(Votes::Witness(DEVICE_TIMEOUT))
}

fn other(node: u8) -> u8 {
    3 - node
}

impl Trial {
    fn await_no_quorum(&self, node: u8) {
        wait_until(&format!("no quorum at node {node}"), LIMIT, || {
            let shown = self.bed.nodes[usize::from(node) - 1].cluster()?;
            Ok(if shown["view"]["quorate"] == false { Ok(()) } else { Err(shown.to_string()) })
        })
        .unwrap();
    }

    /// The witness in `testudo cluster`, and whether there is a warning about it.
    fn await_witness(&self, node: u8, votes: Option<bool>) {
        let warns = |shown: &serde_json::Value| {
            shown["why"].to_string().contains("the witness gives this node no vote")
        };
        wait_until(&format!("a witness of node {node} that votes: {votes:?}"), LIMIT, || {
            let shown = self.bed.nodes[usize::from(node) - 1].cluster()?;
            let told = shown["witness"].as_bool() == votes && warns(&shown) == (votes == Some(false));
            Ok(if told { Ok(()) } else { Err(shown.to_string()) })
        })
        .unwrap();
    }

    fn await_witness_of_both(&self, votes: bool) {
        for node in [1, 2] {
            self.await_witness(node, Some(votes));
        }
    }

    fn await_carried(&self, peer: u8, carried: bool) {
        wait_until(&format!("traffic of peer {peer}: {carried}"), LIMIT, || {
            let pong = Ping::new(behind(peer)).brief().run(&self.bed.cluster.client)?;
            let expected = if carried { pong.sent } else { 0 };
            Ok(if pong.received == expected { Ok(()) } else { Err(format!("{pong:?}")) })
        })
        .unwrap();
    }

    /// No packet comes through a peer's tunnel for [`HELD`].
    fn carries_nothing(&self, peer: u8) {
        const PINGS: u16 = 150;
        let ping = Ping { interval: HELD / PINGS.into(), ..Ping::new(behind(peer)) };
        let pong = ping.count(PINGS).brief().run(&self.bed.cluster.client).unwrap();
        assert_eq!(pong.received, 0, "through the tunnel of peer {peer}: {pong:?}");
    }
}

/// A daemon, a link, or a node is gone: the other one carries on alone, with the vote of the
/// witness, and gives back what it took.
fn survived(name: &str, failure: Failure) {
    let mut trial = Trial::start(name, &witnessed());
    let owner = trial.bed.owner(1).unwrap();
    let what = format!("two and a witness: {failure:?}");
    let seen = trial.under_traffic(&what, |bed| bed.strike(owner, failure).unwrap());
    let former = if failure == Failure::Testudod { FormerOwner::Silent } else { FormerOwner::PassedOver };
    not_doubled(&what, former, &seen);
    within(&what, OUTAGE_LIMIT, &seen);
    trial.bed.await_members(&[other(owner)]).unwrap();
    assert_eq!(trial.bed.owner_among(1, &[other(owner)]).unwrap(), Some(other(owner)), "it speaks IKE");
    trial.all_is_well(&what);

    let what = format!("the end of {failure:?}");
    let seen = trial.under_traffic(&what, |bed| {
        bed.mend(owner, failure).unwrap();
        bed.await_all().unwrap();
    });
    // The node that was cut off carries its tunnels until it has heard of the other's view.
    hardly_doubled(&what, 999, &seen);
    trial.all_is_well(&what);
}

#[test]
#[ignore = "make test-all: a combination of what others prove"]
fn testudod_is_killed_with_a_witness() {
    survived("two-testudod", Failure::Testudod);
}

#[test]
#[ignore = "make test-all: a combination of what others prove"]
fn corosync_is_killed_with_a_witness() {
    survived("two-corosync", Failure::Corosync);
}

/// The witness waits until it has missed the node for long enough.
#[test]
#[ignore = "make test-all: a combination of what others prove"]
fn all_links_are_cut_with_a_witness() {
    survived("two-links", CUT);
}

#[test]
#[ignore = "make test-all: a combination of what others prove"]
fn the_network_of_the_cluster_is_cut_with_a_witness() {
    survived("two-link", Failure::Link(Net::Cluster, Cut::Silent));
}

/// The nodes do not hear each other by the cluster's network, and both reach the witness, which
/// takes the lower number.
#[test]
fn the_witness_hears_both_nodes_that_do_not_hear_each_other() {
    let mut trial = Trial::start("two-deaf", &witnessed());
    let what = "corosync's and heartbeats' way from node to node is cut";
    let deaf = trial.bed.cluster.node(2).clone();
    let seen = trial.under_traffic(what, |bed| {
        let rule = format!("add rule inet lab in iifname {LINK} udp dport {{ 5405, 5406 }} drop");
        let chain = "add chain inet lab in { type filter hook input priority 0 ; }";
        for words in ["add table inet lab", chain, &rule] {
            deaf.run("nft", [words]).unwrap();
        }
        bed.await_members(&[1]).unwrap();
    });
    not_doubled(what, FormerOwner::PassedOver, &seen);
    within(what, OUTAGE_LIMIT, &seen);
    trial.await_no_quorum(2);
    trial.all_is_well(what);
    let what = "its end";
    let seen = trial.under_traffic(what, |bed| {
        deaf.run("nft", ["delete table inet lab"]).unwrap();
        bed.await_all().unwrap();
    });
    not_doubled(what, FormerOwner::PassedOver, &seen);
    trial.all_is_well(what);
}

/// Without its witness a cluster of two continues. A node that is then lost has no standby; and the
/// return of the witness does not change that: it may have voted for the other meanwhile.
#[test]
fn the_witness_dies_and_then_a_node() {
    let mut trial = Trial::start("two-witness", &witnessed());
    let owner = trial.bed.owner(1).unwrap();
    trial.await_witness_of_both(true);
    let what = "the end of the witness";
    let seen = trial.under_traffic(what, |bed| {
        bed.witness.as_mut().unwrap().kill();
        bed.corosyncs[0].wait_for_votes(2, LIMIT).unwrap();
    });
    // The owner continues all the time.
    not_doubled(what, FormerOwner::Silent, &seen);
    within(what, OUTAGE_LIMIT, &seen);
    assert_eq!(trial.bed.owner(1).unwrap(), owner);
    trial.await_witness_of_both(false);
    trial.all_is_well(what);

    trial.bed.strike(owner, CUT).unwrap();
    let left = other(owner);
    trial.await_no_quorum(left);
    trial.await_carried(1, false);
    trial.bed.witness.as_mut().unwrap().restart().unwrap();
    trial.bed.corosync(left).wait_for_votes(2, LIMIT).unwrap();
    trial.carries_nothing(1);
    trial.await_no_quorum(left);

    trial.bed.mend(owner, CUT).unwrap();
    trial.whole();
    trial.all_is_well("the return of the node and of its witness");
    trial.await_witness_of_both(true);
    for said in ["the witness gives this node no vote", "gives this node its vote"] {
        trial.bed.node(left).process().wait_log(said, LIMIT).unwrap();
    }
}

/// The node that continued alone continues with packets when the witness dies too, and with IKE
/// when the witness is back: no other node can have had its vote.
#[test]
#[ignore = "make test-all: a long failover"]
fn a_node_dies_and_then_the_witness() {
    let mut trial = Trial::start("two-last", &witnessed());
    let owner = trial.bed.owner(1).unwrap();
    trial.bed.strike(owner, CUT).unwrap();
    let left = other(owner);
    trial.bed.await_members(&[left]).unwrap();
    let what = "the end of the witness behind that of a node";
    let seen = trial.under_traffic(what, |bed| bed.witness.as_mut().unwrap().kill());
    not_doubled(what, FormerOwner::Silent, &seen);
    trial.await_no_quorum(left);
    trial.await_carried(1, true);
    trial.bed.witness.as_mut().unwrap().restart().unwrap();
    trial.bed.await_members(&[left]).unwrap();
    trial.all_is_well("the return of the witness");

    trial.bed.mend(owner, CUT).unwrap();
    trial.whole();
    trial.all_is_well("the return of the node");
}

/// Its daemon of corosync votes on, so the other node is no majority without it: what it carries
/// waits, and is not lost.
#[test]
#[ignore = "make test-all: a combination of what others prove"]
fn a_testudod_that_stands_still_holds_up_its_tunnels() {
    let mut trial = Trial::start("two-pause", &witnessed());
    let owner = trial.bed.owner(1).unwrap();
    let what = "two and a witness: SIGSTOP of testudod for three seconds";
    let seen = trial.under_traffic(what, |bed| {
        bed.strike(owner, Failure::Pause).unwrap();
        // Nothing comes of it that could be waited for.
        sleep(HELD);
        bed.mend(owner, Failure::Pause).unwrap();
    });
    hardly_doubled(what, 999, &seen);
    trial.whole();
    trial.all_is_well(what);
}

/// A node is cut off, and neither has a quorum: each continues the packets of its own tunnels,
/// nothing is taken over, and IKE waits.
fn without_a_witness(name: &str, votes: Votes) {
    let mut trial = Trial::start(name, &BedOptions { peers: vec![Kind::Strongswan; 2], ..two(votes) });
    let [cut, left] = apart(&mut trial);
    trial.bed.strike(cut, CUT).unwrap();
    trial.await_no_quorum(left);
    trial.await_carried(1, false);
    trial.await_carried(2, true);
    let before = trial.ask_for_keys(2);
    trial.carries_nothing(1);
    assert!(trial.spis(2).iter().all(|spi| before.contains(spi)), "IKE waits");
    trial.await_carried(2, true);
    trial.await_witness(left, None);
    let told = trial.bed.node(left).log().unwrap().contains("two_node: 1");
    assert_eq!(told, votes == Votes::TwoNode);

    trial.bed.mend(cut, CUT).unwrap();
    trial.whole();
    trial.all_is_well("the return of the node");
}

/// Sees to it that each node carries a tunnel, and tells which: that of peer 1, that of peer 2.
fn apart(trial: &mut Trial) -> [u8; 2] {
    let owners = |trial: &Trial| [1, 2].map(|peer| trial.bed.owner(peer).unwrap());
    wait_until("a tunnel at each node", LIMIT, || {
        let [one, another] = owners(trial);
        if one != another {
            return Ok(Ok(()));
        }
        trial.bed.peers[1].swanctl().run(["--terminate", "--ike", "peer2"])?;
        trial.bed.bring_up(2)?;
        Ok(Err(format!("both at node {one}")))
    })
    .unwrap();
    trial.established = trial.count_established();
    owners(trial)
}

#[test]
fn a_node_is_cut_off_without_a_witness() {
    without_a_witness("two-alone", Votes::Nodes);
}

/// `no_quorum = "stop"`: without a quorum nothing passes, and with it again everything does.
#[test]
fn a_node_that_may_not_forward_without_a_quorum_stops() {
    let options = BedOptions { cluster: "no_quorum = \"stop\"".into(), ..two(Votes::Nodes) };
    let mut trial = Trial::start("two-stop", &options);
    let owner = trial.bed.owner(1).unwrap();
    let cut = other(owner);
    trial.bed.strike(cut, CUT).unwrap();
    trial.await_no_quorum(owner);
    trial.await_carried(1, false);
    trial.carries_nothing(1);
    trial.bed.mend(cut, CUT).unwrap();
    trial.whole();
    trial.all_is_well("the return of the node");
}

#[test]
fn a_node_is_cut_off_with_two_node() {
    without_a_witness("two-node", Votes::TwoNode);
}

/// No node has a quorum, and the node without corosync continues the packets of its tunnels.
#[test]
#[ignore = "make test-all: a combination of what others prove"]
fn corosync_is_killed_without_a_witness() {
    let mut trial = Trial::start("two-engine", &two(Votes::Nodes));
    let owner = trial.bed.owner(1).unwrap();
    let what = "two without a witness: SIGKILL of corosync";
    let seen = trial.under_traffic(what, |bed| bed.strike(owner, Failure::Corosync).unwrap());
    // No node takes over.
    not_doubled(what, FormerOwner::Silent, &seen);
    trial.await_no_quorum(other(owner));
    trial.await_carried(1, true);
    trial.bed.mend(owner, Failure::Corosync).unwrap();
    trial.whole();
    trial.all_is_well("its return");
}

/// As long as both daemons of corosync live no witness is needed: they are the quorum.
#[test]
fn testudod_is_killed_without_a_witness() {
    let mut trial = Trial::start("two-daemons", &two(Votes::Nodes));
    let owner = trial.bed.owner(1).unwrap();
    let what = "two without a witness: SIGKILL of testudod";
    let seen = trial.under_traffic(what, |bed| bed.strike(owner, Failure::Testudod).unwrap());
    not_doubled(what, FormerOwner::Silent, &seen);
    within(what, OUTAGE_LIMIT, &seen);
    trial.all_is_well(what);
    trial.bed.mend(owner, Failure::Testudod).unwrap();
    trial.whole();
    trial.all_is_well("its return");
}
