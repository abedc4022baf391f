//! What a node must not forget when its memory is lost. It is on the disk before it counts.
//!
//! - Its **incarnation**: no sender ID is used twice.
//! - The last quorate **view that it has begun**. Otherwise a node that comes back with nothing
//!   would vote for an older state: a majority in which one node has forgotten is none.

use super::heartbeat::{mask, within};
use crate::engine::{RingId, View};
use crate::node::NodeId;
use serde::{Deserialize, Serialize};

/// What a node writes to its disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Durable {
    /// The last incarnation that it has asked for; 0 if it has never asked.
    pub incarnation: u16,
    /// The last quorate view that it has begun.
    pub begun: Begun,
}

/// A quorate view that has begun on a node. Later ones are greater: a node that was in two of them
/// has seen their rings in this order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Begun {
    /// The engine's ring.
    pub ring: RingId,
    /// The number of the quorate view; 0 if there was none.
    pub epoch: u64,
    /// Its members, one bit each.
    pub members: u32,
}

impl Durable {
    /// Joined with what the disk says, so that nothing on it is taken back.
    #[must_use]
    pub fn on_top_of(self, disk: Self) -> Self {
        Self { incarnation: self.incarnation.max(disk.incarnation), begun: self.begun.max(disk.begun) }
    }
}

impl Begun {
    pub(super) fn new(view: &View, epoch: u64) -> Self {
        Self { ring: view.ring, epoch, members: mask(&view.members) }
    }

    /// True if there was a view.
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
