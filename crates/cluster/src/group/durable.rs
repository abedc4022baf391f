//! What a node must not forget when its memory is lost. It is on the disk before it counts.
//!
//! - Its **incarnation**: no sender ID is used twice.
//! - The **rosters**: no majority is counted by an older roster than the node has acknowledged.
//! - The last quorate **view that it has begun**. Otherwise a node that comes back with nothing
//!   would vote for an older state: a majority in which one node has forgotten is none.

use super::heartbeat::{mask, within};
use super::roster::Rosters;
use crate::engine::{RingId, View};
use crate::node::NodeId;
use serde::{Deserialize, Serialize};

/// What a node writes to its disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Durable {
    /// The last incarnation that it has asked for; 0 if it has never asked.
    pub incarnation: u16,
    /// The last quorate view that it has begun.
    pub begun: Begun,
    /// The nodes of the cluster; `None` while they are those of testudo.toml.
    pub rosters: Option<Rosters>,
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
        // What a node has been told counts as of the last view that it has begun.
        let age = |durable: &Self| {
            let settled = durable.rosters.as_ref().map(|rosters| rosters.settled.number);
            (settled, durable.begun)
        };
        let rosters = if age(&self) >= age(&disk) { self.rosters } else { disk.rosters };
        Self {
            incarnation: self.incarnation.max(disk.incarnation),
            begun: self.begun.max(disk.begun),
            rosters,
        }
    }

    /// The rosters that count at the start of a node whose testudo.toml has these.
    pub fn rosters_or(&self, configured: &Rosters) -> Rosters {
        self.rosters.as_ref().unwrap_or(configured).clone()
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
    use crate::group::roster::Roster;

    #[test]
    fn nothing_that_is_on_the_disk_is_taken_back() {
        let durable = |incarnation, epoch| Durable {
            incarnation,
            begun: Begun { epoch, ..Begun::default() },
            rosters: None,
        };
        for (new, disk, kept) in [
            (durable(3, 7), durable(2, 6), durable(3, 7)),
            (durable(2, 7), durable(3, 6), durable(3, 7)),
            (durable(3, 6), durable(2, 7), durable(3, 7)),
            (durable(0, 0), durable(3, 7), durable(3, 7)),
        ] {
            assert_eq!(new.on_top_of(disk), kept);
        }
    }

    #[test]
    fn a_node_that_was_set_back_does_not_take_a_roster_back() {
        let node = |number| NodeId::new(number).unwrap();
        let durable = |number, next, epoch| Durable {
            begun: Begun { epoch, ..Begun::default() },
            rosters: Some(Rosters {
                settled: Roster::of(number, [node(1)]),
                next: Option::<u32>::map(next, |other| Roster::of(number + 1, [node(1), node(other)])),
            }),
            ..Durable::default()
        };
        let (older, newer) = (durable(4, None, 9), durable(5, None, 8));
        assert_eq!(older.clone().on_top_of(newer.clone()).rosters, newer.rosters);
        assert_eq!(newer.clone().on_top_of(Durable::default()).rosters, newer.rosters);
        assert_eq!(Durable::default().on_top_of(newer.clone()).rosters, newer.rosters);
        let (told, not_told) = (durable(4, Some(7), 9), durable(4, None, 9));
        assert_eq!(told.clone().on_top_of(not_told.clone()).rosters, told.rosters);
        assert_eq!(
            not_told.clone().on_top_of(told.clone()).rosters,
            not_told.rosters,
            "in one view: in order"
        );
        assert_eq!(durable(4, None, 8).on_top_of(told.clone()).rosters, told.rosters);
    }
}
