//! From connections and Child SAs to the SPD, and to the prefixes that the filter and the routes must hold back.
//!
//! A configured child stands in the SPD from the moment it is loaded, without an SA: what it protects never leaves in
//! clear. An installed Child SA adds a policy of its own, with the selectors that were negotiated, before that one.

mod addr_set;
mod protection;

use addr_set::AddrSet;
pub(crate) use protection::Protection;

use crate::prefix::{self, cover};
use std::collections::{BTreeMap, BTreeSet};
use testudo_ike::config::{Child, ChildMode, Connection, Pool, TsSpec};
use testudo_ike::output::ChildSaId;
use testudo_ipsec::Error;
use testudo_ipsec::selector::{AddrRange, SelectorPair, TrafficSelector};
use testudo_ipsec::spd::{Action, PolicyId, Rank, Spd};

/// A child of a connection, by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ChildName {
    /// `connections.<name>`
    pub(crate) connection: String,
    /// `children.<name>`
    pub(crate) child: String,
}

/// Everything that the SPD is made of.
#[derive(Debug, Default)]
pub(crate) struct Policies {
    configured: BTreeMap<ChildName, Entry>,
    installed: BTreeMap<ChildSaId, Entry>,
    /// Always as the two above have it.
    spd: Spd,
    /// Which configured child a number belongs to.
    names: BTreeMap<PolicyId, ChildName>,
    /// Remote addresses that configured children hold back, once somebody has asked.
    held: Option<AddrSet>,
    change: Change,
    /// What pools of virtual addresses hand out.
    pools: BTreeMap<String, AddrRange>,
    /// How many further Child SAs have a policy: one that is renewed, and the one that takes its place.
    shared: BTreeMap<PolicyId, usize>,
    /// Numbers below `next_id` that nobody has: workers index tables by them, so they stay small.
    free_ids: BTreeSet<PolicyId>,
    next_id: u32,
    /// Configured children so far.
    loaded: u64,
    /// Of those that are there, how many let traffic pass.
    passes: usize,
}

/// How much has to follow the policies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Change {
    /// Nothing.
    #[default]
    None,
    /// The worker: filter and routes hold back what they should already.
    Spd,
    /// Filter and routes too.
    Protection,
}

#[derive(Clone, Debug)]
struct Entry {
    id: PolicyId,
    mode: ChildMode,
    rank: Rank,
    selectors: SelectorPair,
    /// Of our side, what the configuration names itself: `dynamic` may be any address, and says nothing.
    named: Box<[AddrRange]>,
}

/// Places of Child SAs lie below it, those of the newest lowest; those of configured children above, as they were loaded.
const CONFIGURED: u64 = 1 << 63;

impl Policies {
    /// Takes a connection's children in the place of those that it had.
    pub(crate) fn load(&mut self, connection: &Connection) {
        let mut old = self.take_connection(&connection.name);
        let leased: Vec<AddrRange> =
            connection.pools.iter().filter_map(|name| self.pools.get(name)).copied().collect();
        for child in &connection.children {
            let name = ChildName { connection: connection.name.clone(), child: child.name.clone() };
            let (local, remote) = (local_side(child), remote_side(connection, child, &leased));
            if remote.is_empty() {
                // A peer with any address and `dynamic` selectors: nothing is known before it comes.
                continue;
            }
            let id = old.remove(&name).map_or_else(|| self.take_id(), |entry| entry.id);
            self.loaded += 1;
            let priority = order(child.mode, child.priority, &local, &remote);
            let rank = Rank { priority, place: CONFIGURED + self.loaded };
            let selectors = SelectorPair::new(&local, &remote);
            let entry = Entry { id, mode: child.mode, rank, selectors, named: named(child) };
            self.names.insert(id, name.clone());
            self.passes += usize::from(child.mode == ChildMode::Pass);
            self.insert(&entry);
            self.configured.insert(name, entry);
        }
        self.forget(old);
    }

    fn insert(&mut self, entry: &Entry) {
        // What it has no room for is missed by `spd`.
        let _ = self.spd.insert(entry.rank, &entry.selectors, entry.action());
    }

