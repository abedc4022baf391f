//! The responder's side of IKE_AUTH after the first round (RFC 4739): until the last round succeeds
//! the IKE SA is half-open, and no request of the initiator has any effect.

use crate::config::{Connection, Identity};
use crate::environment::report::ORDINARY;
use crate::exchange::auth::choose::Candidates;
use crate::exchange::auth::error::AuthError;
use crate::exchange::auth::ppk::PeerPpk;
use crate::exchange::auth::prove::{Asked, Covered, Prover};
use crate::exchange::auth::responder::{Admitted, asked_identity};
use crate::exchange::auth::tries::{Authenticated, Tries, Try};
use crate::exchange::auth::verify::AuthClaim;
use crate::exchange::auth::{local_identity, responder, rounds, verify};
use crate::exchange::child::wanted_connection;
use crate::exchange::configuration;
use crate::exchange::refusal::Refusal;
use crate::exchange::send::Request;
use crate::exchange::session::Session;
use crate::message::{AuthMethodId, AuthPayload, IdPayload, Payload, Payloads};
use crate::output::Reason;
use crate::sa::{EarlierRound, HalfProven, Phase};
use std::cmp::Reverse;
use std::sync::Arc;

/// The initiator's claim in a round.
struct Begun<'a> {
    id: &'a IdPayload,
    identity: Identity,
    auth: &'a AuthPayload,
    /// True if another round follows.
    follows: bool,
}

impl<'a> Begun<'a> {
    /// `None`: it has nothing more to prove, and waits for us. Any other contents of the message
    /// are ignored.
    fn read(proven: &HalfProven, payloads: &'a Payloads) -> Result<Option<Self>, Refusal> {
        let follows = rounds::follows(payloads);
        match (proven.follows, payloads.id_initiator(), payloads.auth()) {
            (false, None, None) if !follows => Ok(None),
            (false, ..) => Err(Refusal::authentication(format!(
                "{} begins an authentication that it has not announced",
                proven.remote
            ))),
            (true, None, _) => Err(Refusal::syntax("IDi is missing")),
            (true, Some(id), auth) => {
                let identity = id.identity().ok_or_else(|| {
                    Refusal::authentication(format!("an identity of type {} is not supported", id.kind()))
                })?;
                let auth = auth.ok_or_else(|| {
                    Refusal::authentication(format!("{identity} wants EAP, which is not configured"))
                })?;
                Ok(Some(Self { id, identity, auth, follows }))
            }
        }
    }
}

/// Sends our proof of this round, and waits for the next; `more`: we have more to prove.
pub(super) fn await_round(
    session: &mut Session<'_>,
    request: &Request,
    proven: HalfProven,
    mut said: Vec<Payload>,
    more: bool,
) -> Result<(), Reason> {
    said.extend(rounds::another(more));
    if proven.follows {
        let line = format!("'{}' has another authentication to come", proven.remote);
        session.log(ORDINARY, line);
    }
    session.sa.phase = Phase::HalfProven(Box::new(proven));
    session.respond(request, said)
}

/// A request of IKE_AUTH after the first.
pub(super) fn judge_round(
    session: &mut Session<'_>,
    request: &Request,
    payloads: Arc<Payloads>,
) -> Result<(), Reason> {
    let Phase::HalfProven(proven) = &session.sa.phase else { return Ok(()) };
    let tries = match tries_of_round(session, request, proven, &payloads) {
        Ok(tries) => tries,
        Err(refusal) => return session.refuse_initiator(request, refusal),
    };
    let (takes_long, request) = (tries.has_signatures(), *request);
    let then = move |session: &mut Session<'_>, judged| round_judged(session, &request, payloads, judged);
    session.compute_if(takes_long, false, || tries.judge(), then)
}

fn round_judged(
    session: &mut Session<'_>,
    request: &Request,
    payloads: Arc<Payloads>,
    judged: Result<Authenticated, AuthError>,
) -> Result<(), Reason> {
    let Phase::HalfProven(proven) = session.sa.phase.clone() else { return Ok(()) };
    match judged {
        // The connection was judged as it was; it must open nothing as it is now.
        Ok(authenticated) if !session.env.loaded.are_current(&authenticated.candidates.connections) => {
            judge_round(session, request, payloads)
        }
        Ok(authenticated) => {
            let follows = rounds::follows(&payloads);
            accept_round(session, request, HalfProven { follows, ..*proven }, authenticated)
        }
        Err(error) => session.refuse_initiator(request, error.into()),
    }
}

