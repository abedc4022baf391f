//! A Child SA for each worker, beside one for all, the fallback SA (RFC 9611). All have the same
//! selectors, algorithms and mode.
//!
//! Both sides agree to that by SA_RESOURCE_INFO when they make the fallback SA. The side that made
//! it requests the others, one after the other, until each of its workers has one. A refusal ends
//! that until the fallback SA is made anew or renewed: a peer that deletes a Child SA does not get
//! it back at once (RFC 9611 §6).

use super::initiator::{RequestedChild, begin_child, child_failed, configured_child, try_later};
use super::replace::send_through;
use super::responder::asked_child;
use crate::config::Child;
use crate::environment::report::{DETAIL, FAILURE, ORDINARY};
use crate::exchange::child::{NoChild, choose_suite};
use crate::exchange::mode;
use crate::exchange::narrow::Selectors;
use crate::exchange::session::Session;
use crate::message::{Notify, NotifyType, Payload, Payloads};
use crate::output::{ChildSaId, Output, Reason};
use crate::sa::{AgreedChild, ChildPhase, ChildSa, FollowupSa, IkeSa, Outbound, Part, Task};
use crate::suite::offer::ChildExchange;
use crate::suite::{EspSuite, Role};
use testudo_base::spi::Spi;
use testudo_ipsec::sa::{ChildSaParams, Mode};

/// Bound on the requests for a Child SA while the peer cannot take it.
const MAX_TRIES: u8 = 5;
/// Octets of the peer's identifier that are logged.
const MAX_LOGGED: usize = 16;

/// True if the child may have a Child SA for each worker.
fn is_configured(session: &Session<'_>, child: &Child) -> bool {
    child.per_cpu_sas && session.env.config.resource_workers > 0
}

/// The notify with which we offer, or accept, a Child SA for each worker beside this one.
pub(crate) fn invite(session: &Session<'_>, child: &Child) -> Option<Payload> {
    let notify = || Payload::Notify(Notify::new(NotifyType::SaResourceInfo, Vec::new()));
    is_configured(session, child).then(notify)
}

/// The notify for one of them. The identifier is the SPI: unique among them, and no news to anybody
/// about this host (RFC 9611 §7).
fn identified(spi_in: Spi) -> Payload {
    Payload::Notify(Notify::new(NotifyType::SaResourceInfo, spi_in.0.to_be_bytes().to_vec()))
}

/// The notify in our request or response for the Child SA with this SPI.
pub(super) fn notify(session: &Session<'_>, child: &Child, spi_in: Spi) -> Option<Payload> {
    match session.sa.resources.worker(spi_in) {
        Some(_) => Some(identified(spi_in)),
        None => invite(session, child),
    }
}

/// The notify in our request for the Child SA with this SPI.
pub(super) fn notify_for(session: &Session<'_>, name: &str, spi_in: Spi) -> Option<Payload> {
    notify(session, &configured_child(session, name)?, spi_in)
}

/// Notes whether the peer's answer accepts what our request says of resources.
pub(super) fn note_answer(
    session: &mut Session<'_>,
    asked: &RequestedChild,
    child: &Child,
    answer: &Payloads,
) -> Result<(), &'static str> {
    let is_accepted = is_invited(session, child, answer);
    let is_new = asked.replaces.is_none() || asked.anew;
    match session.sa.resources.worker(asked.spi_in) {
        Some(_) if !is_accepted => return Err("the peer's answer lacks SA_RESOURCE_INFO"),
        None if is_accepted && is_new => {
            session.sa.resources.set(asked.spi_in, &child.name, Part::Fallback);
        }
        _ => {}
    }
    Ok(())
}

/// True if the peer offers or accepts it too.
pub(crate) fn is_invited(session: &Session<'_>, child: &Child, payloads: &Payloads) -> bool {
    invitation(session, child, payloads).is_some()
}

/// The notify with which the peer offers or accepts it too.
fn invitation<'p>(session: &Session<'_>, child: &Child, payloads: &'p Payloads) -> Option<&'p Notify> {
    payloads.notify(NotifyType::SaResourceInfo).filter(|_| is_configured(session, child))
}

/// The fallback SAs of that name, without those that have a successor.
fn fallbacks<'s>(sa: &'s IkeSa, name: &'s str) -> impl Iterator<Item = &'s ChildSa> {
    let found = sa.resources.fallbacks(name).filter_map(|spi| sa.child_by_spi(spi));
    found.filter(|child| child.is_up())
}

