//! `unique`: what a second IKE SA between the same identities means.

use super::Endpoint;
use super::dispatch::HINT_INTERVAL;
use crate::config::{Connection, Unique};
use crate::output::{IkeSaId, Reason, Time};
use crate::sa::IkeSa;

/// When a peer has too many IKE SAs, so many are asked whether it still knows of them.
const DOUBTED: usize = 4;

impl Endpoint {
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
        let deadline = now.plus(self.config.delete_timeout);
        let twins: Vec<IkeSaId> = self.twins(sa).collect();
        for id in twins {
            self.with_sa(now, id, |endpoint, old| {
                if old.path.remote != sa.path.remote {
                    return endpoint.delete_ike(now, old, Reason::Replaced, deadline);
                }
                endpoint.give_way(now, old);
                Ok(())
            });
        }
    }

    /// Other IKE SAs between the same identities that are there to stay.
    fn twins<'a>(&'a self, sa: &'a IkeSa) -> impl Iterator<Item = IkeSaId> + 'a {
        let stays = |other: &&IkeSa| other.is_established() && other.closing.is_none();
        self.table.between_the_same(sa).filter(stays).map(|other| other.id)
    }
}
