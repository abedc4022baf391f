//! What a node knows of the views that it has been in: how much it holds of the last one, what its
//! disk says, and whether it may go on alone.
//!
//! **Alone of two nodes.** Any two views of more than half of the nodes have a node in common. It
//! knows in the later view what the earlier one has come to. Two views of one node of two have
//! none. A witness might give its vote to one node, and to the other when the first is gone. The
//! second would go on from what both had before, with numbers that the first has used since.
//!
//! So a node goes on alone only straight from a view of both, or if it was the last to be alone.
//! Then the other cannot have gone on in between. A witness gives its vote to another node only
//! after the former has heard, or can have found out, that it has lost it, and the engine of a node
//! without both votes tells it that there is no quorum. After such a moment the node waits for the
//! other.
//!
//! **Few of several nodes**, see [`super::exchange`], go on by the same rule.

use super::exchange::vote::carries;
use super::exchange::{Held, Outcome};
use super::past::Past;
use crate::engine::View;
use crate::group::durable::{Begun, Durable};
use crate::group::frame::Chain;
use crate::group::roster::Rosters;
use crate::node::NodeId;

/// See the module.
#[derive(Debug)]
pub(in crate::group) struct History {
    held: Held,
    /// The node holds the whole state in that view.
    synced: bool,
    /// What the disk says, or will say when it has been written.
    durable: Durable,
    /// The views before that one.
    past: Past,
    /// The last view that is known to have begun at all of its members.
    formed: Begun,
    /// The last epoch that is known to be on the disk.
    on_disk: u64,
    /// The disk has the rosters.
    rosters_on_disk: bool,
    /// The disk may say less than there was.
    doubtful: bool,
    since: Since,
}

/// What has been since the last view that has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Since {
    /// Nothing: at every moment the engine had a quorum, so no others can have gone on.
    Nothing,
    /// There was a moment without quorum, or without an engine.
    Interruption,
    /// The node has started, or has been set back to an earlier state.
    Start,
}

impl History {
    /// At the start of a node, with what its disk says.
    pub(in crate::group) fn new(durable: Durable) -> Self {
        Self {
            held: Held::NOTHING,
            synced: false,
            past: Past::new(&durable.begun),
            formed: if durable.begun.nodes().count() == 1 { durable.begun } else { Begun::default() },
            on_disk: durable.begun.epoch,
            rosters_on_disk: true,
            durable,
            doubtful: false,
            since: Since::Start,
        }
    }

    /// What the node holds of the last view whose exchange it has completed.
    pub(in crate::group) fn held(&self) -> Held {
        self.held
    }

    /// True if the node holds the whole state.
    pub(in crate::group) fn is_synced(&self) -> bool {
        self.synced
    }

    /// True if its disk may say less than there was.
    pub(in crate::group) fn is_doubtful(&self) -> bool {
        self.doubtful
    }

    /// What is to be on the disk.
    pub(in crate::group) fn durable(&self) -> Durable {
        self.durable.clone()
    }

    /// The last quorate view that the node has begun.
    pub(in crate::group) fn begun(&self) -> Begun {
        self.durable.begun
    }

    /// The node has been told of these rosters: they are to be on the disk before it acknowledges
    /// anything more.
    pub(in crate::group) fn set_rosters(&mut self, rosters: Rosters) {
        self.durable.rosters = Some(rosters);
        self.rosters_on_disk = false;
    }

    /// The views that the node has begun before the last one.
    pub(in crate::group) fn past(&self) -> &Past {
        &self.past
    }

    /// The last view that is known to have begun at all of its members.
    pub(in crate::group) fn formed(&self) -> Begun {
        self.formed
    }

    /// True if the last view that has begun here is known to have begun at all of its members.
    pub(in crate::group) fn is_formed(&self) -> bool {
        self.formed == self.durable.begun
    }

    /// True if members that all know no more than this node may go on together.
    pub(in crate::group) fn lets_go_on(&self, members: &[NodeId]) -> bool {
        let known = self.past.views().chain([self.durable.begun]);
        let counted: Vec<Begun> = known.filter(|view| *view >= self.formed).collect();
        self.formed.is_any() && counted.iter().all(|view| carries(view, |node| members.contains(&node)))
    }

    /// Stands for what the node holds: equal digests, equal states.
    pub(in crate::group) fn digest(&self) -> [u8; 8] {
        self.held.digest(self.synced)
    }

    /// True if the node holds the state with which a view begins.
    pub(in crate::group) fn has_state_of(&self, node: NodeId, outcome: &Outcome) -> bool {
        outcome.current.contains(&node) && !(outcome.reset && self.held.epoch > 0)
    }

    /// A view begins. It is to be on the disk before anything in it is acknowledged.
    pub(in crate::group) fn begin(&mut self, node: NodeId, outcome: &Outcome, chain: Chain) {
        let Outcome { view, epoch, current, .. } = outcome;
        self.held = Held { epoch: *epoch, ring: view.ring, count: 0, chain };
        self.synced = current.contains(&node);
        // What a node that was set back has begun since its last view, it does not know.
        let last = if self.doubtful { Begun::default() } else { self.durable.begun };
        self.past.begin(last, &outcome.void);
        self.doubtful &= !self.synced;
        self.durable.begun = Begun::new(view, *epoch);
        self.since = Since::Nothing;
    }

