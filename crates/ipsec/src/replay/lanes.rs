//! The lanes of a spread inbound SA.
//!
//! Several nodes receive for the SA, each for the numbers of its own lanes, in a window of its own.
//! When a lane changes its node, the former one tells the highest number that it has accepted in
//! the lane, and for the next one all numbers of the lane up to it count as seen. So a number is
//! accepted by one node, and there once. Other lanes are not touched: their packets may be on their
//! way.

use crate::atomics::AtomicU64;
use crate::atomics::Ordering::Relaxed;
use testudo_base::shard::{SHARDS, ShardSet};
use testudo_base::spi::{Shard, Spi};
use testudo_planted::{Plant, planted};

/// A lane that comes from another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneFloor {
    /// The inbound SPI of the spread SA.
    pub spi: Spi,
    /// The lane.
    pub lane: Shard,
    /// Numbers of the lane up to this one count as seen. It may lie above all that the peer has
    /// sent.
    pub floor: u64,
    /// A number that the peer has sent, and not long ago.
    pub known: u64,
}

/// What a node has accepted in each lane, and what counts as seen.
#[derive(Debug)]
pub struct Lanes(Box<[Lane]>);

#[derive(Debug)]
struct Lane {
    /// Numbers up to this one count as seen.
    floor: AtomicU64,
    /// The highest number accepted here.
    top: AtomicU64,
}

impl Default for Lanes {
    fn default() -> Self {
        Self::new()
    }
}

impl Lanes {
    /// Nothing is accepted yet.
    pub fn new() -> Self {
        Self((0..SHARDS).map(|_| Lane { floor: AtomicU64::new(0), top: AtomicU64::new(0) }).collect())
    }

    #[inline]
    fn lane(&self, lane: Shard) -> Option<&Lane> {
        self.0.get(usize::from(lane.0))
    }

    /// True if the number is not above its lane's floor. A number is accepted at the moment of this
    /// question, if the window accepts it too.
    #[inline]
    pub fn is_seen(&self, lane: Shard, number: u64) -> bool {
        self.lane(lane).is_some_and(|lane| number <= lane.floor.load(Relaxed))
    }

    /// Makes all numbers of a lane up to `floor` count as seen.
    pub fn raise(&self, lane: Shard, floor: u64) {
        if let Some(lane) = self.lane(lane)
            && !planted(Plant::NoLaneFloor)
        {
            lane.floor.fetch_max(floor, Relaxed);
        }
    }

    /// A number of a lane has been accepted.
    #[inline]
    pub fn note(&self, lane: Shard, number: u64) {
        if let Some(lane) = self.lane(lane) {
            lane.top.fetch_max(number, Relaxed);
        }
    }

    /// The highest number of each lane that was accepted here or counts as seen, for the node that
    /// gets the lane. Lanes without one are left out. A lane's floor is part of it: a node that has
    /// accepted nothing since it got the lane must pass on what it was told.
    pub fn tops(&self, shards: ShardSet) -> Vec<(Shard, u64)> {
        let top = |shard| {
            let lane = self.lane(shard)?;
            let top = lane.top.load(Relaxed).max(lane.floor.load(Relaxed));
            (top > 0).then_some((shard, top))
        };
        shards.iter().filter_map(top).collect()
    }
}
