//! The responder's side of IKE_AUTH.

use crate::config::{Connection, Identity, Unique};
use crate::environment::report::{IMPORTANT, ORDINARY};
use crate::exchange::auth::choose::{Candidates, Paths};
use crate::exchange::auth::error::AuthError;
use crate::exchange::auth::ppk::PeerPpk;
use crate::exchange::auth::prove::{Asked, Covered, Proof, Prover};
use crate::exchange::auth::rounds::Announced;
use crate::exchange::auth::tries::{Authenticated, Tries, Try};
use crate::exchange::auth::verify::{AuthClaim, Check};
use crate::exchange::auth::{choose, establish, later, ppk, rounds, verify};
use crate::exchange::child::wanted_connection;
use crate::exchange::refusal::Refusal;
use crate::exchange::send::Request;
use crate::exchange::session::Session;
use crate::exchange::{child, childless, configuration, counter_sync, unique};
use crate::message::{Notify, NotifyType, ParseError, Payload, Payloads};
use crate::output::Reason;
use crate::sa::{Anchor, EarlierRound, HalfOpen, HalfProven, Phase};
use std::sync::Arc;

/// An initiator whose rounds have all succeeded, as have ours.
pub(super) struct Admitted<'a> {
    /// The possible connections, the best first.
    pub(super) connections: Vec<Arc<Connection>>,
    pub(super) half: &'a HalfOpen,
    /// The first request of IKE_AUTH.
    pub(super) asked: &'a Payloads,
    /// Our identity.
    pub(super) local: Identity,
    pub(super) remote: Identity,
    /// The peer's trust anchor.
    pub(super) anchor: Option<Anchor>,
    /// The payloads of the answer about us.
    pub(super) said: Vec<Payload>,
}

/// A protected IKE_AUTH request: the integrity check has passed.
pub(crate) fn handle_request(
    session: &mut Session<'_>,
    request: &Request,
    payloads: Result<Payloads, ParseError>,
) -> Result<(), Reason> {
    let is_later = matches!(session.sa.phase, Phase::HalfProven(_));
    match payloads {
        Ok(payloads) if is_later => later::judge_round(session, request, Arc::new(payloads)),
        Ok(payloads) => judge_initiator(session, request, Arc::new(payloads)),
        Err(error) => session.refuse_initiator(request, error.into()),
    }
}

fn judge_initiator(
    session: &mut Session<'_>,
    request: &Request,
    payloads: Arc<Payloads>,
) -> Result<(), Reason> {
    let Phase::HalfOpen(half) = &session.sa.phase else { return Ok(()) };
    let tries = match tries(session, request, half, &payloads) {
        Ok(tries) => tries,
        Err(refusal) => return session.refuse_initiator(request, refusal),
    };
    let (takes_long, request) = (tries.has_signatures(), *request);
    let then = move |session: &mut Session<'_>, judged| initiator_judged(session, &request, payloads, judged);
    session.compute_if(takes_long, false, || tries.judge(), then)
}

fn initiator_judged(
    session: &mut Session<'_>,
    request: &Request,
    payloads: Arc<Payloads>,
    judged: Result<Authenticated, AuthError>,
) -> Result<(), Reason> {
    let Phase::HalfOpen(half) = session.sa.phase.clone() else { return Ok(()) };
    match judged {
        // The connection was judged as it was; it must open nothing as it is now.
        Ok(authenticated) if !session.env.loaded.are_current(&authenticated.candidates.connections) => {
            judge_initiator(session, request, payloads)
        }
        Ok(authenticated) => accept_initiator(session, request, &half, &payloads, authenticated),
        Err(error) => session.refuse_initiator(request, error.into()),
    }
}

