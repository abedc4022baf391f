//! Following a changed configuration: the effect of loading, reloading and unloading a connection
//! on its SAs.
//!
//! The result of [`Difference`] is applied SA by SA, make-before-break: the outdated SAs are marked
//! ([`Outdated`]), and their IKE SA replaces them at its own pace, so that a pending renewal, a
//! busy peer or another reload do no harm. Nothing is computed while the connection is loaded, and
//! the peers of a connection take turns. A peer that refuses the change is asked a few times; then
//! the old SA stays until its end.

use crate::alloc::Home;
use crate::config::{ChildChange, Connection, Difference, IkeChange, Lifetime};
use crate::environment::report::{FAILURE, IMPORTANT, ORDINARY};
use crate::exchange::create_child;
use crate::exchange::init;
use crate::exchange::reauth;
use crate::exchange::session::Session;
use crate::output::{ChildSaId, Reason, Time};
use crate::sa::{
    Attempt, ChildPhase, FollowupSa, IkeSa, MAX_TRIES, Outdated, OutdatedIke, Phase, Task, Times, What,
    draw_reauth, earlier,
};
use crate::suite::Role;
use std::sync::Arc;
use std::time::Duration;

/// `turn`: when the peer is asked.
pub(crate) fn follow_on(
    session: &mut Session<'_>,
    turn: Time,
    connection: &Arc<Connection>,
    difference: &Difference,
) -> Result<(), Reason> {
    session.commit();
    let changed = |child: &str| {
        let change = difference.children.get(child);
        matches!(change, Some(ChildChange::Replace | ChildChange::Remove))
    };
    let is_live = session.sa.is_live();
    match &mut session.sa.phase {
        Phase::InitSent(_) | Phase::Intermediate(_) | Phase::AuthRounds(_) => {
            let child = session.sa.phase.attempt().map(|attempt| attempt.child.clone()).unwrap_or_default();
            if difference.ike == IkeChange::None && !changed(&child) {
                return Ok(());
            }
            session.end_attempt();
            let line = "the configuration has changed: the IKE_SA is initiated again";
            begin_again(session, connection, child, 1, line)
        }
        Phase::AuthSent(sent) => {
            // The peer may have made it already: it is replaced as soon as it exists.
            sent.attempt.outdated |= changed(&sent.attempt.child);
            outdate_ike(session, turn, difference.ike);
            Ok(())
        }
        Phase::Established if is_live => {
            follow_on_established(session, turn, connection, difference);
            Ok(())
        }
        _ => Ok(()),
    }
}

/// No side is authenticated yet: the attempt begins again, with the new configuration.
pub(crate) fn begin_again(
    session: &mut Session<'_>,
    connection: &Connection,
    child: String,
    number: u32,
    why: &str,
) -> Result<(), Reason> {
    let path = session
        .env
        .loaded
        .path_again(connection, session.sa)
        .map_err(|error| Reason::Refused(error.to_string()))?;
    session.log(ORDINARY, why);
    let home = Home::Renewing(session.sa.our_spi().shard());
    init::begin_attempt(session, connection, Attempt { child, number, outdated: false }, path, home)
}

fn follow_on_established(
    session: &mut Session<'_>,
    turn: Time,
    connection: &Connection,
    difference: &Difference,
) {
    session.sa.dpd_delay = connection.dpd_delay;
    if difference.retime {
        retime_ike(session, connection);
    }
    outdate_ike(session, turn, difference.ike);
    // If the IKE SA is set up anew, its children come with it.
    let at = Some(turn).filter(|_| !session.sa.is_outdated());
    let lifetime = |name: &str| connection.child(name).map(|child| child.lifetime.time).unwrap_or_default();
    let children: Vec<(ChildSaId, String)> = session
        .sa
        .children
        .iter()
        .filter(|child| child.is_installed())
        .map(|c| (c.id, c.name.clone()))
        .collect();
    for (id, name) in children {
        match difference.children.get(&name) {
            Some(ChildChange::Replace) => outdate_child(session.sa, id, at),
            Some(ChildChange::Remove) => drop_child(session, turn, id),
            Some(ChildChange::Retime) => retime_child(session, id, &lifetime(&name)),
            Some(ChildChange::Rekey) => {
                retime_child(session, id, &lifetime(&name));
                // If the new IKE SA fails, this one must have the children.
                rekey_child(
                    session.sa,
                    id,
                    at.unwrap_or(turn.plus(session.env.config.start_retry * u32::from(MAX_TRIES))),
                );
            }
            Some(ChildChange::Add | ChildChange::None) | None => {}
        }
    }
    follow_on_what_is_being_made(session, difference);
}

