//! Reauthentication (RFC 7296 §2.8.3), make-before-break: a new IKE SA is set up from scratch
//! beside the old one, with Child SAs for all of its children, each of which takes the outbound
//! traffic over as soon as it exists. Then the old IKE SA goes.

use crate::alloc::Home;
use crate::config::{Childless, Connection};
use crate::endpoint::{EndpointConfig, InitiateError};
use crate::environment::begin::Beginning;
use crate::environment::report::{FAILURE, IMPORTANT, ORDINARY};
use crate::exchange::change;
use crate::exchange::create_child;
use crate::exchange::session::Session;
use crate::output::{ChildSaId, Event, IkeSaId, Reason, Time};
use crate::sa::{ChildSa, IkeSa, Outbound, Reauth, Task, Times, What};
use crate::suite::Role;
use std::sync::Arc;
use std::time::Duration;
use testudo_base::spi::Spi;

/// How long a replaced IKE SA stays: its Child SAs accept packets under way, and a peer that began
/// gets time to move its Child SAs. As with charon.
const OUTLIVED: Duration = Duration::from_secs(10);

/// Sets up another IKE SA in place of this one.
pub(crate) fn begin(session: &mut Session<'_>) {
    session.commit();
    if session.sa.reauth.is_some() {
        return;
    }
    let renewing = matches!(session.sa.creating.as_ref().map(|creating| &creating.what), Some(What::Ike(_)));
    if renewing {
        // Its successor's turn.
        return postpone(session);
    }
    let found = session.env.loaded.connections.get(&session.sa.connection).and_then(|connection| {
        let mut children = session.sa.children.iter().filter(|child| child.is_installed()).peekable();
        if children.peek().is_none() && connection.childless != Childless::Never {
            // The IKE SA alone (RFC 6023).
            return Some((connection, String::new()));
        }
        let needed = |name: &&String| connection.has_sas(name) && !session.env.has_moved_on(session.sa, name);
        let name = children.map(|child| &child.name).find(needed)?.clone();
        Some((connection, name))
    });
    let Some((connection, child)) = found else {
        return session.log(FAILURE, "not reauthenticated: it has no CHILD_SA that is configured");
    };
    if session.sa.role == Role::Responder && !session.sa.virtual_ips.remote.is_empty() {
        // A client with a virtual address has to begin itself (RFC 4478).
        return session.log(FAILURE, "not reauthenticated: only the initiator can do this");
    }
    session.log(ORDINARY, format!("reauthenticating IKE_SA {}[{}]", session.sa.connection, session.sa.id.0));
    match set_up_anew(session, &connection, &child) {
        Ok(_) => session.sa.reauth = Some(Reauth::Begun),
        Err(error) => {
            failed(session, &error.to_string());
        }
    }
}

fn set_up_anew(
    session: &mut Session<'_>,
    connection: &Arc<Connection>,
    child: &str,
) -> Result<IkeSaId, InitiateError> {
    // A peer that began is at its present address, whatever the configuration says. Roles change
    // with every renewal, so a peer without a configured address is there too.
    let path = match session.sa.role {
        Role::Responder if !session.sa.is_outdated() => session.sa.path,
        _ if connection.peer_address().is_none() => session.sa.path,
        _ => session.env.loaded.initial_path(connection)?,
    };
    let home = Home::Renewing(session.sa.our_spi().shard());
    let reauth = Some(Reauth::Of(session.sa.our_spi()));
    session.env.names.look_names_up(connection);
    let beginning = Beginning { id: session.env.numbers.new_ike_id(), child, path, reauth, home };
    session.env.begin_ike_sa_at(session.now, connection, beginning)
}

/// The new IKE SA exists, with its first Child SA: the others follow.
pub(crate) fn ask_other_children(session: &mut Session<'_>) {
    let Some(old) = session.env.reauthenticated(session.sa) else { return };
    let there = |name: &String| session.sa.children.iter().any(|child| child.name == *name);
    let connection = session.env.loaded.connections.find(&session.sa.connection);
    let configured = |name: &&String| connection.is_some_and(|connection| connection.has_sas(name));
    let others = old.children.iter().filter(|child| child.is_installed()).map(|child| &child.name);
    let others = others.filter(configured).filter(|name| !session.env.has_moved_on(old, name));
    let missing: Vec<String> = others.filter(|name| !there(name)).cloned().collect();
    for name in missing {
        session.env.act_on_refusal(session.sa, &name);
        session.sa.outgoing.queue(Task::NewChild { name, tries: 1 });
    }
}

