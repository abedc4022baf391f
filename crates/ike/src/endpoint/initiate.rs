//! Initiation by the operator, by traffic, and by `start_action`.

use super::report::ORDINARY;
use super::{Endpoint, InitiateError};
use crate::alloc::Home;
use crate::config::{AuthMethod, Connection};
use crate::exchange::is_host;
use crate::message::IkeSpi;
use crate::output::{ChildSaId, Event, IkeSaId, Path, Reason, Time};
use crate::sa::{Attempt, IkeSa, Phase, Reauth, Task};
use crate::suite::{IkeSpis, Role};
use std::net::IpAddr;

/// IKE SAs of one connection that packets to peers of any address may have begun and that are not
/// established yet.
const MAX_TRAPPED: usize = 256;

/// How a new IKE SA begins.
pub(super) struct Beginning<'a> {
    pub(super) id: IkeSaId,
    /// The child that it is for; empty for the IKE SA alone.
    pub(super) child: &'a str,
    pub(super) path: Path,
    /// In the place of which.
    pub(super) reauth: Option<Reauth>,
    pub(super) home: Home<'a>,
}

/// A child that need not be initiated again.
enum Present {
    Up(IkeSaId, ChildSaId),
    OnItsWay(IkeSaId),
}

impl Endpoint {
    /// See [`Endpoint::initiate`]; `report`: tell also about what is up already.
    pub(crate) fn bring_up(
        &mut self,
        now: Time,
        connection: Option<&str>,
        child: &str,
        report: bool,
    ) -> Result<IkeSaId, InitiateError> {
        let connection = self.connections.child(connection, child)?;
        if let Some(id) = self.names.waiting_for(&connection.name, child) {
            return Ok(id);
        }
        match self.present(&connection.name, child, None) {
            Some(Present::OnItsWay(ike)) => return Ok(ike),
            Some(Present::Up(ike, id)) => {
                if report {
                    self.initiate_done(now, &connection.name, ike, child, Ok(id));
                }
                return Ok(ike);
            }
            None => {}
        }
        if let Some(ike) = self.carrier(&connection.name, None) {
            self.add_child(now, ike, child);
            return Ok(ike);
        }
        self.begin_or_wait(now, &connection, child)
    }

    /// See [`Endpoint::acquire_for`]: for a child that takes peers of any address, the peer is the
    /// host that the packet is for.
    pub(crate) fn bring_up_towards(
        &mut self,
        now: Time,
        connection: &str,
        child: &str,
        (local, remote): (IpAddr, IpAddr),
    ) -> Result<IkeSaId, InitiateError> {
        let connection = self.connections.child(Some(connection), child)?;
        if !connection.child(child).is_some_and(|child| connection.takes_anybody(child)) {
            return self.bring_up(now, Some(&connection.name), child, false);
        }
        let between_hosts = is_host(&remote) && self.local_addrs.contains(&local);
        if !between_hosts || connection.address_fit(local, remote).is_none() {
            return Err(InitiateError::NotBetweenHosts {
                connection: connection.name.clone(),
                local,
                remote,
            });
        }
        match self.present(&connection.name, child, Some(remote)) {
            Some(Present::OnItsWay(ike) | Present::Up(ike, _)) => return Ok(ike),
            None => {}
        }
        if let Some(ike) = self.carrier(&connection.name, Some(remote)) {
            self.add_child(now, ike, child);
            return Ok(ike);
        }
        let coming = self.table.of_connection(&connection.name).filter(|sa| !sa.is_established());
        if coming.count() >= MAX_TRAPPED {
            return Err(InitiateError::TooMany { connection: connection.name.clone(), most: MAX_TRAPPED });
        }
        let home = self.home_of(&connection.name, child);
        let home = home.ok_or_else(|| InitiateError::Elsewhere(connection.name.clone()))?;
        let path = connection.path(local, remote);
        let beginning = Beginning { id: self.new_ike_id(), child, path, reauth: None, home };
        self.begin_ike_sa_at(now, &connection, beginning)
    }

