//! The roster: the nodes of the cluster, by which majorities are counted.
//!
//! testudo.toml has the first one, number 0. Operators change it while the cluster runs, by one
//! node at a time, so that any majority of one roster meets any majority of the next. A change has
//! two steps in the total order. With the first, every member of the view writes the *next* roster
//! to its disk before it acknowledges that. From then on it counts by both: what needs a majority
//! needs one of either. Once the first step is stable, the second *settles* the next roster, and
//! the former counts no more.
//!
//! docs/architecture/cluster.md says why no two views can be quorate beside each other meanwhile.

use super::heartbeat::mask;
use crate::node::NodeId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// The nodes of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Roster {
    /// Goes up by one with each change. 0: the nodes of testudo.toml.
    pub number: u64,
    /// Each node with its addresses, by link.
    pub nodes: BTreeMap<NodeId, Vec<IpAddr>>,
}

/// What a node knows of its cluster's rosters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rosters {
    /// The roster that counts.
    pub settled: Roster,
    /// Its successor, from the moment when this node has been told of it until it is settled.
    pub next: Option<Roster>,
}

/// A change of the roster by one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeChange {
    /// Another node, with its addresses by link.
    Add(NodeId, Vec<IpAddr>),
    /// A node is taken out.
    Remove(NodeId),
}

/// Sets of nodes, each of which must have a majority: one, or two while a change is under way. One
/// bit a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Majorities([u32; 2]);

impl Roster {
    /// The nodes without their addresses.
    pub fn of(number: u64, nodes: impl IntoIterator<Item = NodeId>) -> Self {
        Self { number, nodes: nodes.into_iter().map(|node| (node, Vec::new())).collect() }
    }

    /// True if the node is in it.
    pub fn has(&self, node: NodeId) -> bool {
        self.nodes.contains_key(&node)
    }

    /// The numbers of its nodes, ascending.
    pub fn ids(&self) -> Vec<NodeId> {
        self.nodes.keys().copied().collect()
    }

    /// True if these are more than half of it.
    pub(super) fn is_majority(&self, here: impl Fn(NodeId) -> bool) -> bool {
        self.nodes.keys().filter(|node| here(**node)).count() * 2 > self.nodes.len()
    }

    /// The roster after a change.
    #[must_use]
    pub(super) fn changed(&self, change: &NodeChange) -> Self {
        let mut next = Self { number: self.number.saturating_add(1), nodes: self.nodes.clone() };
        match change {
            NodeChange::Add(node, addresses) => {
                next.nodes.insert(*node, addresses.clone());
            }
            NodeChange::Remove(node) => {
                next.nodes.remove(node);
            }
        }
        next
    }

    /// True if the other one is this one changed by one node.
    fn precedes(&self, next: &Self) -> bool {
        let ours = mask(self.nodes.keys());
        let differ = ours ^ mask(next.nodes.keys());
        let unchanged = |(node, addresses): (&NodeId, &Vec<IpAddr>)| {
            next.nodes.get(node).is_none_or(|found| found == addresses)
        };
        self.number.checked_add(1) == Some(next.number)
            && differ.count_ones() == 1
            && !next.nodes.is_empty()
            && self.nodes.iter().all(unchanged)
    }
}

impl Rosters {
    /// At a cluster's first start, with the nodes of testudo.toml.
    pub fn first(nodes: impl IntoIterator<Item = (NodeId, Vec<IpAddr>)>) -> Self {
        Self { settled: Roster { number: 0, nodes: nodes.into_iter().collect() }, next: None }
    }

    /// The roster that counts, and its successor.
    pub(super) fn all(&self) -> impl Iterator<Item = &Roster> {
        std::iter::once(&self.settled).chain(&self.next)
    }

    /// The nodes of both.
    pub fn nodes(&self) -> BTreeMap<NodeId, &[IpAddr]> {
        self.all().flat_map(|roster| &roster.nodes).map(|(node, at)| (*node, at.as_slice())).collect()
    }

    /// True if the node is in one of both.
    pub(super) fn has(&self, node: NodeId) -> bool {
        self.all().any(|roster| roster.has(node))
    }

    /// True if the node's voice counts for every majority.
    pub(super) fn counts(&self, node: NodeId) -> bool {
        self.all().all(|roster| roster.has(node))
    }

    /// The smallest number of nodes that are a majority of both.
    pub(super) fn majority(&self) -> usize {
        self.all().map(|roster| roster.nodes.len() / 2 + 1).max().unwrap_or(1)
    }

    /// The sets of which a majority must be there.
    pub fn majorities(&self) -> Majorities {
        let settled = mask(self.settled.nodes.keys());
        Majorities([settled, self.next.as_ref().map_or(settled, |next| mask(next.nodes.keys()))])
    }

    /// Takes a next roster, if it follows from the settled one and no other is under way.
    pub(super) fn take_next(&mut self, next: Roster) -> bool {
        let fits = self.next.is_none() && self.settled.precedes(&next);
        if fits {
            self.next = Some(next);
        }
        fits
    }

    /// The next roster with this number counts alone. False if there is no such roster.
    pub(super) fn settle(&mut self, number: u64) -> bool {
        match self.next.take_if(|next| next.number == number) {
            Some(next) => {
                self.settled = next;
                true
            }
            None => false,
        }
    }
}

impl Majorities {
    /// Of one set of nodes.
    pub fn of(nodes: &[NodeId]) -> Self {
        Self([mask(nodes); 2])
    }

    /// True if the nodes that are here are more than half of each set.
    pub fn have(&self, here: impl Fn(NodeId) -> bool) -> bool {
        self.balance(here).all(|(here, all)| here * 2 > all)
    }

