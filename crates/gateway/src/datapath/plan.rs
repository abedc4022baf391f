//! What filter and routes have to hold, worked out from the policies, from what an earlier run
//! left, and from the kernel's tables: for all prefixes, or for one. Nothing here changes filter or
//! routes.

use super::inherited::Inherited;
use super::sources::Sources;
use crate::policies::Protection;
use crate::prefix_map::{PrefixMap, PrefixSet};
use std::collections::BTreeSet;
use std::net::IpAddr;
use testudo_base::lane::Spread;
use testudo_base::prefix::Prefix;
use testudo_base::spi::Shard;
use testudo_cluster::dispatch::PrefixHome;
use testudo_fastpath::fib::Fib;
use testudo_fastpath::filter::PrefixUse;
use testudo_fastpath::netlink::GuardUse;

/// Traffic to the prefix goes to a worker; traffic from it may come in clear.
const TO_ALONE: PrefixUse = PrefixUse { protect_to: true, within: false, ..PrefixUse::PASS };

/// What matters of this machine's own addresses and networks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Host {
    /// Prefixes that are directly connected.
    pub(super) connected: PrefixSet,
    pub(super) addresses: Vec<IpAddr>,
}

impl From<&Fib> for Host {
    fn from(fib: &Fib) -> Self {
        Self { connected: fib.connected().iter().copied().collect(), addresses: fib.addresses().to_vec() }
    }
}

/// The contents of filter and routes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ProtectionPlan {
    pub(super) uses: PrefixMap<PrefixUse>,
    pub(super) routes: PrefixMap<GuardUse>,
    /// Prefixes that stay in clear because they are directly connected.
    pub(super) connected: PrefixSet,
}

/// The contents of filter and routes at one prefix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Planned {
    pub(super) usage: Option<PrefixUse>,
    pub(super) route: Option<GuardUse>,
    pub(super) is_connected: bool,
}

impl ProtectionPlan {
    /// The plan at a prefix.
    pub(super) fn at(&self, prefix: &Prefix) -> Planned {
        Planned {
            usage: self.uses.get(prefix).copied(),
            route: self.routes.get(prefix).copied(),
            is_connected: self.connected.contains_key(prefix),
        }
    }

    /// Sets the plan at a prefix.
    pub(super) fn set(&mut self, prefix: Prefix, planned: Planned) {
        set(&mut self.uses, prefix, planned.usage);
        set(&mut self.routes, prefix, planned.route);
        set(&mut self.connected, prefix, planned.is_connected.then_some(()));
    }

    /// All prefixes that it has anything for.
    pub(super) fn prefixes(&self) -> impl Iterator<Item = &Prefix> {
        self.uses.keys().chain(self.routes.keys()).chain(self.connected.keys())
    }
}

fn set<V>(map: &mut PrefixMap<V>, prefix: Prefix, value: Option<V>) {
    match value {
        Some(value) => drop(map.insert(prefix, value)),
        None => drop(map.remove(&prefix)),
    }
}

/// Everything that decides what filter and routes have to hold.
#[derive(Clone, Copy)]
pub(super) struct Demand<'a> {
    pub(super) wanted: &'a Protection,
    /// In a cluster: the homes of all prefixes whose home differs from that of the prefix around.
    pub(super) homes: &'a PrefixMap<PrefixHome>,
    pub(super) inherited: &'a Inherited,
    pub(super) host: &'a Host,
    pub(super) sources: &'a Sources,
}

/// A prefix that is shut whatever lies around it, or one that is opened inside of it.
#[derive(Clone, Copy)]
enum Enclosure {
    Shut(PrefixUse),
    /// Policies let it pass, and it lies inside a prefix that stays shut.
    Passed,
}

impl Enclosure {
    fn usage(self) -> PrefixUse {
        match self {
            Self::Shut(usage) => usage,
            Self::Passed => PrefixUse::PASS,
        }
    }
}

