//! The responder's side of IKE_AUTH.

use super::choose::Candidates;
use crate::endpoint::report::IMPORTANT;
use crate::endpoint::send::Request;
use crate::endpoint::{Discard, Endpoint};
use crate::message::{AuthMethodId, IdPayload, Notify, NotifyType, ParseError, Payload, Payloads};
use crate::output::{Reason, Time};
use crate::sa::{HalfOpen, IkeSa, Phase};
use crate::suite::{Role, SignedOctets, SuiteError};

/// Why a peer is refused: the notify for it and the text for us.
struct Refusal(Notify, String);

impl Refusal {
    /// The peer learns nothing but that it is not authenticated (RFC 7296 §2.21.2).
    fn authentication(why: impl Into<String>) -> Self {
        Self(Notify::new(NotifyType::AuthenticationFailed, Vec::new()), why.into())
    }
}

impl From<SuiteError> for Refusal {
    fn from(error: SuiteError) -> Self {
        Self::authentication(error.to_string())
    }
}

impl Endpoint {
    /// A protected IKE_AUTH request: the integrity check has passed.
    pub(crate) fn auth_request(
        &mut self,
        now: Time,
        sa: &mut IkeSa,
        request: &Request,
        payloads: Result<Payloads, ParseError>,
    ) -> Result<(), Reason> {
        let Phase::HalfOpen(half) = sa.phase.clone() else { return Ok(()) };
        let judged = payloads.map_err(|error| Refusal(refusal_of(&error), error.to_string())).and_then(|p| {
            let candidates = self.authenticate(sa, &half, &p)?;
            Ok((p, candidates))
        });
        match judged {
            Ok((payloads, candidates)) => {
                sa.path = request.path;
                self.accept_initiator(now, sa, request, &half, &payloads, candidates)
            }
            Err(Refusal(notify, why)) => {
                self.stats.discard(Discard::Refused);
                let line = || format!("refused {}: {why}", request.path.remote);
                if let Some(line) = self.limited(now, Discard::Refused, line) {
                    self.log(sa, IMPORTANT, line);
                }
                self.respond(now, sa, request, vec![Payload::Notify(notify)])?;
                Err(Reason::Refused(why))
            }
        }
    }

    /// Checks who asks.
    fn authenticate(&self, sa: &IkeSa, half: &HalfOpen, payloads: &Payloads) -> Result<Candidates, Refusal> {
        let malformed =
            |why: &str| Refusal(Notify::new(NotifyType::InvalidSyntax, Vec::new()), why.to_owned());
        let id = payloads.id_initiator().ok_or_else(|| malformed("IDi is missing"))?;
        let keys = sa.keys.as_ref().ok_or_else(|| malformed("the IKE SA has no keys"))?;
        let remote = id.identity().ok_or_else(|| {
            Refusal::authentication(format!("an identity of type {} is not supported", id.kind()))
        })?;
        let Some(auth) = payloads.auth() else {
            return Err(Refusal::authentication(format!("{remote} wants EAP, which is not configured")));
        };
        let asked = match payloads.id_responder() {
            None => None,
            Some(asked) => Some(asked.identity().ok_or_else(|| {
                Refusal::authentication(format!("{remote} wants us to be a {}", asked.kind()))
            })?),
        };
        let candidates =
            self.candidates(sa.path, keys.ike.suite(), &remote, asked.as_ref()).ok_or_else(|| {
                let asked = super::shown(asked.as_ref());
                Refusal::authentication(format!("no connection is configured for {asked}...{remote}"))
            })?;
        if auth.method != AuthMethodId::SharedKeyMic {
            let method = auth.method;
            return Err(Refusal::authentication(format!("{remote} authenticates by {method}, expected psk")));
        }
        let secret = self.secrets.find(Some(&candidates.local), Some(&remote)).ok_or_else(|| {
            Refusal::authentication(format!("no shared key is loaded for {} and {remote}", candidates.local))
        })?;
        let octets = SignedOctets { message: &half.init_request, peer_nonce: &half.nonces.responder, id };
        if !keys.ike.psk_verify(Role::Initiator, &secret.secret, &octets, auth)? {
            return Err(Refusal::authentication(format!("{remote} does not hold our shared key")));
        }
        Ok(candidates)
    }

    /// The initiator is authenticated: proves who we are, and makes the child.
    fn accept_initiator(
        &mut self,
        now: Time,
        sa: &mut IkeSa,
        request: &Request,
        half: &HalfOpen,
        payloads: &Payloads,
        candidates: Candidates,
    ) -> Result<(), Reason> {
        let refuse = |text: &str| Reason::Refused(text.to_owned());
        let Candidates { local, remote, connections } = candidates;
        let connection = connections.first().ok_or_else(|| refuse("no connection"))?;
        let keys = sa.keys.as_ref().ok_or_else(|| refuse("the IKE SA has no keys"))?;
        let id = IdPayload::from(&local);
        let secret = self.secrets.find(Some(&local), Some(&remote)).ok_or_else(|| refuse("no shared key"))?;
        let octets =
            SignedOctets { message: &half.init_response, peer_nonce: &half.nonces.initiator, id: &id };
        let auth = keys.ike.psk_auth(Role::Responder, &secret.secret, &octets)?;
        sa.connection = connection.name.clone();
        sa.local_id = Some(local);
        sa.remote_id = Some(remote);
        self.half_opens.leave(half.source);
        if payloads.notify(NotifyType::InitialContact).is_some() {
            self.supersede(now, sa);
        }
        self.establish(now, sa, connection);
        let mut answer = vec![Payload::IdResponder(id), Payload::Auth(auth)];
        answer.extend(self.answer_child(now, sa, &connections, &half.nonces, payloads));
        self.respond(now, sa, request, answer)?;
        Ok(())
    }
}

/// The notify for a request that cannot be read.
fn refusal_of(error: &ParseError) -> Notify {
    match error {
        ParseError::Critical(payload) => Notify::unsupported_critical(*payload),
        _ => Notify::new(error.notify(), Vec::new()),
    }
}
