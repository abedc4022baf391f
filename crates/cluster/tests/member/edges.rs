//! What a node that takes over counts as seen, and how a share changes hands without a pause.

use crate::world::{LAN, World};
use std::collections::BTreeMap;
use std::time::Duration;
use testudo_cluster::share::ShareSet;

/// Packets a second that one SA can carry at most.
const LINE_RATE: u64 = 2_000_000;

/// Every owner tells once a second; what has moved is that.
fn tell(world: &mut World, seconds: usize, edge: u64) {
    for _ in 0..seconds {
        for peer in 0..6 {
            let spi = world.spi_of(peer);
            let owner = world.owner_of(peer).unwrap();
            let now = world.now;
            world.nodes[owner].member.as_mut().unwrap().report_edges(now, &[(spi, edge)]);
        }
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

/// On an SA that has been silent for long a forged packet reaches no further than on any other. It is renewed at once.
#[test]
fn a_forged_number_reaches_no_further_than_the_owner_can_have_got() {
    let mut world = World::established(3, 6, 800);
    let spi = world.spi_of(0);
    tell(&mut world, 1, 1000);
    tell(&mut world, 60, 1000);
    world.seen.insert(spi, u32::MAX / 2);
    let taker = lose_owner(&mut world);
    let floor = world.nodes[taker].floors[&spi];
    assert!(floor > 1000 && floor - 1000 < 3 * LINE_RATE, "{floor}");
    world.run(Duration::from_secs(12));
    world.assert_tunnel(0);
    assert_ne!(world.spi_of(0), spi, "the peer's numbers lie far below: it has new keys");
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
    }
}

/// A node comes back to its shares. None is carried twice, and none is without a carrier for longer than one acknowledgement takes.
#[test]
fn a_share_changes_hands_within_one_acknowledgement() {
    let mut world = World::established(3, 6, 802);
    world.crash(2, false);
    world.view(&[0, 1]);
    world.run(Duration::from_secs(2));
    world.restart(2);
    world.view(&[0, 1, 2]);
    world.doubled = ShareSet::EMPTY;
    let carried =
        |world: &World| world.nodes.iter().fold(ShareSet::EMPTY, |all, node| all.union(node.shares.0));
    let end = world.now.plus(Duration::from_secs(2));
    let (mut since, mut longest) = (BTreeMap::new(), Duration::ZERO);
    while world.step(end) {
        let carried = carried(&world);
        for share in ShareSet::ALL.iter() {
            match carried.contains(share) {
                true => {
                    let gap = since.remove(&share).map(|since| world.now.since(since));
                    longest = longest.max(gap.unwrap_or_default());
                }
                false => drop(since.entry(share).or_insert(world.now)),
            }
        }
    }
    world.assert_all_shares_once();
    assert!(!world.nodes[2].shares.0.is_empty() && world.doubled.is_empty());
    assert!(longest <= LAN, "{longest:?}");
}
