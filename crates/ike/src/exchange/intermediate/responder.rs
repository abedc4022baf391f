//! The responder's side of IKE_INTERMEDIATE. The peer is still nobody: what it makes us compute is bounded by what we
//! agreed on, and what it makes us keep by the limits of half-open IKE SAs.

use crate::exchange::intermediate::message;
use crate::exchange::refusal::Refusal;
use crate::exchange::send::Request;
use crate::exchange::session::Session;
use crate::message::{KePayload, ParseError, Payload, Payloads};
use crate::output::Reason;
use crate::sa::{HalfOpen, Phase};
use crate::suite::{IkeKeys, IntAuth, KeDraw, Role, SuiteError};

/// A key exchange that is due.
struct Due {
    place: usize,
    draw: KeDraw,
    theirs: KePayload,
    /// Those that the new ones follow.
    keys: IkeKeys,
}

impl Session<'_> {
    /// An IKE_INTERMEDIATE request that is due: the integrity check has passed.
    pub(crate) fn intermediate_request(
        &mut self,
        request: &Request,
        covered: IntAuth,
        payloads: Result<Payloads, ParseError>,
    ) -> Result<(), Reason> {
        let Phase::HalfOpen(half) = &self.sa.phase else { return Ok(()) };
        let (place, nonces) = (half.place, half.nonces.clone());
        let Due { place, draw, theirs, keys } = match self.due(place, payloads) {
            Ok(due) => due,
            Err(refusal) => return self.refuse_initiator(request, refusal),
        };
        let (spis, request) = (self.sa.spis, *request);
        let work = move || {
            let (ours, shared) = draw.respond(&theirs)?;
            Ok((ours, keys.derive_additional(&shared, &nonces, spis)?))
        };
        self.compute(false, work, move |session, computed| {
            session.intermediate_done(&request, (place, covered), computed)
        });
        Ok(())
    }

    /// What is to be computed for the key exchange that is due.
    fn due(&mut self, place: usize, payloads: Result<Payloads, ParseError>) -> Result<Due, Refusal> {
        let payloads = payloads?;
        let keys =
            self.sa.keys.as_ref().ok_or_else(|| Refusal::syntax("the IKE SA has no keys"))?.ike.clone();
        let next = keys.suite().next_additional(place);
        let (place, method) = next.ok_or_else(|| Refusal::syntax("no additional key exchange is due"))?;
        let theirs = payloads.ke().ok_or_else(|| Refusal::syntax("KE is missing"))?.clone();
        Ok(Due { place, draw: KeDraw::new(method, &mut *self.env.alloc), theirs, keys })
    }

    /// Answers under the old keys, then changes to the new ones.
    fn intermediate_done(
        &mut self,
        request: &Request,
        (place, covered): (usize, IntAuth),
        computed: Result<(KePayload, IkeKeys), SuiteError>,
    ) -> Result<(), Reason> {
        let Phase::HalfOpen(half) = self.sa.phase.clone() else { return Ok(()) };
        let (ke, new) = match computed {
            Ok(computed) => computed,
            Err(error) => {
                return self.refuse_initiator(request, Refusal::syntax(error.to_string()));
            }
        };
        let mut half = HalfOpen { place: place.saturating_add(1), int_auth: covered, ..*half };
        let keys = self.sa.keys.as_ref().ok_or_else(|| Reason::Refused("the IKE SA has no keys".into()))?;
        let message = message(self.sa, true, request.id, &ke);
        half.int_auth.sent(&keys.ike, Role::Responder, &message)?;
        half.last_opener = Some(keys.opener.clone());
        self.respond(request, vec![Payload::Ke(ke)])?;
        self.sa.renew_keys(new);
        self.sa.phase = Phase::HalfOpen(Box::new(half));
        Ok(())
    }
}
