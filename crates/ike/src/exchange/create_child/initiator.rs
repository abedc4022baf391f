//! The initiator's side: requesting another Child SA, or new keys for one.

use crate::config::{Child, KeyExchange};
use crate::endpoint::ExchangeCounter;
use crate::environment::report::{FAILURE, ORDINARY};
use crate::exchange::child::{ChildOrigin, judge};
use crate::exchange::create_child::agreement::KeyedAnswer;
use crate::exchange::create_child::followup::next_link;
use crate::exchange::create_child::keys::{agreed_keys, first_method, other_method};
use crate::exchange::create_child::{anew, followup, ike, keys, own_sa, replace, resource};
use crate::exchange::error::AnswerError;
use crate::exchange::narrow::Selectors;
use crate::exchange::session::Session;
use crate::exchange::{child, describe, mode};
use crate::message::{ExchangeType, Notify, NotifySa, NotifyType, Payload, SaSpi, TsPayload};
use crate::output::{ChildSaId, Reason};
use crate::sa::{
    AgreedChild, ChildPhase, ChildSa, Creating, IkeSa, KeyExchanges, Offered, Outbound, Outdated, Part,
    RequestKind, RivalSa, Series, Task, What,
};
use crate::suite::{Role, offer};
use testudo_base::spi::Spi;
use testudo_ipsec::sa::Mode;

/// Bound on the requests for a further child while the peer cannot take it.
const MAX_TRIES: u8 = 5;

/// The child that we have requested.
#[derive(Clone, Debug)]
pub(super) struct RequestedChild {
    pub(super) name: String,
    pub(super) spi_in: Spi,
    pub(super) replaces: Option<ChildSaId>,
    pub(super) tries: u8,
    /// See [`Creating::anew`].
    pub(super) anew: bool,
}

/// Requests a further child. Returns false if there is nothing to request.
pub(crate) fn ask_new_child(session: &mut Session<'_>, name: String, tries: u8) -> Result<bool, Reason> {
    if session.sa.followup.as_ref().is_some_and(|followup| followup.sa.is_ike()) {
        // It could not move to the new IKE SA while it is being made.
        try_later(session, Task::NewChild { name, tries });
        return Ok(false);
    }
    let up = |child: &&ChildSa| child.name == name && child.is_up();
    if let Some(id) = session.sa.children.iter().find(up).map(|child| child.id) {
        // The peer has made it meanwhile.
        let connection = session.sa.connection.clone();
        session.env.initiate_done(session.now, &connection, session.sa.id, &name, Ok(id));
        return Ok(false);
    }
    if own_sa::is_for_another_peer(session, &name) {
        own_sa::move_child(session, name, tries);
        return Ok(false);
    }
    session.log(ORDINARY, format!("establishing CHILD_SA {name}"));
    let asked = begin_child(session, &name, None, false, tries, None);
    if let Err(reason) = &asked {
        child_failed(session, &name, reason.clone());
    }
    Ok(asked.is_ok())
}

/// Requests new keys of a child. Returns false if it is gone or has been renewed meanwhile.
pub(crate) fn ask_new_keys(session: &mut Session<'_>, id: ChildSaId) -> Result<bool, Reason> {
    let Some(child) = session.sa.child(id).filter(|child| child.is_installed()) else { return Ok(false) };
    let (ready, outdated) = (child.is_proven() || child.is_missed(), child.outdated.is_some());
    if outdated && let Some(child) = session.sa.child_mut(id) {
        // It is due anyway.
        child.outdated = Some(Box::new(Outdated::new(None)));
        child.limits.times.rekey = None;
        return anew::ask_replacement(session, id);
    }
    let awaited = session.sa.followup.as_ref().map(|followup| &followup.sa);
    // The peer is doing it, or will have the child moved.
    if !ready || awaited.is_some_and(|awaited| awaited.is_ike() || awaited.renews() == Some(id)) {
        try_later(session, Task::RekeyChild(id));
        return Ok(false);
    }
    let Some(child) = session.sa.child_mut(id) else { return Ok(false) };
    child.limits.times.rekey = None;
    let name = child.name.clone();
    session.log(ORDINARY, format!("rekeying CHILD_SA {name}{{{}}}", id.0));
    let asked = begin_child(session, &name, Some(id), false, 1, None);
    if let Err(reason) = &asked {
        rekey_failed(session, id, &reason.to_string());
    }
    Ok(asked.is_ok())
}

