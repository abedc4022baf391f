//! Packets of a suspect are carried by its standby, and IKE is not.

use crate::world::{LAN, World};
use std::time::Duration;
use testudo_base::shard::ShardSet;
use testudo_ike::output::Time;

fn packets(world: &World, node: usize) -> ShardSet {
    world.nodes[node].shards.0
}

/// No node hears this node, but the engine does. Its standbys carry its packets, with their own
/// numbers; no node speaks IKE for it. When it is heard again it continues after their numbers, and
/// gets its shards back.
#[test]
fn a_wrongly_suspected_node_gets_its_packets_back_without_repeated_numbers() {
    for victim in 0..3 {
        let mut world = World::established(3, 6, 100 + victim as u64);
        let before: Vec<_> = world.nodes.iter().map(|node| node.shards).collect();
        for _ in 0..3 {
            world.mute = Some(victim);
            world.run(Duration::from_secs(2));
            let others = (0..3).filter(|node| *node != victim);
            let carried = others.fold(ShardSet::EMPTY, |all, node| all.union(packets(&world, node)));
            assert_eq!(carried, ShardSet::ALL, "the standbys carry all of it");
            assert!(world.nodes.iter().zip(&before).all(|(node, before)| node.shards.1 == before.1));
            world.mute = None;
            world.run(Duration::from_secs(2));
            let after: Vec<_> = world.nodes.iter().map(|node| node.shards).collect();
            assert_eq!(after, before);
        }
        assert!(!world.doubled.is_empty(), "that is what it costs");
        (0..6).for_each(|peer| world.assert_tunnel(peer));
    }
}

/// A crash: first the suspicion, then the view. The packets are carried at every moment.
#[test]
fn a_standby_becomes_the_owner_without_a_gap() {
    for victim in 0..3 {
        let mut world = World::established(3, 6, 200 + victim as u64);
        world.crash(victim, false);
        world.run(Duration::from_millis(1100));
        let all = |world: &World| (0..3).fold(ShardSet::EMPTY, |all, node| all.union(packets(world, node)));
        assert_eq!(all(&world), ShardSet::ALL, "suspected");
        world.view(&(0..3).filter(|node| *node != victim).collect::<Vec<_>>());
        let end = world.now.plus(Duration::from_secs(3));
        while world.step(end) {
            assert_eq!(all(&world), ShardSet::ALL);
        }
        world.assert_all_shards_once();
        (0..6).for_each(|peer| world.assert_tunnel(peer));
    }
}

/// A node that hears no other suspects all of them, and carries the shards it is the standby of,
/// until the engine reports that it is cut off itself.
#[test]
fn a_node_that_was_cut_off_keeps_no_shards_of_its_suspects() {
    let mut world = World::established(3, 6, 300);
    let own = packets(&world, 0);
    world.mute = Some(0);
    world.run(Duration::from_secs(2));
    assert!(!packets(&world, 0).without(own).is_empty(), "it takes the others for dead");
    world.view(&[0]);
    world.view(&[1, 2]);
    world.run(Duration::from_secs(2));
    assert!(packets(&world, 0).without(own).is_empty());
}

/// The engine is quicker than the heartbeats: the daemon died, and its machine says so. The
/// standbys carry its packets from the view on; IKE waits until nothing of the departed can be
/// under way.
#[test]
fn a_standby_carries_at_once_what_the_view_has_made_its_own() {
    for victim in 0..3 {
        let mut world = World::established(3, 6, 400 + victim as u64);
        let theirs = packets(&world, victim);
        world.crash(victim, false);
        world.view(&(0..3).filter(|node| *node != victim).collect::<Vec<_>>());
        // The exchange of the view takes a moment; the promises to the departed hold for longer.
        let end = world.now.plus(Duration::from_millis(20));
        while world.step(end) {}
        let carried = (0..3).fold(ShardSet::EMPTY, |all, node| all.union(packets(&world, node)));
        assert_eq!(carried, ShardSet::ALL);
        let spoken = (0..3).fold(ShardSet::EMPTY, |all, node| all.union(world.nodes[node].shards.1));
        assert!(theirs.intersection(spoken).is_empty(), "nobody speaks for it yet");
        let members = world.nodes.iter().filter_map(|node| node.member.as_ref());
        let takes = members.flat_map(|member| member.status().takes);
        let awaited = takes.filter(|(_, at)| at.is_some()).map(|(shards, _)| shards);
        assert_eq!(awaited.fold(ShardSet::EMPTY, ShardSet::union), theirs, "operators see it");
        world.run(Duration::from_secs(3));
        world.assert_all_shards_once();
        (0..6).for_each(|peer| world.assert_tunnel(peer));
    }
}

