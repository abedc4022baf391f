//! Pools of virtual addresses and their leases.
//!
//! An identity has one lease of a pool per connection, whichever of its IKE SAs asks, and gets the
//! same address again when it comes back. With another connection it is another owner, because
//! another CA may vouch for the name there. Memory grows with the leases of a pool, not with its
//! size: a pool may be a whole IPv6 /64.

use crate::config::{Identity, Pool};
use crate::endpoint::PoolError;
use crate::output::IkeSaId;
use crate::sa::{IkeSa, Lease};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Bound on the addresses that a pool keeps for absent identities. A peer that may take any name
/// could otherwise fill the memory.
const MAX_OFFLINE: usize = 1 << 16;

/// The status of a pool, for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolStatus {
    /// `pools.<name>`.
    pub name: String,
    /// The first address.
    pub base: IpAddr,
    /// Number of addresses; the largest number if there are more.
    pub size: u64,
    /// Leases in use.
    pub online: usize,
    /// Addresses kept for absent identities.
    pub offline: usize,
}

/// The status of a lease, for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseStatus {
    /// The address.
    pub addr: IpAddr,
    /// The identity that holds it.
    pub identity: Identity,
    /// True while an IKE SA uses it.
    pub online: bool,
}

/// Pools by name.
#[derive(Debug, Default)]
pub struct Pools(BTreeMap<String, Leases>);

/// A pool with its leases.
#[derive(Debug)]
struct Leases {
    pool: Pool,
    /// Distance from the first address to the first one that was never assigned in turn; past the
    /// end if there is none.
    next: Option<u128>,
    by_addr: BTreeMap<IpAddr, Holder>,
    by_owner: BTreeMap<LeaseOwner, IpAddr>,
    /// Leases without users; the one that has been without users for longest comes first.
    offline: BTreeSet<(u64, IpAddr)>,
    /// Counts leases that went offline.
    turn: u64,
}

/// The owner of a lease.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LeaseOwner {
    connection: String,
    /// The identity in canonical form.
    identity: Identity,
}

impl LeaseOwner {
    pub(crate) fn new(connection: &str, identity: &Identity) -> Self {
        Self { connection: connection.to_owned(), identity: identity.canonical() }
    }
}

#[derive(Debug)]
struct Holder {
    owner: LeaseOwner,
    /// The IKE SAs that use the address.
    users: BTreeSet<IkeSaId>,
    /// Its place in `offline`, without users.
    turn: u64,
}

/// The effort of a search for an address.
#[derive(Clone, Copy)]
enum Effort {
    /// The owner's present address.
    Known,
    /// An address without a lease.
    Free,
    /// An address kept for an absent owner.
    Kept,
}

