//! From connections and Child SAs to the SPD, and to the prefixes that the filter and the routes
//! must hold back.
//!
//! A configured child stands in the SPD from the moment it is loaded, without an SA: what it
//! protects never leaves in clear. An installed Child SA adds a policy of its own, with the
//! selectors that were negotiated, before that one.

mod addr_set;
mod bypasses;
mod homes;
mod outline;
mod protection;
mod scope;
mod senders;
mod succession;
mod table;

pub(crate) use homes::NewHome;
pub(crate) use outline::Abandoned;
pub(crate) use protection::{Difference, Group, Protection};
pub(crate) use senders::SenderDifference;

use crate::prefix::{self, cover};
use homes::{HomeClaim, Homes};
use outline::Outline;
use std::collections::{BTreeMap, BTreeSet};
use succession::StandIns;
use table::{Configured, PolicyEntry, Table};
use testudo_base::prefix::Prefix;
use testudo_base::siphash::SipKey;
use testudo_base::spi::Shard;
use testudo_ike::config::{Child, ChildMode, Connection, Pool, TsSpec};
use testudo_ike::output::ChildSaId;
use testudo_ipsec::Error;
use testudo_ipsec::sa::{ChildSaParams, Mode};
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
    configured: BTreeMap<ChildName, PolicyId>,
    installed: BTreeMap<ChildSaId, PolicyId>,
    /// What the two above name.
    table: Table,
    /// Always as the table has it.
    spd: Spd,
    /// Always as the table has it.
    outline: Outline,
    /// Always as the SPD has it. `None`: this node has nobody to share tunnels with.
    homes: Option<Homes>,
    /// Configured children's policies that the worker has not been told the home of.
    untold: BTreeMap<PolicyId, Shard>,
    spd_changed: bool,
    /// What pools of virtual addresses hand out.
    pools: BTreeMap<String, AddrRange>,
    /// Policies of Child SAs that do not stand: not yet, or no longer, because another SA has what
    /// they carry.
    resting: BTreeSet<PolicyId>,
    /// See [`Policies::stand_in`].
    stand_ins: StandIns,
    /// What the SPD holds if it had room for all.
    standing: usize,
    /// Numbers that nobody has, but that the worker's SPD may still name.
    given_back: BTreeSet<PolicyId>,
    /// Configured children so far.
    loaded: u64,
    /// What the SPD holds back although no policy is about it.
    shut: BTreeSet<Prefix>,
}

/// A Child SA whose policy is to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewSa<'a> {
    /// The highest comes first, and only those that renew each other may have the same; of these
    /// the older one.
    pub(crate) place: u64,
    /// The Child SA.
    pub(crate) id: ChildSaId,
    /// What it was made for, if that is still there.
    pub(crate) child: Option<&'a Child>,
    /// As they were negotiated.
    pub(crate) selectors: &'a SelectorPair,
    /// The shard of its inbound SPI.
    pub(crate) home: Shard,
    /// It is one of AH for ESP of our own.
    pub(crate) is_around: bool,
}

impl<'a> NewSa<'a> {
    /// What has been negotiated.
    pub(crate) fn of(
        place: u64,
        id: ChildSaId,
        child: Option<&'a Child>,
        params: &ChildSaParams,
        selectors: &'a SelectorPair,
    ) -> Self {
        // Who was asked for transport mode may have chosen a tunnel.
        let is_transport =
            params.mode == Mode::Transport || child.is_some_and(|c| c.mode == ChildMode::Transport);
        let is_around = params.algorithm.is_ah() && is_transport && selectors.take_esp_alone();
        Self { place, id, child, selectors, home: params.spi_in.shard(), is_around }
    }
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

/// Places of Child SAs lie below it, those of the newest lowest; those of configured children
/// above, as they were loaded.
const FIRST_CONFIGURED_PLACE: u64 = 1 << 63;

impl Policies {
    /// For a node of a cluster; the key is the cluster's.
    pub(crate) fn of_node(key: SipKey) -> Self {
        Self { homes: Some(Homes::new(key)), ..Self::default() }
    }

