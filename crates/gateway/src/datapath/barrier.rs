//! What filter and routes have, what they ought to have, and where the two may differ. Nothing here
//! touches either.
//!
//! Work for a change depends on what it concerns, not on how much is protected.

use super::inherited::{Inherited, LetGo, Origin};
use super::plan::{Demand, Host, ProtectionPlan, Way};
use super::sources::Sources;
use crate::policies::{Abandoned, Difference, Group, NewHome, Protection, SenderDifference};
use crate::prefix_map::PrefixMap;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::ops::Bound;
use testudo_base::prefix::Prefix;
use testudo_cluster::dispatch::PrefixHome;
use testudo_fastpath::filter::{PrefixUse, PrefixUses};
use testudo_ike::output::UnixTime;

/// The state of filter and routes, and what they have to hold.
#[derive(Debug, Default)]
pub(super) struct Barrier {
    wanted: Protection,
    /// The prefixes whose home differs from that of the prefix around.
    homes: PrefixMap<PrefixHome>,
    inherited: Inherited,
    host: Host,
    sources: Sources,
    /// What filter and routes were given last.
    applied: ProtectionPlan,
    stale: Stale,
}

/// The prefixes at which filter and routes may have to change.
#[derive(Debug, Default)]
struct Stale {
    /// Anywhere.
    everywhere: bool,
    /// At these prefixes.
    at: BTreeSet<Prefix>,
    /// At these, and at shut prefixes inside: the source of what the gateway itself sends there has
    /// changed.
    sources: BTreeSet<Prefix>,
    /// At these, and at exceptions of any kind inside.
    around: BTreeSet<Prefix>,
    /// At these, and at everything inside.
    throughout: BTreeSet<Prefix>,
    /// At these, and at every prefix of the filter inside.
    homes: BTreeSet<Prefix>,
}

impl Barrier {
    /// Takes over what an earlier run has left in the filter: prefixes, and the addresses of this
    /// host that were not open to clear traffic.
    pub(super) fn new(left: PrefixUses, selected: impl IntoIterator<Item = IpAddr>, since: UnixTime) -> Self {
        let stale = Stale { everywhere: true, ..Stale::default() };
        let mut inherited = Inherited::new(left, since);
        inherited.keep_selected(selected, since);
        Self { inherited, stale, ..Self::default() }
    }

    /// Follows what the policies want.
    pub(super) fn want(&mut self, differences: impl IntoIterator<Item = Difference>) {
        for difference in differences {
            self.wanted.apply(difference);
            let Difference { part, prefix, is_there } = difference;
            if is_there && matches!(part, Group::Held | Group::Passed) {
                self.inherited.look_at(prefix);
            }
            let stale = match part {
                // Filter and routes do not ask who holds a prefix back.
                Group::Held => continue,
                Group::Protected | Group::Both | Group::Anybody => &mut self.stale.around,
                Group::Passed | Group::PassedInPart => &mut self.stale.throughout,
                Group::Local => &mut self.stale.at,
                // These two concern addresses, and not prefixes.
                Group::Selected | Group::SelectedBySas => continue,
            };
            stale.insert(prefix);
        }
    }

    /// Notes which of our addresses the policies carry to which prefixes.
    pub(super) fn carry(&mut self, differences: &[SenderDifference]) {
        for difference in differences {
            if self.sources.apply(difference, &self.host.addresses) {
                self.stale.sources.insert(difference.prefix);
            }
        }
    }

    /// Notes the homes of prefixes.
    pub(super) fn name(&mut self, homes: impl IntoIterator<Item = NewHome>) {
        for (prefix, home) in homes {
            match home {
                Some(home) => drop(self.homes.insert(prefix, home)),
                None => drop(self.homes.remove(&prefix)),
            }
            self.stale.homes.insert(prefix);
        }
    }

    /// Notes the kernel's tables. True if a change in them matters here.
    pub(super) fn follow(&mut self, host: Host) -> bool {
        let is_new = host != self.host;
        if is_new {
            self.sources.follow(&host.addresses);
            (self.host, self.stale.everywhere) = (host, true);
        }
        is_new
    }

    /// Keeps prefixes shut that no connection wants held back any more.
    pub(super) fn keep(&mut self, abandoned: &Abandoned, origin: &Origin) {
        for prefix in &abandoned.local {
            self.inherited.selected.insert(*prefix, origin.clone());
        }
        for prefix in &abandoned.remote {
            let inside = self.inherited.keep(*prefix, &self.applied.uses, origin.clone());
            self.stale.at.extend(inside);
            self.inherited_changed(*prefix);
        }
    }

