//! The loaded connections: checked before loading, found by name, by addresses and by child.

use crate::cert::Certificate;
use crate::config::{Child, ChildMode, Connection, EspProposal, Hosts, IkeProposal, StartAction, TsSpec};
use crate::endpoint::{InitiateError, LoadError};
use crate::environment::record::{ChildRecord, is_loss};
use crate::environment::remotes::Remotes;
use crate::output::{Path, Reason, Time};
use crate::sa::IkeSa;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use testudo_ipsec::selector::AddrRange;

/// All connections.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    by_name: BTreeMap<String, LoadedConnection>,
    remotes: Remotes,
    /// The CAs that they name.
    cas: NamedCas,
}

/// A connection, and the records of its children.
#[derive(Debug)]
struct LoadedConnection {
    connection: Arc<Connection>,
    /// In the order of its children.
    records: Box<[ChildRecord]>,
}

impl LoadedConnection {
    /// Children of the same names keep their records from the former connection.
    fn new(now: Time, connection: Connection, before: Option<&Self>) -> Self {
        let known: BTreeMap<&str, &ChildRecord> = before.into_iter().flat_map(Self::children).collect();
        let record = |child: &Child| match known.get(child.name.as_str()) {
            Some(record) => (*record).clone(),
            None => ChildRecord::new(now),
        };
        let records = connection.children.iter().map(record).collect();
        Self { connection: Arc::new(connection), records }
    }

    fn children(&self) -> impl Iterator<Item = (&str, &ChildRecord)> {
        self.connection.children.iter().map(|child| child.name.as_str()).zip(&self.records)
    }
}

/// CAs by their DER, each with the number of connections that name it: many connections name few
/// CAs.
#[derive(Debug, Default)]
struct NamedCas(BTreeMap<Vec<u8>, (Certificate, usize)>);

impl NamedCas {
    fn add(&mut self, connection: &Connection) {
        for ca in connection.remote_rounds().flat_map(|remote| &remote.cacerts) {
            self.0.entry(ca.to_der().to_vec()).or_insert_with(|| (ca.clone(), 0)).1 += 1;
        }
    }

    fn remove(&mut self, connection: &Connection) {
        for ca in connection.remote_rounds().flat_map(|remote| &remote.cacerts) {
            let Some((_, count)) = self.0.get_mut(ca.to_der()) else { continue };
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.0.remove(ca.to_der());
            }
        }
    }
}

impl Connections {
    /// Loads a connection in place of one of the same name, which is returned.
    pub(crate) fn load(
        &mut self,
        now: Time,
        connection: Connection,
    ) -> Result<Option<Arc<Connection>>, LoadError> {
        check(&connection)?;
        let before = self.take(&connection.name);
        self.cas.add(&connection);
        if let Some(addrs) = peers(&connection) {
            self.remotes.add(&connection.name, &addrs);
        }
        let name = connection.name.clone();
        self.by_name.insert(name, LoadedConnection::new(now, connection, before.as_ref()));
        Ok(before.map(|before| before.connection))
    }

    /// Removes the connection of this name.
    pub(crate) fn unload(&mut self, name: &str) -> Option<Arc<Connection>> {
        self.take(name).map(|loaded| loaded.connection)
    }

    fn take(&mut self, name: &str) -> Option<LoadedConnection> {
        let loaded = self.by_name.remove(name)?;
        if let Some(addrs) = peers(&loaded.connection) {
            self.remotes.remove(name, &addrs);
        }
        self.cas.remove(&loaded.connection);
        Some(loaded)
    }

    /// The records of a connection's children, in the order of the configuration.
    pub(crate) fn records(&self, connection: &str) -> impl Iterator<Item = (&Child, &ChildRecord)> {
        let loaded = self.by_name.get(connection).into_iter();
        loaded.flat_map(|loaded| loaded.connection.children.iter().zip(&loaded.records))
    }

    /// The record of a child, if it is configured.
    pub(crate) fn record_mut(&mut self, connection: &str, child: &str) -> Option<&mut ChildRecord> {
        let LoadedConnection { connection, records } = self.by_name.get_mut(connection)?;
        let place = connection.children.iter().position(|configured| configured.name == child)?;
        records.get_mut(place)
    }

    /// Sets or removes the trap of a child.
    pub(crate) fn set_trap(&mut self, connection: &str, child: &str, trap: bool) {
        let Some(loaded) = self.by_name.get_mut(connection) else { return };
        let mut after = Connection::clone(&loaded.connection);
        for child in after.children.iter_mut().filter(|found| found.name == child) {
            child.start_action = child.start_action.with_trap(trap);
        }
        loaded.connection = Arc::new(after);
    }