/// Asks for a Child SA. `replaces`: the one that it replaces, and `anew`: because the configuration
/// has changed. `part`: that of an additional one for a worker.
pub(super) fn begin_child(
    session: &mut Session<'_>,
    name: &str,
    replaces: Option<ChildSaId>,
    anew: bool,
    tries: u8,
    part: Option<Part>,
) -> Result<(), Reason> {
    let refuse = |text: &str| Reason::Refused(text.to_owned());
    let child = configured_child(session, name).ok_or_else(|| refuse("the child was unloaded meanwhile"))?;
    let child = match replaces.filter(|_| anew) {
        Some(old) => anew::part_of(session, old, child),
        None => child,
    };
    let nonce = session.env.new_nonce().ok_or_else(|| refuse("there is no entropy"))?;
    let method = first_method(&child);
    let ke = keys::key_for(session, method)?;
    let spi_in = session
        .env
        .alloc
        .esp_spi(session.now, session.sa.our_spi().shard())
        .ok_or_else(|| refuse("no free ESP SPI is left"))?;
    session.sa.resources.forget(spi_in);
    part.into_iter().for_each(|part| session.sa.resources.set(spi_in, name, part));
    let what = What::Child { name: name.to_owned(), spi_in, replaces, tries, series: None };
    let (tried, offered) = (method.into_iter().collect(), Offered::Child(Box::new(child)));
    let creating = Creating { what, nonce, ke, tried, offered, anew, outdated: false, rival: None };
    ask_child(session, creating, spi_in)
}

pub(super) fn configured_child(session: &Session<'_>, name: &str) -> Option<Child> {
    let connection = session.env.loaded.connections.get(&session.sa.connection)?;
    let child = connection.child(name).filter(|child| child.mode.is_negotiated())?;
    Some(connection.offered(child, session.sa.path.remote.ip()))
}

/// Sends the request for `creating`.
fn ask_child(session: &mut Session<'_>, creating: Creating, spi_in: Spi) -> Result<(), Reason> {
    let Some(child) = creating.offered.child() else { return Ok(()) };
    let rekeyed = creating.renews().filter(|_| !creating.anew);
    let like = rekeyed.or_else(|| resource::beside(session.sa, &child.name, spi_in));
    let wanted = wanted(session.sa, child, like);
    let mut payloads = Vec::new();
    if let Some(old) = rekeyed.and_then(|old| session.sa.child(old)) {
        // The SPI on which the initiator of the exchange receives (RFC 7296 §1.3.3).
        let about = NotifySa { protocol: old.protocol(), spi: SaSpi::Child(old.params.spi_in) };
        let notify = Notify { sa: Some(about), ..Notify::new(NotifyType::RekeySa, Vec::new()) };
        payloads.push(Payload::Notify(notify));
    }
    payloads.extend(mode::notify(asked_mode(session.sa, child, &wanted, like)));
    payloads.extend(resource::notify_for(session, &child.name, spi_in).filter(|_| rekeyed.is_none()));
    let offered = offer::esp(&child.proposals, spi_in, offer::ChildExchange::CreateChildSa);
    payloads.extend([Payload::Sa(offered), Payload::Nonce(creating.nonce.clone())]);
    payloads.extend(creating.ke.as_ref().map(|ke| Payload::Ke(ke.payload())));
    payloads.extend([
        Payload::TsInitiator(TsPayload::new(wanted.local)),
        Payload::TsResponder(TsPayload::new(wanted.remote)),
    ]);
    session.sa.creating = Some(Box::new(creating));
    session.request(ExchangeType::CreateChildSa, RequestKind::CreateChild, payloads)
}

/// The response about a Child SA. `Err`: the IKE SA is gone.
pub(super) fn child_response(
    session: &mut Session<'_>,
    creating: Creating,
    asked: &RequestedChild,
    answer: KeyedAnswer<'_>,
) -> Result<(), Reason> {
    let payloads = answer.payloads;
    let Some(child) = configured_child(session, &asked.name).filter(|_| session.sa.closing.is_none()) else {
        let why = "the child was unloaded, or the IKE_SA is ending";
        unwanted_child(session, asked, payloads.sa().is_some(), why);
        return Ok(());
    };
    if payloads.sa().is_none()
        && let Some(error) = payloads.error().cloned()
    {
        let offered = |method| creating.offered.child().is_some_and(|child| offers(child, method));
        if let Some(method) = other_method(payloads, &creating, offered) {
            return ask_again(session, creating, asked, method);
        }
        session.env.alloc.release_esp_spi(session.now, asked.spi_in);
        return child_refused(session, asked, &error);
    }
    let judged = judged(session.sa, &creating, asked, answer).and_then(|series| {
        let next = next_link(&series.exchanges, payloads)?;
        Ok((series, next))
    });
    if judged.is_ok()
        && let Err(why) = resource::note_answer(session, asked, &child, payloads)
    {
        unwanted_child(session, asked, true, why);
        return Ok(());
    }
    match judged {
        Ok((series, None)) => child_agreed(session, &creating, asked, &child, series),
        Ok((series, Some(next))) => {
            return followup::begin_child_series(session, creating, asked, series, next);
        }
        Err(error) => unwanted_child(session, asked, payloads.sa().is_some(), &error.to_string()),
    }
    Ok(())
}