    /// See [`Endpoint::initiate_alone`].
    pub(crate) fn bring_up_alone(&mut self, now: Time, connection: &str) -> Result<IkeSaId, InitiateError> {
        let unknown = || InitiateError::UnknownConnection(connection.into());
        let connection = self.connections.get(connection).ok_or_else(unknown)?;
        if !connection.has_peers() {
            return Err(InitiateError::NoIkeSa(connection.name.clone()));
        }
        let up = self.carrier(&connection.name, None);
        let waiting = up.or_else(|| self.names.first_waiting(&connection.name));
        let coming = waiting.or_else(|| {
            let ours = |sa: &&IkeSa| sa.phase.attempt().is_some();
            self.table.of_connection(&connection.name).find(ours).map(|sa| sa.id)
        });
        match coming {
            Some(ike) => Ok(ike),
            None => self.begin_or_wait(now, &connection, ""),
        }
    }

    /// The IKE SA of a connection, with that peer, on which a further child can be made: the
    /// newest.
    fn carrier(&self, connection: &str, peer: Option<IpAddr>) -> Option<IkeSaId> {
        let able = |sa: &&IkeSa| sa.is_in_charge() && sa.reauth != Some(Reauth::Done) && is_with(sa, peer);
        self.table.of_connection(connection).rev().find(able).map(|sa| sa.id)
    }

    fn add_child(&mut self, now: Time, ike: IkeSaId, child: &str) {
        self.with_sa(now, ike, |endpoint, sa| {
            endpoint.commit(sa);
            sa.outgoing.queue(Task::NewChild { name: child.to_owned(), tries: 1 });
            endpoint.next_task(now, sa)
        });
    }

    /// Begins an IKE SA for a child, or for itself. Where the connection has names, they are looked
    /// up before.
    fn begin_or_wait(
        &mut self,
        now: Time,
        connection: &Connection,
        child: &str,
    ) -> Result<IkeSaId, InitiateError> {
        let home = self.home_of(&connection.name, child);
        let home = home.ok_or_else(|| InitiateError::Elsewhere(connection.name.clone()))?;
        if connection.names.iter().next().is_some() {
            return Ok(self.wait_for_names(connection, child));
        }
        let path = self.initial_path(connection)?;
        let beginning = Beginning { id: self.new_ike_id(), child, path, reauth: None, home };
        self.begin_ike_sa_at(now, connection, beginning)
    }

    /// Initiates an IKE SA.
    pub(super) fn begin_ike_sa_at(
        &mut self,
        now: Time,
        connection: &Connection,
        beginning: Beginning<'_>,
    ) -> Result<IkeSaId, InitiateError> {
        let Beginning { id, child, path, reauth, home } = beginning;
        if let Some(method) = self.cannot_prove(connection, path) {
            let name = connection.name.clone();
            return Err(match method {
                AuthMethod::Psk => InitiateError::NoSecret(name),
                AuthMethod::Pubkey { .. } => InitiateError::NoPrivateKey(name),
            });
        }
        if connection.ppk.required && !self.has_ppk_for(connection) {
            return Err(InitiateError::NoPpk(connection.name.clone()));
        }
        let spis = IkeSpis { initiator: IkeSpi::ZERO, responder: IkeSpi::ZERO };
        let mut sa = IkeSa::new(id, Role::Initiator, spis, connection.name.clone(), path, now);
        sa.reauth = reauth;
        let line = format!("initiating IKE_SA {}[{}] to {}", connection.name, id.0, path.remote.ip());
        self.log(&sa, ORDINARY, line);
        let attempt = Attempt { child: child.to_owned(), number: 1, outdated: false };
        self.begin_attempt(now, &mut sa, connection, attempt, path, home).map_err(InitiateError::Failed)?;
        self.put(sa);
        Ok(id)
    }

