//! CREATE_CHILD_SA (RFC 7296 §1.3): further Child SAs, and new keys for existing ones and for the
//! IKE SA. With additional key exchanges it is the first of a series, followed by IKE_FOLLOWUP_KE
//! (RFC 9370 §2.2.4).
//!
//! Both sides may begin, even at once. §2.8.1 and §2.8.2 say which one wins then, and §2.25 what is
//! refused meanwhile; the tests in `tests/it/scenarios` have the names of the cases.

mod agreement;
mod anew;
mod followup;
mod ike;
mod initiator;
mod keys;
mod own_sa;
mod replace;
mod resource;
mod responder;

pub(crate) use agreement::{handle_request, handle_response};
pub(crate) use anew::{ask_replacement, note_outdated};
pub(crate) use followup::{forget_followup, forget_followup_of};
pub(crate) use ike::{ask_new_ike_keys, decide_for, ike_deleted, leave_to_rival};
pub(crate) use initiator::{ask_new_child, ask_new_keys, child_failed, creation_lost};
pub(crate) use replace::{
    child_of_spi, close_child, proven, send_through, spi_of, sweep_deleted, switch_to_successor,
};
pub(crate) use resource::{
    ask_resource, fallback_of_new, give_back, invite, is_invited, note_installed, waiting as waiting_workers,
};

use crate::endpoint::EndpointConfig;
use crate::environment::report::FAILURE;
use crate::exchange::child::NoChild;
use crate::exchange::create_child::agreement::{Exchanged, KeyedAnswer};
use crate::exchange::send::Request;
use crate::exchange::session::Session;
use crate::message::{ExchangeType, Payload, Payloads, Protocol};
use crate::output::Reason;
use crate::sa::{WantedIke, What};

/// A request of the peer, once its key exchange, if any, is computed.
fn judge_creation(
    session: &mut Session<'_>,
    request: &Request,
    payloads: &Payloads,
    exchanged: Option<Exchanged>,
) -> Result<(), Reason> {
    let judged = match request.exchange {
        ExchangeType::IkeFollowupKe => followup::answer(session, payloads, exchanged),
        _ => responder::answer_child_request(session, payloads, exchanged),
    };
    answer_creation(session, request, judged)
}

fn answer_creation(
    session: &mut Session<'_>,
    request: &Request,
    judged: Result<Vec<Payload>, NoChild>,
) -> Result<(), Reason> {
    let answer = judged.unwrap_or_else(|NoChild(notify, why)| {
        session.env.effects.stats.failed += 1;
        session.log(FAILURE, format!("no CHILD_SA: {why}; refused with {}", notify.kind));
        vec![Payload::Notify(notify)]
    });
    session.respond(request, answer)
}

/// Counts a peer's requests. An SA that is gone still keeps its SPI from others for minutes, and a
/// renewed IKE SA its memory until the peer deletes it: no peer may create SAs faster than they go.
/// A peer with all its tunnels gets through at once.
fn takes_too_many(session: &mut Session<'_>) -> bool {
    let EndpointConfig { creation_burst, creation_pace, .. } = session.env.config;
    let due = session.sa.creations_until.max(session.now);
    let too_many = due.since(session.now) >= creation_pace.saturating_mul(creation_burst);
    if !too_many {
        session.sa.creations_until = due.plus(creation_pace);
    }
    too_many
}

/// The response to our request, once its key exchange is computed.
fn judge_answer(session: &mut Session<'_>, answer: KeyedAnswer<'_>) -> Result<(), Reason> {
    if let Some(creating) = session.sa.creating.take() {
        match creating.what.clone() {
            What::Child { name, spi_in, replaces, tries, series } => {
                let anew = creating.anew;
                let asked = initiator::RequestedChild { name, spi_in, replaces, tries, anew };
                match series {
                    None => initiator::child_response(session, *creating, &asked, answer)?,
                    Some(series) => {
                        followup::child_response(session, *creating, &asked, series, answer)?;
                    }
                }
            }
            What::Ike(WantedIke { spi, series: None }) => {
                ike::handle_response(session, *creating, spi, answer)?;
            }
            What::Ike(WantedIke { spi, series: Some(series) }) => {
                followup::ike_response(session, *creating, spi, series, answer)?;
            }
        }
    }
    session.next_task()
}

/// True if the offer is for an IKE SA.
fn offers_ike(payloads: &Payloads) -> bool {
    let first = payloads.sa().and_then(|sa| sa.proposals.first());
    first.is_some_and(|proposal| proposal.protocol == Protocol::Ike)
}
