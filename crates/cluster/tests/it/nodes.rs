//! Nodes are added and removed on one of them: what it refuses, and why.

use crate::world::{World, id};
use std::time::Duration;
use testudo_cluster::group::{ChangeError, NodeChange};
use testudo_cluster::member::{Member, NodesError};
use testudo_cluster::node::NodeId;

fn member(world: &mut World, node: usize) -> &mut Member {
    world.nodes[node].member.as_mut().unwrap()
}

fn ids(nodes: &[usize]) -> Vec<NodeId> {
    nodes.iter().copied().map(id).collect()
}

/// The engines of these nodes are configured with those nodes.
fn configure(world: &mut World, engines: &[usize], nodes: &[usize]) {
    for node in engines {
        member(world, *node).set_engine_nodes(Some(ids(nodes)));
    }
    world.run(Duration::from_millis(50));
}

/// Of four nodes, whose engines are configured with just these.
fn four() -> World {
    let mut world = World::begun(4, 1, 500, Duration::from_millis(50));
    configure(&mut world, &[0, 1, 2, 3], &[0, 1, 2, 3]);
    world
}

fn ask(world: &mut World, node: usize, change: &NodeChange) -> Result<u64, NodesError> {
    let now = world.now;
    let asked = member(world, node).change_nodes(now, change);
    world.run(Duration::from_millis(200));
    asked
}

fn remove(world: &mut World, asked: usize, node: usize) -> Result<u64, NodesError> {
    ask(world, asked, &NodeChange::Remove(id(node)))
}

fn add(world: &mut World, asked: usize, node: usize) -> Result<u64, NodesError> {
    ask(world, asked, &NodeChange::Add(id(node), vec!["10.99.0.9".parse().unwrap()]))
}

fn drain(world: &mut World, node: usize) {
    let now = world.now;
    member(world, 0).drain(now, id(node), true).unwrap();
}

/// The number of the roster that counts on each of these nodes, and its nodes.
fn rosters(world: &mut World, nodes: &[usize]) -> Vec<(u64, Vec<NodeId>)> {
    let settled = |member: &Member| (member.rosters().settled.number, member.rosters().settled.ids());
    nodes.iter().map(|node| settled(member(world, *node))).collect()
}

/// What it owns would be taken over as that of a node that has died.
#[test]
fn a_node_of_the_view_is_removed_once_it_is_drained_and_owns_nothing() {
    let mut world = four();
    assert_eq!(remove(&mut world, 0, 0), Err(NodesError::Itself(id(0))));
    assert_eq!(remove(&mut world, 0, 2), Err(NodesError::NotDrained(id(2))));
    world.busy = Some(2);
    drain(&mut world, 2);
    world.run(Duration::from_millis(20));
    assert!(member(&mut world, 0).status().drained.contains(&id(2)));
    assert_eq!(remove(&mut world, 0, 2), Err(NodesError::NotDrained(id(2))), "its workers have packets left");
    assert_eq!(rosters(&mut world, &[0]), [(0, ids(&[0, 1, 2, 3]))]);
    world.busy = None;
    world.flush(2);
    world.run(Duration::from_secs(10));
    assert_eq!(world.nodes[2].shards, Default::default());
    assert_eq!(remove(&mut world, 0, 2), Ok(1));
    assert_eq!(rosters(&mut world, &[0, 1, 3]), vec![(1, ids(&[0, 1, 3])); 3]);
}

/// The others are about to give it shards.
#[test]
fn a_node_that_owns_nothing_yet_has_to_be_drained_too() {
    let mut world = four();
    drain(&mut world, 2);
    world.run(Duration::from_secs(10));
    assert_eq!(world.nodes[2].shards, Default::default());
    let now = world.now;
    member(&mut world, 0).drain(now, id(2), false).unwrap();
    while member(&mut world, 0).status().drained.contains(&id(2)) {
        assert!(world.step(now.plus(Duration::from_secs(1))));
    }
    let (now, change) = (world.now, NodeChange::Remove(id(2)));
    let asked = member(&mut world, 0).change_nodes(now, &change);
    assert_eq!(asked, Err(NodesError::NotDrained(id(2))));
}

/// Nobody can drain it any more.
#[test]
fn a_node_that_is_gone_is_removed_as_it_is() {
    let mut world = four();
    world.crash(3, false);
    world.view(&[0, 1, 2]);
    world.run(Duration::from_secs(2));
    assert_eq!(remove(&mut world, 1, 3), Ok(1));
    assert_eq!(rosters(&mut world, &[0, 1, 2]), vec![(1, ids(&[0, 1, 2])); 3]);
}

/// An engine that counts by other nodes than the cluster might call too few of them quorate.
#[test]
fn nodes_are_changed_while_all_engines_have_the_nodes_of_the_cluster() {
    let mut world = World::begun(3, 1, 501, Duration::from_millis(50));
    let too_soon = Err(NodesError::Change(ChangeError::TooSoon));
    assert_eq!(add(&mut world, 0, 3), too_soon, "nothing is known of any engine");
    configure(&mut world, &[0, 1], &[0, 1, 2]);
    assert_eq!(add(&mut world, 0, 3), too_soon, "node 3 has not told");
    configure(&mut world, &[2], &[0, 1]);
    let behind = NodesError::EngineBehind { behind: ids(&[2]), nodes: ids(&[0, 1, 2]) };
    assert_eq!(add(&mut world, 0, 3), Err(behind.clone()));
    let said = behind.to_string();
    assert!(said.contains("corosync of nodes 3 has other nodes than the cluster (1, 2, 3)"), "{said}");
    configure(&mut world, &[2], &[0, 1, 2]);
    assert_eq!(add(&mut world, 0, 3), Ok(1));
    assert_eq!(rosters(&mut world, &[0, 1, 2]), vec![(1, ids(&[0, 1, 2, 3])); 3]);
    let behind = NodesError::EngineBehind { behind: ids(&[0, 1, 2]), nodes: ids(&[0, 1, 2, 3]) };
    assert_eq!(add(&mut world, 1, 4), Err(behind), "after a change all of them are");
    configure(&mut world, &[0, 1, 2], &[0, 1, 2, 3]);
    assert_eq!(add(&mut world, 1, 4), Ok(2));
}

/// The node with the other list may have come in that view.
#[test]
fn the_members_of_each_view_tell_their_engines_nodes_anew() {
    let mut world = four();
    world.view(&[0, 1, 2, 3]);
    world.run(Duration::from_secs(2));
    assert_eq!(add(&mut world, 0, 4), Ok(1));
    world.crash(3, false);
    world.view(&[0, 1, 2]);
    configure(&mut world, &[0, 1], &[0, 1, 2, 3, 4]);
    world.run(Duration::from_secs(2));
    let behind = NodesError::EngineBehind { behind: ids(&[2]), nodes: ids(&[0, 1, 2, 3, 4]) };
    assert_eq!(add(&mut world, 0, 5), Err(behind), "node 3 has told its list of before");
}