    /// Takes a connection's children in the place of those that it had. Where they mean the same,
    /// nothing changes.
    pub(crate) fn load(&mut self, connection: &Connection) {
        let leased: Vec<AddrRange> =
            connection.pools.iter().filter_map(|name| self.pools.get(name)).copied().collect();
        let children = connection.children.iter().filter_map(|child| configure(connection, child, &leased));
        self.exchange(&connection.name, children.collect());
    }

    /// True if that pool hands out the same addresses already.
    pub(crate) fn has_pool(&self, pool: &Pool) -> bool {
        self.pools.get(&pool.name) == Some(&pool.addrs)
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
        self.exchange(connection, Vec::new());
    }

    fn exchange(&mut self, connection: &str, children: Vec<PolicyEntry>) {
        let before = self.of_connection(connection);
        let is_same =
            |(id, new): (&PolicyId, &PolicyEntry)| self.table.get(*id).is_some_and(|old| old.means(new));
        if before.len() == children.len() && before.iter().zip(&children).all(is_same) {
            return;
        }
        let mut old: BTreeMap<PolicyId, Box<PolicyEntry>> = BTreeMap::new();
        let mut numbers = BTreeMap::new();
        for id in before {
            let Some(entry) = self.table.take(id) else { continue };
            self.outline.retire(id, &entry);
            self.withdraw(entry.rank, &entry.selectors);
            numbers.extend(entry.name().and_then(|name| self.configured.remove_entry(name)));
            old.insert(id, entry);
        }
        let mut new = Vec::new();
        for mut entry in children {
            let Some(name) = entry.name().cloned() else { continue };
            self.loaded += 1;
            entry.rank.place = FIRST_CONFIGURED_PLACE + self.loaded;
            let number = numbers.remove(&name);
            let before = number.and_then(|id| old.get(&id)).filter(|before| before.means(&entry));
            entry.set_since(before.map_or(self.loaded, |before| before.since()));
            let id = number.unwrap_or_else(|| self.table.take_number());
            self.configured.insert(name, id);
            let claim = self.claim(&entry);
            let is_around = entry.is_around;
            self.untold.extend(claim.map(|claim| (id, claim.shard())));
            match is_around {
                true => self.insert_around(entry.rank, &entry.selectors, id, claim),
                false => self.insert(entry.rank, &entry.selectors, entry.action(id), claim),
            }
            self.table.put(id, entry);
            new.push(id);
        }
        self.stand_back(connection);
        self.outline.exchange(&old, &new, &self.table);
        new.iter().for_each(|id| self.outline.rival(*id, &self.table));
        new.iter().for_each(|id| self.outline.bypass(*id, &self.table));
        self.given_back.extend(numbers.into_values());
        self.spd_changed = true;
    }

    /// A connection's children as they were loaded.
    fn of_connection(&self, connection: &str) -> Vec<PolicyId> {
        let first = ChildName { connection: connection.to_owned(), child: String::new() };
        let of_it = self.configured.range(first..).take_while(|(name, _)| name.connection == connection);
        let mut ids: Vec<PolicyId> = of_it.map(|(_, id)| *id).collect();
        ids.sort_by_key(|id| self.table.get(*id).map(|entry| entry.rank.place));
        ids
    }

    fn insert(&mut self, rank: Rank, selectors: &SelectorPair, action: Action, claim: Option<HomeClaim>) {
        // What it has no room for is missed by `spd`.
        let _ = self.spd.insert(rank, selectors, action);
        if let (Some(homes), Some(claim)) = (&mut self.homes, claim) {
            homes.stand(rank, selectors, claim);
        }
        self.standing += 1;
        self.spd_changed = true;
    }