/// The fallback SA with these selectors: the newest, if it replaces another one.
fn fallback<'s>(sa: &'s IkeSa, name: &'s str, selectors: &Selectors) -> Option<&'s ChildSa> {
    fallbacks(sa, name).filter(|child| Selectors::of(&child.params) == *selectors).last()
}

/// True if a Child SA has the algorithms and the mode of the fallback SA (RFC 9611 §3).
fn is_like(fallback: &ChildSa, suite: &EspSuite, mode: Mode) -> bool {
    let params = &fallback.params;
    (params.algorithm, params.esn, params.mode) == (suite.algorithm, suite.esn, mode)
}

/// True if a Child SA for which the peer sends this notify goes beside the fallback SA. One that
/// names no resource and is unlike the fallback SA is to replace it: the peer's configuration has
/// changed.
fn stands_beside(
    sa: &IkeSa,
    name: &str,
    selectors: &Selectors,
    notify: &Notify,
    is_like: impl FnOnce(&ChildSa) -> bool,
) -> bool {
    fallback(sa, name, selectors).is_some_and(|fallback| !notify.data.is_empty() || is_like(fallback))
}

/// The part of the Child SA that the peer requests beside others. `None`: it belongs to no group.
pub(super) fn judge(
    session: &mut Session<'_>,
    child: &Child,
    selectors: &Selectors,
    (suite, mode): (&EspSuite, Mode),
    payloads: &Payloads,
) -> Result<Option<Part>, NoChild> {
    let Some(notify) = invitation(session, child, payloads) else { return Ok(None) };
    let is_like = |fallback: &ChildSa| is_like(fallback, suite, mode);
    if !stands_beside(session.sa, &child.name, selectors, notify, is_like) {
        return Ok(Some(Part::Fallback));
    }
    tidy(session.sa);
    let (found, limit) = (session.sa.resources.additional(&child.name), session.env.config.resource_limit);
    if found >= limit {
        let why = format!("{} has {found} CHILD_SAs for workers already", child.name);
        return Err(NoChild::new(NotifyType::TsMaxQueue, why));
    }
    let identifier: String =
        notify.data.iter().take(MAX_LOGGED).map(|octet| format!("{octet:02x}")).collect();
    session.log(DETAIL, format!("the peer wants a CHILD_SA for its resource 0x{identifier}"));
    let least = session.sa.resources.least_used(&child.name, session.env.config.resource_workers);
    Ok(least.map(|(worker, _)| Part::Worker(worker)))
}

/// A refusal for lack of room concerns Child SAs for workers alone, if the peer requests one: it may
/// not take it for a refusal of others (RFC 9611 §6).
pub(super) fn no_room(session: &Session<'_>, payloads: &Payloads, NoChild(notify, why): NoChild) -> NoChild {
    let is_additional = || {
        let (child, selectors) = asked_child(session, None, payloads).ok()?;
        let notify = invitation(session, &child, payloads)?;
        let is_like = |fallback: &ChildSa| {
            let mode = mode::to_answer(session.sa, &child, &selectors, payloads);
            let choose = |offered| choose_suite(&child, offered, ChildExchange::CreateChildSa).ok();
            payloads.sa().and_then(choose).is_some_and(|choice| is_like(fallback, &choice.suite, mode))
        };
        Some(stands_beside(session.sa, &child.name, &selectors, notify, is_like))
    };
    if notify.kind == NotifyType::NoAdditionalSas && is_additional() == Some(true) {
        NoChild::new(NotifyType::TsMaxQueue, why)
    } else {
        NoChild(notify, why)
    }
}

