//! New key material: nonces and, if configured, a key exchange (perfect forward secrecy).

use crate::config::{ADDITIONAL_KE, Child, KeyExchange};
use crate::exchange::create_child::NoChild;
use crate::exchange::create_child::agreement::{Exchanged, KeyedAnswer};
use crate::exchange::error::AnswerError;
use crate::exchange::nonce_fits;
use crate::exchange::session::Session;
use crate::message::{KePayload, Nonce, Notify, NotifyType, Payloads};
use crate::output::Reason;
use crate::sa::{Creating, IkeSa, KeyExchanges};
use crate::suite::{KePrivate, Nonces, Secret, SuiteError};

/// The responder's part. `method`: the chosen key exchange, if any; `exchanged`: the result for the
/// KE payload.
pub(super) fn answer(
    session: &mut Session<'_>,
    method: Option<KeyExchange>,
    payloads: &Payloads,
    exchanged: Option<Exchanged>,
) -> Result<(Nonces, Option<(KePayload, Secret)>), NoChild> {
    let nonces = answer_nonce(session, payloads)?;
    let Some(method) = method else { return Ok((nonces, None)) };
    if payloads.ke().is_none_or(|ke| ke.method != method.into()) {
        let notify = Notify::invalid_ke(method.into());
        return Err(NoChild(notify, format!("the key exchange must be {}", notify_name(method))));
    }
    Ok((nonces, Some(done(exchanged)?)))
}

fn answer_nonce(session: &mut Session<'_>, payloads: &Payloads) -> Result<Nonces, NoChild> {
    let theirs = payloads.nonce().filter(|nonce| is_long_enough(session.sa, nonce));
    let initiator = theirs.cloned().ok_or_else(|| {
        NoChild::new(NotifyType::InvalidSyntax, "the nonce is missing, or too short for the PRF")
    })?;
    let none = || NoChild::new(NotifyType::TemporaryFailure, "there is no entropy");
    let responder = session.env.new_nonce().ok_or_else(none)?;
    Ok(Nonces { initiator, responder })
}

/// A new private key for the request's first method.
pub(super) fn key_for(
    session: &mut Session<'_>,
    method: Option<KeyExchange>,
) -> Result<Option<KePrivate>, Reason> {
    Ok(method.map(|method| KePrivate::generate(method, session.env.entropy())).transpose()?)
}

/// The result of a request's key exchange.
pub(super) fn done(exchanged: Option<Exchanged>) -> Result<(KePayload, Secret), NoChild> {
    // When the request came, it was not configured.
    let changed = || NoChild::new(NotifyType::TemporaryFailure, "the configuration has changed meanwhile");
    let failed = |error: SuiteError| NoChild::new(NotifyType::InvalidSyntax, error.to_string());
    exchanged.ok_or_else(changed)?.map_err(failed)
}

fn notify_name(method: KeyExchange) -> String {
    crate::message::KeMethod::from(method).to_string()
}

fn is_long_enough(sa: &IkeSa, nonce: &Nonce) -> bool {
    sa.keys.as_ref().is_some_and(|keys| nonce_fits(nonce, keys.ike.suite().prf))
}

/// The initiator's part: `method` and `additional` are the responder's choice.
pub(super) fn agreed_keys(
    sa: &IkeSa,
    creating: &Creating,
    method: Option<KeyExchange>,
    additional: [Option<KeyExchange>; ADDITIONAL_KE],
    answer: KeyedAnswer<'_>,
) -> Result<KeyExchanges, AnswerError> {
    let KeyedAnswer { payloads, shared } = answer;
    let theirs = payloads.nonce().filter(|nonce| is_long_enough(sa, nonce));
    let responder = theirs.cloned().ok_or(AnswerError::Nonce)?;
    let nonces = Nonces { initiator: creating.nonce.clone(), responder };
    let Some(method) = method else { return Ok(KeyExchanges::new(nonces, None, additional)) };
    let is_chosen = creating.ke.as_ref().is_some_and(|ke| ke.method() == method);
    let shared = shared.filter(|_| is_chosen).ok_or(AnswerError::OtherKe)??;
    Ok(KeyExchanges::new(nonces, Some(shared), additional))
}

/// The method that INVALID_KE_PAYLOAD asks for, if it is configured and not tried yet (RFC 7296
/// §1.2).
pub(super) fn other_method(
    payloads: &Payloads,
    creating: &Creating,
    configured: impl Fn(KeyExchange) -> bool,
) -> Option<KeyExchange> {
    let wanted = payloads.notify(NotifyType::InvalidKePayload)?.wanted_ke()?;
    KeyExchange::from_wire(wanted).filter(|method| configured(*method) && !creating.tried.contains(method))
}

/// The first key exchange of a request for a child.
pub(super) fn first_method(child: &Child) -> Option<KeyExchange> {
    child.proposals.iter().find_map(|proposal| proposal.ke.first()).copied()
}
