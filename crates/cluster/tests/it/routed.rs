//! Routers give each packet to one node: what only it has received goes on to the node that needs
//! it.

use crate::config::{VIP, peer_addr};
use crate::world::{LAN, LINE_RATE, Node, Syncs, WITHDRAW, World, id};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;
use testudo_base::shard::ShardSet;
use testudo_base::spi::{Shard, Spi};
use testudo_cluster::member::{CarrierTable, Member, MemberOutput};
use testudo_cluster::node::NodeId;
use testudo_ike::output::{Path, Time};
use testudo_ipsec::pmtu::TooBig;

const SECOND: Duration = Duration::from_secs(1);

fn begun(nodes: usize, peers: usize, seed: u64, syncs: Syncs) -> World {
    World::begun_with(nodes, peers, seed, Duration::from_millis(50), Syncs { routed: true, ..syncs })
}

fn member(world: &mut World, node: usize) -> &mut Member {
    world.nodes[node].member.as_mut().unwrap()
}

fn relayed(world: &mut World, node: usize) -> u64 {
    member(world, node).status().counters.relayed_ike
}

/// The carriers, as the shards of the nodes themselves say.
fn carriers(nodes: &[Node]) -> CarrierTable {
    let mut table = [None; 256];
    for (node, state) in nodes.iter().enumerate() {
        for shard in state.shards.0.iter() {
            table[usize::from(shard.0)] = Some(id(node));
        }
    }
    table
}

fn assert_all_know_the_carriers(world: &World) {
    let expected = carriers(&world.nodes);
    assert!(expected.iter().all(Option::is_some));
    for (node, state) in world.nodes.iter().enumerate().filter(|(_, state)| state.member.is_some()) {
        assert_eq!(state.carriers, expected, "node {node}");
    }
}

fn shards_of(table: &CarrierTable, node: NodeId) -> ShardSet {
    let of_it = |(_, carrier): &(u8, &Option<NodeId>)| **carrier == Some(node);
    (0..=255).zip(table).filter(of_it).map(|(shard, _)| Shard(shard)).collect()
}

#[test]
fn the_node_that_receives_a_first_message_answers_in_a_shard_of_its_own() {
    let mut world = begun(3, 6, 1100, Syncs::default());
    for peer in 0..6 {
        world.entry = peer % 3;
        world.initiate(peer);
        world.run(SECOND);
        assert_eq!(world.owner_of(peer), Some(peer % 3));
        world.assert_tunnel(peer);
    }
    assert_eq!([0, 1, 2].map(|node| relayed(&mut world, node)), [0; 3]);
}

#[test]
fn what_reaches_another_node_goes_on_to_the_node_that_speaks() {
    let mut world = begun(3, 6, 1101, Syncs::default());
    world.establish();
    assert!((0..6).all(|peer| world.owner_of(peer) == Some(0)));
    let spis: Vec<Spi> = (0..6).map(|peer| world.spi_of(peer)).collect();
    world.entry = 1;
    for peer in 0..6 {
        let (now, endpoint) = (world.now, &mut world.peers[peer].endpoint);
        let child = endpoint.sas().next().unwrap().children[0].id;
        assert!(endpoint.rekey_child(now, child));
    }
    world.run(12 * SECOND);
    (0..6).for_each(|peer| world.assert_tunnel(peer));
    assert!((0..6).all(|peer| world.spi_of(peer) != spis[peer]), "all have been rekeyed");
    assert_eq!(relayed(&mut world, 1), 12, "a request and a delete of each");
}

/// After a takeover peers do not know that their messages come to another node.
#[test]
fn a_dead_owners_messages_go_on_to_the_node_that_has_taken_its_shards() {
    let mut world = begun(3, 6, 1102, Syncs::default());
    world.establish();
    world.crash(0, false);
    world.view(&[1, 2]);
    world.entry = 1;
    world.run(3 * SECOND);
    let owners: Vec<usize> = (0..6).map(|peer| world.owner_of(peer).unwrap()).collect();
    assert!(owners.contains(&1) && owners.contains(&2), "{owners:?}");
    (0..6).for_each(|peer| world.assert_tunnel(peer));
    assert!(relayed(&mut world, 1) > 0);
}

#[test]
fn a_node_without_shards_has_another_answer() {
    let mut world = begun(3, 1, 1103, Syncs::default());
    let now = world.now;
    member(&mut world, 0).drain(now, id(2), true).unwrap();
    world.run(3 * SECOND);
    assert!(world.nodes[2].shards.1.is_empty());
    world.entry = 2;
    world.establish();
    assert!(world.owner_of(0) < Some(2));
    assert!(relayed(&mut world, 2) >= 2);
}

