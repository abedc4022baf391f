//! Every node's report about the children of other nodes.

use crate::config::peer_addr;
use crate::world::{World, id};
use std::time::Duration;
use testudo_cluster::member::{Member, Sa};
use testudo_ike::endpoint::{ChildState, Target};
use testudo_ike::output::{Event, Reason};

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

/// Asserts that any node shows the IKE SA and the Child SA of each of six peers, and where they
/// are.
fn assert_listed(world: &World, nodes: &[usize]) {
    for &node in nodes {
        let member = member(world, node);
        let ids = member.sa_ids();
        assert_eq!(ids.len(), 6, "node {node}");
        let (mut ikes, mut children) = (Vec::new(), Vec::new());
        for number in ids {
            let sa = member.sa(number).unwrap();
            let name = sa.connection.clone().unwrap();
            let peer = (0..6).find(|peer| format!("peer{peer}") == name).unwrap();
            let owner = world.owner_of(peer).unwrap();
            assert_eq!((sa.id, sa.remote.ip(), sa.children.len()), (number, peer_addr(peer), 1));
            let children_of: Vec<_> = member.children_of(&name).collect();
            assert_eq!(children_of, [(sa.children[0].id, "net")], "{name} at {node}");
            assert_eq!(member.node_of(number), Some(id(owner)), "{name} at {node}");
            assert_eq!(member.is_remote(&name), node != owner, "{name} at {node}");
            if node != owner {
                ikes.push((number, name.clone(), ike_of(world, peer)));
                children.push((
                    number,
                    name,
                    sa.children[0].id,
                    "net".to_owned(),
                    Sa::Child(world.spi_of(peer)),
                ));
            }
        }
        let mut found: Vec<_> =
            member.remote_ikes().map(|(ike, name, sa)| (ike, name.to_owned(), sa)).collect();
        found.sort_unstable();
        assert_eq!(found, ikes, "node {node}");
        let owned = |(ike, name, child, of, sa): (_, &str, _, &str, _)| {
            (ike, name.to_owned(), child, of.to_owned(), sa)
        };
        let mut found: Vec<_> = member.remote_children().map(owned).collect();
        found.sort_unstable();
        assert_eq!(found, children, "node {node}");
    }
}

fn ike_of(world: &World, peer: usize) -> Sa {
    let sa = world.peers[peer].endpoint.sas().next().unwrap();
    Sa::Ike(if sa.initiator { sa.spi_r } else { sa.spi_i })
}

/// Before there is an IKE SA its home has it.
#[test]
fn a_connection_without_sas_is_at_its_home() {
    let world = World::begun(3, 6, 2002, Duration::from_millis(50));
    for peer in 0..6 {
        let name = format!("peer{peer}");
        let home = member(&world, 0).home_of(&name);
        for node in 0..3 {
            let member = member(&world, node);
            assert_eq!(member.is_remote(&name), home != Some(id(node)), "{name} at {node}");
            assert!(member.sa_ids().is_empty() && member.remote_ikes().next().is_none());
        }
    }
}

#[test]
fn every_node_knows_which_children_are_up_and_where() {
    let mut world = World::established(3, 6, 2001);
    (0..6).for_each(|peer| assert_known(&world, peer, &[0, 1, 2]));
    assert_listed(&world, &[0, 1, 2]);
    assert!(member(&world, 0).remote_sas_of("unknown").is_empty());
    let homes = [0, 1, 2].map(|node| member(&world, node).home_of("peer0"));
    assert!(homes[0].is_some() && homes.iter().all(|home| *home == homes[0]), "{homes:?}");

    let lost = world.owner_of(0).unwrap();
    world.crash(lost, false);
    let left: Vec<usize> = (0..3).filter(|node| *node != lost).collect();
    world.view(&left);
    world.run(Duration::from_secs(5));
    (0..6).for_each(|peer| assert_known(&world, peer, &left));
    assert_listed(&world, &left);
}

/// Every node reports events of all SAs, with its own numbers for them.
#[test]
fn every_node_hears_what_happens_to_the_sas_of_others() {
    let mut world = World::established(3, 1, 2003);
    let owner = world.owner_of(0).unwrap();
    let numbers = |world: &World, node: usize| {
        let member = member(world, node);
        let ike = member.sa_ids()[0];
        (ike, member.sa(ike).unwrap().children[0].id)
    };
    let heard = |world: &mut World, node: usize| std::mem::take(&mut world.nodes[node].remote_events);
    for node in 0..3 {
        let (ike, child) = numbers(&world, node);
        let up = vec![Event::IkeUp(ike), Event::ChildUp(ike, child)];
        assert_eq!(heard(&mut world, node), if node == owner { vec![] } else { up }, "node {node}");
    }
    let before = [0, 1, 2].map(|node| numbers(&world, node));
    let now = world.now;
    let endpoint = world.nodes[owner].member.as_mut().unwrap().endpoint_mut();
    assert!(endpoint.rekey_child(now, before[owner].1));
    world.run(Duration::from_secs(20));
    for node in (0..3).filter(|node| *node != owner) {
        let ((ike, old), (_, new)) = (before[node], numbers(&world, node));
        let heard = heard(&mut world, node);
        assert!(heard.contains(&Event::ChildRekeyed(ike, old, new)), "node {node}: {heard:?}");
        assert!(heard.contains(&Event::ChildDown(ike, old, Reason::Rekeyed)), "node {node}: {heard:?}");
    }
    let before = [0, 1, 2].map(|node| numbers(&world, node));
    let (now, all) = (world.now, Target::All);
    world.nodes[owner].member.as_mut().unwrap().endpoint_mut().terminate(now, &all, false).unwrap();
    world.run(Duration::from_secs(2));
    for node in (0..3).filter(|node| *node != owner) {
        let (ike, child) = before[node];
        let down = [Event::ChildDown(ike, child, Reason::Requested), Event::IkeDown(ike, Reason::Requested)];
        assert_eq!(heard(&mut world, node), down, "node {node}");
    }
}