    /// Sets the addresses of a connection's DNS name.
    pub(crate) fn readdress(&mut self, connection: &str, name: &str, addrs: &[IpAddr]) {
        let Some(loaded) = self.by_name.get_mut(connection) else { return };
        let mut after = Connection::clone(&loaded.connection);
        after.names.iter_mut().filter(|host| host.name == name).for_each(|host| host.addrs = addrs.to_vec());
        if let Some(addrs) = peers(&loaded.connection) {
            self.remotes.remove(connection, &addrs);
        }
        if let Some(addrs) = peers(&after) {
            self.remotes.add(connection, &addrs);
        }
        loaded.connection = Arc::new(after);
    }

    /// The CAs that connections name.
    pub(crate) fn cas(&self) -> impl Iterator<Item = &Certificate> {
        self.cas.0.values().map(|(ca, _)| ca)
    }

    pub(crate) fn get(&self, name: &str) -> Option<Arc<Connection>> {
        self.by_name.get(name).map(|loaded| loaded.connection.clone())
    }

    pub(crate) fn find(&self, name: &str) -> Option<&Connection> {
        self.by_name.get(name).map(|loaded| &*loaded.connection)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Connection>> {
        self.by_name.values().map(|loaded| &loaded.connection)
    }

    /// The connection of a child to negotiate; without a connection's name the first one that has
    /// such a child.
    pub(crate) fn child(
        &self,
        connection: Option<&str>,
        child: &str,
    ) -> Result<Arc<Connection>, InitiateError> {
        let loaded = match connection {
            None => self.by_name.values().find(|loaded| loaded.connection.child(child).is_some()),
            Some(name) => {
                let unknown = || InitiateError::UnknownConnection(name.into());
                Some(self.by_name.get(name).ok_or_else(unknown)?)
            }
        };
        let found_in = loaded.map(|loaded| &loaded.connection);
        let found = found_in.and_then(|connection| Some((connection, connection.child(child)?)));
        let (found_in, found) = found.ok_or_else(|| InitiateError::UnknownChild(child.into()))?;
        match found.mode {
            ChildMode::Tunnel | ChildMode::Transport => Ok(found_in.clone()),
            ChildMode::Pass | ChildMode::Drop => Err(InitiateError::NotNegotiated(child.into())),
        }
    }

    /// Number of connections that name exactly this address of a peer.
    pub(crate) fn naming(&self, remote: IpAddr) -> usize {
        self.remotes.naming(remote)
    }

    /// The connections that accept a peer between these addresses, the most specific first.
    pub(crate) fn between(&self, local: IpAddr, remote: IpAddr) -> Vec<Arc<Connection>> {
        let possible = self.remotes.with(remote).into_iter().filter_map(|name| self.by_name.get(name));
        let possible = possible.map(|loaded| &loaded.connection);
        let mut found: Vec<_> = possible.filter_map(|c| Some((c.address_fit(local, remote)?, c))).collect();
        // A stable sort: among equals the order of names stays.
        found.sort_by_key(|(fit, _)| std::cmp::Reverse(*fit));
        found.into_iter().map(|(_, c)| c.clone()).collect()
    }
}

/// The address ranges of a connection's peers; empty: any. `None` if it has no peers, or none of
/// its names is resolved.
fn peers(connection: &Connection) -> Option<Vec<AddrRange>> {
    let hosts = connection.remote_hosts();
    let addrs: Vec<AddrRange> = hosts.ranges().collect();
    (connection.has_peers() && (hosts.is_any() || !addrs.is_empty())).then_some(addrs)
}

/// Checks that the connection can be used.
pub(crate) fn check(connection: &Connection) -> Result<(), LoadError> {
    let empty = |connection: String, what| Err(LoadError::Empty { connection, what });
    let lacks = |p: &IkeProposal| p.encryption.is_empty() || p.prf.is_empty() || p.ke.is_empty();
    if connection.proposals.is_empty() || connection.proposals.iter().any(lacks) {
        return empty(connection.name.clone(), "proposals, or a kind of algorithm in one,");
    }
    // An AEAD has no separate integrity algorithm, any other cipher needs one (RFC 5282 §8, RFC
    // 7296 §3.3).
    let unfit = |p: &IkeProposal| p.encryption.iter().any(|e| e.is_aead() != p.integrity.is_empty());
    if connection.proposals.iter().any(unfit) {
        return Err(LoadError::Integrity(connection.name.clone()));
    }
    let mut names = BTreeSet::new();
    for child in &connection.children {
        let full_name = || format!("{}.{}", connection.name, child.name);
        if !names.insert(&child.name) {
            return Err(LoadError::DuplicateChild {
                connection: connection.name.clone(),
                child: child.name.clone(),
            });
        }
        if child.local_ts.is_empty() || child.remote_ts.is_empty() {
            return empty(full_name(), "local_ts or remote_ts");
        }
        if !child.mode.is_negotiated() {
            continue;
        }
        let lacks = |p: &EspProposal| (p.is_ah() && p.integrity.is_empty()) || p.esn.is_empty();
        if child.proposals.is_empty() || child.proposals.iter().any(lacks) {
            return empty(full_name(), "esp_proposals, or a kind of algorithm in one,");
        }
        let actions = [
            ("start_action", child.start_action),
            ("dpd_action", child.dpd_action),
            ("close_action", child.close_action),
        ];
        let has_peer = |action: StartAction| {
            connection.remote_hosts().has_single() || connection.takes_anybody(child) && !action.starts()
        };
        let acts = actions.into_iter().find(|(_, action)| *action != StartAction::None && !has_peer(*action));
        if let Some((key, action)) = acts {
            let (connection, child) = (connection.name.clone(), child.name.clone());
            return Err(LoadError::NoPeer { connection, child, key, action });
        }
    }
    Ok(())
}

impl Connection {
    /// The child of this name.
    pub fn child(&self, name: &str) -> Option<&Child> {
        self.children.iter().find(|c| c.name == name)
    }