/// A node that takes over without having been the standby begins after all numbers that owner and
/// standby may have sent, not with those left from an earlier time as standby.
#[test]
fn the_successor_of_owner_and_standby_begins_after_both() {
    let mut followed = 0;
    for seed in 600..606 {
        let mut world = World::established(5, 6, seed);
        let spi = world.spi_of(0);
        let owner = world.owner_of(0).unwrap();
        let has = |world: &World, from: usize| {
            (0..5).find(|node| *node != from && world.next_number(*node, spi) > 1)
        };
        // The standby goes, and comes back: the third has had numbers meanwhile.
        let standby = has(&world, owner).unwrap();
        let without = |gone: &[usize]| (0..5).filter(|node| !gone.contains(node)).collect::<Vec<_>>();
        world.crash(standby, false);
        world.view(&without(&[standby]));
        world.run(Duration::from_secs(1));
        let third = has(&world, owner).unwrap();
        world.restart(standby);
        world.view(&without(&[]));
        world.run(Duration::from_secs(3));
        let last = [owner, standby].map(|node| world.next_number(node, spi)).into_iter().max().unwrap();
        assert!(world.next_number(third, spi) < last);
        [owner, standby].into_iter().for_each(|node| world.crash(node, false));
        world.view(&without(&[owner, standby]));
        world.run(Duration::from_secs(3));
        assert_eq!(world.owner_of(0), Some(third));
        assert!(world.next_number(third, spi) > last, "{}", world.next_number(third, spi));
        followed += 1;
    }
    assert_eq!(followed, 6);
}

/// A standby that has carried a shard is out of the view before it hears that the owner knows of
/// it. When it carries the shard again, the owner must hear of that too, although it is told
/// nothing new.
#[test]
fn an_owner_hears_of_a_standby_that_carries_a_shard_a_second_time() {
    for seed in 700..704 {
        let mut world = World::established(3, 6, seed);
        let (spi, owner) = (world.spi_of(0), world.owner_of(0).unwrap());
        let standby = (0..3).find(|node| *node != owner && world.next_number(*node, spi) > 1).unwrap();
        world.mute = Some(owner);
        world.run(Duration::from_secs(2));
        world.lose_engine(standby);
        world.mute = None;
        world.run(Duration::from_millis(200));
        world.view(&(0..3).filter(|node| *node != standby).collect::<Vec<_>>());
        world.run(Duration::from_millis(200));
        world.view(&[0, 1, 2]);
        world.run(Duration::from_secs(2));
        world.mute = Some(owner);
        world.run(Duration::from_secs(2));
        assert!(packets(&world, standby).contains(spi.shard()));
        let carried = world.next_number(standby, spi);
        world.mute = None;
        world.run(Duration::from_secs(2));
        assert!(world.next_number(owner, spi) > carried, "its numbers lie behind the standby's");
    }
}

/// A standby carries packets, and dies before the wrongly suspected owner hears of it.
#[test]
fn an_owner_begins_behind_a_standby_that_has_told_nobody() {
    for seed in 900..904 {
        let mut world = World::established(3, 6, seed);
        let (spi, owner) = (world.spi_of(0), world.owner_of(0).unwrap());
        let standby = (0..3).find(|node| *node != owner && world.next_number(*node, spi) > 1).unwrap();
        world.mute = Some(owner);
        world.run(Duration::from_secs(2));
        assert!(packets(&world, standby).contains(spi.shard()));
        let carried = world.next_number(standby, spi);
        world.crash(standby, false);
        world.mute = None;
        // No node suspects the owner any more when the view begins.
        world.run(Duration::from_millis(500));
        world.view(&(0..3).filter(|node| *node != standby).collect::<Vec<_>>());
        world.run(Duration::from_secs(1));
        assert_eq!(world.owner_of(0), Some(owner));
        assert!(world.next_number(owner, spi) > carried, "its numbers lie behind the standby's");
    }
}

/// The owner's update is in transit for so long that its fence shuts. Then all acknowledge it,
/// before any heartbeat has opened the fence: another node may already own the shard. The waiting
/// answer does not leave (the world checks that for every message), and the peer retransmits.
#[test]
fn messages_that_become_stable_behind_the_fence_do_not_leave() {
    const LATE: Duration = Duration::from_millis(800);
    for seed in 1000..1004 {
        let mut world = World::established(3, 1, seed);
        let owner = world.owner_of(0).unwrap();
        let held = |world: &World| world.nodes[owner].member.as_ref().unwrap().status().held;
        let is_fenced = |world: &World| world.fence_of(owner) <= world.now;
        world.slow = Some((owner, LATE));
        let (now, peer) = (world.now, &mut world.peers[0].endpoint);
        let child = peer.sas().next().unwrap().children[0].id;
        assert!(peer.rekey_child(now, child));
        while held(&world) == 0 {
            assert!(world.step(now.plus(LATE)));
        }
        let arrives = world.now.plus(LATE);
        world.mute = Some(owner);
        run_until(&mut world, Time(arrives.0 - Duration::from_nanos(1)));
        assert!(is_fenced(&world) && held(&world) > 0);

        world.mute = None;
        run_until(&mut world, arrives.plus(LAN));
        assert!(is_fenced(&world), "an acknowledgement takes one way, a proof two");
        assert_eq!(held(&world), 0, "and so it is not kept for later either");
        world.run(Duration::from_secs(30));
        world.assert_tunnel(0);
    }
}

fn run_until(world: &mut World, end: Time) {
    world.run(end.since(world.now));
}
