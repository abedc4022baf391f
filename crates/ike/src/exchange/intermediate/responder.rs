//! The responder's side of IKE_INTERMEDIATE. The peer is still nobody: what it makes us compute is bounded by what we
//! agreed on, and what it makes us keep by the limits of half-open IKE SAs.

use super::{message, renew_keys};
use crate::endpoint::Endpoint;
use crate::endpoint::send::Request;
use crate::exchange::refusal::Refusal;
use crate::message::{KePayload, ParseError, Payload, Payloads};
use crate::output::{Reason, Time};
use crate::sa::{HalfOpen, IkeSa, Phase};
use crate::suite::{self, Role, Secret};

impl Endpoint {
    /// An IKE_INTERMEDIATE request that is due: the integrity check has passed.
    pub(crate) fn intermediate_request(
        &mut self,
        now: Time,
        sa: &mut IkeSa,
        request: &Request,
        payloads: Result<Payloads, ParseError>,
    ) -> Result<(), Reason> {
        let Phase::HalfOpen(half) = sa.phase.clone() else { return Ok(()) };
        match self.exchange_additional(sa, &half, payloads) {
            Ok((place, ke, shared)) => {
                let half = HalfOpen { place: place.saturating_add(1), ..*half };
                self.answer_additional(now, sa, request, half, ke, &shared)
            }
            Err(refusal) => self.refuse_initiator(now, sa, request, refusal),
        }
    }

    /// Our part of the key exchange that is due: its place, what we answer, and the shared secret.
    fn exchange_additional(
        &mut self,
        sa: &IkeSa,
        half: &HalfOpen,
        payloads: Result<Payloads, ParseError>,
    ) -> Result<(usize, KePayload, Secret), Refusal> {
        let payloads = payloads?;
        let due = sa.keys.as_ref().and_then(|keys| keys.ike.suite().next_additional(half.place));
        let (place, method) = due.ok_or_else(|| Refusal::syntax("no additional key exchange is due"))?;
        let ke = payloads.ke().ok_or_else(|| Refusal::syntax("KE is missing"))?;
        let (answer, shared) = suite::respond(method, ke, &mut *self.alloc)
            .map_err(|error| Refusal::syntax(error.to_string()))?;
        Ok((place, answer, shared))
    }

    /// Answers under the old keys, then changes to the new ones.
    fn answer_additional(
        &mut self,
        now: Time,
        sa: &mut IkeSa,
        request: &Request,
        mut half: HalfOpen,
        ke: KePayload,
        shared: &Secret,
    ) -> Result<(), Reason> {
        let keys = sa.keys.as_ref().ok_or_else(|| Reason::Refused("the IKE SA has no keys".into()))?;
        let message = message(sa, true, request.id, &ke);
        half.int_auth.sent(&keys.ike, Role::Responder, &message)?;
        half.last_opener = Some(keys.opener.clone());
        self.respond(now, sa, request, vec![Payload::Ke(ke)])?;
        renew_keys(sa, shared, &half.nonces)?;
        sa.phase = Phase::HalfOpen(Box::new(half));
        Ok(())
    }
}
