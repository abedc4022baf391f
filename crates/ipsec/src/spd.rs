//! The security policy database (RFC 4301 §4.4.1): ordered policies, immutable once built.
//!
//! Changes reach workers as a whole new SPD. The look-up does not walk all policies: see the module `index`.

mod index;

use crate::drops::DropReason;
use crate::error::Error;
use crate::packet_selector::PacketSelector;
use crate::selector::{SelectorPair, TrafficSelector};
use index::Index;
use serde::{Deserialize, Serialize};

/// The most policies that an SPD holds.
pub const MAX_POLICIES: usize = 1 << 20;

/// Number of a protecting policy. Tables are indexed by it: hand out small numbers, and reuse those that are free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PolicyId(pub u32);

impl PolicyId {
    /// Numbers are less than this.
    pub const LIMIT: u32 = MAX_POLICIES as u32;

    #[inline]
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// What happens to matching traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Action {
    /// Only through the SA of this policy.
    Protect(PolicyId),
    /// In clear.
    Bypass,
    /// Not at all.
    Discard,
}

/// An entry of the SPD.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// Lower is looked at first; among equals, the one that was given first.
    pub priority: u32,
    /// Our side.
    pub local: Vec<TrafficSelector>,
    /// The peer's side.
    pub remote: Vec<TrafficSelector>,
    /// What happens.
    pub action: Action,
}

/// What the SPD says about an outbound packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// A policy matches.
    Act(Action),
    /// None does; the default is to discard (RFC 4301 §5.1).
    NoPolicy,
}

/// What the SPD says about a packet that came in without protection (RFC 4301 §5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InboundClear {
    /// It may pass.
    Bypass,
    /// It must be dropped: it should have been protected, or should not have come at all.
    Drop(DropReason),
    /// No policy knows it. A gateway leaves it to the host's own rules.
    NoPolicy,
}

/// The policies, ready for look-up.
#[derive(Debug)]
pub struct Spd {
    /// In order of precedence; the place in the list is the rank.
    entries: Vec<Entry>,
    index: Index,
    /// One more than the highest policy number.
    table_len: usize,
}

#[derive(Debug)]
struct Entry {
    selectors: SelectorPair,
    action: Action,
}

impl Spd {
    /// Orders and indexes the policies.
    pub fn new(mut policies: Vec<Policy>) -> Result<Self, Error> {
        if policies.len() > MAX_POLICIES {
            return Err(Error::TooManyPolicies { found: policies.len() });
        }
        // Stable: equals stay in the order given.
        policies.sort_by_key(|policy| policy.priority);
        let table_len = check(&policies)?;
        let index = Index::new(&policies);
        let entries = policies
            .iter()
            .map(|policy| Entry {
                selectors: SelectorPair::new(&policy.local, &policy.remote),
                action: policy.action,
            })
            .collect();
        Ok(Self { entries, index, table_len })
    }

    /// No policies at all.
    pub fn empty() -> Self {
        Self { entries: Vec::new(), index: Index::new(&[]), table_len: 0 }
    }

    /// How many policies there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True without policies.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// One more than the highest policy number.
    pub(crate) fn table_len(&self) -> usize {
        self.table_len
    }

    /// The first policy that matches.
    pub fn lookup(&self, packet: &PacketSelector) -> Decision {
        let matches =
            |rank: u32| self.entries.get(rank as usize).is_some_and(|entry| entry.selectors.accepts(packet));
        let first = self.index.first(packet, matches);
        first
            .and_then(|rank| self.entries.get(rank as usize))
            .map_or(Decision::NoPolicy, |entry| Decision::Act(entry.action))
    }

    /// How narrow the narrowest range is that holds back what goes to the packet's remote address, from wherever it
    /// comes: the width of [`SelectorPair`]'s ranges.
    pub(crate) fn held_back(&self, packet: &PacketSelector) -> Option<u8> {
        let entries = self.index.by_remote(packet).filter_map(|rank| self.entries.get(rank as usize));
        let holding = entries.filter(|entry| entry.action != Action::Bypass);
        holding.filter_map(|entry| entry.selectors.remote_width(packet)).min()
    }

    /// Judges a packet that came in clear; `packet` is seen from our side ([`Direction::In`]).
    ///
    /// [`Direction::In`]: crate::packet_selector::Direction::In
    pub fn inbound_clear(&self, packet: &PacketSelector) -> InboundClear {
        match self.lookup(packet) {
            Decision::Act(Action::Bypass) => InboundClear::Bypass,
            Decision::Act(Action::Protect(_)) => InboundClear::Drop(DropReason::ClearButProtected),
            Decision::Act(Action::Discard) => InboundClear::Drop(DropReason::PolicyDiscard),
            Decision::NoPolicy => InboundClear::NoPolicy,
        }
    }
}

/// Checks the policies' numbers and selectors; returns the length of a table indexed by policy number.
fn check(policies: &[Policy]) -> Result<usize, Error> {
    let mut numbers = Vec::new();
    for policy in policies {
        for (list, side) in [(&policy.local, "local"), (&policy.remote, "remote")] {
            if list.is_empty() {
                return Err(Error::NoSelectors { side });
            }
        }
        if let Action::Protect(id) = policy.action {
            if id.0 >= PolicyId::LIMIT {
                return Err(Error::PolicyNumber { found: id });
            }
            numbers.push(id);
        }
    }
    numbers.sort_unstable();
    if let Some(pair) = numbers.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(Error::DuplicatePolicy(pair[0]));
    }
    Ok(numbers.last().map_or(0, |id| id.index() + 1))
}

#[cfg(test)]
#[path = "spd/tests.rs"]
mod tests;
