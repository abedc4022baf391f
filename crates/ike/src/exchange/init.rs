//! IKE_SA_INIT (RFC 7296 §1.2): keys from a key exchange, without authentication.

mod extensions;
mod initiator;
mod responder;

pub(crate) use initiator::{begin_attempt, handle_response};

pub(crate) use extensions::{certificate_request, key_request};
pub(crate) use initiator::Reply;
pub(crate) use responder::{InitRequest, InitResponder};

use crate::message::Nonce;

/// A nonce must have at least half the key size of the PRF (RFC 7296 §2.10).
pub(crate) fn nonce_fits(nonce: &Nonce, prf: crate::config::Prf) -> bool {
    nonce.as_ref().len() >= prf.length() / 2
}
