//! The initiator's side of IKE_AUTH.

use crate::config::{Child, Connection, Identity, RemoteAuth, SharedSecret, Unique};
use crate::environment::report::{FAILURE, IMPORTANT, ORDINARY};
use crate::exchange::auth::error::{AuthError, PpkError};
use crate::exchange::auth::prove::{Asked, Covered, Proof, Prover};
use crate::exchange::auth::verify::{AuthClaim, Check, Evidence, Proven};
use crate::exchange::auth::{establish, local_identity, ppk, prove, rounds, verify};
use crate::exchange::child::Answer;
use crate::exchange::narrow::Selectors;
use crate::exchange::session::Session;
use crate::exchange::{child, childless, configuration, counter_sync, create_child, describe, mode, reauth};
use crate::message::{
    AuthPayload, ExchangeType, Notify, NotifyType, ParseError, Payload, Payloads, TsPayload,
};
use crate::output::Reason;
use crate::sa::{
    AskedChild, AuthRounds, AuthSent, Closing, CounterSync, Extensions, OfferedPpk, Opening, Phase,
    RequestKind, Task,
};
use crate::suite::{IkeKeys, offer};
use std::sync::Arc;

/// An initiator's AUTH before there are keys: it is made where they are computed.
pub(crate) struct AuthDraft {
    prover: Prover,
    /// The PPK to use, and whether the responder may go without.
    ppk: Option<(Identity, SharedSecret, bool)>,
}

/// The result of a response: whether the responder is authentic, and our next proof, if there is
/// one to make.
type JudgedResponse = (Option<Proven>, Option<Result<Proof, Reason>>);

/// The claimed identity of the responder.
struct Responder {
    identity: Identity,
    uses_ppk: bool,
}

/// An initiator's AUTH.
pub(crate) struct Made {
    proof: Proof,
    ppk: Option<OfferedPpk>,
    without_ppk: Option<AuthPayload>,
    int_auth: Vec<u8>,
}

impl AuthDraft {
    /// Makes AUTH with the keys that the exchanges before it have brought.
    pub(crate) fn make(self, keys: &IkeKeys) -> Result<Made, Reason> {
        let Self { prover, ppk } = self;
        let ppk = match ppk {
            Some((id, secret, optional)) => {
                Some(OfferedPpk { id, keys: keys.with_ppk(&secret.secret)?, optional })
            }
            None => None,
        };
        let without_ppk = match &ppk {
            Some(ppk) if ppk.optional => Some(prover.prove(keys)?.auth),
            _ => None,
        };
        let proof = prover.prove(ppk.as_ref().map_or(keys, |ppk| &ppk.keys))?;
        Ok(Made { proof, ppk, without_ppk, int_auth: prover.int_auth })
    }
}

/// Everything that AUTH depends on, except the keys. `extensions`: those that both sides support.
pub(crate) fn draft(
    session: &Session<'_>,
    connection: &Arc<Connection>,
    extensions: Extensions,
    opening: &Opening,
) -> Result<AuthDraft, Reason> {
    let own = &connection.local;
    let secret = session
        .env
        .loaded
        .key_to(own, &connection.remote, session.sa.path)
        .filter(|_| !own.method.is_pubkey());
    let covered = Covered {
        message: opening.init_request.clone(),
        peer_nonce: opening.nonces.responder.clone(),
        int_auth: opening.int_auth.octets(session.sa.outgoing.next),
    };
    let (local, remote) = (local_identity(own, session.sa.path), connection.remote.id.clone());
    // The session takes over the extensions with the keys.
    let prover = Prover {
        hashes: extensions.hashes,
        secret: secret.cloned(),
        asked: Asked::in_init(&extensions),
        ..Prover::new(session, connection, own, covered, local, remote)
    };
    Ok(AuthDraft { prover, ppk: ppk::own(session, connection, extensions)? })
}