    /// True if they are half of each set at least.
    #[cfg(feature = "corosync")]
    pub(crate) fn have_half(&self, here: impl Fn(NodeId) -> bool) -> bool {
        self.balance(here).all(|(here, all)| here * 2 >= all)
    }

    /// How many nodes of each set are here, and how many it has.
    fn balance(&self, here: impl Fn(NodeId) -> bool) -> impl Iterator<Item = (u32, u32)> {
        let nodes: Vec<NodeId> =
            (1..=NodeId::MAX.into()).filter_map(NodeId::new).filter(|node| here(*node)).collect();
        let here = mask(&nodes);
        self.0.into_iter().map(move |set| ((set & here).count_ones(), set.count_ones()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(number: u32) -> NodeId {
        NodeId::new(number).unwrap()
    }

    fn roster(number: u64, nodes: &[u32]) -> Roster {
        Roster::of(number, nodes.iter().copied().map(node))
    }

    fn have(rosters: &Rosters, here: &[u32]) -> bool {
        rosters.majorities().have(|node| here.contains(&node.get().into()))
    }

    #[test]
    fn a_change_is_one_node_and_one_number() {
        let three = roster(4, &[1, 2, 3]);
        assert!(three.precedes(&roster(5, &[1, 2, 3, 4])) && three.precedes(&roster(5, &[1, 3])));
        for other in [
            roster(5, &[1, 2, 3]),
            roster(5, &[1, 2, 4]),
            roster(5, &[1, 2, 3, 4, 5]),
            roster(6, &[1, 2, 3, 4]),
            roster(4, &[1, 2, 3, 4]),
        ] {
            assert!(!three.precedes(&other), "{other:?}");
        }
        assert!(!roster(4, &[1]).precedes(&roster(5, &[])), "a cluster has a node");
        let mut moved = roster(5, &[1, 2, 3, 4]);
        moved.nodes.insert(node(1), vec!["10.0.0.1".parse().unwrap()]);
        assert!(!three.precedes(&moved), "a change moves no other node");
        let added = three.changed(&NodeChange::Add(node(9), vec![]));
        assert_eq!((&added, three.precedes(&added)), (&roster(5, &[1, 2, 3, 9]), true));
        assert_eq!(three.changed(&NodeChange::Remove(node(2))), roster(5, &[1, 3]));
    }

    #[test]
    fn while_a_change_is_under_way_both_rosters_need_a_majority() {
        let mut rosters = Rosters { settled: roster(0, &[1, 2, 3]), next: None };
        assert!(have(&rosters, &[1, 2]));
        assert!(rosters.take_next(roster(1, &[1, 2, 3, 4])));
        assert!(!rosters.take_next(roster(1, &[1, 2, 3, 5])), "one at a time");
        assert!(!have(&rosters, &[1, 2]) && !have(&rosters, &[1, 4, 5]) && have(&rosters, &[1, 2, 4]));
        assert_eq!((rosters.majority(), rosters.has(node(4)), rosters.counts(node(4))), (3, true, false));
        assert!(!rosters.settle(2) && rosters.settle(1) && !rosters.settle(1));
        assert!(have(&rosters, &[1, 3, 4]) && rosters.counts(node(4)));
        assert!(rosters.take_next(roster(2, &[1, 2, 4])));
        assert!(!have(&rosters, &[2, 3]) && have(&rosters, &[2, 3, 4]));
    }

    #[test]
    fn half_of_the_nodes_are_no_majority_and_one_more_is() {
        for count in 1..=9_u32 {
            let all: Vec<NodeId> = (1..=count).map(node).collect();
            let have = |here: u32| Majorities::of(&all).have(|node| u32::from(node.get()) <= here);
            assert!(!have(count / 2) && have(count / 2 + 1), "of {count}");
        }
    }

    #[cfg(feature = "corosync")]
    #[test]
    fn half_of_both_rosters_is_enough_where_that_is_asked() {
        let mut rosters = Rosters { settled: roster(0, &[1, 2, 3, 4]), next: None };
        let half = |rosters: &Rosters, here: &[u32]| {
            rosters.majorities().have_half(|node| here.contains(&node.get().into()))
        };
        assert!(half(&rosters, &[1, 2]) && half(&rosters, &[1, 2, 3]));
        assert!(!half(&rosters, &[1]) && !half(&rosters, &[1, 7, 8]), "others do not count");
        let three = Rosters { settled: roster(0, &[1, 2, 3]), next: None };
        assert!(!half(&three, &[3]) && half(&three, &[2, 3]));
        assert!(rosters.take_next(roster(1, &[1, 2, 3, 4, 5])));
        assert!(!half(&rosters, &[1, 2]) && half(&rosters, &[1, 2, 5]));
    }

    /// What the safety of a change rests on.
    #[test]
    fn any_two_majorities_of_neighbouring_rosters_meet() {
        let sets: Vec<u32> = (1..1 << 6).map(|set: u32| set << 1).collect();
        let most = |all: u32, part: u32| (all & part).count_ones() * 2 > all.count_ones();
        for before in sets.iter().copied() {
            for after in (1..=6).map(|bit| before ^ 1 << bit).filter(|after| *after != 0) {
                for first in sets.iter().copied().filter(|part| part & !before == 0 && most(before, *part)) {
                    let apart = sets.iter().copied().filter(|part| part & !after == 0 && part & first == 0);
                    for second in apart {
                        assert!(!most(after, second), "{before:b} {after:b} {first:b} {second:b}");
                    }
                }
            }
        }
    }
}
