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
use crate::group::views::obstacle::Obstacle;
use crate::group::views::past::Past;
use crate::node::NodeId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;
use told::{Holders, Told};
use vote::{Ballot, Vote};

mod told;
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
    /// No others can have gone on since the last view that it has begun.
    pub(in crate::group) straight: Option<bool>,
}

impl Heard {
    pub(in crate::group) fn read(octets: &[u8]) -> Option<Self> {
        let (status, rest) = postcard::take_from_bytes::<Status>(octets).ok()?;
        let (speaks, rest) = postcard::take_from_bytes(rest).ok().unzip();
        let (past, rest) = rest.and_then(|rest| postcard::take_from_bytes(rest).ok()).unzip();
        let (ballot, rest) = rest.and_then(|rest| postcard::take_from_bytes(rest).ok()).unzip();
        let (ingress, rest) = rest.and_then(|rest| postcard::take_from_bytes(rest).ok()).unzip();
        let (rosters, rest) = rest.and_then(|rest| postcard::take_from_bytes(rest).ok()).unzip();
        let straight = rest.and_then(|rest| postcard::from_bytes(rest).ok());
        Some(Self { status, speaks, past, ballot, ingress, rosters, straight })
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

    /// What the view begins with, once all members have been heard. A member whose STATUS cannot be
    /// read is left out, as long as the members that understand each other are more than half: then
    /// the others cannot do the same.
    pub(in crate::group) fn outcome(&self) -> Result<Box<Outcome>, Obstacle> {
        let missing: Vec<NodeId> = self.missing().collect();
        if !missing.is_empty() {
            return Err(Obstacle::Unheard(missing));
        }
        let known = self.known_rosters();
        let (mut readable, mut unreadable, mut strangers) = (Vec::new(), Vec::new(), Vec::new());
        let (mut version, mut pasts) = (Some(u8::MAX), Vec::new());
        let (mut formed, mut straight) = (Begun::default(), Some(false));
        for node in &self.view.members {
            match self.statuses.get(node) {
                Some(Some(heard)) if !known.admits(*node, heard.rosters.is_some()) => strangers.push(*node),
                Some(Some(heard)) => {
                    version = version.zip(heard.speaks).map(|(lowest, speaks): (u8, u8)| lowest.min(speaks));
                    pasts.push(heard.past.as_ref());
                    formed = heard.ballot.map_or(formed, |ballot| ballot.formed.max(formed));
                    straight = straight.zip(heard.straight).map(|(one, other)| one || other);
                    readable.push((*node, &heard.status));
                }
                _ => unreadable.push(*node),
            }
        }
        if readable.len() <= unreadable.len() {
            return Err(Obstacle::Unreadable(unreadable));
        }
        // All members compute the same outcome: where one does not say what it has begun before, no
        // member looks at it.
        let pasts: Vec<&Past> = pasts.into_iter().collect::<Option<_>>().unwrap_or_default();
        let told = Told { statuses: &readable, pasts: &pasts, formed, straight, rosters: &known.all };
        let left_out = LeftOut { unreadable, strangers };
        let rosters = known.begin();
        let begin = |holders| Ok(Box::new(self.agree(&told, holders, left_out, version, rosters)));
        let knows_all = match self.rule {
            QuorumRule::Majority => false,
            QuorumRule::LastManStanding => match told.vote() {
                Vote::Outvoted(nodes) => return Err(Obstacle::Outvoted(nodes)),
                // An older state would be worse than none.
                Vote::Forgotten => return begin(Vec::new()),
                vote => vote == Vote::Carried,
            },
        };
        let holders = match told.holders(knows_all) {
            Holders::Here(_) if self.rule == QuorumRule::Majority && !told.may_follow() => {
                Holders::Elsewhere(told.absent())
            }
            holders => holders,
        };
        match holders {
            Holders::Here(holders) => begin(holders),
            Holders::Nobody => begin(Vec::new()),
            Holders::Elsewhere(_) if readable.iter().all(|(_, status)| !status.patient) => begin(Vec::new()),
            Holders::Elsewhere(nodes) => Err(Obstacle::State(nodes)),
        }
    }

    /// True while the members wait for a node that holds the state.
    pub(in crate::group) fn waits(&self) -> bool {
        matches!(self.outcome(), Err(Obstacle::State(_) | Obstacle::Outvoted(_)))
    }

    /// True if the members may not go on, and others may.
    pub(in crate::group) fn is_outvoted(&self) -> bool {
        matches!(self.outcome(), Err(Obstacle::Outvoted(_)))
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

#[cfg(test)]
mod tests;
