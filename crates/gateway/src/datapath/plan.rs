//! What filter and routes have to hold, worked out from the policies, from what an earlier run left, and from the
//! kernel's tables. Nothing here touches either.

use crate::policies::Protection;
use crate::prefix::covers;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use testudo_fastpath::fib::Fib;
use testudo_fastpath::filter::{PrefixUse, PrefixUses};
use testudo_fastpath::netlink::{GuardRoutes, GuardUse};
use testudo_fastpath::prefix::Prefix;

/// What goes to a worker, but may come in clear: the worker or the kernel judges it.
const TO_ALONE: PrefixUse = PrefixUse { protect_to: true, refuse_from: false, within: false };

/// What an earlier run left in the filter, or a connection that was unloaded, and no other has claimed.
#[derive(Debug, Default)]
pub(super) struct Inherited {
    /// Prefixes that stay shut.
    shut: PrefixUses,
    /// Prefixes that mattered only inside of those.
    within: PrefixUses,
}

impl Inherited {
    /// Takes over the filter's prefixes, each used as it was.
    pub(super) fn new(left: PrefixUses) -> Self {
        let (within, shut) =
            left.into_iter().filter(|(_, usage)| usage.protect_to).partition(|(_, usage)| usage.within);
        Self { shut, within }
    }

    /// The prefixes that stay shut.
    pub(super) fn prefixes(&self) -> impl Iterator<Item = &Prefix> {
        self.shut.keys()
    }

    /// Takes over prefixes that no connection wants held back any more, each used as it is now.
    pub(super) fn keep(&mut self, abandoned: &BTreeSet<Prefix>, now: &PrefixUses) {
        let usage = |prefix| now.get(prefix).copied().unwrap_or(PrefixUse::PROTECT);
        self.shut.extend(abandoned.iter().map(|prefix| (*prefix, usage(prefix))));
        let inside = |prefix: &Prefix| abandoned.iter().any(|around| covers(around, prefix));
        let within = now.iter().filter(|(prefix, usage)| usage.within && inside(prefix));
        self.within.extend(within.map(|(prefix, usage)| (*prefix, *usage)));
    }

    /// Leaves to the policies what they hold back by themselves, and what they let pass. True if that was anything.
    pub(super) fn claim(&mut self, wanted: &Protection) -> bool {
        let before = self.shut.len();
        let passed = |prefix: &Prefix| wanted.passed.iter().any(|around| covers(around, prefix));
        self.shut.retain(|prefix, _| !wanted.protected.contains(prefix) && !passed(prefix));
        let shut = &self.shut;
        self.within.retain(|prefix, _| shut.keys().any(|around| covers(around, prefix)));
        self.shut.len() != before
    }
}

/// The contents of filter and routes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) uses: PrefixUses,
    pub(super) routes: GuardRoutes,
    /// Prefixes that stay in clear because they are directly connected.
    pub(super) connected: BTreeSet<Prefix>,
}

impl Plan {
    /// What `wanted` and `inherited` ask for.
    pub(super) fn new(wanted: &Protection, inherited: &Inherited, fib: &Fib) -> Self {
        let mut outlines = shut(wanted, inherited);
        let mut exempt = open_passed(&mut outlines, wanted, inherited);
        let lies_within = |prefix: &&Prefix| {
            !outlines.contains_key(prefix) && longest(&outlines, prefix).is_some_and(|usage| usage.protect_to)
        };
        let connected: BTreeSet<Prefix> = fib.connected().iter().filter(lies_within).copied().collect();
        let answering = wanted.passed_in_part.iter().chain(&wanted.local).filter(lies_within);
        let within = PrefixUse { within: true, ..TO_ALONE };

        let mut uses = PrefixUses::new();
        uses.extend(inherited.within.iter().map(|(prefix, usage)| (*prefix, *usage)));
        uses.extend(answering.map(|prefix| (*prefix, within)));
        uses.extend(connected.iter().map(|prefix| (*prefix, PrefixUse::PASS)));
        uses.extend(&outlines);
        exempt.extend(&connected);
        let shut = outlines.iter().filter(|(_, usage)| usage.protect_to).map(|(prefix, _)| prefix);
        let routes = routes(shut, &exempt, wanted, fib);
        Self { uses, routes, connected }
    }

