//! The initiator's side of IKE_AUTH.

use super::{local_identity, shown};
use crate::config::Connection;
use crate::endpoint::Endpoint;
use crate::endpoint::report::IMPORTANT;
use crate::exchange::child::Answer;
use crate::exchange::narrow::Selectors;
use crate::message::{ExchangeType, IdPayload, Notify, NotifyType, ParseError, Payload, Payloads, TsPayload};
use crate::output::{Reason, Time};
use crate::sa::{Attempt, AuthSent, Closing, IkeSa, Phase, RequestKind, Task};
use crate::suite::{Nonces, Role, SignedOctets, offer};
use std::sync::Arc;

impl Endpoint {
    /// Sends IKE_AUTH, once IKE_SA_INIT has brought keys. `init_response`: the responder's message.
    pub(crate) fn send_auth(
        &mut self,
        now: Time,
        sa: &mut IkeSa,
        connection: &Connection,
        attempt: Attempt,
        nonces: Nonces,
        init_response: &[u8],
    ) -> Result<(), Reason> {
        let refuse = |text: &str| Reason::Refused(text.to_owned());
        let child =
            connection.child(&attempt.child).ok_or_else(|| refuse("the child was unloaded meanwhile"))?;
        let local = local_identity(connection, sa.path);
        let id = IdPayload::from(&local);
        let secret = self.key_to(connection, sa.path).ok_or_else(|| {
            let remote = shown(connection.remote.id.as_ref());
            Reason::Refused(format!("no shared key is loaded for {local} and {remote}"))
        })?;
        let keys = sa.keys.as_ref().ok_or_else(|| refuse("the IKE SA has no keys"))?;
        let request = sa.outgoing.pending.take().and_then(|pending| pending.datagrams.into_iter().next());
        let request = request.unwrap_or_default();
        let octets = SignedOctets { message: &request, peer_nonce: &nonces.responder, id: &id };
        let auth = keys.ike.psk_auth(Role::Initiator, &secret.secret, &octets)?;
        let spi_in =
            self.alloc.esp_spi(now, sa.our_spi().share()).ok_or_else(|| refuse("no free ESP SPI is left"))?;
        let wanted = Selectors::configured(child, sa.path.local.ip(), sa.path.remote.ip());
        let mut payloads = vec![Payload::IdInitiator(id)];
        if self.is_initial_contact(sa) {
            payloads.push(Payload::Notify(Notify::new(NotifyType::InitialContact, Vec::new())));
        }
        payloads.extend(connection.remote.id.as_ref().map(|id| Payload::IdResponder(id.into())));
        payloads.extend([
            Payload::Auth(auth),
            Payload::Sa(offer::esp(&child.proposals, spi_in, offer::ChildExchange::IkeAuth)),
            Payload::TsInitiator(TsPayload::new(wanted.local)),
            Payload::TsResponder(TsPayload::new(wanted.remote)),
        ]);
        sa.local_id = Some(local);
        sa.phase = Phase::AuthSent(Box::new(AuthSent {
            attempt,
            nonces,
            init_response: init_response.to_vec(),
            spi_in,
        }));
        self.request(now, sa, ExchangeType::IkeAuth, RequestKind::Auth, payloads)?;
        Ok(())
    }

    /// True if we share no other IKE SA with the peer's address: only then may we say so (RFC 7296 §2.4).
    fn is_initial_contact(&self, sa: &IkeSa) -> bool {
        !self
            .table
            .by_addr(sa.path.remote.ip())
            .any(|other| other.is_established() || matches!(other.phase, Phase::AuthSent(_)))
    }

    /// The protected answer to our IKE_AUTH.
    pub(crate) fn auth_response(
        &mut self,
        now: Time,
        sa: &mut IkeSa,
        payloads: Result<Payloads, ParseError>,
    ) -> Result<(), Reason> {
        let Phase::AuthSent(sent) = sa.phase.clone() else { return Ok(()) };
        let payloads = match payloads {
            Ok(payloads) => payloads,
            Err(error) => return self.reject(now, sa, format!("malformed IKE_AUTH response: {error}")),
        };
        let Some(connection) = self.connections.get(&sa.connection) else {
            return self.reject(now, sa, "the connection was unloaded meanwhile".into());
        };
        if payloads.auth().is_none()
            && let Some(error) = payloads.error()
        {
            return Err(Reason::Notify(hint(error.kind)));
        }
        if let Err(why) = self.check_responder(sa, &connection, &sent, &payloads) {
            return self.reject(now, sa, why);
        }
        self.establish(now, sa, &connection);
        self.first_child(now, sa, &connection, &sent, &payloads)
    }