    /// Children that are gone: their numbers are free again.
    fn forget(&mut self, old: BTreeMap<ChildName, Entry>) {
        for entry in old.into_values() {
            self.names.remove(&entry.id);
            self.free_ids.insert(entry.id);
        }
    }

    /// Notes a pool. Connections that use it are to be loaded again.
    pub(crate) fn load_pool(&mut self, pool: &Pool) {
        self.pools.insert(pool.name.clone(), pool.addrs);
    }

    /// Forgets a pool. Connections that use it are to be loaded again.
    pub(crate) fn unload_pool(&mut self, name: &str) {
        self.pools.remove(name);
    }

    /// Forgets a connection's children; its Child SAs stay.
    pub(crate) fn unload(&mut self, connection: &str) {
        let old = self.take_connection(connection);
        self.forget(old);
    }

    fn take_connection(&mut self, connection: &str) -> BTreeMap<ChildName, Entry> {
        let first = ChildName { connection: connection.to_owned(), child: String::new() };
        let of_it = self.configured.range(first..).take_while(|(name, _)| name.connection == connection);
        let names: Vec<ChildName> = of_it.map(|(name, _)| name.clone()).collect();
        let taken = names.into_iter().filter_map(|name| self.configured.remove_entry(&name));
        let old: BTreeMap<ChildName, Entry> = taken.collect();
        for entry in old.values() {
            self.passes -= usize::from(entry.mode == ChildMode::Pass);
            self.spd.remove(entry.rank, &entry.selectors);
        }
        self.held = None;
        self.change = Change::Protection;
        old
    }

    fn take_id(&mut self) -> PolicyId {
        self.free_ids.pop_first().unwrap_or_else(|| {
            self.next_id += 1;
            PolicyId(self.next_id - 1)
        })
    }

    /// Adds the policy of a new Child SA.
    pub(crate) fn install(
        &mut self,
        sa: ChildSaId,
        child: Option<&Child>,
        selectors: &SelectorPair,
    ) -> PolicyId {
        let id = self.take_id();
        let [local, remote]: [Vec<TrafficSelector>; 2] =
            [selectors.local_selectors().collect(), selectors.remote_selectors().collect()];
        let priority = order(ChildMode::Tunnel, child.map_or(0, |c| c.priority), &local, &remote);
        let rank = Rank { priority, place: CONFIGURED.saturating_sub(sa.0) };
        let selectors = selectors.clone();
        let entry = Entry { id, mode: ChildMode::Tunnel, rank, selectors, named: Box::default() };
        self.insert(&entry);
        self.note_change(&entry);
        self.installed.insert(sa, entry);
        id
    }

    /// The policy of the Child SA that is renewed, for the one that takes its place: so that the outbound SA changes in one
    /// step, and the SPD not at all. `None` if they do not carry the same, or the old one is gone.
    pub(crate) fn inherit(
        &mut self,
        sa: ChildSaId,
        old: ChildSaId,
        selectors: &SelectorPair,
    ) -> Option<PolicyId> {
        let same = |entry: &&Entry| entry.selectors.is_same_set(selectors);
        let entry = self.installed.get(&old).filter(same)?.clone();
        let id = entry.id;
        *self.shared.entry(id).or_default() += 1;
        self.installed.insert(sa, entry);
        Some(id)
    }

    /// Takes the policy of a Child SA that is gone, unless another has it too.
    pub(crate) fn remove(&mut self, sa: ChildSaId) -> Option<PolicyId> {
        let entry = self.installed.remove(&sa)?;
        if let Some(others) = self.shared.get_mut(&entry.id) {
            *others -= 1;
            if *others == 0 {
                self.shared.remove(&entry.id);
            }
            return None;
        }
        self.spd.remove(entry.rank, &entry.selectors);
        self.note_change(&entry);
        self.free_ids.insert(entry.id);
        Some(entry.id)
    }

    /// Notes what has to follow the coming or going of a Child SA.
    fn note_change(&mut self, entry: &Entry) {
        let change = if self.concerns_protection(entry) { Change::Protection } else { Change::Spd };
        self.change = self.change.max(change);
    }

    /// What has to follow since the last call.
    pub(crate) fn take_change(&mut self) -> Change {
        std::mem::take(&mut self.change)
    }

