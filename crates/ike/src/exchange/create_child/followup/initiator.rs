//! The initiator's side of IKE_FOLLOWUP_KE.

use crate::environment::report::ORDINARY;
use crate::exchange::create_child::agreement::KeyedAnswer;
use crate::exchange::create_child::followup::responder;
use crate::exchange::create_child::followup::{Next, next_link};
use crate::exchange::create_child::ike;
use crate::exchange::create_child::initiator;
use crate::exchange::create_child::initiator::RequestedChild;
use crate::exchange::create_child::replace::{serve_on, start_outbound};
use crate::exchange::error::AnswerError;
use crate::exchange::session::Session;
use crate::message::{ExchangeType, IkeSpi, KeMethod, Notify, NotifyType, Payload, Payloads};
use crate::output::Reason;
use crate::sa::{
    AgreedChild, AgreedIke, ChildSa, Creating, KeyExchanges, Outbound, RequestKind, RivalSa, Series, Task,
    WantedIke, What,
};
use crate::suite::KePrivate;

/// Bound on how often a peer may forget a series before the IKE SA is given up (RFC 9370 §2.2.4).
const MAX_FORGOTTEN: u8 = 4;

/// CREATE_CHILD_SA has agreed on a Child SA, and key exchanges follow. If both sides renew the same
/// one, the nonces have decided now: the side with the lowest begins no IKE_FOLLOWUP_KE (RFC 9370
/// §2.2.4).
pub(crate) fn begin_child_series(
    session: &mut Session<'_>,
    mut creating: Creating,
    asked: &RequestedChild,
    series: Series<AgreedChild>,
    next: Next,
) -> Result<(), Reason> {
    if asked.is_being_deleted(session.sa) {
        initiator::unwanted_child(session, asked, true, "it is being deleted");
        return Ok(());
    }
    if creating.is_outdone(&series.exchanges.nonces) {
        child_outdone(session, asked);
        return Ok(());
    }
    initiator::outdo_child(session, &creating);
    creating.rival.take_if(|rival| rival.sa == RivalSa::Awaited);
    if creating.rival.is_some() {
        // The peer has renewed it in one exchange, and takes that back. Until we are done the old
        // one sends on; if we fail, it must be renewed again.
        asked.replaces.into_iter().for_each(|old| serve_on(session.sa, old));
    }
    ask_child(session, creating, asked, series, next)
}

fn ask_child(
    session: &mut Session<'_>,
    mut creating: Creating,
    asked: &RequestedChild,
    series: Series<AgreedChild>,
    next: Next,
) -> Result<(), Reason> {
    let RequestedChild { name, spi_in, replaces, tries, anew: _ } = asked.clone();
    creating.what = What::Child { name, spi_in, replaces, tries, series: Some(series) };
    ask(session, creating, next)
}

/// Nothing is made yet, so there is nothing to delete.
fn child_outdone(session: &mut Session<'_>, asked: &RequestedChild) {
    session.env.alloc.release_esp_spi(session.now, asked.spi_in);
    let Some(old) = asked.replaces else { return };
    session.log(ORDINARY, format!("the peer renews CHILD_SA {}{{{}}} too, and stays", asked.name, old.0));
    if session.sa.child(old).is_some_and(|child| child.is_installed()) {
        // If the peer does not continue, this side does.
        initiator::try_later(session, Task::RekeyChild(old));
    }
}

/// The response to an IKE_FOLLOWUP_KE for a Child SA. `Err`: the IKE SA is gone.
pub(crate) fn child_response(
    session: &mut Session<'_>,
    creating: Creating,
    asked: &RequestedChild,
    mut series: Series<AgreedChild>,
    answer: KeyedAnswer<'_>,
) -> Result<(), Reason> {
    if let Some(error) = refusal(answer.payloads).cloned() {
        session.env.alloc.release_esp_spi(session.now, asked.spi_in);
        let_rival_serve(session, &creating, asked);
        initiator::child_refused(session, asked, &error)?;
        return series_refused(session, &error);
    }
    let Some(child) =
        initiator::configured_child(session, &asked.name).filter(|_| session.sa.closing.is_none())
    else {
        let why = "the child was unloaded, or the IKE_SA is ending";
        initiator::unwanted_child(session, asked, true, why);
        return Ok(());
    };
    match exchange(&mut series.exchanges, answer) {
        Ok(None) => {
            session.sa.forgotten = 0;
            initiator::child_agreed(session, &creating, asked, &child, series);
        }
        Ok(Some(_)) if asked.is_being_deleted(session.sa) => {
            initiator::unwanted_child(session, asked, true, "it is being deleted");
        }
        Ok(Some(next)) => return ask_child(session, creating, asked, series, next),
        Err(error) => {
            let_rival_serve(session, &creating, asked);
            initiator::unwanted_child(session, asked, true, &error.to_string());
        }
    }
    Ok(())
}

