//! `unique`: what a new IKE SA of a peer means for the others that it has here.

use crate::config::{Connection, Unique};
use crate::endpoint::unique::Contact;
use crate::exchange::receive::HINT_INTERVAL;
use crate::exchange::session::Session;
use crate::output::{IkeSaId, Reason, Time};
use crate::sa::Reauth;
use std::net::SocketAddr;

/// When a peer has too many IKE SAs, so many are asked whether it still knows of them.
const DOUBTED: usize = 4;

impl Session<'_> {
    /// Tells the other nodes of a new IKE SA.
    pub(crate) fn tell_contact(&mut self, connection: &Connection, anew: bool) {
        let (anew, alone) =
            (anew && connection.unique != Unique::Never, connection.unique == Unique::Replace);
        if self.env.config.track_changes
            && (anew || alone)
            && let (Some(local), Some(remote)) = (self.sa.local_id.clone(), self.sa.remote_id.clone())
        {
            let (spi, connection, addr) =
                (self.sa.our_spi(), self.sa.connection.clone(), self.sa.path.remote);
            self.env.effects.contacts.push(Contact { spi, connection, local, remote, addr, anew, alone });
        }
    }

    /// The peer has too many IKE SAs. It may have forgotten those that were silent for longest: then there is room when it
    /// comes again.
    pub(crate) fn doubt_twins(&mut self) {
        let doubtful = |id| {
            let twin = self.env.table.get(id)?;
            (twin.outgoing.pending.is_none() && self.now >= twin.next_hint).then_some((twin.last_heard, id))
        };
        let mut twins: Vec<(Time, IkeSaId)> = self.env.twins(self.sa).filter_map(doubtful).collect();
        twins.sort_unstable();
        for (_, id) in twins.into_iter().take(DOUBTED) {
            self.env.with_sa(self.now, id, |twin| {
                twin.sa.next_hint = twin.now.plus(HINT_INTERVAL);
                twin.check_liveness()
            });
        }
    }

    /// The peer has a new IKE SA: the older ones go, where only one is wanted. One from the same place goes later, for the
    /// peer seems to reauthenticate, and has Child SAs to move.
    pub(crate) fn enforce_uniqueness(&mut self, connection: &Connection) {
        if connection.unique != Unique::Replace {
            return;
        }
        let twins: Vec<IkeSaId> = self.env.twins(self.sa).collect();
        for id in twins {
            self.env.with_sa(self.now, id, |old| old.replaced(self.sa.path.remote));
        }
    }

    /// An older one of a peer that has a new one at that place.
    pub(crate) fn replaced(&mut self, at: SocketAddr) -> Result<(), Reason> {
        if self.sa.path.remote != at {
            let deadline = self.now.plus(self.env.config.delete_timeout);
            return self.delete_ike(Reason::Replaced, deadline);
        }
        // Of one that has given way already there is nothing to tell.
        if self.sa.reauth != Some(Reauth::Done) {
            self.give_way();
        }
        Ok(())
    }
}