    /// The same for ESP of our own. Of what hosts send it has nothing, but its rank is taken.
    fn insert_around(
        &mut self,
        rank: Rank,
        selectors: &SelectorPair,
        id: PolicyId,
        claim: Option<HomeClaim>,
    ) {
        let _ = self.spd.insert_around(rank, selectors, id);
        if let (Some(homes), Some(claim)) = (&mut self.homes, claim) {
            homes.stand(rank, &SelectorPair::new(&[], &[]), claim);
        }
        self.standing += 1;
        self.spd_changed = true;
    }

    fn withdraw(&mut self, rank: Rank, selectors: &SelectorPair) {
        if !self.spd.remove(rank, selectors) {
            self.spd.remove_around(rank, selectors);
        }
        if let Some(homes) = &mut self.homes {
            homes.leave(rank);
        }
        self.standing -= 1;
        self.spd_changed = true;
    }

    /// Behind what stands in that place already: in a cluster one Child SA that renews another has
    /// its place, also if they do not carry the same.
    fn free_part(&self, rank: Rank) -> Rank {
        self.homes.as_ref().map_or(rank, |homes| homes.free_part(rank))
    }

    fn claim(&self, entry: &PolicyEntry) -> Option<HomeClaim> {
        self.homes.as_ref().map(|homes| homes.claim(entry))
    }

    /// Adds the policy of a new Child SA.
    pub(crate) fn install_at(&mut self, sa: &NewSa<'_>) -> PolicyId {
        let id = self.table.take_number();
        let rank = self.free_part(Rank {
            priority: priority_of(sa.child, sa.selectors),
            place: FIRST_CONFIGURED_PLACE.saturating_sub(sa.place),
            part: 0,
        });
        self.table.put(id, PolicyEntry::of_sa(rank, sa, self.loaded));
        self.installed.insert(sa.id, id);
        self.resting.insert(id);
        self.put_up(id);
        id
    }

    /// The same where the newest comes first.
    #[cfg(test)]
    fn install(
        &mut self,
        id: ChildSaId,
        child: Option<&Child>,
        selectors: &SelectorPair,
        home: Shard,
    ) -> PolicyId {
        self.install_at(&NewSa { place: id.0, id, child, selectors, home, is_around: false })
    }

    /// Makes the policy of a Child SA stand, if it does not.
    fn put_up(&mut self, id: PolicyId) {
        if let Some(entry) = self.table.get(id)
            && self.resting.remove(&id)
        {
            let (rank, selectors, action) = (entry.rank, entry.selectors.clone(), entry.action(id));
            match entry.is_around {
                true => self.insert_around(rank, &selectors, id, self.claim(entry)),
                false => self.insert(rank, &selectors, action, self.claim(entry)),
            }
            self.outline.install(id, &self.table);
        }
    }

    /// The same the other way round.
    fn put_down(&mut self, id: PolicyId) {
        self.leave_places(id);
        if let Some(entry) = self.table.get(id)
            && self.resting.insert(id)
        {
            let (rank, selectors) = (entry.rank, entry.selectors.clone());
            self.withdraw(rank, &selectors);
            self.outline.uninstall(id, &self.table);
        }
    }

    /// The policy of the Child SA that is renewed, for the one that takes its place: so that the
    /// outbound SA changes in one step, and the SPD not at all. `None` if they do not carry the
    /// same with the same priority and, in a cluster, at the same home and place, or the old one is
    /// gone.
    pub(crate) fn inherit(&mut self, sa: &NewSa<'_>, old: ChildSaId) -> Option<PolicyId> {
        let id = *self.installed.get(&old)?;
        let priority = priority_of(sa.child, sa.selectors);
        let is_alone = self.homes.is_none();
        let same = |entry: &&mut PolicyEntry| {
            entry.rank.priority == priority
                && entry.is_around == sa.is_around
                && (is_alone
                    || entry.home == sa.home
                        && entry.rank.place == FIRST_CONFIGURED_PLACE.saturating_sub(sa.place))
                && entry.selectors.is_same_set(sa.selectors)
        };
        self.table.get_mut(id).filter(same)?.sas += 1;
        self.installed.insert(sa.id, id);
        Some(id)
    }

