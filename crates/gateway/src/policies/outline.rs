//! What the policies hold back, kept up to date as they come and go. The cost of a change does not
//! grow with the number of policies.

use super::bypasses::Bypasses;
use super::protection::{Changes, Difference, Group, Tally};
use super::senders::{SenderDifference, Senders};
use super::table::{PolicyEntry, Table};
use crate::prefix::{cover, cover_within, following, last_address, range_of, whole};
use crate::prefix_map::PrefixMap;
use std::collections::{BTreeMap, BTreeSet};
use testudo_base::prefix::Prefix;
use testudo_ike::config::ChildMode;
use testudo_ipsec::selector::AddrRange;
use testudo_ipsec::spd::PolicyId;

/// The most prefixes that an SA adds to those of the configured children. The filter has room for
/// 65536. A peer chooses the selectors of its SAs, and 64 ranges whose ends fit no prefix would
/// make 16 000.
const MAX_SA_PREFIXES: usize = 64;

/// What filter and routes need of the policies.
#[derive(Debug)]
pub(super) struct Outline {
    /// Remote prefixes that configured children hold back.
    held: PrefixMap<Holder>,
    /// Prefixes that SAs alone hold back: the address of a peer that was not known before, and
    /// those of a connection that was unloaded.
    added: PrefixMap<BTreeSet<PolicyId>>,
    local: Tally,
    selected: Tally,
    selected_by_sas: Tally,
    both: Tally,
    anybody: Tally,
    bypasses: Bypasses,
    senders: Senders,
    /// SAs whose side of ours `selected_by_sas` counts, for IPv4 and IPv6 ([`Outline::is_wide`]).
    wide: BTreeMap<PolicyId, [bool; 2]>,
    changes: Changes<Group>,
    /// Changes of `held`.
    held_changes: Changes<()>,
    /// Changes of `selected`.
    selected_changes: Changes<()>,
}

/// What configured children have ceased to hold back.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Abandoned {
    /// Remote prefixes.
    pub(crate) remote: Vec<Prefix>,
    /// Prefixes of our side in policies whose remote side is everything.
    pub(crate) local: Vec<Prefix>,
}

/// The policies that need a prefix held back.
#[derive(Debug, Default)]
struct Holder {
    /// Configured children that hold it back.
    children: BTreeSet<PolicyId>,
    /// SAs that rely on it, and so need no prefix of their own.
    relying: BTreeSet<PolicyId>,
}

/// The prefixes that hold back an SA's traffic.
#[derive(Debug, Default)]
struct Footing {
    /// Prefixes of configured children.
    held: BTreeSet<Prefix>,
    /// Prefixes of its own.
    added: BTreeSet<Prefix>,
}

impl Default for Outline {
    fn default() -> Self {
        Self {
            held: PrefixMap::default(),
            added: PrefixMap::default(),
            local: Tally::of(Group::Local),
            selected: Tally::of(Group::Selected),
            selected_by_sas: Tally::of(Group::SelectedBySas),
            both: Tally::of(Group::Both),
            anybody: Tally::of(Group::Anybody),
            bypasses: Bypasses::default(),
            senders: Senders::default(),
            wide: BTreeMap::new(),
            changes: Changes::default(),
            held_changes: Changes::default(),
            selected_changes: Changes::default(),
        }
    }
}

/// Configured children.
impl Outline {
    /// The policy of a configured child is about to go or to change. The caller calls
    /// [`Outline::exchange`] next.
    pub(super) fn retire(&mut self, id: PolicyId, entry: &PolicyEntry) {
        self.bypasses.remove(id, &mut self.changes);
        self.bypasses.rival_goes(entry, &mut self.changes);
    }

    /// Replaces policies of configured children. What both the old and the new ones hold back is
    /// held back throughout.
    pub(super) fn exchange(
        &mut self,
        old: &BTreeMap<PolicyId, Box<PolicyEntry>>,
        new: &[PolicyId],
        table: &Table,
    ) {
        let new: Vec<(PolicyId, &PolicyEntry)> =
            new.iter().filter_map(|id| Some((*id, table.get(*id)?))).collect();
        let holding = |(id, entry): (PolicyId, &PolicyEntry)| {
            let remote = entry.holds_back().then(|| remote_prefixes(entry));
            remote.into_iter().flatten().map(move |prefix| (prefix, id)).collect::<Vec<_>>()
        };
        let before: BTreeSet<_> = old.iter().flat_map(|(id, entry)| holding((*id, &**entry))).collect();
        let after: BTreeSet<_> = new.iter().copied().flat_map(holding).collect();
        for (prefix, id) in after.difference(&before) {
            self.hold(*prefix, *id, table);
        }
        for (prefix, id) in before.difference(&after) {
            self.let_go(*prefix, *id, table);
        }
        new.iter().for_each(|(_, entry)| self.senders.add(entry));
        old.values().for_each(|entry| self.senders.subtract(entry));
        for (_, entry) in new.iter().filter(|(_, entry)| entry.holds_back()) {
            sides(entry, |tally, prefix, changes| tally.add(prefix, changes), self);
        }
        for entry in old.values().filter(|entry| entry.holds_back()) {
            sides(entry, |tally, prefix, changes| tally.subtract(prefix, changes), self);
        }
    }