/// Repeats the request with another key exchange.
fn ask_again(
    session: &mut Session<'_>,
    mut creating: Creating,
    asked: &RequestedChild,
    method: KeyExchange,
) -> Result<(), Reason> {
    let name = crate::message::KeMethod::from(method);
    session.log(ORDINARY, format!("the responder wants key exchange by {name}"));
    creating.ke = keys::key_for(session, Some(method))?;
    creating.tried.push(method);
    ask_child(session, creating, asked.spi_in)
}

/// Both sides have the Child SA. If it renews one, that one goes; if both sides renewed the same,
/// the lowest nonce decides.
pub(super) fn child_agreed(
    session: &mut Session<'_>,
    creating: &Creating,
    asked: &RequestedChild,
    child: &Child,
    series: Series<AgreedChild>,
) {
    if asked.is_being_deleted(session.sa) {
        return unwanted_child(session, asked, true, "it is being deleted");
    }
    if creating.is_outdone(&series.exchanges.nonces) {
        return child_loses(session, creating, asked, child, series);
    }
    if let Err(why) = resource::check(session, &asked.name, &series.agreed) {
        followup::let_rival_serve(session, creating, asked);
        return unwanted_child(session, asked, true, why);
    }
    let Series { agreed, exchanges: KeyExchanges { nonces, shared, .. } } = series;
    outdo_child(session, creating);
    let old = asked.replaces.filter(|old| session.sa.child(*old).is_some());
    let origin =
        ChildOrigin { role: Role::Initiator, nonces: &nonces, shared: &shared, replaces: old, stays: true };
    match child::install(session, child, &origin, agreed) {
        Ok(id) => {
            anew::pass_on_outdated(session, creating, old, id);
            if let Some(old) = old.filter(|_| creating.anew) {
                anew::replace_by(session, old, id);
            } else if let Some(old) = old {
                replace::take_place(session, id);
                replace::let_go(session, old);
                session.env.effects.count(session.sa, ExchangeCounter::ChildRekey);
            } else if asked.replaces.is_none() && session.sa.resources.worker(asked.spi_in).is_none() {
                let connection = session.sa.connection.clone();
                session.env.initiate_done(session.now, &connection, session.sa.id, &asked.name, Ok(id));
            }
            anew::displace_rival(session, creating, id);
        }
        Err(error) => {
            followup::let_rival_serve(session, creating, asked);
            unwanted_child(session, asked, true, &error.to_string());
        }
    }
}

/// The peer's rival Child SA is redundant.
pub(super) fn outdo_child(session: &mut Session<'_>, creating: &Creating) {
    match creating.rival.as_ref().map(|rival| rival.sa) {
        Some(RivalSa::Child(id)) => {
            let lives =
                |child: &&mut ChildSa| matches!(child.phase, ChildPhase::Installed | ChildPhase::Rekeyed);
            if let Some(redundant) = session.sa.child_mut(id).filter(lives) {
                // The peer deletes it, if it has not yet.
                redundant.phase = ChildPhase::Rekeyed;
                if !redundant.is_sending() {
                    redundant.outbound = Outbound::Retired;
                }
            }
        }
        Some(RivalSa::Awaited) => followup::forget_followup(session),
        Some(RivalSa::Ike(_)) | None => {}
    }
}

