//! The initiator's side of IKE_INTERMEDIATE.

use crate::config::Connection;
use crate::environment::report::ORDINARY;
use crate::exchange::auth;
use crate::exchange::auth::{AuthDraft, Made};
use crate::exchange::intermediate::message;
use crate::exchange::session::Session;
use crate::message::{ExchangeType, KeMethod, ParseError, Payload, Payloads};
use crate::output::Reason;
use crate::sa::{Extensions, IntermediateSent, Opening, Phase, RequestKind};
use crate::suite::{IkeKeys, IkeSuite, IntAuth, KePrivate, Role};
use std::sync::Arc;

/// The computation for the coming keys: AUTH, if no additional key exchange is left from `place`
/// on.
pub(crate) fn next_draft(
    session: &Session<'_>,
    connection: &Arc<Connection>,
    suite: IkeSuite,
    extensions: Extensions,
    opening: &Opening,
    place: usize,
) -> Result<Option<AuthDraft>, Reason> {
    let is_last = suite.next_additional(place).is_none();
    is_last.then(|| auth::draft(session, connection, extensions, opening)).transpose()
}

/// The keys are there. Sends IKE_AUTH if it is made, else begins the next additional key exchange
/// from `place` on.
pub(crate) fn authenticate_or_exchange(
    session: &mut Session<'_>,
    mut opening: Opening,
    made: Option<Made>,
    place: usize,
) -> Result<(), Reason> {
    let gone = || Reason::Refused("the connection was unloaded meanwhile".into());
    let connection = session.env.loaded.connections.get(&session.sa.connection).ok_or_else(gone)?;
    if let Some(made) = made {
        return auth::send(session, &connection, opening, made);
    }
    let keys = session.sa.keys.as_ref().ok_or_else(|| Reason::Refused("the IKE SA has no keys".into()))?;
    let next = keys.ike.suite().next_additional(place);
    let (place, method) = next.ok_or_else(|| Reason::Refused("no key exchange is left".into()))?;
    let ke = KePrivate::generate(method, &mut *session.env.alloc)?;
    let payload = ke.payload();
    let message = message(session.sa, false, session.sa.outgoing.next, &payload);
    opening.int_auth.sent(&keys.ike, Role::Initiator, &message)?;
    session.sa.phase = Phase::Intermediate(Box::new(IntermediateSent { opening, place, ke }));
    let line = format!("additional key exchange {} by {}", place.saturating_add(1), KeMethod::from(method));
    session.log(ORDINARY, line);
    let payloads = vec![Payload::Ke(payload)];
    session.request(ExchangeType::IkeIntermediate, RequestKind::Intermediate, payloads)
}

/// The protected response to our IKE_INTERMEDIATE. Only the responder of our IKE_SA_INIT can have
/// made it, so an error in it is final.
pub(crate) fn handle_response(
    session: &mut Session<'_>,
    covered: IntAuth,
    payloads: Result<Payloads, ParseError>,
) -> Result<(), Reason> {
    let Phase::Intermediate(sent) = session.sa.phase.clone() else { return Ok(()) };
    let refuse = |text: String| Reason::Refused(format!("the peer's IKE_INTERMEDIATE response {text}"));
    let payloads = payloads.map_err(|error| refuse(format!("is malformed: {error}")))?;
    if let Some(error) = payloads.error() {
        return Err(Reason::Notify(error.kind.to_string()));
    }
    let answer = payloads.ke().ok_or_else(|| refuse("has no KE".into()))?.clone();
    let gone = || Reason::Refused("the connection was unloaded meanwhile".into());
    let connection = session.env.loaded.connections.get(&session.sa.connection).ok_or_else(gone)?;
    let IntermediateSent { opening, place, ke } = *sent;
    let opening = Opening { int_auth: covered, ..opening };
    let place = place.saturating_add(1);
    let keys =
        session.sa.keys.as_ref().ok_or_else(|| Reason::Refused("the IKE SA has no keys".into()))?.ike.clone();
    let draft = next_draft(session, &connection, keys.suite(), session.sa.extensions, &opening, place)?;
    let (nonces, spis) = (opening.nonces.clone(), session.sa.spis);
    let work = move || {
        let shared = ke.agree(&answer).map_err(|error| refuse(format!("cannot be used: {error}")))?;
        let keys = keys.derive_additional(&shared, &nonces, spis)?;
        let made = draft.map(|draft| draft.make(&keys)).transpose()?;
        Ok((keys, made))
    };
    type Computed = Result<(IkeKeys, Option<Made>), Reason>;
    session.compute(true, work, move |session, computed: Computed| {
        if !matches!(session.sa.phase, Phase::Intermediate(_)) {
            return Ok(());
        }
        let (keys, made) = computed?;
        session.sa.outgoing.pending = None;
        session.sa.renew_keys(keys);
        authenticate_or_exchange(session, opening, made, place)
    });
    Ok(())
}
