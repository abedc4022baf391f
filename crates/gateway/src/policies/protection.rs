//! What filter and routes have to know of the policies: prefixes that are held back, and those that are not.

use super::addr_set::{AddrSet, overlap};
use super::{Entry, Policies};
use crate::prefix::{cover, cover_within};
use std::collections::BTreeSet;
use testudo_fastpath::prefix::Prefix;
use testudo_ike::config::ChildMode;
use testudo_ipsec::selector::{AddrRange, TrafficSelector};

/// The most prefixes that an SA adds to those of the configured children. The filter has room for 65536, and a peer
/// chooses the selectors of its SAs: 64 ranges whose ends fit no prefix would make 16 000.
const SA_PREFIXES: usize = 64;

/// What the kernel's side must hold back, and what it must not although it lies inside.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Protection {
    /// Remote prefixes whose traffic goes to a worker and nowhere else.
    pub(crate) protected: BTreeSet<Prefix>,
    /// Our own sides, as configured: what comes from there is not "clear text that should have been protected".
    pub(crate) local: BTreeSet<Prefix>,
    /// Prefixes on both sides of one policy, which says nothing then about where a packet comes from.
    pub(crate) both: BTreeSet<Prefix>,
    /// Remote prefixes that a policy lets pass, whoever of our side sends and whatever is sent.
    pub(crate) passed: BTreeSet<Prefix>,
    /// Remote prefixes that a policy lets pass for some of our side: they answer in clear.
    pub(crate) passed_in_part: BTreeSet<Prefix>,
}

impl Policies {
    /// What must be held back whether or not there is an SA.
    pub(crate) fn protection(&self) -> Protection {
        let mut protection = Protection::default();
        for entry in self.configured.values().filter(|entry| entry.holds_back()) {
            let remote: BTreeSet<Prefix> =
                entry.selectors.remote_selectors().flat_map(|ts| cover(&ts.addrs)).collect();
            protection.both.extend(entry.named.iter().flat_map(cover).filter(|p| remote.contains(p)));
            protection.protected.extend(remote);
            // Not from SAs: a peer has a say in their selectors.
            protection.local.extend(entry.selectors.local_selectors().flat_map(|ts| cover(&ts.addrs)));
        }
        protection.protected.extend(self.added_by_sas());
        for entry in self.configured.values().filter(|entry| entry.mode == ChildMode::Pass) {
            self.pass(entry, &mut protection);
        }
        protection
    }

    /// The remote prefixes that configured children hold back.
    pub(crate) fn held_back(&self) -> BTreeSet<Prefix> {
        self.held_by_children().flat_map(|range| cover(&range)).collect()
    }

    /// Adds what a bypass policy lets pass. What it limits to a protocol or to ports stays held back: prefixes cannot say
    /// that much.
    fn pass(&self, bypass: &Entry, protection: &mut Protection) {
        let unlimited = |ts: &TrafficSelector| ts.protocol == 0 && ts.is_any_port();
        let local: AddrSet =
            bypass.selectors.local_selectors().filter(unlimited).map(|ts| ts.addrs).collect();
        if local.is_empty() {
            return;
        }
        for TrafficSelector { addrs, .. } in bypass.selectors.remote_selectors().filter(unlimited) {
            let addrs = &addrs;
            let concerned =
                |entry: &&Entry| entry.selectors.remote_selectors().any(|ts| overlap(&ts.addrs, addrs));
            let v4 = addrs.start().is_ipv4();
            let sides = |entry: &Entry| {
                let mut alike =
                    entry.selectors.local_selectors().filter(|ts| ts.addrs.start().is_ipv4() == v4);
                alike.all(|ts| local.holds(&ts.addrs))
            };
            let all = self.configured.values().chain(self.installed.values());
            let mut rivals = all.filter(|entry| entry.holds_back()).filter(concerned);
            let wholly = rivals.all(|entry| bypass.rank.priority < entry.rank.priority && sides(entry));
            let passed = if wholly { &mut protection.passed } else { &mut protection.passed_in_part };
            passed.extend(cover(addrs));
        }
    }

    /// What SAs hold back beyond the configured children: a peer's address where that was not known before, and what is
    /// left of a connection that was unloaded.
    fn added_by_sas(&self) -> BTreeSet<Prefix> {
        let held = self.held_ranges();
        let mut added = BTreeSet::new();
        for sa in self.installed.values() {
            let more: Vec<AddrRange> = sa
                .selectors
                .remote_selectors()
                .map(|ts| ts.addrs)
                .filter(|range| !held.holds(range))
                .collect();
            let limit = SA_PREFIXES.checked_div(more.len()).unwrap_or_default();
            added.extend(more.iter().flat_map(|range| cover_within(range, limit)));
        }
        added
    }
}

impl Policies {
    /// True if the coming or going of this Child SA changes what filter and routes must hold back.
    pub(super) fn concerns_protection(&mut self, sa: &Entry) -> bool {
        if self.held.is_none() {
            self.held = Some(self.held_ranges());
        }
        let held = |range: &AddrRange| self.held.as_ref().is_some_and(|held| held.holds(range));
        let mut ranges = sa.selectors.remote_selectors().map(|ts| ts.addrs);
        let passed = |range: &AddrRange| {
            let bypasses = self.configured.values().filter(|entry| entry.mode == ChildMode::Pass);
            bypasses.flat_map(|entry| entry.selectors.remote_selectors()).any(|ts| overlap(&ts.addrs, range))
        };
        ranges.any(|range| !held(&range) || self.passes > 0 && passed(&range))
    }

    fn held_ranges(&self) -> AddrSet {
        self.held_by_children().collect()
    }

    fn held_by_children(&self) -> impl Iterator<Item = AddrRange> + '_ {
        let children = self.configured.values().filter(|entry| entry.holds_back());
        children.flat_map(|entry| entry.selectors.remote_selectors()).map(|ts| ts.addrs)
    }
}

impl Entry {
    fn holds_back(&self) -> bool {
        self.mode != ChildMode::Pass
    }
}

#[cfg(test)]
#[path = "protection_tests.rs"]
mod tests;
