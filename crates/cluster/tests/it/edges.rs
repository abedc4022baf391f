//! The numbers that a new owner treats as seen, and the handover of a shard without a pause.

use crate::world::{LAN, LINE_RATE, Node, Syncs, World};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use testudo_base::shard::ShardSet;
use testudo_base::spi::Spi;
use testudo_ike::config::Connection;

/// Packets a second: as many as 100 Gb/s carry of the smallest frames.
const ASSUMED: u64 = 148_809_523;

/// Every owner tells that this is how far its peers' SAs have moved.
fn tell_now(world: &mut World, edge: u64) {
    let mut told: BTreeMap<usize, Vec<(Spi, u64)>> = BTreeMap::new();
    for peer in 0..world.peers.len() {
        told.entry(world.owner_of(peer).unwrap()).or_default().push((world.spi_of(peer), edge));
    }
    for (owner, edges) in told {
        let now = world.now;
        world.nodes[owner].member.as_mut().unwrap().report_marks(now, &edges);
    }
}

/// It does so once a second.
fn tell(world: &mut World, seconds: usize, edge: u64) {
    for _ in 0..seconds {
        tell_now(world, edge);
        world.run(Duration::from_secs(1));
    }
}

fn lose_owner(world: &mut World) -> usize {
    let owner = world.owner_of(0).unwrap();
    world.crash(owner, false);
    world.view(&(0..3).filter(|node| *node != owner).collect::<Vec<_>>());
    world.run(Duration::from_secs(2));
    world.owner_of(0).unwrap()
}

/// Where the floor lies at the node that takes over from an owner which has told of 100, if a
/// number far ahead was forged.
fn floor_behind_a_forgery(world: &mut World) -> u64 {
    let spi = world.spi_of(0);
    tell(world, 1, 100);
    world.seen.insert(spi, u32::MAX / 2);
    let taker = lose_owner(world);
    world.nodes[taker].floors[&spi]
}

/// A high-water mark that waits for a view is of the moment when it was said: the peer has gone on
/// meanwhile.
#[test]
fn an_edge_that_has_waited_is_as_old_as_it_is() {
    let mut world = World::established(3, 6, 805);
    let (spi, nodes) = (world.spi_of(0), [0, 1, 2]);
    tell(&mut world, 1, 1000);
    tell_now(&mut world, 2000);
    world.settle();
    nodes.iter().for_each(|node| world.lose_engine(*node));
    world.run(Duration::from_secs(5));
    world.view(&nodes);
    world.run(Duration::from_millis(200));
    world.seen.insert(spi, 8_000_000);
    let taker = lose_owner(&mut world);
    assert_eq!(world.nodes[taker].floors[&spi], 8_000_000, "so far the peer can have got");
}

/// The owner's ports are faster than the taker's: what an SA has carried shows it, and what it can
/// have carried since is not accepted again.
#[test]
fn an_sa_faster_than_the_ports_of_the_taker_reaches_as_far_as_its_rate_explains() {
    let mut world = World::established(3, 6, 807);
    let spi = world.spi_of(0);
    let second = 3 * LINE_RATE;
    for told in 1..=4 {
        tell(&mut world, 1, told * second);
    }
    let seen = 4 * second + 2 * second;
    world.seen.insert(spi, u32::try_from(seen).unwrap());
    let taker = lose_owner(&mut world);
    assert_eq!(world.nodes[taker].floors[&spi], seen);
    world.run(Duration::from_secs(12));
    assert_eq!(world.spi_of(0), spi, "nobody doubts it");
}

/// A peer has skipped numbers, as it was asked to: that is no speed, and the next floor does not lie
/// four times as far ahead.
#[test]
fn numbers_that_were_skipped_are_no_packets() {
    const SKIPPED: u64 = 300_000_000;
    let mut world = World::established(3, 6, 807);
    let spi = world.spi_of(0);
    tell(&mut world, 1, 100);
    tell(&mut world, 1, 100 + SKIPPED);
    world.seen.insert(spi, u32::MAX / 2);
    let taker = lose_owner(&mut world);
    let reach = world.nodes[taker].floors[&spi] - SKIPPED;
    assert!(reach < 4 * ASSUMED, "{reach}");
}

