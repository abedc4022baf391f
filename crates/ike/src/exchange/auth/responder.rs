//! The responder's side of IKE_AUTH.

use crate::config::{Connection, Identity, Unique};
use crate::endpoint::report::{IMPORTANT, ORDINARY};
use crate::exchange::auth::choose::{Candidates, Paths};
use crate::exchange::auth::ppk::PeerPpk;
use crate::exchange::auth::prove::{Asked, Proof, Prover};
use crate::exchange::auth::rounds;
use crate::exchange::auth::rounds::Announced;
use crate::exchange::auth::tries::{Authenticated, Tries, Try};
use crate::exchange::auth::verify::{Check, Claim};
use crate::exchange::child::wanted_connection;
use crate::exchange::refusal::Refusal;
use crate::exchange::send::Request;
use crate::exchange::session::Session;
use crate::exchange::{childless, configuration, counter_sync};
use crate::message::{Notify, NotifyType, ParseError, Payload, Payloads};
use crate::output::Reason;
use crate::sa::{Anchor, HalfOpen, HalfProven, Phase};
use std::sync::Arc;

/// An initiator that has proven all that it has to prove, as we have.
pub(super) struct Admitted<'a> {
    /// The best first.
    pub(super) connections: Vec<Arc<Connection>>,
    pub(super) half: &'a HalfOpen,
    /// The first request of IKE_AUTH.
    pub(super) asked: &'a Payloads,
    /// Who we are.
    pub(super) local: Identity,
    pub(super) remote: Identity,
    /// What vouches for it.
    pub(super) anchor: Option<Anchor>,
    /// What the answer says of us.
    pub(super) said: Vec<Payload>,
}

