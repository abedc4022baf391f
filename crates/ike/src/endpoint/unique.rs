//! `unique`: what a second IKE SA between the same identities means.

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

/// A peer has a new IKE SA, beside which it is to have no older ones: for those that other nodes of
/// a cluster speak for.
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

impl Replication<'_> {
    /// True if a peer proves itself in the same way for two connections, by name. Elsewhere another
    /// CA may vouch, for whom it likes: who is trusted for one connection must not touch the SAs of
    /// another.
    pub fn are_alike(&self, one: &str, other: &str) -> bool {
        self.env.loaded.are_alike(one, other)
    }
}

impl ReplicationMut<'_> {
    /// What peers' new IKE SAs mean for those that other nodes have, since this was last called.
    /// Only with [`EndpointConfig::track_changes`](super::EndpointConfig::track_changes).
    pub fn take_contacts(&mut self) -> Vec<Contact> {
        std::mem::take(&mut self.env.effects.contacts)
    }

    /// A peer has a new IKE SA, at whichever node: the older ones that are here go as if it had
    /// come to this node. `older` tells of an IKE SA, by the SPI that we chose, whether it is
    /// older, in the order that is the same for all nodes. Gives those that end without a word to
    /// the peer.
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

    /// The same for one IKE SA, which has come here only since.
    pub fn contacted_before(&mut self, now: Time, id: IkeSaId, contact: &Contact, older: Older) {
        if let Some(end) =
            self.env.table.get(id).and_then(|other| end_by(&self.env.loaded, contact, other, older))
        {
            end_older(self.env, now, id, contact, end);
        }
    }
}

/// What becomes of that IKE SA.
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
