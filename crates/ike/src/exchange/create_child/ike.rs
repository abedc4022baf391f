//! Rekeying the IKE SA (RFC 7296 §1.3.2, §2.18): a new IKE SA to which the children move, and the
//! end of the old one.

use crate::alloc::Home;
use crate::config::{Connection, IkeChange};
use crate::endpoint::ExchangeCounter;
use crate::environment::report::{FAILURE, IMPORTANT, ORDINARY};
use crate::exchange::change;
use crate::exchange::child::NoChild;
use crate::exchange::create_child::agreement::{Exchanged, KeyedAnswer};
use crate::exchange::create_child::followup;
use crate::exchange::create_child::followup::next_link;
use crate::exchange::create_child::initiator;
use crate::exchange::create_child::keys;
use crate::exchange::create_child::keys::{agreed_keys, other_method};
use crate::exchange::describe;
use crate::exchange::error::AnswerError;
use crate::exchange::session::Session;
use crate::message::{ExchangeType, IkeSpi, NotifyType, Payload, Payloads, SaPayload};
use crate::output::{Event, Reason, Time};
use crate::sa::{
    AgreedIke, ChildPhase, Closing, Creating, FollowupSa, IkeSa, KeyExchanges, Keys, Offered, OutdatedIke,
    Phase, RequestKind, Rival, RivalSa, Series, Task, Times, WantedIke, What, earlier, lowest,
};
use crate::suite::{IkeKeys, IkeSpis, Nonces, Role, SuiteError, accept, offer, select};
use std::sync::Arc;

/// Requests new keys of the IKE SA. Returns false if that is impossible now.
pub(crate) fn ask_new_ike_keys(session: &mut Session<'_>) -> Result<bool, Reason> {
    session.sa.times.rekey = None;
    if session.sa.followup.is_some() {
        // The SA that the peer is making would not know to which IKE SA it belongs.
        initiator::try_later(session, Task::RekeyIke);
        return Ok(false);
    }
    session.log(ORDINARY, format!("rekeying IKE_SA {}[{}]", session.sa.connection, session.sa.id.0));
    let asked = begin_rekey(session);
    if let Err(reason) = &asked {
        rekey_failed(session, false, &reason.to_string());
    }
    Ok(asked.is_ok())
}

fn begin_rekey(session: &mut Session<'_>) -> Result<(), Reason> {
    let refuse = |text: &str| Reason::Refused(text.to_owned());
    let connection = session.env.loaded.connections.get(&session.sa.connection);
    let connection = connection.ok_or_else(|| refuse("the connection was unloaded meanwhile"))?;
    let spi = session
        .env
        .new_ike_spi(Home::Renewing(session.sa.our_spi().shard()))
        .ok_or_else(|| refuse("no free SPI is left"))?;
    let nonce = session.env.new_nonce().ok_or_else(|| refuse("there is no entropy"))?;
    let offered = connection.proposals.clone();
    let method = offered.iter().find_map(|proposal| proposal.ke.first()).copied();
    let ke = keys::key_for(session, method)?;
    let tried = method.into_iter().collect();
    let what = What::Ike(WantedIke { spi, series: None });
    let creating = Creating {
        what,
        nonce,
        ke,
        tried,
        offered: Offered::Ike(offered),
        anew: false,
        outdated: false,
        rival: None,
    };
    ask(session, creating, spi)
}

fn ask(session: &mut Session<'_>, creating: Creating, spi: IkeSpi) -> Result<(), Reason> {
    let offered = offer::ike(creating.offered.ike(), Some(spi));
    let mut payloads = vec![Payload::Sa(offered), Payload::Nonce(creating.nonce.clone())];
    payloads.extend(creating.ke.as_ref().map(|ke| Payload::Ke(ke.payload())));
    session.sa.creating = Some(Box::new(creating));
    session.request(ExchangeType::CreateChildSa, RequestKind::CreateChild, payloads)
}