/// Our renewal has come to nothing. The peer may know nothing of it, and then does not take its own
/// new SA back.
pub(crate) fn let_rival_serve(session: &mut Session<'_>, creating: &Creating, asked: &RequestedChild) {
    let Some(RivalSa::Child(rival)) = creating.rival.as_ref().map(|rival| rival.sa) else { return };
    serve_on(session.sa, rival);
    let old = asked.replaces.and_then(|old| session.sa.child(old));
    let place = old.filter(|old| old.is_sending()).map(|old| old.params.spi_in);
    let serves = |child: &&mut ChildSa| child.is_installed() && child.outbound == Outbound::Retired;
    let Some(child) = session.sa.child_mut(rival).filter(serves) else { return };
    match place {
        Some(old) => child.outbound = Outbound::Waiting(old),
        None => start_outbound(session, rival),
    }
}

/// CREATE_CHILD_SA has agreed on an IKE SA, and key exchanges follow.
pub(crate) fn begin_ike_series(
    session: &mut Session<'_>,
    mut creating: Creating,
    spi: IkeSpi,
    series: Series<AgreedIke>,
    next: Next,
) -> Result<(), Reason> {
    if session.sa.closing.is_some() {
        return Ok(());
    }
    if creating.is_outdone(&series.exchanges.nonces) {
        ike::outdone(session, &creating);
        return Ok(());
    }
    // The peer deletes one that it has made already; until we are done, it may still be needed.
    if creating.rival.take_if(|rival| rival.sa == RivalSa::Awaited).is_some() {
        responder::forget_followup(session);
    }
    creating.what = What::Ike(WantedIke { spi, series: Some(series) });
    ask(session, creating, next)
}

/// The response to an IKE_FOLLOWUP_KE for an IKE SA. `Err`: the old one is gone.
pub(crate) fn ike_response(
    session: &mut Session<'_>,
    mut creating: Creating,
    spi: IkeSpi,
    mut series: Series<AgreedIke>,
    answer: KeyedAnswer<'_>,
) -> Result<(), Reason> {
    if let Some(error) = refusal(answer.payloads) {
        ike::refused(session, &creating, &format!("the peer answered {}", error.kind));
        return series_refused(session, error);
    }
    match exchange(&mut series.exchanges, answer) {
        Ok(None) => {
            session.sa.forgotten = 0;
            return ike::agreed(session, &creating, &series);
        }
        Ok(Some(_)) if session.sa.closing.is_some() => {}
        Ok(Some(next)) => {
            creating.what = What::Ike(WantedIke { spi, series: Some(series) });
            return ask(session, creating, next);
        }
        Err(error) => ike::refused(session, &creating, &error.to_string()),
    }
    Ok(())
}

fn ask(session: &mut Session<'_>, creating: Creating, next: Next) -> Result<(), Reason> {
    let Next { place, method, link } = next;
    let creating = session.sa.creating.insert(Box::new(creating));
    let ke = KePrivate::generate(method, &mut *session.env.alloc)?;
    let payload = ke.payload();
    creating.ke = Some(ke);
    let line = format!("additional key exchange {} by {}", place.saturating_add(1), KeMethod::from(method));
    session.log(ORDINARY, line);
    let link = Notify::new(NotifyType::AdditionalKeyExchange, link);
    let payloads = vec![Payload::Ke(payload), Payload::Notify(link)];
    session.request(ExchangeType::IkeFollowupKe, RequestKind::CreateChild, payloads)
}

/// The peer breaks a series off. It may forget one now and then, but not always.
fn series_refused(session: &mut Session<'_>, error: &Notify) -> Result<(), Reason> {
    if error.kind != NotifyType::StateNotFound {
        return Ok(());
    }
    session.sa.forgotten = session.sa.forgotten.saturating_add(1);
    if session.sa.forgotten < MAX_FORGOTTEN || session.sa.closing.is_some() {
        return Ok(());
    }
    session.env.act_on_hopelessness(session.now, session.sa);
    let deadline = session.now.plus(session.env.config.delete_timeout);
    session.delete_ike(Reason::Notify(error.kind.to_string()), deadline)
}

/// The error of a response that contains nothing else.
fn refusal(payloads: &Payloads) -> Option<&Notify> {
    payloads.error().filter(|_| payloads.ke().is_none())
}

/// Completes the due key exchange. Returns what follows.
fn exchange(exchanges: &mut KeyExchanges, answer: KeyedAnswer<'_>) -> Result<Option<Next>, AnswerError> {
    exchanges.took_place(answer.shared.ok_or(AnswerError::NoKe)??);
    next_link(exchanges, answer.payloads)
}
