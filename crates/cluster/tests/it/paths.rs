//! A path MTU learned by a node reaches all nodes, including those that join later.

use crate::config::peer_addr;
use crate::world::World;
use std::time::Duration;

fn learn(world: &mut World, node: usize, peer: usize, mtu: u16) {
    let now = world.now;
    world.nodes[node].member.as_mut().unwrap().learned_path_mtu(now, peer_addr(peer), mtu);
    world.run(Duration::from_millis(100));
}

fn known(world: &World, node: usize, peer: usize) -> Option<u16> {
    world.nodes[node].paths.get(&peer_addr(peer)).map(|(mtu, _)| *mtu)
}

/// A node that takes a shard over uses the time of the last report, not of the first.
#[test]
fn a_repeated_path_mtu_is_kept_longer_by_the_others() {
    let mut world = World::begun(3, 1, 6, Duration::from_millis(250));
    let begun = world.now;
    let mut told = std::collections::BTreeSet::new();
    // A router repeats itself for half an hour.
    for _ in 0..180 {
        learn(&mut world, 0, 0, 1400);
        let since = [1, 2].map(|node| world.nodes[node].paths[&peer_addr(0)].1);
        assert!(since.iter().all(|at| world.now.since(*at) <= Duration::from_secs(311)), "{since:?}");
        told.extend(since.map(|at| at.since(begun).as_secs()));
        world.run(Duration::from_millis(9900));
    }
    assert_eq!(told.into_iter().collect::<Vec<_>>(), [0, 300, 600, 900, 1200, 1500], "and not each time");
}

/// Once nothing as large is sent the router is silent: what it has said before a view begins is not
/// said again.
#[test]
fn a_path_mtu_learned_without_a_view_is_sent_in_the_next() {
    let mut world = World::begun(3, 1, 5, Duration::from_millis(50));
    [0, 1, 2].into_iter().for_each(|node| world.lose_engine(node));
    world.run(Duration::from_secs(1));
    learn(&mut world, 0, 0, 1400);
    assert_eq!(known(&world, 1, 0), None);
    world.view(&[0, 1, 2]);
    world.run(Duration::from_secs(1));
    assert_eq!([1, 2].map(|node| known(&world, node, 0)), [Some(1400), Some(1400)]);
}

#[test]
fn a_path_mtu_goes_to_all_nodes_and_to_who_comes_later() {
    let mut world = World::begun(3, 2, 5, Duration::from_millis(250));
    learn(&mut world, 0, 0, 1400);
    learn(&mut world, 1, 1, 1300);
    assert_eq!([0, 1, 2].map(|node| known(&world, node, 0)), [None, Some(1400), Some(1400)]);
    assert_eq!([0, 1, 2].map(|node| known(&world, node, 1)), [Some(1300), None, Some(1300)]);
    // More tells nothing; less does.
    learn(&mut world, 2, 0, 1450);
    learn(&mut world, 2, 1, 1280);
    assert_eq!((known(&world, 1, 0), known(&world, 1, 1)), (Some(1400), Some(1280)));

    for joiner in [0, 2] {
        world.crash(joiner, false);
        let others: Vec<usize> = (0..3).filter(|node| *node != joiner).collect();
        world.view(&others);
        world.run(Duration::from_secs(1));
        world.restart(joiner);
        world.view(&[0, 1, 2]);
        world.run(Duration::from_secs(2));
        assert_eq!([0, 1].map(|peer| known(&world, joiner, peer)), [Some(1400), Some(1280)], "node {joiner}");
    }

    world.run(Duration::from_secs(600));
    world.crash(1, false);
    world.view(&[0, 2]);
    world.run(Duration::from_secs(1));
    world.restart(1);
    world.view(&[0, 1, 2]);
    world.run(Duration::from_secs(2));
    assert_eq!([0, 1].map(|peer| known(&world, 1, peer)), [None, None], "it has grown old");
}
