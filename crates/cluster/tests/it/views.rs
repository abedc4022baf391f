//! Nodes come and go between exchanges.

use crate::world::World;
use std::collections::BTreeSet;
use std::time::Duration;
use testudo_ike::config::Connection;

/// Long enough for promises to run out.
const MOMENT: Duration = Duration::from_millis(600);

#[test]
fn tunnels_come_up_and_every_node_knows_them() {
    for seed in 0..5 {
        let world = World::established(3, 6, seed);
        for node in &world.nodes {
            let status = node.member.as_ref().unwrap().status();
            assert_eq!((status.ike_sas, status.child_sas, status.held), (6, 6, 0));
        }
        let owners: BTreeSet<_> = (0..6).map(|peer| world.owner_of(peer)).collect();
        assert!(owners.len() > 1 || seed > 0, "they spread");
    }
}

#[test]
fn a_single_node_is_a_cluster_of_one() {
    let world = World::established(1, 2, 1);
    world.assert_all_shards_once();
}

#[test]
fn a_crashed_node_is_replaced_and_gets_its_shards_back() {
    for victim in 0..3 {
        let mut world = World::established(3, 6, victim as u64);
        let before = world.nodes[victim].shards;
        world.crash(victim, false);
        let others: Vec<usize> = (0..3).filter(|node| *node != victim).collect();
        world.run(MOMENT);
        world.view(&others);
        world.run(MOMENT);
        world.assert_all_shards_once();
        (0..6).for_each(|peer| world.assert_tunnel(peer));
        // The peers rekey everything with the present owners.
        rekey_all(&mut world);
        world.restart(victim);
        world.view(&[0, 1, 2]);
        world.run(Duration::from_secs(1));
        world.assert_all_shards_once();
        (0..6).for_each(|peer| world.assert_tunnel(peer));
        assert_eq!(world.nodes[victim].shards, before);
        rekey_all(&mut world);
    }
}

/// Nobody has used its remaining numbers, but higher ones: for its peers they are too old.
#[test]
fn a_returning_node_uses_no_earlier_number() {
    let mut carried = 0;
    for seed in 0..8 {
        let mut world = World::established(3, 6, seed);
        world.view(&[0]);
        world.view(&[1, 2]);
        world.run(MOMENT);
        world.view(&[0, 1, 2]);
        let knows = |world: &World| world.nodes[0].member.as_ref().unwrap().status().group.synced;
        while knows(&world) {
            assert!(world.step(world.now.plus(MOMENT)));
        }
        while !knows(&world) {
            assert!(world.step(world.now.plus(MOMENT)));
        }
        // Before it is given any as a standby.
        world.crash(1, true);
        world.view(&[0, 2]);
        world.run(MOMENT);
        carried += world.assert_sends_behind(0, 1);
    }
    assert!(carried > 0, "{carried} Child SAs of who is gone");
}

/// A node was standby, another was it for a time, and it is standby again: what it was granted then
/// lies behind what the owner has had since. The owner goes before it has granted anything.
#[test]
fn a_node_that_is_standby_again_uses_no_earlier_number() {
    let mut carried = 0;
    for seed in 0..4 {
        for owner in 0..4 {
            let mut world = World::established(5, 10, 400 + seed);
            world.crash(4, false);
            world.view(&[0, 1, 2, 3]);
            world.run(MOMENT);
            world.restart(4);
            world.view(&[0, 1, 2, 3, 4]);
            world.run(4 * MOMENT);
            world.crash(4, false);
            world.view(&[0, 1, 2, 3]);
            let epoch =
                |world: &World| world.nodes[owner].member.as_ref().unwrap().status().group.delivered.epoch;
            let before = epoch(&world);
            while epoch(&world) == before {
                assert!(world.step(world.now.plus(MOMENT)));
            }
            world.crash(owner, true);
            let left: Vec<usize> = (0..4).filter(|node| *node != owner).collect();
            world.view(&left);
            world.run(MOMENT);
            carried += left.iter().map(|node| world.assert_sends_behind(*node, owner)).sum::<usize>();
        }
    }
    assert!(carried > 0, "{carried} Child SAs of who is gone");
}

