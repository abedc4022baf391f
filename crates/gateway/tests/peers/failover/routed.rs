//! Nodes behind routers: each packet reaches one node, mostly not the one that carries its tunnel.

use super::{FormerOwner, LIMIT, Seen, Trial, hardly_doubled, not_doubled};
use nix::sys::signal::Signal;
use std::net::UdpSocket;
use std::thread::sleep;
use std::time::Duration;
use testudo_lab::bed::{Bed, BedOptions};
use testudo_lab::cluster::{Cluster, Ingress};
use testudo_lab::gateway::Kind;
use testudo_lab::testudo::Testudo;
use testudo_lab::topology::Family;
use testudo_lab::wait_until;

pub(super) fn options(peers: Vec<Kind>) -> BedOptions {
    BedOptions { ingress: Ingress::Routed, peers, ..BedOptions::default() }
}

/// Nothing fails here: nodes that are patient lose no packet on a machine that has much else to do.
fn patient(peers: Vec<Kind>) -> BedOptions {
    let cluster = "fence_ms = 5000\nsuspicion_min_ms = 4000\nsuspicion_max_ms = 8000".to_owned();
    BedOptions { cluster, ..options(peers) }
}

/// For how long nothing is relayed under traffic before a move is over.
const CALM: Duration = Duration::from_secs(2);
/// How long packets reach one node before the routes change again. A shard that has moved once stays
/// until most of its packets have reached another node for twenty seconds (`FollowConfig`).
const FLAP: Duration = Duration::from_secs(2);

/// Packets that nodes have relayed, and that were relayed to them.
pub(super) fn relayed(bed: &Bed) -> [u64; 2] {
    let of = |name: &str| {
        let count = |node: &Testudo| node.status().unwrap()["counters"]["totals"][name].as_u64().unwrap();
        bed.nodes.iter().map(count).sum()
    };
    ["relayed", "relayed_in"].map(of)
}

/// Sends to many addresses behind the first peer, for which the router chooses all nodes.
fn send_to_many(bed: &Bed) {
    let send = || {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        for host in 10..=250 {
            socket.send_to(b"to one of many", (Cluster::behind(1, Family::V4, host), 7)).unwrap();
        }
    };
    bed.cluster.client.enter(send).unwrap();
}

#[test]
fn tunnels_are_carried_whichever_node_the_routers_choose() {
    let mut trial = Trial::start("routed", &patient(vec![Kind::Strongswan, Kind::Testudo]));
    trial.all_is_well("the start");
    let seen = trial.under_traffic("traffic", |_| {});
    nothing_is_lost(&seen);
    hardly_doubled("traffic", 0, &seen);
    let before = relayed(&trial.bed);
    send_to_many(&trial.bed);
    wait_until("relayed packets", LIMIT, || {
        let now = relayed(&trial.bed);
        let is_so = now[0] > before[0] && now[0] == now[1];
        Ok(if is_so { Ok(()) } else { Err(format!("{before:?}, then {now:?}")) })
    })
    .unwrap();
}

/// Orders to move a shard to the node that its packets reach, as far as node 1 knows.
fn followed(bed: &Bed) -> u64 {
    bed.nodes[0].cluster().unwrap()["counters"]["followed"].as_u64().unwrap()
}

#[test]
fn a_tunnel_moves_to_the_node_that_its_packets_reach() {
    let mut trial = Trial::start("routed-follow", &patient(vec![Kind::Strongswan]));
    trial.all_is_well("the start");
    let owner = trial.bed.owner(1).unwrap();
    let others = super::others(owner);
    let seen = trial.under_traffic("all packets reach another node", |bed| {
        bed.cluster.steer(others[0]).unwrap();
        wait_until("a move", LIMIT, || {
            let now = bed.owner_among(1, &[1, 2, 3])?;
            Ok(if now == Some(others[0]) { Ok(()) } else { Err(format!("{now:?}")) })
        })
        .unwrap();
        wait_until("nothing to be relayed any more", LIMIT, || {
            let before = relayed(bed);
            sleep(CALM);
            let now = relayed(bed);
            Ok(if now == before { Ok(()) } else { Err(format!("{before:?}, then {now:?}")) })
        })
        .unwrap();
    });
    nothing_is_lost(&seen);
    not_doubled("a move", FormerOwner::HandsOver, &seen);
    trial.all_is_well("a move");
    let moves = followed(&trial.bed);
    assert!(moves > 0);
    let seen = trial.under_traffic("routes that flap", |bed| {
        for node in [others[1], others[0], owner, others[0]] {
            bed.cluster.steer(node).unwrap();
            sleep(FLAP);
        }
    });
    nothing_is_lost(&seen);
    hardly_doubled("routes that flap", 0, &seen);
    assert_eq!((trial.bed.owner(1).unwrap(), followed(&trial.bed)), (others[0], moves));
    trial.all_is_well("routes that flap");
}

#[test]
fn a_node_behind_routers_is_drained_and_comes_back_without_a_loss() {
    let mut trial = Trial::start("routed-drain", &patient(vec![Kind::Strongswan]));
    let owner = trial.bed.owner(1).unwrap();
    let others: Vec<u8> = super::others(owner);
    let seen = trial.under_traffic("a drain", |bed| {
        bed.node(owner).drain(&[]).unwrap();
        bed.cluster.await_served_by(&others).unwrap();
    });
    assert_ne!(trial.bed.owner(1).unwrap(), owner);
    nothing_is_lost(&seen);
    let seen = trial.under_traffic("the end of a drain", |bed| {
        bed.node(owner).drain(&["--undo"]).unwrap();
        bed.await_balance().unwrap();
        bed.cluster.await_served_by(&[1, 2, 3]).unwrap();
    });
    nothing_is_lost(&seen);
    trial.all_is_well("a drain and its end");
}

pub(super) fn nothing_is_lost(seen: &Seen) {
    assert_eq!(seen.lost(), 0, "{:?}, {} overflowed", seen.probes, seen.overflowed);
}

#[test]
fn a_node_behind_routers_is_killed() {
    let mut trial = Trial::start("routed-kill", &options(vec![Kind::Strongswan]));
    let owner = trial.bed.owner(1).unwrap();
    let others = super::others(owner);
    trial.under_traffic("SIGKILL of the owner", |bed| {
        bed.node(owner).process().signal(Signal::SIGKILL).unwrap();
        bed.cluster.await_served_by(&others).unwrap();
    });
    wait_until("another owner", LIMIT, || {
        let now = trial.bed.owner_among(1, &others)?;
        Ok(now.map(drop).ok_or_else(|| "none".to_owned()))
    })
    .unwrap();
    trial.await_traffic(1, "SIGKILL of the owner");
    trial.renews(1, "SIGKILL of the owner");
}
