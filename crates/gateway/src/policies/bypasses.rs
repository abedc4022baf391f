//! Which prefixes bypass policies open: for all of our side, or for some of it.

use super::addr_set::{AddrSet, overlap};
use super::protection::{Changes, Group, Tally};
use super::table::PolicyEntry;
use crate::prefix::cover;
use crate::prefix_map::PrefixMap;
use std::collections::{BTreeMap, BTreeSet};
use testudo_ipsec::selector::{AddrRange, TrafficSelector};
use testudo_ipsec::spd::PolicyId;

/// The bypass policies that have anything to open.
#[derive(Debug)]
pub(super) struct Bypasses {
    each: BTreeMap<PolicyId, Bypass>,
    /// The prefixes at which they open something.
    by_prefix: PrefixMap<BTreeSet<PolicyId>>,
    pub(super) passed: Tally,
    pub(super) passed_in_part: Tally,
}

#[derive(Debug)]
struct Bypass {
    priority: u32,
    /// The addresses of our side whose packets it passes, whatever protocol and ports they have.
    local: AddrSet,
    opened: Vec<Opened>,
}

/// A remote range that the bypass opens.
#[derive(Debug)]
struct Opened {
    range: AddrRange,
    /// Not opened for every protocol and port: the range is opened only in part, whatever other
    /// policies hold back.
    is_limited: bool,
    /// Policies that hold back more in the range than the bypass lets pass.
    spoilers: usize,
}

impl Opened {
    fn is_whole(&self) -> bool {
        !self.is_limited && self.spoilers == 0
    }
}

impl Default for Bypasses {
    fn default() -> Self {
        Self {
            each: BTreeMap::new(),
            by_prefix: PrefixMap::default(),
            passed: Tally::of(Group::Passed),
            passed_in_part: Tally::of(Group::PassedInPart),
        }
    }
}

impl Bypass {
    fn of(entry: &PolicyEntry) -> Self {
        let unlimited = |ts: &TrafficSelector| ts.protocol == 0 && ts.is_any_port();
        let local: AddrSet = entry.selectors.local_selectors().filter(unlimited).map(|ts| ts.addrs).collect();
        let opened = entry.selectors.remote_selectors().map(|ts| Opened {
            range: ts.addrs,
            is_limited: local.is_empty() || !unlimited(&ts),
            spoilers: 0,
        });
        Self { priority: entry.rank.priority, opened: opened.collect(), local }
    }

    /// True if the rival holds back something in the range that the bypass does not pass first.
    fn is_spoiled(&self, range: &AddrRange, rival: &PolicyEntry) -> bool {
        let alike = |own: &AddrRange| own.start().is_ipv4() == range.start().is_ipv4();
        let goes_beyond = || !rival.local_ranges().filter(alike).all(|own| self.local.holds(&own));
        rival.holds_back()
            && rival.remote_ranges().any(|remote| overlap(&remote, range))
            && (self.priority >= rival.rank.priority || goes_beyond())
    }
}

impl Bypasses {
    /// A bypass policy has come. `rivals` gives all policies that hold back anything in a range; it
    /// may give more.
    pub(super) fn add<'a, I: Iterator<Item = &'a PolicyEntry>>(
        &mut self,
        id: PolicyId,
        entry: &PolicyEntry,
        rivals: impl Fn(&AddrRange) -> I,
        changes: &mut Changes<Group>,
    ) {
        let mut bypass = Bypass::of(entry);
        let mut opened = std::mem::take(&mut bypass.opened);
        for open in &mut opened {
            let range = &open.range;
            open.spoilers = rivals(range).filter(|rival| bypass.is_spoiled(range, rival)).count();
            let tally = if open.is_whole() { &mut self.passed } else { &mut self.passed_in_part };
            for prefix in cover(&open.range) {
                tally.add(prefix, changes);
                match self.by_prefix.get_mut(&prefix) {
                    Some(ids) => drop(ids.insert(id)),
                    None => drop(self.by_prefix.insert(prefix, [id].into())),
                }
            }
        }
        self.each.insert(id, Bypass { opened, ..bypass });
    }

    /// A bypass policy is gone.
    pub(super) fn remove(&mut self, id: PolicyId, changes: &mut Changes<Group>) {
        let Some(bypass) = self.each.remove(&id) else { return };
        for open in &bypass.opened {
            let tally = if open.is_whole() { &mut self.passed } else { &mut self.passed_in_part };
            for prefix in cover(&open.range) {
                tally.subtract(prefix, changes);
                if self.by_prefix.get_mut(&prefix).is_some_and(|ids| ids.remove(&id) && ids.is_empty()) {
                    self.by_prefix.remove(&prefix);
                }
            }
        }
    }

    /// A policy that holds something back has come.
    pub(super) fn rival_comes(&mut self, rival: &PolicyEntry, changes: &mut Changes<Group>) {
        self.count(rival, |spoilers| spoilers + 1, changes);
    }

    /// A policy that held something back is gone.
    pub(super) fn rival_goes(&mut self, rival: &PolicyEntry, changes: &mut Changes<Group>) {
        self.count(rival, |spoilers| spoilers.saturating_sub(1), changes);
    }

    fn count(&mut self, rival: &PolicyEntry, change: impl Fn(usize) -> usize, changes: &mut Changes<Group>) {
        if self.each.is_empty() || !rival.holds_back() {
            return;
        }
        let met = rival.remote_ranges().flat_map(|range| {
            let ids: Vec<PolicyId> =
                self.by_prefix.meeting_range(&range).flat_map(|(_, ids)| ids.iter().copied()).collect();
            ids
        });
        for id in met.collect::<BTreeSet<_>>() {
            let Some(bypass) = self.each.get_mut(&id) else { continue };
            let mut opened = std::mem::take(&mut bypass.opened);
            for open in &mut opened {
                if !bypass.is_spoiled(&open.range, rival) {
                    continue;
                }
                let was_whole = open.is_whole();
                open.spoilers = change(open.spoilers);
                let (from, to) = match (was_whole, open.is_whole()) {
                    (true, false) => (&mut self.passed, &mut self.passed_in_part),
                    (false, true) => (&mut self.passed_in_part, &mut self.passed),
                    _ => continue,
                };
                for prefix in cover(&open.range) {
                    to.add(prefix, changes);
                    from.subtract(prefix, changes);
                }
            }
            bypass.opened = opened;
        }
    }
}