/// Finds the ways in which the initiator may be authenticated.
fn tries(
    session: &Session<'_>,
    request: &Request,
    half: &HalfOpen,
    payloads: &Arc<Payloads>,
) -> Result<Tries, Refusal> {
    let id = payloads.id_initiator().ok_or_else(|| Refusal::syntax("IDi is missing"))?;
    let keys = session.sa.keys.as_ref().ok_or_else(|| Refusal::syntax("the IKE SA has no keys"))?;
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
    let paths = Paths { init: session.sa.path, auth: request.path };
    let candidates = |announced| {
        let asked = asked.as_ref();
        choose::candidates(session, paths, keys.ike.suite(), &remote, asked, auth.method, announced)
    };
    let fitting = candidates(Some(announced));
    let begins_otherwise = fitting.is_empty() && !candidates(None).is_empty();
    for candidates in fitting {
        let Some(connection) = candidates.connections.first() else { continue };
        let ppk = match ppk::of_peer(session, connection, payloads, auth) {
            Ok(ppk) => ppk,
            Err(error) => {
                list.push(Err(error));
                continue;
            }
        };
        let claim = AuthClaim {
            keys: ppk.keys.as_ref().unwrap_or(&keys.ike),
            message: &half.init_request,
            nonce: &half.nonces.responder,
            int_auth: &int_auth,
            id,
            identity: &remote,
            auth: ppk.auth.as_ref().unwrap_or(auth),
            local: &candidates.local,
        };
        let check = verify::check(session, connection, 0, claim);
        // A wrong shared key does not become right with another connection; a CA that another one
        // trusts may.
        let is_last = !connection.remote.method.is_pubkey();
        list.extend(try_for(session, half, payloads, candidates, ppk, check, int_auth.clone()).map(Ok));
        if is_last {
            break;
        }
    }
    let nobody = if begins_otherwise {
        AuthError::Misfit { remote, announced }
    } else {
        AuthError::NoConnection { asked, remote }
    };
    Ok(Tries { list, nobody, judge: verify::judge(session, payloads), keys: keys.ike.clone() })
}

/// Adds our answer to an initiator of these connections.
fn try_for(
    session: &Session<'_>,
    half: &HalfOpen,
    payloads: &Payloads,
    candidates: Candidates,
    ppk: PeerPpk,
    check: Check,
    int_auth: Vec<u8>,
) -> Option<Try> {
    let Candidates { local, remote, connections } = candidates;
    let first = connections.first()?;
    let covered =
        Covered { message: half.init_response.clone(), peer_nonce: half.nonces.initiator.clone(), int_auth };
    let prover = Prover::new(session, first, &first.local, covered, local.clone(), Some(remote.clone()));
    let prover = Prover { asked: Asked::by(payloads), ..prover };
    // If there are more rounds, it is decided at the end who serves the peer.
    let is_last = !connections.iter().any(|connection| connection.has_rounds());
    let connections = if is_last { configuration::serving(connections, payloads) } else { connections };
    let candidates = Candidates { local, remote, connections };
    Some(Try { candidates, ppk, check: Some(check), prover: Some(prover) })
}

