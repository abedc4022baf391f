//! The exchange of STATUS that begins a view: which members hold the state, and what all agree on
//! before the first update.
//!
//! Every member multicasts one STATUS in the new ring. The last of them is delivered at the same
//! place in the total order everywhere. There each member computes the same outcome from them.

use crate::engine::{RingId, View};
use crate::group::config::{GroupConfig, Ingress, QuorumRule};
use crate::group::durable::Begun;
use crate::group::frame::Chain;
use crate::group::keys::RANDOM_LEN;
use crate::group::roster::{Roster, Rosters};
use crate::group::views::past::Past;
use crate::node::NodeId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;
use vote::{Ballot, Vote};

pub(in crate::group) mod vote;

/// The last quorate view whose exchange a node has completed, and how much of that view was
/// delivered to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::group) struct Held {
    /// 0 if there was none since the node began.
    pub(in crate::group) epoch: u64,
    pub(in crate::group) ring: RingId,
    pub(in crate::group) count: u64,
    pub(in crate::group) chain: Chain,
}

impl Held {
    /// A digest of what a node holds. Nodes with equal digests hold equal states.
    pub(in crate::group) fn digest(&self, synced: bool) -> [u8; 8] {
        self.chain.with(self.ring, self.epoch, self.count, synced).short()
    }

    pub(in crate::group) const NOTHING: Self =
        Self { epoch: 0, ring: RingId { seq: 0, node: 0 }, count: 0, chain: Chain([0; 32]) };
}

/// A member's part in the exchange.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::group) struct Status {
    /// The members of the view that it is for, one bit each.
    pub(in crate::group) members: u32,
    /// A random number that tells this life of the node from earlier ones.
    pub(in crate::group) boot: u64,
    pub(in crate::group) held: Held,
    /// The last quorate view that it has begun, in this life or an earlier one, as its disk says.
    pub(in crate::group) begun: Begun,
    /// It has been set back to an earlier state, so its disk may say less than there was.
    pub(in crate::group) doubtful: bool,
    /// It held the whole state in the view of `held`, or has been brought up to date since.
    pub(in crate::group) synced: bool,
    /// If no member holds the state, it still waits for a node that does.
    pub(in crate::group) patient: bool,
    /// Its part of the group key.
    pub(in crate::group) random: [u8; RANDOM_LEN],
    /// The highest incarnation that it knows to be leased, for each node.
    pub(in crate::group) leases: Vec<(u8, u16)>,
    /// For how many microseconds more each node may rely on having been heard here.
    pub(in crate::group) promises: Vec<(u8, u32)>,
}

/// A STATUS as it is read. What has been added since its first version stands behind it; a node
/// that does not know of it passes over it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::group) struct Heard {
    pub(in crate::group) status: Status,
    /// The highest version of updates that its sender speaks.
    pub(in crate::group) speaks: Option<u8>,
    /// The views that its sender has begun before the last one.
    pub(in crate::group) past: Option<Past>,
    /// What it says for the vote.
    pub(in crate::group) ballot: Option<Ballot>,
    /// How packets come to its sender.
    pub(in crate::group) ingress: Option<Ingress>,
    /// The rosters that it knows.
    pub(in crate::group) rosters: Option<Rosters>,
}

impl Heard {
    pub(in crate::group) fn read(octets: &[u8]) -> Option<Self> {
        let (status, rest) = postcard::take_from_bytes::<Status>(octets).ok()?;
        let (speaks, rest) = postcard::take_from_bytes(rest).ok().unzip();
        let (past, rest) = rest.and_then(|rest| postcard::take_from_bytes(rest).ok()).unzip();
        let (ballot, rest) = rest.and_then(|rest| postcard::take_from_bytes(rest).ok()).unzip();
        let (ingress, rest) = rest.and_then(|rest| postcard::take_from_bytes(rest).ok()).unzip();
        let rosters = rest.and_then(|rest| postcard::from_bytes(rest).ok());
        Some(Self { status, speaks, past, ballot, ingress, rosters })
    }