    /// Gives up inherited prefixes that the policies hold back by themselves. True if there were
    /// any.
    pub(super) fn claim(&mut self) -> bool {
        let claimed = self.inherited.claim(&self.wanted);
        self.stale.at.extend(claimed.within);
        claimed.shut.iter().for_each(|prefix| self.inherited_changed(*prefix));
        !claimed.shut.is_empty()
    }

    /// Lets a prefix go that stays shut. `None`: it does not.
    pub(super) fn let_go(&mut self, prefix: &Prefix) -> Option<LetGo> {
        let gone = self.inherited.let_go(prefix)?;
        self.stale.at.extend(gone.within.iter().map(|(inside, _)| *inside));
        self.inherited_changed(*prefix);
        Some(gone)
    }

    /// Takes back what was let go.
    pub(super) fn take_back(&mut self, gone: LetGo) {
        self.stale.at.extend(gone.within.iter().map(|(inside, _)| *inside));
        self.inherited_changed(gone.prefix);
        self.inherited.take_back(gone);
    }

    /// True if this prefix was our side of tunnels for everything, so that our own addresses in it
    /// stay held back beside others, and if nothing else holds it back.
    pub(super) fn is_own_side_shut(&self, prefix: &Prefix) -> bool {
        let is_narrow = |around: &Prefix| !around.is_default();
        self.inherited.selected.covers(prefix)
            && !self.wanted.protected.around(prefix).any(|(around, ())| is_narrow(around))
            && !self.inherited.shut.covers(prefix)
    }

    /// True if a tunnel for everything has all of this prefix on our side.
    pub(super) fn is_selected(&self, prefix: &Prefix) -> bool {
        [&self.wanted.selected, &self.wanted.selected_by_sas].iter().any(|side| side.covers(prefix))
    }

    /// Lets our own addresses in a prefix go. Gives what [`Barrier::take_own_side_back`] needs;
    /// `None`: they do not stay held back.
    pub(super) fn let_own_side_go(&mut self, prefix: &Prefix) -> Option<PrefixMap<Origin>> {
        self.inherited.let_own_side_go(prefix)
    }

    /// Takes back what was let go.
    pub(super) fn take_own_side_back(&mut self, before: PrefixMap<Origin>) {
        self.inherited.selected = before;
    }

    /// The prefixes that may have begun to stay shut since the last call, or ceased to, and whether
    /// they do.
    pub(super) fn take_shut_changes(&mut self) -> Vec<(Prefix, bool)> {
        self.inherited.take_changes()
    }

    /// Policies do not open an inherited prefix.
    fn inherited_changed(&mut self, prefix: Prefix) {
        self.stale.around.insert(prefix);
        let passed = self.wanted.passed.meeting(&prefix).map(|(passed, ())| *passed);
        self.stale.throughout.extend(passed);
    }

    /// The way from what is applied to what is wanted.
    pub(super) fn way(&mut self) -> Way {
        let prefixes = self.stale_prefixes();
        let demand = Demand {
            wanted: &self.wanted,
            homes: &self.homes,
            inherited: &self.inherited,
            host: &self.host,
            sources: &self.sources,
        };
        Way::new(&self.applied, demand, &prefixes)
    }

    fn stale_prefixes(&self) -> BTreeSet<Prefix> {
        let Self { wanted, homes, inherited, host, applied, stale, .. } = self;
        let mut prefixes: BTreeSet<Prefix> = BTreeSet::new();
        let exceptions = [&host.connected, &wanted.local, &wanted.passed, &wanted.passed_in_part];
        let left = [&inherited.shut, &inherited.within];
        if stale.everywhere {
            let sets = exceptions.into_iter().chain([&wanted.protected]).flat_map(|set| set.keys());
            prefixes.extend(sets.chain(left.into_iter().flat_map(|map| map.keys())));
            prefixes.extend(applied.prefixes().chain(homes.keys()));
            return prefixes;
        }
        prefixes.extend(&stale.at);
        prefixes.extend(stale.around.iter().chain(&stale.throughout));
        for prefix in stale.around.iter().chain(&stale.throughout) {
            prefixes.extend(inherited.within.inside(prefix).map(|(inside, _)| *inside));
            prefixes.extend(exceptions.iter().flat_map(|set| set.inside(prefix)).map(|(inside, ())| *inside));
        }
        for prefix in &stale.throughout {
            prefixes.extend(wanted.protected.inside(prefix).map(|(inside, ())| *inside));
            prefixes.extend(left.iter().flat_map(|map| map.inside(prefix)).map(|(inside, _)| *inside));
        }
        for prefix in stale.at.iter().chain(&stale.around).chain(&stale.throughout) {
            // These are treated like the prefix around them.
            prefixes.extend(homes.inside(prefix).map(|(inside, _)| *inside));
        }
        for prefix in &stale.sources {
            prefixes.extend(wanted.protected.inside(prefix).map(|(inside, ())| *inside));
            prefixes.extend(inherited.shut.inside(prefix).map(|(inside, _)| *inside));
        }
        for prefix in &stale.homes {
            prefixes.insert(*prefix);
            prefixes.extend(applied.uses.inside(prefix).map(|(inside, _)| *inside));
        }
        prefixes
    }