/// Checks that a Child SA of a worker is like the fallback SA (RFC 9611 §3). All others pass.
pub(super) fn check(session: &Session<'_>, name: &str, agreed: &AgreedChild) -> Result<(), &'static str> {
    if session.sa.resources.worker(agreed.spi_in).is_none() {
        return Ok(());
    }
    let selectors = Selectors { local: agreed.local_ts.clone(), remote: agreed.remote_ts.clone() };
    let Some(fallback) = fallback(session.sa, name, &selectors) else {
        return Err("its selectors are not those of the CHILD_SA for all workers");
    };
    if is_like(fallback, &agreed.suite, agreed.mode) {
        Ok(())
    } else {
        Err("its algorithms or mode are not those of the CHILD_SA for all workers")
    }
}

/// The fallback SA beside which a new Child SA of a worker stands, unless it takes the place of
/// another one of that worker. If there is none any more, the new one is for all.
pub(crate) fn fallback_of_new(
    session: &mut Session<'_>,
    name: &str,
    new: &ChildSaParams,
    replaces: bool,
) -> Option<ChildSaId> {
    session.sa.resources.worker(new.spi_in).filter(|_| !replaces)?;
    let found = fallback(session.sa, name, &Selectors::of(new)).map(|child| child.id);
    if found.is_none() {
        session.sa.resources.set(new.spi_in, name, Part::Fallback);
    }
    found
}

/// A Child SA is installed. `beside`: beside the fallback SA, as the one of a worker. If we have made
/// it, the worker sends by it at once; and the next one follows it, or a fallback SA.
pub(crate) fn note_installed(session: &mut Session<'_>, new: ChildSaId, role: Role, beside: bool) {
    let Some(new) = session.sa.child(new) else { return };
    let worker = session.sa.resources.worker(new.params.spi_in);
    if let Some(worker) = worker.filter(|_| beside && new.is_proven()) {
        session.env.effects.outputs.push_back(Output::BindChild { child: new.id, worker });
    }
    // A single worker has the fallback SA for itself.
    if role == Role::Responder || session.env.config.resource_workers < 2 {
        return;
    }
    let fallback = match session.sa.part(new) {
        Some(Part::Fallback) => Some(new.params.spi_in),
        Some(Part::Worker(_)) => {
            fallback(session.sa, &new.name, &Selectors::of(&new.params)).map(|child| child.params.spi_in)
        }
        None => None,
    };
    let tasks = fallback.map(|fallback| Task::NewResource { fallback, tries: 1 });
    tasks.into_iter().for_each(|task| session.sa.outgoing.queue(task));
}

/// The peer has shown that it has the Child SA of a worker: the worker sends by it, unless that is
/// left to another one of the worker which has sent before. Returns false then.
pub(super) fn start(session: &mut Session<'_>, new: ChildSaId) -> bool {
    let waiting = session.sa.child(new).and_then(|new| Some((new.params.spi_in, new.waits_for()?)));
    let Some((spi_in, place)) = waiting else { return false };
    let Some(worker) = session.sa.resources.worker(spi_in) else { return false };
    let is_of_worker = session.sa.resources.worker(place).is_some();
    let former = session.sa.children.iter_mut().find(|child| child.params.spi_in == place);
    if let Some(former) = former.filter(|_| is_of_worker) {
        if former.is_sending() {
            return false;
        }
        former.outbound = Outbound::Retired;
    }
    if let Some(child) = session.sa.child_mut(new) {
        child.outbound = Outbound::Active;
    }
    session.env.effects.outputs.push_back(Output::BindChild { child: new, worker });
    true
}

/// The Child SAs of workers that wait for a sign that the peer has them. It has sent a request, so it
/// has had our answer to the one before (RFC 7296 §2.3).
pub(crate) fn waiting(sa: &IkeSa) -> Vec<ChildSaId> {
    let waits =
        |child: &&ChildSa| child.is_installed() && child.waits_for().is_some() && sa.is_additional(child);
    let beside =
        |child: &&ChildSa| child.waits_for().is_some_and(|place| sa.resources.worker(place).is_none());
    sa.children.iter().filter(waits).filter(beside).map(|child| child.id).collect()
}

/// Requests a Child SA for the next worker that has none. Returns false if there is nothing to
/// request.
pub(crate) fn ask_resource(session: &mut Session<'_>, fallback: Spi, tries: u8) -> Result<bool, Reason> {
    tidy(session.sa);
    if session.sa.followup.as_ref().is_some_and(|followup| followup.sa.is_ike()) {
        // It could not move to the new IKE SA while it is being made.
        try_later(session, Task::NewResource { fallback, tries });
        return Ok(false);
    }
    let is_fit = |child: &&ChildSa| child.is_proven() && child.outdated.is_none();
    let found = session.sa.child_by_spi(fallback).filter(is_fit);
    let Some(name) = found.map(|child| child.name.clone()) else { return Ok(false) };
    let Some(worker) = next_worker(session, &name) else {
        let goes = |child: &ChildSa| child.outdated.is_some() || child.phase == ChildPhase::Deleting;
        let is_former =
            |child: &ChildSa| child.name == name && session.sa.is_additional(child) && goes(child);
        if session.sa.children.iter().any(is_former) {
            // Those of the former fallback SA go first.
            try_later(session, Task::NewResource { fallback, tries });
        }
        return Ok(false);
    };
    session.log(ORDINARY, format!("establishing CHILD_SA {name} for worker {worker}"));
    let asked = begin_child(session, &name, None, false, tries, Some(Part::Worker(worker)));
    if let Err(reason) = &asked {
        session.log(FAILURE, format!("no CHILD_SA {name} for worker {worker}: {reason}"));
    }
    Ok(asked.is_ok())
}

/// The next worker for which we request a Child SA of that name.
fn next_worker(session: &Session<'_>, name: &str) -> Option<u16> {
    let connection = session.env.loaded.connections.get(&session.sa.connection)?;
    connection.child(name).filter(|child| is_configured(session, child))?;
    // With several, each for a part of the selectors, a request would not show which one it is for.
    if fallbacks(session.sa, name).count() != 1 {
        return None;
    }
    let least = session.sa.resources.least_used(name, session.env.config.resource_workers);
    least.filter(|(_, used)| *used == 0).map(|(worker, _)| worker)
}

/// The fallback SA beside which our request makes a Child SA of a worker.
pub(super) fn beside(sa: &IkeSa, name: &str, spi_in: Spi) -> Option<ChildSaId> {
    sa.resources.worker(spi_in)?;
    fallbacks(sa, name).next().map(|child| child.id)
}

/// The peer has refused a Child SA of a worker, or what it has made is not wanted. Returns false if
/// the request was for another Child SA.
pub(super) fn not_made(session: &mut Session<'_>, asked: &RequestedChild, again: bool, why: &str) -> bool {
    let Some(worker) = session.sa.resources.worker(asked.spi_in) else { return false };
    let fallback = beside(session.sa, &asked.name, asked.spi_in);
    let fallback = fallback.and_then(|id| session.sa.child(id)).map(|child| child.params.spi_in);
    session.sa.resources.forget(asked.spi_in);
    let again = again && asked.tries < MAX_TRIES;
    let then = if again { "it is tried again" } else { "the worker shares the one for all" };
    session.log(ORDINARY, format!("no CHILD_SA {} for worker {worker}: {why}; {then}", asked.name));
    match fallback {
        Some(fallback) if again => {
            try_later(session, Task::NewResource { fallback, tries: asked.tries.saturating_add(1) });
        }
        Some(_) => {}
        // It is gone meanwhile, and this one would have taken its place.
        None => child_failed(session, &asked.name, Reason::Refused(why.to_owned())),
    }
    true
}

/// The fallback SA ends without a successor: the Child SA of a worker becomes the one for all.
pub(super) fn promote(session: &mut Session<'_>, old: ChildSaId) {
    let Some(ending) = session.sa.child(old).filter(|old| old.is_sending()) else { return };
    if session.sa.part(ending) != Some(Part::Fallback) {
        return;
    }
    let (name, place, selectors) = (ending.name.clone(), ending.params.spi_in, Selectors::of(&ending.params));
    let fits = |child: &&ChildSa| {
        child.name == name
            && child.is_up()
            && session.sa.is_additional(child)
            && Selectors::of(&child.params) == selectors
    };
    let ready = session.sa.children.iter().filter(fits).max_by_key(|child| child.is_proven());
    let Some((new, spi)) = ready.map(|child| (child.id, child.params.spi_in)) else { return };
    session.sa.resources.forget(place);
    session.sa.resources.set(spi, &name, Part::Fallback);
    if let Some(ending) = session.sa.child_mut(old) {
        ending.outbound = Outbound::Retired;
    }
    session.log(ORDINARY, format!("CHILD_SA {name}{{{}}} serves all workers from now on", new.0));
    send_through(session, Some(old), place, new);
}

/// The Child SA of a worker ends without a successor: the worker sends by the one for all.
pub(crate) fn give_back(session: &mut Session<'_>, old: ChildSaId) {
    let Some(ending) = session.sa.child(old).filter(|old| old.is_sending() && session.sa.is_additional(old))
    else {
        return;
    };
    // Perhaps it is no fallback SA any more, by another configuration.
    let is_for_all = |child: &&ChildSa| {
        child.name == ending.name
            && child.is_sending()
            && !session.sa.is_additional(child)
            && Selectors::of(&child.params) == Selectors::of(&ending.params)
    };
    let Some(for_all) = session.sa.children.iter().find(is_for_all).map(|child| child.id) else { return };
    if let Some(ending) = session.sa.child_mut(old) {
        ending.outbound = Outbound::Retired;
    }
    session.env.effects.outputs.push_back(Output::SwitchChild { from: old, to: for_all });
}

/// Forgets what was not made after all.
fn tidy(sa: &mut IkeSa) {
    let mut resources = std::mem::take(&mut sa.resources);
    let creating = sa.creating.as_ref().and_then(|creating| creating.spi_in());
    let awaited = sa.followup.as_ref().map(|followup| &followup.sa).and_then(FollowupSa::spi_in);
    resources.keep(|spi| [creating, awaited].contains(&Some(spi)) || sa.child_by_spi(spi).is_some());
    sa.resources = resources;
}