    /// The peer makes no further child on the IKE SA (RFC 7296 §1.3): the child gets one of its own.
    pub(crate) fn on_its_own(&mut self, now: Time, sa: &IkeSa, child: &str) {
        self.log(
            sa,
            ORDINARY,
            format!("the peer makes no further CHILD_SA: {child} gets an IKE_SA of its own"),
        );
        let connection = self.connections.child(Some(&sa.connection), child);
        let home = Home::Renewing(sa.our_spi().shard());
        let begun = connection.and_then(|connection| {
            let path = self.path_again(&connection, sa)?;
            let beginning = Beginning { id: self.new_ike_id(), child, path, reauth: None, home };
            self.begin_ike_sa_at(now, &connection, beginning)
        });
        match begun {
            Ok(to) => self.event(Event::InitiateMoved { from: sa.id, to, child: child.to_owned() }),
            Err(error) => self.child_failed(now, sa, child, Reason::Refused(error.to_string())),
        }
    }

    fn present(&self, connection: &str, child: &str, peer: Option<IpAddr>) -> Option<Present> {
        let live = |sa: &&IkeSa| sa.is_live() && is_with(sa, peer);
        self.table.of_connection(connection).filter(live).find_map(|sa| match &sa.phase {
            Phase::Established if sa.is_asking_for(child) => Some(Present::OnItsWay(sa.id)),
            Phase::Established => {
                let named = |c: &&crate::sa::ChildSa| c.name == child && c.is_installed();
                sa.children.iter().filter(named).find_map(|found| match found.is_missed() {
                    // Its renewal brings it back.
                    true => sa.is_renewing(found.id).then_some(Present::OnItsWay(sa.id)),
                    false => Some(Present::Up(sa.id, found.id)),
                })
            }
            phase => {
                let attempt = phase.attempt().filter(|attempt| attempt.child == child);
                attempt.map(|_| Present::OnItsWay(sa.id))
            }
        })
    }

    /// From which of our addresses to which of the peer's a connection begins.
    pub(crate) fn initial_path(&self, connection: &Connection) -> Result<Path, InitiateError> {
        let hosts = connection.remote_hosts();
        let first = hosts.singles().next().ok_or_else(|| match hosts.has_single() {
            true => InitiateError::Unresolved(connection.name.clone()),
            false => InitiateError::NoPeer(connection.name.clone()),
        })?;
        let found = hosts.singles().find_map(|peer| Some((self.address_towards(connection, peer)?, peer)));
        let (local, remote) = found.ok_or_else(|| InitiateError::NoLocalAddress {
            connection: connection.name.clone(),
            peer: first,
        })?;
        Ok(connection.path(local, remote))
    }

    /// From where to where an attempt begins once more. A peer whose address the connection does
    /// not say is where it was looked for before.
    pub(crate) fn path_again(&self, connection: &Connection, sa: &IkeSa) -> Result<Path, InitiateError> {
        if connection.remote_hosts().has_single() {
            return self.initial_path(connection);
        }
        Ok(connection.path(sa.path.local.ip(), sa.path.remote.ip()))
    }

    /// The first address that the connection names and the host has, else the host's first that it allows. If the host has
    /// none of them, the first named all the same: that it cannot be used will show.
    fn address_towards(&self, connection: &Connection, peer: IpAddr) -> Option<IpAddr> {
        let hosts = connection.local_hosts();
        let allowed = self.local_addrs.iter().copied().filter(|addr| hosts.contains(*addr));
        let present = hosts.singles().filter(|addr| self.local_addrs.contains(addr));
        present.chain(allowed).chain(hosts.singles()).find(|addr| addr.is_ipv4() == peer.is_ipv4())
    }
}

fn is_with(sa: &IkeSa, peer: Option<IpAddr>) -> bool {
    peer.is_none_or(|peer| sa.path.remote.ip() == peer)
}