    /// The configured child that a policy came from.
    pub(crate) fn child_of(&self, id: PolicyId) -> Option<&ChildName> {
        self.names.get(&id)
    }

    /// The SPD: by priority, then Child SAs (the newest first) before configured children (as they were loaded). Fails if
    /// they are more than it holds.
    pub(crate) fn spd(&self) -> Result<&Spd, Error> {
        let shared: usize = self.shared.values().sum();
        let found = self.configured.len() + self.installed.len().saturating_sub(shared);
        if self.spd.len() == found { Ok(&self.spd) } else { Err(Error::TooManyPolicies { found }) }
    }

    /// All numbers of policies are below this.
    pub(crate) fn numbers(&self) -> u32 {
        self.next_id
    }
}

impl Entry {
    fn action(&self) -> Action {
        match self.mode {
            ChildMode::Pass => Action::Bypass,
            ChildMode::Tunnel => Action::Protect(self.id),
            ChildMode::Drop => Action::Discard,
        }
    }
}

/// Computed priorities lie where strongSwan's lie: 100 000 and more, bypass before protect before discard, so that a
/// small explicit `priority` comes before all of them.
const BASE_PASS: u32 = 100_000;
const BASE_TUNNEL: u32 = 200_000;
const BASE_DROP: u32 = 300_000;

/// Where a policy stands among others. `priority` is the child's; 0 means computed.
fn order(mode: ChildMode, priority: u32, local: &[TrafficSelector], remote: &[TrafficSelector]) -> u32 {
    if priority != 0 {
        return priority;
    }
    let base = match mode {
        ChildMode::Pass => BASE_PASS,
        ChildMode::Tunnel => BASE_TUNNEL,
        ChildMode::Drop => BASE_DROP,
    };
    base + width(local) + width(remote)
}

/// How much a side admits: more is less specific and looked at later.
fn width(selectors: &[TrafficSelector]) -> u32 {
    let one = |ts: &TrafficSelector| {
        let host_bits =
            cover(&ts.addrs).iter().map(|p| if p.is_ipv4() { 32 } else { 128 } - p.length()).max();
        let any_port = ts.port_start == 0 && ts.port_end == u16::MAX;
        u32::from(host_bits.unwrap_or(0)) * 4 + u32::from(ts.protocol == 0) * 2 + u32::from(any_port)
    };
    selectors.iter().map(one).max().unwrap_or(0)
}

/// Our side. Before there is an SA, `dynamic` may be any address: whatever goes to the remote side is held back.
fn local_side(child: &Child) -> Vec<TrafficSelector> {
    let everything = [prefix::whole(false), prefix::whole(true)];
    child.local_ts.iter().flat_map(|spec| resolve(spec, &everything)).collect()
}

/// What of our side the configuration names itself.
fn named(child: &Child) -> Box<[AddrRange]> {
    let fixed = |spec: &TsSpec| match spec {
        TsSpec::Fixed(ts) => Some(ts.addrs),
        TsSpec::Dynamic { .. } => None,
    };
    child.local_ts.iter().filter_map(fixed).collect()
}

/// The peer's side: `dynamic` is any address of the pools, or the peer's address, if the connection names just one.
fn remote_side(connection: &Connection, child: &Child, leased: &[AddrRange]) -> Vec<TrafficSelector> {
    let single: Vec<AddrRange> =
        connection.remote_addrs.iter().filter(|range| range.start() == range.end()).copied().collect();
    let dynamic = if leased.is_empty() { &single } else { leased };
    child.remote_ts.iter().flat_map(|spec| resolve(spec, dynamic)).collect()
}

fn resolve(spec: &TsSpec, dynamic: &[AddrRange]) -> Vec<TrafficSelector> {
    match *spec {
        TsSpec::Fixed(ts) => vec![ts],
        TsSpec::Dynamic { protocol, port_start, port_end } => {
            let one = |addrs: &AddrRange| TrafficSelector { addrs: *addrs, protocol, port_start, port_end };
            dynamic.iter().map(one).collect()
        }
    }
}

#[cfg(test)]
#[path = "policies_tests.rs"]
mod tests;
