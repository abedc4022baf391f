//! IKE SAs that come up without a Child SA (RFC 6023): the responder announces in IKE_SA_INIT that
//! it accepts such an IKE_AUTH, and children follow by exchanges of their own, if any.

use crate::config::{Childless, Connection};
use crate::environment::report::ORDINARY;
use crate::exchange::session::Session;
use crate::exchange::{configuration, reauth};
use crate::message::{Message, NotifyType, Payloads};
use crate::output::Reason;
use crate::sa::{Attempt, AuthSent, Task};

/// True if we announce as responder that we accept an IKE_AUTH without a child.
pub(crate) fn is_taken(connection: &Connection) -> bool {
    connection.childless != Childless::Never
}

/// Why an attempt must not continue with a responder that has answered in this way, if it must not.
pub(crate) fn lack(connection: &Connection, attempt: &Attempt, response: &Payloads) -> Option<&'static str> {
    if response.notify(NotifyType::ChildlessIkev2Supported).is_some() {
        return None;
    }
    match connection.childless {
        _ if attempt.is_alone() => Some("an IKE_SA alone is wanted, but the peer takes none without a child"),
        Childless::Force => Some("childless = force, but the peer takes no IKE_SA without a child"),
        _ => None,
    }
}

/// True if the first child of an initiation gets an exchange of its own. `response`: the
/// responder's IKE_SA_INIT message.
pub(super) fn is_initiated(connection: &Connection, response: &[u8]) -> bool {
    let says_so = || {
        let message = Message::parse(response).ok();
        message.is_some_and(|m| m.payloads.notify(NotifyType::ChildlessIkev2Supported).is_some())
    };
    matches!(connection.childless, Childless::Prefer | Childless::Force) && says_so()
}

/// True if an IKE_AUTH request asks for no child.
fn is_childless(request: &Payloads) -> bool {
    request.sa().is_none() && request.ts_initiator().is_none() && request.ts_responder().is_none()
}

/// The responder's decision on the child of an IKE_AUTH request.
pub(super) enum FirstChild {
    /// A child must be made.
    Child,
    /// No child is made, and the IKE SA stays.
    Nothing,
    /// The request does not match the configuration.
    Refused(&'static str),
}

impl FirstChild {
    pub(super) fn by(connection: &Connection, request: &Payloads) -> Self {
        match (is_childless(request), connection.childless) {
            (true, Childless::Never) => Self::Refused("the peer asks for none, and childless = never"),
            (true, _) => Self::Nothing,
            (false, Childless::Force) => {
                Self::Refused("the peer asks for one at once, and childless = force")
            }
            (false, _) => Self::Child,
        }
    }
}

/// Responder: the peer wants the IKE SA alone. It stays for as long as the peer wants.
pub(crate) fn stays_alone(session: &mut Session<'_>) {
    session.sa.childless = None;
    session.log(ORDINARY, "the peer asks for no CHILD_SA yet (RFC 6023)");
}

/// Initiator: the IKE SA is established without a child. A requested child follows.
pub(crate) fn no_child_yet(
    session: &mut Session<'_>,
    connection: &Connection,
    sent: &AuthSent,
    answer: &Payloads,
) -> Result<(), Reason> {
    let refused = match answer.error() {
        Some(error) => Err(Reason::Refused(format!("the peer answered {}", error.kind))),
        None => configuration::accept(session, connection, answer).map_err(Reason::from),
    };
    if let Err(reason) = refused {
        let what = sent.attempt.describe(&session.sa.connection);
        session.initiation_failed(&what, &sent.attempt.child, reason.clone());
        return session.delete_ike(reason, session.now.plus(session.env.config.delete_timeout));
    }
    if sent.attempt.is_alone() {
        session.sa.childless = None;
    } else {
        session.sa.outgoing.queue(Task::NewChild { name: sent.attempt.child.clone(), tries: 1 });
    }
    reauth::ask_other_children(session);
    session.next_task()
}
