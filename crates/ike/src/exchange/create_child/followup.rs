//! IKE_FOLLOWUP_KE (RFC 9370 §2.2.4): the additional key exchanges of an SA that CREATE_CHILD_SA
//! has agreed on, one a round trip. The SA is made after the last one.

mod initiator;
mod responder;

pub(crate) use initiator::{
    begin_child_series, begin_ike_series, child_response, ike_response, let_rival_serve,
};
pub(crate) use responder::{answer, begin, forget_followup, forget_followup_of};

pub(super) use responder::is_awaited;

use crate::config::KeyExchange;
use crate::exchange::error::AnswerError;
use crate::message::{NotifyType, Payloads};
use crate::sa::KeyExchanges;

/// The next key exchange of our series.
pub(super) struct Next {
    /// Its number, counted from 0.
    place: usize,
    method: KeyExchange,
    /// The link by which the responder recognises it.
    link: Vec<u8>,
}

/// The exchange that follows a response; none after the last one.
pub(super) fn next_link(exchanges: &KeyExchanges, payloads: &Payloads) -> Result<Option<Next>, AnswerError> {
    let link = payloads.notify(NotifyType::AdditionalKeyExchange).map(|notify| notify.data.clone());
    match (exchanges.due(), link) {
        (None, None) => Ok(None),
        (Some((place, method)), Some(link)) => Ok(Some(Next { place, method, link })),
        (Some(_), None) => Err(AnswerError::NoLink),
        (None, Some(_)) => Err(AnswerError::SurplusKe),
    }
}