/// A number that was forged reaches as far as the ports can carry, and no further.
#[test]
fn the_ports_of_a_node_bound_what_can_have_come() {
    let mut world = World::established(3, 6, 808);
    for node in &mut world.nodes {
        node.member.as_mut().unwrap().set_line_rate(1000);
    }
    let floor = floor_behind_a_forgery(&mut world);
    assert!(floor > 100 && floor - 100 < 4000, "{floor}");
}

/// The taker's ports are slower than the owner's: what the owner's can have carried is not accepted
/// again.
#[test]
fn the_ports_of_the_owner_bound_what_it_can_have_taken_in() {
    const FAST: u64 = 500_000;
    let mut world = World::established(3, 6, 809);
    let owner = world.owner_of(0).unwrap();
    for (node, state) in world.nodes.iter_mut().enumerate() {
        let rate = if node == owner { FAST } else { 1000 };
        state.member.as_mut().unwrap().set_line_rate(rate);
    }
    let floor = floor_behind_a_forgery(&mut world);
    assert!(floor > 100 + FAST && floor - 100 < 4 * FAST, "{floor}");
}

/// A joining node has not reported its ports yet, and nodes of an older version never do: the
/// fastest ports that a host can handle are assumed.
#[test]
fn unreported_ports_are_assumed_to_be_the_fastest() {
    for version in [Some(18), None] {
        let mut world = World::established_with(3, 6, 810, Syncs { version, ..Syncs::default() });
        let reach = floor_behind_a_forgery(&mut world) - 100;
        assert_eq!(reach > ASSUMED / 2, version.is_some(), "{reach}");
        assert!(reach < 4 * ASSUMED);
    }
}

/// A cluster whose peers do not skip numbers.
fn without_syncs(seed: u64) -> World {
    World::established_with(3, 6, seed, Syncs { unknown: true, ..Syncs::default() })
}

/// On an SA that has been silent for long a forged packet reaches no further than on any other.
/// Gives floor and SPI.
fn forge(world: &mut World) -> (u64, Spi) {
    let spi = world.spi_of(0);
    tell(world, 1, 1000);
    tell(world, 60, 1000);
    world.seen.insert(spi, u32::MAX / 2);
    let taker = lose_owner(world);
    let floor = world.nodes[taker].floors[&spi];
    assert!(floor > 1000 && floor - 1000 < 3 * LINE_RATE, "{floor}");
    world.run(Duration::from_secs(12));
    world.assert_tunnel(0);
    (floor, spi)
}

/// The peer's numbers are far below. It continues above the floor at once, on its present SA.
#[test]
fn a_forged_number_reaches_no_further_than_the_owner_can_have_got() {
    let mut world = World::established(3, 6, 800);
    let (floor, spi) = forge(&mut world);
    assert_eq!(world.spi_of(0), spi);
    let skipped: Vec<u64> = world.peers[0].skipped.iter().map(|(_, by)| *by).collect();
    assert_eq!(skipped, [floor - 1000 + 1], "it has sent no less than 1000, and goes on above {floor}");
    assert!(world.peers[1..].iter().all(|peer| peer.skipped.is_empty()));
}

#[test]
fn a_peer_that_leaves_no_numbers_out_gets_new_keys() {
    let mut world = without_syncs(800);
    let (_, spi) = forge(&mut world);
    assert_ne!(world.spi_of(0), spi);
    assert!(world.peers[0].skipped.is_empty());
}

/// Of 2^32 numbers a peer is not asked to leave a quarter out: the SA gets new keys.
#[test]
fn too_many_numbers_are_left_out_only_of_extended_ones() {
    const FAST: u64 = 1_500_000_000;
    for (esn, rate, leaves_out) in [(true, FAST, true), (false, FAST, false), (false, LINE_RATE, true)] {
        let mut world = World::begun(3, 6, 811, Duration::from_millis(50));
        let edit = |connection: &mut Connection| connection.children[0].proposals[0].esn = vec![esn];
        world.configure(edit, edit);
        world.establish();
        for node in &mut world.nodes {
            node.member.as_mut().unwrap().set_line_rate(rate);
        }
        let spi = world.spi_of(0);
        let floor = floor_behind_a_forgery(&mut world);
        assert_eq!(floor - 100 >= 1 << 30, rate == FAST, "{floor}");
        world.run(Duration::from_secs(12));
        world.assert_tunnel(0);
        let left_out: Vec<u64> = world.peers[0].skipped.iter().map(|(_, by)| *by).collect();
        match leaves_out {
            true => assert_eq!((world.spi_of(0), left_out), (spi, vec![floor - 100 + 1])),
            false => assert!(world.spi_of(0) != spi && left_out.is_empty()),
        }
    }
}

