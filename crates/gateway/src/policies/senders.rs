//! Which of our addresses the policies carry to which prefixes of peers. What the gateway itself
//! sends there needs such an address as its source.

use super::protection::Changes;
use super::table::PolicyEntry;
use crate::prefix::{cover, whole};
use std::collections::{BTreeMap, BTreeSet};
use testudo_base::prefix::Prefix;
use testudo_ipsec::selector::AddrRange;

/// The most prefixes of the peer's side that count of one SA: the peer has a say in its selectors.
const MAX_SA_PREFIXES: usize = 64;

/// A range of our addresses that is carried to all of a prefix from now on, or is not any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SenderDifference {
    pub(crate) prefix: Prefix,
    pub(crate) range: AddrRange,
    /// True if it is there now.
    pub(crate) is_there: bool,
}

/// How many policies carry a range of our addresses to a prefix.
#[derive(Debug, Default)]
pub(super) struct Senders {
    counts: BTreeMap<(AddrRange, Prefix), usize>,
    changes: Changes<AddrRange>,
}

impl Senders {
    pub(super) fn add(&mut self, entry: &PolicyEntry) {
        for (range, prefix) in pairs(entry) {
            let count = self.counts.entry((range, prefix)).or_default();
            if *count == 0 {
                self.changes.note(range, prefix, false);
            }
            *count += 1;
        }
    }

    pub(super) fn subtract(&mut self, entry: &PolicyEntry) {
        for pair in pairs(entry) {
            let Some(count) = self.counts.get_mut(&pair) else { continue };
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&pair);
                self.changes.note(pair.0, pair.1, true);
            }
        }
    }

    pub(super) fn is_changed(&self) -> bool {
        self.differences().next().is_some()
    }

    /// How the senders have changed since the last call.
    pub(super) fn take_differences(&mut self) -> Vec<SenderDifference> {
        let differences = self.differences().collect();
        self.changes.clear();
        differences
    }

    fn differences(&self) -> impl Iterator<Item = SenderDifference> + '_ {
        let now = self.changes.noted().map(|(range, prefix, was)| {
            let is_there = self.counts.contains_key(&(range, prefix));
            (was, SenderDifference { prefix, range, is_there })
        });
        now.filter(|(was, difference)| *was != difference.is_there).map(|(_, difference)| difference)
    }
}

/// The ranges of our side, each with the prefixes that it is carried to. A side that is everything
/// names no address.
fn pairs(entry: &PolicyEntry) -> BTreeSet<(AddrRange, Prefix)> {
    let everything = [whole(false), whole(true)];
    let local: BTreeSet<AddrRange> = entry.senders().filter(|range| !everything.contains(range)).collect();
    if local.is_empty() {
        return BTreeSet::new();
    }
    let prefixes = if entry.is_of_sa() { MAX_SA_PREFIXES } else { usize::MAX };
    let remote = entry.remote_ranges().flat_map(|range| cover(&range)).take(prefixes);
    let to = |prefix: Prefix| {
        let alike = local.iter().filter(move |range| range.start().is_ipv4() == prefix.is_ipv4());
        alike.map(move |range| (*range, prefix))
    };
    remote.flat_map(to).collect()
}

#[cfg(test)]
mod tests;