    /// True if it has a child of this name, with SAs.
    pub(crate) fn has_sas(&self, child: &str) -> bool {
        self.child(child).is_some_and(|child| child.mode.is_negotiated())
    }

    /// The path between these addresses, with the ports of the connection.
    pub(crate) fn path(&self, local: IpAddr, remote: IpAddr) -> Path {
        Path {
            local: SocketAddr::new(local, self.local_port),
            remote: SocketAddr::new(remote, self.remote_port),
        }
    }

    /// The address to initiate to: the first single one.
    pub(crate) fn peer_address(&self) -> Option<IpAddr> {
        self.remote_hosts().singles().next()
    }

    /// True if the peer of the child is whatever host a packet is for, which is possible only in
    /// transport mode.
    pub fn takes_anybody(&self, child: &Child) -> bool {
        child.mode == ChildMode::Transport && !self.remote_hosts().has_single()
    }

    /// The child as offered to this peer. If a trap takes any host, the peer's selectors are its
    /// own address only.
    pub(crate) fn offered(&self, child: &Child, peer: IpAddr) -> Child {
        let mut offered = child.clone();
        if !self.takes_anybody(child) || !child.start_action.traps() {
            return offered;
        }
        offered.remote_ts.retain_mut(|spec| {
            if let TsSpec::Fixed(ts) = *spec {
                let (protocol, port_start, port_end) = (ts.protocol, ts.port_start, ts.port_end);
                *spec = TsSpec::Dynamic { protocol, port_start, port_end };
                return ts.addrs.contains(peer);
            }
            true
        });
        // An SA that the peer initiated may be a tunnel for other addresses.
        if offered.remote_ts.is_empty() { child.clone() } else { offered }
    }

    /// How well the connection fits a pair of addresses, 0 (any to any) to 4 (both single); `None`:
    /// not at all.
    pub(crate) fn address_fit(&self, local: IpAddr, remote: IpAddr) -> Option<u8> {
        let side = |hosts: Hosts<'_>, addr| {
            if hosts.is_any() {
                return Some(0);
            }
            let containing = hosts.ranges().filter(|r| r.contains(addr));
            containing.map(|r| if r.start() == r.end() { 2 } else { 1 }).max()
        };
        Some(side(self.local_hosts(), local)? + side(self.remote_hosts(), remote)?)
    }
}

impl Connections {
    /// A child has got a Child SA.
    pub(crate) fn note_child_up(&mut self, now: Time, connection: &str, child: &str) {
        if let Some(record) = self.record_mut(connection, child) {
            record.came_up(now);
        }
    }

    /// A child has lost a Child SA.
    pub(crate) fn note_child_down(&mut self, now: Time, connection: &str, child: &str, reason: &Reason) {
        let Some(record) = self.record_mut(connection, child).filter(|_| is_loss(reason)) else {
            return;
        };
        record.went_down(now);
        // The peer that started again is up with its new IKE SA.
        if *reason != Reason::Replaced {
            record.failed(now, reason.to_string());
        }
    }

    /// This node continues with the children of an IKE SA.
    pub(crate) fn note_children_here(&mut self, sa: &IkeSa) {
        for child in sa.children.iter().filter(|child| child.is_up()) {
            self.note_child_up(child.installed, &sa.connection, &child.name);
        }
    }

    /// Another node continues with the children of an IKE SA.
    pub(crate) fn note_children_elsewhere(&mut self, now: Time, sa: &IkeSa) {
        for child in &sa.children {
            if let Some(record) = self.record_mut(&sa.connection, &child.name) {
                record.went_down(now);
            }
        }
    }

    /// An attempt for a child has failed.
    pub(crate) fn note_failure(&mut self, now: Time, connection: &str, child: &str, why: String) {
        if let Some(record) = self.record_mut(connection, child) {
            record.failed(now, why);
        }
    }
}