/// The response. `Err`: the IKE SA is gone.
pub(super) fn handle_response(
    session: &mut Session<'_>,
    mut creating: Creating,
    spi: IkeSpi,
    answer: KeyedAnswer<'_>,
) -> Result<(), Reason> {
    let payloads = answer.payloads;
    if payloads.sa().is_none()
        && let Some(error) = payloads.error()
    {
        let offered = |method| creating.offered.ike().iter().any(|proposal| proposal.ke.contains(&method));
        let other = other_method(payloads, &creating, offered).filter(|_| session.sa.closing.is_none());
        if let Some(method) = other {
            creating.ke = keys::key_for(session, Some(method))?;
            creating.tried.push(method);
            return ask(session, creating, spi);
        }
        refused(session, &creating, &format!("the peer answered {}", error.kind));
        return Ok(());
    }
    let judged = judge(session.sa, &creating, spi, answer).and_then(|series| {
        let next = next_link(&series.exchanges, payloads)?;
        Ok((series, next))
    });
    match judged {
        Ok((series, None)) => agreed(session, &creating, &series),
        Ok((series, Some(next))) => followup::begin_ike_series(session, creating, spi, series, next),
        Err(error) => {
            refused(session, &creating, &error.to_string());
            Ok(())
        }
    }
}

/// Both sides have new keys. If both renewed the IKE SA at once, the lowest nonce decides which one
/// stays (RFC 7296 §2.8.2).
pub(super) fn agreed(
    session: &mut Session<'_>,
    creating: &Creating,
    series: &Series<AgreedIke>,
) -> Result<(), Reason> {
    let Series { agreed, exchanges } = series;
    let keys = match renewed(session.sa, *agreed, exchanges) {
        Ok(keys) => keys,
        Err(error) => {
            refused(session, creating, &error.to_string());
            return Ok(());
        }
    };
    let mut new = successor(session, Role::Initiator, keys, agreed.spis);
    if creating.outdated && new.outdated.is_none() {
        // It matches the connection as it was when we asked.
        change::outdate_ike(&mut session.env.session(session.now, &mut new), session.now, IkeChange::Rekey);
    }
    session.env.effects.count(session.sa, ExchangeCounter::IkeRekeyInit);
    let deadline = session.now.plus(session.env.config.delete_timeout);
    if session.sa.closing.is_some() {
        // Too late: the old one is being deleted, and so is its successor.
        session.beside(&mut new).delete_ike(Reason::Rekeyed, deadline)?;
        session.env.put(new);
        if let Some(Rival { sa: RivalSa::Ike(rival), .. }) = creating.rival {
            yield_to(session, rival);
        }
        return Ok(());
    }
    if creating.is_outdone(&exchanges.nonces) {
        session.beside(&mut new).delete_ike(Reason::Rekeyed, deadline)?;
        session.env.put(new);
        outdone(session, creating);
        return Ok(());
    }
    match creating.rival.as_ref().map(|rival| rival.sa) {
        Some(RivalSa::Ike(rival)) => outlive(session, rival),
        Some(RivalSa::Awaited) => followup::forget_followup(session),
        Some(RivalSa::Child(_)) | None => {}
    }
    inherit(&mut session.env.session(session.now, &mut new), session.sa);
    session.env.put(new);
    session.delete_ike(Reason::Rekeyed, deadline)
}

/// Both sides have renewed the IKE SA, and the peer's counts. The peer deletes the old one.
pub(super) fn outdone(session: &mut Session<'_>, creating: &Creating) {
    session.log(ORDINARY, "the peer renews the IKE_SA too: its new one stays, ours goes");
    match creating.rival.as_ref().map(|rival| rival.sa) {
        Some(RivalSa::Ike(rival)) => yield_to(session, rival),
        // If the peer does not continue, this side does.
        _ => initiator::try_later(session, Task::RekeyIke),
    }
}