/// Nothing is left to request: everything possible was made anew, and the old IKE SA goes.
pub(crate) fn complete(session: &mut Session<'_>) -> Result<(), Reason> {
    let spi = match session.sa.reauth.filter(|_| session.sa.is_in_charge()) {
        Some(Reauth::Of(_))
            if session.sa.outgoing.is_waiting(|task| matches!(task, Task::NewChild { .. })) =>
        {
            return Ok(());
        }
        Some(Reauth::Of(spi)) => {
            // The peer may wait for a sign that we have its answers, which no packet need give; and
            // our delete of the old one may be lost.
            session.sa.reauth = Some(Reauth::Shown(spi));
            return session.check_liveness();
        }
        Some(Reauth::Shown(spi)) => spi,
        _ => return Ok(()),
    };
    session.commit();
    session.sa.reauth = None;
    let Some(old) = session.env.table.by_spi(spi).filter(|old| !old.is_gone()) else { return Ok(()) };
    if old.closing.as_ref().is_some_and(|closing| closing.reason == Reason::Requested) {
        return session.delete_ike(Reason::Requested, session.now.plus(session.env.config.delete_timeout));
    }
    let old = old.id;
    session.env.with_sa(session.now, old, |old| {
        let line = format!(
            "IKE_SA {}[{}] reauthenticated: it is [{}] now",
            session.sa.connection, old.sa.id.0, session.sa.id.0
        );
        old.log(IMPORTANT, line);
        let waiting = std::mem::take(&mut old.sa.outgoing.tasks);
        for task in waiting {
            match &task {
                Task::NewChild { name, .. } => {
                    let child = name.clone();
                    old.env.effects.event(Event::InitiateMoved { from: old.sa.id, to: session.sa.id, child });
                    session.sa.outgoing.delay(old.now, task);
                }
                Task::DeleteSpi(_) | Task::DeleteIke => old.sa.outgoing.queue(task),
                Task::RekeyChild(_)
                | Task::ReplaceChild(_)
                | Task::RekeyIke
                | Task::SyncMessageIds
                | Task::SyncReplayCounters(_)
                | Task::NewResource { .. } => {}
            }
        }
        give_way(old);
        Ok(())
    });
    Ok(())
}

/// Another IKE SA has replaced this one, which ends in a while and is not renewed until then.
pub(crate) fn give_way(session: &mut Session<'_>) {
    session.commit();
    session.sa.reauth = Some(Reauth::Done);
    session.sa.reauth_at = None;
    session.sa.outdated = None;
    session.sa.times = Times { rekey: None, end: Some(session.now.plus(OUTLIVED)) };
    session.sa.outgoing.later.clear();
    for child in &mut session.sa.children {
        child.limits.times.rekey = None;
        child.outdated = None;
    }
}

/// The new IKE SA has failed: it is tried again, as often as that makes sense.
fn failed(session: &mut Session<'_>, why: &str) {
    session.log(FAILURE, format!("not reauthenticated: {why}"));
    if session.sa.is_outdated() {
        change::failed(session);
    } else {
        session.sa.reauth_at = Some(session.env.retry_at(session.now));
    }
}

fn postpone(session: &mut Session<'_>) {
    let at = Some(session.env.retry_at(session.now));
    match session.sa.outdated.as_mut().filter(|outdated| !outdated.turn.is_given_up()) {
        Some(outdated) => outdated.turn.at = at,
        None => session.sa.reauth_at = at,
    }
}

/// An IKE SA ends. If it was to replace another one, that one stays, and the replacement is tried
/// again; if it was about to be replaced itself, an operator who terminates it does not want the
/// replacement either.
pub(crate) fn ended(session: &mut Session<'_>, reason: &Reason) {
    match session.sa.reauth.take() {
        Some(Reauth::Of(spi) | Reauth::Shown(spi)) => {
            let begun = |old: &&IkeSa| old.reauth == Some(Reauth::Begun);
            let Some(old) = session.env.table.by_spi(spi).filter(begun).map(|old| old.id) else { return };
            session.env.with_sa(session.now, old, |old| {
                old.commit();
                old.sa.reauth = None;
                failed(old, &reason.to_string());
                Ok(())
            });
        }
        Some(Reauth::Begun) if *reason == Reason::Requested => {
            let spi = session.sa.our_spi();
            let new = |new: &&IkeSa| [Reauth::Of(spi), Reauth::Shown(spi)].map(Some).contains(&new.reauth);
            let new = session.env.table.by_addr(session.sa.path.remote.ip()).find(new).map(|new| new.id);
            if let Some(new) = new {
                session.env.with_sa(session.now, new, |new| new.terminate_ike(false));
            }
        }
        _ => {}
    }
}