    /// A policy that may hold back what a bypass opens has come.
    pub(super) fn rival(&mut self, id: PolicyId, table: &Table) {
        if let Some(entry) = table.get(id) {
            self.bypasses.rival_comes(entry, &mut self.changes);
        }
    }

    /// If the policy is a bypass, it counts from now on. All policies that come with it must have
    /// been counted as rivals.
    pub(super) fn bypass(&mut self, id: PolicyId, table: &Table) {
        let Some(entry) = table.get(id).filter(|entry| entry.mode == ChildMode::Pass) else { return };
        let Self { held, added, bypasses, changes, .. } = self;
        let rivals = |range: &AddrRange| {
            let holders = held.meeting_range(range).map(|(_, holder)| holder);
            let held = holders.flat_map(|holder| holder.children.iter().chain(&holder.relying));
            let added = added.meeting_range(range).flat_map(|(_, ids)| ids);
            let each: BTreeSet<PolicyId> = held.chain(added).copied().collect();
            each.into_iter().filter_map(|id| table.get(id))
        };
        bypasses.add(id, entry, rivals, changes);
    }

    fn hold(&mut self, prefix: Prefix, id: PolicyId, table: &Table) {
        if let Some(holder) = self.held.get_mut(&prefix) {
            holder.children.insert(id);
            return;
        }
        // SAs that rely on narrower prefixes, or on their own, rely on this one from now on.
        let below = self.held.inside(&prefix).flat_map(|(_, holder)| &holder.relying);
        let own = self.added.meeting(&prefix).flat_map(|(_, ids)| ids);
        let concerned: BTreeSet<PolicyId> = below.chain(own).copied().collect();
        self.move_over(&concerned, table, |this| {
            this.note(prefix);
            this.held.insert(prefix, Holder { children: [id].into(), ..Holder::default() });
        });
    }

    fn let_go(&mut self, prefix: Prefix, id: PolicyId, table: &Table) {
        let Some(holder) = self.held.get_mut(&prefix) else { return };
        holder.children.remove(&id);
        if holder.children.is_empty() {
            let concerned = holder.relying.clone();
            self.move_over(&concerned, table, |this| {
                this.note(prefix);
                this.held.remove(&prefix);
            });
        }
    }

    /// Changes what is held back, and what these SAs rely on.
    fn move_over(&mut self, sas: &BTreeSet<PolicyId>, table: &Table, change: impl FnOnce(&mut Self)) {
        let each = || sas.iter().filter_map(|id| Some((*id, table.get(*id)?)));
        let before: Vec<Footing> = each().map(|(_, entry)| self.footing(entry)).collect();
        for ((id, entry), footing) in each().zip(&before) {
            self.leave(id, entry, footing);
        }
        change(self);
        for (id, entry) in each() {
            self.enter(id, entry, &self.footing(entry));
        }
    }

    /// The prefix is about to come into `held`, or to go.
    fn note(&mut self, prefix: Prefix) {
        self.held_changes.note((), prefix, self.held.contains_key(&prefix));
        self.changes.note(Group::Held, prefix, self.held.contains_key(&prefix));
        self.changes.note(Group::Protected, prefix, self.is_protected(&prefix));
    }

    fn is_protected(&self, prefix: &Prefix) -> bool {
        self.held.contains_key(prefix) || self.added.contains_key(prefix)
    }
}

/// Child SAs.
impl Outline {
    /// The policy of a new Child SA.
    pub(super) fn install(&mut self, id: PolicyId, table: &Table) {
        let Some(entry) = table.get(id).filter(|entry| entry.holds_back()) else { return };
        self.enter(id, entry, &self.footing(entry));
        self.senders.add(entry);
        self.bypasses.rival_comes(entry, &mut self.changes);
    }

    /// The policy of a Child SA that is about to go.
    pub(super) fn uninstall(&mut self, id: PolicyId, table: &Table) {
        let is_in = |entry: &&PolicyEntry| entry.is_of_sa() && entry.holds_back();
        let Some(entry) = table.get(id).filter(is_in) else { return };
        self.leave(id, entry, &self.footing(entry));
        self.senders.subtract(entry);
        self.bypasses.rival_goes(entry, &mut self.changes);
    }

