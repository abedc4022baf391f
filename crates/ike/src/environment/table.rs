//! The IKE SAs of an endpoint, and the ways to find one: number, our SPI, first request, child,
//! peer, deadline.

use crate::config::Identity;
use crate::endpoint::EndpointConfig;
use crate::message::IkeSpi;
use crate::output::{ChildSaId, IkeSaId, Time};
use crate::sa::{IkeSa, InitKey};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::ops::Bound;
use std::time::Duration;
use testudo_base::spi::Spi;

/// All IKE SAs. One that is being worked on is taken out and put back, so that the indexes are
/// always right.
#[derive(Debug, Default)]
pub(crate) struct Table {
    /// Boxed: the nodes of the tree have room for eleven, and are half empty.
    sas: BTreeMap<IkeSaId, Entry>,
    by_spi: BTreeMap<IkeSpi, IkeSaId>,
    /// By the hash of the key: the SA has the key itself.
    by_init: BTreeSet<(u64, IkeSaId)>,
    by_child: BTreeMap<ChildSaId, IkeSaId>,
    /// By our ESP SPI.
    by_esp_spi: BTreeMap<Spi, IkeSaId>,
    /// By the hash of the connection's name.
    by_connection: BTreeSet<(u64, IkeSaId)>,
    /// By the hash of the identity's canonical form.
    by_identity: BTreeSet<(u64, IkeSaId)>,
    by_addr: BTreeSet<(u64, IkeSaId)>,
    timers: BTreeSet<(Moment, IkeSaId)>,
    /// The last that [`Table::due`] has given, where it has not given all.
    served: Option<(Moment, IkeSaId)>,
}

/// IKE SAs served in one go. Thousands may be due at once, when a network comes back, and all else
/// would wait for all of them.
const MAX_IN_ONE_GO: usize = 256;

/// A [`Time`] in half the memory: in nanoseconds. A time beyond their range, centuries ahead, never
/// comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Moment(u64);

impl Moment {
    const NEVER: Self = Self(u64::MAX);

    fn time(self) -> Time {
        Time(Duration::from_nanos(self.0))
    }
}

impl From<Time> for Moment {
    fn from(time: Time) -> Self {
        Self(u64::try_from(time.0.as_nanos()).unwrap_or(u64::MAX))
    }
}

#[derive(Debug)]
struct Entry {
    sa: Box<IkeSa>,
    deadline: Moment,
}

impl Table {
    /// Takes an IKE SA out to work on it.
    pub(crate) fn take(&mut self, id: IkeSaId) -> Option<Box<IkeSa>> {
        let Entry { sa, deadline } = self.sas.remove(&id)?;
        self.by_spi.remove(&sa.our_spi());
        if let Some(key) = &sa.init {
            self.by_init.remove(&(hash(key), id));
        }
        for child in &sa.children {
            self.by_child.remove(&child.id);
            self.by_esp_spi.remove(&child.params.spi_in);
        }
        if let Some(identity) = &sa.remote_id {
            self.by_identity.remove(&(hash(&identity.canonical()), id));
        }
        self.by_connection.remove(&(hash(&sa.connection), id));
        self.by_addr.remove(&(hash(&sa.path.remote.ip()), id));
        self.timers.remove(&(deadline, id));
        Some(sa)
    }

    /// Puts an IKE SA in, or back.
    pub(crate) fn put(&mut self, sa: Box<IkeSa>, config: &EndpointConfig) {
        let deadline = sa.deadline(config).map_or(Moment::NEVER, Moment::from);
        if deadline != Moment::NEVER {
            self.timers.insert((deadline, sa.id));
        }
        if let Some(key) = &sa.init {
            self.by_init.insert((hash(key), sa.id));
        }
        for child in &sa.children {
            self.by_child.insert(child.id, sa.id);
            self.by_esp_spi.insert(child.params.spi_in, sa.id);
        }
        if let Some(identity) = &sa.remote_id {
            self.by_identity.insert((hash(&identity.canonical()), sa.id));
        }
        self.by_connection.insert((hash(&sa.connection), sa.id));
        self.by_addr.insert((hash(&sa.path.remote.ip()), sa.id));
        self.by_spi.insert(sa.our_spi(), sa.id);
        self.sas.insert(sa.id, Entry { sa, deadline });
    }