#[test]
fn numbers_that_the_rate_explains_are_no_reason_for_new_keys() {
    for (before, seen) in [(0, 1200), (1000, 4000)] {
        let mut world = World::established(3, 6, 801);
        let spi = world.spi_of(0);
        if before > 0 {
            tell(&mut world, 1, 0);
        }
        tell(&mut world, 1, 1000);
        world.seen.insert(spi, seen);
        let taker = lose_owner(&mut world);
        assert_eq!(world.nodes[taker].floors[&spi], u64::from(seen));
        world.run(Duration::from_secs(12));
        assert_eq!(world.spi_of(0), spi);
        assert!(world.peers[0].skipped.is_empty());
    }
}

/// After what was told `before`, a number far ahead is seen: it is doubted.
fn assert_doubted(before: impl Fn(&mut World)) {
    let mut world = without_syncs(803);
    let spi = world.spi_of(0);
    before(&mut world);
    world.seen.insert(spi, 1_100_000);
    lose_owner(&mut world);
    world.run(Duration::from_secs(12));
    world.assert_tunnel(0);
    assert_ne!(world.spi_of(0), spi);
}

/// An earlier rate of an SA explains nothing after it has been silent.
#[test]
fn a_rate_is_of_the_last_telling() {
    assert_doubted(|world| {
        tell(world, 1, 1000);
        tell(world, 2, 1_000_000);
        tell(world, 3, 1_000_000);
    });
}

/// Two high-water marks in quick succession make no SA fast.
#[test]
fn a_rate_is_of_no_less_than_half_a_second() {
    assert_doubted(|world| {
        tell(world, 1, 999_000);
        tell_now(world, 999_500);
        world.run(Duration::from_millis(1));
        tell_now(world, 1_000_000);
    });
}

/// The next owner of a shard accepts packets from the number where the owner has stopped: higher
/// numbers that its filter has seen were accepted by no node.
#[test]
fn the_next_owner_continues_where_the_owner_stopped() {
    let mut world = World::established(3, 6, 804);
    let spi = world.spi_of(0);
    let owner = world.owner_of(0).unwrap();
    tell(&mut world, 1, 1000);
    tell(&mut world, 1, 1_001_000);
    world.seen.insert(spi, 1_500_000);
    world.set_link(owner, false);
    world.run(Duration::from_millis(500));
    assert_ne!(world.owner_of(0), Some(owner));
    world.set_link(owner, true);
    world.run(Duration::from_secs(12));
    assert_eq!(world.owner_of(0), Some(owner));
    assert_eq!(world.nodes[owner].floors[&spi], 1_001_000);
    assert_eq!(world.spi_of(0), spi, "and nobody doubts that");
}

/// A node that has been given a shard and has not begun with it says nothing of it when it says
/// that nothing else has moved.
#[test]
fn nothing_is_said_of_shards_that_are_not_taken_yet() {
    let mut world = World::established(5, 6, 805);
    let (spi, shard) = (world.spi_of(0), world.spi_of(0).shard());
    tell(&mut world, 1, 1000);
    let silent = Duration::from_secs(30);
    world.run(silent);
    let mut left: Vec<usize> = (0..5).collect();
    let mut lose = |world: &mut World, node: usize| {
        left.retain(|other| *other != node);
        world.crash(node, false);
        world.view(&left);
    };
    let owner = world.owner_of(0).unwrap();
    lose(&mut world, owner);
    world.run(Duration::from_millis(5));
    let standby = (0..5).find(|node| world.nodes[*node].shards.0.contains(shard)).unwrap();
    assert!(!world.nodes[standby].shards.1.contains(shard), "it waits for what the owner may still send");
    let now = world.now;
    world.nodes[standby].member.as_mut().unwrap().report_marks(now, &[]);
    world.run(Duration::from_millis(20));
    assert!(!world.nodes[standby].shards.1.contains(shard), "still");
    lose(&mut world, standby);
    world.seen.insert(spi, u32::MAX / 2);
    world.run(Duration::from_secs(2));
    let taker = world.owner_of(0).unwrap();
    let reach = world.nodes[taker].floors[&spi] - 1000;
    assert!(
        reach >= LINE_RATE * silent.as_secs(),
        "{reach}: the owner may have taken so many in since it last told"
    );
}