/// Sends IKE_AUTH.
pub(crate) fn send(
    session: &mut Session<'_>,
    connection: &Connection,
    opening: Opening,
    made: Made,
) -> Result<(), Reason> {
    let Opening { attempt, nonces, init_request, init_response, .. } = opening;
    let Made { proof, ppk, without_ppk, int_auth } = made;
    let child = match attempt.is_alone() {
        true => None,
        false => Some(
            connection
                .child(&attempt.child)
                .ok_or_else(|| Reason::Refused("the child was unloaded meanwhile".to_owned()))?,
        ),
    };
    // A child with an exchange of its own follows once the IKE SA is established.
    let child = child.filter(|_| !childless::is_initiated(connection, &init_response));
    let Proof { local, id, certificates, auth, line } = proof;
    session.log(ORDINARY, line);
    ppk::lack(session, connection).into_iter().for_each(|line| session.log(IMPORTANT, line));
    let asked = child.map(|child| ask_for_child(session, connection, child)).transpose()?;
    let mut payloads = vec![Payload::IdInitiator(id)];
    payloads.extend(certificates);
    payloads.extend(prove::certificates_of(session, connection));
    if connection.unique != Unique::Never && session.sa.reauth.is_none() && is_initial_contact(session) {
        payloads.push(Payload::Notify(Notify::new(NotifyType::InitialContact, Vec::new())));
    }
    // A pattern is no name: then the responder chooses.
    let named = connection.remote.name();
    payloads.extend(named.map(|id| Payload::IdResponder(id.into())));
    payloads.push(Payload::Auth(auth));
    payloads.extend(configuration::request(connection, &session.env.held_addresses(session.sa)));
    let asked = asked.map(|(asked, of_child)| {
        payloads.extend(of_child);
        asked
    });
    payloads.extend(counter_sync::offer(&session.env.config));
    if let Some(ppk) = &ppk {
        payloads.extend(super::ppk::notifies(ppk, without_ppk));
    }
    payloads.extend(rounds::known(connection));
    payloads.extend(rounds::another(!connection.rounds.local.is_empty()));
    session.sa.local_id = Some(local);
    let sent = AuthSent { attempt, nonces, init_response, int_auth, ppk, asked };
    session.sa.phase = if connection.has_rounds() {
        Phase::AuthRounds(Box::new(AuthRounds { sent, init_request, ours: 1, theirs: 0 }))
    } else {
        Phase::AuthSent(Box::new(sent))
    };
    session.request(ExchangeType::IkeAuth, RequestKind::Auth, payloads)?;
    Ok(())
}

/// The payloads of an IKE_AUTH request about its child.
fn ask_for_child(
    session: &mut Session<'_>,
    connection: &Connection,
    child: &Child,
) -> Result<(AskedChild, Vec<Payload>), Reason> {
    let none_left = || Reason::Refused("no free ESP SPI is left".to_owned());
    let spi_in =
        session.env.alloc.esp_spi(session.now, session.sa.our_spi().shard()).ok_or_else(none_left)?;
    let dynamic = configuration::dynamic_before_reply(session.sa, connection);
    let offered = connection.offered(child, session.sa.path.remote.ip());
    let wanted = Selectors::configured(&offered, &dynamic, &session.sa.dynamic_remote());
    let asked_mode = mode::to_ask(session.sa, &offered, &wanted, None);
    let mut payloads = vec![
        Payload::Sa(offer::esp(&offered.proposals, spi_in, offer::ChildExchange::IkeAuth)),
        Payload::TsInitiator(TsPayload::new(wanted.local)),
        Payload::TsResponder(TsPayload::new(wanted.remote)),
    ];
    payloads.extend(mode::notify(asked_mode));
    payloads.extend(create_child::invite(session, child));
    Ok((AskedChild { offered, spi_in }, payloads))
}

/// True if we have no other IKE SA with the peer's address: only then may we send INITIAL_CONTACT
/// (RFC 7296 §2.4). In a cluster we never know: another node may have one under the same identity,
/// and the peer would end it.
fn is_initial_contact(session: &Session<'_>) -> bool {
    !session.env.config.track_changes
        && !session
            .env
            .table
            .by_addr(session.sa.path.remote.ip())
            .any(|other| other.is_established() || other.phase.auth_sent().is_some())
}