    /// The rule by which its sender decides whether a view goes on.
    pub(in crate::group) fn rule(&self) -> QuorumRule {
        self.ballot.map_or(QuorumRule::Majority, |ballot| ballot.rule)
    }

    /// How packets come to its sender. A build that does not say knows one way only.
    pub(in crate::group) fn ingress(&self) -> Ingress {
        self.ingress.unwrap_or(Ingress::Flood)
    }
}

/// The STATUS that have come so far.
#[derive(Clone, Debug)]
pub(in crate::group) struct Exchange {
    pub(in crate::group) view: View,
    /// The rosters that this node knows.
    rosters: Rosters,
    /// The rule of all members whose STATUS can be read.
    rule: QuorumRule,
    /// `None` for a STATUS that has come and cannot be read: that member has another cluster key,
    /// or speaks another version.
    statuses: BTreeMap<NodeId, Option<Heard>>,
}

/// What the members that understand each other come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::group) enum Verdict {
    /// The view begins.
    Begin(Box<Outcome>),
    /// None of them holds the latest state, and one of these nodes may.
    Wait(Vec<NodeId>),
    /// They may not go on, and some of these nodes may.
    Outvoted(Vec<NodeId>),
    /// These members cannot be understood, and the others are not more than half.
    Unreadable(Vec<NodeId>),
}

/// Which nodes hold the latest state.
enum Holders {
    /// These members do.
    Here(Vec<NodeId>),
    /// No node does any more, or there never was a state.
    Nobody,
    /// One of these nodes may, which are not members.
    Elsewhere(Vec<NodeId>),
}

/// What all members compute from the same STATUS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::group) struct Outcome {
    pub(in crate::group) view: View,
    pub(in crate::group) epoch: u64,
    pub(in crate::group) current: Vec<NodeId>,
    pub(in crate::group) fresh: Vec<NodeId>,
    /// No node has the state of the last view: all begin with nothing.
    pub(in crate::group) reset: bool,
    /// The members' parts of the group key.
    pub(in crate::group) randoms: Vec<(NodeId, [u8; RANDOM_LEN])>,
    pub(in crate::group) boots: Vec<(NodeId, u64)>,
    pub(in crate::group) leases: Vec<(NodeId, u16)>,
    /// How long takeovers from nodes that do not hold the state wait.
    pub(in crate::group) wait: Duration,
    /// Members of the engine's view that are left out, because their STATUS cannot be read.
    pub(in crate::group) unreadable: Vec<NodeId>,
    /// Views that a member has never begun. They have made nothing stable, and never will.
    pub(in crate::group) void: Vec<Begun>,
    /// The highest version that all members speak; `None` if one of them does not say.
    pub(in crate::group) version: Option<u8>,
    /// The rosters by which the view goes. `None`: each member's testudo.toml.
    pub(in crate::group) rosters: Option<Rosters>,
    /// Members of the engine's view that are left out, because they are not in the roster, or do
    /// not know that there is one.
    pub(in crate::group) strangers: Vec<NodeId>,
}

impl Outcome {
    /// The version of what is published in the view.
    pub(in crate::group) fn version(&self) -> u8 {
        self.version.unwrap_or(GroupConfig::OLDEST)
    }
}

impl Exchange {
    /// Begins, with the rosters that this node knows.
    pub(in crate::group) fn new(view: View, rosters: Rosters, rule: QuorumRule) -> Self {
        Self { view, rosters, rule, statuses: BTreeMap::new() }
    }

    /// Takes a member's STATUS. The first one counts; of a later one only that the member has
    /// become impatient.
    pub(in crate::group) fn insert(&mut self, from: NodeId, heard: Option<Heard>) {
        let patient = heard.as_ref().is_none_or(|heard| heard.status.patient);
        if let Some(known) = self.statuses.entry(from).or_insert(heard) {
            known.status.patient &= patient;
        }
    }