fn rekey_all(world: &mut World) {
    let now = world.now;
    for peer in &mut world.peers {
        let sas: Vec<_> = peer.endpoint.sas().collect();
        assert!(peer.endpoint.rekey_child(now, sas[0].children[0].id));
        assert!(peer.endpoint.rekey_ike(now, sas[0].id));
    }
    world.run(Duration::from_secs(12));
    (0..world.peers.len()).for_each(|peer| world.assert_tunnel(peer));
}

/// That every node, those that were brought up to date too, gives an SA the same place, the world
/// checks.
#[test]
fn a_rekeyed_child_sa_keeps_its_place_on_all_nodes() {
    let mut world = World::established(3, 4, 3);
    let places = |world: &World| (0..4).map(|peer| world.places[&world.spi_of(peer)]).collect::<Vec<_>>();
    let before = places(&world);
    rekey_all(&mut world);
    assert_eq!(places(&world), before);
    world.crash(0, false);
    world.run(MOMENT);
    world.view(&[1, 2]);
    world.run(MOMENT);
    world.restart(0);
    world.view(&[0, 1, 2]);
    world.run(Duration::from_secs(1));
    rekey_all(&mut world);
    assert_eq!(places(&world), before);
    assert_eq!(world.places.values().max(), before.iter().max(), "nothing but renewals");
}

/// Nodes that make Child SAs at once give them the same number. Whichever comes first then, it does
/// on every node: on those that have seen its first SPI, and on one that has come after it was
/// renewed.
#[test]
fn all_nodes_send_through_the_same_child_sa_after_a_renewal() {
    for seed in 0..4 {
        let mut world = World::established(3, 8, 60 + seed);
        let numbers: BTreeSet<u64> = world.places.values().map(|place| place >> 32).collect();
        assert!(numbers.len() < 8, "some have the same");
        for joiner in 0..3 {
            world.crash(joiner, false);
            world.view(&(0..3).filter(|node| *node != joiner).collect::<Vec<_>>());
            world.run(MOMENT);
            rekey_all(&mut world);
            world.restart(joiner);
            world.view(&[0, 1, 2]);
            world.run(Duration::from_secs(1));
            let first = world.in_order(0);
            assert_eq!(first.len(), 8);
            assert!([1, 2].iter().all(|node| world.in_order(*node) == first), "node {joiner} has joined");
        }
    }
}

#[test]
fn a_node_that_loses_a_port_hands_its_shards_over_and_gets_them_back() {
    for victim in 0..3 {
        let mut world = World::established(3, 6, 40 + victim as u64);
        let before = world.nodes[victim].shards;
        world.set_link(victim, false);
        world.run(Duration::from_secs(2));
        let has_none = |world: &World| {
            let (packets, ike) = world.nodes[victim].shards;
            packets.is_empty() && ike.is_empty()
        };
        assert!(has_none(&world));
        world.assert_all_shards_once();
        (0..6).for_each(|peer| world.assert_tunnel(peer));
        rekey_all(&mut world);
        // No other view gives it anything back, and a node that has to be brought up to date hears
        // of it too.
        let other = (victim + 1) % 3;
        world.crash(other, false);
        world.view(&(0..3).filter(|node| *node != other).collect::<Vec<_>>());
        world.run(MOMENT);
        assert!(has_none(&world));
        world.restart(other);
        world.view(&[0, 1, 2]);
        world.run(Duration::from_secs(2));
        assert!(has_none(&world));
        world.assert_all_shards_once();
        world.set_link(victim, true);
        world.run(Duration::from_secs(4));
        assert_eq!(world.nodes[victim].shards, before);
        world.assert_all_shards_once();
        (0..6).for_each(|peer| world.assert_tunnel(peer));
        rekey_all(&mut world);
    }
}

#[test]
fn a_minority_falls_silent_and_is_brought_up_to_date() {
    for seed in 0..4 {
        let mut world = World::established(3, 6, seed);
        world.view(&[0]);
        world.view(&[1, 2]);
        world.run(MOMENT);
        assert!(world.nodes[0].shards.1.is_empty(), "it speaks no IKE");
        assert!(!world.nodes[0].shards.0.is_empty(), "packets go on in the blocks that it holds");
        let alone = world.nodes[0].shards.0;
        rekey_apart(&mut world);
        assert_eq!(world.nodes[0].shards.0, alone);
        world.view(&[0, 1, 2]);
        world.run(Duration::from_secs(1));
        world.assert_all_shards_once();
        (0..6).for_each(|peer| world.assert_tunnel(peer));
        rekey_all(&mut world);
    }
}