/// The protected response to our IKE_AUTH.
pub(crate) fn handle_response(
    session: &mut Session<'_>,
    payloads: Result<Payloads, ParseError>,
) -> Result<(), Reason> {
    if session.sa.phase.auth_sent().is_none() {
        return Ok(());
    }
    let payloads = match payloads {
        Ok(payloads) => Arc::new(payloads),
        Err(error) => return reject(session, &AuthError::Malformed(error)),
    };
    let Some(connection) = session.env.loaded.connections.get(&session.sa.connection) else {
        return reject(session, &AuthError::Unloaded);
    };
    if let Some(error) = rounds::refusal(session.sa, &connection, &payloads) {
        return Err(Reason::Notify(describe::hint(error.kind, connection.local.method)));
    }
    judge_responder(session, connection, payloads)
}

fn judge_responder(
    session: &mut Session<'_>,
    connection: Arc<Connection>,
    payloads: Arc<Payloads>,
) -> Result<(), Reason> {
    let Some(sent) = session.sa.phase.auth_sent() else { return Ok(()) };
    let claimed = match rounds::is_awaited(session.sa, &connection) {
        true => claim_of_responder(session, &connection, sent, &payloads).map(Some),
        false => rounds::nothing_begins(&payloads).map(|()| None),
    };
    let (check, responder) = match claimed {
        Ok(claimed) => claimed.unzip(),
        Err(error) => return reject(session, &error),
    };
    let Some(keys) = &session.sa.keys else { return reject(session, &AuthError::NoKeys) };
    let ppk = sent.ppk.as_ref().filter(|_| responder.as_ref().is_some_and(|found| found.uses_ppk));
    let keys = ppk.map_or(&keys.ike, |ppk| &ppk.keys).clone();
    let prover = next_prover(session, &connection, responder.as_ref().map(|found| &found.identity));
    let takes_long =
        check.as_ref().is_some_and(Check::is_signature) || prover.as_ref().is_some_and(Prover::signs);
    let judge = verify::judge(session, &payloads);
    let work = move || {
        let proven = check.map(|check| check.decide(&judge, &Evidence::default())).transpose()?;
        Ok((proven, prover.map(|prover| prover.prove(&keys))))
    };
    let then = move |session: &mut Session<'_>, judged| {
        responder_judged(session, payloads, connection, responder, judged)
    };
    session.compute_if(takes_long, true, work, then)
}

/// The responder is judged, and our next proof is made, if there is one.
fn responder_judged(
    session: &mut Session<'_>,
    payloads: Arc<Payloads>,
    judged_by: Arc<Connection>,
    responder: Option<Responder>,
    judged: Result<JudgedResponse, AuthError>,
) -> Result<(), Reason> {
    let Some(sent) = session.sa.phase.auth_sent().cloned() else { return Ok(()) };
    let Some(connection) = session.env.loaded.connections.get(&session.sa.connection) else {
        return reject(session, &AuthError::Unloaded);
    };
    // The connection was judged as it was; it may trust others now.
    if connection != judged_by {
        return judge_responder(session, connection, payloads);
    }
    let (proven, proof) = match judged {
        Ok(judged) => judged,
        Err(error) => return reject(session, &error),
    };
    session.sa.outgoing.pending = None;
    let is_proven = proven.is_some();
    if let (Some(proven), Some(responder)) = (proven, responder) {
        responder_proven(session, &sent, proven, responder);
    }
    let counters = counter_sync::agreed(&session.env.config, &payloads);
    if counters != CounterSync::default() {
        session.sa.extensions.counter_sync = counters;
    }
    if let Phase::AuthRounds(rounds) = &session.sa.phase {
        let mut rounds = AuthRounds::clone(rounds);
        let number = rounds.theirs;
        rounds.theirs = number.saturating_add(usize::from(is_proven));
        if is_proven && connection.remote_round(rounds.theirs).is_some() {
            rounds::keep_responders(session.sa, number);
        }
        if !rounds.are_over(&connection) {
            return send_round(session, &connection, rounds, proof);
        }
    }
    establish(session, &connection);
    match &sent.asked {
        Some(asked) => first_child(session, &connection, &sent, asked, &payloads),
        None => childless::no_child_yet(session, &connection, &sent, &payloads),
    }
}