/// The SA that we are making was offered by the old configuration: it is replaced once it exists.
/// The peer must begin again what it is making in several exchanges, and it is negotiated anew.
fn follow_on_what_is_being_made(session: &mut Session<'_>, difference: &Difference) {
    let replaced = |child: &str| {
        let change = difference.children.get(child);
        matches!(change, Some(ChildChange::Replace | ChildChange::Remove))
    };
    let rekey = difference.ike == IkeChange::Rekey;
    if let Some(creating) = &mut session.sa.creating {
        creating.outdated |= match &creating.what {
            What::Child { name, .. } => replaced(name),
            What::Ike(_) => rekey,
        };
    }
    let outdated = session.sa.followup.as_ref().is_some_and(|followup| match &followup.sa {
        FollowupSa::Child { name, .. } => replaced(name),
        FollowupSa::Ike(_) => rekey,
    });
    if outdated {
        create_child::forget_followup(session);
    }
}

/// The IKE SA does not match its connection.
pub(crate) fn outdate_ike(session: &mut Session<'_>, now: Time, change: IkeChange) {
    if change == IkeChange::None {
        return;
    }
    let before = session.sa.outdated.as_ref().map(|outdated| outdated.change).unwrap_or_default();
    let change = change.max(before);
    // If both sides have a new configuration, two IKE SAs would be one too many: the original
    // initiator begins.
    let at = match (change, session.sa.role) {
        (IkeChange::Reauthenticate, Role::Responder) => session.env.retry_at(now),
        _ => now,
    };
    session.sa.outdated = Some(Box::new(OutdatedIke { change, turn: Outdated::new(Some(at)) }));
}

/// The child is not configured any more, so its Child SA is deleted.
fn drop_child(session: &mut Session<'_>, turn: Time, id: ChildSaId) {
    let Some(child) = session.sa.child_mut(id) else { return };
    child.phase = ChildPhase::Deleting;
    let (name, spi_in) = (child.name.clone(), child.params.spi_in);
    session.log(IMPORTANT, format!("CHILD_SA {name}{{{}}} is deleted: it is not configured any more", id.0));
    session.sa.outgoing.delay(turn, Task::DeleteSpi(spi_in));
}

fn retime_child(session: &mut Session<'_>, id: ChildSaId, lifetime: &Lifetime) {
    let renewing = is_rekeying(session.sa, id);
    let Some(child) = session.sa.child_mut(id) else { return };
    let times = Times::again(lifetime, child.installed, session.now, &mut *session.env.alloc);
    let before = child.limits.times.end;
    child.limits.times = Times { rekey: times.rekey.filter(|_| !renewing), end: times.end };
    if child.outdated.is_some() {
        // No later change puts the end of what was taken away off.
        child.limits.times.end = earlier(before, times.end);
    }
}

fn retime_ike(session: &mut Session<'_>, connection: &Connection) {
    if session.sa.reauth.is_some() {
        // One of the two goes soon.
        return;
    }
    let lifetime = &connection.lifetime;
    let came_up = session.sa.established.unwrap_or(session.now);
    let due = |seconds: u64| {
        let earliest = Duration::from_secs(seconds.saturating_sub(lifetime.rand));
        came_up.max(Time(session.now.since(Time(earliest))))
    };
    let drawn = draw_reauth(lifetime, due(lifetime.reauth), &mut *session.env.alloc);
    // New keys do not authenticate the peer again: an earlier deadline stays.
    let drawn = drawn.map(|drawn| session.sa.reauth_at.map_or(drawn, |before| before.min(drawn)));
    let (reauth_before, end_before) = (session.sa.reauth_at, session.sa.times.end);
    session.sa.reauth_at = drawn;
    let renewing = matches!(session.sa.creating.as_ref().map(|creating| &creating.what), Some(What::Ike(_)))
        || session.sa.outgoing.is_waiting(|task| *task == Task::RekeyIke);
    let times = Times::of_ike(lifetime, session.sa.reauth_at, due(lifetime.rekey), &mut *session.env.alloc);
    session.sa.times = Times { rekey: times.rekey.filter(|_| !renewing), end: times.end };
    if session.sa.keeps_its_end() {
        session.sa.reauth_at = earlier(session.sa.reauth_at, reauth_before);
        session.sa.times.end = earlier(session.sa.times.end, end_before);
    }
}

/// Applies the changes whose time has come.
pub(crate) fn replace_outdated(session: &mut Session<'_>) -> Result<(), Reason> {
    let now = session.now;
    let is_due = |outdated: &Outdated| outdated.at.is_some_and(|at| at <= now);
    if let Some(outdated) = session.sa.outdated.as_mut().filter(|outdated| is_due(&outdated.turn)) {
        outdated.turn.at = None;
        match outdated.change {
            IkeChange::None => session.sa.outdated = None,
            IkeChange::Rekey => session.want_new_ike_keys()?,
            IkeChange::Reauthenticate if outdated.turn.is_given_up() => {
                session.commit();
                session.env.reauthenticate_before_end(session.now, session.sa);
            }
            IkeChange::Reauthenticate => set_up_by_new_configuration(session)?,
        }
    }
    let installed = session.sa.children.iter_mut().filter(|child| child.is_installed());
    let due = installed.filter_map(|child| {
        let outdated = child.outdated.as_mut().filter(|outdated| is_due(outdated))?;
        outdated.at = None;
        Some(child.id)
    });
    let due: Vec<ChildSaId> = due.collect();
    if !due.is_empty() {
        session.commit();
    }
    due.into_iter().for_each(|id| session.sa.outgoing.queue(Task::ReplaceChild(id)));
    Ok(())
}

