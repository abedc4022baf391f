//! What an earlier run, or a connection that was unloaded, has left in the filter, and no
//! connection has claimed.

use crate::policies::Protection;
use crate::prefix::without;
use crate::prefix_map::PrefixMap;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use testudo_base::prefix::Prefix;
use testudo_fastpath::filter::{PrefixUse, PrefixUses};
use testudo_ike::output::UnixTime;
use testudo_vici::shut::Cause;

/// Prefixes that stay as they are until a connection claims them, or an operator lets them go.
#[derive(Debug, Default)]
pub(super) struct Inherited {
    /// Prefixes that stay shut.
    pub(super) shut: PrefixMap<PrefixUse>,
    /// Prefixes that matter only inside of those.
    pub(super) within: PrefixMap<PrefixUse>,
    /// Since when each shut prefix is shut, and why.
    origins: BTreeMap<Prefix, Origin>,
    /// Our own sides of policies for everything, and addresses that an earlier run's policies may
    /// have had on our side, with since when and why. Clear traffic to them stays held back.
    pub(super) selected: PrefixMap<Origin>,
    /// The prefixes that the next claim has to look at.
    unclaimed: BTreeSet<Prefix>,
    /// Prefixes that have come into `shut`, or have gone from it.
    changed: BTreeSet<Prefix>,
}

/// Since when a prefix stays shut, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) since: UnixTime,
    pub(crate) cause: Cause,
}

/// The prefixes that a claim takes out.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Claimed {
    /// Prefixes that are no longer shut by themselves.
    pub(super) shut: Vec<Prefix>,
    /// Prefixes that mattered inside of those.
    pub(super) within: Vec<Prefix>,
}

/// A prefix that was let go, as it was.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LetGo {
    pub(super) prefix: Prefix,
    pub(super) usage: PrefixUse,
    pub(crate) origin: Origin,
    /// Prefixes that mattered only inside of it.
    pub(super) within: Vec<(Prefix, PrefixUse)>,
    /// Our own sides that mattered only beside it.
    selected: Vec<(Prefix, Origin)>,
}

impl Inherited {
    /// Takes over the filter's prefixes, each used as it was.
    pub(super) fn new(left: PrefixUses, since: UnixTime) -> Self {
        let mut this = Self { unclaimed: left.keys().copied().collect(), ..Self::default() };
        for (prefix, usage) in left.into_iter().filter(|(_, usage)| usage.protect_to) {
            if usage.within {
                this.within.insert(prefix, usage);
            } else {
                this.put(prefix, usage, Origin { since, cause: Cause::EarlierRun });
            }
        }
        this
    }

    /// Takes over the addresses that are not open to clear traffic, if everything is shut.
    pub(super) fn keep_selected(&mut self, addresses: impl IntoIterator<Item = IpAddr>, since: UnixTime) {
        let hosts = addresses.into_iter().filter(|addr| self.is_everything_shut(*addr)).map(Prefix::host);
        let hosts: Vec<Prefix> = hosts.collect();
        for host in hosts {
            self.selected.insert(host, Origin { since, cause: Cause::EarlierRun });
        }
    }

    /// True if everything is shut for an address, and nobody has claimed that.
    pub(super) fn is_everything_shut(&self, addr: IpAddr) -> bool {
        Prefix::new(addr, 0).is_some_and(|everything| self.shut.contains_key(&everything))
    }

    /// The prefixes that stay shut.
    pub(super) fn prefixes(&self) -> impl Iterator<Item = &Prefix> {
        self.shut.keys()
    }

    /// Since when a prefix stays shut, and why; `None` if it does not.
    pub(super) fn origin(&self, prefix: &Prefix) -> Option<&Origin> {
        self.origins.get(prefix)
    }

    /// Takes over a prefix that no connection wants held back any more, with its present use. Gives
    /// the prefixes taken over inside of it.
    pub(super) fn keep(
        &mut self,
        abandoned: Prefix,
        now: &PrefixMap<PrefixUse>,
        origin: Origin,
    ) -> Vec<Prefix> {
        self.put(abandoned, now.get(&abandoned).copied().unwrap_or(PrefixUse::PROTECT), origin);
        self.unclaimed.insert(abandoned);
        let inside = now.inside(&abandoned).filter(|(_, usage)| usage.within);
        let mut kept = Vec::new();
        for (prefix, usage) in inside {
            self.within.insert(*prefix, *usage);
            kept.push(*prefix);
        }
        kept
    }

