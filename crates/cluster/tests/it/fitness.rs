//! A node's report about its ports, and its effect on all.

use crate::world::World;
use std::time::Duration;

/// Views without a quorum, and then one of all.
fn apart_and_together(world: &mut World, apart: Duration, meanwhile: impl FnOnce(&mut World)) {
    (0..3).for_each(|node| world.view(&[node]));
    // Long enough for the engine to tell of it.
    world.run(Duration::from_millis(5));
    meanwhile(world);
    world.run(apart);
    world.view(&[0, 1, 2]);
    world.run(Duration::from_secs(4));
}

/// Messages sent before a view ended, and not delivered in it, are delivered in the next one. By
/// then they are outdated.
#[test]
fn a_node_corrects_an_outdated_report_about_itself() {
    for victim in 0..3 {
        let mut world = World::established(3, 6, 60 + victim as u64);
        let before = world.nodes[victim].shards;
        // It loses a port, and the view ends before any node hears of it; the port works again
        // before the next view begins.
        world.set_link(victim, false);
        apart_and_together(&mut world, Duration::from_secs(3), |world| world.set_link(victim, true));
        assert_eq!(world.nodes[victim].shards, before, "all of its ports work");
        world.assert_all_shards_once();
        // The other way round.
        world.set_link(victim, false);
        world.run(Duration::from_secs(4));
        assert!(world.nodes[victim].shards.0.is_empty());
        world.set_link(victim, true);
        while world.nodes[victim].member.as_ref().unwrap().status().group.waiting == 0 {
            assert!(world.step(world.now.plus(Duration::from_secs(10))));
        }
        apart_and_together(&mut world, Duration::from_secs(3), |world| world.set_link(victim, false));
        assert!(world.nodes[victim].shards.0.is_empty(), "a port of its does not work");
        world.assert_all_shards_once();
        (0..6).for_each(|peer| world.assert_tunnel(peer));
    }
}

/// It says so once: what it says is not an answer to itself.
#[test]
fn a_node_reports_its_fitness_once() {
    let mut world = World::established(3, 2, 70);
    let delivered = |world: &World| world.nodes[2].member.as_ref().unwrap().status().group.delivered;
    world.set_link(2, false);
    // Once more while the first is under way, and back.
    world.set_link(2, true);
    world.run(Duration::from_secs(5));
    let before = delivered(&world);
    world.run(Duration::from_secs(20));
    assert!(delivered(&world).count - before.count < 5, "edges alone");
    world.assert_all_shards_once();
}

/// While shards are on their way from a node that has lost a port, others change places as
/// standbys. What has been given up is its next owner's to number.
#[test]
fn ports_that_are_lost_one_shortly_after_another_double_no_number() {
    for delay in (0..6000).step_by(150) {
        let mut world = World::established(4, 6, 80);
        world.set_link(0, false);
        world.run(Duration::from_micros(delay));
        world.set_link(1, false);
        world.run(Duration::from_secs(2));
        world.assert_all_shards_once();
        assert!([0, 1].iter().all(|node| world.nodes[*node].shards.0.is_empty()));
        world.set_link(0, true);
        world.run(Duration::from_micros(delay));
        world.set_link(1, true);
        world.run(Duration::from_secs(4));
        world.assert_all_shards_once();
        (0..6).for_each(|peer| world.assert_tunnel(peer));
    }
}

/// One owner needs long to send its state to a joining node. Another owner that has sent all of its
/// own need not wait for that.
#[test]
fn a_node_that_loses_a_port_during_a_synchronization_gives_its_shards_away() {
    for seed in 0..4 {
        let mut world = World::established(4, 24, 90 + seed);
        let (victim, slow, fresh) = (0, 1, 2);
        world.crash(fresh, false);
        world.view(&[0, 1, 3]);
        world.run(Duration::from_secs(1));
        world.restart(fresh);
        world.slow = Some((slow, Duration::from_millis(400)));
        world.view(&[0, 1, 2, 3]);
        let is_coming = |world: &World| {
            let status = world.nodes[3].member.as_ref().unwrap().status();
            !status.fresh.is_empty()
        };
        while !is_coming(&world) {
            assert!(world.step(world.now.plus(Duration::from_secs(10))));
        }
        world.run(Duration::from_millis(10));
        world.set_link(victim, false);
        world.run(Duration::from_millis(200));
        assert!(is_coming(&world));
        assert_eq!(world.nodes[victim].shards, Default::default());
        (0..24).filter(|peer| world.owner_of(*peer) != Some(slow)).for_each(|peer| {
            assert!(world.owner_of(peer).is_some_and(|owner| owner == 3), "peer {peer}");
        });
        world.run(Duration::from_secs(5));
        assert!(!is_coming(&world));
        world.slow = None;
        world.assert_all_shards_once();
        (0..24).for_each(|peer| world.assert_tunnel(peer));
        // The joining node has received enough to continue.
        [victim, slow].into_iter().for_each(|node| world.crash(node, false));
        world.view_of(&[2, 3], true);
        world.run(Duration::from_secs(4));
        (0..24).for_each(|peer| world.assert_tunnel(peer));
    }
}
