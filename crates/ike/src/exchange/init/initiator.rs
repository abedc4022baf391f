//! The initiator's side of IKE_SA_INIT.

use crate::alloc::Home;
use crate::config::{Connection, KeyExchange};
use crate::endpoint::{Discard, NatStatus};
use crate::environment::exchanges::Counted;
use crate::environment::report::{DETAIL, ORDINARY};
use crate::exchange::auth::Made;
use crate::exchange::init::{extensions, nonce_fits};
use crate::exchange::intermediate;
use crate::exchange::session::Session;
use crate::exchange::{childless, describe, nat};
use crate::message::{
    EncodeError, ExchangeType, IkeSpi, Message, MessageBuilder, MessageId, Notify, NotifyType, Payload,
};
use crate::output::{Path, Reason};
use crate::sa::{
    Attempt, Extensions, IkeSa, Incoming, InitSent, Keys, Opening, Outgoing, Phase, RequestKind,
    UnauthenticatedError,
};
use crate::suite::{IkeKeys, IkeSpis, IntAuth, KePrivate, Nonces, Role, SuiteError, accept, offer};
use std::net::SocketAddr;
use std::sync::Arc;

/// Bound on the cookies of an attempt; more mean that it is being led in circles.
const MAX_COOKIES: u8 = 4;
/// A cookie has 1 to 64 octets (RFC 7296 §2.6).
const MAX_COOKIE: usize = 64;

/// A response with its context.
#[derive(Clone, Copy)]
pub(crate) struct Reply<'a> {
    pub(crate) path: Path,
    pub(crate) message: &'a Message<'a>,
    pub(crate) bytes: &'a [u8],
}

/// The result of a response.
enum Verdict {
    /// The exchange continues in one of several ways.
    Handled,
    /// The response is treated as if it had not arrived.
    Ignored(String),
}

/// The responder's choice and announcements, while the keys are computed.
struct AgreedInit {
    remote: SocketAddr,
    /// For the log.
    chosen: String,
    spis: IkeSpis,
    nat: NatStatus,
    extensions: Extensions,
    opening: Opening,
}

/// Begins an attempt, the first or another, with everything new: SPI, nonce, key.
pub(crate) fn begin_attempt(
    session: &mut Session<'_>,
    connection: &Connection,
    attempt: Attempt,
    path: Path,
    home: Home<'_>,
) -> Result<(), Reason> {
    let none_left = || Reason::Refused("no free SPI is left".into());
    let spi = session.env.new_ike_spi(home).ok_or_else(none_left)?;
    let method = first_method(connection).ok_or_else(|| Reason::Refused("no key exchange method".into()))?;
    let ke = KePrivate::generate(method, session.env.entropy())?;
    let nonce = session.env.new_nonce().ok_or_else(none_left)?;
    session.env.forget_jobs(session.sa.id);
    session.sa.spis = IkeSpis { initiator: spi, responder: IkeSpi::ZERO };
    session.sa.path = path;
    session.sa.nat = Default::default();
    session.sa.extensions = Default::default();
    (session.sa.remote_id, session.sa.anchor, session.sa.ppk) = (None, None, false);
    session.sa.earlier_rounds = None;
    session.sa.proofs = None;
    session.sa.keys = None;
    session.sa.outdated = None;
    session.sa.outgoing = Outgoing::default();
    session.sa.incoming = Incoming::default();
    let tried = vec![method];
    let init = InitSent { attempt, ke, nonce, cookie: None, tried, cookies: 0, error: None };
    send(session, connection, init)
}

/// Sends the request for `init`, as the first of the SA.
fn send(session: &mut Session<'_>, connection: &Connection, init: InitSent) -> Result<(), Reason> {
    let bytes = request(session.sa, connection, &init, session.env.loaded.has_ppk_for(connection))?;
    session.sa.phase = Phase::InitSent(Box::new(init));
    session.sa.outgoing.next = MessageId(0);
    session.commit();
    session.request_made(ExchangeType::IkeSaInit, RequestKind::Init, vec![bytes]);
    Ok(())
}

/// A response to our IKE_SA_INIT. It is not authenticated, so an invalid one is ignored: the true
/// one may still come (RFC 7296 §2.21.1).
pub(crate) fn handle_response(session: &mut Session<'_>, reply: Reply<'_>) -> Result<(), Reason> {
    let path = reply.path;
    let Phase::InitSent(init) = &session.sa.phase else { return Ok(()) };
    if path.remote != session.sa.path.remote {
        session.env.effects.discard(session.now, Discard::UnexpectedResponse, || {
            format!("ignored an IKE_SA_INIT response from {}, which was not asked", path.remote)
        });
        return Ok(());
    }
    let init = InitSent::clone(init);
    session.env.effects.count_message(session.sa, ExchangeType::IkeSaInit, Counted::InResponse);
    let connection = session.env.loaded.connections.get(&session.sa.connection).ok_or_else(unloaded)?;
    let judged = if reply.message.payloads.sa().is_some() {
        agreed(session, &connection, &init, reply)?
    } else {
        refused(session, &connection, init, reply)?
    };
    if let Verdict::Ignored(why) = judged {
        ignore(session, path.remote, &why);
    }
    Ok(())
}

