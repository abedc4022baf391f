//! Message IDs and sequence numbers that are set right with the peer's help (RFC 6311).

use crate::world::{Syncs, World};
use std::time::Duration;
use testudo_ike::endpoint::Discard;

const ASKED: Syncs =
    Syncs { version: None, asked: true, unknown: false, spread: None, routed: false, stays: None };

/// How often a node has asked for Message IDs.
fn asked(world: &World, node: usize) -> usize {
    world.nodes[node].logs.iter().filter(|line| line.contains("synchronizing Message IDs")).count()
}

fn asked_by_all(world: &World) -> usize {
    (0..world.nodes.len()).map(|node| asked(world, node)).sum()
}

fn lose(world: &mut World, node: usize) {
    world.crash(node, false);
    let left: Vec<usize> =
        (0..world.nodes.len()).filter(|node| world.nodes[*node].member.is_some()).collect();
    world.view(&left);
}

/// Cluster and peer expect of each other what they send.
fn assert_windows_fit(world: &World, peer: usize) {
    let of_peer = &world.peers[peer].endpoint;
    let sa = of_peer.sas().next().unwrap();
    let (next, expected) = of_peer.replication().message_ids(sa.id).unwrap();
    let owner = world.owner_of(peer).unwrap();
    let endpoint = world.nodes[owner].member.as_ref().unwrap().endpoint();
    let here = endpoint.replication().by_spi(sa.spi_r).unwrap();
    assert_eq!(endpoint.replication().message_ids(here), Some((expected, next)), "peer {peer}");
}

#[test]
fn each_ike_sa_asks_once_for_a_takeover_and_not_all_at_once() {
    let peers = 120;
    let mut world = World::established_with(3, peers, 900, ASKED);
    let lost = (0..peers).filter(|peer| world.owner_of(*peer) == Some(0)).count();
    assert!(lost > 32, "{lost}");
    lose(&mut world, 0);
    let mut before = [0; 2];
    for _ in 0..1000 {
        world.run(Duration::from_millis(1));
        let now = [1, 2].map(|node| asked(&world, node));
        assert!(now.iter().zip(before).all(|(now, before)| now - before <= 16), "{before:?} {now:?}");
        before = now;
    }
    world.run(Duration::from_secs(10));
    assert_eq!((asked_by_all(&world), world.beside), (lost, lost));
    for peer in 0..peers {
        assert_windows_fit(&world, peer);
        assert_eq!(world.peers[peer].endpoint.stats().discarded(Discard::CounterSync), 0);
    }
    world.assert_tunnel(0);
}

/// The others hold what it says before it leaves.
#[test]
fn a_counter_sync_leaves_once_all_have_it() {
    let mut world = World::established_with(3, 6, 901, ASKED);
    let owner = world.owner_of(0).unwrap();
    lose(&mut world, owner);
    while asked_by_all(&world) == 0 {
        assert!(world.step(world.now.plus(Duration::from_secs(2))));
    }
    assert_eq!(world.beside, 0);
    world.run(Duration::from_secs(1));
    assert!(world.beside > 0);
}

#[test]
fn a_second_failover_asks_for_more() {
    let mut world = World::established_with(5, 6, 902, ASKED);
    world.deaf = true;
    for _ in 0..2 {
        let owner = world.owner_of(0).unwrap();
        lose(&mut world, owner);
        world.run(Duration::from_secs(2));
    }
    world.deaf = false;
    world.run(Duration::from_secs(20));
    assert_windows_fit(&world, 0);
    assert_eq!(world.peers[0].endpoint.stats().discarded(Discard::CounterSync), 0);
    let owner = world.owner_of(0).unwrap();
    assert!(world.nodes[owner].logs.iter().any(|line| line.contains("Message IDs are synchronized")));
    world.assert_tunnel(0);
}

#[test]
fn no_counter_sync_after_a_handover_or_if_disabled() {
    let mut world = World::established_with(3, 6, 903, ASKED);
    let owner = world.owner_of(0).unwrap();
    world.set_link(owner, false);
    world.run(Duration::from_secs(2));
    assert_ne!(world.owner_of(0), Some(owner));
    assert_eq!(asked_by_all(&world), 0);

    for syncs in [Syncs::default(), Syncs { asked: true, unknown: true, ..Syncs::default() }] {
        let mut world = World::established_with(3, 6, 904, syncs);
        let owner = world.owner_of(0).unwrap();
        lose(&mut world, owner);
        world.run(Duration::from_secs(2));
        world.assert_tunnel(0);
        assert_eq!(asked_by_all(&world), 0);
    }
}

/// A peer that is a cluster has taken over, and asks to skip numbers: owner and standby continue
/// after them.
#[test]
fn a_peer_that_is_a_cluster_has_numbers_left_out() {
    const BY: u64 = 10_000_000;
    let mut world = World::established(3, 6, 905);
    let (spi, owner) = (world.spi_of(0), world.owner_of(0).unwrap());
    let before = world.next_number(owner, spi);
    let skip = |world: &mut World, by| {
        let (now, endpoint) = (world.now, &mut world.peers[0].endpoint);
        let ike = endpoint.sas().next().unwrap().id;
        assert!(endpoint.replication_mut().sync_replay_counters(now, ike, by));
        world.run(Duration::from_secs(1));
    };
    skip(&mut world, BY);
    let after = world.next_number(owner, spi);
    assert!(after > before + BY, "{before}, then {after}");
    lose(&mut world, owner);
    world.run(Duration::from_secs(2));
    let standby = world.owner_of(0).unwrap();
    assert!(world.next_number(standby, spi) > after);

    // Fewer numbers are left: it gets new keys.
    skip(&mut world, u64::MAX);
    world.run(Duration::from_secs(10));
    assert_ne!(world.spi_of(0), spi);
    world.assert_tunnel(0);
}
