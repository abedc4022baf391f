//! What filter and routes need of the policies: the prefixes that are held back, and the
//! exceptions.

use crate::prefix_map::{PrefixMap, PrefixSet};
use std::collections::BTreeMap;
use testudo_base::prefix::Prefix;

/// What filter and routes must hold back, and the exceptions inside.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Protection {
    /// Remote prefixes whose traffic goes to a worker and nowhere else.
    pub(crate) protected: PrefixSet,
    /// The protected prefixes that configured children hold back, and not SAs alone.
    pub(crate) held: PrefixSet,
    /// Our own sides, as configured: what comes from there is not "clear text that should have been
    /// protected".
    pub(crate) local: PrefixSet,
    /// Our own sides of policies for everything, as configured: what comes in clear to there is
    /// held back, whomever it is from.
    pub(crate) selected: PrefixSet,
    /// Our own sides of Child SAs, where no prefix tells what they carry.
    pub(crate) selected_by_sas: PrefixSet,
    /// Prefixes on both sides of one policy, which says nothing then about where a packet comes
    /// from.
    pub(crate) both: PrefixSet,
    /// Remote prefixes in which any host may be a peer: also those that are directly connected.
    pub(crate) anybody: PrefixSet,
    /// Remote prefixes that a policy lets pass, whoever of our side sends and whatever is sent.
    pub(crate) passed: PrefixSet,
    /// Remote prefixes that a policy lets pass for some of our side, or for some protocols or
    /// ports: they answer in clear.
    pub(crate) passed_in_part: PrefixSet,
}

/// One of the sets of a [`Protection`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Group {
    Protected,
    Held,
    Local,
    Selected,
    SelectedBySas,
    Both,
    Anybody,
    Passed,
    PassedInPart,
}

/// A prefix that has come into a set, or is gone from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    pub(crate) part: Group,
    pub(crate) prefix: Prefix,
    /// True if it is in the set now.
    pub(crate) is_there: bool,
}

impl Protection {
    /// Follows a change.
    pub(crate) fn apply(&mut self, difference: Difference) {
        let set = match difference.part {
            Group::Protected => &mut self.protected,
            Group::Held => &mut self.held,
            Group::Local => &mut self.local,
            Group::Selected => &mut self.selected,
            Group::SelectedBySas => &mut self.selected_by_sas,
            Group::Both => &mut self.both,
            Group::Anybody => &mut self.anybody,
            Group::Passed => &mut self.passed,
            Group::PassedInPart => &mut self.passed_in_part,
        };
        if difference.is_there {
            set.insert(difference.prefix, ());
        } else {
            set.remove(&difference.prefix);
        }
    }
}

/// Notes changes of sets. What changes back does not count.
#[derive(Debug)]
pub(super) struct Changes<K>(BTreeMap<(K, Prefix), bool>);

impl<K> Default for Changes<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord + Copy> Changes<K> {
    /// The prefix is about to come or go; `is_there` is its state before.
    pub(super) fn note(&mut self, of: K, prefix: Prefix, is_there: bool) {
        self.0.entry((of, prefix)).or_insert(is_there);
    }

    /// The prefixes noted, with their states before.
    pub(super) fn noted(&self) -> impl Iterator<Item = (K, Prefix, bool)> + '_ {
        self.0.iter().map(|((of, prefix), was)| (*of, *prefix, *was))
    }

    /// Forgets what was noted.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

/// Counts how many policies have put a prefix into a set.
#[derive(Debug)]
pub(super) struct Tally {
    part: Group,
    counts: PrefixMap<usize>,
}

impl Tally {
    pub(super) fn of(part: Group) -> Self {
        Self { part, counts: PrefixMap::default() }
    }

    pub(super) fn contains(&self, prefix: &Prefix) -> bool {
        self.counts.contains_key(prefix)
    }

    /// True if one of them holds all of the prefix.
    pub(super) fn covers(&self, prefix: &Prefix) -> bool {
        self.counts.covers(prefix)
    }

    /// True if one of them lies inside the prefix, or around it.
    pub(super) fn meets(&self, prefix: &Prefix) -> bool {
        self.counts.meeting(prefix).next().is_some()
    }

    pub(super) fn add(&mut self, prefix: Prefix, changes: &mut Changes<Group>) {
        if let Some(count) = self.counts.get_mut(&prefix) {
            *count += 1;
        } else {
            changes.note(self.part, prefix, false);
            self.counts.insert(prefix, 1);
        }
    }

    pub(super) fn subtract(&mut self, prefix: Prefix, changes: &mut Changes<Group>) {
        let Some(count) = self.counts.get_mut(&prefix) else { return };
        *count -= 1;
        if *count == 0 {
            changes.note(self.part, prefix, true);
            self.counts.remove(&prefix);
        }
    }

    #[cfg(test)]
    pub(super) fn set(&self) -> PrefixSet {
        self.counts.keys().copied().collect()
    }
}

#[cfg(test)]
mod tests;
