//! Which messages are stable: every member of the view holds them.

use crate::group::frame::Chain;
use crate::node::NodeId;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use testudo_planted::{Plant, planted};

/// A place in the total order. All members count alike.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Position {
    /// The number of the quorate view.
    pub epoch: u64,
    /// The number of messages delivered since the view's start.
    pub count: u64,
}

/// Acknowledgements of a member that run ahead of this node are kept until this node has caught up:
/// at most this many.
const MAX_ACKS_AHEAD: usize = 64;

/// What another member has acknowledged. Inside this module the view's start counts as the first
/// message: until all members have acknowledged it, a later view may come together from members
/// that have not seen this one.
#[derive(Clone, Debug, Default)]
struct MemberProgress {
    /// It holds this many messages, and they are those that this node has.
    acked: u64,
    /// Its acknowledgements of messages that have not come here yet, ascending: count and digest.
    ahead: VecDeque<(u64, [u8; 8])>,
}

/// How far each member of a view has come. Counts include the view's start.
#[derive(Clone, Debug)]
pub(in crate::group) struct Stability {
    count: u64,
    chain: Chain,
    stable: u64,
    /// The digest after each message that is not stable yet.
    digests: VecDeque<[u8; 8]>,
    others: BTreeMap<NodeId, MemberProgress>,
    /// The number of acknowledgements of other messages than were delivered here: the engine has
    /// broken its word.
    pub(in crate::group) contradictions: u64,
}

impl Stability {
    /// At a view's start.
    pub(in crate::group) fn new(chain: Chain, others: impl Iterator<Item = NodeId>) -> Self {
        Self {
            count: 1,
            chain,
            stable: 0,
            digests: VecDeque::from([chain.short()]),
            others: others.map(|node| (node, MemberProgress::default())).collect(),
            contradictions: 0,
        }
    }

    /// The number of messages delivered here.
    pub(in crate::group) fn count(&self) -> u64 {
        self.count - 1
    }

    /// The number of messages that every member holds.
    pub(in crate::group) fn stable(&self) -> u64 {
        self.stable.saturating_sub(1)
    }

    /// True once the view is known to have begun at all members.
    pub(in crate::group) fn has_begun_everywhere(&self) -> bool {
        self.stable > 0
    }

    /// The digest of all that was delivered.
    pub(in crate::group) fn chain(&self) -> Chain {
        self.chain
    }

    /// The number of messages that a member has acknowledged.
    pub(in crate::group) fn acked(&self, node: NodeId) -> Option<u64> {
        self.others.get(&node).map(|member| member.acked.saturating_sub(1))
    }

    /// True if the node is known to hold the messages up to `count`. `this`: the node that asks.
    pub(in crate::group) fn holds(&self, this: NodeId, node: NodeId, count: u64) -> bool {
        match node == this {
            true => self.count > count,
            false => self.others.get(&node).is_some_and(|member| member.acked > count),
        }
    }

    /// True if all members are known to hold the messages up to `count`.
    pub(in crate::group) fn all_hold(&self, count: u64) -> bool {
        self.count > count && self.others.values().all(|member| member.acked > count)
    }

    /// One more message has been delivered here; `chain` is the digest after it.
    pub(in crate::group) fn delivered(&mut self, chain: Chain) {
        self.count += 1;
        self.chain = chain;
        self.digests.push_back(chain.short());
        let count = self.count;
        let due: Vec<_> = self
            .others
            .iter_mut()
            .filter_map(|(node, member)| {
                let first = *member.ahead.front()?;
                (first.0 <= count).then(|| member.ahead.pop_front())?;
                Some((*node, first))
            })
            .collect();
        for (node, (count, digest)) in due {
            self.learn(node, count, digest);
        }
    }

    /// A member says that it holds `count` messages with this digest.
    pub(in crate::group) fn acknowledge(&mut self, node: NodeId, count: u64, digest: [u8; 8]) {
        self.learn(node, count.saturating_add(1), digest);
    }

    fn learn(&mut self, node: NodeId, count: u64, digest: [u8; 8]) {
        let ours = self.digest(count);
        let Some(member) = self.others.get_mut(&node) else {
            return;
        };
        if count > self.count {
            if member.ahead.back().is_none_or(|(last, _)| *last < count) {
                member.ahead.truncate(MAX_ACKS_AHEAD - 1);
                member.ahead.push_back((count, digest));
            }
        } else if count > member.acked {
            match ours == Some(digest) {
                true => member.acked = count,
                false => self.contradictions += 1,
            }
        }
    }

