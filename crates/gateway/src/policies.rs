//! From connections and Child SAs to the SPD, and to the prefixes that the filter and the routes
//! must hold back.
//!
//! A configured child stands in the SPD from the moment it is loaded, without an SA: what it
//! protects never leaves in clear. An installed Child SA adds a policy of its own, with the
//! selectors that were negotiated, before that one.

mod addr_set;
mod bypasses;
mod configured;
mod homes;
mod outline;
mod protection;
mod scope;
mod senders;
mod succession;
mod table;

pub(crate) use configured::named_selectors;
pub(crate) use homes::NewHome;
pub(crate) use outline::Abandoned;
pub(crate) use protection::{Difference, Group, Protection};
pub(crate) use senders::SenderDifference;

use crate::prefix;
use configured::{configure, priority_of};
use homes::{HomeClaim, Homes};
use outline::Outline;
use std::collections::{BTreeMap, BTreeSet};
use succession::StandIns;
use table::{PolicyEntry, Table};
use testudo_base::lane::Spread;
use testudo_base::prefix::Prefix;
use testudo_base::siphash::SipKey;
use testudo_base::spi::Shard;
use testudo_ike::config::{Child, ChildMode, Connection, Pool};
use testudo_ike::output::ChildSaId;
use testudo_ipsec::Error;
use testudo_ipsec::sa::{ChildSaParams, Mode};
use testudo_ipsec::selector::{AddrRange, SelectorPair};
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
    /// Configured children's policies whose home the workers do not know yet.
    untold: BTreeMap<PolicyId, Shard>,
    spd_changed: bool,
    /// The addresses that each pool of virtual addresses hands out.
    pools: BTreeMap<String, AddrRange>,
    /// Child SAs' policies that are not in the SPD: not yet, or no longer, because another SA
    /// carries their traffic.
    resting: BTreeSet<PolicyId>,
    /// See [`Policies::stand_in`].
    stand_ins: StandIns,
    /// Policies that the SPD would hold if it had room for all.
    standing: usize,
    /// Numbers without a policy, which the workers' SPD may still name.
    given_back: BTreeSet<PolicyId>,
    /// Configured children loaded so far.
    loaded: u64,
    /// What the SPD holds back although no policy is about it.
    shut: BTreeSet<Prefix>,
    /// The part of it that stays shut no more, and that filter and routes may still hold back.
    released: BTreeSet<Prefix>,
}

/// A Child SA that needs a policy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewSa<'a> {
    /// The highest comes first. Only Child SAs that renew each other may have the same place; the
    /// older one of these comes first.
    pub(crate) place: u64,
    /// The Child SA.
    pub(crate) id: ChildSaId,
    /// The configured child that it was made for, if that is still loaded.
    pub(crate) child: Option<&'a Child>,
    /// The negotiated selectors.
    pub(crate) selectors: &'a SelectorPair,
    /// The shard of its inbound SPI.
    pub(crate) home: Shard,
    /// The Child SA is AH around ESP of our own (a bundle).
    pub(crate) is_around: bool,
    /// How its packets are spread over the nodes of the cluster, if they are.
    pub(crate) spread: Option<Spread>,
}

impl<'a> NewSa<'a> {
    /// From what was negotiated.
    pub(crate) fn of(
        place: u64,
        id: ChildSaId,
        child: Option<&'a Child>,
        params: &ChildSaParams,
        selectors: &'a SelectorPair,
    ) -> Self {
        // A peer that was asked for transport mode may have chosen tunnel mode.
        let is_transport =
            params.mode == Mode::Transport || child.is_some_and(|c| c.mode == ChildMode::Transport);
        let is_around = params.algorithm.is_ah() && is_transport && selectors.take_esp_alone();
        Self { place, id, child, selectors, home: params.spi_in.shard(), is_around, spread: None }
    }
}

/// What has to be brought up to date after a change of policies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Change {
    /// Nothing.
    #[default]
    None,
    /// The workers: filter and routes hold back the right prefixes already.
    Spd,
    /// Workers, filter and routes.
    Protection,
}

/// Places of Child SAs lie below it, and places of configured children above, in the order of
/// loading.
const FIRST_CONFIGURED_PLACE: u64 = 1 << 63;

impl Policies {
    /// For a node of a cluster; the key is the cluster's.
    pub(crate) fn of_node(key: SipKey) -> Self {
        Self { homes: Some(Homes::new(key)), ..Self::default() }
    }

    /// Replaces a connection's children. A child that means the same as before changes nothing.
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

    /// The policies of a connection's children, in the order of loading.
    fn of_connection(&self, connection: &str) -> Vec<PolicyId> {
        let first = ChildName { connection: connection.to_owned(), child: String::new() };
        let of_it = self.configured.range(first..).take_while(|(name, _)| name.connection == connection);
        let mut ids: Vec<PolicyId> = of_it.map(|(_, id)| *id).collect();
        ids.sort_by_key(|id| self.table.get(*id).map(|entry| entry.rank.place));
        ids
    }