/// Nodes that disagree on the owner of a shard must not send a message to and fro.
#[test]
fn nothing_is_relayed_twice() {
    let mut world = begun(3, 0, 1104, Syncs::default());
    let shard = world.nodes[0].shards.1.iter().next().unwrap();
    // A header of INFORMATIONAL from the initiator (RFC 7296 §3.1), with an SPI of that shard.
    let message = [
        &[0, 0, 0, 0, 0, 0, 0, 1, shard.0, 0, 0, 0, 0, 0, 0, 1][..],
        &[46, 0x20, 37, 8, 0, 0, 0, 2, 0, 0, 0, 28],
    ]
    .concat();
    let path = Path {
        local: SocketAddr::new(VIP.parse().unwrap(), 500),
        remote: SocketAddr::new(peer_addr(0), 500),
    };
    let now = world.now;
    let sender = member(&mut world, 1);
    sender.handle_ike(now, path, &message);
    sender.pump(now);
    let outputs: Vec<MemberOutput> = std::iter::from_fn(|| sender.poll_output()).collect();
    let relayed_to: Vec<_> = outputs
        .into_iter()
        .filter_map(|output| match output {
            MemberOutput::Datagram { to, link, bytes } => Some((to, link, bytes)),
            _ => None,
        })
        .collect();
    let [(to, link, bytes)] = &relayed_to[..] else { panic!("{} datagrams", relayed_to.len()) };
    assert_eq!((*to, *link), (id(0), 0));
    // It comes to a node that does not own the shard.
    let other = member(&mut world, 2);
    other.handle_heartbeat(now, *link, bytes);
    other.pump(now);
    assert!(std::iter::from_fn(|| other.poll_output()).next().is_none());
    let counters = other.status().counters;
    assert_eq!((counters.not_ours, counters.relayed_ike), (1, 0));
}

#[test]
fn what_a_router_tells_one_node_all_nodes_hear() {
    let mut world = begun(3, 0, 1105, Syncs::default());
    let told = TooBig {
        local: VIP.parse().unwrap(),
        remote: peer_addr(0),
        spi: Spi(77),
        sequence: 9,
        udp: true,
        mtu: 1400,
    };
    member(&mut world, 1).relay_too_big(&told);
    world.run(LAN * 2);
    assert_eq!([0, 1, 2].map(|node| world.nodes[node].too_big.len()), [1, 0, 1]);
    assert_eq!(world.nodes[2].too_big[0], told);
    // Where all nodes receive what routers say, they hear it once.
    let mut world = World::begun(3, 0, 1105, Duration::from_millis(50));
    member(&mut world, 1).relay_too_big(&told);
    world.run(LAN * 2);
    assert!(world.nodes.iter().all(|node| node.too_big.is_empty()));
}

/// The standby of a suspect carries its packets, and others relay them to it.
#[test]
fn packets_of_a_suspect_go_to_its_standby() {
    let mut world = begun(3, 0, 1106, Syncs::default());
    assert_all_know_the_carriers(&world);
    let owned = world.nodes[0].shards.0;
    world.mute = Some(0);
    world.run(SECOND);
    for node in [1, 2] {
        let table = &world.nodes[node].carriers;
        assert!(shards_of(table, id(0)).is_empty());
        let carried: Vec<ShardSet> = [1, 2].map(|node| shards_of(table, id(node))).into();
        assert_eq!(carried[0], world.nodes[1].shards.0);
        assert_eq!(carried[1], world.nodes[2].shards.0);
        assert_eq!(carried[0].union(carried[1]).intersection(owned), owned);
    }
    world.mute = None;
    world.run(3 * SECOND);
    assert_all_know_the_carriers(&world);
}

/// The nodes that a node relays packets to, of those that count here, carry their shards or keep
/// the packets back.
fn assert_kept(world: &World, node: usize, table: &CarrierTable, counts: impl Fn(usize) -> bool) {
    for (shard, carrier) in (0..=255).map(Shard).zip(table) {
        let carrier = usize::from(carrier.unwrap().get()) - 1;
        let (shards, held) = (world.nodes[carrier].shards.0, world.nodes[carrier].held);
        let is_kept = shards.contains(shard) || held.contains(shard) || !counts(carrier);
        assert!(is_kept, "node {node} relays shard {} to node {carrier} at {:?}", shard.0, world.now);
    }
}

