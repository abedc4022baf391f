//! The responder's side: the peer wants another Child SA, or new keys.

use crate::config::Child;
use crate::endpoint::ExchangeCounter;
use crate::exchange::child;
use crate::exchange::child::{ChildOrigin, NoChild, choose_suite, matching_child};
use crate::exchange::create_child::agreement::Exchanged;
use crate::exchange::create_child::anew;
use crate::exchange::create_child::followup;
use crate::exchange::create_child::ike;
use crate::exchange::create_child::initiator;
use crate::exchange::create_child::keys;
use crate::exchange::create_child::offers_ike;
use crate::exchange::create_child::own_sa::NOT_ADMITTED;
use crate::exchange::create_child::resource;
use crate::exchange::mode;
use crate::exchange::narrow::Selectors;
use crate::exchange::session::Session;
use crate::message::{Notify, NotifySa, NotifyType, Payload, Payloads, SaSpi};
use crate::output::ChildSaId;
use crate::sa::{
    AgreedChild, ChildPhase, ChildSa, Creating, FollowupSa, IkeSa, KeyExchanges, Reauth, Rival, RivalSa,
    Times, earlier, lowest,
};
use crate::suite::{Nonces, Role, offer};

/// The payloads of the answer, once the child is installed.
pub(super) fn answer_child_request(
    session: &mut Session<'_>,
    payloads: &Payloads,
    exchanged: Option<Exchanged>,
) -> Result<Vec<Payload>, NoChild> {
    if offers_ike(payloads) {
        return ike::answer_request(session, payloads, exchanged);
    }
    let renewing = session.sa.creating.as_ref().is_some_and(|creating| creating.is_ike())
        || session.sa.followup.as_ref().is_some_and(|followup| followup.sa.is_ike());
    if renewing || is_ending(session.sa) {
        return Err(NoChild::new(NotifyType::TemporaryFailure, "the IKE_SA is ending"));
    }
    let rekey = payloads.notify(NotifyType::RekeySa);
    room(session, rekey.is_some()).map_err(|refusal| resource::no_room(session, payloads, refusal))?;
    let replaces = rekey.map(|notify| replaced(session.sa, notify)).transpose()?;
    let (child, selectors) = asked_child(session, replaces, payloads)?;
    room_for(session, replaces, &selectors)
        .map_err(|refusal| resource::no_room(session, payloads, refusal))?;
    let offered = payloads.sa().ok_or_else(|| missing("SA"))?;
    let choice = choose_suite(&child, offered, offer::ChildExchange::CreateChildSa)?;
    let mode = mode::to_answer(session.sa, &child, &selectors, payloads);
    let part = match replaces {
        Some(_) => None,
        None => resource::judge(session, &child, &selectors, (&choice.suite, mode), payloads)?,
    };
    let (nonces, keys) = keys::answer(session, choice.suite.ke, payloads, exchanged)?;
    let (ke, shared) = keys.unzip();
    let nonce = nonces.responder.clone();
    let exchanges = KeyExchanges::new(nonces, shared, choice.suite.additional);
    let (agreed, mut answer) = child::agree(session, &choice, selectors, mode)?;
    if let Some(part) = part {
        session.sa.resources.set(agreed.spi_in, &child.name, part);
        answer.extend(resource::notify(session, &child, agreed.spi_in));
    }
    let link = if exchanges.due().is_some() {
        let awaited = FollowupSa::Child { name: child.name, replaces, agreed };
        Some(followup::begin(session, awaited, exchanges)?)
    } else {
        complete_child(session, &child.name, replaces, agreed, &exchanges)?;
        None
    };
    // SA, Nr, [KEr,] TSi, TSr (RFC 7296 §1.3.1), and the link (RFC 9370 §2.2.4).
    let rest = answer.split_off(1);
    answer.push(Payload::Nonce(nonce));
    answer.extend(ke.map(Payload::Ke));
    answer.extend(rest);
    answer.extend(link.map(Payload::Notify));
    Ok(answer)
}

