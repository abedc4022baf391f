//! One Child SA takes the place of another, and no packet is lost (RFC 7296 §2.8): the new one
//! takes packets in from the start, the old one until some time after its end, and what goes out
//! changes over in between, in one step.

use crate::exchange::child;
use crate::exchange::reauth;
use crate::exchange::session::Session;
use crate::output::{ChildSaId, Output, Reason};
use crate::sa::{ChildPhase, ChildSa, IkeSa, Outbound, Task};
use testudo_base::spi::Spi;

/// We renewed a Child SA and the peer has answered: it is ready for both directions.
pub(super) fn take_place(session: &mut Session<'_>, new: ChildSaId) {
    let waits = session.sa.child(new).and_then(|child| child.waits_for());
    if let Some(old) = waits.and_then(|old| child_of_spi(session, old)) {
        // Should the old one itself never have been proven, it has its place for a moment.
        proven(session, old);
        switch_outbound(session, old, new);
    }
}

/// What we have renewed goes.
pub(super) fn let_go(session: &mut Session<'_>, old: ChildSaId) {
    if let Some(spi_in) = outdo(session.sa, old) {
        session.sa.outgoing.queue(Task::DeleteSpi(spi_in));
    }
}

/// One takes the place of another, and the peer does not know that: what it lets go it does not
/// take in any more, so what is under way gets time.
pub(super) fn displace(session: &mut Session<'_>, old: ChildSaId, new: ChildSaId) {
    // Should the old one itself never have been proven, it has its place for a moment.
    proven(session, old);
    switch_outbound(session, old, new);
    if let Some(spi_in) = outdo(session.sa, old) {
        session
            .sa
            .outgoing
            .delay(session.now.plus(session.env.config.rekeyed_linger), Task::DeleteSpi(spi_in));
    }
}

/// What goes out through a Child SA goes out through the one that took its place, if there is one.
pub(crate) fn switch_to_successor(session: &mut Session<'_>, old: ChildSaId) {
    let place = session.sa.child(old).map(|old| old.params.spi_in);
    let new = session.sa.children.iter().find(|child| place.is_some() && child.waits_for() == place);
    match new.map(|child| child.id) {
        Some(new) => switch_outbound(session, old, new),
        None => reauth::hand_over(session, old),
    }
    if let Some(former) = former(session.sa, old) {
        switch_outbound(session, old, former);
    }
}

/// A packet came in through a renewed Child SA: the peer uses it.
pub(crate) fn proven(session: &mut Session<'_>, new: ChildSaId) {
    let Some(child) = session.sa.child(new) else { return };
    let Some(place) = child.waits_for() else { return };
    // Where the other IKE SA has renewed the old one meanwhile, what goes out goes through that.
    let moved = || session.env.predecessor(session.sa, &child.name, &child.params);
    let known = |old: &ChildSaId| session.sa.child(*old).is_some() || session.env.sends_elsewhere(*old);
    let old = child_of_spi(session, place).filter(known).or_else(moved);
    if let Some(old) = old {
        if session.env.stays_beside(session.sa, old, &child.params) {
            return start_outbound(session, new);
        }
        switch_outbound(session, old, new);
    } else if child_of_spi(session, place).is_none() {
        // The old one ended, or its IKE SA has moved to another node of the cluster: nobody
        // here switches from it.
        send_through(session, None, place, new);
    }
}

pub(super) fn start_outbound(session: &mut Session<'_>, new: ChildSaId) {
    if let Some(child) = session.sa.child_mut(new) {
        child.outbound = Outbound::Active;
        session.env.effects.outputs.push_back(Output::StartChild { child: new });
    }
}

/// Not where the old one is retired already: then another than `new` won (§2.8.1).
fn switch_outbound(session: &mut Session<'_>, old: ChildSaId, new: ChildSaId) {
    let Some(place) = spi_of(session, old) else { return };
    let stopped = match session.sa.child_mut(old) {
        Some(from) if from.outbound == Outbound::Active => {
            from.outbound = Outbound::Retired;
            true
        }
        Some(_) => false,
        None => session.env.stop_elsewhere(old),
    };
    if stopped {
        send_through(session, Some(old), place, new);
    }
}

