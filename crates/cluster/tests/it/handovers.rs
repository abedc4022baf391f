//! What an owner tells when its workers are done with shards that it hands over, and views that
//! begin before that.

use crate::world::World;
use std::time::Duration;
use testudo_base::shard::ShardSet;
use testudo_base::spi::{Shard, Spi};
use testudo_cluster::group::Phase;
use testudo_cluster::member::{ClusterStatus, HandoverStage};
use testudo_ipsec::dataplane::Note;

const PEERS: usize = 60;

fn status(world: &World, node: usize) -> ClusterStatus {
    world.nodes[node].member.as_ref().unwrap().status()
}

fn step(world: &mut World) {
    assert!(world.step(world.now.plus(Duration::from_secs(1))));
}

fn await_phase(world: &mut World, node: usize, phase: Phase) {
    while status(world, node).group.phase != phase {
        step(world);
    }
}

/// Node 0 loses a port and stops some of its shards, of which its workers keep packets.
fn stop(world: &mut World) {
    world.busy = Some(0);
    world.set_link(0, false);
    while world.nodes[0].unflushed.is_empty() {
        step(world);
    }
    assert_eq!(carried(world, world.nodes[0].unflushed), ShardSet::EMPTY);
}

/// Those of the shards that node 0 carries.
fn carried(world: &World, shards: ShardSet) -> ShardSet {
    world.nodes[0].shards.0.intersection(shards)
}

/// The stopped shards that that node is to have.
fn bound_for(world: &World, node: usize) -> ShardSet {
    let stages = status(world, 0).handovers.into_iter();
    let to = stages.filter(|(_, stage)| *stage == HandoverStage::Stopped(crate::world::id(node)));
    to.map(|(shard, _)| shard).collect()
}

/// Those of the shards that have tunnels.
fn in_use(world: &World, shards: ShardSet) -> ShardSet {
    let of_peers = (0..PEERS).map(|peer| world.spi_of(peer).shard());
    of_peers.filter(|shard| shards.contains(*shard)).collect()
}

/// The workers of node 0 are done, now and whenever it stops more.
fn flush(world: &mut World) {
    world.busy = None;
    world.flush(0);
    world.settle();
}

/// In the end node 0 has given everything away, and all tunnels are there.
fn assert_given_away(world: &mut World) {
    world.run(Duration::from_secs(5));
    assert_eq!(world.nodes[0].shards, Default::default());
    world.assert_all_shards_once();
    (0..PEERS).for_each(|peer| world.assert_tunnel(peer));
}

#[test]
fn what_is_bound_for_a_node_that_has_left_goes_on_at_its_owner() {
    let mut world = World::established(3, PEERS, 1000);
    stop(&mut world);
    let (gone, there) = (bound_for(&world, 1), bound_for(&world, 2));
    assert!(!in_use(&world, gone).is_empty() && !there.is_empty());
    world.crash(1, false);
    world.view(&[0, 2]);
    await_phase(&mut world, 0, Phase::Exchange);
    await_phase(&mut world, 0, Phase::Running);
    assert_eq!(carried(&world, gone.union(there)), ShardSet::EMPTY, "its workers are not done");
    flush(&mut world);
    assert_eq!(carried(&world, gone.union(there)), gone);
    assert_given_away(&mut world);
}

/// Nobody knows who is there.
#[test]
fn while_a_view_forms_everything_goes_on_at_its_owner() {
    let mut world = World::established(3, PEERS, 1001);
    stop(&mut world);
    let stopped = world.nodes[0].unflushed;
    assert!(!in_use(&world, stopped).is_empty());
    world.view(&[0, 1, 2]);
    await_phase(&mut world, 0, Phase::Exchange);
    flush(&mut world);
    assert_eq!(carried(&world, stopped), stopped);
    assert_given_away(&mut world);
}

/// With the last packets of its shards the owner tells up to where it has accepted, which is exact,
/// and what it has worked on, which the next owners must not work on again.
#[test]
fn the_next_owners_learn_what_the_owner_has_done_last() {
    let mut world = World::established(3, PEERS, 1002);
    stop(&mut world);
    let (bound, stopped) = ([1, 2].map(|node| bound_for(&world, node)), world.nodes[0].unflushed);
    let peers: Vec<usize> = (0..PEERS).filter(|peer| stopped.contains(world.spi_of(*peer).shard())).collect();
    let marks: Vec<(Spi, u64)> =
        peers.iter().map(|peer| (world.spi_of(*peer), 5000 + *peer as u64)).collect();
    for (spi, _) in &marks {
        world.seen.insert(*spi, 1_000_000);
    }
    let digest = |shard: Shard| 7000 + u64::from(shard.0);
    let notes = stopped.iter().map(|shard| Note { shard, digest: digest(shard) }).collect();
    world.busy = None;
    world.flush_saying(0, marks.clone(), notes);
    world.settle();
    world.run(Duration::from_millis(100));
    for (node, shards) in [1, 2].into_iter().zip(bound) {
        assert!(!in_use(&world, shards).is_empty());
        assert_eq!(world.nodes[node].handled, shards.iter().map(digest).collect());
        for (spi, mark) in marks.iter().filter(|(spi, _)| shards.contains(spi.shard())) {
            assert_eq!(world.nodes[node].floors[spi], *mark, "node {node}");
        }
    }
    assert_given_away(&mut world);
}
