//! What the members' STATUS say together: which of them hold the state, and whether others may have
//! gone on.

use super::{Held, Status};
use crate::group::durable::Begun;
use crate::group::roster::Roster;
use crate::group::views::past::Past;
use crate::node::NodeId;
use std::collections::BTreeSet;

/// What the members have told of themselves.
pub(super) struct Told<'a> {
    pub(super) statuses: &'a [(NodeId, &'a Status)],
    /// In the same order. Empty if a member does not say.
    pub(super) pasts: &'a [&'a Past],
    /// The last view that a member knows to be formed.
    pub(super) formed: Begun,
    /// No others can have gone on since the last view that one of the members has begun. `None` if
    /// a member does not say.
    pub(super) straight: Option<bool>,
    /// The roster that counts, and those that may follow it.
    pub(super) rosters: &'a [Roster],
}

/// Which nodes hold the latest state.
pub(super) enum Holders {
    /// These members do.
    Here(Vec<NodeId>),
    /// No node does any more, or there never was a state.
    Nobody,
    /// One of these nodes may, which are not members.
    Elsewhere(Vec<NodeId>),
}

impl Told<'_> {
    /// The views that members have begun, as far as they know.
    pub(super) fn views(&self) -> impl Iterator<Item = Begun> + '_ {
        let last = self.statuses.iter().map(|(_, status)| status.begun).filter(Begun::is_any);
        last.chain(self.pasts.iter().flat_map(|past| past.views()))
    }

    /// True if a member of that view is here, and has never begun it.
    pub(super) fn is_void(&self, view: &Begun) -> bool {
        self.statuses.iter().enumerate().any(|(index, (node, status))| {
            let nothing = Past::default();
            let past = self.pasts.get(index).copied().unwrap_or(&nothing);
            view.has(*node) && !status.doubtful && past.never_began(&status.begun, view)
        })
    }

    /// True if those who are missing, and those who cannot say what they have begun, may together
    /// have made something stable in a view later than `view`, which nobody here can name.
    fn may_have_gone_beyond(&self, view: &Begun) -> bool {
        let unheard = |roster: &Roster| roster.nodes.keys().filter(|node| !self.is_here(**node)).count();
        let some_are_missing = self.rosters.iter().any(|roster| unheard(roster) > 0);
        let silent = self.statuses.iter().enumerate().filter(|(index, (_, status))| {
            let is_silent = |past: &&Past| past.is_silent_after(&status.begun, view);
            // A node that was set back may have begun a view that no member knows.
            (status.doubtful && some_are_missing) || self.pasts.get(*index).is_some_and(is_silent)
        });
        let silent = silent.count();
        let may_be_most = |roster: &Roster| (silent + unheard(roster)) * 2 > roster.nodes.len();
        silent > 0 && self.rosters.iter().any(may_be_most)
    }

    /// True if the node's STATUS counts.
    pub(super) fn is_here(&self, node: NodeId) -> bool {
        self.statuses.iter().any(|(member, _)| *member == node)
    }

    /// False if others may have gone on from the latest view that the members know.
    ///
    /// Members that are more than half of the nodes have one in common with all who have gone on.
    /// Fewer may be quorate too: corosync counts its daemons, and one whose testudod is not there
    /// counts like any other. So of three nodes, 2 and 3 may have gone on without 1, and 3 alone
    /// when the testudod of 2 had ended. If 3 dies, and 1 comes back beside the daemon of 2, then 1
    /// knows nothing of all that. So few members go on only
    ///
    /// - straight from the latest view, as one of them says: at every moment since then it was in a
    ///   ring with a quorum, and no other ring can have been;
    /// - or as all members of that view, if the other nodes are not more than half: these would have
    ///   had to be straight from it themselves.
    pub(super) fn may_follow(&self) -> bool {
        let is_here = |node| self.is_here(node);
        if self.rosters.iter().all(|roster| roster.is_majority(is_here)) || self.straight != Some(false) {
            return true;
        }
        let others_are_most = self.rosters.iter().any(|roster| roster.is_majority(|node| !is_here(node)));
        let latest = self.views().filter(|view| !self.is_void(view)).max().unwrap_or_default();
        !others_are_most && latest.nodes().all(is_here)
    }

    /// The nodes of the cluster that are missing.
    pub(super) fn absent(&self) -> Vec<NodeId> {
        let nodes: BTreeSet<NodeId> =
            self.rosters.iter().flat_map(|roster| roster.nodes.keys().copied()).collect();
        nodes.into_iter().filter(|node| !self.is_here(*node)).collect()
    }

    /// True if no node of the cluster is missing.
    pub(super) fn all_are_here(&self) -> bool {
        self.absent().is_empty()
    }

    /// Which nodes hold the state: of the synced nodes of the latest view, the largest set that has
    /// had the same messages. Of sets of one size, the set that has had more messages; then the set
    /// with the lowest node.
    ///
    /// Any of these sets would do: what was stable in that view had been acknowledged by all of its
    /// members. A node of an earlier view would not, even if those of the latest are not synced:
    /// peers have had answers that it does not know, and numbers that it takes for free have been
    /// used. So if no member holds the latest state, and a node that was in that view is missing,
    /// it may hold the state, and is waited for. There is one exception. A view that one of its
    /// members has never begun has made nothing stable. If that member is here, the view before is
    /// as good. A member that has begun the void view says which view that is: see [`Past`].
    ///
    /// Views are compared, not epochs: a view may have begun at some of its members only, and
    /// another view of that epoch at the others.
    ///
    /// `knows_all`: the members know every view in which something was made stable.
    pub(super) fn holders(&self, knows_all: bool) -> Holders {
        let mut views: Vec<Begun> = self.views().collect();
        views.sort_unstable();
        views.dedup();
        for view in views.iter().rev() {
            let here = best(self.statuses, view);
            let hidden = !knows_all && self.may_have_gone_beyond(view);
            if !here.is_empty() && !hidden {
                return Holders::Here(here);
            }
            if here.is_empty() && self.is_void(view) {
                continue;
            }
            let missing: Vec<NodeId> = view.nodes().filter(|node| !self.is_here(*node)).collect();
            return match missing.is_empty() && (self.all_are_here() || !hidden) {
                true => Holders::Nobody,
                false => Holders::Elsewhere(missing),
            };
        }
        Holders::Nobody
    }
}

/// Of the nodes that were in that view and hold the state, the largest set that has had the same
/// messages, sorted.
fn best(statuses: &[(NodeId, &Status)], view: &Begun) -> Vec<NodeId> {
    let holds =
        |status: &Status| status.synced && (status.held.ring, status.held.epoch) == (view.ring, view.epoch);
    let mut sets: Vec<(Held, Vec<NodeId>)> = Vec::new();
    for (node, status) in statuses.iter().filter(|(_, status)| holds(status)) {
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
