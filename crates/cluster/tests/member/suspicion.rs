//! Packets of a suspect are carried by its heir, and IKE is not.

use crate::world::World;
use std::time::Duration;
use testudo_cluster::share::ShareSet;

fn packets(world: &World, node: usize) -> ShareSet {
    world.nodes[node].shares.0
}

/// Nobody hears a node, but the engine does. Its heirs carry its packets, in numbers of their own; nobody speaks for it. When it is
/// heard again it begins behind their numbers, and has its shares back.
#[test]
fn who_is_wrongly_suspected_gets_its_packets_back_and_no_number_is_sent_twice() {
    for victim in 0..3 {
        let mut world = World::established(3, 6, 100 + victim as u64);
        let before: Vec<_> = world.nodes.iter().map(|node| node.shares).collect();
        for _ in 0..3 {
            world.mute = Some(victim);
            world.run(Duration::from_secs(2));
            let others = (0..3).filter(|node| *node != victim);
            let carried = others.fold(ShareSet::EMPTY, |all, node| all.union(packets(&world, node)));
            assert_eq!(carried, ShareSet::ALL, "the heirs carry all of it");
            assert!(world.nodes.iter().zip(&before).all(|(node, before)| node.shares.1 == before.1));
            world.mute = None;
            world.run(Duration::from_secs(2));
            let after: Vec<_> = world.nodes.iter().map(|node| node.shares).collect();
            assert_eq!(after, before);
        }
        assert!(!world.doubled.is_empty(), "that is what it costs");
        (0..6).for_each(|peer| world.assert_tunnel(peer));
    }
}

/// A crash: first the suspicion, then the view. There is no moment at which the packets have nobody.
#[test]
fn an_heir_becomes_the_owner_without_a_gap() {
    for victim in 0..3 {
        let mut world = World::established(3, 6, 200 + victim as u64);
        world.crash(victim, false);
        world.run(Duration::from_millis(1100));
        let all = |world: &World| (0..3).fold(ShareSet::EMPTY, |all, node| all.union(packets(world, node)));
        assert_eq!(all(&world), ShareSet::ALL, "suspected");
        world.view(&(0..3).filter(|node| *node != victim).collect::<Vec<_>>());
        let end = world.now.plus(Duration::from_secs(3));
        while world.step(end) {
            assert_eq!(all(&world), ShareSet::ALL);
        }
        world.assert_all_shares_once();
        (0..6).for_each(|peer| world.assert_tunnel(peer));
    }
}

/// Who hears nobody suspects everybody, and carries what it is the heir of, until the engine says that it is the one who is cut off.
#[test]
fn who_turns_out_to_be_cut_off_keeps_nothing_of_those_whom_it_suspected() {
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

/// The engine is quicker than the pulses: the daemon died, and its machine says so. The heirs carry its packets from the view on; IKE
/// waits until nothing of the departed can be under way.
#[test]
fn an_heir_carries_at_once_what_the_view_has_made_its_own() {
    for victim in 0..3 {
        let mut world = World::established(3, 6, 400 + victim as u64);
        let theirs = packets(&world, victim);
        world.crash(victim, false);
        world.view(&(0..3).filter(|node| *node != victim).collect::<Vec<_>>());
        // The exchange of the view takes a moment; the promises to the departed hold for longer.
        let end = world.now.plus(Duration::from_millis(20));
        while world.step(end) {}
        let carried = (0..3).fold(ShareSet::EMPTY, |all, node| all.union(packets(&world, node)));
        assert_eq!(carried, ShareSet::ALL);
        let spoken = (0..3).fold(ShareSet::EMPTY, |all, node| all.union(world.nodes[node].shares.1));
        assert!(theirs.intersection(spoken).is_empty(), "nobody speaks for it yet");
        world.run(Duration::from_secs(3));
        world.assert_all_shares_once();
        (0..6).for_each(|peer| world.assert_tunnel(peer));
    }
}
