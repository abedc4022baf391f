//! The exchange of STATUS that begins a view: who holds the state, and what all agree on before the first update.
//!
//! Every member multicasts one STATUS in the new ring. When those of all members have been delivered, which is at the same
//! place in the total order everywhere, each computes the same outcome from them.

use super::frame::Chain;
use super::keys::RANDOM_LEN;
use crate::engine::{RingId, View};
use crate::node::NodeId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// The last quorate view that a node has completed the exchange of, and how much of it was delivered there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Held {
    /// 0: none since this node began.
    pub(super) epoch: u64,
    pub(super) ring: RingId,
    pub(super) count: u64,
    pub(super) chain: Chain,
}

impl Held {
    /// Stands for what a node holds: equal digests, equal states.
    pub(super) fn digest(&self, synced: bool) -> [u8; 8] {
        self.chain.with(self.ring, self.epoch, self.count, synced).short()
    }

    pub(super) const NOTHING: Self =
        Self { epoch: 0, ring: RingId { seq: 0, node: 0 }, count: 0, chain: Chain([0; 32]) };
}

/// A member's part in the exchange.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Status {
    /// The members of the view that it was said for, as a mask.
    pub(super) members: u32,
    /// Drawn at the start of the node: tells a node from what it was before a restart.
    pub(super) boot: u64,
    pub(super) held: Held,
    /// It held the whole state in that view, or has been brought up to date since.
    pub(super) synced: bool,
    /// Into the group key.
    pub(super) random: [u8; RANDOM_LEN],
    /// The highest incarnation of each node that it knows to be leased.
    pub(super) leases: Vec<(u8, u16)>,
    /// For how many microseconds more a node may rely on having been heard here.
    pub(super) promises: Vec<(u8, u32)>,
}

/// The STATUS that have come so far.
#[derive(Clone, Debug)]
pub(super) struct Exchange {
    pub(super) view: View,
    /// `None`: it came, but cannot be read. That member has another cluster key or speaks another version.
    statuses: BTreeMap<NodeId, Option<Status>>,
}

/// What all members compute from the same STATUS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) view: View,
    pub(super) epoch: u64,
    pub(super) current: Vec<NodeId>,
    pub(super) fresh: Vec<NodeId>,
    /// Nobody has the state of the last view: all begin with nothing.
    pub(super) reset: bool,
    /// What the members put into the group key.
    pub(super) randoms: Vec<(NodeId, [u8; RANDOM_LEN])>,
    pub(super) boots: Vec<(NodeId, u64)>,
    pub(super) leases: Vec<(NodeId, u16)>,
    /// Takeovers from nodes that do not hold the state wait for this long.
    pub(super) wait: Duration,
    /// Members of the engine's view that are left out.
    pub(super) unreadable: Vec<NodeId>,
}

impl Exchange {
    /// Begins one.
    pub(super) fn new(view: View) -> Self {
        Self { view, statuses: BTreeMap::new() }
    }

    /// Takes a member's STATUS; the first counts.
    pub(super) fn insert(&mut self, from: NodeId, status: Option<Status>) {
        self.statuses.entry(from).or_insert(status);
    }

    /// Who has not been heard yet.
    pub(super) fn missing(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.view.members.iter().copied().filter(|node| !self.statuses.contains_key(node))
    }

    /// The outcome, once all members have been heard. A member whose STATUS cannot be read is left out, as long as those who
    /// understand each other are more than half: the others cannot do the same.
    pub(super) fn outcome(&self) -> Option<Result<Outcome, Vec<NodeId>>> {
        if self.missing().next().is_some() {
            return None;
        }
        let (mut readable, mut unreadable) = (Vec::new(), Vec::new());
        for node in &self.view.members {
            match self.statuses.get(node) {
                Some(Some(status)) => readable.push((*node, status)),
                _ => unreadable.push(*node),
            }
        }
        if readable.len() * 2 <= self.view.members.len() {
            return Some(Err(unreadable));
        }
        Some(Ok(self.agree(&readable, unreadable)))
    }

