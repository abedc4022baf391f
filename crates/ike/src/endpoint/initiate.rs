//! Initiation by the operator, by traffic, and by `start_action`.

use crate::config::Connection;
use crate::endpoint::{Endpoint, InitiateError};
use crate::environment::Environment;
use crate::environment::begin::Beginning;
use crate::exchange::is_host;
use crate::output::{ChildSaId, IkeSaId, Time};
use crate::sa::{IkeSa, Phase, Reauth, Task};
use std::net::IpAddr;

/// Bound on the IKE SAs of one connection that packets to peers of any address have begun and that
/// are not established yet.
const MAX_TRAPPED: usize = 256;

/// A child that need not be initiated again.
enum Present {
    Up(IkeSaId, ChildSaId),
    OnItsWay(IkeSaId),
}

/// The addresses of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketEnds {
    /// The address on our side.
    pub local: IpAddr,
    /// The address on the peer's side.
    pub remote: IpAddr,
}

impl Endpoint {
    /// Initiates a child; `InitiateDone` gives the result. Without a connection's name the first
    /// connection with such a child is used.
    ///
    /// A child that is up, or on its way up, is not made twice: its IKE SA is returned, and
    /// `InitiateDone` follows. Otherwise the child is made on the connection's IKE SA. If there is
    /// none, or the peer makes no further child on it (`InitiateMoved` reports that), it gets an
    /// IKE SA of its own, whose IKE_AUTH makes it.
    pub fn initiate(
        &mut self,
        now: Time,
        connection: Option<&str>,
        child: &str,
    ) -> Result<IkeSaId, InitiateError> {
        let connection = self.env.loaded.connections.child(connection, child)?;
        let (ike, up) = bring_up(&mut self.env, now, &connection, child, None)?;
        if let Some(id) = up {
            self.env.initiate_done(now, &connection.name, ike, child, Ok(id));
        }
        Ok(ike)
    }

    /// A packet between these addresses wants a child that has no SA: like
    /// [`Endpoint::initiate`], but silent about what is already up. Where a child takes whatever
    /// peer there is ([`Connection::takes_anybody`]), the packet says which one is meant.
    pub fn acquire_for(
        &mut self,
        now: Time,
        connection: &str,
        child: &str,
        ends: PacketEnds,
    ) -> Result<IkeSaId, InitiateError> {
        let PacketEnds { local, remote } = ends;
        let connection = self.env.loaded.connections.child(Some(connection), child)?;
        let takes_anybody = connection.child(child).is_some_and(|child| connection.takes_anybody(child));
        let between_hosts = is_host(&remote) && self.env.loaded.local_addrs.contains(&local);
        if takes_anybody && (!between_hosts || connection.address_fit(local, remote).is_none()) {
            return Err(InitiateError::NotBetweenHosts {
                connection: connection.name.clone(),
                local,
                remote,
            });
        }
        let ends = takes_anybody.then_some(ends);
        bring_up(&mut self.env, now, &connection, child, ends).map(|(ike, _)| ike)
    }

    /// Initiates the IKE SA of a connection without a child (RFC 6023). The events `IkeUp` and
    /// `IkeDown` give the result; one that is up already is returned. `InitiateDone` with an empty
    /// child name reports a failure before there is an IKE SA.
    pub fn initiate_alone(&mut self, now: Time, connection: &str) -> Result<IkeSaId, InitiateError> {
        let unknown = || InitiateError::UnknownConnection(connection.into());
        let connection = self.env.loaded.connections.get(connection).ok_or_else(unknown)?;
        if !connection.has_peers() {
            return Err(InitiateError::NoIkeSa(connection.name.clone()));
        }
        let up = carrier(&self.env, &connection.name, None);
        let waiting = up.or_else(|| self.env.names.first_waiting(&connection.name));
        let coming = waiting.or_else(|| {
            let ours = |sa: &&IkeSa| sa.phase.attempt().is_some();
            self.env.table.of_connection(&connection.name).find(ours).map(|sa| sa.id)
        });
        match coming {
            Some(ike) => Ok(ike),
            None => begin_or_wait(&mut self.env, now, &connection, ""),
        }
    }
}

