//! Initiation by the operator, by traffic, and by `start_action`.

use super::report::ORDINARY;
use super::{Endpoint, InitiateError};
use crate::alloc::Home;
use crate::config::{AuthMethod, Connection};
use crate::message::IkeSpi;
use crate::output::{ChildSaId, Event, IkeSaId, Path, Reason, Time};
use crate::sa::{Attempt, IkeSa, Phase, Reauth, Task};
use crate::suite::{IkeSpis, Role};
use std::net::{IpAddr, SocketAddr};

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
        match self.present(&connection.name, child) {
            Some(Present::OnItsWay(ike)) => return Ok(ike),
            Some(Present::Up(ike, id)) => {
                if report {
                    self.initiate_done(now, &connection.name, ike, child, Ok(id));
                }
                return Ok(ike);
            }
            None => {}
        }
        if let Some(ike) = self.carrier(&connection.name) {
            self.with_sa(now, ike, |endpoint, sa| {
                endpoint.commit(sa);
                sa.outgoing.queue(Task::NewChild { name: child.to_owned(), tries: 1 });
                endpoint.next_task(now, sa)
            });
            return Ok(ike);
        }
        let home = self.home_of(&connection.name, child);
        let home = home.ok_or_else(|| InitiateError::Elsewhere(connection.name.clone()))?;
        self.begin_ike_sa(now, &connection, child, home)
    }

    /// The IKE SA of a connection on which a further child can be made: the newest.
    fn carrier(&self, connection: &str) -> Option<IkeSaId> {
        let able = |sa: &&IkeSa| sa.is_in_charge() && sa.reauth != Some(Reauth::Done);
        self.table.of_connection(connection).rev().find(able).map(|sa| sa.id)
    }

    /// Initiates an IKE SA for a child.
    fn begin_ike_sa(
        &mut self,
        now: Time,
        connection: &Connection,
        child: &str,
        home: Home<'_>,
    ) -> Result<IkeSaId, InitiateError> {
        let path = self.initial_path(connection)?;
        self.begin_ike_sa_at(now, connection, child, path, None, home)
    }

    /// The same, from there to there; `reauth`: in the place of which.
    pub(super) fn begin_ike_sa_at(
        &mut self,
        now: Time,
        connection: &Connection,
        child: &str,
        path: Path,
        reauth: Option<Reauth>,
        home: Home<'_>,
    ) -> Result<IkeSaId, InitiateError> {
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
        let id = self.new_ike_id();
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
        let home = Home::Renewing(sa.our_spi().share());
        match connection.and_then(|connection| self.begin_ike_sa(now, &connection, child, home)) {
            Ok(to) => self.event(Event::InitiateMoved { from: sa.id, to, child: child.to_owned() }),
            Err(error) => self.child_failed(now, sa, child, Reason::Refused(error.to_string())),
        }
    }

    fn present(&self, connection: &str, child: &str) -> Option<Present> {
        let live = |sa: &&IkeSa| sa.closing.is_none() && sa.reauth != Some(Reauth::Done);
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
        let single = |range: &testudo_ipsec::selector::AddrRange| {
            (range.start() == range.end()).then_some(range.start())
        };
        let mut peers = connection.remote_addrs.iter().filter_map(single);
        let first = peers.clone().next().ok_or_else(|| InitiateError::NoPeer(connection.name.clone()))?;
        let found = peers.find_map(|peer| Some((self.address_towards(connection, peer)?, peer)));
        let (local, remote) = found.ok_or_else(|| InitiateError::NoLocalAddress {
            connection: connection.name.clone(),
            peer: first,
        })?;
        Ok(Path {
            local: SocketAddr::new(local, connection.local_port),
            remote: SocketAddr::new(remote, connection.remote_port),
        })
    }

    /// The first address that the connection names and the host has, else the host's first that it allows. If the host has
    /// none of them, the first named all the same: that it cannot be used will show.
    fn address_towards(&self, connection: &Connection, peer: IpAddr) -> Option<IpAddr> {
        let ranges = &connection.local_addrs;
        let named = ranges.iter().filter(|r| r.start() == r.end()).map(|r| r.start());
        let hosts = self.local_addrs.iter().copied();
        let allowed = hosts.filter(|addr| ranges.is_empty() || ranges.iter().any(|r| r.contains(*addr)));
        let present = named.clone().filter(|addr| self.local_addrs.contains(addr));
        present.chain(allowed).chain(named).find(|addr| addr.is_ipv4() == peer.is_ipv4())
    }
}
