//! The IKE SAs of an endpoint and the ways to find one: number, our SPI, first request, child, peer, deadline.

use super::EndpointConfig;
use crate::config::Identity;
use crate::message::IkeSpi;
use crate::output::{ChildSaId, IkeSaId, Time};
use crate::sa::{IkeSa, InitKey};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// All IKE SAs. One that is being worked on is taken out and put back, so that its indexes are always right.
#[derive(Debug, Default)]
pub(crate) struct Table {
    sas: BTreeMap<IkeSaId, Entry>,
    by_spi: BTreeMap<IkeSpi, IkeSaId>,
    by_init: BTreeMap<InitKey, IkeSaId>,
    by_child: BTreeMap<ChildSaId, IkeSaId>,
    /// By the canonical form of the identity.
    by_identity: BTreeSet<(Identity, IkeSaId)>,
    by_addr: BTreeSet<(IpAddr, IkeSaId)>,
    timers: BTreeSet<(Time, IkeSaId)>,
}

#[derive(Debug)]
struct Entry {
    sa: IkeSa,
    deadline: Option<Time>,
}

impl Table {
    /// Takes an IKE SA out to work on it.
    pub(crate) fn take(&mut self, id: IkeSaId) -> Option<IkeSa> {
        let Entry { sa, deadline } = self.sas.remove(&id)?;
        self.by_spi.remove(&sa.our_spi());
        if let Some(key) = &sa.init {
            self.by_init.remove(key);
        }
        for child in &sa.children {
            self.by_child.remove(&child.id);
        }
        if let Some(identity) = &sa.remote_id {
            self.by_identity.remove(&(identity.canonical(), id));
        }
        self.by_addr.remove(&(sa.path.remote.ip(), id));
        if let Some(deadline) = deadline {
            self.timers.remove(&(deadline, id));
        }
        Some(sa)
    }

    /// Puts an IKE SA in, or back.
    pub(crate) fn put(&mut self, sa: IkeSa, config: &EndpointConfig) {
        let deadline = sa.deadline(config);
        if let Some(deadline) = deadline {
            self.timers.insert((deadline, sa.id));
        }
        if let Some(key) = sa.init {
            self.by_init.insert(key, sa.id);
        }
        for child in &sa.children {
            self.by_child.insert(child.id, sa.id);
        }
        if let Some(identity) = &sa.remote_id {
            self.by_identity.insert((identity.canonical(), sa.id));
        }
        self.by_addr.insert((sa.path.remote.ip(), sa.id));
        self.by_spi.insert(sa.our_spi(), sa.id);
        self.sas.insert(sa.id, Entry { sa, deadline });
    }

    pub(crate) fn get(&self, id: IkeSaId) -> Option<&IkeSa> {
        self.sas.get(&id).map(|entry| &entry.sa)
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &IkeSa> {
        self.sas.values().map(|entry| &entry.sa)
    }

    /// The IKE SA for which we chose that SPI.
    pub(crate) fn by_spi(&self, ours: IkeSpi) -> Option<&IkeSa> {
        self.by_spi.get(&ours).and_then(|id| self.get(*id))
    }

    /// The IKE SA that this very IKE_SA_INIT request made.
    pub(crate) fn by_init(&self, key: &InitKey) -> Option<&IkeSa> {
        self.by_init.get(key).and_then(|id| self.get(*id))
    }

    /// The IKE SA of a Child SA.
    pub(crate) fn by_child(&self, child: ChildSaId) -> Option<&IkeSa> {
        self.by_child.get(&child).and_then(|id| self.get(*id))
    }

    /// The IKE SAs between the same identities, of the same connection. Elsewhere another CA may vouch, for whom it likes:
    /// who is trusted for one connection must not touch the SAs of another.
    pub(crate) fn between_the_same<'a>(&'a self, sa: &'a IkeSa) -> impl Iterator<Item = &'a IkeSa> {
        let others = sa.remote_id.iter().flat_map(|identity| self.by_identity(identity));
        others.filter(|other| {
            other.connection == sa.connection && other.local_id == sa.local_id && other.id != sa.id
        })
    }

    /// The IKE SAs whose peer is authenticated as that identity, of whatever connection.
    pub(crate) fn by_identity(&self, identity: &Identity) -> impl DoubleEndedIterator<Item = &IkeSa> {
        let identity = identity.canonical();
        let all = (identity.clone(), IkeSaId(0))..=(identity, IkeSaId(u64::MAX));
        self.by_identity.range(all).filter_map(|(_, id)| self.get(*id))
    }

    /// The IKE SAs with a peer at that address.
    pub(crate) fn by_addr(&self, addr: IpAddr) -> impl Iterator<Item = &IkeSa> {
        let all = (addr, IkeSaId(0))..=(addr, IkeSaId(u64::MAX));
        self.by_addr.range(all).filter_map(|(_, id)| self.get(*id))
    }

    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.timers.first().map(|(time, _)| *time)
    }

    /// The IKE SAs whose deadline has come.
    pub(crate) fn due(&self, now: Time) -> Vec<IkeSaId> {
        self.timers.iter().take_while(|(time, _)| *time <= now).map(|(_, id)| *id).collect()
    }
}