    /// The members that have not been heard yet.
    pub(in crate::group) fn missing(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.view.members.iter().copied().filter(|node| !self.statuses.contains_key(node))
    }

    /// The verdict, once all members have been heard. A member whose STATUS cannot be read is left
    /// out, as long as the members that understand each other are more than half: then the others
    /// cannot do the same.
    pub(in crate::group) fn outcome(&self) -> Option<Verdict> {
        if self.missing().next().is_some() {
            return None;
        }
        let known = self.known_rosters();
        let (mut readable, mut unreadable, mut strangers) = (Vec::new(), Vec::new(), Vec::new());
        let (mut version, mut pasts) = (Some(u8::MAX), Vec::new());
        let mut formed = Begun::default();
        for node in &self.view.members {
            match self.statuses.get(node) {
                Some(Some(heard)) if !known.admits(*node, heard.rosters.is_some()) => strangers.push(*node),
                Some(Some(heard)) => {
                    version = version.zip(heard.speaks).map(|(lowest, speaks): (u8, u8)| lowest.min(speaks));
                    pasts.push(heard.past.as_ref());
                    formed = heard.ballot.map_or(formed, |ballot| ballot.formed.max(formed));
                    readable.push((*node, &heard.status));
                }
                _ => unreadable.push(*node),
            }
        }
        if readable.len() <= unreadable.len() {
            return Some(Verdict::Unreadable(unreadable));
        }
        // All members compute the same outcome: where one does not say what it has begun before, no
        // member looks at it.
        let pasts: Vec<&Past> = pasts.into_iter().collect::<Option<_>>().unwrap_or_default();
        let told = Told { statuses: &readable, pasts: &pasts, formed, rosters: &known.all };
        let left_out = LeftOut { unreadable, strangers };
        let rosters = known.begin();
        let begin =
            |holders| Verdict::Begin(Box::new(self.agree(&told, holders, left_out, version, rosters)));
        let knows_all = match self.rule {
            QuorumRule::Majority => false,
            QuorumRule::LastManStanding => match told.vote() {
                Vote::Outvoted(nodes) => return Some(Verdict::Outvoted(nodes)),
                // An older state would be worse than none.
                Vote::Forgotten => return Some(begin(Vec::new())),
                vote => vote == Vote::Carried,
            },
        };
        Some(match told.holders(knows_all) {
            Holders::Here(holders) => begin(holders),
            Holders::Nobody => begin(Vec::new()),
            Holders::Elsewhere(_) if readable.iter().all(|(_, status)| !status.patient) => begin(Vec::new()),
            Holders::Elsewhere(nodes) => Verdict::Wait(nodes),
        })
    }

    /// True while the members wait for a node that holds the state.
    pub(in crate::group) fn waits(&self) -> bool {
        matches!(self.outcome(), Some(Verdict::Wait(_) | Verdict::Outvoted(_)))
    }

    /// True if the members may not go on, and others may.
    pub(in crate::group) fn is_outvoted(&self) -> bool {
        matches!(self.outcome(), Some(Verdict::Outvoted(_)))
    }

    fn agree(
        &self,
        told: &Told<'_>,
        holders: Vec<NodeId>,
        left_out: LeftOut,
        version: Option<u8>,
        rosters: Option<Rosters>,
    ) -> Outcome {
        let statuses = told.statuses;
        let members: Vec<NodeId> = statuses.iter().map(|(node, _)| *node).collect();
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
            epoch: statuses.iter().map(|(_, status)| status.begun.epoch).max().unwrap_or(0).saturating_add(1),
            current,
            fresh,
            reset,
            randoms: statuses.iter().map(|(node, status)| (*node, status.random)).collect(),
            boots: statuses.iter().map(|(node, status)| (*node, status.boot)).collect(),
            leases: leases.into_iter().collect(),
            wait: Duration::from_micros(wait.into()),
            unreadable: left_out.unreadable,
            strangers: left_out.strangers,
            rosters,
            void: told.views().filter(|view| told.is_void(view)).collect(),
            version,
        }
    }
}

