//! What a node must not forget, not even when its memory is lost: it is on the disk before it
//! counts.
//!
//! - Its **incarnation**: no sender ID is used twice.
//! - The last quorate **view that it has begun**. A node that comes back with nothing would else be
//!   one more voice for whoever has an older state: a majority of which one has forgotten is none.

use super::heartbeat::{mask, within};
use crate::engine::{RingId, View};
use crate::node::NodeId;
use serde::{Deserialize, Serialize};

/// What a node writes to its disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Durable {
    /// The last incarnation that it has asked for; 0 if it never has.
    pub incarnation: u16,
    /// The last quorate view that it has begun.
    pub begun: Begun,
}

/// A quorate view that has begun on a node. Later ones are greater: their rings are in the order in
/// which who was in both has seen them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Begun {
    /// Of the engine.
    pub ring: RingId,
    /// Counts quorate views; 0 if there was none.
    pub epoch: u64,
    /// Its members, a bit each.
    pub members: u32,
}

impl Durable {
    /// With what the disk has: nothing on it is taken back.
    #[must_use]
    pub fn on_top_of(self, disk: Self) -> Self {
        Self { incarnation: self.incarnation.max(disk.incarnation), begun: self.begun.max(disk.begun) }
    }
}

impl Begun {
    pub(super) fn new(view: &View, epoch: u64) -> Self {
        Self { ring: view.ring, epoch, members: mask(&view.members) }
    }

    /// True if there was one.
    pub(super) fn is_any(&self) -> bool {
        self.epoch > 0
    }

    /// True if the node is a member of it.
    pub(super) fn has(&self, node: NodeId) -> bool {
        within(self.members, node)
    }

    /// Its members.
    pub(super) fn nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        (0..u32::BITS).filter_map(NodeId::new).filter(|node| self.has(*node))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_is_on_the_disk_is_taken_back() {
        let durable =
            |incarnation, epoch| Durable { incarnation, begun: Begun { epoch, ..Begun::default() } };
        for (new, disk, kept) in [
            (durable(3, 7), durable(2, 6), durable(3, 7)),
            (durable(2, 7), durable(3, 6), durable(3, 7)),
            (durable(3, 6), durable(2, 7), durable(3, 7)),
            (durable(0, 0), durable(3, 7), durable(3, 7)),
        ] {
            assert_eq!(new.on_top_of(disk), kept);
        }
    }
}
