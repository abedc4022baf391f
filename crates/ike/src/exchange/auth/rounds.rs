//! What the two sides tell each other of several rounds of authentication (RFC 4739).

use crate::config::{Connection, Identity};
use crate::message::{Notify, NotifyType, Payload, Payloads};
use crate::sa::{AuthRounds, IkeSa, Phase};

/// What an initiator has announced beside AUTH.
#[derive(Clone, Copy, Debug)]
pub(super) struct Announced {
    /// It knows of several rounds.
    pub(super) knows: bool,
    /// It has another round of its own to come.
    pub(super) follows: bool,
}

impl Announced {
    pub(super) fn by(payloads: &Payloads) -> Self {
        Self {
            knows: payloads.notify(NotifyType::MultipleAuthSupported).is_some(),
            follows: follows(payloads),
        }
    }

    /// Whether that is how IKE_AUTH of the connection begins.
    pub(super) fn begins(self, connection: &Connection) -> bool {
        self.follows != connection.rounds.remote.is_empty() && (self.knows || !connection.has_rounds())
    }

    /// Why no connection begins so, although some would otherwise do.
    pub(super) fn misfit(self) -> &'static str {
        match self {
            Self { follows: true, .. } => "announces another authentication, which no connection asks for",
            Self { knows: false, .. } => {
                "does not know several authentications (RFC 4739), which its connection asks for"
            }
            Self { .. } => "announces no other authentication, which its connection asks for",
        }
    }
}

/// True if the sender has another round of its own to come.
pub(super) fn follows(payloads: &Payloads) -> bool {
    payloads.notify(NotifyType::AnotherAuthFollows).is_some()
}

/// What we announce beside AUTH.
pub(super) fn another(more: bool) -> Option<Payload> {
    more.then(|| status(NotifyType::AnotherAuthFollows))
}

/// What we say that we know, on a connection with several rounds.
pub(crate) fn known(connection: &Connection) -> Option<Payload> {
    connection.has_rounds().then(|| status(NotifyType::MultipleAuthSupported))
}

impl AuthRounds {
    /// True if both sides have proven all that the connection asks for, once this response has
    /// come.
    pub(super) fn are_over(&self, connection: &Connection) -> bool {
        connection.local_round(self.ours).is_none() && connection.remote_round(self.theirs).is_none()
    }
}

/// How many rounds of the responder are right.
pub(super) fn proven_by_responder(sa: &IkeSa) -> usize {
    match &sa.phase {
        Phase::AuthRounds(rounds) => rounds.theirs,
        _ => 0,
    }
}

/// True if the response must hold a round of the responder.
pub(super) fn is_awaited(sa: &IkeSa, connection: &Connection) -> bool {
    connection.remote_round(proven_by_responder(sa)).is_some()
}

/// The error in a response to IKE_AUTH that ends it. What concerns the Child SA alone comes beside
/// the last round, and does not (RFC 7296 §1.2).
pub(super) fn refusal<'a>(sa: &IkeSa, connection: &Connection, payloads: &'a Payloads) -> Option<&'a Notify> {
    let error = payloads.error().filter(|_| payloads.auth().is_none())?;
    let is_over = match &sa.phase {
        Phase::AuthRounds(rounds) => rounds.are_over(connection),
        _ => false,
    };
    let of_child = matches!(
        error.kind,
        NotifyType::NoProposalChosen
            | NotifyType::SinglePairRequired
            | NotifyType::NoAdditionalSas
            | NotifyType::InternalAddressFailure
            | NotifyType::FailedCpRequired
            | NotifyType::TsUnacceptable
            | NotifyType::InvalidSelectors
    );
    (!is_over || !of_child).then_some(error)
}

/// The error is for the log: the responder proves something that it has not announced.
pub(super) fn nothing_begins(payloads: &Payloads) -> Result<(), String> {
    if payloads.id_responder().is_none() && payloads.auth().is_none() && !follows(payloads) {
        return Ok(());
    }
    Err("the peer begins an authentication that it has not announced".into())
}

/// The error is for the log: the responder has more to prove than the connection asks for, or less.
pub(super) fn as_announced(
    connection: &Connection,
    round: usize,
    identity: &Identity,
    payloads: &Payloads,
) -> Result<(), String> {
    match (follows(payloads), connection.remote_round(round.saturating_add(1)).is_some()) {
        (true, false) => {
            Err(format!("{identity} announces another authentication, which the connection does not ask for"))
        }
        (false, true) => {
            Err(format!("{identity} announces no other authentication, which the connection asks for"))
        }
        (true, true) | (false, false) => Ok(()),
    }
}

fn status(kind: NotifyType) -> Payload {
    Payload::Notify(Notify::new(kind, Vec::new()))
}