/// The responder has chosen. Goes on with the keys, once they are computed.
fn agreed(
    session: &mut Session<'_>,
    connection: &Arc<Connection>,
    init: &InitSent,
    reply: Reply<'_>,
) -> Result<Verdict, Reason> {
    let Reply { path, message, bytes } = reply;
    let ignored = |why: &str| Ok(Verdict::Ignored(why.to_owned()));
    let payloads = &message.payloads;
    let (Some(answer), Some(ke), Some(nonce)) = (payloads.sa(), payloads.ke(), payloads.nonce()) else {
        return ignored("SA, KE or Nonce is missing");
    };
    let spis = IkeSpis { responder: message.header.responder_spi, ..session.sa.spis };
    if spis.responder.is_zero() {
        return ignored("the responder's SPI is zero");
    }
    let offered = offer::ike(&connection.proposals, None);
    let suite = match accept::ike(&offered, &connection.proposals, answer) {
        Ok((suite, _)) => suite,
        Err(error) => return ignored(&error.to_string()),
    };
    if !extensions::vouched_for(suite, payloads) {
        return ignored("it has additional key exchanges, but no IKE_INTERMEDIATE for them");
    }
    let extensions = extensions::agreed(connection, payloads, session.env.loaded.has_ppk_for(connection));
    if connection.ppk.required && !extensions.ppk {
        let text = "PPK is required, but the peer has none to use".to_owned();
        wait_for_better(session, init.clone(), text);
        return Ok(Verdict::Handled);
    }
    if connection.has_rounds() && payloads.notify(NotifyType::MultipleAuthSupported).is_none() {
        let text = "several authentications are asked for, but the peer does not know of that (RFC 4739)";
        wait_for_better(session, init.clone(), text.to_owned());
        return Ok(Verdict::Handled);
    }
    if let Some(lack) = childless::lack(connection, &init.attempt, payloads) {
        wait_for_better(session, init.clone(), lack.to_owned());
        return Ok(Verdict::Handled);
    }
    if suite.ke != init.ke.method() || !nonce_fits(nonce, suite.prf) {
        return ignored("its KE or Nonce does not fit the algorithms that it chose");
    }
    let nonces = Nonces { initiator: init.nonce.clone(), responder: nonce.clone() };
    let request = session.sa.outgoing.pending.as_ref().and_then(|pending| pending.datagrams.first());
    let opening = Opening {
        attempt: init.attempt.clone(),
        nonces: nonces.clone(),
        init_request: request.cloned().unwrap_or_default(),
        init_response: bytes.to_vec(),
        int_auth: IntAuth::default(),
    };
    let draft = intermediate::next_draft(session, connection, suite, extensions, &opening, 0)?;
    let agreed = AgreedInit {
        remote: path.remote,
        chosen: format!("selected proposal: {}", describe::sa(answer)),
        spis,
        nat: nat::detect(payloads, spis, path, connection.encap),
        extensions,
        opening,
    };
    let (ours, theirs) = (init.ke.clone(), ke.clone());
    let work = move || {
        let keys = IkeKeys::derive(suite, &ours.agree(&theirs)?, &nonces, spis)?;
        let made = draft.map(|draft| draft.make(&keys)).transpose();
        Ok((keys, made))
    };
    session.compute(true, work, |session, computed| done(session, agreed, computed));
    Ok(Verdict::Handled)
}

/// The keys are computed, if the responder's part is valid. The exchange is over.
fn done(
    session: &mut Session<'_>,
    agreed: AgreedInit,
    computed: Result<(IkeKeys, Result<Option<Made>, Reason>), SuiteError>,
) -> Result<(), Reason> {
    if !matches!(session.sa.phase, Phase::InitSent(_)) {
        return Ok(());
    }
    let AgreedInit { remote, chosen, spis, nat, extensions, opening } = agreed;
    let (keys, made) = match computed {
        Ok(computed) => computed,
        Err(error) => {
            ignore(session, remote, &error.to_string());
            return Ok(());
        }
    };
    session.sa.outgoing.pending = None;
    session.sa.spis = spis;
    session.sa.keys = Some(Keys::new(keys, Role::Initiator, session.env.alloc.sender_id()));
    session.sa.nat = nat;
    session.sa.extensions = extensions;
    if session.sa.nat.any() {
        session.sa.path = nat::float(session.sa.path, &session.env.config);
    }
    session.log(ORDINARY, chosen);
    intermediate::authenticate_or_exchange(session, opening, made?, 0)
}

