//! The initiator's side of IKE_INTERMEDIATE.

use super::{message, renew_keys};
use crate::config::Connection;
use crate::endpoint::Endpoint;
use crate::endpoint::report::ORDINARY;
use crate::message::{ExchangeType, KeMethod, ParseError, Payload, Payloads};
use crate::output::{Reason, Time};
use crate::sa::{IkeSa, IntermediateSent, Opening, Phase, RequestKind};
use crate::suite::{KePrivate, Role};

impl Endpoint {
    /// Begins the next additional key exchange from `place` on; where none is left, sends IKE_AUTH.
    pub(crate) fn exchange_or_authenticate(
        &mut self,
        now: Time,
        sa: &mut IkeSa,
        connection: &Connection,
        mut opening: Opening,
        place: usize,
    ) -> Result<(), Reason> {
        let keys = sa.keys.as_ref().ok_or_else(|| Reason::Refused("the IKE SA has no keys".into()))?;
        let Some((place, method)) = keys.ike.suite().next_additional(place) else {
            return self.send_auth(now, sa, connection, opening);
        };
        let ke = KePrivate::generate(method, &mut *self.alloc)?;
        let payload = ke.payload();
        let message = message(sa, false, sa.outgoing.next, &payload);
        opening.int_auth.sent(&keys.ike, Role::Initiator, &message)?;
        sa.phase = Phase::Intermediate(Box::new(IntermediateSent { opening, place, ke }));
        let line =
            format!("additional key exchange {} by {}", place.saturating_add(1), KeMethod::from(method));
        self.log(sa, ORDINARY, line);
        let payloads = vec![Payload::Ke(payload)];
        self.request(now, sa, ExchangeType::IkeIntermediate, RequestKind::Intermediate, payloads)
    }

    /// The protected answer to our IKE_INTERMEDIATE. Nobody but who answered our IKE_SA_INIT can have made it, so what is
    /// wrong with it is wrong for good.
    pub(crate) fn intermediate_response(
        &mut self,
        now: Time,
        sa: &mut IkeSa,
        payloads: Result<Payloads, ParseError>,
    ) -> Result<(), Reason> {
        let Phase::Intermediate(sent) = sa.phase.clone() else { return Ok(()) };
        let refuse = |text: String| Reason::Refused(format!("the peer's IKE_INTERMEDIATE response {text}"));
        let payloads = payloads.map_err(|error| refuse(format!("is malformed: {error}")))?;
        if let Some(error) = payloads.error() {
            return Err(Reason::Notify(error.kind.to_string()));
        }
        let answer = payloads.ke().ok_or_else(|| refuse("has no KE".into()))?;
        let shared = sent.ke.agree(answer).map_err(|error| refuse(format!("cannot be used: {error}")))?;
        let gone = || Reason::Refused("the connection was unloaded meanwhile".into());
        let connection = self.connections.get(&sa.connection).ok_or_else(gone)?;
        let IntermediateSent { opening, place, ke: _ } = *sent;
        renew_keys(sa, &shared, &opening.nonces)?;
        self.exchange_or_authenticate(now, sa, &connection, opening, place.saturating_add(1))
    }
}