    fn agree(&self, statuses: &[(NodeId, &Status)], unreadable: Vec<NodeId>) -> Outcome {
        let members: Vec<NodeId> = statuses.iter().map(|(node, _)| *node).collect();
        let holders = holders(statuses);
        let reset = holders.is_empty();
        let current = if reset { members.clone() } else { holders };
        let fresh: Vec<NodeId> = members.iter().copied().filter(|node| !current.contains(node)).collect();
        let mut leases = BTreeMap::<NodeId, u16>::new();
        let mut wait = 0;
        for (_, status) in statuses {
            for (node, incarnation) in named(&status.leases) {
                let highest = leases.entry(node).or_default();
                *highest = incarnation.max(*highest);
            }
            let of_others = named(&status.promises).filter(|(node, _)| !current.contains(node));
            wait = of_others.map(|(_, left)| left).fold(wait, u32::max);
        }
        Outcome {
            view: View { members, ..self.view.clone() },
            epoch: statuses.iter().map(|(_, status)| status.held.epoch).max().unwrap_or(0).saturating_add(1),
            current,
            fresh,
            reset,
            randoms: statuses.iter().map(|(node, status)| (*node, status.random)).collect(),
            boots: statuses.iter().map(|(node, status)| (*node, status.boot)).collect(),
            leases: leases.into_iter().collect(),
            wait: Duration::from_micros(wait.into()),
            unreadable,
        }
    }
}

/// Those entries that name a node.
fn named<T: Copy>(entries: &[(u8, T)]) -> impl Iterator<Item = (NodeId, T)> + '_ {
    entries.iter().filter_map(|(node, value)| Some((NodeId::new(u32::from(*node))?, *value)))
}

