//! Key exchanges of CREATE_CHILD_SA and IKE_FOLLOWUP_KE are computed like those of the first
//! exchanges, as jobs. A message with a KE payload waits for its job, and is judged as if it had
//! come when the result is there: much may have changed meanwhile.

use crate::config::{Connection, KeyExchange};
use crate::exchange::create_child::answer_creation;
use crate::exchange::create_child::followup::is_awaited;
use crate::exchange::create_child::judge_answer;
use crate::exchange::create_child::judge_creation;
use crate::exchange::create_child::responder::is_ending;
use crate::exchange::create_child::takes_too_many;
use crate::exchange::create_child::{NoChild, offers_ike};
use crate::exchange::send::Request;
use crate::exchange::session::Session;
use crate::message::{ExchangeType, Header, KePayload, NotifyType, Payloads};
use crate::output::Reason;
use crate::suite::{KeDraw, Secret, SuiteError};

/// Our part of the key exchange of a request: the answer's payload, and the secret.
pub(super) type Exchanged = Result<(KePayload, Secret), SuiteError>;

/// An answer of the peer, and the secret from its KE payload.
pub(super) struct KeyedAnswer<'a> {
    pub(super) payloads: &'a Payloads,
    /// `None` if there was no key exchange.
    pub(super) shared: Option<Result<Secret, SuiteError>>,
}

/// The computation for a request.
struct Computation {
    draw: KeDraw,
    theirs: KePayload,
}

/// A request of the peer, which may be the first or a later one of a series.
pub(crate) fn handle_request(
    session: &mut Session<'_>,
    request: &Request,
    payloads: Payloads,
) -> Result<(), Reason> {
    let is_first = request.exchange != ExchangeType::IkeFollowupKe;
    if is_first && takes_too_many(session) {
        let why = "the peer creates SAs faster than they are deleted";
        let refusal = Err(NoChild::new(NotifyType::TemporaryFailure, why));
        return answer_creation(session, request, refusal);
    }
    let Some(Computation { draw, theirs }) = exchange_asked(session, request, &payloads) else {
        return judge_creation(session, request, &payloads, None);
    };
    let request = *request;
    let work = move || draw.respond(&theirs);
    session.compute(false, work, move |session, exchanged| {
        // A synchronisation of counters may have skipped the request (RFC 6311 §5.1).
        if session.sa.incoming.expected != request.id {
            return Ok(());
        }
        judge_creation(session, &request, &payloads, Some(exchanged))
    });
    Ok(())
}

/// The key exchange of a request, if we may agree to it: refused ones are not computed.
fn exchange_asked(session: &mut Session<'_>, request: &Request, payloads: &Payloads) -> Option<Computation> {
    let theirs = payloads.ke()?;
    let method = KeyExchange::from_wire(theirs.method)?;
    let may_agree = match request.exchange {
        ExchangeType::IkeFollowupKe => is_awaited(session.now, session.sa, payloads, method),
        _ => {
            let connection = session.env.loaded.connections.find(&session.sa.connection)?;
            !is_ending(session.sa) && is_configured(connection, offers_ike(payloads), method)
        }
    };
    may_agree
        .then(|| Computation { draw: KeDraw::new(method, session.env.entropy()), theirs: theirs.clone() })
}

/// The response to our request.
pub(crate) fn handle_response(
    session: &mut Session<'_>,
    header: Header,
    payloads: Payloads,
) -> Result<(), Reason> {
    let ours = session.sa.creating.as_ref().and_then(|creating| creating.ke.clone());
    let Some((ours, theirs)) = ours.zip(payloads.ke().cloned()) else {
        return creation_answered(session, header, &payloads, None);
    };
    let work = move || ours.agree(&theirs);
    session.compute(true, work, move |session, shared| {
        creation_answered(session, header, &payloads, Some(shared))
    });
    Ok(())
}

fn creation_answered(
    session: &mut Session<'_>,
    header: Header,
    payloads: &Payloads,
    shared: Option<Result<Secret, SuiteError>>,
) -> Result<(), Reason> {
    // Until then the request was repeated, and may have been given up.
    if session.sa.outgoing.answered(header.exchange, header.message_id).is_none() {
        return Ok(());
    }
    judge_answer(session, KeyedAnswer { payloads, shared })
}

/// True if a proposal of the connection has this key exchange, for IKE SAs or for Child SAs.
fn is_configured(connection: &Connection, ike: bool, method: KeyExchange) -> bool {
    if ike {
        return connection.proposals.iter().any(|proposal| proposal.ke.contains(&method));
    }
    let mut proposals = connection.children.iter().flat_map(|child| &child.proposals);
    proposals.any(|proposal| proposal.ke.contains(&method))
}