/// The peer makes no new IKE SA. One that it has made itself at the same time counts.
pub(super) fn refused(session: &mut Session<'_>, creating: &Creating, why: &str) {
    match &creating.rival {
        Some(Rival { sa: RivalSa::Ike(rival), .. }) => yield_to(session, *rival),
        _ => rekey_failed(session, creating.outdated, why),
    }
}

/// `outdated`: the failed request was by an older configuration.
fn rekey_failed(session: &mut Session<'_>, outdated: bool, why: &str) {
    session.env.effects.stats.failed += 1;
    session.log(
        FAILURE,
        format!("no new keys for IKE_SA {}[{}]: {why}", session.sa.connection, session.sa.id.0),
    );
    let by_change = session.sa.outdated.as_ref().is_some_and(|outdated| outdated.is_rekey());
    if session.sa.closing.is_none() && by_change && !outdated {
        change::rekey_is_not_enough(session);
    } else if session.sa.closing.is_none() {
        initiator::try_later(session, Task::RekeyIke);
    }
}

/// The peer wants new keys for the IKE SA.
pub(super) fn answer_request(
    session: &mut Session<'_>,
    payloads: &Payloads,
    exchanged: Option<Exchanged>,
) -> Result<Vec<Payload>, NoChild> {
    if let Some(why) = busy(session.sa) {
        return Err(NoChild::new(NotifyType::TemporaryFailure, why));
    }
    let gone = || NoChild::new(NotifyType::NoProposalChosen, "the connection is not configured any more");
    let connection = session.env.loaded.connections.get(&session.sa.connection).ok_or_else(gone)?;
    let none = || NoChild::new(NotifyType::InvalidSyntax, "SA is missing");
    let offered = payloads.sa().ok_or_else(none)?;
    let choice =
        select::ike(offered, &connection.proposals).map_err(|_| no_proposal(offered, &connection))?;
    let initiator = choice.spi.ok_or_else(|| no_proposal(offered, &connection))?;
    let (nonces, keys) = keys::answer(session, Some(choice.suite.ke), payloads, exchanged)?;
    let (ke, shared) = keys.unzip();
    let nonce = nonces.responder.clone();
    let exchanges = KeyExchanges::new(nonces, shared, choice.suite.additional);
    let no_spi = || NoChild::new(NotifyType::TemporaryFailure, "no free SPI is left");
    let responder =
        session.env.new_ike_spi(Home::Renewing(session.sa.our_spi().shard())).ok_or_else(no_spi)?;
    let agreed = AgreedIke { suite: choice.suite, spis: IkeSpis { initiator, responder } };
    let link = if exchanges.due().is_some() {
        Some(followup::begin(session, FollowupSa::Ike(agreed), exchanges)?)
    } else {
        complete(session, agreed, &exchanges)?;
        None
    };
    let mut answer = vec![Payload::Sa(choice.answer(Some(responder))), Payload::Nonce(nonce)];
    answer.extend(ke.map(Payload::Ke));
    answer.extend(link.map(Payload::Notify));
    Ok(answer)
}

/// All key exchanges are complete.
pub(super) fn complete(
    session: &mut Session<'_>,
    agreed: AgreedIke,
    exchanges: &KeyExchanges,
) -> Result<(), NoChild> {
    let failed = |error: SuiteError| NoChild::new(NotifyType::TemporaryFailure, error.to_string());
    let keys = renewed(session.sa, agreed, exchanges).map_err(failed)?;
    adopt(session, keys, agreed.spis, &exchanges.nonces);
    Ok(())
}

/// The responder has a new IKE SA, which gets the children, unless we are renewing the old one too:
/// then the nonces decide (RFC 7296 §2.8.2).
fn adopt(session: &mut Session<'_>, keys: IkeKeys, spis: IkeSpis, nonces: &Nonces) {
    let mut new = successor(session, Role::Responder, keys, spis);
    session.env.effects.count(session.sa, ExchangeCounter::IkeRekeyResp);
    match session.sa.creating.as_mut() {
        Some(creating) => {
            let rival = Rival { lowest: lowest(nonces).clone(), sa: RivalSa::Ike(new.our_spi()) };
            creating.rival = Some(rival);
            new.rival_of = Some(session.sa.our_spi());
        }
        None => {
            inherit(&mut session.env.session(session.now, &mut new), session.sa);
            await_delete(session);
        }
    }
    session.env.put(new);
}