/// Both sides have renewed a child, and the peer's SA stays. Ours goes; but until the peer knows
/// that, it may send through it (RFC 7296 §2.8.1).
fn child_loses(
    session: &mut Session<'_>,
    creating: &Creating,
    asked: &RequestedChild,
    child: &Child,
    series: Series<AgreedChild>,
) {
    let why = "the peer has renewed it too, and its new one stays";
    let rival = match creating.rival.as_ref().map(|rival| rival.sa) {
        Some(RivalSa::Child(rival)) => Some(rival),
        _ => None,
    };
    let sends = |id: &ChildSaId| session.sa.child(*id).is_some_and(ChildSa::is_sending);
    let replaces = [asked.replaces, rival].into_iter().flatten().find(sends);
    if replaces.is_none() {
        return unwanted_child(session, asked, true, why);
    }
    let Series { agreed, exchanges: KeyExchanges { nonces, shared, .. } } = series;
    let origin =
        ChildOrigin { role: Role::Initiator, nonces: &nonces, shared: &shared, replaces, stays: false };
    if let Err(error) = child::install(session, child, &origin, agreed) {
        return unwanted_child(session, asked, true, &error.to_string());
    }
    session.sa.outgoing.queue(Task::DeleteSpi(asked.spi_in));
    if let Some(old) = asked.replaces {
        rekey_failed(session, old, why);
    }
}

/// The outcome of our request will stay unknown. If the peer has made a Child SA, it is told to
/// delete it; and a needed SA is requested again.
pub(crate) fn creation_lost(session: &mut Session<'_>, why: &str) {
    let Some(creating) = session.sa.creating.take() else { return };
    let anew = creating.anew;
    match creating.what.clone() {
        What::Child { name, spi_in, replaces: None, tries, .. } if tries < MAX_TRIES => {
            session.env.alloc.release_esp_spi(session.now, spi_in);
            session.sa.outgoing.queue(Task::DeleteSpi(spi_in));
            let asked = RequestedChild { name: name.clone(), spi_in, replaces: None, tries, anew };
            if resource::not_made(session, &asked, true, why) {
                return;
            }
            session.sa.outgoing.queue(Task::NewChild { name, tries: tries.saturating_add(1) });
        }
        What::Child { name, spi_in, replaces, tries, .. } => {
            let asked = RequestedChild { name, spi_in, replaces, tries, anew };
            followup::let_rival_serve(session, &creating, &asked);
            unwanted_child(session, &asked, true, why);
        }
        What::Ike(_) => ike::refused(session, &creating, why),
    }
}

/// We do not take a child. If the peer has it, or has begun to make it, it is told.
pub(super) fn unwanted_child(session: &mut Session<'_>, asked: &RequestedChild, made: bool, why: &str) {
    session.env.alloc.release_esp_spi(session.now, asked.spi_in);
    if made && session.sa.closing.is_none() {
        session.sa.outgoing.queue(Task::DeleteSpi(asked.spi_in));
    }
    if resource::not_made(session, asked, false, why) {
        return;
    }
    match asked.replaces {
        None => child_failed(session, &asked.name, Reason::Refused(why.to_owned())),
        Some(old) => rekey_failed(session, old, why),
    }
}

/// The peer makes no child (RFC 7296 §2.25).
pub(super) fn child_refused(
    session: &mut Session<'_>,
    asked: &RequestedChild,
    error: &Notify,
) -> Result<(), Reason> {
    let why = format!("the peer answered {}", error.kind);
    let is_busy = matches!(error.kind, NotifyType::TemporaryFailure | NotifyType::StateNotFound);
    if resource::not_made(session, asked, is_busy, &why) {
        return Ok(());
    }
    match (asked.replaces, error.kind) {
        // A Child SA that the peer does not know is gone. A needed one is made from scratch.
        (Some(old), NotifyType::ChildSaNotFound) if !asked.anew => {
            if session.sa.child(old).is_some_and(|child| child.is_installed()) {
                session.log(FAILURE, format!("the peer does not know CHILD_SA {}{{{}}}", asked.name, old.0));
                child::remove(session, old, &Reason::DeletedByPeer);
                session.env.act_on_refusal(session.sa, &asked.name);
                session.sa.outgoing.queue(Task::NewChild { name: asked.name.clone(), tries: 1 });
            }
        }
        (Some(old), NotifyType::TemporaryFailure | NotifyType::StateNotFound) if asked.anew => {
            anew::replacement_put_off(session, old, &why);
        }
        (Some(old), NotifyType::NoAdditionalSas) if asked.anew => {
            anew::no_room_for_replacement(session, old, &why);
        }
        (Some(old), _) => rekey_failed(session, old, &why),
        (None, NotifyType::TemporaryFailure | NotifyType::StateNotFound) if asked.tries < MAX_TRIES => {
            let task = Task::NewChild { name: asked.name.clone(), tries: asked.tries.saturating_add(1) };
            session.log(ORDINARY, format!("{why}: CHILD_SA {} is tried again", asked.name));
            try_later(session, task);
        }
        (None, NotifyType::NoAdditionalSas) => {
            own_sa::on_its_own(session, &asked.name, "the peer makes no further CHILD_SA");
        }
        (None, kind) => {
            let connection = session.env.loaded.connections.get(&session.sa.connection);
            let hint = connection.map(|connection| describe::hint(kind, connection.local.method));
            let text = hint.unwrap_or_else(|| kind.to_string());
            child_failed(session, &asked.name, Reason::Notify(text));
        }
    }
    Ok(())
}

