//! `unique`: the effect of a second IKE SA between the same identities.

use crate::config::Identity;
use crate::endpoint::replication::{Replication, ReplicationMut};
use crate::environment::Environment;
use crate::environment::loaded::Loaded;
use crate::exchange::unique;
use crate::message::IkeSpi;
use crate::output::{IkeSaId, Reason, Time};
use crate::sa::IkeSa;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// A peer's new IKE SA that ends the peer's older ones, for those of other nodes of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contact {
    /// Our SPI of the new IKE SA.
    pub spi: IkeSpi,
    /// `connections.<name>`.
    pub connection: String,
    /// Our identity in it.
    pub local: Identity,
    /// The peer's identity.
    pub remote: Identity,
    /// The peer's address.
    pub addr: SocketAddr,
    /// The peer knows of no other IKE SA (INITIAL_CONTACT, RFC 7296 §2.4).
    pub anew: bool,
    /// The peer must have no other IKE SA (`unique = replace`).
    pub alone: bool,
}

/// How an IKE SA relates to its peer's new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Older {
    /// It was up before the new one began.
    Known,
    /// It came up while the new one did: the peer may have sent INITIAL_CONTACT before it knew of
    /// it.
    Meanwhile,
}

/// How an older IKE SA ends.
enum End {
    /// The peer does not know it.
    Dead,
    /// The new one replaces it.
    Replaced,
}

impl Replication<'_> {
    /// True if a peer authenticates in the same way for two connections, by name. Otherwise another
    /// CA may vouch for any name: a peer trusted for one connection must not affect the SAs of
    /// another.
    pub fn are_alike(&self, one: &str, other: &str) -> bool {
        self.env.loaded.are_alike(one, other)
    }
}

impl ReplicationMut<'_> {
    /// Peers' new IKE SAs since the last call, for the older ones of other nodes. Only with
    /// [`EndpointConfig::track_changes`](super::EndpointConfig::track_changes).
    pub fn take_contacts(&mut self) -> Vec<Contact> {
        std::mem::take(&mut self.env.effects.contacts)
    }

    /// A peer has a new IKE SA, on any node: its older ones here end as if the new one were here.
    /// `older` compares an IKE SA, by our SPI, in the order that all nodes share. Returns those
    /// that end without a message to the peer.
    pub fn contacted(
        &mut self,
        now: Time,
        contact: &Contact,
        older: impl Fn(IkeSpi) -> Option<Older>,
    ) -> Vec<IkeSaId> {
        let end = |other: &IkeSa| {
            Some((other.id, end_by(&self.env.loaded, contact, other, older(other.our_spi())?)?))
        };
        let ends: Vec<(IkeSaId, End)> = self.env.table.by_identity(&contact.remote).filter_map(end).collect();
        let dead = ends.iter().filter(|(_, end)| matches!(end, End::Dead)).map(|(id, _)| *id).collect();
        for (id, end) in ends {
            end_older(self.env, now, id, contact, end);
        }
        dead
    }

    /// [`Self::contacted`] for one IKE SA that has come to this node since.
    pub fn contacted_before(&mut self, now: Time, id: IkeSaId, contact: &Contact, older: Older) {
        if let Some(end) =
            self.env.table.get(id).and_then(|other| end_by(&self.env.loaded, contact, other, older))
        {
            end_older(self.env, now, id, contact, end);
        }
    }
}

/// How this IKE SA ends, if it does.
fn end_by(loaded: &Loaded, contact: &Contact, other: &IkeSa, older: Older) -> Option<End> {
    let twin = other.is_established()
        && other.our_spi() != contact.spi
        && other.local_id.as_ref() == Some(&contact.local)
        && other.remote_id.as_ref().map(Identity::canonical) == Some(contact.remote.canonical())
        && loaded.are_alike(&other.connection, &contact.connection);
    if twin && contact.anew && older == Older::Known {
        return Some(End::Dead);
    }
    (twin && contact.alone && other.closing.is_none()).then_some(End::Replaced)
}

fn end_older(env: &mut Environment, now: Time, id: IkeSaId, contact: &Contact, end: End) {
    env.with_sa(now, id, |old| match end {
        End::Dead => Err(Reason::Replaced),
        End::Replaced => unique::replaced(old, contact.addr),
    });
}
