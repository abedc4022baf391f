//! One tunnel over all nodes: each works on a part of its packets, and goes on when another fails.

use super::planned::unnoticed;
use super::{FormerOwner, LIMIT, OUTAGE_LIMIT, Trial, behind, not_doubled, within};
use std::net::IpAddr;
use std::time::Duration;
use testudo_lab::bed::{BedOptions, Failure};
use testudo_lab::gateway::Kind;
use testudo_lab::iperf::Direction;
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

/// One node after the other fails, and comes back.
pub(super) fn each_node_in_turn(trial: &mut Trial) {
    for node in 1..=3 {
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
}

/// What each node has worked on, from the client and to it, in thousandths of all packets.
pub(super) fn shares(before: &[[u64; 2]], after: &[[u64; 2]]) -> [Vec<u64>; 2] {
    std::array::from_fn(|way| {
        let done: Vec<u64> = before.iter().zip(after).map(|(b, a)| a[way] - b[way]).collect();
        let all: u64 = done.iter().sum();
        done.iter().map(|node| node * 1000 / all.max(1)).collect()
    })
}

#[test]
fn one_tunnel_uses_all_nodes_and_outlives_any_of_them() {
    let mut trial = Trial::start("spread-packets", &spread("packet-hash"));
    let before = worked_on(&trial);
    // The peer's window has 32 numbers, of which each node has a third: it refuses those of a node
    // that has waited for a processor among other labs.
    wait_until("hardly any packet is lost", LIMIT, || {
        let seen = trial.under_traffic("calm", |_| std::thread::sleep(Duration::from_secs(2)));
        not_doubled("calm", FormerOwner::Silent, &seen);
        let few = seen.probes.iter().all(|summary| summary.lost * 1000 <= summary.sent);
        Ok(if few { Ok(()) } else { Err(format!("{:?}", seen.probes)) })
    })
    .unwrap();
    let shares = shares(&before, &worked_on(&trial));
    assert!(shares.iter().flatten().all(|share| *share > 150), "{shares:?}");
    each_node_in_turn(&mut trial);
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
