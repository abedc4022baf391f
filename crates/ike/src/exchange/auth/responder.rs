//! The responder's side of IKE_AUTH.

use super::choose::{Candidates, Paths};
use super::ppk::PeerPpk;
use super::prove::{Asked, Proof, Prover};
use super::verify::{Check, Claim, Evidence, Judge, Proven};
use crate::config::{Connection, Unique};
use crate::endpoint::Endpoint;
use crate::endpoint::report::{IMPORTANT, ORDINARY};
use crate::endpoint::send::Request;
use crate::exchange::child::wanted_connection;
use crate::exchange::refusal::Refusal;
use crate::exchange::{configuration, counter_sync};
use crate::message::{Notify, NotifyType, ParseError, Payload, Payloads};
use crate::output::{Reason, Time};
use crate::sa::{HalfOpen, IkeSa, Phase};
use crate::suite::IkeKeys;
use std::sync::Arc;

/// One way in which an initiator may be authenticated, and our answer to it.
struct Try {
    candidates: Candidates,
    ppk: PeerPpk,
    check: Check,
    prover: Prover,
}

/// All such ways, the best first; or why one was none.
struct Tries {
    list: Vec<Result<Try, String>>,
    /// Why it fails if there is none.
    nobody: String,
    judge: Judge,
    /// Ours without a PPK.
    keys: IkeKeys,
}

/// An initiator that is who it says.
struct Authenticated {
    candidates: Candidates,
    ppk: PeerPpk,
    proven: Proven,
    /// Of who we are.
    proof: Result<Proof, Reason>,
}

impl Tries {
    /// True if it takes long.
    fn has_signatures(&self) -> bool {
        let signs = |one: &Try| one.check.is_signature() || one.prover.signs();
        self.list.iter().flatten().any(signs)
    }

    /// The first that is right. Else the reason why the best was not, for the log.
    fn judge(self) -> Result<Authenticated, String> {
        let Self { list, nobody, judge, keys } = self;
        let evidence = Evidence::default();
        let mut failure = None;
        for one in list {
            let checked = one.and_then(|Try { candidates, ppk, check, prover }| {
                let proven = check.decide(&judge, &evidence)?;
                let proof = prover.prove(ppk.keys.as_ref().unwrap_or(&keys));
                Ok(Authenticated { candidates, ppk, proven, proof })
            });
            match checked {
                Ok(authenticated) => return Ok(authenticated),
                Err(why) => _ = failure.get_or_insert(why),
            }
        }
        Err(failure.unwrap_or(nobody))
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
        match payloads {
            Ok(payloads) => self.judge_initiator(now, sa, request, Arc::new(payloads)),
            Err(error) => self.refuse_initiator(now, sa, request, error.into()),
        }
    }

    fn judge_initiator(
        &mut self,
        now: Time,
        sa: &mut IkeSa,
        request: &Request,
        payloads: Arc<Payloads>,
    ) -> Result<(), Reason> {
        let Phase::HalfOpen(half) = &sa.phase else { return Ok(()) };
        let tries = match self.tries(now, sa, request, half, &payloads) {
            Ok(tries) => tries,
            Err(refusal) => return self.refuse_initiator(now, sa, request, refusal),
        };
        let (takes_long, request) = (tries.has_signatures(), *request);
        let then = move |endpoint: &mut Self, now, sa: &mut IkeSa, judged| {
            endpoint.initiator_judged(now, sa, &request, payloads, judged)
        };
        self.compute_if(takes_long, now, (sa, false), || tries.judge(), then)
    }

    fn initiator_judged(
        &mut self,
        now: Time,
        sa: &mut IkeSa,
        request: &Request,
        payloads: Arc<Payloads>,
        judged: Result<Authenticated, String>,
    ) -> Result<(), Reason> {
        let Phase::HalfOpen(half) = sa.phase.clone() else { return Ok(()) };
        match judged {
            // What a connection was while that was computed opens nothing by what it is now.
            Ok(authenticated) if !self.are_current(&authenticated.candidates.connections) => {
                self.judge_initiator(now, sa, request, payloads)
            }
            Ok(authenticated) => {
                sa.move_to(request.path);
                self.accept_initiator(now, sa, request, &half, &payloads, authenticated)
            }
            Err(why) => self.refuse_initiator(now, sa, request, Refusal::authentication(why)),
        }
    }

    /// True if none of the connections was changed or unloaded.
    fn are_current(&self, connections: &[Arc<Connection>]) -> bool {
        let is_current = |one: &Arc<Connection>| self.connections.get(&one.name).as_ref() == Some(one);
        connections.iter().all(is_current)
    }