/// A further child could not be made.
pub(crate) fn child_failed(session: &mut Session<'_>, name: &str, reason: Reason) {
    let what = format!("CHILD_SA {name} of {}", session.sa.connection);
    session.initiation_failed(&what, name, reason);
}

/// A child keeps its keys for now. We try again, unless the peer has renewed it.
fn rekey_failed(session: &mut Session<'_>, old: ChildSaId, why: &str) {
    let Some(child) = session.sa.child(old) else { return };
    if child.outdated.is_some() {
        return anew::replacement_failed(session, old, why);
    }
    let (name, needed, missed) = (child.name.clone(), child.is_installed(), child.is_missed());
    let level = if needed { FAILURE } else { ORDINARY };
    session.log(level, format!("no new keys for CHILD_SA {name}{{{}}}: {why}", old.0));
    if !needed {
        return;
    }
    session.env.loaded.connections.note_failure(
        session.now,
        &session.sa.connection,
        &name,
        format!("no new keys: {why}"),
    );
    session.env.effects.stats.failed += 1;
    if missed {
        make_anew(session, old, name);
    } else {
        try_later(session, Task::RekeyChild(old));
    }
}

/// A Child SA has found no successor in its lifetime: one is made from scratch, and the rest of the
/// old one goes.
pub(super) fn make_anew(session: &mut Session<'_>, old: ChildSaId, name: String) {
    if session.sa.closing.is_some() {
        return;
    }
    let Some(child) = session.sa.child_mut(old) else { return };
    child.phase = ChildPhase::Deleting;
    let spi_in = child.params.spi_in;
    session.sa.outgoing.queue(Task::DeleteSpi(spi_in));
    session.env.act_on_refusal(session.sa, &name);
    session.sa.outgoing.queue(Task::NewChild { name, tries: 1 });
}

/// Puts a task off, by a time that the two sides will hardly choose alike.
pub(crate) fn try_later(session: &mut Session<'_>, task: Task) {
    let at = session.env.retry_at(session.now);
    session.sa.outgoing.delay(at, task);
}

/// The requested selectors: a renewed SA has the old one's traffic (RFC 7296 §2.9.2).
pub(super) fn wanted(sa: &IkeSa, child: &Child, replaces: Option<ChildSaId>) -> Selectors {
    match replaces.and_then(|old| sa.child(old)) {
        Some(old) => Selectors::of(&old.params),
        None => Selectors::configured(child, &sa.dynamic_local(), &sa.dynamic_remote()),
    }
}

/// The requested mode, which a renewed SA keeps too.
fn asked_mode(sa: &IkeSa, child: &Child, wanted: &Selectors, replaces: Option<ChildSaId>) -> Mode {
    mode::to_ask(sa, child, wanted, replaces.and_then(|old| sa.child(old)).map(|old| old.params.mode))
}

fn offers(child: &Child, method: KeyExchange) -> bool {
    child.proposals.iter().any(|proposal| proposal.ke.contains(&method))
}

impl RequestedChild {
    /// True if it is not needed any more: the SA that it renews is being deleted.
    pub(super) fn is_being_deleted(&self, sa: &IkeSa) -> bool {
        let old = self.replaces.and_then(|old| sa.child(old));
        old.is_some_and(|old| old.phase == ChildPhase::Deleting)
    }
}

/// Checks the response, and returns the material of the keys.
fn judged(
    sa: &IkeSa,
    creating: &Creating,
    asked: &RequestedChild,
    answer: KeyedAnswer<'_>,
) -> Result<Series<AgreedChild>, AnswerError> {
    let child = creating.offered.child().ok_or(AnswerError::NoChildAsked)?;
    let rekeyed = asked.replaces.filter(|_| !asked.anew);
    let like = rekeyed.or_else(|| resource::beside(sa, &asked.name, asked.spi_in));
    let wanted = wanted(sa, child, like);
    let mode = asked_mode(sa, child, &wanted, like);
    let exchange = offer::ChildExchange::CreateChildSa;
    let agreed = judge(child, asked.spi_in, answer.payloads, exchange, &wanted, mode)?;
    let exchanges = agreed_keys(sa, creating, agreed.suite.ke, agreed.suite.additional, answer)?;
    Ok(Series { agreed, exchanges })
}