/// Who holds the state, sorted: of the synced nodes of the latest ring the largest set that has had the same messages. Of sets as
/// large, the one that has had more; then the one with the lowest node.
///
/// Any of them would do: what was stable in that view had been acknowledged by all of its members. A node of an earlier ring
/// would not, even if those of the latest were not synced: what it lacks has been answered to peers. Rings, not epochs: a view
/// may have begun at some members only, and another one, that counts the same, at those who left it. Their rings are in the
/// order in which who was in both has seen them.
fn holders(statuses: &[(NodeId, &Status)]) -> Vec<NodeId> {
    let begun = |status: &Status| (status.held.epoch > 0).then_some((status.held.ring, status.held.epoch));
    let latest = statuses.iter().filter_map(|(_, status)| begun(status)).max();
    let candidates =
        statuses.iter().filter(|(_, status)| status.synced && latest.is_some() && begun(status) == latest);
    let mut sets: Vec<(Held, Vec<NodeId>)> = Vec::new();
    for (node, status) in candidates {
        match sets.iter_mut().find(|(held, _)| *held == status.held) {
            Some((_, nodes)) => nodes.push(*node),
            None => sets.push((status.held, vec![*node])),
        }
    }
    let best = sets
        .into_iter()
        .max_by_key(|(held, nodes)| (nodes.len(), held.count, std::cmp::Reverse(nodes.first().copied())));
    let mut nodes = best.map(|(_, nodes)| nodes).unwrap_or_default();
    nodes.sort_unstable();
    nodes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(number: u32) -> NodeId {
        NodeId::new(number).unwrap()
    }

    fn held(epoch: u64, count: u64, chain: u8) -> Held {
        Held { epoch, ring: RingId { seq: epoch, node: 1 }, count, chain: Chain([chain; 32]) }
    }

    fn status(held: Held) -> Status {
        let random = [7; RANDOM_LEN];
        Status { members: 0, boot: 1, held, synced: held.epoch > 0, random, leases: vec![], promises: vec![] }
    }

    fn exchange(statuses: Vec<Option<Status>>) -> Option<Result<Outcome, Vec<NodeId>>> {
        let members = (1..=statuses.len() as u32).map(node).collect();
        let mut exchange = Exchange::new(View { ring: RingId { seq: 9, node: 1 }, members, quorate: true });
        for (index, status) in statuses.into_iter().enumerate() {
            assert!(exchange.outcome().is_none());
            exchange.insert(node(index as u32 + 1), status);
        }
        exchange.outcome()
    }

    fn current(statuses: Vec<Status>) -> (Vec<u8>, bool) {
        let outcome = exchange(statuses.into_iter().map(Some).collect()).unwrap().unwrap();
        (outcome.current.iter().map(|node| node.get()).collect(), outcome.reset)
    }

    #[test]
    fn at_the_first_start_all_begin_with_nothing() {
        assert_eq!(current(vec![status(Held::NOTHING); 3]), (vec![1, 2, 3], true));
    }

    #[test]
    fn the_largest_set_with_the_same_messages_is_current() {
        let statuses = [held(4, 8, 1), held(4, 7, 2), held(4, 7, 2)].map(status);
        assert_eq!(
            current(statuses.to_vec()),
            (vec![2, 3], false),
            "what one alone was delivered is not taken over"
        );
        let statuses = [held(4, 7, 2), held(4, 8, 1)].map(status);
        assert_eq!(current(statuses.to_vec()).0, [2], "of sets as large the one with more");
        let statuses = [held(4, 7, 2), held(4, 7, 1)].map(status);
        assert_eq!(current(statuses.to_vec()).0, [1], "then the one with the lowest node");
    }

    #[test]
    fn an_earlier_epoch_is_never_current_beside_a_later_one() {
        let statuses = [held(4, 7, 2), held(4, 7, 2), held(5, 0, 1)].map(status);
        assert_eq!(current(statuses.to_vec()), (vec![3], false));
        let mut statuses = statuses;
        statuses[2].synced = false;
        assert_eq!(current(statuses.to_vec()), (vec![1, 2, 3], true), "the state of epoch 5 is lost");
    }

    #[test]
    fn a_view_that_began_at_some_only_gives_way_to_a_later_ring_with_the_same_epoch() {
        let ring = |seq| RingId { seq, node: 1 };
        let begun_alone = Held { ring: ring(3), ..held(2, 0, 1) };
        let later = Held { ring: ring(5), ..held(2, 0, 2) };
        assert_eq!(current([begun_alone, later].map(status).to_vec()), (vec![2], false));
        let mut statuses = [begun_alone, later, later].map(status);
        statuses[2].synced = false;
        assert_eq!(current(statuses.to_vec()), (vec![2], false));
    }

    #[test]
    fn what_a_minority_cannot_say_does_not_hold_up_the_others() {
        let good = || Some(status(held(4, 7, 2)));
        let outcome = exchange(vec![good(), None, good()]).unwrap().unwrap();
        assert_eq!(outcome.view.members, [node(1), node(3)]);
        assert_eq!(outcome.unreadable, [node(2)]);
        assert_eq!(exchange(vec![good(), None]).unwrap(), Err(vec![node(2)]));
        assert_eq!(exchange(vec![None, good(), None]).unwrap(), Err(vec![node(1), node(3)]));
    }

    #[test]
    fn leases_are_merged_and_promises_count_for_those_who_are_not_current() {
        let mut statuses = [held(4, 7, 2), held(4, 7, 2), held(3, 1, 1)].map(status);
        statuses[0].leases = vec![(1, 5), (2, 9), (0, 3), (99, 4)];
        statuses[2].leases = vec![(1, 6), (2, 8)];
        statuses[0].promises = vec![(2, 50_000), (3, 1000), (4, 3000), (77, 9999)];
        statuses[1].promises = vec![(4, 2000)];
        let outcome = exchange(statuses.into_iter().map(Some).collect()).unwrap().unwrap();
        assert_eq!(outcome.leases, [(node(1), 6), (node(2), 9)]);
        assert_eq!(outcome.wait, Duration::from_micros(3000));
        assert_eq!((outcome.epoch, outcome.fresh), (5, vec![node(3)]));
    }
}
