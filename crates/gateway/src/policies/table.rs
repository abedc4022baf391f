//! Policies by number.

use super::{ChildName, NewSa};
use std::collections::BTreeSet;
use testudo_base::lane::Spread;
use testudo_base::spi::Shard;
use testudo_ike::config::{Child, ChildMode, EspProposal};
use testudo_ipsec::selector::{AddrRange, SelectorPair, TrafficSelector};
use testudo_ipsec::spd::{Action, PolicyId, Rank};

/// The most ranges of our side of an SA that count: the peer has a say in its selectors.
const MAX_SA_RANGES: usize = 16;

/// All policies, and the numbers that are free. Workers index tables by these numbers, so they stay
/// small.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// Boxed, because there are very many and a list grows by doubling.
    entries: Vec<Option<Box<PolicyEntry>>>,
    free: BTreeSet<PolicyId>,
}

/// A policy: of a configured child, or of Child SAs.
#[derive(Debug)]
pub(super) struct PolicyEntry {
    pub(super) selectors: SelectorPair,
    pub(super) rank: Rank,
    pub(super) mode: ChildMode,
    /// It puts AH around ESP of our own: see
    /// [`Spd::insert_around`](testudo_ipsec::spd::Spd::insert_around).
    pub(super) is_around: bool,
    /// How many Child SAs share it: an SA and the one that renews it may.
    pub(super) sas: u32,
    /// Of an SA: how many configured children had been loaded when it was made.
    pub(super) seen: u64,
    /// Of an SA: the shard whose owner carries it.
    pub(super) home: Shard,
    /// Of an SA: how its packets are spread over the nodes of the cluster, if they are.
    pub(super) spread: Option<Spread>,
    /// Of an SA: ranges of our side that its configured child does not name, such as a virtual IP.
    unnamed: Box<[AddrRange]>,
    child: Option<Box<Configured>>,
}

/// What only the policy of a configured child has.
#[derive(Debug)]
pub(super) struct Configured {
    pub(super) name: ChildName,
    /// The ranges of our side that the configuration names itself: `dynamic` names none.
    pub(super) named: Box<[AddrRange]>,
    /// Any host that a packet is for may become its peer.
    pub(super) is_for_anybody: bool,
    /// How many configured children had been loaded when it got its present form.
    pub(super) since: u64,
}

impl Table {
    /// A number for a new policy.
    pub(super) fn take_number(&mut self) -> PolicyId {
        self.free.pop_first().unwrap_or_else(|| {
            self.entries.push(None);
            PolicyId(self.numbers() - 1)
        })
    }

    /// A number without a policy, for the next one.
    pub(super) fn give_back(&mut self, id: PolicyId) {
        self.free.insert(id);
    }

    /// Notes the policy of a number that was taken.
    pub(super) fn put(&mut self, id: PolicyId, entry: PolicyEntry) {
        if let Some(place) = self.entries.get_mut(id.0 as usize) {
            *place = Some(Box::new(entry));
        }
    }

    /// Takes a policy out. Its number stays taken.
    pub(super) fn take(&mut self, id: PolicyId) -> Option<Box<PolicyEntry>> {
        self.entries.get_mut(id.0 as usize)?.take()
    }

    pub(super) fn get(&self, id: PolicyId) -> Option<&PolicyEntry> {
        self.entries.get(id.0 as usize)?.as_deref()
    }

    pub(super) fn get_mut(&mut self, id: PolicyId) -> Option<&mut PolicyEntry> {
        self.entries.get_mut(id.0 as usize)?.as_deref_mut()
    }

    /// All numbers are below this.
    pub(super) fn numbers(&self) -> u32 {
        self.entries.len() as u32
    }

    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = (PolicyId, &PolicyEntry)> {
        let numbered = (0..).map(PolicyId).zip(&self.entries);
        numbered.filter_map(|(id, entry)| Some((id, entry.as_deref()?)))
    }
}

/// True for a child whose SA goes around those of other children: for AH between the gateways
/// themselves, of ESP alone.
fn is_around(child: &Child, selectors: &SelectorPair) -> bool {
    let is_ah = !child.proposals.is_empty() && child.proposals.iter().all(EspProposal::is_ah);
    child.mode == ChildMode::Transport && is_ah && selectors.take_esp_alone()
}

