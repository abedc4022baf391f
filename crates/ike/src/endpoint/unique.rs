//! `unique`: what a second IKE SA between the same identities means.

use super::Endpoint;
use super::dispatch::HINT_INTERVAL;
use crate::config::{Connection, Identity, Unique};
use crate::message::IkeSpi;
use crate::output::{IkeSaId, Reason, Time};
use crate::sa::{IkeSa, Reauth};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// When a peer has too many IKE SAs, so many are asked whether it still knows of them.
const DOUBTED: usize = 4;

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
    /// It is to have no other (`unique = replace`).
    pub alone: bool,
}

/// An IKE SA that a peer had when its new one came up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Older {
    /// It was up before the new one began.
    Known,
    /// It came up while the new one did: the peer may have spoken before it knew of it.
    Meanwhile,
}

/// What becomes of an older IKE SA.
enum End {
    /// The peer does not know of it.
    Dead,
    /// It makes room.
    Replaced,
}

impl Endpoint {
    /// What peers' new IKE SAs mean for those that other nodes have, since this was last called. Only with
    /// [`EndpointConfig::track_changes`](super::EndpointConfig::track_changes).
    pub fn take_contacts(&mut self) -> Vec<Contact> {
        std::mem::take(&mut self.contacts)
    }

    /// A peer has a new IKE SA, at whichever node: the older ones that are here go as if it had come to this node. `older` tells of
    /// an IKE SA, by the SPI that we chose, whether it is older, in the order that is the same for all nodes. Gives those that end
    /// without a word to the peer.
    pub fn contacted(
        &mut self,
        now: Time,
        contact: &Contact,
        older: impl Fn(IkeSpi) -> Option<Older>,
    ) -> Vec<IkeSaId> {
        let end = |other: &IkeSa| Some((other.id, self.end_by(contact, other, older(other.our_spi())?)?));
        let ends: Vec<(IkeSaId, End)> = self.table.by_identity(&contact.remote).filter_map(end).collect();
        let dead = ends.iter().filter(|(_, end)| matches!(end, End::Dead)).map(|(id, _)| *id).collect();
        for (id, end) in ends {
            self.end_older(now, id, contact, end);
        }
        dead
    }

    /// The same for one IKE SA, which has come here only since.
    pub fn contacted_before(&mut self, now: Time, id: IkeSaId, contact: &Contact, older: Older) {
        if let Some(end) = self.table.get(id).and_then(|other| self.end_by(contact, other, older)) {
            self.end_older(now, id, contact, end);
        }
    }

    /// What becomes of that IKE SA.
    fn end_by(&self, contact: &Contact, other: &IkeSa, older: Older) -> Option<End> {
        let twin = other.is_established()
            && other.our_spi() != contact.spi
            && other.local_id.as_ref() == Some(&contact.local)
            && other.remote_id.as_ref().map(Identity::canonical) == Some(contact.remote.canonical())
            && self.are_alike(&other.connection, &contact.connection);
        if twin && contact.anew && older == Older::Known {
            return Some(End::Dead);
        }
        (twin && contact.alone && other.closing.is_none()).then_some(End::Replaced)
    }

    fn end_older(&mut self, now: Time, id: IkeSaId, contact: &Contact, end: End) {
        self.with_sa(now, id, |endpoint, old| match end {
            End::Dead => Err(Reason::Replaced),
            End::Replaced => endpoint.replaced(now, old, contact.addr),
        });
    }

    /// Tells the other nodes of a new IKE SA.
    pub(crate) fn tell_contact(&mut self, sa: &IkeSa, connection: &Connection, anew: bool) {
        let (anew, alone) =
            (anew && connection.unique != Unique::Never, connection.unique == Unique::Replace);
        if self.config.track_changes
            && (anew || alone)
            && let (Some(local), Some(remote)) = (sa.local_id.clone(), sa.remote_id.clone())
        {
            let (spi, connection, addr) = (sa.our_spi(), sa.connection.clone(), sa.path.remote);
            self.contacts.push(Contact { spi, connection, local, remote, addr, anew, alone });
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
        // Of one that has given way already there is nothing to tell.
        if old.reauth != Some(Reauth::Done) {
            self.give_way(now, old);
        }
        Ok(())
    }

    /// Other IKE SAs between the same identities that are there to stay.
    fn twins<'a>(&'a self, sa: &'a IkeSa) -> impl Iterator<Item = IkeSaId> + 'a {
        let stays = |other: &&IkeSa| other.is_established() && other.closing.is_none();
        self.between_the_same(sa).filter(stays).map(|other| other.id)
    }

    /// The other IKE SAs between the same identities, of the same connection or of one that is
    /// alike: by what it asks for the peer chooses among these.
    pub(crate) fn between_the_same<'a>(&'a self, sa: &'a IkeSa) -> impl Iterator<Item = &'a IkeSa> {
        let others = sa.remote_id.iter().flat_map(|identity| self.table.by_identity(identity));
        others.filter(|other| {
            other.id != sa.id
                && other.local_id == sa.local_id
                && self.are_alike(&other.connection, &sa.connection)
        })
    }

    /// True if a peer proves itself in the same way for two connections, by name. Elsewhere another
    /// CA may vouch, for whom it likes: who is trusted for one connection must not touch the SAs of
    /// another.
    pub fn are_alike(&self, one: &str, other: &str) -> bool {
        let alike = || Some(self.known_connection(one)?.proves_alike(self.known_connection(other)?));
        one == other || alike().unwrap_or(false)
    }
}