    /// Finds how who asks may be authenticated.
    fn tries(
        &self,
        now: Time,
        sa: &IkeSa,
        request: &Request,
        half: &HalfOpen,
        payloads: &Arc<Payloads>,
    ) -> Result<Tries, Refusal> {
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
        let mut list = Vec::new();
        let paths = Paths { init: sa.path, auth: request.path };
        for candidates in self.candidates(paths, keys.ike.suite(), &remote, asked.as_ref(), auth.method) {
            let Some(connection) = candidates.connections.first() else { continue };
            let ppk = match self.peer_ppk(sa, connection, payloads, auth) {
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
            let check = self.check(sa, connection, claim);
            // A wrong key does not become right with another connection; the CA that one trusts may.
            let is_last = !connection.remote.method.is_pubkey();
            list.extend(self.try_for(sa, half, payloads, candidates, (ppk, check, int_auth.clone())).map(Ok));
            if is_last {
                break;
            }
        }
        let nobody = format!("no connection is configured for {}...{remote}", super::shown(asked.as_ref()));
        Ok(Tries { list, nobody, judge: self.judge(now, payloads), keys: keys.ike.clone() })
    }

    /// Adds what we would say to an initiator that proves to be one of these.
    fn try_for(
        &self,
        sa: &IkeSa,
        half: &HalfOpen,
        payloads: &Payloads,
        candidates: Candidates,
        (ppk, check, int_auth): (PeerPpk, Check, Vec<u8>),
    ) -> Option<Try> {
        let Candidates { local, remote, connections } = candidates;
        let connections = configuration::serving(connections, payloads);
        let prover = Prover {
            connection: connections.first()?.clone(),
            credentials: Arc::clone(&self.credentials),
            role: sa.role,
            hashes: sa.extensions.hashes,
            sha1: self.config.legacy_signatures,
            message: half.init_response.clone(),
            peer_nonce: half.nonces.initiator.clone(),
            int_auth,
            local: local.clone(),
            remote: Some(remote.clone()),
            secret: self.secrets.find(Some(&local), Some(&remote)).cloned(),
            asked: Asked::by(payloads),
        };
        Some(Try { candidates: Candidates { local, remote, connections }, ppk, check, prover })
    }

    /// The initiator is authenticated: says who we are, and makes the child.
    fn accept_initiator(
        &mut self,
        now: Time,
        sa: &mut IkeSa,
        request: &Request,
        half: &HalfOpen,
        payloads: &Payloads,
        authenticated: Authenticated,
    ) -> Result<(), Reason> {
        let Authenticated { candidates, ppk, proven, proof } = authenticated;
        self.log(sa, ORDINARY, proven.line);
        sa.anchor = proven.anchor.map(Box::new);
        // A tunnel that was meant to have a PPK and has none must not look like any other.
        let level = if ppk.keys.is_some() { ORDINARY } else { IMPORTANT };
        ppk.line.into_iter().for_each(|line| self.log(sa, level, line));
        if let (Some(mixed), Some(keys)) = (ppk.keys, &mut sa.keys) {
            keys.ike = mixed;
            sa.ppk = true;
        }
        let Candidates { local: _, remote, connections } = candidates;
        let no_connection = || Reason::Refused("no connection".into());
        let connection = wanted_connection(&connections, sa, payloads).ok_or_else(no_connection)?;
        sa.connection = connection.name.clone();
        sa.remote_id = Some(remote);
        let Proof { local, id, certificates, auth, line } = match proof {
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
        if let Some(found) = self.is_sated(sa, connection) {
            let why = format!("it has {found} IKE_SAs already");
            let refused = self.refuse_initiator(now, sa, request, Refusal::authentication(why));
            self.doubt_twins(now, sa);
            return refused;
        }
        self.half_opens.leave(sa.id);
        sa.extensions.counter_sync = counter_sync::agreed(&self.config, payloads);
        self.establish(now, sa, connection);
        self.enforce_uniqueness(now, sa, connection);
        self.tell_contact(sa, connection, begins_anew);
        let mut answer = vec![Payload::IdResponder(id)];
        answer.extend(certificates);
        answer.push(Payload::Auth(auth));
        if sa.ppk {
            answer.push(Payload::Notify(Notify::new(NotifyType::PpkIdentity, Vec::new())));
        }
        answer.extend(counter_sync::answer(sa.extensions.counter_sync));
        match self.answer_configuration(sa, connection, payloads) {
            Ok(reply) => {
                answer.extend(reply);
                answer.extend(self.answer_child(now, sa, connection, &half.nonces, payloads));
            }
            Err(notify) => answer.push(self.refuse_child(sa, notify, &notify.to_string())),
        }
        self.respond(now, sa, request, answer)?;
        Ok(())
    }
}