/// As the majority does it while one node knows nothing of it.
fn rekey_apart(world: &mut World) {
    let now = world.now;
    for peer in &mut world.peers {
        let sas: Vec<_> = peer.endpoint.sas().collect();
        assert!(peer.endpoint.rekey_child(now, sas[0].children[0].id));
    }
    world.run(Duration::from_secs(12));
    for peer in &world.peers {
        assert_eq!(peer.installed.len(), 1);
    }
}

/// Views follow each other at this pace, while the excluded nodes are alone.
fn storm(world: &mut World, views: &[&[usize]], pace: Duration) {
    for view in views {
        world.view(view);
        for node in (0..3).filter(|node| !view.contains(node)) {
            world.view(&[node]);
        }
        world.run(pace);
    }
    world.run(Duration::from_secs(2));
    world.assert_all_shards_once();
}

const PACES: [u64; 7] = [0, 150, 400, 700, 1000, 2500, 10_000];

#[test]
fn views_storm_and_come_to_rest() {
    for (seed, micros) in PACES.into_iter().enumerate() {
        let mut world = World::established(3, 6, seed as u64);
        let views: [&[usize]; 8] =
            [&[0, 1], &[0, 1, 2], &[1, 2], &[0, 1, 2], &[2, 1], &[1, 0], &[0, 1, 2], &[0, 1, 2]];
        storm(&mut world, &views, Duration::from_micros(micros));
        (0..6).for_each(|peer| world.assert_tunnel(peer));
        rekey_all(&mut world);
    }
}

/// The only node with the latest state may be away when the others meet: then no node continues
/// with an outdated state, and all have the same.
#[test]
fn state_that_no_node_has_is_forgotten_by_all() {
    for (seed, micros) in PACES.into_iter().enumerate() {
        let mut world = World::established(3, 6, seed as u64);
        let views: [&[usize]; 6] = [&[0, 1], &[0, 1, 2], &[1, 2], &[0, 2], &[0, 1, 2], &[0, 1, 2]];
        storm(&mut world, &views, Duration::from_micros(micros));
        let known: std::collections::BTreeSet<_> = world
            .nodes
            .iter()
            .map(|node| {
                let status = node.member.as_ref().unwrap().status();
                assert_eq!(node.installed.len(), status.child_sas);
                (status.ike_sas, status.child_sas)
            })
            .collect();
        assert_eq!(known.len(), 1, "{known:?}");
        // The peers notice, and start again.
        let now = world.now;
        for peer in &mut world.peers {
            peer.endpoint.terminate(now, &testudo_ike::endpoint::Target::All, true).unwrap();
        }
        world.run(Duration::from_secs(60));
        (0..6).for_each(|peer| world.initiate(peer));
        world.run(Duration::from_secs(5));
        (0..6).for_each(|peer| world.assert_tunnel(peer));
    }
}

/// Half of a block is used: owner and standby get the next. Nobody else may ask, and without a view
/// there are none.
#[test]
fn numbers_are_renewed_where_they_are_used() {
    let mut world = World::established(3, 6, 9);
    for peer in 0..6 {
        let (spi, owner) = (world.spi_of(peer), world.owner_of(peer).unwrap());
        let before: Vec<usize> = (0..3).map(|node| world.blocks_of(node, spi)).collect();
        for node in 0..3 {
            let now = world.now;
            // Told twice, as a worker does that waits.
            for _ in 0..2 {
                world.nodes[node].member.as_mut().unwrap().numbers_low(now, spi, 1_000_000);
            }
            world.run(MOMENT);
        }
        let after: Vec<usize> = (0..3).map(|node| world.blocks_of(node, spi)).collect();
        assert_eq!(after[owner], before[owner] + 1);
        let others = (0..3).filter(|node| *node != owner);
        let grown: usize = others.map(|node| after[node] - before[node]).sum();
        assert_eq!(grown, 1, "the standby's");
    }
    let (spi, owner) = (world.spi_of(0), world.owner_of(0).unwrap());
    let before = world.blocks_of(owner, spi);
    (0..3).for_each(|node| world.view(&[node]));
    world.run(MOMENT);
    let now = world.now;
    world.nodes[owner].member.as_mut().unwrap().numbers_low(now, spi, 1);
    world.run(MOMENT);
    assert_eq!(world.blocks_of(owner, spi), before, "there is no view to grant them");
}