    fn insert(&mut self, rank: Rank, selectors: &SelectorPair, action: Action, claim: Option<HomeClaim>) {
        // If it has no room, [`Policies::spd`] fails.
        let _ = self.spd.insert(rank, selectors, action);
        if let (Some(homes), Some(claim)) = (&mut self.homes, claim) {
            homes.stand(rank, selectors, claim);
        }
        self.standing += 1;
        self.spd_changed = true;
    }

    /// Inserts the policy of AH around ESP of our own. It takes no traffic of hosts, but a rank.
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

    /// The rank behind those that have the place already: in a cluster a Child SA has the place of
    /// the one that it renews, even with other selectors.
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

    /// For tests: the newest Child SA comes first.
    #[cfg(test)]
    fn install(
        &mut self,
        id: ChildSaId,
        child: Option<&Child>,
        selectors: &SelectorPair,
        home: Shard,
    ) -> PolicyId {
        self.install_at(&NewSa { place: id.0, id, child, selectors, home, is_around: false, spread: None })
    }

    /// Puts the policy of a Child SA into the SPD, if it is not there.
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

    /// Takes the policy of a Child SA out of the SPD, if it is there.
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

    /// Hands the policy of a Child SA on to the one that renews it: the outbound SA changes in one
    /// step, and the SPD not at all. `None` if the old one is gone, or if selectors, priority or,
    /// in a cluster, home or place differ.
    pub(crate) fn inherit(&mut self, sa: &NewSa<'_>, old: ChildSaId) -> Option<PolicyId> {
        let id = *self.installed.get(&old)?;
        let priority = priority_of(sa.child, sa.selectors);
        let is_alone = self.homes.is_none();
        let same = |entry: &&mut PolicyEntry| {
            entry.rank.priority == priority
                && entry.is_around == sa.is_around
                && (is_alone
                    || (entry.home, entry.spread) == (sa.home, sa.spread)
                        && entry.rank.place == FIRST_CONFIGURED_PLACE.saturating_sub(sa.place))
                && entry.selectors.is_same_set(sa.selectors)
        };
        self.table.get_mut(id).filter(same)?.sas += 1;
        self.installed.insert(sa.id, id);
        Some(id)
    }

    /// Removes the policy of a Child SA that is gone, unless another SA has it too.
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

    /// What has to be brought up to date since the last call.
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
    /// that no policy is about; or no more, with the next [`Policies::open_released`]. Not
    /// everything: that names no network ([`Outline::take_abandoned`]), and the gateway itself must
    /// reach others.
    pub(crate) fn set_shut(&mut self, prefix: &Prefix, is_shut: bool) {
        let Some(range) = prefix::range_of(prefix).filter(|_| !prefix.is_default()) else { return };
        if !is_shut {
            self.released.extend(self.shut.get(prefix));
            return;
        }
        self.released.remove(prefix);
        if self.shut.insert(*prefix) {
            self.spd.hold_back(&range);
        }
    }

    /// Filter and routes have opened what stays shut no more: the SPD follows. True if it has
    /// changed.
    pub(crate) fn open_released(&mut self) -> bool {
        let released = std::mem::take(&mut self.released);
        for prefix in &released {
            self.shut.remove(prefix);
            if let Some(range) = prefix::range_of(prefix) {
                self.spd.let_go(&range);
            }
        }
        !released.is_empty()
    }

    /// How the prefixes that filter and routes hold back have changed since the last call.
    pub(crate) fn take_differences(&mut self) -> Vec<Difference> {
        self.outline.take_differences()
    }

    /// How our addresses that are carried to prefixes have changed since the last call.
    pub(crate) fn take_senders(&mut self) -> Vec<SenderDifference> {
        self.outline.take_senders()
    }

    /// The prefixes whose home has changed since the last call. None without a cluster.
    pub(crate) fn take_new_homes(&mut self) -> Vec<NewHome> {
        self.homes.as_mut().map(Homes::take_new).unwrap_or_default()
    }

    /// Policies that may be without an SA, with the shard whose owner asks for one. None without a
    /// cluster.
    pub(crate) fn take_policy_homes(&mut self) -> BTreeMap<PolicyId, Shard> {
        std::mem::take(&mut self.untold)
    }

    /// The prefixes that configured children have ceased to hold back since the last call.
    pub(crate) fn take_abandoned(&mut self) -> Abandoned {
        self.outline.take_abandoned()
    }

    /// The connections whose children hold back all of a prefix, once for each child.
    pub(crate) fn connections_holding(&self, prefix: &Prefix) -> impl Iterator<Item = &str> {
        let children = self.outline.children_holding(prefix);
        children.filter_map(|id| Some(self.child_of(id)?.connection.as_str()))
    }

    /// True if a Child SA holds back all of the prefix where no configured child does.
    pub(crate) fn is_held_by_sas(&self, prefix: &Prefix) -> bool {
        self.outline.sas_holding(prefix).next().is_some()
    }

    /// A Child SA that holds back all of the prefix. Looks at all Child SAs.
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

    /// The workers have the SPD: numbers that it does not name any more are free.
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

#[cfg(test)]
mod tests;
