//! One tunnel over all nodes: each works on a part of its packets, and goes on when another fails.

use super::planned::unnoticed;
use super::{FormerOwner, LIMIT, OUTAGE_LIMIT, Trial, behind, not_doubled, within};
use std::io::Write;
use std::net::IpAddr;
use std::thread::sleep;
use std::time::Duration;
use testudo_lab::bed::{BedOptions, Failure, replay_window};
use testudo_lab::gateway::{Gateway, Kind};
use testudo_lab::iperf::Direction;
use testudo_lab::probe::Summary;
use testudo_lab::streams::Streams;
use testudo_lab::topology::{Family, Side};
use testudo_lab::wait_until;

/// Packets of the tunnel that a node has worked on, from the client and to it.
pub(super) fn worked_on(trial: &Trial) -> Vec<[u64; 2]> {
    let of = |node: &testudo_lab::testudo::Testudo| {
        let totals = node.status().unwrap()["counters"]["totals"].clone();
        ["out_forwarded", "in_forwarded"].map(|name| totals[name].as_u64().unwrap_or_default())
    };
    trial.bed.nodes.iter().map(of).collect()
}

pub(super) fn spread(scheme: &str) -> BedOptions {
    BedOptions {
        settings: format!("[[spread]]\nconnection = \"peer1\"\nscheme = \"{scheme}\"\n"),
        // On one machine with everything else nodes take longer for a view than a fence lasts.
        cluster: "fence_ms = 300".into(),
        ..BedOptions::default()
    }
}

/// The node fails, and comes back.
pub(super) fn fails_and_returns(trial: &mut Trial, node: u8) {
    let what = format!("the death of node {node}");
    let seen = trial.under_traffic(&what, |bed| bed.strike(node, Failure::Testudod).unwrap());
    not_doubled(&what, FormerOwner::PassedOver, &seen);
    within(&what, OUTAGE_LIMIT, &seen);
    trial.all_is_well(&what);
    trial.bed.mend(node, Failure::Testudod).unwrap();
    trial.whole();
    trial.bed.await_balance().unwrap();
    trial.all_is_well("its return");
}

/// One node after the other fails, and comes back.
pub(super) fn each_node_in_turn(trial: &mut Trial) {
    (1..=3).for_each(|node| fails_and_returns(trial, node));
}

/// What each node has worked on, from the client and to it, in thousandths of all packets.
pub(super) fn shares(before: &[[u64; 2]], after: &[[u64; 2]]) -> [Vec<u64>; 2] {
    std::array::from_fn(|way| {
        let done: Vec<u64> = before.iter().zip(after).map(|(b, a)| a[way] - b[way]).collect();
        let all: u64 = done.iter().sum();
        done.iter().map(|node| node * 1000 / all.max(1)).collect()
    })
}

/// Packets pass in both directions, and the peer's window refuses no more than that many of 1000 to
/// it. A node that has waited for a processor among other labs sends behind the others, and its
/// packets are refused: so it is tried again.
fn is_hardly_refused(trial: &mut Trial, most: u64) {
    let most_lost = match trial.bed.peers[0] {
        // Its emulator loses packets while it has no processor.
        Gateway::Guest(_) => 500,
        Gateway::Strongswan(_) | Gateway::Testudo(_) => most,
    };
    let mut stderr = std::io::stderr();
    wait_until("hardly any packet is refused", LIMIT, || {
        let before = trial.bed.peers[0].replays()?;
        let seen = trial.under_traffic("calm", |_| sleep(Duration::from_secs(2)));
        let refused = trial.bed.peers[0].replays()? - before;
        not_doubled("calm", FormerOwner::Silent, &seen);
        let is_few = |count: u64, most: u64, of: &Summary| count * 1000 <= most * of.sent;
        let is_well = is_few(refused, most, &seen.probes[0])
            && seen.probes.iter().all(|probe| is_few(probe.lost, most_lost, probe));
        let line = format!("refused by the peer's window {refused} of {}", seen.probes[0].sent);
        writeln!(stderr, "calm: {line}").unwrap();
        Ok(if is_well { Ok(()) } else { Err(format!("{line}: {:?}", seen.probes)) })
    })
    .unwrap();
}