    /// The policies about a prefix have changed: the next claim looks there.
    pub(super) fn look_at(&mut self, prefix: Prefix) {
        self.unclaimed.insert(prefix);
    }

    /// Gives up the prefixes that configured children hold back by themselves, or let pass. SAs do
    /// not count: with the last of them a prefix would open that nobody has allowed to open.
    pub(super) fn claim(&mut self, wanted: &Protection) -> Claimed {
        let mut claimed = Claimed::default();
        let own: Vec<Prefix> = self.selected.keys().copied().collect();
        for prefix in own.iter().filter(|prefix| wanted.selected.covers(prefix)) {
            self.selected.remove(prefix);
        }
        for prefix in std::mem::take(&mut self.unclaimed) {
            let passed = || wanted.passed.covers(&prefix);
            let mut shut: Vec<Prefix> = Vec::new();
            if wanted.held.contains_key(&prefix) || passed() {
                shut.push(prefix);
            }
            if wanted.passed.contains_key(&prefix) {
                shut.extend(self.shut.inside(&prefix).map(|(inside, _)| *inside));
            }
            shut.retain(|prefix| self.take(prefix).is_some());
            let mut within: Vec<Prefix> = vec![prefix];
            for gone in &shut {
                within.extend(self.within.inside(gone).map(|(inside, _)| *inside));
            }
            within.retain(|prefix| self.take_within(prefix).is_some());
            claimed.shut.extend(shut);
            claimed.within.extend(within);
        }
        claimed
    }

    /// Lets a prefix go that stays shut; with everything also our own sides, which are held back
    /// only beside it. `None`: it does not.
    pub(super) fn let_go(&mut self, prefix: &Prefix) -> Option<LetGo> {
        let (usage, origin) = self.take(prefix)?;
        let inside: Vec<Prefix> = self.within.inside(prefix).map(|(inside, _)| *inside).collect();
        let taken = |inside: Prefix| Some((inside, self.take_within(&inside)?));
        let within = inside.into_iter().filter_map(taken).collect();
        let own = self.selected.inside(prefix).filter(|_| prefix.is_default());
        let selected: Vec<_> = own.map(|(own, origin)| (*own, origin.clone())).collect();
        for (own, _) in &selected {
            self.selected.remove(own);
        }
        Some(LetGo { prefix: *prefix, usage, origin, within, selected })
    }

    /// Lets our own sides in a prefix go, and nothing beside it. Gives all of them as they were;
    /// `None`: none of them is there.
    pub(super) fn let_own_side_go(&mut self, prefix: &Prefix) -> Option<PrefixMap<Origin>> {
        let before = self.selected.clone();
        for (own, origin) in before.meeting(prefix) {
            self.selected.remove(own);
            for rest in without(own, prefix) {
                self.selected.insert(rest, origin.clone());
            }
        }
        (self.selected != before).then_some(before)
    }

    /// Takes back what was let go.
    pub(super) fn take_back(&mut self, LetGo { prefix, usage, origin, within, selected }: LetGo) {
        self.put(prefix, usage, origin);
        self.unclaimed.insert(prefix);
        for (inside, usage) in within {
            self.within.insert(inside, usage);
        }
        for (own, origin) in selected {
            self.selected.insert(own, origin);
        }
    }

    /// The prefixes that may have begun to stay shut since the last call, or ceased to, and whether
    /// they do.
    pub(super) fn take_changes(&mut self) -> Vec<(Prefix, bool)> {
        let changed = std::mem::take(&mut self.changed).into_iter();
        changed.map(|prefix| (prefix, self.shut.contains_key(&prefix))).collect()
    }

    fn put(&mut self, prefix: Prefix, usage: PrefixUse, origin: Origin) {
        self.shut.insert(prefix, usage);
        self.origins.insert(prefix, origin);
        self.changed.insert(prefix);
    }

    /// Takes out a prefix that stays shut.
    fn take(&mut self, prefix: &Prefix) -> Option<(PrefixUse, Origin)> {
        let taken = self.shut.remove(prefix).zip(self.origins.remove(prefix));
        if taken.is_some() {
            self.changed.insert(*prefix);
        }
        taken
    }

    /// Takes out a prefix that matters no more, because none around it stays shut.
    fn take_within(&mut self, prefix: &Prefix) -> Option<PrefixUse> {
        if self.shut.covers(prefix) { None } else { self.within.remove(prefix) }
    }
}