impl PolicyEntry {
    /// The policy of a Child SA.
    pub(super) fn of_sa(rank: Rank, sa: &NewSa<'_>, seen: u64) -> Self {
        let NewSa { child, selectors, home, is_around, spread, .. } = *sa;
        let named = child.map(super::configured::named).unwrap_or_default();
        let local = selectors.local_selectors().map(|ts| ts.addrs);
        let unnamed = local.filter(|range| !named.contains(range)).take(MAX_SA_RANGES).collect();
        let (selectors, mode) = (selectors.clone(), ChildMode::Tunnel);
        Self { selectors, rank, mode, is_around, sas: 1, seen, home, spread, unnamed, child: None }
    }

    /// The policy of a configured child.
    pub(super) fn of_child(config: &Child, rank: Rank, selectors: SelectorPair, child: Configured) -> Self {
        let is_around = is_around(config, &selectors);
        let (mode, child) = (config.mode, Some(Box::new(child)));
        let (home, unnamed) = (Shard(0), Box::default());
        Self { selectors, rank, mode, is_around, sas: 0, seen: 0, home, spread: None, unnamed, child }
    }

    /// The configured child whose policy it is.
    pub(super) fn name(&self) -> Option<&ChildName> {
        self.child.as_deref().map(|child| &child.name)
    }

    /// How many configured children had been loaded when this one got its present form.
    pub(super) fn since(&self) -> u64 {
        self.child.as_deref().map(|child| child.since).unwrap_or_default()
    }

    pub(super) fn set_since(&mut self, since: u64) {
        if let Some(child) = &mut self.child {
            child.since = since;
        }
    }

    /// The ranges of our side that the configuration names itself.
    pub(super) fn named(&self) -> &[AddrRange] {
        self.child.as_deref().map(|child| &*child.named).unwrap_or_default()
    }

    /// True if any host that a packet is for may become its peer.
    pub(super) fn is_for_anybody(&self) -> bool {
        self.child.as_deref().is_some_and(|child| child.is_for_anybody)
    }

    /// True for the policy of an SA, in whose selectors the peer has a say.
    pub(super) fn is_of_sa(&self) -> bool {
        self.child.is_none()
    }

    /// True if the other policy is the same but for its place among equals.
    pub(super) fn means(&self, other: &Self) -> bool {
        (self.mode, self.is_around) == (other.mode, other.is_around)
            && self.rank.priority == other.rank.priority
            && self.selectors == other.selectors
            && self.name() == other.name()
            && self.named() == other.named()
            && self.is_for_anybody() == other.is_for_anybody()
    }

    /// True if some of what hosts send to its remote side may not pass in clear.
    pub(super) fn holds_back(&self) -> bool {
        self.mode != ChildMode::Pass && !self.is_around
    }

    pub(super) fn action(&self, id: PolicyId) -> Action {
        match self.mode {
            ChildMode::Pass => Action::Bypass,
            ChildMode::Tunnel | ChildMode::Transport => Action::Protect(id),
            ChildMode::Drop => Action::Discard,
        }
    }

    /// The address ranges of the peer's side.
    pub(super) fn remote_ranges(&self) -> impl Iterator<Item = AddrRange> + '_ {
        self.selectors.remote_selectors().map(|TrafficSelector { addrs, .. }| addrs)
    }

    /// The address ranges of our side from which the gateway itself may send through it, and that
    /// its configured child does not give already.
    pub(super) fn senders(&self) -> impl Iterator<Item = AddrRange> + '_ {
        let is_protected = self.mode.is_negotiated() && !self.is_around;
        // An SA gives what its child does not name, and a child all that it names.
        let of_child = (!self.is_of_sa()).then(|| self.local_ranges());
        let all = self.unnamed.iter().copied().chain(of_child.into_iter().flatten());
        all.filter(move |_| is_protected)
    }

    /// The address ranges of our side.
    pub(super) fn local_ranges(&self) -> impl Iterator<Item = AddrRange> + '_ {
        self.selectors.local_selectors().map(|TrafficSelector { addrs, .. }| addrs)
    }
}
