//! What an earlier run left in the filter, or a connection that was unloaded, and no other has claimed.

use crate::policies::Protection;
use crate::prefix_map::PrefixMap;
use std::collections::BTreeSet;
use testudo_fastpath::filter::{PrefixUse, PrefixUses};
use testudo_fastpath::prefix::Prefix;

/// Prefixes that stay as they are until a connection claims them.
#[derive(Debug, Default)]
pub(super) struct Inherited {
    /// Prefixes that stay shut.
    pub(super) shut: PrefixMap<PrefixUse>,
    /// Prefixes that mattered only inside of those.
    pub(super) within: PrefixMap<PrefixUse>,
    /// Where the next claim has to look.
    unclaimed: BTreeSet<Prefix>,
}

/// What a claim takes out.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Claimed {
    /// Prefixes that are shut for their own sake no more.
    pub(super) shut: Vec<Prefix>,
    /// Prefixes that mattered inside of those.
    pub(super) within: Vec<Prefix>,
}

impl Inherited {
    /// Takes over the filter's prefixes, each used as it was.
    pub(super) fn new(left: PrefixUses) -> Self {
        let mut this = Self { unclaimed: left.keys().copied().collect(), ..Self::default() };
        for (prefix, usage) in left.into_iter().filter(|(_, usage)| usage.protect_to) {
            let map = if usage.within { &mut this.within } else { &mut this.shut };
            map.insert(prefix, usage);
        }
        this
    }

    /// The prefixes that stay shut.
    pub(super) fn prefixes(&self) -> impl Iterator<Item = &Prefix> {
        self.shut.keys()
    }

    /// Takes over a prefix that no connection wants held back any more, used as it is now. Answers what it has taken over
    /// inside of it.
    pub(super) fn keep(&mut self, abandoned: Prefix, now: &PrefixMap<PrefixUse>) -> Vec<Prefix> {
        self.shut.insert(abandoned, now.get(&abandoned).copied().unwrap_or(PrefixUse::PROTECT));
        self.unclaimed.insert(abandoned);
        let inside = now.inside(&abandoned).filter(|(_, usage)| usage.within);
        let mut kept = Vec::new();
        for (prefix, usage) in inside {
            self.within.insert(*prefix, *usage);
            kept.push(*prefix);
        }
        kept
    }

    /// What policies want of a prefix has changed: the next claim looks there.
    pub(super) fn look_at(&mut self, prefix: Prefix) {
        self.unclaimed.insert(prefix);
    }

    /// Leaves to configured children what they hold back by themselves, and what they let pass. Not to SAs: with the last of
    /// them a prefix would open that nobody has allowed to.
    pub(super) fn claim(&mut self, wanted: &Protection) -> Claimed {
        let mut claimed = Claimed::default();
        for prefix in std::mem::take(&mut self.unclaimed) {
            let passed = || wanted.passed.around(&prefix).next().is_some();
            let mut shut: Vec<Prefix> = Vec::new();
            if wanted.held.contains_key(&prefix) || passed() {
                shut.push(prefix);
            }
            if wanted.passed.contains_key(&prefix) {
                shut.extend(self.shut.inside(&prefix).map(|(inside, _)| *inside));
            }
            shut.retain(|prefix| self.shut.remove(prefix).is_some());
            let mut within: Vec<Prefix> = vec![prefix];
            for gone in &shut {
                within.extend(self.within.inside(gone).map(|(inside, _)| *inside));
            }
            within.retain(|prefix| {
                self.shut.around(prefix).next().is_none() && self.within.remove(prefix).is_some()
            });
            claimed.shut.extend(shut);
            claimed.within.extend(within);
        }
        claimed
    }
}
