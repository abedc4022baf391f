//! The home that the filter names for clear traffic in a cluster: the shard of the Child SA that
//! carries the traffic to a prefix, or, without an SA, of the connection whose child holds the
//! prefix back.
//!
//! A prefix says nothing of sources, protocols and ports. So a prefix has a home only if all
//! policies that a packet to it can meet have that home. No packet meets a policy that earlier ones
//! cover wholly. Where several homes are possible, the workers of all nodes look at the packet:
//! that is always right, and costs more.
//!
//! All nodes derive the same homes from the same policies. Policies of one priority may have
//! another order on each node, except that Child SAs come before configured children. Nothing here
//! depends on more of the order.
//!
//! The cost of a change depends on what lies inside its prefixes.

use super::FIRST_CONFIGURED_PLACE;
use super::scope::{Scope, footprint};
use super::table::PolicyEntry;
use crate::prefix_map::{PrefixMap, meter};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use testudo_base::lane::Spread;
use testudo_base::prefix::Prefix;
use testudo_base::siphash::SipKey;
use testudo_base::spi::Shard;
use testudo_cluster::dispatch::PrefixHome;
use testudo_ipsec::selector::SelectorPair;
use testudo_ipsec::spd::Rank;

/// How many prefixes may have a home of their own. The filter has room for 65536 prefixes, and
/// prefixes that are held back come first.
const MAX_HOMES: usize = 60_000;

/// Up to this many kinds of policies about a prefix, each pair is asked whether one covers the
/// other.
const MAX_KINDS_COMPARED: usize = 32;

/// The homes of all prefixes that policies of the SPD are about.
#[derive(Debug)]
pub(super) struct Homes {
    key: SipKey,
    room: usize,
    standing: BTreeMap<Rank, Standing>,
    prefixes: PrefixMap<PrefixPolicies>,
    /// The prefixes whose home is not that of the closest prefix around. Outside of all of them the
    /// home is [`UNKNOWN_HOME`].
    named: PrefixMap<PrefixHome>,
    /// The prefixes whose policies have changed since `named` was worked out.
    stale: BTreeSet<Prefix>,
    /// More prefixes would have a home of their own than there is room for, so none has.
    is_crowded: bool,
    /// The former homes of the prefixes of `named` that have changed.
    before: BTreeMap<Prefix, Option<PrefixHome>>,
}

/// The new home of a prefix; `None` where it is that of the closest prefix around.
pub(crate) type NewHome = (Prefix, Option<PrefixHome>);

const UNKNOWN_HOME: PrefixHome = PrefixHome::Ambiguous;

/// What a policy says about the home of a packet that meets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct HomeClaim {
    /// Only this shard's owner carries the packet. Otherwise any node may drop it or let it pass,
    /// and this is one of them.
    is_binding: bool,
    shard: Shard,
    /// Its packets are spread over the nodes.
    spread: Option<Spread>,
}

impl HomeClaim {
    /// The home.
    pub(super) fn shard(self) -> Shard {
        self.shard
    }
}

/// A policy in the SPD.
#[derive(Debug)]
struct Standing {
    claim: HomeClaim,
    at: Box<[(Prefix, Kind)]>,
}

/// What decides which of two policies about a prefix a packet meets.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    priority: u32,
    /// The policy is a configured child's, not an SA's.
    is_configured: bool,
    scope: Arc<Scope>,
}

/// The policies about a prefix, by kind. There may be very many policies, but few kinds.
#[derive(Debug, Default)]
struct PrefixPolicies(Vec<(Kind, HomeClaims)>);

/// The claims of policies, in order, and how many policies make each.
#[derive(Debug, Default)]
struct HomeClaims(Vec<(HomeClaim, usize)>);

impl Kind {
    /// True if no packet to the prefix that both are about meets the other one.
    fn hides(&self, other: &Self) -> bool {
        (self.priority, self.is_configured) < (other.priority, other.is_configured)
            && self.scope.covers(&other.scope)
    }
}

impl HomeClaims {
    fn add(&mut self, claim: HomeClaim) {
        match self.0.binary_search_by_key(&claim, |(claim, _)| *claim) {
            Ok(at) => self.0.get_mut(at).into_iter().for_each(|(_, count)| *count += 1),
            Err(at) => self.0.insert(at, (claim, 1)),
        }
    }