    /// Takes the policy of a Child SA that is gone, unless another has it too.
    pub(crate) fn remove(&mut self, sa: ChildSaId) -> Option<PolicyId> {
        let id = self.installed.remove(&sa)?;
        let entry = self.table.get_mut(id)?;
        entry.sas = entry.sas.saturating_sub(1);
        if entry.sas > 0 {
            return None;
        }
        self.put_down(id);
        self.resting.remove(&id);
        self.table.take(id);
        self.given_back.insert(id);
        Some(id)
    }

    /// What has to follow since the last call.
    pub(crate) fn take_change(&mut self) -> Change {
        let spd_changed = std::mem::take(&mut self.spd_changed);
        let is_other = self.outline.is_changed() || self.homes.as_mut().is_some_and(Homes::is_changed);
        match (is_other, spd_changed) {
            (true, _) => Change::Protection,
            (false, true) => Change::Spd,
            (false, false) => Change::None,
        }
    }

    /// Has the SPD hold a prefix back that stays shut, so that the worker lets nothing leave for it
    /// that no policy is about; or no more. Not everything: that names no network
    /// ([`Outline::take_abandoned`]), and the gateway itself must reach others.
    pub(crate) fn set_shut(&mut self, prefix: &Prefix, is_shut: bool) {
        let Some(range) = prefix::range_of(prefix).filter(|_| !prefix.is_default()) else { return };
        match is_shut {
            true if self.shut.insert(*prefix) => self.spd.hold_back(&range),
            false if self.shut.remove(prefix) => self.spd.let_go(&range),
            _ => {}
        }
    }

    /// How what filter and routes hold back differs from what it was at the last call.
    pub(crate) fn take_differences(&mut self) -> Vec<Difference> {
        self.outline.take_differences()
    }

    /// How the addresses of ours that are carried to prefixes differ from what they were at the
    /// last call.
    pub(crate) fn take_senders(&mut self) -> Vec<SenderDifference> {
        self.outline.take_senders()
    }

    /// The prefixes whose home is another than it was at the last call. None without a cluster.
    pub(crate) fn take_new_homes(&mut self) -> Vec<NewHome> {
        self.homes.as_mut().map(Homes::take_new).unwrap_or_default()
    }

    /// Policies that may stand without an SA, and whose node is to ask for one. None without a
    /// cluster.
    pub(crate) fn take_policy_homes(&mut self) -> BTreeMap<PolicyId, Shard> {
        std::mem::take(&mut self.untold)
    }

    /// What configured children have ceased to hold back since the last call.
    pub(crate) fn take_abandoned(&mut self) -> Abandoned {
        self.outline.take_abandoned()
    }

    /// The connections whose children hold back all of a prefix, once for each child.
    pub(crate) fn connections_holding(&self, prefix: &Prefix) -> impl Iterator<Item = &str> {
        let children = self.outline.children_holding(prefix);
        children.filter_map(|id| Some(self.child_of(id)?.connection.as_str()))
    }

    /// True if a Child SA does, where no configured child does.
    pub(crate) fn is_held_by_sas(&self, prefix: &Prefix) -> bool {
        self.outline.sas_holding(prefix).next().is_some()
    }

    /// One of these. Walks through all Child SAs.
    pub(crate) fn sa_holding(&self, prefix: &Prefix) -> Option<ChildSaId> {
        let policy = self.outline.sas_holding(prefix).next()?;
        self.installed.iter().find(|(_, id)| **id == policy).map(|(sa, _)| *sa)
    }

    /// The configured child that a policy came from.
    pub(crate) fn child_of(&self, id: PolicyId) -> Option<&ChildName> {
        self.table.get(id)?.name()
    }

    /// The SPD: by priority, then Child SAs (the newest first) before configured children (as they
    /// were loaded). Fails if they are more than it holds.
    pub(crate) fn spd(&self) -> Result<&Spd, Error> {
        let found = self.standing;
        if self.spd.len() == found { Ok(&self.spd) } else { Err(Error::TooManyPolicies { found }) }
    }