/// The responder is authentic in this round.
fn responder_proven(session: &mut Session<'_>, sent: &AuthSent, proven: Proven, responder: Responder) {
    session.note_proof(&responder.identity, &proven);
    let Proven { mut line, anchor, secret: _ } = proven;
    let is_first = session.sa.remote_id.is_none();
    session.sa.remote_id = Some(responder.identity);
    session.sa.anchor = anchor.map(Box::new);
    let used = sent.ppk.as_ref().filter(|_| responder.uses_ppk);
    used.into_iter().for_each(|ppk| super::ppk::note_own(session, ppk));
    if let (Some(ppk), Some(keys)) = (used, &mut session.sa.keys) {
        keys.ike = ppk.keys.clone();
        session.sa.ppk = true;
        line = format!("{line}, {}", super::ppk::used(&ppk.id));
    }
    session.log(ORDINARY, line);
    if let Some(ppk) = sent.ppk.as_ref().filter(|_| is_first && !session.sa.ppk) {
        session.log(IMPORTANT, format!("going on without PPK '{}': the peer does not use it", ppk.id));
    }
}

/// The prover of our next round, if there is one.
fn next_prover(
    session: &Session<'_>,
    connection: &Connection,
    responder: Option<&Identity>,
) -> Option<Prover> {
    let Phase::AuthRounds(rounds) = &session.sa.phase else { return None };
    let AuthRounds { sent, init_request, ours, .. } = &**rounds;
    let own = connection.local_round(*ours)?;
    let local = local_identity(own, session.sa.path);
    // The peer of this round, if it is named, shares a key with us.
    let named = connection.remote_round(*ours).and_then(RemoteAuth::name);
    let remote = named.or(responder).or(session.sa.remote_id.as_ref()).cloned();
    let covered = Covered {
        message: init_request.clone(),
        peer_nonce: sent.nonces.responder.clone(),
        int_auth: sent.int_auth.clone(),
    };
    Some(Prover::new(session, connection, own, covered, local, remote))
}

/// Continues IKE_AUTH: with our next round or, if there is none, with an empty request for the
/// peer's.
fn send_round(
    session: &mut Session<'_>,
    connection: &Connection,
    mut rounds: AuthRounds,
    proof: Option<Result<Proof, Reason>>,
) -> Result<(), Reason> {
    let mut payloads = Vec::new();
    if let Some(Proof { local, id, certificates, auth, line }) = proof.transpose()? {
        session.log(ORDINARY, line);
        session.sa.local_id = Some(local);
        rounds.ours = rounds.ours.saturating_add(1);
        payloads.push(Payload::IdInitiator(id));
        payloads.extend(certificates);
        let asked = connection.remote_round(rounds.theirs).and_then(RemoteAuth::name);
        payloads.extend(asked.map(|id| Payload::IdResponder(id.into())));
        payloads.push(Payload::Auth(auth));
        payloads.extend(rounds::another(connection.local_round(rounds.ours).is_some()));
    }
    session.sa.phase = Phase::AuthRounds(Box::new(rounds));
    session.request(ExchangeType::IkeAuth, RequestKind::Auth, payloads)
}