fn ignore(session: &mut Session<'_>, remote: SocketAddr, why: &str) {
    session.env.effects.discard(session.now, Discard::Unacceptable, || {
        format!("ignored an IKE_SA_INIT response from {remote}: {why}")
    });
}

/// The responder wants something else, or refuses.
fn refused(
    session: &mut Session<'_>,
    connection: &Connection,
    mut init: InitSent,
    reply: Reply<'_>,
) -> Result<Verdict, Reason> {
    let payloads = &reply.message.payloads;
    if let Some(cookie) = payloads.notify(NotifyType::Cookie) {
        if cookie.data.is_empty() || cookie.data.len() > MAX_COOKIE || init.cookies >= MAX_COOKIES {
            return Ok(Verdict::Ignored("its cookie is not acceptable".into()));
        }
        init.cookies = init.cookies.saturating_add(1);
        init.cookie = Some(cookie.data.clone());
        session.log(DETAIL, "the responder demands a cookie");
        send(session, connection, init)?;
        return Ok(Verdict::Handled);
    }
    let Some(error) = payloads.error() else {
        return Ok(Verdict::Ignored("it has neither an SA payload nor an error".into()));
    };
    if let Some(wanted) = error.wanted_ke() {
        let usable = KeyExchange::from_wire(wanted)
            .filter(|method| offers(connection, *method) && !init.tried.contains(method));
        if let Some(method) = usable {
            init.ke = KePrivate::generate(method, session.env.entropy())?;
            init.tried.push(method);
            session.log(ORDINARY, format!("the responder wants key exchange by {wanted}"));
            send(session, connection, init)?;
            return Ok(Verdict::Handled);
        }
    }
    let text = refusal(connection, error);
    wait_for_better(session, init, text);
    Ok(Verdict::Handled)
}

/// The response is useless, but not authenticated: the attempt fails if no better one comes.
fn wait_for_better(session: &mut Session<'_>, mut init: InitSent, text: String) {
    if init.error.is_some() {
        return;
    }
    session.log(ORDINARY, format!("received {text}, not authenticated: waiting for a better answer"));
    let until = session.now.plus(session.env.config.unauthenticated_error_wait);
    init.error = Some(UnauthenticatedError { text, until });
    session.commit();
    session.sa.phase = Phase::InitSent(Box::new(init));
}

fn unloaded() -> Reason {
    Reason::Refused("the connection was unloaded meanwhile".into())
}

/// The meaning of an error notify, for an operator.
fn refusal(connection: &Connection, error: &Notify) -> String {
    match (error.kind, error.wanted_ke()) {
        (NotifyType::NoProposalChosen, _) => format!(
            "NO_PROPOSAL_CHOSEN: the peer takes none of our proposals {}",
            describe::ike_proposals(&connection.proposals)
        ),
        (_, Some(wanted)) => {
            format!("INVALID_KE_PAYLOAD: the peer insists on {wanted}, which is not configured")
        }
        (kind, None) => kind.to_string(),
    }
}

fn first_method(connection: &Connection) -> Option<KeyExchange> {
    connection.proposals.iter().find_map(|proposal| proposal.ke.first()).copied()
}

fn offers(connection: &Connection, method: KeyExchange) -> bool {
    connection.proposals.iter().any(|proposal| proposal.ke.contains(&method))
}

/// The request, always with the whole offer: a forged INVALID_KE_PAYLOAD cannot weaken the choice
/// (RFC 7296 §1.2).
fn request(sa: &IkeSa, connection: &Connection, init: &InitSent, ppk: bool) -> Result<Vec<u8>, EncodeError> {
    let mut message = MessageBuilder::new(sa.header(ExchangeType::IkeSaInit, false, MessageId(0)));
    if let Some(cookie) = &init.cookie {
        message.push(Payload::Notify(Notify::new(NotifyType::Cookie, cookie.clone())));
    }
    message
        .push(Payload::Sa(offer::ike(&connection.proposals, None)))
        .push(Payload::Ke(init.ke.payload()))
        .push(Payload::Nonce(init.nonce.clone()));
    for notify in nat::notifies(sa.spis, sa.path, connection.encap) {
        message.push(notify);
    }
    for notify in extensions::offer(connection, ppk) {
        message.push(notify);
    }
    message.finish()
}