impl Demand<'_> {
    /// What filter and routes have to hold at one prefix.
    pub(super) fn at(&self, prefix: &Prefix) -> Planned {
        let planned = self.held_back(prefix);
        let usage = planned.usage.or_else(|| self.homed(prefix));
        let usage = usage.map(|usage| {
            let (home, spread) = self.home(prefix, usage);
            PrefixUse { home, spread, ..usage }
        });
        Planned { usage, ..planned }
    }

    /// The shard of all traffic to a prefix, as far as no longer prefix has its own, and how that
    /// traffic is spread.
    fn home(&self, prefix: &Prefix, usage: PrefixUse) -> (Option<Shard>, Option<Spread>) {
        match self.homes.longest(prefix) {
            Some(PrefixHome::Shard(shard)) if usage.protect_to => (Some(*shard), None),
            Some(PrefixHome::Spread(shard, spread)) if usage.protect_to => (Some(*shard), Some(*spread)),
            _ => (None, None),
        }
    }

    /// For a prefix that is treated like the closest one around it, but has another home.
    fn homed(&self, prefix: &Prefix) -> Option<PrefixUse> {
        let Self { wanted, homes, inherited, host, .. } = self;
        homes.get(prefix)?;
        let sets =
            [&wanted.protected, &wanted.local, &wanted.passed, &wanted.passed_in_part, &host.connected];
        let named = sets.into_iter().flat_map(|set| set.around(prefix)).map(|(around, ())| around);
        let left = [&inherited.shut, &inherited.within].into_iter().flat_map(|map| map.around(prefix));
        let around: BTreeSet<&Prefix> = named.chain(left.map(|(around, _)| around)).collect();
        let usage = around.iter().rev().find_map(|around| self.held_back(around).usage)?;
        usage.protect_to.then_some(PrefixUse { within: true, for_anybody: false, ..usage })
    }

    /// What filter and routes have to hold at one prefix, without its home.
    fn held_back(&self, prefix: &Prefix) -> Planned {
        let (here, around) = self.enclosures(prefix);
        match here {
            Some(Enclosure::Shut(usage)) => {
                let source = self.sources.towards(prefix);
                let route = usage.protect_to.then_some(GuardUse::Protect { mtu: None, source });
                Planned { usage: Some(usage), route, is_connected: false }
            }
            Some(Enclosure::Passed) => {
                Planned { usage: Some(PrefixUse::PASS), route: Some(GuardUse::Exempt), is_connected: false }
            }
            None => self.inside(prefix, around.map(Enclosure::usage).unwrap_or_default()),
        }
    }

    /// For a prefix that is no enclosure itself.
    fn inside(&self, prefix: &Prefix, around: PrefixUse) -> Planned {
        let Self { wanted, inherited, host, .. } = self;
        let (is_shut, open_to_host) = (around.protect_to, around.open_to_host);
        let is_connected = is_shut && host.connected.contains_key(prefix) && !self.is_for_anybody(prefix);
        let is_local = wanted.local.contains_key(prefix);
        let usage = if is_connected {
            Some(PrefixUse::PASS)
        } else if is_shut && (is_local || wanted.passed_in_part.contains_key(prefix)) {
            let (judge_from, open_to_host) = (!is_local, !is_local && open_to_host);
            Some(PrefixUse { within: true, judge_from, open_to_host, ..TO_ALONE })
        } else {
            let left = inherited.within.get(prefix).copied();
            left.map(|left| PrefixUse { open_to_host: left.open_to_host && open_to_host, ..left })
        };
        Planned { usage, route: is_connected.then_some(GuardUse::Exempt), is_connected }
    }

    /// The enclosure at a prefix, and the closest one around it.
    fn enclosures(&self, prefix: &Prefix) -> (Option<Enclosure>, Option<Enclosure>) {
        let Self { wanted, inherited, .. } = self;
        let shut = wanted.protected.around(prefix).map(|(around, ())| around);
        let left = inherited.shut.around(prefix).map(|(around, _)| around);
        let passed = wanted.passed.around(prefix).map(|(around, ())| around);
        let chain: BTreeSet<&Prefix> = shut.chain(left).chain(passed).collect();
        let (mut around, mut here, mut is_shut, mut is_opened) = (None, None, false, false);
        // The widest of the prefixes around comes first.
        for at in chain {
            let enclosure = if self.is_passed(at) {
                is_opened = true;
                is_shut.then_some(Enclosure::Passed)
            } else {
                self.shut(at).filter(|_| !is_opened).map(Enclosure::Shut)
            };
            is_shut |= matches!(enclosure, Some(Enclosure::Shut(_)));
            if at == prefix {
                here = enclosure;
            } else {
                around = enclosure.or(around);
            }
        }
        (here, around)
    }

    /// True where any host may be a peer: those on our own links may be too. What stays shut was
    /// held back so, and stays so.
    fn is_for_anybody(&self, prefix: &Prefix) -> bool {
        let mut left = self.inherited.shut.around(prefix);
        self.wanted.anybody.covers(prefix) || left.any(|(_, usage)| usage.for_anybody)
    }

    /// A prefix that is shut whatever lies around it.
    fn shut(&self, prefix: &Prefix) -> Option<PrefixUse> {
        // A prefix on both sides of a policy (any to any) says nothing about where a packet comes
        // from.
        let usage = || match self.wanted.both.contains_key(prefix) {
            true => TO_ALONE,
            false => PrefixUse {
                judge_from: self.is_judged(prefix),
                open_to_host: prefix.is_default(),
                ..PrefixUse::PROTECT
            },
        };
        let wanted = self.wanted.protected.contains_key(prefix).then(usage);
        let left = self.inherited.shut.get(prefix).copied();
        let for_anybody =
            self.wanted.anybody.contains_key(prefix) || left.is_some_and(|left| left.for_anybody);
        let named =
            |left: PrefixUse| PrefixUse { open_to_host: left.open_to_host && prefix.is_default(), ..left };
        let usage = wanted.or_else(|| left.map(named))?;
        Some(PrefixUse { for_anybody, ..usage })
    }

    /// Whether the policies themselves decide about clear traffic from a prefix that is held back.
    /// A tunnel for everything takes only what it selects, and not this host's traffic with others.
    /// Of a prefix that is passed in part, some traffic comes in clear and some does not.
    fn is_judged(&self, prefix: &Prefix) -> bool {
        prefix.is_default() || self.wanted.passed_in_part.covers(prefix)
    }

    /// Whether policies open a prefix. Prefixes that an earlier run has left come first: its
    /// policies may have differed.
    fn is_passed(&self, prefix: &Prefix) -> bool {
        self.wanted.passed.contains_key(prefix) && self.inherited.shut.meeting(prefix).next().is_none()
    }
}

