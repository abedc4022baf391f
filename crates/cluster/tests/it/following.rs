//! Routers give each packet to one node: a shard moves to the node that most of its packets reach.

use crate::world::{Node, Syncs, World, id};
use std::time::Duration;
use testudo_base::shard::ShardSet;
use testudo_base::spi::Shard;
use testudo_cluster::member::ShardPackets;

const SECOND: Duration = Duration::from_secs(1);
/// Packets a second of each shard that has any.
const RATE: u64 = 500;
/// Longer than the wait for the first move, and what comes before and after it.
const WAIT: u64 = 13;
/// A version that knows nothing of it.
const BEFORE: u8 = 24;

/// A cluster, and the packets that its nodes have counted.
struct Routers {
    world: World,
    counted: Vec<ShardPackets>,
}

impl Routers {
    fn begun(nodes: usize, peers: usize, seed: u64, syncs: Syncs) -> Self {
        let syncs = Syncs { routed: true, ..syncs };
        let world = World::begun_with(nodes, peers, seed, Duration::from_millis(50), syncs);
        Self { world, counted: vec![ShardPackets::default(); nodes] }
    }

    /// For so many seconds all packets of these shards reach this node.
    fn give(&mut self, shards: ShardSet, to: usize, seconds: u64) {
        for _ in 0..seconds {
            for shard in shards.iter() {
                let place = usize::from(shard.0);
                let carrier = self.owner(shard);
                self.counted[carrier].carried[place] += RATE;
                if carrier != to {
                    self.counted[to].relayed[place] += RATE;
                }
            }
            let now = self.world.now;
            for (node, counted) in self.world.nodes.iter_mut().zip(&self.counted) {
                if let Some(member) = &mut node.member {
                    member.report_packets(now, counted);
                }
            }
            self.world.run(SECOND);
        }
    }

    fn owner(&self, shard: Shard) -> usize {
        let carries = |node: &Node| node.shards.0.contains(shard);
        self.world.nodes.iter().position(carries).expect("a shard is carried")
    }

    fn shard_of(&self, node: usize) -> Shard {
        self.world.nodes[node].shards.0.iter().next().unwrap()
    }

    fn followed(&self, node: usize) -> u64 {
        self.world.nodes[node].member.as_ref().unwrap().status().counters.followed
    }

    fn assert_agreed(&self) {
        let members = self.world.nodes.iter().filter_map(|node| node.member.as_ref());
        let digests: Vec<u64> = members.map(|member| member.digest()).collect();
        assert!(digests.windows(2).all(|pair| pair[0] == pair[1]), "{digests:x?}");
        self.world.assert_all_shards_once();
    }
}

fn only(shard: Shard) -> ShardSet {
    [shard].into_iter().collect()
}

#[test]
fn a_shard_moves_to_the_node_that_its_packets_reach() {
    let mut routers = Routers::begun(3, 3, 1200, Syncs::default());
    routers.world.establish();
    assert_eq!(routers.world.owner_of(0), Some(0));
    let shard = routers.world.spi_of(0).shard();
    routers.give(only(shard), 2, 9);
    assert_eq!(routers.owner(shard), 0);
    routers.give(only(shard), 2, 4);
    assert_eq!((routers.owner(shard), routers.world.owner_of(0)), (2, Some(2)));
    assert_eq!([0, 1, 2].map(|node| routers.followed(node)), [1; 3]);
    let line = format!("shard {} goes to node 3, which most of its packets reach", shard.0);
    let logged: Vec<_> = routers.world.logs().into_iter().filter(|logged| logged.contains(&line)).collect();
    assert_eq!(logged.len(), 1, "its owner says so, once");
    (0..3).for_each(|peer| routers.world.assert_tunnel(peer));
    routers.assert_agreed();
    let status = routers.world.nodes[0].member.as_ref().unwrap().status();
    assert_eq!(status.preferred, [(id(2), 1)]);
}

#[test]
fn routes_that_flap_move_nothing() {
    let mut routers = Routers::begun(3, 0, 1201, Syncs::default());
    let shard = routers.shard_of(0);
    for _ in 0..12 {
        routers.give(only(shard), 1, 7);
        routers.give(only(shard), 0, 3);
        routers.give(only(shard), 2, 7);
    }
    assert_eq!((routers.owner(shard), routers.followed(0)), (0, 0));
    // The second move takes twice as long.
    routers.give(only(shard), 1, WAIT);
    assert_eq!(routers.owner(shard), 1);
    routers.give(only(shard), 0, WAIT);
    assert_eq!(routers.owner(shard), 1);
    routers.give(only(shard), 0, WAIT);
    assert_eq!(routers.owner(shard), 0);
}

