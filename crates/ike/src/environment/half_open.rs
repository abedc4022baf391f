//! Limits on half-open IKE SAs: all, by source and by network. One that failed in IKE_AUTH counts
//! until it is forgotten, because it takes as much memory.
//!
//! A source at its limit is refused, which also bounds the key exchanges that it makes us compute.
//! If all room is used, a network with more than its part is refused too, and any other newcomer
//! displaces the oldest IKE SA of the largest network: an honest peer leaves within a round trip,
//! so the oldest are those that never meant to. Peers whose address a connection names are counted
//! separately, and strangers leave room for them.

use crate::endpoint::EndpointConfig;
use crate::environment::Environment;
use crate::environment::stats::Discard;
use crate::output::{IkeSaId, Time};
use crate::sa::HalfOpenSource;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Counts of half-open IKE SAs, and of the computations that lead to one.
#[derive(Clone, Debug, Default)]
pub(crate) struct HalfOpens {
    strangers: Group,
    /// Peers whose address a connection names.
    named: Group,
    /// The claimant of each IKE SA when it was counted: connections may change before it leaves.
    claimants: BTreeMap<IkeSaId, Claimant>,
    refused: Refused,
}

/// Requests in this second that led to no IKE SA, and those before it with half the weight a
/// second. They too search the connections.
#[derive(Clone, Copy, Debug, Default)]
struct Refused {
    second: u64,
    count: usize,
}

impl Refused {
    fn at(self, now: Time) -> usize {
        let passed = now.0.as_secs().saturating_sub(self.second);
        u32::try_from(passed).ok().and_then(|passed| self.count.checked_shr(passed)).unwrap_or_default()
    }

    fn enter(&mut self, now: Time) {
        *self = Self { second: now.0.as_secs(), count: self.at(now).saturating_add(1) };
    }
}

/// The peer against which a half-open IKE SA counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claimant {
    pub(crate) source: HalfOpenSource,
    /// Number of connections whose `remote_addrs` name exactly this address.
    pub(crate) connections: usize,
}

impl Claimant {
    /// True for a peer that a connection names. An address that may be forged counts as a
    /// stranger's.
    pub(crate) fn is_named(self) -> bool {
        self.source.proven && self.connections > 0
    }

    /// The network that it counts for: of a peer that a connection names, its address alone.
    pub(super) fn network(self) -> IpAddr {
        self.keys().network
    }

    fn keys(self) -> CountingKeys {
        let addr = self.source.addr;
        if self.is_named() { CountingKeys::of_named(addr) } else { CountingKeys::of_stranger(addr) }
    }
}

/// The keys by which an address is counted.
#[derive(Clone, Copy)]
struct CountingKeys {
    source: IpAddr,
    network: IpAddr,
}

impl CountingKeys {
    fn of_named(addr: IpAddr) -> Self {
        Self { source: addr, network: addr }
    }

    /// A host can use any address of its IPv6 /64, and most sites get a /56, some a /48, for the
    /// asking.
    fn of_stranger(addr: IpAddr) -> Self {
        match addr {
            IpAddr::V4(v4) => {
                Self { source: addr, network: IpAddr::V4(Ipv4Addr::from_bits(v4.to_bits() & !0 << 8)) }
            }
            IpAddr::V6(v6) => {
                let prefix = |length: u32| Ipv6Addr::from_bits(v6.to_bits() & !0 << (128 - length));
                Self { source: IpAddr::V6(prefix(56)), network: IpAddr::V6(prefix(48)) }
            }
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    all: usize,
    /// Those that returned a cookie.
    proven: usize,
}

impl Counts {
    fn add(&mut self, proven: bool) {
        self.all = self.all.saturating_add(1);
        self.proven = self.proven.saturating_add(usize::from(proven));
    }

    fn subtract(&mut self, proven: bool) {
        self.all = self.all.saturating_sub(1);
        self.proven = self.proven.saturating_sub(usize::from(proven));
    }
}

/// Half-open IKE SAs that compete for the same room.
#[derive(Clone, Debug, Default)]
struct Group {
    total: usize,
    sources: BTreeMap<IpAddr, Counts>,
    networks: BTreeMap<IpAddr, Network>,
    /// A rank for each network with an IKE SA.
    ranks: BTreeSet<Rank>,
}

#[derive(Clone, Debug, Default)]
struct Network {
    counts: Counts,
    /// By age, because numbers grow. Computations that lead to an IKE SA have none.
    sas: BTreeSet<IkeSaId>,
}

/// Orders networks by size, and equal ones by the age of the oldest IKE SA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    size: usize,
    oldest: Reverse<IkeSaId>,
}

impl Network {
    fn rank(&self) -> Option<Rank> {
        self.sas.first().map(|oldest| Rank { size: self.sas.len(), oldest: Reverse(*oldest) })
    }
}

impl Group {
    fn source(&self, keys: CountingKeys) -> Counts {
        self.sources.get(&keys.source).copied().unwrap_or_default()
    }

    fn network(&self, keys: CountingKeys) -> Counts {
        self.networks.get(&keys.network).map(|network| network.counts).unwrap_or_default()
    }

    fn enter(&mut self, claimant: Claimant, id: Option<IkeSaId>) {
        let (keys, proven) = (claimant.keys(), claimant.source.proven);
        self.total = self.total.saturating_add(1);
        self.sources.entry(keys.source).or_default().add(proven);
        let network = self.networks.entry(keys.network).or_default();
        let before = network.rank();
        network.counts.add(proven);
        network.sas.extend(id);
        let after = network.rank();
        self.rerank(before, after);
    }

