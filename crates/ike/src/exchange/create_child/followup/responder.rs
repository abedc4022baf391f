//! The responder's side of IKE_FOLLOWUP_KE. Its state is bounded: one series for each IKE SA, and
//! for a limited time.

use crate::config::KeyExchange;
use crate::exchange::child::NoChild;
use crate::exchange::create_child::agreement::Exchanged;
use crate::exchange::create_child::ike;
use crate::exchange::create_child::ike::obstacle;
use crate::exchange::create_child::initiator;
use crate::exchange::create_child::keys::done;
use crate::exchange::create_child::responder;
use crate::exchange::create_child::responder::{is_ending, not_configured};
use crate::exchange::session::Session;
use crate::message::{Notify, NotifyType, Payload, Payloads};
use crate::output::Time;
use crate::sa::{Followup, FollowupSa, IkeSa, KeyExchanges, Rival, RivalSa, lowest};
use crate::suite::SuiteError;
use testudo_base::spi::Spi;

/// CREATE_CHILD_SA has agreed on an SA, and key exchanges follow: returns the link. A peer that
/// begins the same series again has forgotten the first; one that begins another has to wait.
pub(crate) fn begin(
    session: &mut Session<'_>,
    awaited: FollowupSa,
    exchanges: KeyExchanges,
) -> Result<Notify, NoChild> {
    if let Some(first) = &session.sa.followup
        && !awaited.is_another_try_of(&first.sa)
    {
        awaited.spi_in().into_iter().for_each(|spi| session.env.alloc.release_esp_spi(session.now, spi));
        let why = "another SA of the peer is waiting for its key exchanges";
        return Err(NoChild::new(NotifyType::TemporaryFailure, why));
    }
    forget_followup(session);
    if let Some(ours) = &mut session.sa.creating {
        let same = if awaited.is_ike() {
            ours.is_ike()
        } else {
            // The replacement of an outdated SA is an additional one for the peer, and so no rival.
            !ours.anew && ours.renews().is_some_and(|old| awaited.renews() == Some(old))
        };
        if same {
            let lowest = lowest(&exchanges.nonces).clone();
            ours.rival = Some(Rival { lowest, sa: RivalSa::Awaited });
        }
    }
    Ok(await_next(session, awaited, exchanges))
}

/// Remembers the purpose of the next IKE_FOLLOWUP_KE.
fn await_next(session: &mut Session<'_>, awaited: FollowupSa, exchanges: KeyExchanges) -> Notify {
    let mut link = [0; 16];
    session.env.entropy().fill(&mut link);
    let until = session.now.plus(session.env.config.followup_timeout);
    session.sa.followup = Some(Box::new(Followup { sa: awaited, exchanges, link, until }));
    Notify::new(NotifyType::AdditionalKeyExchange, link.to_vec())
}

/// An IKE_FOLLOWUP_KE of the peer. Returns the payloads of the answer; after the last one the SA is
/// made.
pub(crate) fn answer(
    session: &mut Session<'_>,
    payloads: &Payloads,
    exchanged: Option<Exchanged>,
) -> Result<Vec<Payload>, NoChild> {
    let followup =
        session.sa.followup.take_if(|followup| is_named(session.now, followup, payloads)).ok_or_else(
            || {
                NoChild::new(
                    NotifyType::StateNotFound,
                    "no series is known to which this IKE_FOLLOWUP_KE belongs",
                )
            },
        )?;
    let answer = go_on_with(session, *followup, payloads, exchanged);
    if answer.is_err() {
        forget_rival(session.sa);
    }
    answer
}

fn go_on_with(
    session: &mut Session<'_>,
    followup: Followup,
    payloads: &Payloads,
    exchanged: Option<Exchanged>,
) -> Result<Vec<Payload>, NoChild> {
    let Followup { sa: awaited, mut exchanges, .. } = followup;
    let answered = exchange(session, &awaited, &mut exchanges, payloads, exchanged);
    // An error in one of them ends the series.
    let answer = answered.inspect_err(|_| {
        awaited.spi_in().into_iter().for_each(|spi| session.env.alloc.release_esp_spi(session.now, spi));
    })?;
    if exchanges.due().is_some() {
        let link = await_next(session, awaited, exchanges);
        return Ok(vec![answer, Payload::Notify(link)]);
    }
    match awaited {
        FollowupSa::Child { name, replaces, agreed } => {
            responder::complete_child(session, &name, replaces, agreed, &exchanges)?;
        }
        FollowupSa::Ike(agreed) => ike::complete(session, agreed, &exchanges)?,
    }
    Ok(vec![answer])
}