/// Members of the engine's view that are left out.
struct LeftOut {
    unreadable: Vec<NodeId>,
    strangers: Vec<NodeId>,
}

/// The rosters that the members know together.
struct KnownRosters {
    /// The newest one that is settled, and all that members have been told may follow it.
    all: Vec<Roster>,
    /// That with which the view goes on.
    next: Option<Roster>,
}

impl KnownRosters {
    /// True if the node may be a member. Without a change of testudo.toml's nodes each node goes by
    /// its own file.
    fn admits(&self, node: NodeId, knows_rosters: bool) -> bool {
        let settled = self.all.first();
        settled.is_none_or(|settled| settled.number == 0)
            || knows_rosters && self.all.iter().any(|roster| roster.has(node))
    }

    /// The rosters with which the view begins.
    fn begin(&self) -> Option<Rosters> {
        let settled = self.all.first()?.clone();
        let next = self.next.clone();
        (settled.number > 0 || next.is_some()).then_some(Rosters { settled, next })
    }
}

impl Exchange {
    /// Of the rosters that members have been told of and that are not known to be settled, the view
    /// goes on with that of the member which has begun the latest view: it was in each view in
    /// which one of them may have become stable, or has heard a member of it.
    fn known_rosters(&self) -> KnownRosters {
        let heard =
            || self.statuses.values().flatten().filter_map(|heard| Some((heard, heard.rosters.as_ref()?)));
        let newest = heard().map(|(_, rosters)| &rosters.settled).max_by_key(|settled| settled.number);
        let settled = newest.filter(|newest| newest.number > 0).unwrap_or(&self.rosters.settled).clone();
        let follows = |next: &&Roster| settled.number.checked_add(1) == Some(next.number);
        let mut told: Vec<(Begun, &Roster)> = heard()
            .filter_map(|(heard, rosters)| Some((heard.status.begun, rosters.next.as_ref().filter(follows)?)))
            .collect();
        told.sort_by_key(|(begun, _)| std::cmp::Reverse(*begun));
        let next = told.first().map(|(_, next)| (*next).clone());
        let all =
            std::iter::once(settled.clone()).chain(told.into_iter().map(|(_, next)| next.clone())).collect();
        KnownRosters { all, next }
    }
}

/// The entries that name a node.
fn named<T: Copy>(entries: &[(u8, T)]) -> impl Iterator<Item = (NodeId, T)> + '_ {
    entries.iter().filter_map(|(node, value)| Some((NodeId::new(u32::from(*node))?, *value)))
}

/// What the members have told of themselves.
struct Told<'a> {
    statuses: &'a [(NodeId, &'a Status)],
    /// In the same order. Empty if a member does not say.
    pasts: &'a [&'a Past],
    /// The last view that a member knows to be formed.
    formed: Begun,
    /// The roster that counts, and those that may follow it.
    rosters: &'a [Roster],
}

impl Told<'_> {
    /// The views that members have begun, as far as they know.
    fn views(&self) -> impl Iterator<Item = Begun> + '_ {
        let last = self.statuses.iter().map(|(_, status)| status.begun).filter(Begun::is_any);
        last.chain(self.pasts.iter().flat_map(|past| past.views()))
    }

    /// True if a member of that view is here, and has never begun it.
    fn is_void(&self, view: &Begun) -> bool {
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
    fn is_here(&self, node: NodeId) -> bool {
        self.statuses.iter().any(|(member, _)| *member == node)
    }

    /// True if no node of the cluster is missing.
    fn all_are_here(&self) -> bool {
        self.rosters.iter().flat_map(|roster| roster.nodes.keys()).all(|node| self.is_here(*node))
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
    fn holders(&self, knows_all: bool) -> Holders {
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

#[cfg(test)]
mod tests;