    /// Checks who answered. The error is for the log, and says what was found and what was expected.
    fn check_responder(
        &self,
        sa: &mut IkeSa,
        connection: &Connection,
        sent: &AuthSent,
        payloads: &Payloads,
    ) -> Result<(), String> {
        let (Some(id), Some(auth), Some(keys)) = (payloads.id_responder(), payloads.auth(), &sa.keys) else {
            return Err("the peer's IKE_AUTH response has no IDr or no AUTH".into());
        };
        let identity = id
            .identity()
            .ok_or_else(|| format!("the peer's identity is a {}, which is not supported", id.kind()))?;
        if let Some(expected) = &connection.remote.id
            && !expected.matches(&identity)
        {
            return Err(format!("the peer is {identity}, expected {expected}"));
        }
        let local = sa.local_id.as_ref();
        let secret = self
            .secrets
            .find(local, Some(&identity))
            .ok_or_else(|| format!("no shared key is loaded for {} and {identity}", shown(local)))?;
        let octets = SignedOctets { message: &sent.init_response, peer_nonce: &sent.nonces.initiator, id };
        match keys.ike.psk_verify(Role::Responder, &secret.secret, &octets, auth) {
            Ok(true) => {
                sa.remote_id = Some(identity);
                Ok(())
            }
            Ok(false) => Err(format!("{identity} does not hold our shared key (AUTH by {})", auth.method)),
            Err(error) => Err(error.to_string()),
        }
    }

    /// The peer is not who it should be: tells it (RFC 7296 §2.21.2), and lets the SA go with the answer.
    fn reject(&mut self, now: Time, sa: &mut IkeSa, why: String) -> Result<(), Reason> {
        let reason = Reason::Refused(why);
        self.attempt_failed(now, sa, &reason);
        sa.phase = Phase::Rejecting;
        sa.closing = Some(Closing { reason, deadline: now.plus(self.config.delete_timeout) });
        let notify = Payload::Notify(Notify::new(NotifyType::AuthenticationFailed, Vec::new()));
        self.request(now, sa, ExchangeType::Informational, RequestKind::AuthFailed, vec![notify])?;
        Ok(())
    }

    /// The Child SA that came with IKE_AUTH, or why none did. Without it the IKE SA stays (RFC 7296 §1.2), for a while.
    fn first_child(
        &mut self,
        now: Time,
        sa: &mut IkeSa,
        connection: &Arc<Connection>,
        sent: &AuthSent,
        payloads: &Payloads,
    ) -> Result<(), Reason> {
        let name = &sent.attempt.child;
        let answer = Answer { nonces: &sent.nonces, spi_in: sent.spi_in, payloads };
        let result = match payloads.error().filter(|_| payloads.sa().is_none()) {
            Some(error) => Err(Reason::Notify(hint(error.kind))),
            None => self.accept_child(now, sa, connection, name, &answer).map_err(|why| {
                sa.outgoing.queue(Task::DeleteSpi(sent.spi_in));
                Reason::Refused(why)
            }),
        };
        if let Err(reason) = &result {
            self.stats.failed += 1;
            self.log(sa, IMPORTANT, format!("no CHILD_SA {name}: {reason}; the IKE_SA stays for now"));
            self.alloc.release_esp_spi(now, sent.spi_in);
        }
        self.initiate_done(now, &connection.name, sa.id, name, result);
        self.next_task(now, sa)
    }
}

/// An error notify with what most often lies behind it.
fn hint(kind: NotifyType) -> String {
    let hint = match kind {
        NotifyType::AuthenticationFailed => {
            " (is the shared key the same, and does the peer know our identity?)"
        }
        NotifyType::TsUnacceptable => " (do local_ts and remote_ts agree with the peer's?)",
        NotifyType::NoProposalChosen => " (do esp_proposals agree with the peer's?)",
        _ => "",
    };
    format!("{kind}{hint}")
}