/// The claim of the responder.
fn claim_of_responder(
    session: &Session<'_>,
    connection: &Arc<Connection>,
    sent: &AuthSent,
    payloads: &Payloads,
) -> Result<(Check, Responder), AuthError> {
    let (Some(id), Some(auth)) = (payloads.id_responder(), payloads.auth()) else {
        return Err(AuthError::NoProof);
    };
    let identity = id.identity().ok_or_else(|| AuthError::IdentityType(id.kind()))?;
    let round = rounds::proven_by_responder(session.sa);
    let expected = connection.remote_round(round).and_then(|remote| remote.id.as_ref());
    if let Some(expected) = expected.filter(|expected| !expected.covers(&identity)) {
        return Err(AuthError::OtherPeer { found: identity, expected: expected.clone() });
    }
    rounds::as_announced(connection, round, &identity, payloads)?;
    let local = session.sa.local_id.clone().ok_or(AuthError::NoLocalIdentity)?;
    let keys = session.sa.keys.as_ref().ok_or(AuthError::NoKeys)?;
    // The first round decides it for all.
    let offered = sent.ppk.as_ref().filter(|_| round == 0);
    let ppk = offered.filter(|_| payloads.notify(NotifyType::PpkIdentity).is_some());
    if ppk.is_none() && offered.is_some_and(|ppk| !ppk.optional) {
        return Err(PpkError::Unused(identity).into());
    }
    let claim = AuthClaim {
        keys: ppk.map_or(&keys.ike, |ppk| &ppk.keys),
        message: &sent.init_response,
        nonce: &sent.nonces.initiator,
        int_auth: &sent.int_auth,
        id,
        identity: &identity,
        auth,
        local: &local,
    };
    let check = verify::check(session, connection, round, claim);
    Ok((check, Responder { uses_ppk: ppk.is_some(), identity }))
}

/// The peer is not the expected one: sends it the error (RFC 7296 §2.21.2), and ends the SA with
/// the answer.
fn reject(session: &mut Session<'_>, error: &AuthError) -> Result<(), Reason> {
    let reason = Reason::Refused(error.to_string());
    session.sa.outgoing.pending = None;
    session.attempt_failed(&reason);
    session.sa.phase = Phase::Rejecting;
    session.sa.closing =
        Some(Box::new(Closing { reason, deadline: session.now.plus(session.env.config.delete_timeout) }));
    let notify = Payload::Notify(Notify::new(NotifyType::AuthenticationFailed, Vec::new()));
    session.request(ExchangeType::Informational, RequestKind::AuthFailed, vec![notify])?;
    Ok(())
}

/// The Child SA of IKE_AUTH, or why there is none. Without it the IKE SA stays for a while (RFC
/// 7296 §1.2).
fn first_child(
    session: &mut Session<'_>,
    connection: &Arc<Connection>,
    sent: &AuthSent,
    asked: &AskedChild,
    payloads: &Payloads,
) -> Result<(), Reason> {
    let name = &sent.attempt.child;
    let answer = Answer { nonces: &sent.nonces, spi_in: asked.spi_in, payloads };
    let result = match payloads.error().filter(|_| payloads.sa().is_none()) {
        Some(error) => Err(Reason::Notify(describe::hint(error.kind, connection.local.method))),
        None => configuration::accept(session, connection, payloads)
            .and_then(|()| child::accept(session, connection, &asked.offered, &answer))
            .map_err(|error| {
                session.sa.outgoing.queue(Task::DeleteSpi(asked.spi_in));
                Reason::from(error)
            }),
    };
    if let (Ok(id), true) = (&result, sent.attempt.outdated) {
        create_child::note_outdated(session, *id);
    }
    let failed = result.is_err();
    match result {
        Ok(id) => session.env.initiate_done(session.now, &connection.name, session.sa.id, name, Ok(id)),
        Err(reason) => {
            session.log(FAILURE, format!("no CHILD_SA {name}: {reason}; the IKE_SA stays for now"));
            session.env.alloc.release_esp_spi(session.now, asked.spi_in);
            session.env.initiation_failed(session.now, &connection.name, session.sa.id, name, reason);
        }
    }
    // An address comes in IKE_AUTH or never: without it the IKE SA is useless.
    if failed && !connection.vips.is_empty() && session.sa.virtual_ips.local.is_empty() {
        let deadline = session.now.plus(session.env.config.delete_timeout);
        return session.delete_ike(Reason::Refused("it has no virtual address".into()), deadline);
    }
    if failed && session.sa.reauth.is_some() {
        // The old one has its Child SAs, and stays.
        let deadline = session.now.plus(session.env.config.delete_timeout);
        let reason = Reason::Refused("it should replace another, and has no CHILD_SA".into());
        return session.delete_ike(reason, deadline);
    }
    reauth::ask_other_children(session);
    session.next_task()
}