    /// The last view has begun at all of its members.
    pub(in crate::group) fn begun_everywhere(&mut self) {
        self.past = Past::CLOSED;
        self.formed = self.durable.begun;
    }

    /// A message of the view has been delivered.
    pub(in crate::group) fn delivered(&mut self, count: u64, chain: Chain) {
        (self.held.count, self.held.chain) = (count, chain);
    }

    /// The node has been brought up to date.
    pub(in crate::group) fn sync(&mut self) {
        (self.synced, self.doubtful) = (true, false);
    }

    /// The node asks for a sender ID with this incarnation: that is to be on the disk before.
    pub(in crate::group) fn use_incarnation(&mut self, incarnation: u16) {
        self.durable.incarnation = incarnation;
    }

    /// The disk says this.
    pub(in crate::group) fn persisted(&mut self, durable: &Durable) {
        self.on_disk = self.on_disk.max(durable.begun.epoch);
        self.rosters_on_disk |= durable.rosters == self.durable.rosters;
    }

    /// True once the disk says that the view has begun here, and has the rosters. A node that
    /// acknowledged something, and then forgot even that it was there, would let others go on
    /// without it. One that acknowledged a roster and forgot it would count by an older one.
    pub(in crate::group) fn is_on_disk(&self, epoch: u64) -> bool {
        epoch <= self.on_disk && self.rosters_on_disk
    }

    /// There is a moment without quorum, or without an engine.
    pub(in crate::group) fn interrupt(&mut self) {
        if self.since == Since::Nothing {
            self.since = Since::Interruption;
        }
    }

    /// True if no others can have gone on since the last view that has begun here.
    pub(in crate::group) fn is_straight(&self) -> bool {
        self.since == Since::Nothing
    }

    /// False for a view of one of two nodes beside which the other may have gone on.
    pub(in crate::group) fn believes(&self, view: &View, nodes: usize) -> bool {
        let is_alone = nodes == 2 && view.members.len() == 1;
        !view.quorate || !is_alone || self.is_straight() || self.were_last(&view.members)
    }

    /// True if these are all members of the last view that has begun here. No others can go on from
    /// it: they would have had to be straight from it themselves.
    fn were_last(&self, members: &[NodeId]) -> bool {
        self.since == Since::Interruption && self.durable.begun.nodes().all(|node| members.contains(&node))
    }

    /// True if members that are no more than half of the nodes, and know no more than this one, may
    /// go on together.
    pub(in crate::group) fn lets_few_go_on(&self, members: &[NodeId], rosters: &Rosters) -> bool {
        let is_other = |node: NodeId| !members.contains(&node);
        let others_are_most = rosters.all().any(|roster| roster.is_majority(is_other));
        self.is_straight() || self.were_last(members) && !others_are_most
    }