/// All key exchanges are complete.
pub(super) fn complete_child(
    session: &mut Session<'_>,
    name: &str,
    replaces: Option<ChildSaId>,
    agreed: AgreedChild,
    exchanges: &KeyExchanges,
) -> Result<(), NoChild> {
    let Some(child) = initiator::configured_child(session, name) else {
        session.env.alloc.release_esp_spi(session.now, agreed.spi_in);
        return Err(not_configured());
    };
    if let Err(why) = resource::check(session, name, &agreed) {
        session.env.alloc.release_esp_spi(session.now, agreed.spi_in);
        return Err(NoChild::new(NotifyType::NoProposalChosen, why));
    }
    let KeyExchanges { nonces, shared, .. } = exchanges;
    let worker = session.sa.resources.worker(agreed.spi_in);
    let origin = ChildOrigin { role: Role::Responder, nonces, shared, replaces, stays: true };
    let id = child::make(session, &child, &origin, agreed)?;
    match replaces {
        Some(old) => {
            note_renewal(session, old, id, nonces);
            // A peer that has made it in one exchange does not continue with several.
            if session.sa.followup.as_ref().is_some_and(|followup| followup.sa.renews() == Some(old)) {
                followup::forget_followup(session);
            }
        }
        None if worker.is_some() => {}
        None => anew::note_rival(session, id, nonces),
    }
    Ok(())
}

/// A further child counts beside those that are not being deleted; a rekeyed one replaces another.
/// Rekeyings faster than deletions are bounded too.
pub(crate) fn room(session: &Session<'_>, renewal: bool) -> Result<(), NoChild> {
    let (limit, all) = (session.env.config.child_limit, session.sa.children.len());
    let staying = |child: &&ChildSa| matches!(child.phase, ChildPhase::Installed | ChildPhase::Deleting);
    let awaited = usize::from(session.sa.followup.is_some());
    let staying = session.sa.children.iter().filter(staying).count().saturating_add(awaited);
    let why = |found| format!("the IKE_SA has {found} CHILD_SAs already");
    if !renewal && staying >= limit {
        return Err(NoChild::new(NotifyType::NoAdditionalSas, why(staying)));
    }
    if all >= limit.saturating_mul(2) {
        return Err(NoChild::new(NotifyType::TemporaryFailure, why(all)));
    }
    Ok(())
}

/// A packet may have to be compared with all selectors. A renewed SA may have as many as the old
/// one; more of them count like any others.
fn room_for(
    session: &Session<'_>,
    replaces: Option<ChildSaId>,
    selectors: &Selectors,
) -> Result<(), NoChild> {
    let of_child = |child: &ChildSa| child.params.local_ts.len() + child.params.remote_ts.len();
    let awaited = match session.sa.followup.as_ref().map(|followup| &followup.sa) {
        Some(FollowupSa::Child { agreed, .. }) => agreed.local_ts.len() + agreed.remote_ts.len(),
        Some(FollowupSa::Ike(_)) | None => 0,
    };
    let held = session.sa.children.iter().map(of_child).sum::<usize>() + awaited;
    let before = replaces.and_then(|old| session.sa.child(old)).map_or(0, of_child);
    if selectors.len() <= before || held < session.env.config.selector_limit {
        return Ok(());
    }
    let kind = match replaces {
        Some(_) => NotifyType::TsUnacceptable,
        None => NotifyType::NoAdditionalSas,
    };
    Err(NoChild::new(kind, format!("the CHILD_SAs of the IKE_SA have {held} traffic selectors already")))
}

/// The child that the peer requests, and its selectors. A renewed SA keeps its selectors (RFC 7296
/// §2.9.2), except those not configured any more.
pub(super) fn asked_child(
    session: &Session<'_>,
    replaces: Option<ChildSaId>,
    payloads: &Payloads,
) -> Result<(Child, Selectors), NoChild> {
    let asked = Selectors::asked(payloads).ok_or_else(|| missing("TSi or TSr"))?;
    let connection = session.env.loaded.connections.get(&session.sa.connection);
    let connection = connection.ok_or_else(not_configured)?;
    let found = match replaces.and_then(|old| session.sa.child(old)) {
        Some(old) if old.outdated.is_some() && old.is_missed() => {
            return Err(NoChild::new(NotifyType::TemporaryFailure, "the SA to renew is being replaced"));
        }
        Some(old) => {
            let child = initiator::configured_child(session, &old.name).ok_or_else(not_configured)?;
            let kept = Selectors::of(&old.params).narrow(&asked);
            kept.and_then(|kept| still_configured(session.sa, &child, kept)).map(|kept| (child, kept))
        }
        // Otherwise `dynamic` would mean its outer address (RFC 7296 §2.19).
        None if !connection.pools.is_empty() && session.sa.virtual_ips.remote.is_empty() => {
            return Err(NoChild::new(NotifyType::FailedCpRequired, "the peer has no virtual IP"));
        }
        None => matching_child(&connection, session.sa, &asked)
            .map(|found| (found.child.clone(), found.selectors)),
    };
    if let Some((child, selectors)) = found.as_ref().filter(|_| replaces.is_none())
        && !session.env.may_have(session.sa, &child.name, selectors)
    {
        return Err(NoChild::new(NotifyType::NoAdditionalSas, NOT_ADMITTED));
    }
    found.ok_or_else(|| NoChild::without_child(&asked))
}