/// The peer's new IKE SA replaces this one.
fn yield_to(session: &mut Session<'_>, rival: IkeSpi) {
    let rival = session
        .env
        .table
        .by_spi(rival)
        .filter(|new| new.rival_of == Some(session.sa.our_spi()) && !new.is_gone());
    let Some(id) = rival.map(|new| new.id) else { return };
    session.env.with_sa(session.now, id, |new| succeed(new, session.sa));
}

/// The peer's new IKE SA replaces an old one: it gets everything from it, or is deleted too if the
/// old one is to go.
fn succeed(session: &mut Session<'_>, old: &mut IkeSa) -> Result<(), Reason> {
    let wish = old.closing.as_ref().map(|closing| closing.reason.clone());
    match wish.filter(|reason| *reason != Reason::Rekeyed) {
        Some(reason) if session.sa.closing.is_none() => {
            session.sa.rival_of = None;
            session.delete_ike(reason, session.now.plus(session.env.config.delete_timeout))
        }
        Some(_) => Ok(()),
        None => {
            inherit(session, old);
            await_delete(&mut session.beside(old));
            Ok(())
        }
    }
}

/// An IKE SA that both sides were renewing is gone, without the peer's new one having won: that one
/// is all that is left.
pub(crate) fn leave_to_rival(session: &mut Session<'_>) {
    let rival = session.sa.creating.as_ref().and_then(|creating| creating.rival.as_ref());
    let Some(RivalSa::Ike(rival)) = rival.map(|rival| rival.sa) else { return };
    yield_to(session, rival);
}

/// The peer uses the IKE SA that it has made while we were renewing the same: it stays, and we need
/// not wait for our response to know it.
pub(crate) fn decide_for(session: &mut Session<'_>) -> Result<(), Reason> {
    let old = session.sa.rival_of.take().and_then(|old| session.env.table.by_spi(old)).map(|old| old.id);
    let Some(mut old) = old.and_then(|id| session.env.table.take(id)) else { return Ok(()) };
    let decided = succeed(session, &mut old);
    session.env.put(old);
    decided
}

/// The peer has deleted the IKE SA. If it had renewed it, the new one replaces it, even if we were
/// renewing it ourselves (RFC 7296 §2.25.2).
pub(crate) fn ike_deleted(session: &mut Session<'_>) -> Reason {
    let rival = session.sa.creating.as_ref().and_then(|creating| creating.rival.as_ref());
    if let Some(RivalSa::Ike(rival)) = rival.map(|rival| rival.sa) {
        yield_to(session, rival);
    }
    match &session.sa.closing {
        Some(closing) if closing.reason == Reason::Rekeyed => Reason::Rekeyed,
        _ => Reason::DeletedByPeer,
    }
}

/// The peer itself deletes a redundant IKE SA that it made at the same time as we did (RFC 7296
/// §2.8.2). A peer that receives our delete of the old IKE SA before our answer has forgotten its
/// request, and will never know the outcome (§2.25.2). It can receive our answer only as long as
/// the old IKE SA waits for its end.
fn outlive(session: &mut Session<'_>, rival: IkeSpi) {
    let rival = session.env.table.by_spi(rival).filter(|sa| !sa.is_gone()).map(|sa| sa.id);
    if let Some(mut sa) = rival.and_then(|id| session.env.table.take(id)) {
        session.env.commit(&mut sa);
        sa.rival_of = None;
        await_delete_until(&mut sa, session.now.plus(session.env.config.delete_timeout));
        session.env.put(sa);
    }
}