    /// The machine has gone back to an earlier state: what the node holds is void.
    pub(in crate::group) fn roll_back(&mut self) {
        (self.held, self.synced, self.past) = (Held::NOTHING, false, Past::default());
        (self.doubtful, self.since) = (true, Since::Start);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::RingId;
    use crate::group::roster::Roster;

    fn node(number: u32) -> NodeId {
        NodeId::new(number).unwrap()
    }

    fn outcome(epoch: u64, members: &[u32], current: &[u32], reset: bool) -> Outcome {
        let nodes = |numbers: &[u32]| numbers.iter().copied().map(node).collect::<Vec<_>>();
        Outcome {
            view: View { ring: RingId { seq: epoch, node: 1 }, members: nodes(members), quorate: true },
            epoch,
            current: nodes(current),
            fresh: vec![],
            reset,
            randoms: vec![],
            boots: vec![],
            leases: vec![],
            wait: std::time::Duration::ZERO,
            unreadable: vec![],
            void: vec![],
            version: None,
            rosters: None,
            strangers: vec![],
        }
    }

    fn begin(history: &mut History, outcome: &Outcome) {
        history.begin(node(1), outcome, Chain::default());
    }

    #[test]
    fn one_of_two_nodes_goes_on_alone_from_a_view_of_both_until_there_is_no_quorum() {
        let both = outcome(1, &[1, 2], &[1, 2], false);
        let alone = outcome(2, &[1], &[1], false);
        let mut history = History::new(Durable::default());
        assert!(!history.believes(&alone.view, 2), "nothing is known of the other");
        assert!(history.believes(&alone.view, 3) && history.believes(&both.view, 2));
        begin(&mut history, &both);
        assert!(history.believes(&alone.view, 2));
        history.interrupt();
        assert!(!history.believes(&alone.view, 2), "the other may have gone on");
        begin(&mut history, &both);
        begin(&mut history, &alone);
        history.interrupt();
        assert!(history.believes(&alone.view, 2), "this node was alone last");
        history.roll_back();
        assert!(!history.believes(&alone.view, 2), "it does not know any more whether it was");
    }

    #[test]
    fn a_view_is_on_the_disk_once_that_has_been_written() {
        let mut history = History::new(Durable {
            begun: Begun { epoch: 4, ..Begun::default() },
            incarnation: 7,
            rosters: None,
        });
        begin(&mut history, &outcome(5, &[1, 2, 3], &[2], false));
        assert_eq!((history.is_on_disk(4), history.is_on_disk(5)), (true, false));
        history.use_incarnation(8);
        let durable = history.durable();
        assert_eq!((durable.begun.epoch, durable.incarnation), (5, 8));
        history.persisted(&durable);
        history.persisted(&Durable::default());
        assert!(history.is_on_disk(5), "what is written late takes nothing back");
    }

    #[test]
    fn nothing_counts_while_the_disk_lacks_the_rosters() {
        let mut history = History::new(Durable::default());
        let next = |number| Rosters { settled: Roster::of(number, [node(1)]), next: None };
        history.set_rosters(next(1));
        let first = history.durable();
        assert!(!history.is_on_disk(0));
        history.set_rosters(next(2));
        history.persisted(&first);
        assert!(!history.is_on_disk(0), "these are older");
        let second = history.durable();
        history.persisted(&second);
        assert!(history.is_on_disk(0));
    }

    #[test]
    fn who_is_brought_up_to_date_holds_the_state_and_has_no_doubts() {
        let mut history = History::new(Durable::default());
        history.roll_back();
        begin(&mut history, &outcome(5, &[1, 2, 3], &[2], false));
        assert_eq!((history.is_synced(), history.is_doubtful()), (false, true));
        let fresh = history.digest();
        history.sync();
        assert_eq!((history.is_synced(), history.is_doubtful()), (true, false));
        assert_ne!(history.digest(), fresh);
        assert!(history.has_state_of(node(1), &outcome(6, &[1], &[1], false)));
        assert!(!history.has_state_of(node(1), &outcome(6, &[1], &[1], true)), "all begin with nothing");
        assert!(!history.has_state_of(node(1), &outcome(6, &[1, 2], &[2], false)));
    }

    fn nodes(numbers: &[u32]) -> Vec<NodeId> {
        numbers.iter().copied().map(node).collect()
    }

    /// The view with the lowest node goes on where it is split into halves, and no view goes on
    /// from one that may have been overtaken.
    #[test]
    fn members_that_vote_go_on_if_they_carry_the_last_formed_view_and_each_later_one() {
        let mut history = History::new(Durable::default());
        begin(&mut history, &outcome(1, &[1, 2, 3, 4], &[1, 2, 3, 4], false));
        assert!(!history.lets_go_on(&nodes(&[1, 2, 3, 4])), "nothing is known to be formed");
        assert!(!history.is_formed());
        history.begun_everywhere();
        assert!(history.is_formed());
        assert!(history.lets_go_on(&nodes(&[1, 2])) && history.lets_go_on(&nodes(&[2, 3, 4])));
        assert!(!history.lets_go_on(&nodes(&[3, 4])) && !history.lets_go_on(&nodes(&[1])));
        begin(&mut history, &outcome(2, &[1, 2, 3], &[1, 2, 3], false));
        assert!(history.lets_go_on(&nodes(&[1, 2])), "of both");
        assert!(!history.lets_go_on(&nodes(&[1, 4])), "half of the first view, and a third of the second");
        assert!(!history.lets_go_on(&nodes(&[3, 4])));
        history.begun_everywhere();
        assert!(!history.lets_go_on(&nodes(&[1])) && history.lets_go_on(&nodes(&[2, 3])));
    }

    #[test]
    fn few_go_on_straight_from_a_view_or_as_the_last_while_the_others_are_no_majority() {
        let of = |count: u32| Rosters { settled: Roster::of(0, (1..=count).map(node)), next: None };
        let mut history = History::new(Durable::default());
        let lets = |history: &History, members: &[u32], count: u32| {
            history.lets_few_go_on(&nodes(members), &of(count))
        };
        assert!(!lets(&history, &[1, 2], 4), "it has just started");
        begin(&mut history, &outcome(1, &[1, 2], &[1, 2], false));
        assert!(lets(&history, &[1], 3), "straight");
        history.interrupt();
        assert!(lets(&history, &[1, 2], 4), "both were in the last view, and the others are half");
        assert!(!lets(&history, &[1, 2], 5), "the others are three of five");
        assert!(!lets(&history, &[1, 3], 4), "node 2 may have gone on");
        let mut rosters = of(4);
        rosters.next = Some(Roster::of(1, (1..=5).map(node)));
        assert!(!history.lets_few_go_on(&nodes(&[1, 2]), &rosters), "the others are most of the next roster");
        history.roll_back();
        assert!(!lets(&history, &[1, 2], 4));
    }
}