    fn subtract(&mut self, claim: HomeClaim) {
        if let Ok(at) = self.0.binary_search_by_key(&claim, |(claim, _)| *claim)
            && let Some((_, count)) = self.0.get_mut(at)
        {
            *count -= 1;
            if *count == 0 {
                self.0.remove(at);
            }
        }
    }

    fn verdict(&self) -> Verdict {
        let mut verdict = Verdict::default();
        self.0.iter().all(|(claim, _)| verdict.hear(*claim));
        verdict
    }
}

/// The sum of claims.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Verdict {
    binding: Option<PrefixHome>,
    /// The lowest shard. Any would do that is the same on all nodes.
    other: Option<Shard>,
}

impl Verdict {
    /// False if no further claim can change it.
    fn hear(&mut self, HomeClaim { is_binding, shard, spread }: HomeClaim) -> bool {
        if is_binding {
            let home = spread.map_or(PrefixHome::Shard(shard), |by| PrefixHome::Spread(shard, by));
            let is_agreed = self.binding.is_none_or(|so_far| so_far == home);
            self.binding = Some(if is_agreed { home } else { PrefixHome::Ambiguous });
        } else {
            self.other = Some(self.other.map_or(shard, |other| other.min(shard)));
        }
        self.binding != Some(PrefixHome::Ambiguous)
    }

    fn home(self) -> PrefixHome {
        self.binding.or(self.other.map(PrefixHome::Shard)).unwrap_or(UNKNOWN_HOME)
    }
}

impl PrefixPolicies {
    /// Changes the claims of a kind. True if that may change the home.
    fn change(&mut self, kind: &Kind, change: impl FnOnce(&mut HomeClaims)) -> bool {
        let found = self.0.binary_search_by(|(other, _)| other.cmp(kind));
        let at = found.unwrap_or_else(|at| {
            self.0.insert(at, (kind.clone(), HomeClaims::default()));
            at
        });
        let Some((_, claims)) = self.0.get_mut(at) else { return false };
        let before = claims.verdict();
        change(claims);
        let after = claims.verdict();
        if claims.0.is_empty() {
            self.0.remove(at);
        }
        before != after
    }
}

impl Homes {
    /// `key` chooses the shard of connections without an SA.
    pub(super) fn new(key: SipKey) -> Self {
        Self::with_room(key, MAX_HOMES)
    }

    fn with_room(key: SipKey, room: usize) -> Self {
        Self {
            key,
            room,
            standing: BTreeMap::new(),
            prefixes: PrefixMap::default(),
            named: PrefixMap::default(),
            stale: BTreeSet::new(),
            is_crowded: false,
            before: BTreeMap::new(),
        }
    }

    /// What a policy claims.
    pub(super) fn claim(&self, entry: &PolicyEntry) -> HomeClaim {
        let shard = entry.name().map_or(entry.home, |name| self.key.name(&name.connection));
        HomeClaim { is_binding: entry.mode.is_negotiated(), shard, spread: entry.spread }
    }

    /// A policy has come into the SPD.
    pub(super) fn stand(&mut self, rank: Rank, selectors: &SelectorPair, claim: HomeClaim) {
        let is_configured = rank.place >= FIRST_CONFIGURED_PLACE;
        let kind = |prefix: &Prefix| Kind {
            priority: rank.priority,
            is_configured,
            scope: Arc::new(Scope::of(selectors, prefix)),
        };
        let about = footprint(selectors, is_configured).into_iter().map(|prefix| (prefix, kind(&prefix)));
        let at: Box<[_]> = about.filter(|(_, kind)| !kind.scope.is_empty()).collect();
        for (prefix, kind) in &at {
            if !self.prefixes.contains_key(prefix) {
                self.prefixes.insert(*prefix, PrefixPolicies::default());
            }
            if self
                .prefixes
                .get_mut(prefix)
                .is_some_and(|place| place.change(kind, |claims| claims.add(claim)))
            {
                self.stale.insert(*prefix);
            }
        }
        self.standing.insert(rank, Standing { claim, at });
    }

    /// The first rank from this one on that is free, with all ranks behind it.
    pub(super) fn free_part(&self, from: Rank) -> Rank {
        let place = from..=Rank { part: u32::MAX, ..from };
        let last = self.standing.range(place).next_back();
        last.map_or(from, |(last, _)| Rank { part: last.part.saturating_add(1), ..from })
    }