/// The old one sends on until the peer deletes it or uses the new one. If we are renewing it too,
/// the nonces decide which stays (RFC 7296 §2.8.1).
fn note_renewal(session: &mut Session<'_>, old: ChildSaId, new: ChildSaId, nonces: &Nonces) {
    if let Some(child) = session.sa.child_mut(old) {
        child.phase = ChildPhase::Rekeyed;
        let times = child.limits.times;
        if child.outdated.is_some() {
            anew::note_outdated(session, new);
            keep_times(session, new, times);
        }
    }
    let rekeys = |creating: &&mut Box<Creating>| creating.renews() == Some(old) && !creating.anew;
    if let Some(creating) = session.sa.creating.as_mut().filter(rekeys) {
        creating.rival = Some(Rival { lowest: lowest(nonces).clone(), sa: RivalSa::Child(new) });
    }
    session.env.effects.count(session.sa, ExchangeCounter::ChildRekey);
}

/// The part of these selectors that the child is configured for now.
fn still_configured(sa: &IkeSa, child: &Child, selectors: Selectors) -> Option<Selectors> {
    let configured = Selectors::configured(child, &sa.dynamic_local(), &sa.dynamic_remote());
    if selectors.within(&configured) { Some(selectors) } else { configured.narrow(&selectors) }
}

/// The renewal of an outdated Child SA keeps that one's deadlines: a peer that refuses the new
/// configuration cannot put its end off.
fn keep_times(session: &mut Session<'_>, new: ChildSaId, old: Times) {
    let now = session.now;
    if let Some(new) = session.sa.child_mut(new) {
        let drawn = new.limits.times;
        new.limits.times = Times { rekey: old.rekey, end: earlier(old.end, drawn.end) };
        new.limits.times.end = Some(new.limits.times.end_of_outdated(now));
    }
}

/// Nothing new is made on an IKE SA that will end.
pub(super) fn is_ending(sa: &IkeSa) -> bool {
    sa.closing.is_some() || sa.reauth == Some(Reauth::Done)
}

pub(super) fn not_configured() -> NoChild {
    NoChild::new(NotifyType::NoProposalChosen, "it is not configured any more")
}

fn missing(what: &str) -> NoChild {
    NoChild::new(NotifyType::InvalidSyntax, format!("{what} is missing"))
}

/// The Child SA that REKEY_SA names, by the SPI on which the peer receives (RFC 7296 §2.25.1).
fn replaced(sa: &IkeSa, notify: &Notify) -> Result<ChildSaId, NoChild> {
    let is_named = |child: &&ChildSa| {
        let its = NotifySa { protocol: child.protocol(), spi: SaSpi::Child(child.params.spi_out) };
        notify.sa.as_ref() == Some(&its)
    };
    let found = sa.children.iter().find(is_named);
    let unknown = || {
        let notify = Notify { sa: notify.sa.clone(), ..Notify::new(NotifyType::ChildSaNotFound, Vec::new()) };
        NoChild(notify, "the SA to renew is unknown".into())
    };
    // It may be the one that the peer's response to our own request makes, which was lost or is
    // still to come. If the peer heard that it does not exist, it would delete it, and we would go
    // on sending through it.
    let is_awaited = found.is_none() && sa.creating.as_deref().is_some_and(Creating::makes_child);
    if is_awaited {
        return Err(NoChild::new(NotifyType::TemporaryFailure, "the SA to renew may not exist yet"));
    }
    let found = found.ok_or_else(unknown)?;
    // The same SA would be made twice, and the nonces would not be compared any more (RFC 9370
    // §2.2.4).
    let ours = |creating: &&Creating| creating.renews() == Some(found.id) && creating.is_in_series();
    if sa.creating.as_deref().filter(ours).is_some() {
        return Err(NoChild::new(NotifyType::TemporaryFailure, "we are renewing it"));
    }
    match found.phase {
        ChildPhase::Installed => Ok(found.id),
        ChildPhase::Deleted(_) => Err(unknown()),
        ChildPhase::Rekeyed | ChildPhase::Deleting => {
            Err(NoChild::new(NotifyType::TemporaryFailure, "the SA to renew is being deleted"))
        }
    }
}