    fn enter(&mut self, id: PolicyId, sa: &PolicyEntry, footing: &Footing) {
        for prefix in &footing.held {
            if let Some(holder) = self.held.get_mut(prefix) {
                holder.relying.insert(id);
            }
        }
        for prefix in &footing.added {
            if let Some(ids) = self.added.get_mut(prefix) {
                ids.insert(id);
            } else {
                self.changes.note(Group::Protected, *prefix, self.is_protected(prefix));
                self.added.insert(*prefix, [id].into());
            }
        }
        let is_wide = self.is_wide(sa, footing);
        if is_wide.contains(&true) && self.wide.insert(id, is_wide).is_none() {
            for prefix in own_side_of_sa(sa, is_wide) {
                self.selected_by_sas.add(prefix, &mut self.changes);
            }
        }
    }

    fn leave(&mut self, id: PolicyId, sa: &PolicyEntry, footing: &Footing) {
        for prefix in &footing.held {
            if let Some(holder) = self.held.get_mut(prefix) {
                holder.relying.remove(&id);
            }
        }
        for prefix in &footing.added {
            if self.added.get_mut(prefix).is_some_and(|ids| ids.remove(&id) && ids.is_empty()) {
                self.changes.note(Group::Protected, *prefix, true);
                self.added.remove(prefix);
            }
        }
        if let Some(is_wide) = self.wide.remove(&id) {
            for prefix in own_side_of_sa(sa, is_wide) {
                self.selected_by_sas.subtract(prefix, &mut self.changes);
            }
        }
    }

    /// For IPv4 and IPv6: true if some of an SA's traffic is held back only by prefixes for
    /// everything. Prefixes of children that name a network stay shut when the children go
    /// ([`Outline::take_abandoned`]).
    fn is_wide(&self, sa: &PolicyEntry, footing: &Footing) -> [bool; 2] {
        let is_held = |range: AddrRange| self.holders(&range, is_named).is_some();
        [false, true].map(|v6| {
            let mut footing = footing.held.iter().chain(&footing.added);
            footing.any(|prefix| prefix.is_default() && prefix.is_ipv4() != v6)
                && !sa.remote_ranges().filter(|range| range.start().is_ipv4() != v6).all(is_held)
        })
    }

    /// What an SA relies on now. Only [`Outline::hold`] and [`Outline::let_go`] change that.
    fn footing(&self, sa: &PolicyEntry) -> Footing {
        let mut footing = Footing::default();
        let mut more = Vec::new();
        for range in sa.remote_ranges() {
            match self.holders(&range, |_| true) {
                Some(prefixes) => footing.held.extend(prefixes),
                None => more.push(range),
            }
        }
        let limit = MAX_SA_PREFIXES.checked_div(more.len()).unwrap_or_default();
        footing.added.extend(more.iter().flat_map(|range| cover_within(range, limit)));
        footing
    }

    /// The policies of configured children that hold all of a prefix back.
    pub(super) fn children_holding(&self, prefix: &Prefix) -> impl Iterator<Item = PolicyId> {
        let holders = range_of(prefix).and_then(|range| self.holders(&range, |_| true)).unwrap_or_default();
        let held = holders.into_iter().filter_map(|holder| self.held.get(&holder));
        held.flat_map(|holder| holder.children.iter().copied())
    }

    /// The policies of SAs that hold all of a prefix back where no configured child does.
    pub(super) fn sas_holding(&self, prefix: &Prefix) -> impl Iterator<Item = PolicyId> {
        self.added.around(prefix).flat_map(|(_, ids)| ids.iter().copied())
    }

    /// Among the prefixes that count, the widest ones that together hold all of the range back.
    fn holders(&self, range: &AddrRange, counts: impl Fn(&Prefix) -> bool) -> Option<Vec<Prefix>> {
        let mut holders = Vec::new();
        let mut next = range.start();
        loop {
            let (prefix, _) = self.held.around(&Prefix::host(next)).find(|(prefix, _)| counts(prefix))?;
            holders.push(*prefix);
            let last = last_address(prefix);
            if last >= range.end() {
                return Some(holders);
            }
            next = following(last)?;
        }
    }
}

/// What has changed.
impl Outline {
    /// True if [`Outline::take_differences`] or [`Outline::take_senders`] would give anything.
    pub(super) fn is_changed(&self) -> bool {
        self.differences().next().is_some() || self.senders.is_changed()
    }

    /// How the senders have changed since the last call.
    pub(super) fn take_senders(&mut self) -> Vec<SenderDifference> {
        self.senders.take_differences()
    }

    /// How everything else has changed since the last call.
    pub(super) fn take_differences(&mut self) -> Vec<Difference> {
        let differences = self.differences().collect();
        self.changes.clear();
        differences
    }