    /// The worker has this SPD: what it does not name any more is free.
    pub(crate) fn applied(&mut self) {
        for id in std::mem::take(&mut self.given_back) {
            self.table.give_back(id);
        }
    }

    /// All numbers of policies are below this.
    pub(crate) fn numbers(&self) -> u32 {
        self.table.numbers()
    }
}

/// The policy of a child as it is configured. A peer with any address and `dynamic` selectors:
/// nothing is known before it comes.
fn configure(connection: &Connection, child: &Child, leased: &[AddrRange]) -> Option<PolicyEntry> {
    // A shunt is there when it is installed.
    if !child.mode.is_negotiated() && !child.start_action.traps() {
        return None;
    }
    let (local, remote) = (local_side(child), remote_side(connection, child, leased));
    if remote.is_empty() {
        return None;
    }
    let name = ChildName { connection: connection.name.clone(), child: child.name.clone() };
    let rank = Rank { priority: order(child.mode, child.priority, &local, &remote), place: 0, part: 0 };
    let is_for_anybody = traps_anybody(connection, child);
    let configured = Configured { name, named: named(child), is_for_anybody, since: 0 };
    Some(PolicyEntry::of_child(child, rank, SelectorPair::new(&local, &remote), configured))
}

/// Computed priorities lie where strongSwan's lie: 100 000 and more, bypass before protect before
/// discard, so that a small explicit `priority` comes before all of them.
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
        ChildMode::Tunnel | ChildMode::Transport => BASE_TUNNEL,
        ChildMode::Drop => BASE_DROP,
    };
    base + width(local) + width(remote)
}

/// Where a Child SA stands, by the child that it was made for and by what it carries.
fn priority_of(child: Option<&Child>, selectors: &SelectorPair) -> u32 {
    let [local, remote]: [Vec<TrafficSelector>; 2] =
        [selectors.local_selectors().collect(), selectors.remote_selectors().collect()];
    order(ChildMode::Tunnel, child.map_or(0, |child| child.priority), &local, &remote)
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

/// Our side. Before there is an SA, `dynamic` may be any address: whatever goes to the remote side
/// is held back.
fn local_side(child: &Child) -> Vec<TrafficSelector> {
    let everything = [prefix::whole(false), prefix::whole(true)];
    child.local_ts.iter().flat_map(|spec| resolve(spec, &everything)).collect()
}

/// The selectors that a child's configuration names itself. `dynamic` may be any address, and names
/// none.
pub(crate) fn named_selectors(child: &Child) -> SelectorPair {
    SelectorPair::new(&fixed(&child.local_ts), &fixed(&child.remote_ts))
}

/// What of our side the configuration names itself.
fn named(child: &Child) -> Box<[AddrRange]> {
    fixed(&child.local_ts).into_iter().map(|ts| ts.addrs).collect()
}

/// Without those that are `dynamic`.
fn fixed(specs: &[TsSpec]) -> Vec<TrafficSelector> {
    specs.iter().flat_map(|spec| resolve(spec, &[])).collect()
}

/// True if whatever host a packet is for becomes the child's peer.
fn traps_anybody(connection: &Connection, child: &Child) -> bool {
    child.start_action.traps() && connection.takes_anybody(child)
}

/// The peer's side: `dynamic` is any address of the pools, or the peer's address, if the connection
/// names just one; any address that the peer may have, where a packet says who it is.
fn remote_side(connection: &Connection, child: &Child, leased: &[AddrRange]) -> Vec<TrafficSelector> {
    let hosts = connection.remote_hosts();
    let peers: Vec<AddrRange> = match traps_anybody(connection, child) {
        true if hosts.is_any() => vec![prefix::whole(false), prefix::whole(true)],
        true => hosts.ranges().collect(),
        false => hosts.singles().filter_map(|addr| AddrRange::new(addr, addr)).collect(),
    };
    let dynamic = if leased.is_empty() { &peers } else { leased };
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
#[path = "policies/around_tests.rs"]
mod around_tests;
#[cfg(test)]
#[path = "policies_tests.rs"]
mod tests;
