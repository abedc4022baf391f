//! Records which nodes have the cluster's state: as long as one has it, it must not be lost.

use std::collections::{BTreeMap, BTreeSet};
use testudo_cluster::engine::RingId;

/// Nodes that have the state, by quorate view. A view may have begun on some of its members only:
/// earlier views count until all members of a later one have the state.
#[derive(Debug, Default)]
pub(super) struct Holders(BTreeMap<ViewId, BTreeSet<usize>>);

/// A view: its ring, of which there may be several, and its epoch.
pub(super) type ViewId = (RingId, u64);

impl Holders {
    /// A node has the state in a view with that many members. Returns true if it cannot have
    /// received it: it has begun with nothing, and no node that knew more was left.
    pub(super) fn holds(&mut self, node: usize, at: ViewId, members: usize) -> bool {
        let is_new = !self.0.contains_key(&at);
        let lost = is_new && !self.0.is_empty() && self.0.values().all(BTreeSet::is_empty);
        if lost {
            self.0.clear();
        }
        let holders = self.0.entry(at).or_default();
        holders.insert(node);
        if holders.len() >= members {
            self.0.retain(|other, _| *other >= at);
        }
        lost
    }

    /// A node has lost its memory, or what it held before that view.
    pub(super) fn forget(&mut self, node: usize, since: Option<ViewId>) {
        for (at, holders) in &mut self.0 {
            if since.is_none_or(|since| *at < since) {
                holders.remove(&node);
            }
        }
    }

    /// The nodes of the latest view.
    pub(super) fn latest(&self) -> Option<(ViewId, &BTreeSet<usize>)> {
        self.0.last_key_value().map(|(at, holders)| (*at, holders))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(seq: u64) -> ViewId {
        (RingId { seq, node: 1 }, seq)
    }

    #[test]
    fn the_state_is_lost_with_the_last_who_held_it_and_not_before() {
        let mut holders = Holders::default();
        assert!(!(0..3).any(|node| holders.holds(node, ring(4), 3)), "the first begin with nothing");
        holders.forget(0, None);
        assert!(!holders.holds(1, ring(8), 2));
        holders.forget(1, None);
        assert!(!holders.holds(0, ring(12), 2), "node 2 is still there, wherever the others begin");
        holders.forget(0, None);
        holders.forget(2, Some(ring(16)));
        assert!(holders.holds(0, ring(16), 2));
        assert!(!holders.holds(2, ring(16), 2), "said once");
    }

    #[test]
    fn a_state_that_all_members_have_replaces_earlier_ones() {
        let mut holders = Holders::default();
        assert!(!(0..3).any(|node| holders.holds(node, ring(4), 3)));
        assert!(!(0..2).any(|node| holders.holds(node, ring(8), 2)));
        assert_eq!(holders.latest(), Some((ring(8), &BTreeSet::from([0, 1]))));
        holders.forget(0, None);
        holders.forget(1, None);
        assert!(holders.holds(2, ring(12), 2), "node 2 holds what is over");
    }
}
