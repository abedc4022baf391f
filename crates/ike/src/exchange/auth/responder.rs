//! The responder's side of IKE_AUTH.

use super::choose::Candidates;
use super::ppk::PeerPpk;
use super::prove::{Proof, Subject};
use super::verify::{Claim, Evidence};
use crate::config::Unique;
use crate::endpoint::Endpoint;
use crate::endpoint::report::ORDINARY;
use crate::endpoint::send::Request;
use crate::exchange::configuration;
use crate::exchange::refusal::Refusal;
use crate::message::{CertEncoding, Notify, NotifyType, ParseError, Payload, Payloads};
use crate::output::{Reason, Time};
use crate::sa::{HalfOpen, IkeSa, Phase};

/// An initiator that is who it says.
struct Authenticated {
    candidates: Candidates,
    ppk: PeerPpk,
    /// For the log.
    line: String,
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
        let judged = payloads.map_err(Refusal::from).and_then(|p| {
            let authenticated = self.authenticate(now, sa, request, &half, &p)?;
            Ok((p, authenticated))
        });
        match judged {
            Ok((payloads, Authenticated { candidates, ppk, line })) => {
                self.log(sa, ORDINARY, line);
                ppk.line.into_iter().for_each(|line| self.log(sa, ORDINARY, line));
                if let (Some(mixed), Some(keys)) = (ppk.keys, &mut sa.keys) {
                    keys.ike = mixed;
                    sa.ppk = true;
                }
                sa.path = request.path;
                self.accept_initiator(now, sa, request, &half, &payloads, candidates)
            }
            Err(refusal) => self.refuse_initiator(now, sa, request, refusal),
        }
    }

    /// Checks who asks.
    fn authenticate(
        &self,
        now: Time,
        sa: &IkeSa,
        request: &Request,
        half: &HalfOpen,
        payloads: &Payloads,
    ) -> Result<Authenticated, Refusal> {
        let id = payloads.id_initiator().ok_or_else(|| Refusal::syntax("IDi is missing"))?;
        let keys = sa.keys.as_ref().ok_or_else(|| Refusal::syntax("the IKE SA has no keys"))?;
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
        let int_auth = half.int_auth.octets(request.id);
        let evidence = Evidence::default();
        let mut failure = None;
        for candidates in self.candidates(sa.path, keys.ike.suite(), &remote, asked.as_ref(), auth.method) {
            let Some(connection) = candidates.connections.first() else { continue };
            let ppk = match self.peer_ppk(sa, connection, payloads, auth) {
                Ok(ppk) => ppk,
                Err(why) => {
                    failure.get_or_insert(why);
                    continue;
                }
            };
            let claim = Claim {
                keys: ppk.keys.as_ref().unwrap_or(&keys.ike),
                message: &half.init_request,
                nonce: &half.nonces.responder,
                int_auth: &int_auth,
                id,
                identity: &remote,
                auth: ppk.auth.as_ref().unwrap_or(auth),
                payloads,
                local: &candidates.local,
                evidence: &evidence,
            };
            match self.verify(now, sa, connection, claim) {
                Ok(line) => return Ok(Authenticated { candidates, ppk, line }),
                Err(why) => _ = failure.get_or_insert(why),
            }
            // A wrong key does not become right with another connection; the CA that one trusts may.
            if !connection.remote.method.is_pubkey() {
                break;
            }
        }
        Err(Refusal::authentication(failure.unwrap_or_else(|| {
            let asked = super::shown(asked.as_ref());
            format!("no connection is configured for {asked}...{remote}")
        })))
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
        let connections = configuration::serving(connections, payloads);
        let connection = connections.first().ok_or_else(|| refuse("no connection"))?;
        sa.connection = connection.name.clone();
        sa.remote_id = Some(remote);
        let keys = &sa.keys.as_ref().ok_or_else(|| refuse("the IKE SA has no keys"))?.ike;
        let subject = Subject {
            keys,
            message: &half.init_response,
            peer_nonce: &half.nonces.initiator,
            int_auth: &half.int_auth.octets(request.id),
            local: &local,
            secret: self.secrets.find(Some(&local), sa.remote_id.as_ref()),
            asked: payloads.asks_for_certificates(CertEncoding::X509Signature),
        };
        let Proof { local, id, certificates, auth, line } = match self.prove(sa, connection, subject) {
            Ok(proof) => proof,
            // Only we know that it is our own fault.
            Err(reason) => {
                let refusal = Refusal::authentication(reason.to_string());
                return self.refuse_initiator(now, sa, request, refusal);
            }
        };
        self.log(sa, ORDINARY, line);
        sa.local_id = Some(local);
        let begins_anew = payloads.notify(NotifyType::InitialContact).is_some();
        if begins_anew && connection.unique != Unique::Never {
            self.supersede(now, sa);
        }
        if self.is_surplus(sa, connection) {
            let refusal = Refusal::authentication("it has an IKE_SA already, and unique = keep");
            return self.refuse_initiator(now, sa, request, refusal);
        }
        self.half_opens.leave(half.source);
        self.establish(now, sa, connection);
        self.enforce_uniqueness(now, sa, connection);
        let mut answer = vec![Payload::IdResponder(id)];
        answer.extend(certificates);
        answer.push(Payload::Auth(auth));
        if sa.ppk {
            answer.push(Payload::Notify(Notify::new(NotifyType::PpkIdentity, Vec::new())));
        }
        match self.answer_configuration(sa, connection, payloads) {
            Ok(reply) => {
                answer.extend(reply);
                answer.extend(self.answer_child(now, sa, &connections, &half.nonces, payloads));
            }
            Err(notify) => answer.push(self.refuse_child(sa, notify, &notify.to_string())),
        }
        self.respond(now, sa, request, answer)?;
        Ok(())
    }
}
