//! The responder's side of IKE_INTERMEDIATE. The peer is still nobody: what it makes us compute is bounded by what we
//! agreed on, and what it makes us keep by the limits of half-open IKE SAs.

use super::message;
use crate::endpoint::Endpoint;
use crate::endpoint::send::Request;
use crate::exchange::refusal::Refusal;
use crate::message::{KePayload, ParseError, Payload, Payloads};
use crate::output::{Reason, Time};
use crate::sa::{HalfOpen, IkeSa, Phase};
use crate::suite::{IkeKeys, IntAuth, KeDraw, Role, SuiteError};

/// A key exchange that is due.
struct Due {
    place: usize,
    draw: KeDraw,
    theirs: KePayload,
    /// Those that the new ones follow.
    keys: IkeKeys,
}

impl Endpoint {
    /// An IKE_INTERMEDIATE request that is due: the integrity check has passed.
    pub(crate) fn intermediate_request(
        &mut self,
        now: Time,
        sa: &mut IkeSa,
        request: &Request,
        covered: IntAuth,
        payloads: Result<Payloads, ParseError>,
    ) -> Result<(), Reason> {
        let Phase::HalfOpen(half) = &sa.phase else { return Ok(()) };
        let Due { place, draw, theirs, keys } = match self.due(sa, half.place, payloads) {
            Ok(due) => due,
            Err(refusal) => return self.refuse_initiator(now, sa, request, refusal),
        };
        let (nonces, spis, request) = (half.nonces.clone(), sa.spis, *request);
        let work = move || {
            let (ours, shared) = draw.respond(&theirs)?;
            Ok((ours, keys.derive_additional(&shared, &nonces, spis)?))
        };
        self.compute(now, (sa, false), work, move |endpoint, now, sa, computed| {
            endpoint.intermediate_done(now, sa, &request, (place, covered), computed)
        });
        Ok(())
    }

    /// What is to be computed for the key exchange that is due.
    fn due(
        &mut self,
        sa: &IkeSa,
        place: usize,
        payloads: Result<Payloads, ParseError>,
    ) -> Result<Due, Refusal> {
        let payloads = payloads?;
        let keys = sa.keys.as_ref().ok_or_else(|| Refusal::syntax("the IKE SA has no keys"))?.ike.clone();
        let next = keys.suite().next_additional(place);
        let (place, method) = next.ok_or_else(|| Refusal::syntax("no additional key exchange is due"))?;
        let theirs = payloads.ke().ok_or_else(|| Refusal::syntax("KE is missing"))?.clone();
        Ok(Due { place, draw: KeDraw::new(method, &mut *self.alloc), theirs, keys })
    }

    /// Answers under the old keys, then changes to the new ones.
    fn intermediate_done(
        &mut self,
        now: Time,
        sa: &mut IkeSa,
        request: &Request,
        (place, covered): (usize, IntAuth),
        computed: Result<(KePayload, IkeKeys), SuiteError>,
    ) -> Result<(), Reason> {
        let Phase::HalfOpen(half) = sa.phase.clone() else { return Ok(()) };
        let (ke, new) = match computed {
            Ok(computed) => computed,
            Err(error) => {
                return self.refuse_initiator(now, sa, request, Refusal::syntax(error.to_string()));
            }
        };
        let mut half = HalfOpen { place: place.saturating_add(1), int_auth: covered, ..*half };
        let keys = sa.keys.as_ref().ok_or_else(|| Reason::Refused("the IKE SA has no keys".into()))?;
        let message = message(sa, true, request.id, &ke);
        half.int_auth.sent(&keys.ike, Role::Responder, &message)?;
        half.last_opener = Some(keys.opener.clone());
        self.respond(now, sa, request, vec![Payload::Ke(ke)])?;
        sa.renew_keys(new);
        sa.phase = Phase::HalfOpen(Box::new(half));
        Ok(())
    }
}