/// Our part of the due key exchange.
fn exchange(
    session: &Session<'_>,
    awaited: &FollowupSa,
    exchanges: &mut KeyExchanges,
    payloads: &Payloads,
    exchanged: Option<Exchanged>,
) -> Result<Payload, NoChild> {
    check(session, awaited)?;
    let syntax = |why: &str| NoChild::new(NotifyType::InvalidSyntax, why);
    let (_, method) = exchanges.due().ok_or_else(|| syntax("no additional key exchange is due"))?;
    let offered = payloads.ke().ok_or_else(|| syntax("KE is missing"))?;
    if offered.method != method.into() {
        let error = SuiteError::KeMethod { found: offered.method, expected: method.into() };
        return Err(syntax(&error.to_string()));
    }
    let (answer, shared) = done(exchanged)?;
    exchanges.took_place(shared);
    Ok(Payload::Ke(answer))
}

/// Much may have changed since the last exchange (RFC 7296 §2.25).
fn check(session: &Session<'_>, awaited: &FollowupSa) -> Result<(), NoChild> {
    let wait = |why: &str| NoChild::new(NotifyType::TemporaryFailure, why);
    let FollowupSa::Child { name, replaces, .. } = awaited else {
        return obstacle(session.sa).map_or(Ok(()), |why| Err(wait(why)));
    };
    if is_ending(session.sa) {
        return Err(wait("the IKE_SA is ending"));
    }
    if replaces.is_some_and(|old| !session.sa.child(old).is_some_and(|old| old.is_installed())) {
        return Err(wait("the SA to renew is being deleted"));
    }
    initiator::configured_child(session, name).map(|_| ()).ok_or_else(not_configured)
}

/// The peer will not continue, or need not.
pub(crate) fn forget_followup(session: &mut Session<'_>) {
    if let Some(followup) = session.sa.followup.take() {
        session.commit();
        forget_rival(session.sa);
        followup.sa.spi_in().into_iter().for_each(|spi| session.env.alloc.release_esp_spi(session.now, spi));
    }
}

/// The peer deletes the Child SA with its SPI `spi_out`: its renewal is not needed, and if it is
/// not made yet it never will be.
pub(crate) fn forget_followup_of(session: &mut Session<'_>, spi_out: Spi) {
    let Some(FollowupSa::Child { agreed, replaces, .. }) = session.sa.followup.as_ref().map(|f| &f.sa) else {
        return;
    };
    let old = replaces.and_then(|old| session.sa.child(old)).map(|old| old.params.spi_out);
    if agreed.spi_out == spi_out || old == Some(spi_out) {
        forget_followup(session);
    }
}

/// True if a request belongs to the series, and is not too late.
fn is_named(now: Time, followup: &Followup, payloads: &Payloads) -> bool {
    let link = payloads.notify(NotifyType::AdditionalKeyExchange).map(|notify| notify.data.as_slice());
    Some(followup.link.as_slice()) == link && followup.until > now
}

/// True if a request belongs to the peer's series, and this key exchange is due in it.
pub(in super::super) fn is_awaited(now: Time, sa: &IkeSa, payloads: &Payloads, method: KeyExchange) -> bool {
    sa.followup.as_ref().is_some_and(|followup| {
        let is_due = followup.exchanges.due().is_some_and(|(_, due)| due == method);
        is_due && is_named(now, followup, payloads)
    })
}

/// The peer's rival exchange will not complete: our SA counts, whatever the nonces.
fn forget_rival(sa: &mut IkeSa) {
    let awaited = |rival: &mut Rival| rival.sa == RivalSa::Awaited;
    sa.creating.iter_mut().for_each(|creating| drop(creating.rival.take_if(awaited)));
}