    /// Holds back what this plan or the other one holds back, and nothing else. From the other plan to this one by way of
    /// it, no address is ever less shut than both of them have it.
    pub(super) fn and_still(&self, other: &Self) -> Self {
        let either = |prefix: &Prefix| {
            let [this, that] = [self, other].map(|plan| longest(&plan.uses, prefix).unwrap_or_default());
            let named = [self, other].map(|plan| plan.uses.get(prefix));
            PrefixUse {
                protect_to: this.protect_to || that.protect_to,
                refuse_from: this.refuse_from || that.refuse_from,
                within: named.into_iter().flatten().all(|usage| usage.within),
            }
        };
        let route = |prefix: &Prefix| {
            let found = [self, other].map(|plan| longest(&plan.routes, prefix));
            let protect = |usage: &GuardUse| *usage != GuardUse::Exempt;
            found.into_iter().flatten().find(protect).unwrap_or(GuardUse::Exempt)
        };
        Self {
            uses: self.uses.keys().chain(other.uses.keys()).map(|p| (*p, either(p))).collect(),
            routes: self.routes.keys().chain(other.routes.keys()).map(|p| (*p, route(p))).collect(),
            connected: self.connected.clone(),
        }
    }
}

/// The prefixes that are shut whatever lies around them.
fn shut(wanted: &Protection, inherited: &Inherited) -> PrefixUses {
    let mut shut = inherited.shut.clone();
    // A prefix on both sides of a policy (any to any) says nothing about where a packet comes from.
    let usage = |prefix| if wanted.both.contains(prefix) { TO_ALONE } else { PrefixUse::PROTECT };
    shut.extend(wanted.protected.iter().map(|prefix| (*prefix, usage(prefix))));
    shut
}

/// Opens in `shut` what policies let pass, and answers what of it lies inside prefixes that stay shut. What an earlier run
/// has left stands first: its policies may have been others.
fn open_passed(shut: &mut PrefixUses, wanted: &Protection, inherited: &Inherited) -> BTreeSet<Prefix> {
    let meets = |a: &Prefix, b: &Prefix| covers(a, b) || covers(b, a);
    let free = |passed: &&Prefix| !inherited.prefixes().any(|left| meets(left, passed));
    let passed: Vec<&Prefix> = wanted.passed.iter().filter(free).collect();
    shut.retain(|prefix, _| !passed.iter().any(|around| covers(around, prefix)));
    let inside = |prefix: &&Prefix| longest(shut, prefix).is_some();
    let exempt: BTreeSet<Prefix> = passed.into_iter().filter(inside).copied().collect();
    shut.extend(exempt.iter().map(|prefix| (*prefix, PrefixUse::PASS)));
    exempt
}

fn routes<'a>(
    shut: impl Iterator<Item = &'a Prefix>,
    exempt: &BTreeSet<Prefix>,
    wanted: &Protection,
    fib: &Fib,
) -> GuardRoutes {
    // What the gateway itself sends takes an address that the policies cover, if it has one.
    // A side that is everything says nothing about which.
    let sides = || wanted.local.iter().filter(|local| !local.is_default());
    let covered = |addr: &IpAddr| sides().any(|local| local.contains(*addr));
    let own: Vec<IpAddr> = fib.addresses().iter().copied().filter(covered).collect();
    let source = |prefix: &Prefix| own.iter().copied().find(|addr| addr.is_ipv4() == prefix.is_ipv4());
    let protect = |p: &Prefix| (*p, GuardUse::Protect { mtu: None, source: source(p) });
    shut.map(protect).chain(exempt.iter().map(|p| (*p, GuardUse::Exempt))).collect()
}

/// What holds for all of a prefix that nothing longer divides.
fn longest<V: Copy>(map: &BTreeMap<Prefix, V>, prefix: &Prefix) -> Option<V> {
    (0..=prefix.length()).rev().find_map(|length| map.get(&Prefix::new(prefix.addr(), length)?).copied())
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