/// The peer has shown that it has the whole new IKE SA, and all answers so far: outbound traffic
/// moves to the new Child SAs.
pub(crate) fn peer_is_ready(session: &mut Session<'_>) {
    let elsewhere = |new: ChildSaId| {
        let waits = session.sa.child(new).and_then(ChildSa::waits_for);
        waits.is_some_and(|old| session.sa.child_by_spi(old).is_none())
    };
    let ready: Vec<ChildSaId> = waiting_for_another(session.sa)
        .into_iter()
        .map(|(new, _)| new)
        .filter(|new| elsewhere(*new))
        .collect();
    let workers = create_child::waiting_workers(session.sa);
    ready.into_iter().chain(workers).for_each(|new| create_child::proven(session, new));
}

/// The wait for it is bounded: the peer may have lost the Child SAs through which we still send.
pub(crate) fn wait_no_longer(session: &mut Session<'_>) {
    for (new, installed) in waiting_for_another(session.sa) {
        if sign_due(installed, &session.env.config) > session.now {
            continue;
        }
        session.commit();
        create_child::proven(session, new);
        if let Some(place) = session.sa.child(new).and_then(ChildSa::waits_for) {
            // Nothing has the place that it waits for: outbound traffic must not wait forever.
            let old = create_child::child_of_spi(session, place);
            create_child::send_through(session, old, place, new);
        }
    }
}

/// Outbound traffic moves from one Child SA to another. Child SAs of other IKE SAs that waited for
/// its place wait for that of its successor, if they are newer; otherwise they have lost their
/// turn.
pub(crate) fn pass_place_on(session: &mut Session<'_>, old: Spi, new: ChildSaId) {
    let inherited = session.sa.child_by_spi(old).is_some();
    let Some(new) = session.sa.child(new) else { return };
    while let Some((ike, standby)) = session.env.standby(session.sa, old) {
        let Some(mut other) = session.env.table.take(ike) else { return };
        session.env.commit(&mut other);
        if let Some(child) = other.child_mut(standby) {
            // A renewal leaves the place in its IKE SA, and the others follow it.
            let newer = inherited || child.installed > new.installed;
            child.outbound = if newer { Outbound::Waiting(new.params.spi_in) } else { Outbound::Retired };
        }
        session.env.put(other);
    }
}

/// Outbound traffic of an ending Child SA moves to the Child SA of another IKE SA that waits for
/// its place.
pub(crate) fn hand_over(session: &mut Session<'_>, old: ChildSaId) {
    let Some(place) = session.sa.child(old).map(|old| old.params.spi_in) else { return };
    let Some((ike, new)) = session.env.standby(session.sa, place) else { return };
    let Some(child) = session.sa.child_mut(old).filter(|child| child.is_sending()) else {
        return;
    };
    child.outbound = Outbound::Retired;
    if let Some(mut other) = session.env.table.take(ike) {
        session.env.commit(&mut other);
        create_child::send_through(&mut session.beside(&mut other), Some(old), place, new);
        session.env.put(other);
    }
}

/// How long a responder waits for a sign that the peer has a Child SA that replaces one of another
/// IKE SA: as long as a peer repeats its request because the answer was lost.
fn sign_due(installed: Time, config: &EndpointConfig) -> Time {
    installed.plus(config.retransmit.patience())
}

/// The Child SAs that wait for the place of one that the peer has not renewed by them, mostly one
/// of another IKE SA; and since when.
fn waiting_for_another(sa: &IkeSa) -> Vec<(ChildSaId, Time)> {
    let another = |old| sa.child_by_spi(old).is_none_or(ChildSa::is_installed);
    let waits = |child: &&ChildSa| child.waits_for().is_some_and(another);
    sa.children.iter().filter(waits).map(|child| (child.id, child.installed)).collect()
}

/// When the first of them has waited long enough.
pub(crate) fn patience_ends(sa: &IkeSa, config: &EndpointConfig) -> Option<Time> {
    waiting_for_another(sa).into_iter().map(|(_, installed)| sign_due(installed, config)).min()
}
