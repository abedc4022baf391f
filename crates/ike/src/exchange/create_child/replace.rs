//! Replacing one Child SA by another without packet loss (RFC 7296 §2.8): the new one is used
//! inbound from the start, the old one until some time after its end, and outbound traffic moves in
//! between, in one step.

use crate::exchange::child;
use crate::exchange::create_child::resource;
use crate::exchange::reauth;
use crate::exchange::session::Session;
use crate::output::{ChildSaId, Output, Reason};
use crate::sa::{ChildPhase, ChildSa, IkeSa, Outbound, Task};
use testudo_base::spi::Spi;

/// We renewed a Child SA and the peer has answered: it is ready for both directions.
pub(super) fn take_place(session: &mut Session<'_>, new: ChildSaId) {
    let waits = session.sa.child(new).and_then(|child| child.waits_for());
    if let Some(old) = waits.and_then(|old| child_of_spi(session, old)) {
        // If the old one itself was never proven, it has its place for a moment.
        proven(session, old);
        switch_outbound(session, old, new);
    }
}

/// Deletes the Child SA that we have renewed.
pub(super) fn let_go(session: &mut Session<'_>, old: ChildSaId) {
    if let Some(spi_in) = outdo(session.sa, old) {
        session.sa.outgoing.queue(Task::DeleteSpi(spi_in));
    }
}

/// One replaces another without the peer's knowledge: the peer stops accepting on an SA that it
/// deletes, so packets under way get time.
pub(super) fn displace(session: &mut Session<'_>, old: ChildSaId, new: ChildSaId) {
    // If the old one itself was never proven, it has its place for a moment.
    proven(session, old);
    switch_outbound(session, old, new);
    if let Some(spi_in) = outdo(session.sa, old) {
        session
            .sa
            .outgoing
            .delay(session.now.plus(session.env.config.rekeyed_linger), Task::DeleteSpi(spi_in));
    }
}

/// Moves the outbound traffic of a Child SA to its successor, if there is one.
pub(crate) fn switch_to_successor(session: &mut Session<'_>, old: ChildSaId) {
    let place = session.sa.child(old).map(|old| old.params.spi_in);
    // The Child SAs of workers wait beside the fallback SA, not for its place.
    let worker = |spi| session.sa.resources.worker(spi);
    let waits = |child: &&ChildSa| {
        place.is_some_and(|place| {
            child.waits_for() == Some(place) && worker(child.params.spi_in) == worker(place)
        })
    };
    let new = session.sa.children.iter().find(waits);
    match new.map(|child| child.id) {
        Some(new) => switch_outbound(session, old, new),
        None => {
            reauth::hand_over(session, old);
            resource::promote(session, old);
            resource::give_back(session, old);
        }
    }
    if let Some(former) = former(session.sa, old) {
        switch_outbound(session, old, former);
    }
}

/// A packet came in through a renewed Child SA: the peer uses it.
pub(crate) fn proven(session: &mut Session<'_>, new: ChildSaId) {
    let Some(child) = session.sa.child(new) else { return };
    let Some(place) = child.waits_for() else { return };
    if resource::start(session, new) {
        return;
    }
    let Some(child) = session.sa.child(new) else { return };
    // If the other IKE SA has renewed the old one meanwhile, outbound traffic goes through that.
    let moved = || session.env.predecessor(session.sa, &child.name, &child.params);
    let known = |old: &ChildSaId| session.sa.child(*old).is_some() || session.env.sends_elsewhere(*old);
    let old = child_of_spi(session, place).filter(known).or_else(moved);
    if let Some(old) = old {
        if session.env.stays_beside(session.sa, old, &child.params) {
            return start_outbound(session, new);
        }
        switch_outbound(session, old, new);
    } else if child_of_spi(session, place).is_none() {
        // The old one has ended, or its IKE SA has moved to another node of the cluster: there is
        // nothing here to switch from.
        send_through(session, None, place, new);
    }
}

pub(super) fn start_outbound(session: &mut Session<'_>, new: ChildSaId) {
    if let Some(child) = session.sa.child_mut(new) {
        child.outbound = Outbound::Active;
        session.env.effects.outputs.push_back(Output::StartChild { child: new });
    }
}

/// Not if the old one is retired already: then another than `new` has won (§2.8.1).
fn switch_outbound(session: &mut Session<'_>, old: ChildSaId, new: ChildSaId) {
    let Some(place) = spi_of(session, old) else { return };
    let stopped = match session.sa.child_mut(old) {
        Some(from) if from.is_sending() => {
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

/// Moves outbound traffic from one Child SA, by its number if it still exists, to another.
pub(crate) fn send_through(session: &mut Session<'_>, old: Option<ChildSaId>, place: Spi, new: ChildSaId) {
    let Some(to) = session.sa.child_mut(new) else { return };
    to.outbound = Outbound::Active;
    let next = to.params.spi_in;
    // Another Child SA that waited for this place waits for its successor now.
    for child in session.sa.children.iter_mut().filter(|child| child.is_installed()) {
        if child.outbound == Outbound::Waiting(place) {
            child.outbound = Outbound::Waiting(next);
        }
    }
    let worker = session.sa.resources.worker(next);
    session.env.effects.outputs.push_back(match (old, worker) {
        (Some(old), _) => Output::SwitchChild { from: old, to: new },
        (None, Some(worker)) => Output::BindChild { child: new, worker },
        (None, None) => Output::StartChild { child: new },
    });
    reauth::pass_place_on(session, place, new);
}

/// The Child SA with this SPI of ours, in this IKE SA or another.
pub(crate) fn child_of_spi(session: &Session<'_>, spi_in: Spi) -> Option<ChildSaId> {
    let elsewhere = || session.env.table.by_esp_spi(spi_in)?.child_by_spi(spi_in);
    session.sa.child_by_spi(spi_in).or_else(elsewhere).map(|child| child.id)
}

/// Our SPI of a Child SA in this IKE SA or another.
pub(crate) fn spi_of(session: &Session<'_>, child: ChildSaId) -> Option<Spi> {
    let elsewhere = || session.env.table.by_child(child)?.child(child);
    session.sa.child(child).or_else(elsewhere).map(|child| child.params.spi_in)
}

/// Both sides have deleted a Child SA. If another has its place, packets under way through the old
/// one are still accepted.
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

/// Forgets the Child SAs for which no packet can be under way any more.
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

/// The successor of a Child SA is redundant: the old one stays.
pub(super) fn serve_on(sa: &mut IkeSa, old: ChildSaId) {
    if let Some(old) = sa.child_mut(old).filter(|old| old.phase == ChildPhase::Rekeyed) {
        old.phase = ChildPhase::Installed;
    }
}

/// Another has the place of a Child SA. Returns its SPI, if it must still be deleted.
fn outdo(sa: &mut IkeSa, old: ChildSaId) -> Option<Spi> {
    let lives = |child: &&mut ChildSa| matches!(child.phase, ChildPhase::Installed | ChildPhase::Rekeyed);
    let child = sa.child_mut(old).filter(lives)?;
    child.phase = ChildPhase::Rekeyed;
    Some(child.params.spi_in)
}

/// The Child SA that one in use has displaced without the peer's request: it sends again. That of a
/// worker displaces none.
fn former(sa: &IkeSa, active: ChildSaId) -> Option<ChildSaId> {
    let active = sa.child(active).filter(|child| child.is_sending() && !sa.is_additional(child))?;
    let displaced = |child: &&ChildSa| {
        child.name == active.name && child.is_installed() && child.outbound == Outbound::Retired
    };
    sa.children.iter().rfind(displaced).map(|child| child.id)
}