impl Session<'_> {
    /// A protected IKE_AUTH request: the integrity check has passed.
    pub(crate) fn auth_request(
        &mut self,
        request: &Request,
        payloads: Result<Payloads, ParseError>,
    ) -> Result<(), Reason> {
        let is_later = matches!(self.sa.phase, Phase::HalfProven(_));
        match payloads {
            Ok(payloads) if is_later => self.judge_round(request, Arc::new(payloads)),
            Ok(payloads) => self.judge_initiator(request, Arc::new(payloads)),
            Err(error) => self.refuse_initiator(request, error.into()),
        }
    }

    fn judge_initiator(&mut self, request: &Request, payloads: Arc<Payloads>) -> Result<(), Reason> {
        let Phase::HalfOpen(half) = &self.sa.phase else { return Ok(()) };
        let tries = match self.tries(request, half, &payloads) {
            Ok(tries) => tries,
            Err(refusal) => return self.refuse_initiator(request, refusal),
        };
        let (takes_long, request) = (tries.has_signatures(), *request);
        let then =
            move |session: &mut Session<'_>, judged| session.initiator_judged(&request, payloads, judged);
        self.compute_if(takes_long, false, || tries.judge(), then)
    }

    fn initiator_judged(
        &mut self,
        request: &Request,
        payloads: Arc<Payloads>,
        judged: Result<Authenticated, String>,
    ) -> Result<(), Reason> {
        let Phase::HalfOpen(half) = self.sa.phase.clone() else { return Ok(()) };
        match judged {
            // What a connection was while that was computed opens nothing by what it is now.
            Ok(authenticated) if !self.env.loaded.are_current(&authenticated.candidates.connections) => {
                self.judge_initiator(request, payloads)
            }
            Ok(authenticated) => self.accept_initiator(request, &half, &payloads, authenticated),
            Err(why) => self.refuse_initiator(request, Refusal::authentication(why)),
        }
    }

    /// Finds how who asks may be authenticated.
    fn tries(&self, request: &Request, half: &HalfOpen, payloads: &Arc<Payloads>) -> Result<Tries, Refusal> {
        let id = payloads.id_initiator().ok_or_else(|| Refusal::syntax("IDi is missing"))?;
        let keys = self.sa.keys.as_ref().ok_or_else(|| Refusal::syntax("the IKE SA has no keys"))?;
        let remote = id.identity().ok_or_else(|| {
            Refusal::authentication(format!("an identity of type {} is not supported", id.kind()))
        })?;
        let Some(auth) = payloads.auth() else {
            return Err(Refusal::authentication(format!("{remote} wants EAP, which is not configured")));
        };
        let announced = Announced::by(payloads);
        if announced.follows && !announced.knows {
            return Err(Refusal::authentication(format!(
                "{remote} announces another authentication, and has not said that it knows of that (RFC 4739)"
            )));
        }
        let asked = asked_identity(&remote, payloads)?;
        let int_auth = half.int_auth.octets(request.id);
        let mut list = Vec::new();
        let paths = Paths { init: self.sa.path, auth: request.path };
        let candidates = |announced| {
            let asked = asked.as_ref();
            self.candidates(paths, keys.ike.suite(), &remote, asked, (auth.method, announced))
        };
        let fitting = candidates(Some(announced));
        let begins_otherwise = fitting.is_empty() && !candidates(None).is_empty();
        for candidates in fitting {
            let Some(connection) = candidates.connections.first() else { continue };
            let ppk = match self.peer_ppk(connection, payloads, auth) {
                Ok(ppk) => ppk,
                Err(why) => {
                    list.push(Err(why));
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
                local: &candidates.local,
            };
            let check = self.check((connection, 0), claim);
            // A wrong key does not become right with another connection; the CA that one trusts may.
            let is_last = !connection.remote.method.is_pubkey();
            list.extend(self.try_for(half, payloads, candidates, (ppk, check, int_auth.clone())).map(Ok));
            if is_last {
                break;
            }
        }
        let nobody = if begins_otherwise {
            format!("{remote} {}", announced.misfit())
        } else {
            format!("no connection is configured for {}...{remote}", super::shown(asked.as_ref()))
        };
        Ok(Tries { list, nobody, judge: self.judge(payloads), keys: keys.ike.clone() })
    }

    /// Adds what we would say to an initiator that proves to be one of these.
    fn try_for(
        &self,
        half: &HalfOpen,
        payloads: &Payloads,
        candidates: Candidates,
        (ppk, check, int_auth): (PeerPpk, Check, Vec<u8>),
    ) -> Option<Try> {
        let Candidates { local, remote, connections } = candidates;
        let first = connections.first()?;
        let (own, send_cert) = (first.local.clone(), first.send_cert);
        // Where more has to be proven yet, it is seen at the end who serves the peer.
        let is_last = !connections.iter().any(|connection| connection.has_rounds());
        let connections = if is_last { configuration::serving(connections, payloads) } else { connections };
        let prover = Prover {
            own,
            send_cert,
            credentials: Arc::clone(&self.env.loaded.credentials),
            role: self.sa.role,
            hashes: self.sa.extensions.hashes,
            sha1: self.env.config.legacy_signatures,
            message: half.init_response.clone(),
            peer_nonce: half.nonces.initiator.clone(),
            int_auth,
            local: local.clone(),
            remote: Some(remote.clone()),
            secret: self.env.loaded.secrets.find(Some(&local), Some(&remote)).cloned(),
            asked: Asked::by(payloads),
        };
        let candidates = Candidates { local, remote, connections };
        Some(Try { candidates, ppk, check: Some(check), prover: Some(prover) })
    }

    /// The initiator is who it says. Goes on with the next round, if there is one.
    fn accept_initiator(
        &mut self,
        request: &Request,
        half: &HalfOpen,
        payloads: &Payloads,
        authenticated: Authenticated,
    ) -> Result<(), Reason> {
        let Authenticated { candidates, ppk, proven, proof } = authenticated;
        let anchor = proven.and_then(|proven| {
            self.log(ORDINARY, proven.line);
            proven.anchor
        });
        // A tunnel that was meant to have a PPK and has none must not look like any other.
        let level = if ppk.keys.is_some() { ORDINARY } else { IMPORTANT };
        ppk.line.into_iter().for_each(|line| self.log(level, line));
        if let (Some(mixed), Some(keys)) = (ppk.keys, &mut self.sa.keys) {
            keys.ike = mixed;
            self.sa.ppk = true;
        }
        let Candidates { local, remote, mut connections } = candidates;
        let Some(best) = wanted_connection(&connections, self.sa, payloads).cloned() else {
            return Err(Reason::Refused("no connection".into()));
        };
        self.sa.connection = best.name.clone();
        let (local, mut said) = match self.say_who_we_are(local, proof) {
            Ok(shown) => shown,
            Err(refusal) => return self.refuse_initiator(request, refusal),
        };
        if self.sa.ppk {
            said.push(Payload::Notify(Notify::new(NotifyType::PpkIdentity, Vec::new())));
        }
        let (follows, more) = (rounds::follows(payloads), !best.rounds.local.is_empty());
        connections.retain(|connection| connection.rounds.local.is_empty() != more);
        if !follows && !more {
            let admitted = Admitted { connections, half, asked: payloads, local, remote, anchor, said };
            return self.admit_initiator(request, admitted);
        }
        let proven = HalfProven {
            half: half.clone(),
            int_auth: half.int_auth.octets(request.id),
            request: payloads.clone(),
            connections: connections.iter().map(|connection| connection.name.clone()).collect(),
            ppk: best.ppk.clone(),
            theirs: vec![(best.remote.clone(), remote.clone())],
            ours: vec![(best.local.clone(), local.clone())],
            remote,
            anchor,
            local,
            follows,
        };
        self.await_round(request, proven, said, more)
    }

    /// What the answer says of us, and who we are by it; without a proof, as we were before.
    pub(super) fn say_who_we_are(
        &mut self,
        before: Identity,
        proof: Option<Result<Proof, Reason>>,
    ) -> Result<(Identity, Vec<Payload>), Refusal> {
        let Some(proof) = proof else { return Ok((before, Vec::new())) };
        // Only we know that it is our own fault.
        let Proof { local, id, certificates, auth, line } =
            proof.map_err(|reason| Refusal::authentication(reason.to_string()))?;
        self.log(ORDINARY, line);
        let mut said = vec![Payload::IdResponder(id)];
        said.extend(certificates);
        said.push(Payload::Auth(auth));
        Ok((local, said))
    }

    /// The initiator is authenticated, and so are we: makes the child.
    pub(super) fn admit_initiator(
        &mut self,
        request: &Request,
        admitted: Admitted<'_>,
    ) -> Result<(), Reason> {
        let Admitted { connections, half, asked, local, remote, anchor, said: mut answer } = admitted;
        self.sa.move_to(request.path);
        self.sa.anchor = anchor.map(Box::new);
        let no_connection = || Reason::Refused("no connection".into());
        let connection = wanted_connection(&connections, self.sa, asked).ok_or_else(no_connection)?;
        self.sa.connection = connection.name.clone();
        (self.sa.local_id, self.sa.remote_id) = (Some(local), Some(remote));
        let begins_anew = asked.notify(NotifyType::InitialContact).is_some();
        if begins_anew && connection.unique != Unique::Never {
            self.supersede();
        }
        if self.env.is_surplus(self.sa, connection) {
            let refusal = Refusal::authentication("it has an IKE_SA already, and unique = keep");
            return self.refuse_initiator(request, refusal);
        }
        if let Some(found) = self.env.is_sated(self.sa, connection) {
            let why = format!("it has {found} IKE_SAs already");
            let refused = self.refuse_initiator(request, Refusal::authentication(why));
            self.doubt_twins();
            return refused;
        }
        self.env.half_opens.leave(self.sa.id);
        self.sa.extensions.counter_sync = counter_sync::agreed(&self.env.config, asked);
        self.establish(connection);
        self.enforce_uniqueness(connection);
        self.tell_contact(connection, begins_anew);
        answer.extend(counter_sync::answer(self.sa.extensions.counter_sync));
        match self.answer_configuration(connection, asked) {
            Ok(reply) => {
                answer.extend(reply);
                match childless::Asked::by(connection, asked) {
                    childless::Asked::Child => {
                        answer.extend(self.answer_child(connection, &half.nonces, asked));
                    }
                    childless::Asked::Nothing => self.stays_alone(),
                    childless::Asked::Refused(why) => {
                        answer.push(self.refuse_child(NotifyType::InvalidSyntax, why));
                    }
                }
            }
            Err(notify) => answer.push(self.refuse_child(notify, &notify.to_string())),
        }
        self.respond(request, answer)?;
        Ok(())
    }
}

/// Who the initiator wants us to be, if it says so.
pub(super) fn asked_identity(remote: &Identity, payloads: &Payloads) -> Result<Option<Identity>, Refusal> {
    let named = payloads.id_responder().map(|asked| {
        let kind = asked.kind();
        let unknown = || Refusal::authentication(format!("{remote} wants us to be a {kind}"));
        asked.identity().ok_or_else(unknown)
    });
    named.transpose()
}