/// All nodes work on a tunnel whose peer has a window of that size, and refuses no more than that
/// many of 1000 packets.
fn all_nodes_work(name: &str, peer: Kind, window: u16, most: u64) -> Trial {
    let options = BedOptions { peers: vec![peer], ..spread("packet-hash") };
    let mut trial = Trial::start_with(name, &options, replay_window(window));
    let before = worked_on(&trial);
    is_hardly_refused(&mut trial, most);
    let shares = shares(&before, &worked_on(&trial));
    assert!(shares.iter().flatten().all(|share| *share > 150), "{shares:?}");
    trial
}

#[test]
fn one_tunnel_uses_all_nodes_and_outlives_any_of_them() {
    // charon's user-space ESP has this window, whatever is configured.
    let mut trial = all_nodes_work("spread-packets", Kind::Strongswan, 128, 1);
    each_node_in_turn(&mut trial);
}

#[test]
#[ignore = "make test-all: the other peer"]
fn one_tunnel_to_a_testudo_uses_all_nodes_and_outlives_any_of_them() {
    let mut trial = all_nodes_work("spread-packets-testudo", Kind::Testudo, 128, 1);
    each_node_in_turn(&mut trial);
}

/// The peer is a kernel, which says that its SAs have that window. The node dies that speaks for
/// the tunnel, so another one answers when the peer wants new keys.
fn to_a_linux_kernel(name: &str, window: u16, shown: &str, most: u64) {
    let mut trial = all_nodes_work(name, Kind::Guest, window, most);
    let Gateway::Guest(guest) = &trial.bed.peers[0] else { panic!("the peer runs a guest") };
    let states = guest.run("ip xfrm state").unwrap();
    assert!(states.contains(shown), "{states}");
    let owner = trial.bed.owner(1).unwrap();
    fails_and_returns(&mut trial, owner);
    is_hardly_refused(&mut trial, most);
}

#[test]
#[ignore = "make test-all: the other peer"]
fn one_tunnel_to_a_linux_kernel_uses_all_nodes_and_outlives_one_of_them() {
    to_a_linux_kernel("spread-kernel", 128, "replay_window 128,", 1);
}

/// With the window that strongSwan gives a kernel if nothing is configured: while nodes wait for a
/// processor, some per cent are refused.
#[test]
#[ignore = "make test-all: a combination of what others prove"]
fn one_tunnel_to_a_linux_kernel_with_its_usual_window_uses_all_nodes() {
    to_a_linux_kernel("spread-kernel-32", 32, "replay-window 32 ", 100);
}

#[test]
fn sessions_of_one_tunnel_use_all_nodes() {
    let mut trial = Trial::start("spread-sessions", &spread("session-hash"));
    let before = worked_on(&trial);
    let (client, host) = (&trial.bed.cluster.client, &trial.bed.cluster.hosts[0]);
    let to: IpAddr = behind(1);
    Streams { count: 16, ..Streams::one(Direction::Up, 1 << 20) }.carry(client, host, to).unwrap();
    let back = Side::One.host(Family::V4);
    Streams { count: 16, ..Streams::one(Direction::Up, 1 << 20) }.carry(host, client, back).unwrap();
    let after = worked_on(&trial);
    let [_, inward] = shares(&before, &after);
    assert!(inward.iter().all(|share| *share > 150), "{inward:?}");
    // Of 34 sessions hardly ever none takes one of three nodes.
    let outward: Vec<u64> = before.iter().zip(&after).map(|(b, a)| a[0] - b[0]).collect();
    assert!(outward.iter().all(|packets| *packets > 0), "{outward:?}");
    trial.all_is_well("many sessions");
}

/// A node is drained and comes back: nothing is lost, and the peer sees no number twice.
#[test]
fn lanes_are_handed_over_without_a_loss() {
    let options = BedOptions { peers: vec![Kind::Testudo], ..spread("packet-hash") };
    let mut trial = Trial::start("spread-drain", &options);
    for node in 1..=2 {
        for (what, arguments) in [("a drain", vec![]), ("the end of a drain", vec!["--undo"])] {
            let name = node.to_string();
            unnoticed(&mut trial, what, |bed| {
                bed.node(node).drain(&[&[name.as_str()][..], &arguments].concat()).unwrap();
                if !arguments.is_empty() {
                    bed.await_balance().unwrap();
                }
            });
        }
    }
    let drops = |trial: &Trial| trial.bed.peers[0].drops().unwrap().unwrap();
    wait_until("the peer's counters", LIMIT, || {
        let drops = drops(&trial);
        let replayed = drops.get("replayed").copied().unwrap_or_default();
        Ok(if replayed == 0 { Ok(()) } else { Err(format!("{drops:?}")) })
    })
    .unwrap();
}