/// Of 2^32 numbers an eighth is left for a peer that answers late. Each time two blocks of 2^20 are
/// granted.
#[test]
fn an_sa_without_extended_numbers_gets_new_keys_once_most_of_them_are_granted() {
    const GRANTS: usize = (7 << 29) / (2 << 20);
    let mut world = World::begun(1, 1, 12, Duration::from_millis(50));
    let edit = |connection: &mut Connection| connection.children[0].proposals[0].esn = vec![false];
    world.configure(edit, edit);
    world.establish();
    let spi = world.spi_of(0);
    let grant = |world: &mut World| {
        let (now, before) = (world.now, world.blocks_of(0, spi));
        world.nodes[0].member.as_mut().unwrap().numbers_low(now, spi, u64::MAX);
        while world.blocks_of(0, spi) == before {
            assert!(world.step(now.plus(MOMENT)));
        }
    };
    (1..GRANTS).for_each(|_| grant(&mut world));
    world.run(MOMENT);
    world.assert_tunnel(0);
    assert_eq!(world.spi_of(0), spi);
    grant(&mut world);
    world.run(Duration::from_secs(12));
    world.assert_tunnel(0);
    assert_ne!(world.spi_of(0), spi);
}

/// A machine that goes back to an earlier state knows nothing any more: neither what it held nor
/// which numbers it has used.
#[test]
fn a_machine_that_was_set_back_begins_with_nothing_and_another_sender_id() {
    let mut world = World::established(3, 6, 11);
    let (before, sender) = (world.nodes[1].shards, world.nodes[1].sender);
    let now = world.now;
    world.nodes[1].member.as_mut().unwrap().rolled_back(now);
    world.settle();
    assert_eq!(world.nodes[1].shards, Default::default());
    assert!(
        world.nodes[1].installed.is_empty(),
        "nor does its data plane keep blocks that it has used since"
    );
    world.view(&[0, 2]);
    world.run(MOMENT);
    world.assert_all_shards_once();
    world.view(&[0, 1, 2]);
    world.run(MOMENT * 3);
    world.assert_all_shards_once();
    (0..6).for_each(|peer| world.assert_tunnel(peer));
    assert_eq!(world.nodes[1].shards, before);
    assert_ne!(world.nodes[1].sender, sender);
    rekey_all(&mut world);
}

/// All nodes may see a clock jump at once: each keeps its state, and gets another sender ID.
#[test]
fn nodes_that_doubt_themselves_ask_for_other_sender_ids_and_keep_what_they_hold() {
    let mut world = World::established(3, 6, 13);
    let before: Vec<_> = world.nodes.iter().map(|node| (node.shards, node.sender)).collect();
    let now = world.now;
    for node in &mut world.nodes {
        node.member.as_mut().unwrap().doubts_itself(now);
    }
    world.settle();
    world.run(MOMENT);
    world.assert_all_shards_once();
    for (node, (shards, sender)) in world.nodes.iter().zip(before) {
        assert_eq!(node.shards, shards);
        let [before, after] = [sender, node.sender].map(|id| id.map(|id| id.0));
        assert!(after > before, "{before:?}, then {after:?}");
    }
    (0..6).for_each(|peer| world.assert_tunnel(peer));
    rekey_all(&mut world);
}

/// A witness votes for one half, and then for the other, before the first has noticed: both
/// continue from the same state, and only one is accepted.
#[test]
fn the_excluded_half_gets_another_sender_id() {
    let mut world = World::established(2, 6, 12);
    let senders = |world: &World| [0, 1].map(|node| world.nodes[node].sender.unwrap());
    let before = senders(&world);
    (0..2).for_each(|node| world.view_of(&[node], true));
    world.run(MOMENT);
    assert_eq!(senders(&world), before);
    world.view(&[0, 1]);
    world.run(MOMENT * 3);
    let changed = before.iter().zip(senders(&world)).filter(|(before, after)| *before != after);
    assert_eq!(changed.count(), 1);
    // A node that was cut off for a while, and has sent nothing of its own, keeps its sender ID,
    // of which there are few.
    let mut world = World::established(3, 6, 13);
    let before = world.nodes[2].sender;
    world.view(&[0, 1]);
    world.view(&[2]);
    world.run(MOMENT);
    world.view(&[0, 1, 2]);
    world.run(MOMENT * 3);
    assert_eq!(world.nodes[2].sender, before);
}