    /// The policy of that rank has left the SPD.
    pub(super) fn leave(&mut self, rank: Rank) {
        let Some(Standing { claim, at }) = self.standing.remove(&rank) else { return };
        for (prefix, kind) in &at {
            let Some(place) = self.prefixes.get_mut(prefix) else { continue };
            if place.change(kind, |claims| claims.subtract(claim)) {
                self.stale.insert(*prefix);
            }
            if place.0.is_empty() {
                self.prefixes.remove(prefix);
            }
        }
    }

    /// True if [`Homes::take_new`] would give anything.
    pub(super) fn is_changed(&mut self) -> bool {
        self.settle();
        self.new_homes().next().is_some()
    }

    /// The homes that have changed since the last call.
    pub(super) fn take_new(&mut self) -> Vec<NewHome> {
        self.settle();
        let new = self.new_homes().collect();
        self.before.clear();
        new
    }

    fn new_homes(&self) -> impl Iterator<Item = NewHome> + '_ {
        let now = self.before.iter().map(|(prefix, was)| (was, (*prefix, self.named.get(prefix).copied())));
        now.filter(|(was, (_, is))| *was != is).map(|(_, new)| new)
    }

    fn settle(&mut self) {
        if self.is_crowded && self.prefixes.len() <= self.room / 4 * 3 {
            self.is_crowded = false;
            self.stale.extend(self.prefixes.keys());
        }
        let stale = std::mem::take(&mut self.stale);
        for gone in stale.iter().filter(|prefix| !self.prefixes.contains_key(prefix)).collect::<Vec<_>>() {
            self.name(*gone, None);
        }
        let mut settled: Option<Prefix> = None;
        for prefix in stale {
            // In this order, a prefix follows the prefixes around it.
            let is_settled = |done: Prefix| done.length() <= prefix.length() && done.contains(prefix.addr());
            if self.is_crowded || settled.is_some_and(is_settled) {
                continue;
            }
            settled = Some(prefix);
            let inside: Vec<Prefix> = self.prefixes.inside(&prefix).map(|(inside, _)| *inside).collect();
            for prefix in inside {
                let home = self.home(&prefix);
                let around = self.named.around(&prefix).rfind(|(at, _)| at.length() < prefix.length());
                let around = around.map_or(UNKNOWN_HOME, |(_, home)| *home);
                self.name(prefix, Some(home).filter(|home| *home != around));
            }
            if self.named.len() > self.room {
                self.give_up();
            }
        }
    }

    fn name(&mut self, prefix: Prefix, home: Option<PrefixHome>) {
        let before = match home {
            Some(home) => self.named.insert(prefix, home),
            None => self.named.remove(&prefix),
        };
        if before != home {
            self.before.entry(prefix).or_insert(before);
        }
    }

    /// Gives up: no prefix has a home of its own.
    fn give_up(&mut self) {
        tracing::warn!(
            "more than {} prefixes have a home of their own: the workers of every node look at all clear packets",
            self.room
        );
        self.is_crowded = true;
        let named: Vec<Prefix> = self.named.keys().copied().collect();
        named.into_iter().for_each(|prefix| self.name(prefix, None));
    }

    /// The home of packets to a prefix, but not to a narrower prefix that policies are about.
    fn home(&self, prefix: &Prefix) -> PrefixHome {
        let about = || {
            let kinds = self.prefixes.around(prefix).flat_map(|(_, place)| &place.0);
            kinds.inspect(|_| meter::visit())
        };
        let mut kinds: Vec<&(Kind, HomeClaims)> = about().take(MAX_KINDS_COMPARED + 1).collect();
        let mut verdict = Verdict::default();
        if kinds.len() > MAX_KINDS_COMPARED {
            about().flat_map(|(_, claims)| &claims.0).all(|(claim, _)| verdict.hear(*claim));
            return verdict.home();
        }
        kinds.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        let is_met = |(kind, _): &&&(Kind, HomeClaims)| !kinds.iter().any(|(first, _)| first.hides(kind));
        let met = kinds.iter().filter(is_met).flat_map(|(_, claims)| &claims.0);
        met.copied().all(|(claim, _)| verdict.hear(claim));
        verdict.home()
    }
}

#[cfg(test)]
mod tests;