    /// Moves the stable point as far as all members have come. True if it moved.
    pub(in crate::group) fn advance(&mut self) -> bool {
        let least = self.others.values().map(|member| member.acked).fold(self.count, u64::min);
        let least = if planted(Plant::CommitOnSelfDelivery) { self.count } else { least };
        let moved = least.saturating_sub(self.stable);
        self.digests.drain(..self.digests.len().min(usize::try_from(moved).unwrap_or(usize::MAX)));
        self.stable += moved;
        moved > 0
    }

    /// The digest after message `count`, if that is not stable yet.
    fn digest(&self, count: u64) -> Option<[u8; 8]> {
        let index = count.checked_sub(self.stable)?.checked_sub(1)?;
        self.digests.get(usize::try_from(index).ok()?).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(number: u32) -> NodeId {
        NodeId::new(number).unwrap()
    }

    fn chain(number: u64) -> Chain {
        let mut chain = Chain::default();
        chain.0[..8].copy_from_slice(&number.to_be_bytes());
        chain
    }

    fn of_three(delivered: u64) -> Stability {
        let mut stability = Stability::new(chain(0), [2, 3].map(node).into_iter());
        [2, 3].into_iter().for_each(|from| stability.acknowledge(node(from), 0, chain(0).short()));
        assert!(stability.advance(), "the view has begun everywhere");
        (1..=delivered).for_each(|count| stability.delivered(chain(count)));
        stability
    }

    fn ack(stability: &mut Stability, from: u32, count: u64) {
        stability.acknowledge(node(from), count, chain(count).short());
    }

    #[test]
    fn stable_is_what_all_have_acknowledged() {
        let mut stability = of_three(5);
        assert!(!stability.advance());
        ack(&mut stability, 2, 5);
        assert!(!stability.advance());
        ack(&mut stability, 3, 2);
        assert!(stability.advance());
        let holds = |number| stability.holds(node(1), node(number), 5);
        assert!(!stability.holds(node(1), node(1), 6), "there is no such message yet");
        assert_eq!((stability.stable(), [1, 2, 3, 4].map(holds)), (2, [true, true, false, false]));
        assert!(stability.all_hold(2) && !stability.all_hold(5));
        ack(&mut stability, 3, 1);
        assert!(!stability.advance(), "an old acknowledgement takes nothing back");
        ack(&mut stability, 3, 5);
        assert!(stability.advance());
        assert_eq!((stability.stable(), stability.digests.len()), (5, 0));
        ack(&mut stability, 3, 5);
        assert_eq!(stability.contradictions, 0, "a repeated one contradicts nothing");
    }

    #[test]
    fn nothing_is_stable_before_the_view_has_begun_everywhere() {
        let mut stability = Stability::new(chain(0), [2, 3].map(node).into_iter());
        assert_eq!((stability.advance(), stability.holds(node(1), node(2), 0)), (false, false));
        assert!(!stability.has_begun_everywhere());
        stability.acknowledge(node(2), 0, chain(0).short());
        assert!(!stability.advance());
        stability.acknowledge(node(3), 0, chain(0).short());
        assert_eq!((stability.advance(), stability.stable(), stability.all_hold(0)), (true, 0, true));
        assert!(stability.has_begun_everywhere());
    }

    #[test]
    fn who_acknowledges_other_messages_holds_nothing_of_ours() {
        let mut stability = of_three(2);
        ack(&mut stability, 2, 2);
        stability.acknowledge(node(3), 2, chain(99).short());
        assert!(!stability.advance());
        assert_eq!(stability.contradictions, 1);
    }

    #[test]
    fn acknowledgements_that_run_ahead_count_when_the_messages_have_come() {
        let mut stability = of_three(0);
        for from in [2, 3] {
            (1..=1000).for_each(|count| ack(&mut stability, from, count));
        }
        assert!(stability.others.values().all(|member| member.ahead.len() == MAX_ACKS_AHEAD));
        assert!(!stability.advance());
        for count in 1..=1000 {
            stability.delivered(chain(count));
            assert!(stability.advance() || count >= MAX_ACKS_AHEAD as u64, "{count}");
        }
        assert_eq!(stability.stable(), 1000);
    }

    #[test]
    fn a_stranger_acknowledges_nothing_and_is_not_waited_for() {
        let mut stability = Stability::new(chain(0), std::iter::empty());
        assert!(stability.advance());
        stability.delivered(chain(1));
        stability.acknowledge(node(9), u64::MAX, [0; 8]);
        assert!(stability.advance());
    }
}
