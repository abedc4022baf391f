//! IKE_INTERMEDIATE (RFC 9242), used for additional key exchanges: one a round trip, each of which
//! changes the keys of the IKE SA (RFC 9370 §2.2.2).

mod initiator;
mod responder;

pub(crate) use initiator::{authenticate_or_exchange, handle_response, next_draft};
pub(crate) use responder::handle_request;

use crate::message::{ExchangeType, KePayload, MessageBuilder, MessageId, Payload};
use crate::sa::IkeSa;

/// Our message with its KE payload, as AUTH covers it.
fn message(sa: &IkeSa, response: bool, id: MessageId, ke: &KePayload) -> MessageBuilder {
    let header = sa.header(ExchangeType::IkeIntermediate, response, id);
    MessageBuilder::new(header).with(Payload::Ke(ke.clone()))
}