    fn differences(&self) -> impl Iterator<Item = Difference> + '_ {
        let now = self.changes.noted().map(|(part, prefix, was)| {
            let is_there = match part {
                Group::Protected => self.is_protected(&prefix),
                Group::Held => self.held.contains_key(&prefix),
                Group::Local => self.local.contains(&prefix),
                Group::Selected => self.selected.contains(&prefix),
                Group::SelectedBySas => self.selected_by_sas.contains(&prefix),
                Group::Both => self.both.contains(&prefix),
                Group::Anybody => self.anybody.contains(&prefix),
                Group::Passed => self.bypasses.passed.contains(&prefix),
                Group::PassedInPart => self.bypasses.passed_in_part.contains(&prefix),
            };
            (was, Difference { part, prefix, is_there })
        });
        now.filter(|(was, difference)| *was != difference.is_there).map(|(_, difference)| difference)
    }

    /// The prefixes that configured children have ceased to hold back since the last call, and no
    /// others hold back. A wider prefix does not hold back our side of another connection, and the
    /// prefix for everything does not hold back what comes to this host itself.
    pub(super) fn take_abandoned(&mut self) -> Abandoned {
        let is_held = |prefix: &Prefix| {
            let is_held = range_of(prefix).is_some_and(|range| self.holders(&range, is_named).is_some());
            self.held.contains_key(prefix) || is_held && !self.local.meets(prefix)
        };
        let is_selected = |prefix: &Prefix| self.selected.covers(prefix);
        let gone = |changes: &Changes<()>, is_there: &dyn Fn(&Prefix) -> bool| {
            let gone = changes.noted().filter(|(_, prefix, was)| *was && !is_there(prefix));
            gone.map(|(_, prefix, _)| prefix).collect()
        };
        let abandoned = Abandoned {
            remote: gone(&self.held_changes, &is_held),
            local: gone(&self.selected_changes, &is_selected),
        };
        self.held_changes.clear();
        self.selected_changes.clear();
        abandoned
    }
}

/// True if the prefix names a network: everything does not.
fn is_named(prefix: &Prefix) -> bool {
    !prefix.is_default()
}

fn remote_prefixes(entry: &PolicyEntry) -> BTreeSet<Prefix> {
    entry.remote_ranges().flat_map(|range| cover(&range)).collect()
}

/// Our side of an SA's policy, for the families asked for. Addresses beside the ends of its ranges
/// may be included: a peer has a say in the ranges, and so the number of prefixes is limited.
fn own_side_of_sa(sa: &PolicyEntry, [ipv4, ipv6]: [bool; 2]) -> BTreeSet<Prefix> {
    let ranges = || sa.local_ranges().filter(|range| if range.start().is_ipv4() { ipv4 } else { ipv6 });
    let limit = MAX_SA_PREFIXES / ranges().count().max(1);
    ranges().flat_map(|range| cover_within(&range, limit)).collect()
}

/// Counts our side of a policy, and the part of it that is the peer's side too. SAs do not count: a
/// peer has a say in their selectors.
fn sides(
    entry: &PolicyEntry,
    mut count: impl FnMut(&mut Tally, Prefix, &mut Changes<Group>),
    Outline { local, selected, both, anybody, changes, selected_changes, .. }: &mut Outline,
) {
    let own: BTreeSet<Prefix> = entry.local_ranges().flat_map(|range| cover(&range)).collect();
    let [ipv4, ipv6] = [false, true].map(|v6| entry.remote_ranges().any(|range| range == whole(v6)));
    let is_wide = |own: &Prefix| if own.is_ipv4() { ipv4 } else { ipv6 };
    for prefix in own {
        count(local, prefix, changes);
        if is_wide(&prefix) {
            selected_changes.note((), prefix, selected.contains(&prefix));
            count(selected, prefix, changes);
        }
    }
    let named: BTreeSet<Prefix> = entry.named().iter().flat_map(cover).collect();
    if !named.is_empty() {
        let remote = remote_prefixes(entry);
        named.intersection(&remote).for_each(|prefix| count(both, *prefix, changes));
    }
    if entry.is_for_anybody() {
        remote_prefixes(entry).into_iter().for_each(|prefix| count(anybody, prefix, changes));
    }
}

#[cfg(test)]
impl super::Policies {
    /// All that is held back, with its exceptions.
    pub(super) fn protection(&self) -> super::Protection {
        let Outline { held, added, local, selected, selected_by_sas, both, anybody, bypasses, .. } =
            &self.outline;
        super::Protection {
            protected: held.keys().chain(added.keys()).copied().collect(),
            held: held.keys().copied().collect(),
            local: local.set(),
            selected: selected.set(),
            selected_by_sas: selected_by_sas.set(),
            both: both.set(),
            anybody: anybody.set(),
            passed: bypasses.passed.set(),
            passed_in_part: bypasses.passed_in_part.set(),
        }
    }
}

#[cfg(test)]
mod tests;