/// True if clear traffic from there passes to an address of this host that no policy has on our
/// side.
fn lets_in(usage: PrefixUse) -> bool {
    usage.open_to_host || !usage.refuse_from && !usage.judge_from
}

/// The use that lets less traffic come in clear.
fn stricter(one: PrefixUse, other: PrefixUse) -> PrefixUse {
    let rank = |usage: &PrefixUse| match (usage.judge_from, usage.refuse_from) {
        (false, false) => 0,
        (true, _) => 1,
        (false, true) => 2,
    };
    std::cmp::max_by_key(one, other, rank)
}

/// The steps of filter and routes from one plan to another.
#[derive(Clone, Debug, Default)]
pub(super) struct Way(PrefixMap<Step>);

/// The steps of a prefix.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    before: Planned,
    /// Holds back what either plan holds back, and nothing else. On this way no address is ever
    /// less shut than in both plans.
    pub(super) between: Planned,
    pub(super) after: Planned,
}

impl Step {
    /// False if it concerns the filter alone.
    pub(super) fn is_routed(&self) -> bool {
        [self.before, self.between, self.after].iter().any(|planned| planned.route.is_some())
    }
}

impl Way {
    /// From `applied` to what `demand` asks for at these prefixes.
    pub(super) fn new(applied: &ProtectionPlan, demand: Demand<'_>, prefixes: &BTreeSet<Prefix>) -> Self {
        let steps = prefixes.iter().filter_map(|prefix| {
            let (before, after) = (applied.at(prefix), demand.at(prefix));
            (before != after).then_some((*prefix, Step { before, between: before, after }))
        });
        let mut way = Self(steps.collect());
        let between: Vec<_> = way.0.iter().map(|(p, step)| (*p, way.between(applied, p, step))).collect();
        for (prefix, between) in between {
            if let Some(step) = way.0.get_mut(&prefix) {
                step.between = between;
            }
        }
        way
    }

    fn between(&self, applied: &ProtectionPlan, prefix: &Prefix, step: &Step) -> Planned {
        // What holds for the part of the prefix that no longer prefix takes.
        let (new_use, old_use) = self.longest(&applied.uses, prefix, |planned| planned.usage);
        let (new_route, old_route) = self.longest(&applied.routes, prefix, |planned| planned.route);
        let named = [step.after.usage, step.before.usage];
        let [new_use, old_use] = [new_use, old_use].map(Option::unwrap_or_default);
        let has_one_home = (new_use.home, new_use.spread) == (old_use.home, old_use.spread);
        let usage = named.iter().any(Option::is_some).then(|| PrefixUse {
            protect_to: new_use.protect_to || old_use.protect_to,
            refuse_from: new_use.refuse_from || old_use.refuse_from,
            judge_from: stricter(new_use, old_use).judge_from,
            open_to_host: [new_use, old_use].into_iter().all(lets_in)
                && (new_use.open_to_host || old_use.open_to_host),
            within: named.into_iter().flatten().all(|usage| usage.within),
            for_anybody: named.into_iter().flatten().any(|usage| usage.for_anybody),
            // Where the two differ, the workers of every node look.
            home: new_use.home.filter(|_| has_one_home),
            spread: new_use.spread.filter(|_| has_one_home),
        });
        let named = step.after.route.or(step.before.route);
        let protect = |usage: &GuardUse| *usage != GuardUse::Exempt;
        let route = named.map(|_| {
            let found = [new_route, old_route].into_iter().flatten().find(protect);
            found.unwrap_or(GuardUse::Exempt)
        });
        Planned { usage, route, is_connected: step.before.is_connected }
    }

    /// What the new plan, and the old one, have for all of a prefix.
    fn longest<V: Copy>(
        &self,
        applied: &PrefixMap<V>,
        prefix: &Prefix,
        of: impl Fn(&Planned) -> Option<V>,
    ) -> (Option<V>, Option<V>) {
        let changed = self.0.around(prefix).filter_map(|(at, step)| Some((at.length(), of(&step.after)?)));
        let stays = applied.around(prefix).filter(|(at, _)| !self.0.contains_key(at));
        let after = changed.chain(stays.map(|(at, value)| (at.length(), *value)));
        (after.max_by_key(|(length, _)| *length).map(|(_, value)| value), applied.longest(prefix).copied())
    }

    /// The prefixes that change, and how.
    pub(super) fn steps(&self) -> impl Iterator<Item = (&Prefix, &Step)> {
        self.0.iter()
    }

    /// The step of a prefix.
    pub(super) fn step(&self, prefix: &Prefix) -> Option<&Step> {
        self.0.get(prefix)
    }
}

#[cfg(test)]
mod tests;