    /// All steps of a way are done. Gives the prefixes that have become exceptions because they are
    /// connected.
    pub(super) fn arrived(&mut self, way: &Way) -> Vec<Prefix> {
        let newly = |(prefix, step): (&Prefix, &super::plan::Step)| {
            (step.after.is_connected && !self.applied.connected.contains_key(prefix)).then_some(*prefix)
        };
        let connected = way.steps().filter_map(newly).collect();
        for (prefix, step) in way.steps() {
            self.applied.set(*prefix, step.after);
        }
        self.stale = Stale::default();
        connected
    }

    /// Those of this host's addresses that no policy for everything has on our side. `before` are
    /// the ones so far: while nobody has claimed that everything is shut, no others are added.
    pub(super) fn unselected(
        &self,
        addresses: &BTreeSet<IpAddr>,
        before: &BTreeSet<IpAddr>,
    ) -> BTreeSet<IpAddr> {
        let is_selected = |addr: IpAddr| {
            let host = Prefix::host(addr);
            self.is_selected(&host) || self.inherited.selected.covers(&host)
        };
        let may_open = |addr: IpAddr| before.contains(&addr) || !self.inherited.is_everything_shut(addr);
        addresses.iter().copied().filter(|addr| !is_selected(*addr) && may_open(*addr)).collect()
    }

    /// What filter and routes were given last.
    pub(super) fn applied(&self) -> &ProtectionPlan {
        &self.applied
    }

    /// Prefixes that stay shut by themselves, until a connection claims them.
    pub(super) fn inherited(&self) -> impl Iterator<Item = &Prefix> {
        self.inherited.prefixes()
    }

    /// The shut prefixes behind `behind`, with how each is used, and why it is shut.
    pub(super) fn shut(
        &self,
        behind: Option<Prefix>,
    ) -> impl Iterator<Item = (&Prefix, &PrefixUse, &Origin)> {
        let first = behind.map_or(Bound::Unbounded, Bound::Excluded);
        let shut = self.inherited.shut.range((first, Bound::Unbounded));
        shut.filter_map(|(prefix, usage)| Some((prefix, usage, self.inherited.origin(prefix)?)))
    }

    /// Our own sides behind `behind` that stay held back, with how each is used beside that, and
    /// why it is held back. They are so beside another tunnel for everything alone. While
    /// everything stays shut they are a part of that.
    pub(super) fn own_sides(
        &self,
        behind: Option<Prefix>,
    ) -> impl Iterator<Item = (&Prefix, PrefixUse, &Origin)> {
        let first = behind.map_or(Bound::Unbounded, Bound::Excluded);
        let own = self.inherited.selected.range((first, Bound::Unbounded));
        let held = own.filter(|(own, _)| {
            let around = self.wanted.protected.around(own).next();
            around.is_some_and(|(around, ())| around.is_default()) && !self.inherited.shut.covers(own)
        });
        let usage = |own| self.applied.uses.longest(own).copied().unwrap_or(PrefixUse::PROTECT);
        held.map(move |(own, origin)| (own, usage(own), origin))
    }

    /// True if a prefix stays shut by itself.
    pub(super) fn is_shut(&self, prefix: &Prefix) -> bool {
        self.inherited.origin(prefix).is_some()
    }

    /// The widest other prefix around this one that stays shut by itself.
    pub(super) fn shut_around(&self, prefix: &Prefix) -> Option<Prefix> {
        let mut around = self.inherited.shut.around(prefix).map(|(around, _)| *around);
        around.find(|around| around != prefix)
    }

    /// How many other prefixes inside this one are held back by themselves.
    pub(super) fn shut_inside(&self, prefix: &Prefix) -> usize {
        let shut = self.inherited.shut.inside(prefix).map(|(inside, _)| inside);
        let wanted = self.wanted.protected.inside(prefix).map(|(inside, ())| inside);
        shut.chain(wanted).filter(|inside| *inside != prefix).collect::<BTreeSet<_>>().len()
    }
}

#[cfg(test)]
mod tests;