impl Pools {
    /// What there is to see of each pool, by name.
    pub fn status(&self) -> impl Iterator<Item = PoolStatus> + '_ {
        self.0.values().map(Leases::status)
    }

    /// The leases of a pool, by address.
    pub fn leases(&self, pool: &str) -> impl Iterator<Item = LeaseStatus> + '_ {
        let leases = self.0.get(pool).into_iter();
        leases.flat_map(|leases| &leases.by_addr).map(|(addr, holder)| LeaseStatus {
            addr: *addr,
            identity: holder.owner.identity.clone(),
            online: !holder.users.is_empty(),
        })
    }

    /// Loads a pool in place of one of the same name. Addresses in use must stay the same.
    pub(crate) fn load(&mut self, pool: Pool) -> Result<(), PoolError> {
        match self.0.entry(pool.name.clone()) {
            Entry::Vacant(entry) => {
                entry.insert(Leases::new(pool));
            }
            Entry::Occupied(entry) if entry.get().pool.addrs == pool.addrs => entry.into_mut().pool = pool,
            Entry::Occupied(mut entry) => {
                match entry.get().online() {
                    0 => entry.insert(Leases::new(pool)),
                    online => return Err(PoolError::Online { pool: pool.name, online }),
                };
            }
        }
        Ok(())
    }

    pub(crate) fn unload(&mut self, name: &str) -> Result<(), PoolError> {
        let leases = self.0.get(name).ok_or_else(|| PoolError::Unknown(name.to_owned()))?;
        match leases.online() {
            0 => {
                self.0.remove(name);
                Ok(())
            }
            online => Err(PoolError::Online { pool: name.to_owned(), online }),
        }
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Pool> {
        self.0.get(name).map(|leases| &leases.pool)
    }

    /// An address of the family of `wanted` from one of the named pools; `wanted` itself if it is
    /// free. `may_lease` must allow an address that the owner does not have yet.
    pub(crate) fn lease(
        &mut self,
        names: &[String],
        wanted: IpAddr,
        owner: &LeaseOwner,
        ike: IkeSaId,
        may_lease: &dyn Fn(IpAddr) -> bool,
    ) -> Option<Lease> {
        for effort in [Effort::Known, Effort::Free, Effort::Kept] {
            for name in names {
                let of_family =
                    |leases: &&mut Leases| leases.pool.addrs.start().is_ipv4() == wanted.is_ipv4();
                let Some(leases) = self.0.get_mut(name).filter(of_family) else { continue };
                if let Some(addr) = leases.find(effort, wanted, owner, may_lease) {
                    leases.give(addr, owner, ike);
                    return Some(Lease { pool: name.clone(), addr });
                }
            }
        }
        None
    }

    /// Why these pools have no free address, for the log.
    pub(crate) fn shortage(&self, names: &[String], wanted: &[IpAddr]) -> String {
        let each = names.iter().filter_map(|name| {
            let Some(leases) = self.0.get(name) else { return Some(format!("pool {name} is not loaded")) };
            let PoolStatus { base, size, online, .. } = leases.status();
            let of_family = wanted.iter().any(|addr| addr.is_ipv4() == base.is_ipv4());
            of_family.then(|| format!("{online} of the {size} addresses of pool {name} are in use"))
        });
        each.collect::<Vec<_>>().join("; ")
    }

    /// Reserves an address that an IKE SA has from before. Returns false if another owner has got
    /// it.
    pub(crate) fn claim(&mut self, lease: &Lease, owner: &LeaseOwner, ike: IkeSaId) -> bool {
        // The pool may be loaded later.
        let Some(leases) = self.0.get_mut(&lease.pool) else { return true };
        let taken = leases.by_addr.get(&lease.addr);
        let in_use = taken.is_some_and(|holder| holder.owner != *owner && !holder.users.is_empty());
        // Of two SAs that had the same address on different nodes, the first keeps it here.
        if leases.pool.addrs.contains(lease.addr) && !in_use {
            leases.give(lease.addr, owner, ike);
        }
        !in_use
    }

    /// This node may lease other addresses now: those that were skipped come in turn again.
    pub(crate) fn begin_again(&mut self) {
        self.0.values_mut().for_each(|leases| leases.next = Some(0));
    }

    /// Moves the addresses of one IKE SA to another, so that no other can get them in between.
    pub(crate) fn hand_on(&mut self, from: IkeSaId, to: &IkeSa) {
        claim(self, to, None);
        to.virtual_ips.remote.iter().for_each(|lease| self.release(lease, from));
    }

    /// An IKE SA does not need its address any more.
    pub(crate) fn release(&mut self, lease: &Lease, ike: IkeSaId) {
        if let Some(leases) = self.0.get_mut(&lease.pool) {
            leases.release(lease.addr, ike);
        }
    }
}

impl Leases {
    fn new(pool: Pool) -> Self {
        Self {
            pool,
            next: Some(0),
            by_addr: BTreeMap::new(),
            by_owner: BTreeMap::new(),
            offline: BTreeSet::new(),
            turn: 0,
        }
    }

    fn online(&self) -> usize {
        self.by_addr.len().saturating_sub(self.offline.len())
    }

    fn find(
        &mut self,
        effort: Effort,
        wanted: IpAddr,
        owner: &LeaseOwner,
        may_lease: &dyn Fn(IpAddr) -> bool,
    ) -> Option<IpAddr> {
        let is_free = |addr| !self.by_addr.contains_key(&addr) && may_lease(addr);
        match effort {
            Effort::Known => self.by_owner.get(owner).copied(),
            // With so many kept addresses, no new one is assigned, requested or not: a kept one is
            // used.
            Effort::Free if self.offline.len() >= MAX_OFFLINE => None,
            Effort::Free if self.pool.addrs.contains(wanted) && is_free(wanted) => Some(wanted),
            Effort::Free => self.next_free(may_lease),
            Effort::Kept => self.offline.iter().map(|(_, addr)| *addr).find(|addr| may_lease(*addr)),
        }
    }