/// A node that is gone gives its shards to others, and gets those back whose packets reach it.
#[test]
fn a_node_that_restarts_learns_where_shards_should_be() {
    let mut routers = Routers::begun(3, 0, 1202, Syncs::default());
    let shard = routers.shard_of(0);
    routers.give(only(shard), 2, WAIT);
    assert_eq!(routers.owner(shard), 2);
    for gone in [1, 2] {
        routers.world.crash(gone, false);
        routers.world.view(&[0, 3 - gone]);
        routers.world.run(2 * SECOND);
        assert_ne!(routers.owner(shard), gone);
        routers.world.restart(gone);
        routers.counted[gone] = ShardPackets::default();
        routers.world.view(&[0, 1, 2]);
        routers.world.run(5 * SECOND);
        assert_eq!(routers.owner(shard), 2);
        routers.assert_agreed();
    }
    // Of three nodes, two that know it have restarted: it is not theirs alone.
    let now = routers.world.now;
    routers.world.nodes[1].member.as_mut().unwrap().drain(now, id(2), true).unwrap();
    routers.world.run(5 * SECOND);
    assert_ne!(routers.owner(shard), 2);
    routers.world.nodes[1].member.as_mut().unwrap().drain(now, id(2), false).unwrap();
    routers.world.run(5 * SECOND);
    assert_eq!(routers.owner(shard), 2);
}

#[test]
fn no_shard_follows_its_packets_to_a_drained_node() {
    let mut routers = Routers::begun(3, 0, 1207, Syncs::default());
    let shard = routers.shard_of(0);
    let now = routers.world.now;
    routers.world.nodes[0].member.as_mut().unwrap().drain(now, id(1), true).unwrap();
    routers.give(only(shard), 1, 2 * WAIT);
    assert_eq!((routers.owner(shard), routers.followed(0)), (0, 0));
    routers.world.nodes[0].member.as_mut().unwrap().drain(now, id(1), false).unwrap();
    routers.give(only(shard), 1, 2);
    assert_eq!((routers.owner(shard), routers.followed(0)), (1, 1));
}

/// Not all shards rest at once.
#[test]
fn shards_move_a_few_at_a_time() {
    let mut routers = Routers::begun(2, 0, 1203, Syncs::default());
    let shards = routers.world.nodes[0].shards.0;
    routers.give(shards, 1, WAIT);
    let moved = routers.followed(1);
    assert!((8..=32).contains(&moved), "{moved}");
    routers.give(shards, 1, 20);
    assert_eq!(routers.world.nodes[1].shards.0, ShardSet::ALL);
    // Else no packet would ever come back to it.
    assert!(routers.world.nodes[0].serves);
    routers.give(shards, 0, 50);
    assert_eq!(routers.world.nodes[0].shards.0, shards);
}

#[test]
fn beside_an_older_version_shards_are_where_their_ranks_say() {
    let mut routers = Routers::begun(3, 0, 1204, Syncs { version: Some(BEFORE), ..Syncs::default() });
    let shard = routers.shard_of(0);
    routers.give(only(shard), 1, 2 * WAIT);
    assert_eq!((routers.owner(shard), routers.followed(1)), (0, 0));
    let mut routers = Routers::begun(3, 0, 1205, Syncs::default());
    let shard = routers.shard_of(0);
    routers.give(only(shard), 1, WAIT);
    assert_eq!(routers.owner(shard), 1);
    routers.world.crash(2, false);
    routers.world.view(&[0, 1]);
    routers.world.run(SECOND);
    routers.world.syncs.version = Some(BEFORE);
    routers.world.restart(2);
    routers.world.view(&[0, 1, 2]);
    routers.world.run(5 * SECOND);
    assert_eq!(routers.owner(shard), 0);
    routers.assert_agreed();
}

/// An operator has told node 2 that its shards are to stay.
#[test]
fn a_node_whose_shards_do_not_follow_gives_back_those_of_others() {
    let mut routers = Routers::begun(3, 0, 1206, Syncs { stays: Some(1), ..Syncs::default() });
    let shard = routers.shard_of(1);
    routers.give(only(shard), 2, 2 * WAIT);
    assert_eq!((routers.owner(shard), routers.followed(0)), (1, 0));
    let shard = routers.shard_of(0);
    routers.give(only(shard), 1, WAIT);
    assert_eq!((routers.owner(shard), routers.followed(0)), (0, 1));
    routers.assert_agreed();
}