    pub(crate) fn get(&self, id: IkeSaId) -> Option<&IkeSa> {
        self.sas.get(&id).map(|entry| &*entry.sa)
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &IkeSa> {
        self.sas.values().map(|entry| &*entry.sa)
    }

    /// The IKE SA with this SPI of ours.
    pub(crate) fn by_spi(&self, ours: IkeSpi) -> Option<&IkeSa> {
        self.by_spi.get(&ours).and_then(|id| self.get(*id))
    }

    /// The IKE SA that exactly this IKE_SA_INIT request has made.
    pub(crate) fn by_init(&self, key: &InitKey) -> Option<&IkeSa> {
        of(&self.by_init, hash(key)).filter_map(|id| self.get(id)).find(|sa| sa.init.as_ref() == Some(key))
    }

    /// The IKE SA of a Child SA.
    pub(crate) fn by_child(&self, child: ChildSaId) -> Option<&IkeSa> {
        self.by_child.get(&child).and_then(|id| self.get(*id))
    }

    /// The IKE SA of the Child SA with this SPI of ours.
    pub(crate) fn by_esp_spi(&self, spi_in: Spi) -> Option<&IkeSa> {
        self.by_esp_spi.get(&spi_in).and_then(|id| self.get(*id))
    }

    /// The IKE SAs of a connection, by number.
    pub(crate) fn of_connection<'a>(
        &'a self,
        connection: &'a str,
    ) -> impl DoubleEndedIterator<Item = &'a IkeSa> {
        let found = of(&self.by_connection, hash(&connection)).filter_map(|id| self.get(id));
        found.filter(move |sa| sa.connection == connection)
    }

    /// The IKE SAs whose peer is authenticated with this identity, in any spelling and on any
    /// connection.
    pub(crate) fn by_identity(&self, identity: &Identity) -> impl DoubleEndedIterator<Item = &IkeSa> {
        let identity = identity.canonical();
        let found = of(&self.by_identity, hash(&identity)).filter_map(|id| self.get(id));
        found.filter(move |sa| sa.remote_id.as_ref().is_some_and(|remote| remote.canonical() == identity))
    }

    /// The IKE SAs with a peer at that address.
    pub(crate) fn by_addr(&self, addr: IpAddr) -> impl DoubleEndedIterator<Item = &IkeSa> {
        let found = of(&self.by_addr, hash(&addr)).filter_map(|id| self.get(id));
        found.filter(move |sa| sa.path.remote.ip() == addr)
    }

    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.timers.first().map(|(moment, _)| moment.time())
    }

    /// IKE SAs whose deadline has come: those that do not fit into one go come next, before any
    /// comes again.
    pub(crate) fn due(&mut self, now: Time) -> Vec<IkeSaId> {
        let last = (Moment::from(now), IkeSaId(u64::MAX));
        let first = self.served.filter(|served| *served < last).map_or(Bound::Unbounded, Bound::Excluded);
        let due = self.timers.range((first, Bound::Included(last))).take(MAX_IN_ONE_GO);
        let due: Vec<(Moment, IkeSaId)> = due.copied().collect();
        self.served = due.last().copied().filter(|_| due.len() == MAX_IN_ONE_GO);
        due.into_iter().map(|(_, id)| id).collect()
    }
}

/// Equal on every node and in every run. A peer that causes collisions only causes a few more
/// comparisons.
pub(super) fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

fn of(index: &BTreeSet<(u64, IkeSaId)>, hash: u64) -> impl DoubleEndedIterator<Item = IkeSaId> + '_ {
    index.range((hash, IkeSaId(0))..=(hash, IkeSaId(u64::MAX))).map(|(_, id)| *id)
}