    /// The next free address in turn. Each address that was assigned out of turn, or that another
    /// node may lease, is skipped once, so this is quick on average.
    fn next_free(&mut self, may_lease: &dyn Fn(IpAddr) -> bool) -> Option<IpAddr> {
        loop {
            let distance = self.next?;
            let addr = plus(self.pool.addrs.start(), distance).filter(|addr| self.pool.addrs.contains(*addr));
            let Some(addr) = addr else {
                self.next = None;
                return None;
            };
            if !self.by_addr.contains_key(&addr) && may_lease(addr) {
                return Some(addr);
            }
            self.next = distance.checked_add(1);
        }
    }

    /// Assigns an address that no other owner uses.
    fn give(&mut self, addr: IpAddr, owner: &LeaseOwner, ike: IkeSaId) {
        if let Some(old) = self.by_owner.insert(owner.clone(), addr).filter(|old| *old != addr) {
            self.forget_offline(old);
        }
        if let Some(holder) = self.by_addr.get_mut(&addr) {
            self.offline.remove(&(holder.turn, addr));
            if holder.owner == *owner {
                holder.users.insert(ike);
                return;
            }
            if self.by_owner.get(&holder.owner) == Some(&addr) {
                self.by_owner.remove(&holder.owner);
            }
        }
        let users = BTreeSet::from([ike]);
        self.by_addr.insert(addr, Holder { owner: owner.clone(), users, turn: 0 });
    }

    /// The owner has another address now: the one kept for it is free.
    fn forget_offline(&mut self, addr: IpAddr) {
        if let Entry::Occupied(entry) = self.by_addr.entry(addr)
            && entry.get().users.is_empty()
        {
            let holder = entry.remove();
            self.offline.remove(&(holder.turn, addr));
        }
    }

    fn release(&mut self, addr: IpAddr, ike: IkeSaId) {
        let Some(holder) = self.by_addr.get_mut(&addr) else { return };
        if holder.users.remove(&ike) && holder.users.is_empty() {
            self.turn = self.turn.saturating_add(1);
            holder.turn = self.turn;
            self.offline.insert((holder.turn, addr));
        }
    }

    fn status(&self) -> PoolStatus {
        let (first, last) = (self.pool.addrs.start(), self.pool.addrs.end());
        let size = number(last).saturating_sub(number(first)).saturating_add(1);
        PoolStatus {
            name: self.pool.name.clone(),
            base: self.pool.base,
            size: u64::try_from(size).unwrap_or(u64::MAX),
            online: self.online(),
            offline: self.offline.len(),
        }
    }
}

fn number(addr: IpAddr) -> u128 {
    match addr {
        IpAddr::V4(addr) => addr.to_bits().into(),
        IpAddr::V6(addr) => addr.to_bits(),
    }
}

fn plus(first: IpAddr, distance: u128) -> Option<IpAddr> {
    match first {
        IpAddr::V4(first) => {
            let bits = first.to_bits().checked_add(u32::try_from(distance).ok()?)?;
            Some(Ipv4Addr::from_bits(bits).into())
        }
        IpAddr::V6(first) => Some(Ipv6Addr::from_bits(first.to_bits().checked_add(distance)?).into()),
    }
}

/// Reserves the addresses that an IKE SA has from before: of one pool, or of all.
pub(crate) fn claim(pools: &mut Pools, sa: &IkeSa, pool: Option<&str>) {
    let Some(identity) = &sa.remote_id else { return };
    let owner = LeaseOwner::new(&sa.connection, identity);
    for lease in sa.virtual_ips.remote.iter().filter(|lease| pool.is_none_or(|pool| pool == lease.pool)) {
        pools.claim(lease, &owner, sa.id);
    }
}

#[cfg(test)]
mod tests;