/// Whenever a node relays a packet to another, that one carries its shard or keeps the packet back,
/// now and when the packet comes there.
#[test]
fn a_handover_leaves_no_packet_without_a_carrier() {
    let mut world = begun(4, 0, 1107, Syncs::default());
    world.crash(3, false);
    world.view(&[0, 1, 2]);
    world.run(2 * SECOND);
    world.restart(3);
    world.view(&[0, 1, 2, 3]);
    world.run(LAN * 20);
    let end = world.now.plus(2 * SECOND);
    // To which nodes packets were relayed that come there now. What a node keeps itself is there.
    let mut under_way: VecDeque<(Time, Vec<CarrierTable>)> = VecDeque::new();
    while world.step(end) {
        let (now, mut coming) = (world.now, Vec::new());
        while let Some((_, tables)) = under_way.pop_front_if(|(at, _)| at.plus(LAN) <= now) {
            coming = tables;
        }
        let tables: Vec<CarrierTable> = world.nodes.iter().map(|node| node.carriers).collect();
        let to_others = |(node, table)| assert_kept(&world, node, table, |carrier| carrier != node);
        coming.iter().enumerate().for_each(to_others);
        let to_itself = |(node, table)| assert_kept(&world, node, table, |carrier| carrier == node);
        tables.iter().enumerate().for_each(to_itself);
        under_way.push_back((now, tables));
    }
    world.assert_all_shards_once();
    assert_all_know_the_carriers(&world);
    assert!(!world.nodes[3].shards.0.is_empty());
}

/// Routers learn first that a node will be gone.
#[test]
fn a_drained_node_withdraws_before_it_gives_shards_away() {
    let mut world = begun(3, 0, 1108, Syncs::default());
    assert!(world.nodes.iter().all(|node| node.serves));
    let carried = world.nodes[0].shards;
    let now = world.now;
    member(&mut world, 1).drain(now, id(0), true).unwrap();
    world.run(WITHDRAW - LAN);
    assert!(!world.nodes[0].serves);
    assert_eq!(world.nodes[0].shards, carried);
    world.run(2 * SECOND);
    assert_eq!(world.nodes[0].shards, Default::default());
    assert!(world.nodes[1].serves && world.nodes[2].serves);
    let now = world.now;
    member(&mut world, 1).drain(now, id(0), false).unwrap();
    world.run(2 * SECOND);
    assert!(world.nodes[0].serves && !world.nodes[0].shards.0.is_empty());
}

/// Nobody could serve in its place.
#[test]
fn the_last_node_goes_on_serving_while_it_leaves() {
    let mut world = begun(2, 0, 1109, Syncs::default());
    world.crash(1, false);
    world.view_of(&[0], true);
    world.run(2 * SECOND);
    let now = world.now;
    let _ = member(&mut world, 0).leave(now);
    world.run(SECOND);
    assert!(world.nodes[0].serves);
}

/// The filter of the node that takes over has not seen what routers gave to the owner, so all
/// numbers that the owner can have accepted count as seen. The peer is asked to skip them; if it
/// cannot, it gets new keys.
#[test]
fn a_takeover_counts_all_that_the_owner_can_have_accepted_as_seen() {
    for unknown in [false, true] {
        let mut world = begun(3, 6, 1110, Syncs { unknown, ..Syncs::default() });
        world.establish();
        let (owner, spi) = (world.owner_of(0).unwrap(), world.spi_of(0));
        let now = world.now;
        member(&mut world, owner).report_marks(now, &[(spi, 1000)]);
        world.run(SECOND);
        world.seen.insert(spi, 1001);
        world.crash(owner, false);
        world.entry = (owner + 1) % 3;
        world.view(&(0..3).filter(|node| *node != owner).collect::<Vec<_>>());
        world.run(12 * SECOND);
        let taker = world.owner_of(0).unwrap();
        let floor = world.nodes[taker].floors[&spi];
        assert!(floor >= 1000 + LINE_RATE, "{floor}");
        assert!(floor < 1000 + 3 * LINE_RATE, "{floor}");
        match unknown {
            true => assert_ne!(world.spi_of(0), spi),
            false => {
                assert_eq!(world.spi_of(0), spi);
                let skipped: u64 = world.peers[0].skipped.iter().map(|(_, by)| by).sum();
                assert!(skipped > floor - 1000, "{skipped}");
            }
        }
    }
}

/// A standby that was wrong has a window whose floor is far ahead of the peer. When the shard comes
/// to it later, the peer is asked to skip these numbers.
#[test]
fn a_floor_of_a_wrong_suspicion_is_not_forgotten() {
    let mut world = begun(3, 6, 1111, Syncs::default());
    world.establish();
    let spis: Vec<Spi> = (0..6).map(|peer| world.spi_of(peer)).collect();
    world.mute = Some(0);
    world.run(SECOND);
    world.mute = None;
    world.run(2 * SECOND);
    assert!((0..6).all(|peer| world.owner_of(peer) == Some(0)), "no view has begun");
    let now = world.now;
    member(&mut world, 1).drain(now, id(0), true).unwrap();
    world.run(12 * SECOND);
    for (peer, spi) in spis.iter().enumerate() {
        world.assert_tunnel(peer);
        let owner = world.owner_of(peer).unwrap();
        let skipped: u64 = world.peers[peer].skipped.iter().map(|(_, by)| by).sum();
        let provisional = world.nodes[owner].highest_floors[spi];
        assert!(owner > 0 && skipped >= provisional && provisional > LINE_RATE, "{skipped} {provisional}");
    }
}