/// The peer has just made a Child SA, and not sent on it yet, when its owner dies: it cannot be
/// renewed before the peer does, but then it is. Nor would it leave numbers out of what it does not
/// know.
#[test]
fn doubt_lasts_until_something_can_be_done() {
    for unknown in [true, false] {
        doubted_before_the_peer_sends(unknown);
    }
}

fn doubted_before_the_peer_sends(unknown: bool) {
    let mut world = World::established_with(3, 6, 806, Syncs { unknown, ..Syncs::default() });
    let old = world.spi_of(0);
    let owner = world.owner_of(0).unwrap();
    let (now, peer) = (world.now, &mut world.peers[0].endpoint);
    let child = peer.sas().next().unwrap().children[0].id;
    assert!(peer.rekey_child(now, child));
    let standby = (0..3).find(|node| *node != owner).unwrap();
    let known = |world: &World| -> BTreeSet<Spi> {
        world.nodes[standby].installed.values().map(|(params, _)| params.spi_in).collect()
    };
    let before = known(&world);
    while known(&world).len() == before.len() {
        assert!(world.step(world.now.plus(Duration::from_secs(1))));
    }
    let new = *known(&world).difference(&before).next().unwrap();
    // All have it; no node has heard that the peer sends on it.
    world.run(Duration::from_millis(3));
    assert!(known(&world).contains(&old));
    world.seen.insert(new, 100_000);
    lose_owner(&mut world);
    world.run(Duration::from_secs(30));
    world.assert_tunnel(0);
    match unknown {
        true => assert!(![old, new].contains(&world.spi_of(0)), "new keys were wanted for {new}"),
        false => {
            assert_eq!(world.spi_of(0), new);
            assert_eq!(world.peers[0].skipped.len(), 1, "{:?}", world.logs());
        }
    }
    let told = world.logs().into_iter().filter(|line| line.contains("may be forged")).count();
    assert_eq!(told, 1);
}

/// A node comes back to its shards. None is carried twice, none is ever without a node that carries
/// it or keeps its packets back, and none is only kept back for longer than two messages and their
/// acknowledgements take.
#[test]
fn a_shard_changes_hands_without_a_gap() {
    let mut world = World::established(3, 6, 802);
    world.crash(2, false);
    world.view(&[0, 1]);
    world.run(Duration::from_secs(2));
    world.restart(2);
    world.view(&[0, 1, 2]);
    world.doubled = ShardSet::EMPTY;
    let of_all = |world: &World, of: fn(&Node) -> ShardSet| {
        world.nodes.iter().fold(ShardSet::EMPTY, |all, node| all.union(of(node)))
    };
    let end = world.now.plus(Duration::from_secs(2));
    let (mut since, mut longest) = (BTreeMap::new(), Duration::ZERO);
    while world.step(end) {
        let carried = of_all(&world, |node| node.shards.0);
        let kept = carried.union(of_all(&world, |node| node.held));
        assert_eq!(kept, ShardSet::ALL, "neither carried nor kept back");
        for shard in ShardSet::ALL.iter() {
            match carried.contains(shard) {
                true => {
                    let gap = since.remove(&shard).map(|since| world.now.since(since));
                    longest = longest.max(gap.unwrap_or_default());
                }
                false => drop(since.entry(shard).or_insert(world.now)),
            }
        }
    }
    world.assert_all_shards_once();
    assert!(!world.nodes[2].shards.0.is_empty() && world.doubled.is_empty());
    assert!(longest <= 4 * LAN, "{longest:?}");
}