    fn leave(&mut self, claimant: Claimant, id: Option<IkeSaId>) {
        let (keys, proven) = (claimant.keys(), claimant.source.proven);
        self.total = self.total.saturating_sub(1);
        if let Some(counts) = self.sources.get_mut(&keys.source) {
            counts.subtract(proven);
            if counts.all == 0 {
                self.sources.remove(&keys.source);
            }
        }
        let Some(network) = self.networks.get_mut(&keys.network) else { return };
        let before = network.rank();
        network.counts.subtract(proven);
        if let Some(id) = id {
            network.sas.remove(&id);
        }
        let after = network.rank();
        if network.counts.all == 0 {
            self.networks.remove(&keys.network);
        }
        self.rerank(before, after);
    }

    fn rerank(&mut self, before: Option<Rank>, after: Option<Rank>) {
        if let Some(rank) = before {
            self.ranks.remove(&rank);
        }
        self.ranks.extend(after);
    }

    /// The oldest IKE SA of the largest network.
    fn first_to_go(&self) -> Option<IkeSaId> {
        self.ranks.last().map(|rank| rank.oldest.0)
    }
}

/// The decision on a request for a new IKE SA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    Admit,
    DemandCookie,
    Refuse(Discard),
}

/// Whether one more half-open IKE SA is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Room {
    Free,
    InPlaceOf(IkeSaId),
    None,
}

/// The part of a limit that strangers may use. The rest is for peers that connections name.
pub(super) fn of_strangers(limit: usize) -> usize {
    limit.saturating_sub(limit / 4)
}

impl HalfOpens {
    /// Decides on a request.
    ///
    /// Requests without a cookie may be forged. They count only towards the demand for cookies, so
    /// that nobody can use up another's part of the limit, and they displace nobody.
    pub(crate) fn admit(&self, config: &EndpointConfig, now: Time, claimant: Claimant) -> Admission {
        let (keys, limit) = (claimant.keys(), config.source_half_open_limit);
        let room = self.room(config, claimant);
        if !claimant.source.proven {
            let load = self.total().saturating_add(self.refused.at(now));
            let named = self.named.source(CountingKeys::of_named(claimant.source.addr)).all;
            let of_source = self.strangers.source(keys).all.saturating_add(named);
            let crowded = load >= config.cookie_threshold || of_source >= config.source_cookie_threshold;
            return if crowded || room != Room::Free { Admission::DemandCookie } else { Admission::Admit };
        }
        let crowded = if claimant.is_named() {
            self.named.source(keys).proven >= limit.max(claimant.connections)
        } else {
            // One network may have many honest peers (carrier NAT): while there is room, its size
            // is no reason to refuse one more.
            let network_is_full = || self.strangers.network(keys).proven >= config.network_half_open_limit;
            self.strangers.source(keys).proven >= limit || room != Room::Free && network_is_full()
        };
        match room {
            _ if crowded => Admission::Refuse(Discard::SourceLimit),
            Room::None => Admission::Refuse(Discard::HalfOpenLimit),
            Room::Free | Room::InPlaceOf(_) => Admission::Admit,
        }
    }

    fn room(&self, config: &EndpointConfig, claimant: Claimant) -> Room {
        let is_full = self.total() >= config.half_open_limit;
        let waits = !claimant.is_named() && self.strangers.total >= of_strangers(config.half_open_limit);
        if !is_full && !waits {
            return Room::Free;
        }
        let named = || self.named.first_to_go().filter(|_| claimant.is_named());
        self.strangers.first_to_go().or_else(named).map_or(Room::None, Room::InPlaceOf)
    }

    /// A request was answered without an IKE SA, and without a demand for a cookie.
    pub(crate) fn refused(&mut self, now: Time) {
        self.refused.enter(now);
    }

    pub(crate) fn total(&self) -> usize {
        self.strangers.total.saturating_add(self.named.total)
    }

    /// An IKE SA has become half-open.
    pub(crate) fn enter(&mut self, id: IkeSaId, claimant: Claimant) {
        self.leave(id);
        self.claimants.insert(id, claimant);
        self.group(claimant).enter(claimant, Some(id));
    }

    /// An IKE SA is not half-open any more, if it was.
    pub(crate) fn leave(&mut self, id: IkeSaId) {
        if let Some(claimant) = self.claimants.remove(&id) {
            self.group(claimant).leave(claimant, Some(id));
        }
    }

    /// A computation that leads to an IKE SA has begun.
    pub(super) fn begin(&mut self, claimant: Claimant) {
        self.group(claimant).enter(claimant, None);
    }

    /// Such a computation has ended.
    pub(super) fn end(&mut self, claimant: Claimant) {
        self.group(claimant).leave(claimant, None);
    }

    fn group(&mut self, claimant: Claimant) -> &mut Group {
        if claimant.is_named() { &mut self.named } else { &mut self.strangers }
    }
}

impl Environment {
    pub(crate) fn claimant(&self, source: HalfOpenSource) -> Claimant {
        Claimant { source, connections: self.loaded.connections.naming(source.addr) }
    }

    /// Makes room for one more half-open IKE SA. Returns false if that is impossible.
    pub(super) fn make_room(&mut self, now: Time, claimant: Claimant) -> bool {
        match self.half_opens.room(&self.config, claimant) {
            Room::Free => true,
            Room::InPlaceOf(id) => {
                self.evict_half_open(now, id);
                true
            }
            Room::None => false,
        }
    }

    fn evict_half_open(&mut self, now: Time, id: IkeSaId) {
        self.with_sa(now, id, |session| {
            let (remote, open) = (session.sa.path.remote, session.env.half_opens.total());
            session.env.effects.discard(session.now, Discard::HalfOpenEvicted, || {
                format!("deleted a half-open IKE_SA of {remote} for a newcomer: {open} are half open")
            });
            session.end_half_open("a newcomer took its place");
            Ok(())
        });
    }
}

#[cfg(test)]
mod tests;