/// The peer deletes the IKE SA that it has renewed. Until then it repeats its answer.
fn await_delete(session: &mut Session<'_>) {
    await_delete_until(session.sa, session.now.plus(session.env.config.retransmit.patience()));
}

/// A new IKE SA between the same peers, with counters that begin at 0 (RFC 7296 §2.18).
fn successor(session: &mut Session<'_>, role: Role, keys: IkeKeys, spis: IkeSpis) -> IkeSa {
    let id = session.env.numbers.new_ike_id();
    let lifetime =
        session.env.loaded.connections.get(&session.sa.connection).map(|connection| connection.lifetime);
    // New keys do not authenticate the peer again. If the connection sets no time for that, it is
    // another attempt of a reauthentication by request, and the IKE SA need not end after it.
    let reauth = session.sa.reauth_at.filter(|_| lifetime.is_none_or(|lifetime| lifetime.reauth > 0));
    let mut times = Times::of_ike(&lifetime.unwrap_or_default(), reauth, session.now, session.env.entropy());
    // New keys match the connection as it is now; the rest stays.
    let outdated = session.sa.outdated.clone().filter(|_| session.sa.keeps_its_end());
    let outdated = outdated.or_else(|| {
        session.env.loaded.has_lost_its_proof(session.sa).then(|| Box::new(OutdatedIke::given_up()))
    });
    if outdated.is_some() {
        times.end = earlier(times.end, session.sa.times.end);
    }
    let blank = IkeSa::new(id, role, spis, session.sa.connection.clone(), session.sa.path, session.now);
    let mut new = IkeSa {
        phase: Phase::Established,
        keys: Some(Keys::new(keys, role, session.env.alloc.sender_id())),
        established: Some(session.now),
        times,
        reauth_at: session.sa.reauth_at,
        creations_until: session.sa.creations_until,
        began_at: session.sa.began_at.clone(),
        nat: session.sa.nat,
        // RFC 6311 does not mention rekeying; but what both sides support counts "during the
        // lifetime of the SA" (§5), there is no IKE_AUTH to repeat it, and charon does the same.
        extensions: session.sa.extensions,
        local_id: session.sa.local_id.clone(),
        remote_id: session.sa.remote_id.clone(),
        anchor: session.sa.anchor.clone(),
        earlier_rounds: session.sa.earlier_rounds.clone(),
        proofs: session.sa.proofs.clone(),
        // SK_d depended on the PPK, and so do the new keys.
        ppk: session.sa.ppk,
        dpd_delay: session.sa.dpd_delay,
        outdated,
        ..blank
    };
    if new.keeps_its_end() && (!session.sa.keeps_its_end() || new.times.end.is_none()) {
        session.env.reauthenticate_before_end(session.now, &mut new);
    }
    session.env.commit(&mut new);
    new
}

/// Moves the children and the waiting tasks of the old IKE SA.
fn inherit(session: &mut Session<'_>, old: &mut IkeSa) {
    session.env.commit(old);
    session.commit();
    session.sa.rival_of = None;
    session.sa.children.append(&mut old.children);
    session.sa.resources.append(std::mem::take(&mut old.resources));
    session.sa.virtual_ips = std::mem::take(&mut old.virtual_ips);
    session.sa.childless = old.childless.take();
    session.env.pools.hand_on(old.id, session.sa);
    session.sa.outgoing.tasks.append(&mut old.outgoing.tasks);
    session.sa.outgoing.later.append(&mut old.outgoing.later);
    // The windows of the new one were never another node's.
    let renewal = |task: &Task| matches!(task, Task::RekeyIke | Task::SyncMessageIds);
    session.sa.outgoing.tasks.retain(|task| !renewal(task));
    session.sa.outgoing.later.retain(|delayed| !renewal(&delayed.task));
    for task in
        session.sa.outgoing.tasks.iter().chain(session.sa.outgoing.later.iter().map(|delayed| &delayed.task))
    {
        if let Task::NewChild { name, .. } = task {
            let moved = Event::InitiateMoved { from: old.id, to: session.sa.id, child: name.clone() };
            session.env.effects.event(moved);
        }
    }
    let line = format!("IKE_SA {}[{}] rekeyed: it is [{}] now", old.connection, old.id.0, session.sa.id.0);
    session.env.effects.log(old, IMPORTANT, line);
    session.env.effects.event(Event::IkeRekeyed(old.id, session.sa.id));
    // They are done as soon as the peer can know the new IKE SA.
    let tasks = std::mem::take(&mut session.sa.outgoing.tasks);
    tasks.into_iter().for_each(|task| session.sa.outgoing.delay(session.now, task));
}

