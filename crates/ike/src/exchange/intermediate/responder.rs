//! The responder's side of IKE_INTERMEDIATE. The peer is not authenticated yet: the computations
//! that it causes are bounded by the agreed suite, and the memory by the limits of half-open IKE
//! SAs.

use crate::exchange::intermediate::message;
use crate::exchange::refusal::Refusal;
use crate::exchange::send::Request;
use crate::exchange::session::Session;
use crate::message::{KePayload, ParseError, Payload, Payloads};
use crate::output::Reason;
use crate::sa::{HalfOpen, Phase};
use crate::suite::{IkeKeys, IntAuth, KeDraw, Role, SuiteError};

/// A due key exchange.
struct Due {
    place: usize,
    draw: KeDraw,
    theirs: KePayload,
    /// The present keys, from which the new ones are derived.
    keys: IkeKeys,
}

/// An IKE_INTERMEDIATE request that is due: the integrity check has passed.
pub(crate) fn handle_request(
    session: &mut Session<'_>,
    request: &Request,
    covered: IntAuth,
    payloads: Result<Payloads, ParseError>,
) -> Result<(), Reason> {
    let Phase::HalfOpen(half) = &session.sa.phase else { return Ok(()) };
    let (place, nonces) = (half.place, half.nonces.clone());
    let Due { place, draw, theirs, keys } = match due(session, place, payloads) {
        Ok(due) => due,
        Err(refusal) => return session.refuse_initiator(request, refusal),
    };
    let (spis, request) = (session.sa.spis, *request);
    let work = move || {
        let (ours, shared) = draw.respond(&theirs)?;
        Ok((ours, keys.derive_additional(&shared, &nonces, spis)?))
    };
    session.compute(false, work, move |session, computed| done(session, &request, place, covered, computed));
    Ok(())
}

/// The computation for the due key exchange.
fn due(
    session: &mut Session<'_>,
    place: usize,
    payloads: Result<Payloads, ParseError>,
) -> Result<Due, Refusal> {
    let payloads = payloads?;
    let keys = session.sa.keys.as_ref().ok_or_else(|| Refusal::syntax("the IKE SA has no keys"))?.ike.clone();
    let next = keys.suite().next_additional(place);
    let (place, method) = next.ok_or_else(|| Refusal::syntax("no additional key exchange is due"))?;
    let theirs = payloads.ke().ok_or_else(|| Refusal::syntax("KE is missing"))?.clone();
    Ok(Due { place, draw: KeDraw::new(method, &mut *session.env.alloc), theirs, keys })
}

/// Answers under the old keys, then changes to the new ones.
fn done(
    session: &mut Session<'_>,
    request: &Request,
    place: usize,
    covered: IntAuth,
    computed: Result<(KePayload, IkeKeys), SuiteError>,
) -> Result<(), Reason> {
    let Phase::HalfOpen(half) = session.sa.phase.clone() else { return Ok(()) };
    let (ke, new) = match computed {
        Ok(computed) => computed,
        Err(error) => {
            return session.refuse_initiator(request, Refusal::syntax(error.to_string()));
        }
    };
    let mut half = HalfOpen { place: place.saturating_add(1), int_auth: covered, ..*half };
    let keys = session.sa.keys.as_ref().ok_or_else(|| Reason::Refused("the IKE SA has no keys".into()))?;
    let message = message(session.sa, true, request.id, &ke);
    half.int_auth.sent(&keys.ike, Role::Responder, &message)?;
    half.last_opener = Some(keys.opener.clone());
    session.respond(request, vec![Payload::Ke(ke)])?;
    session.sa.renew_keys(new);
    session.sa.phase = Phase::HalfOpen(Box::new(half));
    Ok(())
}
