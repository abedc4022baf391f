//! `unique`: the effect of a peer's new IKE SA on its others here.

use crate::config::{Connection, Unique};
use crate::endpoint::unique::Contact;
use crate::exchange::reauth;
use crate::exchange::receive::HINT_INTERVAL;
use crate::exchange::session::Session;
use crate::output::{IkeSaId, Reason, Time};
use crate::sa::Reauth;
use std::net::SocketAddr;

/// How many of a peer's surplus IKE SAs are checked for liveness.
const DOUBTED: usize = 4;

/// Publishes a new IKE SA to the other nodes.
pub(crate) fn tell_contact(session: &mut Session<'_>, connection: &Connection, anew: bool) {
    let (anew, alone) = (anew && connection.unique != Unique::Never, connection.unique == Unique::Replace);
    if session.env.config.track_changes
        && (anew || alone)
        && let (Some(local), Some(remote)) = (session.sa.local_id.clone(), session.sa.remote_id.clone())
    {
        let (spi, connection, addr) =
            (session.sa.our_spi(), session.sa.connection.clone(), session.sa.path.remote);
        session.env.effects.contacts.push(Contact { spi, connection, local, remote, addr, anew, alone });
    }
}

/// The peer has too many IKE SAs. It may have forgotten those that were silent for longest: if so,
/// there is room when it comes again.
pub(crate) fn doubt_twins(session: &mut Session<'_>) {
    let doubtful = |id| {
        let twin = session.env.table.get(id)?;
        (twin.outgoing.pending.is_none() && session.now >= twin.next_hint).then_some((twin.last_heard, id))
    };
    let mut twins: Vec<(Time, IkeSaId)> = session.env.twins(session.sa).filter_map(doubtful).collect();
    twins.sort_unstable();
    for (_, id) in twins.into_iter().take(DOUBTED) {
        session.env.with_sa(session.now, id, |twin| {
            twin.sa.next_hint = twin.now.plus(HINT_INTERVAL);
            twin.check_liveness()
        });
    }
}

/// The peer has a new IKE SA: the older ones end, if only one is wanted. One from the same address
/// ends later, because the peer seems to reauthenticate, and has Child SAs to move.
pub(crate) fn enforce(session: &mut Session<'_>, connection: &Connection) {
    if connection.unique != Unique::Replace {
        return;
    }
    let twins: Vec<IkeSaId> = session.env.twins(session.sa).collect();
    for id in twins {
        session.env.with_sa(session.now, id, |old| replaced(old, session.sa.path.remote));
    }
}

/// An older IKE SA of a peer that has a new one at this address.
pub(crate) fn replaced(session: &mut Session<'_>, at: SocketAddr) -> Result<(), Reason> {
    if session.sa.path.remote != at {
        let deadline = session.now.plus(session.env.config.delete_timeout);
        return session.delete_ike(Reason::Replaced, deadline);
    }
    // One that was replaced already has nothing to report.
    if session.sa.reauth != Some(Reauth::Done) {
        reauth::give_way(session);
    }
    Ok(())
}