/// The connections that are still possible, if they are unchanged since their rounds so far were
/// judged.
fn standing(session: &Session<'_>, request: &Request, proven: &HalfProven) -> Vec<Arc<Connection>> {
    let is_standing = |connection: &Arc<Connection>| {
        let theirs = connection.remote_rounds().zip(&proven.theirs);
        let ours = connection.local_rounds().zip(&proven.ours);
        // As many rounds are left as were announced.
        connection.remote_round(proven.theirs.len()).is_some() == proven.follows
            && connection.remote_rounds().count() >= proven.theirs.len()
            && connection.local_rounds().count() >= proven.ours.len()
            && connection.ppk == proven.ppk
            && connection.address_fit(request.path.local.ip(), request.path.remote.ip()).is_some()
            && theirs.into_iter().all(|(remote, (demanded, identity))| {
                remote.proves_alike(demanded) && remote.fit(identity).is_some()
            })
            && ours.into_iter().all(|(local, (was, identity))| {
                local.proves_alike(was) && local_identity(local, session.sa.path).matches(identity)
            })
    };
    proven
        .connections
        .iter()
        .filter_map(|name| session.env.loaded.connections.get(name))
        .filter(is_standing)
        .collect()
}

/// Finds the ways in which this round may succeed.
fn tries_of_round(
    session: &Session<'_>,
    request: &Request,
    proven: &HalfProven,
    payloads: &Arc<Payloads>,
) -> Result<Tries, Refusal> {
    let begun = Begun::read(proven, payloads)?;
    let identity = begun.as_ref().map_or(&proven.remote, |begun| &begun.identity);
    let asked = asked_identity(identity, payloads)?;
    let keys = session.sa.keys.as_ref().ok_or_else(|| Refusal::syntax("the IKE SA has no keys"))?;
    let mut connections = standing(session, request, proven);
    if connections.is_empty() {
        return Err(Refusal::authentication(format!("the connection of {identity} has changed meanwhile")));
    }
    let (theirs, ours) = (proven.theirs.len(), proven.ours.len());
    connections.retain(|connection| {
        let fits = |begun: &Begun<'_>| {
            connection.remote_round(theirs).is_some_and(|remote| remote.fit(&begun.identity).is_some())
                && connection.remote_round(theirs.saturating_add(1)).is_some() == begun.follows
        };
        let is_ours = |asked: &Identity| {
            let local = connection.local_round(ours);
            local.is_none_or(|local| asked.matches(&local_identity(local, session.sa.path)))
        };
        begun.as_ref().is_none_or(fits) && asked.as_ref().is_none_or(is_ours)
    });
    let mut list = Vec::new();
    for candidates in groups(session, proven, begun.as_ref(), connections) {
        let Some(connection) = candidates.connections.first() else { continue };
        let check = begun.as_ref().map(|Begun { id, identity, auth, .. }| {
            let claim = AuthClaim {
                keys: &keys.ike,
                message: &proven.half.init_request,
                nonce: &proven.half.nonces.responder,
                int_auth: &proven.int_auth,
                id,
                identity,
                auth,
                local: &candidates.local,
            };
            verify::check(session, connection, theirs, claim)
        });
        let prover = prover_of_round(session, connection, proven, &candidates);
        list.push(Ok(Try { ppk: PeerPpk::default(), check, prover, candidates }));
    }
    let follows = begun.as_ref().is_some_and(|begun| begun.follows);
    let nobody = AuthError::NoRound { identity: identity.clone(), follows };
    Ok(Tries { list, nobody, judge: verify::judge(session, payloads), keys: keys.ike.clone() })
}