/// Initiates a child. Returns its IKE SA, and its Child SA if that is already up. `ends`: our
/// address and the peer's, if the connection does not give them.
fn bring_up(
    env: &mut Environment,
    now: Time,
    connection: &Connection,
    child: &str,
    ends: Option<PacketEnds>,
) -> Result<(IkeSaId, Option<ChildSaId>), InitiateError> {
    let waiting = env.names.waiting_for(&connection.name, child).filter(|_| ends.is_none());
    if let Some(ike) = waiting {
        return Ok((ike, None));
    }
    let peer = ends.map(|ends| ends.remote);
    match present(env, &connection.name, child, peer) {
        Some(Present::OnItsWay(ike)) => return Ok((ike, None)),
        Some(Present::Up(ike, id)) => return Ok((ike, Some(id))),
        None => {}
    }
    if let Some(ike) = carrier(env, &connection.name, peer) {
        add_child(env, now, ike, child);
        return Ok((ike, None));
    }
    let begun = match ends {
        Some(ends) => begin_between(env, now, connection, child, ends),
        None => begin_or_wait(env, now, connection, child),
    };
    Ok((begun?, None))
}

/// Begins an IKE SA with the peer of a packet.
fn begin_between(
    env: &mut Environment,
    now: Time,
    connection: &Connection,
    child: &str,
    ends: PacketEnds,
) -> Result<IkeSaId, InitiateError> {
    let coming = env.table.of_connection(&connection.name).filter(|sa| !sa.is_established());
    if coming.count() >= MAX_TRAPPED {
        return Err(InitiateError::TooMany { connection: connection.name.clone(), most: MAX_TRAPPED });
    }
    let home = env.home_of(&connection.name, child);
    let home = home.ok_or_else(|| InitiateError::Elsewhere(connection.name.clone()))?;
    let path = connection.path(ends.local, ends.remote);
    let beginning = Beginning { id: env.numbers.new_ike_id(), child, path, reauth: None, home };
    env.begin_ike_sa_at(now, connection, beginning)
}

/// The newest IKE SA of a connection with this peer on which a further child can be made.
fn carrier(env: &Environment, connection: &str, peer: Option<IpAddr>) -> Option<IkeSaId> {
    let able = |sa: &&IkeSa| {
        sa.is_in_charge()
            && sa.reauth != Some(Reauth::Done)
            && is_with(sa, peer)
            && !env.loaded.is_revoked(sa)
    };
    env.table.of_connection(connection).rev().find(able).map(|sa| sa.id)
}

fn add_child(env: &mut Environment, now: Time, ike: IkeSaId, child: &str) {
    env.with_sa(now, ike, |session| {
        session.commit();
        session.sa.outgoing.queue(Task::NewChild { name: child.to_owned(), tries: 1 });
        session.next_task()
    });
}

/// Begins an IKE SA for a child, or for itself. DNS names of the connection are resolved first.
fn begin_or_wait(
    env: &mut Environment,
    now: Time,
    connection: &Connection,
    child: &str,
) -> Result<IkeSaId, InitiateError> {
    let home = env.home_of(&connection.name, child);
    let home = home.ok_or_else(|| InitiateError::Elsewhere(connection.name.clone()))?;
    if connection.names.iter().next().is_some() {
        let ike = env.numbers.new_ike_id();
        env.names.wait(ike, connection, child);
        return Ok(ike);
    }
    let path = env.loaded.initial_path(connection)?;
    let beginning = Beginning { id: env.numbers.new_ike_id(), child, path, reauth: None, home };
    env.begin_ike_sa_at(now, connection, beginning)
}

fn present(env: &Environment, connection: &str, child: &str, peer: Option<IpAddr>) -> Option<Present> {
    let live = |sa: &&IkeSa| sa.is_live() && is_with(sa, peer);
    env.table.of_connection(connection).filter(live).find_map(|sa| match &sa.phase {
        Phase::Established if sa.is_asking_for(child) => Some(Present::OnItsWay(sa.id)),
        Phase::Established => {
            let named = |c: &&crate::sa::ChildSa| c.name == child && c.is_installed();
            sa.children.iter().filter(named).find_map(|found| {
                if found.outdated.is_some() && env.loaded.is_revoked(sa) {
                    // The traffic of today is for another peer.
                    return sa.is_about_to_be_set_up_anew().then_some(Present::OnItsWay(sa.id));
                }
                match found.is_missed() {
                    // Its renewal makes it again.
                    true => sa.is_renewing(found.id).then_some(Present::OnItsWay(sa.id)),
                    false => Some(Present::Up(sa.id, found.id)),
                }
            })
        }
        phase => {
            let attempt = phase.attempt().filter(|attempt| attempt.child == child);
            attempt.map(|_| Present::OnItsWay(sa.id))
        }
    })
}

fn is_with(sa: &IkeSa, peer: Option<IpAddr>) -> bool {
    peer.is_none_or(|peer| sa.path.remote.ip() == peer)
}
