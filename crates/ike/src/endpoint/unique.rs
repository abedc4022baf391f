//! `unique`: what a second IKE SA between the same identities means.

use super::Endpoint;
use super::dispatch::HINT_INTERVAL;
use crate::config::{Connection, Identity, Unique};
use crate::message::IkeSpi;
use crate::output::{IkeSaId, Reason, Time};
use crate::sa::IkeSa;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::time::Duration;

/// When a peer has too many IKE SAs, so many are asked whether it still knows of them.
const DOUBTED: usize = 4;

/// Of two IKE SAs at two nodes that came up within this time, the peer may not have known of the one when it began the other.
const AT_ONCE: Duration = Duration::from_secs(2);

/// A peer has a new IKE SA, beside which it is to have no older ones: for those that other nodes of a cluster speak for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contact {
    /// The SPI that we chose for the new one.
    pub spi: IkeSpi,
    /// `connections.<name>`.
    pub connection: String,
    /// Who we are in it.
    pub local: Identity,
    /// Who the peer is.
    pub remote: Identity,
    /// Where the peer is.
    pub addr: SocketAddr,
    /// The peer knows of no other (INITIAL_CONTACT, RFC 7296 §2.4).
    pub anew: bool,
}

impl Endpoint {
    /// What peers' new IKE SAs mean for those that other nodes have, since this was last called. Only with
    /// [`EndpointConfig::track_changes`](super::EndpointConfig::track_changes).
    pub fn take_contacts(&mut self) -> Vec<Contact> {
        std::mem::take(&mut self.contacts)
    }

    /// Another node has a new IKE SA with a peer: the older ones that are here go as if it had come to this node. `younger`: not
    /// those, of which the others do not know yet.
    pub fn contacted(&mut self, now: Time, contact: &Contact, younger: impl Fn(IkeSpi) -> bool) {
        let older = |other: &&IkeSa| {
            other.connection == contact.connection
                && other.local_id.as_ref() == Some(&contact.local)
                && other.is_established()
                && other.our_spi() != contact.spi
                && !younger(other.our_spi())
                && !(contact.anew && other.established.is_some_and(|at| now.since(at) < AT_ONCE))
        };
        let ids: Vec<IkeSaId> =
            self.table.by_identity(&contact.remote).filter(older).map(|other| other.id).collect();
        for id in ids {
            self.with_sa(now, id, |endpoint, old| match contact.anew {
                true => Err(Reason::Replaced),
                false => endpoint.replaced(now, old, contact.addr),
            });
        }
    }

    /// Tells the other nodes of a new IKE SA.
    pub(crate) fn tell_contact(&mut self, sa: &IkeSa, connection: &Connection, anew: bool) {
        let matters = anew && connection.unique != Unique::Never || connection.unique == Unique::Replace;
        if self.config.track_changes
            && matters
            && let (Some(local), Some(remote)) = (sa.local_id.clone(), sa.remote_id.clone())
        {
            let (connection, addr) = (sa.connection.clone(), sa.path.remote);
            self.contacts.push(Contact { spi: sa.our_spi(), connection, local, remote, addr, anew });
        }
    }

    /// True if the peer may not have another IKE SA beside the one it has. From the same place it may: it reauthenticates,
    /// as charon takes it, and deletes the old one itself.
    pub(crate) fn is_surplus(&self, sa: &IkeSa, connection: &Connection) -> bool {
        let elsewhere = |id| self.table.get(id).is_some_and(|other| other.path.remote != sa.path.remote);
        connection.unique == Unique::Keep && self.twins(sa).any(elsewhere)
    }

    /// How many IKE SAs the peer has, if it may have no other: each may have as many Child SAs as one is allowed. Those that
    /// go for the new one do not count.
    pub(crate) fn is_sated(&self, sa: &IkeSa, connection: &Connection) -> Option<usize> {
        let limit = self.config.twin_limit?.get();
        let stays = |id: &IkeSaId| {
            let elsewhere = || self.table.get(*id).is_some_and(|other| other.path.remote != sa.path.remote);
            connection.unique != Unique::Replace || !elsewhere()
        };
        (self.twins(sa).filter(stays).take(limit).count() >= limit).then_some(limit)
    }

    /// The peer has too many IKE SAs. It may have forgotten those that were silent for longest: then there is room when it
    /// comes again.
    pub(crate) fn doubt_twins(&mut self, now: Time, sa: &IkeSa) {
        let doubtful = |id| {
            let twin = self.table.get(id)?;
            (twin.outgoing.pending.is_none() && now >= twin.next_hint).then_some((twin.last_heard, id))
        };
        let mut twins: Vec<(Time, IkeSaId)> = self.twins(sa).filter_map(doubtful).collect();
        twins.sort_unstable();
        for (_, id) in twins.into_iter().take(DOUBTED) {
            self.with_sa(now, id, |endpoint, twin| {
                twin.next_hint = now.plus(HINT_INTERVAL);
                endpoint.check_liveness(now, twin)
            });
        }
    }

    /// The peer has a new IKE SA: the older ones go, where only one is wanted. One from the same place goes later, for the
    /// peer seems to reauthenticate, and has Child SAs to move.
    pub(crate) fn enforce_uniqueness(&mut self, now: Time, sa: &IkeSa, connection: &Connection) {
        if connection.unique != Unique::Replace {
            return;
        }
        let twins: Vec<IkeSaId> = self.twins(sa).collect();
        for id in twins {
            self.with_sa(now, id, |endpoint, old| endpoint.replaced(now, old, sa.path.remote));
        }
    }

    /// An older one of a peer that has a new one at that place.
    fn replaced(&mut self, now: Time, old: &mut IkeSa, at: SocketAddr) -> Result<(), Reason> {
        if old.path.remote != at {
            let deadline = now.plus(self.config.delete_timeout);
            return self.delete_ike(now, old, Reason::Replaced, deadline);
        }
        self.give_way(now, old);
        Ok(())
    }

    /// Other IKE SAs between the same identities that are there to stay.
    fn twins<'a>(&'a self, sa: &'a IkeSa) -> impl Iterator<Item = IkeSaId> + 'a {
        let stays = |other: &&IkeSa| other.is_established() && other.closing.is_none();
        self.table.between_the_same(sa).filter(stays).map(|other| other.id)
    }
}