/// Groups connections whose next rounds are equal on both sides; those that best match the
/// initiator's identity come first.
fn groups(
    session: &Session<'_>,
    proven: &HalfProven,
    begun: Option<&Begun<'_>>,
    mut connections: Vec<Arc<Connection>>,
) -> Vec<Candidates> {
    let (theirs, ours) = (proven.theirs.len(), proven.ours.len());
    let rank = |connection: &Connection| {
        let remote = connection.remote_round(theirs)?;
        let Begun { identity, auth, .. } = begun?;
        let by_key = auth.method == AuthMethodId::SharedKeyMic;
        Some((remote.method.is_pubkey() != by_key, remote.fit(identity)))
    };
    connections.sort_by_key(|connection| Reverse(rank(connection)));
    let alike = |one: &Connection, other: &Connection| {
        let remote = match (one.remote_round(theirs), other.remote_round(theirs)) {
            (Some(one), Some(other)) => one.proves_alike(other),
            _ => true,
        };
        let local = match (one.local_round(ours), other.local_round(ours)) {
            (Some(one), Some(other)) => {
                one.proves_alike(other)
                    && local_identity(one, session.sa.path) == local_identity(other, session.sa.path)
            }
            (one, other) => one.is_none() && other.is_none(),
        };
        remote && local && rank(one) == rank(other) && one.send_cert == other.send_cert
    };
    let mut found: Vec<Candidates> = Vec::new();
    for connection in connections {
        let same = |group: &&mut Candidates| {
            group.connections.first().is_some_and(|first| alike(first, &connection))
        };
        if let Some(group) = found.iter_mut().find(same) {
            group.connections.push(connection);
            continue;
        }
        let next = connection.local_round(ours).map(|local| local_identity(local, session.sa.path));
        let local = next.unwrap_or_else(|| proven.local.clone());
        let remote = begun.map_or(&proven.remote, |begun| &begun.identity).clone();
        found.push(Candidates { local, remote, connections: vec![connection] });
    }
    found
}

/// The prover of our round, if we have one.
fn prover_of_round(
    session: &Session<'_>,
    connection: &Connection,
    proven: &HalfProven,
    candidates: &Candidates,
) -> Option<Prover> {
    let Candidates { local, remote, .. } = candidates;
    let own = connection.local_round(proven.ours.len())?;
    let covered = Covered {
        message: proven.half.init_response.clone(),
        peer_nonce: proven.half.nonces.initiator.clone(),
        int_auth: proven.int_auth.clone(),
    };
    let prover = Prover::new(session, connection, own, covered, local.clone(), Some(remote.clone()));
    Some(Prover { asked: Asked::by(&proven.request), ..prover })
}

/// The round has succeeded. `proven` already says whether the initiator has another one.
fn accept_round(
    session: &mut Session<'_>,
    request: &Request,
    mut proven: HalfProven,
    authenticated: Authenticated,
) -> Result<(), Reason> {
    let Authenticated { candidates, ppk: _, proven: round, proof } = authenticated;
    let Candidates { local, remote, mut connections } = candidates;
    let Some(best) = wanted_connection(&connections, session.sa, &proven.request).cloned() else {
        return Err(Reason::Refused("no connection".into()));
    };
    session.sa.connection = best.name.clone();
    if let (Some(round), Some(demanded)) = (round, best.remote_round(proven.theirs.len())) {
        session.note_proof(&remote, &round);
        session.log(ORDINARY, round.line);
        if proven.follows {
            let (number, local, remote) = (proven.theirs.len(), local.clone(), remote.clone());
            session.sa.keep_round(EarlierRound { number, local, remote, anchor: round.anchor });
        }
        proven.theirs.push((demanded.clone(), remote.clone()));
        (proven.remote, proven.anchor) = (remote, round.anchor);
    }
    let (local, said) = match responder::say_who_we_are(session, local, proof) {
        Ok(shown) => shown,
        Err(refusal) => return session.refuse_initiator(request, refusal),
    };
    if let Some(own) = best.local_round(proven.ours.len()) {
        proven.ours.push((own.clone(), local.clone()));
    }
    proven.local = local;
    let has_more = |connection: &Connection| connection.local_round(proven.ours.len()).is_some();
    let more = has_more(&best);
    connections.retain(|connection| has_more(connection) == more);
    proven.connections = connections.iter().map(|connection| connection.name.clone()).collect();
    if proven.follows || more {
        return await_round(session, request, proven, said, more);
    }
    let HalfProven { half, request: asked, local, remote, anchor, .. } = proven;
    let connections = configuration::serving(connections, &asked);
    let admitted = Admitted { connections, half: &half, asked: &asked, local, remote, anchor, said };
    responder::admit_initiator(session, request, admitted)
}