/// What has gone out through one Child SA, of that number if it is still there, goes out through
/// another.
pub(crate) fn send_through(session: &mut Session<'_>, old: Option<ChildSaId>, place: Spi, new: ChildSaId) {
    let Some(to) = session.sa.child_mut(new) else { return };
    to.outbound = Outbound::Active;
    let next = to.params.spi_in;
    // Who else waited for that place waits for its successor.
    for child in session.sa.children.iter_mut().filter(|child| child.is_installed()) {
        if child.outbound == Outbound::Waiting(place) {
            child.outbound = Outbound::Waiting(next);
        }
    }
    session.env.effects.outputs.push_back(match old {
        Some(old) => Output::SwitchChild { from: old, to: new },
        None => Output::StartChild { child: new },
    });
    reauth::pass_place_on(session, place, new);
}

/// The Child SA, of this IKE SA or of another, for which we chose that SPI.
pub(crate) fn child_of_spi(session: &Session<'_>, spi_in: Spi) -> Option<ChildSaId> {
    let elsewhere = || session.env.table.by_esp_spi(spi_in)?.child_by_spi(spi_in);
    session.sa.child_by_spi(spi_in).or_else(elsewhere).map(|child| child.id)
}

/// The SPI that we chose for a Child SA of this IKE SA or of another.
pub(crate) fn spi_of(session: &Session<'_>, child: ChildSaId) -> Option<Spi> {
    let elsewhere = || session.env.table.by_child(child)?.child(child);
    session.sa.child(child).or_else(elsewhere).map(|child| child.params.spi_in)
}

/// Both sides have let a Child SA go. If another has its place, what is still under way through the
/// old one comes in.
pub(crate) fn close_child(session: &mut Session<'_>, id: ChildSaId, reason: &Reason) {
    switch_to_successor(session, id);
    let until = session.now.plus(session.env.config.rekeyed_linger);
    let Some(child) = session.sa.child_mut(id) else { return };
    match (child.phase, child.outbound) {
        // Each side has deleted it by itself.
        (ChildPhase::Deleted(_), _) => {}
        (ChildPhase::Installed | ChildPhase::Rekeyed, Outbound::Retired) => {
            let end = child.limits.times.end.unwrap_or(until);
            child.phase = ChildPhase::Deleted(until.min(end));
        }
        (ChildPhase::Rekeyed, Outbound::Expired) => child::remove(session, id, &Reason::Rekeyed),
        _ => child::remove(session, id, reason),
    }
}

/// Forgets the Child SAs through which nothing can be under way any more.
pub(crate) fn sweep_deleted(session: &mut Session<'_>) {
    let over = |phase: ChildPhase| matches!(phase, ChildPhase::Deleted(until) if until <= session.now);
    let ids: Vec<ChildSaId> =
        session.sa.children.iter().filter(|child| over(child.phase)).map(|child| child.id).collect();
    if !ids.is_empty() {
        session.commit();
    }
    for id in ids {
        child::remove(session, id, &Reason::Rekeyed);
    }
}

/// What had taken the place of a Child SA is for nothing: it stays.
pub(super) fn serve_on(sa: &mut IkeSa, old: ChildSaId) {
    if let Some(old) = sa.child_mut(old).filter(|old| old.phase == ChildPhase::Rekeyed) {
        old.phase = ChildPhase::Installed;
    }
}

/// Another has the place of a Child SA. Gives its SPI, if it is still to be deleted.
fn outdo(sa: &mut IkeSa, old: ChildSaId) -> Option<Spi> {
    let lives = |child: &&mut ChildSa| matches!(child.phase, ChildPhase::Installed | ChildPhase::Rekeyed);
    let child = sa.child_mut(old).filter(lives)?;
    child.phase = ChildPhase::Rekeyed;
    Some(child.params.spi_in)
}

/// The Child SA that one in use has displaced without the peer's wanting it to go: it serves again.
fn former(sa: &IkeSa, active: ChildSaId) -> Option<ChildSaId> {
    let active = sa.child(active).filter(|child| child.outbound == Outbound::Active)?;
    let displaced = |child: &&ChildSa| {
        child.name == active.name && child.is_installed() && child.outbound == Outbound::Retired
    };
    sa.children.iter().rfind(displaced).map(|child| child.id)
}