fn await_delete_until(sa: &mut IkeSa, deadline: Time) {
    sa.closing = Some(Box::new(Closing { reason: Reason::Rekeyed, deadline }));
}

/// Why no new IKE SA can be made now (RFC 7296 §2.25.2): its children would not know where they
/// belong.
fn busy(sa: &IkeSa) -> Option<&'static str> {
    let awaited = sa.followup.as_ref().is_some_and(|followup| !followup.sa.is_ike());
    match sa.creating.as_deref() {
        Some(creating) if creating.is_ike() && creating.is_in_series() => Some("we are renewing it"),
        Some(Creating { rival: Some(Rival { sa: RivalSa::Ike(_), .. }), .. }) => {
            Some("the IKE_SA is being renewed")
        }
        _ if awaited => Some("a CHILD_SA is being made"),
        _ => obstacle(sa),
    }
}

/// Why none can be made even after that has begun.
pub(super) fn obstacle(sa: &IkeSa) -> Option<&'static str> {
    let deleting = matches!(&sa.outgoing.pending, Some(p) if matches!(p.kind, RequestKind::DeleteSpi(_)));
    let moving = |child: &crate::sa::ChildSa| child.phase == ChildPhase::Deleting;
    match &sa.creating {
        _ if sa.closing.is_some() => Some("the IKE_SA is ending"),
        Some(creating) if !creating.is_ike() => Some("a CHILD_SA is being made"),
        _ if sa.reauth.is_some() => Some("the IKE_SA is being reauthenticated"),
        _ if deleting || sa.children.iter().any(moving) => Some("a CHILD_SA is being deleted"),
        _ => None,
    }
}

/// Checks the response, and returns the material of the keys.
fn judge(
    sa: &IkeSa,
    creating: &Creating,
    spi: IkeSpi,
    answer: KeyedAnswer<'_>,
) -> Result<Series<AgreedIke>, AnswerError> {
    let chosen = answer.payloads.sa().ok_or(AnswerError::NoSa)?;
    let offered = offer::ike(creating.offered.ike(), Some(spi));
    let (suite, theirs) = accept::ike(&offered, creating.offered.ike(), chosen)?;
    let responder = theirs.ok_or(AnswerError::NoSpi)?;
    let agreed = AgreedIke { suite, spis: IkeSpis { initiator: spi, responder } };
    let exchanges = agreed_keys(sa, creating, Some(suite.ke), suite.additional, answer)?;
    Ok(Series { agreed, exchanges })
}

/// The new keys of the IKE SA.
fn renewed(sa: &IkeSa, agreed: AgreedIke, exchanges: &KeyExchanges) -> Result<IkeKeys, SuiteError> {
    let keys = sa.keys.as_ref().ok_or(SuiteError::Prf)?;
    keys.ike.derive_rekeyed(agreed.suite, &exchanges.shared, &exchanges.nonces, agreed.spis)
}

fn no_proposal(offered: &SaPayload, connection: &Arc<Connection>) -> NoChild {
    let (theirs, ours) = (describe::sa(offered), describe::ike_proposals(&connection.proposals));
    let why = format!("no common IKE proposal: offered {theirs}, configured {ours}");
    NoChild::new(NotifyType::NoProposalChosen, why)
}