/// Replaces an IKE SA whose connection has changed, if we are to begin.
fn set_up_by_new_configuration(session: &mut Session<'_>) -> Result<(), Reason> {
    let Some(connection) = session.env.loaded.connections.get(&session.sa.connection) else { return Ok(()) };
    if session.sa.reauth.is_some() {
        let at = session.env.retry_at(session.now);
        session.sa.outdated.iter_mut().for_each(|outdated| outdated.turn.at = Some(at));
        return Ok(());
    }
    if let Some(why) = unreachable(session.sa, &connection) {
        let line = format!(
            "IKE_SA {}[{}] stays as it was set up until the peer sets it up anew: {why}",
            session.sa.connection, session.sa.id.0
        );
        session.log(FAILURE, line);
        settle_for_old(session);
        return Ok(());
    }
    if !session.sa.children.iter().any(|child| child.is_installed() && connection.has_sas(&child.name)) {
        let reason = Reason::Refused("its connection has changed, and it has none of the new traffic".into());
        return session.delete_ike(reason, session.now.plus(session.env.config.delete_timeout));
    }
    reauth::begin(session);
    Ok(())
}

/// The new proposals gave no new keys. strongSwan rekeys an IKE SA by the configuration with which
/// it was made: another IKE SA may succeed all the same.
pub(crate) fn rekey_is_not_enough(session: &mut Session<'_>) {
    let now = session.now;
    outdate_ike(session, now, IkeChange::Reauthenticate);
    if let Some(connection) = session.env.loaded.connections.get(&session.sa.connection) {
        retime_ike(session, &connection);
    }
}

/// A change could not be applied to an IKE SA: it is tried again for a while.
pub(crate) fn failed(session: &mut Session<'_>) {
    let retry = session.now.plus(session.env.config.start_retry);
    let Some(outdated) = &mut session.sa.outdated else { return };
    if outdated.turn.failed(retry) {
        return;
    }
    let line = format!(
        "IKE_SA {}[{}] stays as it was made until its time is over: the peer does not take its new configuration",
        session.sa.connection, session.sa.id.0
    );
    session.log(FAILURE, line);
    settle_for_old(session);
}

/// The IKE SA stays, with its deadlines; before they are over another attempt is made. Its children
/// change on it, as far as necessary, if its peer would still be admitted.
fn settle_for_old(session: &mut Session<'_>) {
    session.sa.outdated.iter_mut().for_each(|outdated| outdated.turn.give_up());
    if let Some(connection) = session.env.loaded.connections.get(&session.sa.connection) {
        retime_ike(session, &connection);
    }
    session.env.reauthenticate_before_end(session.now, session.sa);
    // The new traffic is not for a peer that would not be admitted any more.
    let revoked = session.env.loaded.is_revoked(session.sa);
    for outdated in session.sa.children.iter_mut().filter_map(|child| child.outdated.as_mut()) {
        match revoked {
            true => outdated.give_up(),
            false if outdated.is_given_up() => {}
            false => outdated.at = Some(session.now),
        }
    }
}

fn outdate_child(sa: &mut IkeSa, id: ChildSaId, at: Option<Time>) {
    if let Some(child) = sa.child_mut(id) {
        child.outdated = Some(Box::new(Outdated::new(at)));
    }
}

fn is_rekeying(sa: &IkeSa, id: ChildSaId) -> bool {
    sa.creating.as_ref().is_some_and(|creating| creating.renews() == Some(id))
        || sa.outgoing.is_waiting(|task| *task == Task::RekeyChild(id))
}

/// Rekeys the child at this time, unless that is under way.
fn rekey_child(sa: &mut IkeSa, id: ChildSaId, at: Time) {
    let renewing = is_rekeying(sa, id);
    if let Some(child) = sa.child_mut(id).filter(|_| !renewing) {
        child.limits.times.rekey = Some(at);
    }
}

/// Why we cannot set the IKE SA up anew.
fn unreachable(sa: &IkeSa, connection: &Connection) -> Option<&'static str> {
    if !connection.remote_hosts().has_single() {
        return Some("remote_addrs names no address to begin at");
    }
    match sa.role {
        Role::Responder if !sa.virtual_ips.remote.is_empty() => Some("it has a virtual IP"),
        Role::Responder if sa.nat.remote => Some("it is behind a NAT"),
        _ => None,
    }
}
