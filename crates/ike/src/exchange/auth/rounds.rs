//! Announcements of several rounds of authentication (RFC 4739).

use crate::config::{Connection, Identity};
use crate::exchange::auth::error::AuthError;
use crate::message::{Notify, NotifyType, Payload, Payloads};
use crate::sa::{AuthRounds, EarlierRound, IkeSa, Phase};

/// The initiator's announcements beside AUTH.
#[derive(Clone, Copy, Debug)]
pub(super) struct Announced {
    /// It supports several rounds.
    pub(super) knows: bool,
    /// It has another round.
    pub(super) follows: bool,
}

impl Announced {
    pub(super) fn by(payloads: &Payloads) -> Self {
        Self {
            knows: payloads.notify(NotifyType::MultipleAuthSupported).is_some(),
            follows: follows(payloads),
        }
    }

    /// True if IKE_AUTH of the connection begins this way.
    pub(super) fn begins(self, connection: &Connection) -> bool {
        self.follows != connection.rounds.remote.is_empty() && (self.knows || !connection.has_rounds())
    }

    /// Why no connection begins this way, although some would match otherwise.
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

/// True if the sender has another round.
pub(super) fn follows(payloads: &Payloads) -> bool {
    payloads.notify(NotifyType::AnotherAuthFollows).is_some()
}

/// Our announcement beside AUTH.
pub(super) fn another(more: bool) -> Option<Payload> {
    more.then(|| status(NotifyType::AnotherAuthFollows))
}

/// Our announcement that we support rounds, on a connection with several.
pub(crate) fn known(connection: &Connection) -> Option<Payload> {
    connection.has_rounds().then(|| status(NotifyType::MultipleAuthSupported))
}

impl AuthRounds {
    /// True if this response completes all rounds of both sides.
    pub(super) fn are_over(&self, connection: &Connection) -> bool {
        connection.local_round(self.ours).is_none() && connection.remote_round(self.theirs).is_none()
    }
}

/// Keeps the responder's round of that number, which has just succeeded, since another one follows.
pub(super) fn keep_responders(sa: &mut IkeSa, number: usize) {
    if let (Some(local), Some(remote)) = (sa.local_id.clone(), sa.remote_id.clone()) {
        sa.keep_round(EarlierRound { number, local, remote, anchor: sa.anchor.as_deref().copied() });
    }
}

/// Number of successful rounds of the responder.
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

/// The error in an IKE_AUTH response that ends it. An error about only the Child SA comes with the
/// last round, and does not (RFC 7296 §1.2).
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

/// Fails if the responder begins a round that it has not announced.
pub(super) fn nothing_begins(payloads: &Payloads) -> Result<(), AuthError> {
    if payloads.id_responder().is_none() && payloads.auth().is_none() && !follows(payloads) {
        return Ok(());
    }
    Err(AuthError::Unannounced)
}

/// Fails if the responder has more rounds than the connection asks for, or fewer.
pub(super) fn as_announced(
    connection: &Connection,
    round: usize,
    identity: &Identity,
    payloads: &Payloads,
) -> Result<(), AuthError> {
    match (follows(payloads), connection.remote_round(round.saturating_add(1)).is_some()) {
        (true, false) => Err(AuthError::SurplusRound(identity.clone())),
        (false, true) => Err(AuthError::MissingRound(identity.clone())),
        (true, true) | (false, false) => Ok(()),
    }
}

fn status(kind: NotifyType) -> Payload {
    Payload::Notify(Notify::new(kind, Vec::new()))
}
