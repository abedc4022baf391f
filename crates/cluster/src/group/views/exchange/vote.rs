//! Which members may go on where the last node is to carry everything alone
//! ([`QuorumRule::LastManStanding`]).
//!
//! A majority of the configured nodes is unique. A majority of the nodes that were left last is
//! unique only if nobody counts by an older view. The engine does not ensure that: of five nodes,
//! two may have gone on from three, and the third, in a ring with the two that left before, is
//! quorate by the count of five. So the members vote, by what each of them remembers.
//!
//! A view is *formed* once it has begun at all of its members, and nothing is stable in a view that
//! is not. The members may go on if they carry the latest formed view, and every later view that
//! one of them has begun and that may have been formed: with more than half of its nodes, or with
//! half and its lowest node. Any two sets that carry a view have a node in common. So of two views
//! that go on from a third, the later one knows the earlier one.
//!
//! A node votes on a view if it knows what it has begun since then. A node that has started anew
//! knows its last view only, and one that was set back or has lost its disk knows nothing.

use super::told::Told;
use crate::group::config::{QuorumRule, is_most};
use crate::group::durable::Begun;
use crate::node::NodeId;
use serde::{Deserialize, Serialize};
use testudo_planted::{Plant, planted};

/// What a STATUS says for the vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::group) struct Ballot {
    /// The rule by which the sender decides.
    pub(in crate::group) rule: QuorumRule,
    /// The last view that it knows to be formed.
    pub(in crate::group) formed: Begun,
}

/// What a vote comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Vote {
    /// The members go on, and one of them knows every view that was formed.
    Carried,
    /// All configured nodes are here, and none knows a formed view.
    Unknown,
    /// All configured nodes are here. One that has forgotten may have gone on without the others.
    Forgotten,
    /// The members may not go on: others may, and among these nodes are some of them. Empty if all
    /// configured nodes have to be here.
    Outvoted(Vec<NodeId>),
}

/// True if the nodes that vote are more than half of the view, or half of it with its lowest node.
pub(in crate::group) fn carries(view: &Begun, votes: impl Fn(NodeId) -> bool) -> bool {
    is_most(view.nodes(), votes)
}

impl Told<'_> {
    /// May the members go on?
    pub(super) fn vote(&self) -> Vote {
        let all_are_here = self.all_are_here();
        let formed = self.formed();
        if !formed.is_any() {
            return if all_are_here { Vote::Unknown } else { Vote::Outvoted(Vec::new()) };
        }
        let later = self.views().filter(|view| *view > formed && !self.is_void(view));
        let mut counted = std::iter::once(formed).chain(later);
        let lost = counted.find(|view| !carries(view, |node| self.votes(node, view)));
        match lost {
            None => Vote::Carried,
            Some(_) if planted(Plant::VotesNotCounted) => Vote::Carried,
            Some(_) if all_are_here => Vote::Forgotten,
            Some(view) => Vote::Outvoted(view.nodes().filter(|node| !self.votes(*node, &view)).collect()),
        }
    }

    /// The last view that is formed, as a member knows, or as all of its nodes say together.
    fn formed(&self) -> Begun {
        let is_formed = |view: &Begun| view.nodes().all(|node| self.has_begun(node, view));
        self.views().filter(is_formed).fold(self.formed, Begun::max)
    }

    /// True if the node is here, and says that it has begun that view.
    fn has_begun(&self, node: NodeId, view: &Begun) -> bool {
        self.statuses.iter().zip(self.pasts).any(|((member, status), past)| {
            *member == node && (status.begun == *view || past.views().any(|other| other == *view))
        })
    }

    /// True if the node is here, and knows what it has begun since that view.
    fn votes(&self, node: NodeId, view: &Begun) -> bool {
        self.statuses.iter().zip(self.pasts).any(|((member, status), past)| {
            *member == node && !status.doubtful && past.remembers_since(&status.begun, view)
        })
    }
}

#[cfg(test)]
mod tests;
