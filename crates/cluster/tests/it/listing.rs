//! What any node tells of the children that others have.

use crate::world::{World, id};
use std::time::Duration;
use testudo_cluster::member::Member;
use testudo_ike::endpoint::ChildState;

fn member(world: &World, node: usize) -> &Member {
    world.nodes[node].member.as_ref().unwrap()
}

/// Asserts that the owner of a peer's tunnel has its child up, and that the others know where.
fn assert_known(world: &World, peer: usize, nodes: &[usize]) {
    let (name, owner) = (format!("peer{peer}"), world.owner_of(peer).unwrap());
    for &node in nodes {
        let member = member(world, node);
        let here: Vec<_> = member.endpoint().children(&name).iter().map(|child| child.state).collect();
        let there: Vec<_> =
            member.remote_sas_of(&name).values().map(|there| (there.sas, there.node)).collect();
        if node == owner {
            assert_eq!((here, there), (vec![ChildState::Up], vec![]), "{name} at its owner");
        } else {
            assert_eq!(here, [ChildState::Passive], "{name} at {node}");
            assert_eq!(there, [(1, Some(id(owner)))], "{name} at {node}");
        }
    }
}

#[test]
fn every_node_knows_which_children_are_up_and_where() {
    let mut world = World::established(3, 6, 2001);
    (0..6).for_each(|peer| assert_known(&world, peer, &[0, 1, 2]));
    assert!(member(&world, 0).remote_sas_of("unknown").is_empty());
    let homes = [0, 1, 2].map(|node| member(&world, node).home_of("peer0"));
    assert!(homes[0].is_some() && homes.iter().all(|home| *home == homes[0]), "{homes:?}");

    let lost = world.owner_of(0).unwrap();
    world.crash(lost, false);
    let left: Vec<usize> = (0..3).filter(|node| *node != lost).collect();
    world.view(&left);
    world.run(Duration::from_secs(5));
    (0..6).for_each(|peer| assert_known(&world, peer, &left));
}