/// The initiator is authentic. Continues with the next round, if there is one.
fn accept_initiator(
    session: &mut Session<'_>,
    request: &Request,
    half: &HalfOpen,
    payloads: &Payloads,
    authenticated: Authenticated,
) -> Result<(), Reason> {
    let Authenticated { candidates, ppk, proven, proof } = authenticated;
    let anchor = proven.and_then(|proven| {
        session.note_proof(&candidates.remote, &proven);
        session.log(ORDINARY, proven.line);
        proven.anchor
    });
    // A tunnel without its intended PPK must stand out.
    let level = if ppk.keys.is_some() { ORDINARY } else { IMPORTANT };
    ppk.line.into_iter().for_each(|line| session.log(level, line));
    if let (Some(mixed), Some(keys)) = (ppk.keys, &mut session.sa.keys) {
        keys.ike = mixed;
        session.sa.ppk = true;
    }
    if let Some((id, secret)) = &ppk.used {
        session.sa.note_ppk(id, &secret.secret);
    }
    let Candidates { local, remote, mut connections } = candidates;
    let Some(best) = wanted_connection(&connections, session.sa, payloads).cloned() else {
        return Err(Reason::Refused("no connection".into()));
    };
    session.sa.connection = best.name.clone();
    let (local, mut said) = match say_who_we_are(session, local, proof) {
        Ok(shown) => shown,
        Err(refusal) => return session.refuse_initiator(request, refusal),
    };
    if session.sa.ppk {
        said.push(Payload::Notify(Notify::new(NotifyType::PpkIdentity, Vec::new())));
    }
    let (follows, more) = (rounds::follows(payloads), !best.rounds.local.is_empty());
    connections.retain(|connection| connection.rounds.local.is_empty() != more);
    if !follows && !more {
        let admitted = Admitted { connections, half, asked: payloads, local, remote, anchor, said };
        return admit_initiator(session, request, admitted);
    }
    if follows {
        let round = EarlierRound { number: 0, local: local.clone(), remote: remote.clone(), anchor };
        session.sa.keep_round(round);
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
    later::await_round(session, request, proven, said, more)
}

/// The payloads of the answer about us, and our identity; without a proof, the former one.
pub(super) fn say_who_we_are(
    session: &mut Session<'_>,
    before: Identity,
    proof: Option<Result<Proof, Reason>>,
) -> Result<(Identity, Vec<Payload>), Refusal> {
    let Some(proof) = proof else { return Ok((before, Vec::new())) };
    // Only we know that the error is our own.
    let Proof { local, id, certificates, auth, line } =
        proof.map_err(|reason| Refusal::authentication(reason.to_string()))?;
    session.log(ORDINARY, line);
    let mut said = vec![Payload::IdResponder(id)];
    said.extend(certificates);
    said.push(Payload::Auth(auth));
    Ok((local, said))
}

/// Both sides are authenticated: makes the child.
pub(super) fn admit_initiator(
    session: &mut Session<'_>,
    request: &Request,
    admitted: Admitted<'_>,
) -> Result<(), Reason> {
    let Admitted { connections, half, asked, local, remote, anchor, said: mut answer } = admitted;
    session.sa.move_to(request.path);
    session.sa.anchor = anchor.map(Box::new);
    let no_connection = || Reason::Refused("no connection".into());
    let connection = wanted_connection(&connections, session.sa, asked).ok_or_else(no_connection)?;
    session.sa.connection = connection.name.clone();
    (session.sa.local_id, session.sa.remote_id) = (Some(local), Some(remote));
    let begins_anew = asked.notify(NotifyType::InitialContact).is_some();
    if begins_anew && connection.unique != Unique::Never {
        session.supersede();
    }
    if session.env.is_surplus(session.sa, connection) {
        let refusal = Refusal::authentication("it has an IKE_SA already, and unique = keep");
        return session.refuse_initiator(request, refusal);
    }
    if let Some(found) = session.env.is_sated(session.sa, connection) {
        let why = format!("it has {found} IKE_SAs already");
        let refused = session.refuse_initiator(request, Refusal::authentication(why));
        unique::doubt_twins(session);
        return refused;
    }
    session.env.half_opens.leave(session.sa.id);
    session.sa.extensions.counter_sync = counter_sync::agreed(&session.env.config, asked);
    establish(session, connection);
    unique::enforce(session, connection);
    unique::tell_contact(session, connection, begins_anew);
    answer.extend(counter_sync::answer(session.sa.extensions.counter_sync));
    match configuration::answer(session, connection, asked) {
        Ok(reply) => {
            answer.extend(reply);
            match childless::FirstChild::by(connection, asked) {
                childless::FirstChild::Child => {
                    answer.extend(child::answer(session, connection, &half.nonces, asked));
                }
                childless::FirstChild::Nothing => childless::stays_alone(session),
                // An error that concerns the child alone (RFC 7296 §1.2): beside a last round
                // without AUTH another one would end the IKE SA.
                childless::FirstChild::Refused(why) => {
                    answer.push(child::refuse(session, NotifyType::NoProposalChosen, why));
                }
            }
        }
        Err(notify) => answer.push(child::refuse(session, notify, &notify.to_string())),
    }
    session.respond(request, answer)?;
    Ok(())
}

/// The identity that the initiator expects of us, if it says so.
pub(super) fn asked_identity(remote: &Identity, payloads: &Payloads) -> Result<Option<Identity>, Refusal> {
    let named = payloads.id_responder().map(|asked| {
        let kind = asked.kind();
        let unknown = || Refusal::authentication(format!("{remote} wants us to be a {kind}"));
        asked.identity().ok_or_else(unknown)
    });
    named.transpose()
}
