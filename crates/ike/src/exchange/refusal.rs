//! Refusals of an initiator by a responder, before IKE_AUTH is complete.

use crate::exchange::send::Request;
use crate::exchange::session::Session;
use crate::message::{Notify, NotifyType, ParseError, Payload};
use crate::output::Reason;

/// Why a peer is refused: the notify for it and the text for the log.
pub(super) struct Refusal(Notify, String);

impl Refusal {
    /// The peer learns only that it is not authenticated (RFC 7296 §2.21.2).
    pub(super) fn authentication(why: impl Into<String>) -> Self {
        Self(Notify::new(NotifyType::AuthenticationFailed, Vec::new()), why.into())
    }

    /// The request lacks something, or contains something forbidden.
    pub(super) fn syntax(why: impl Into<String>) -> Self {
        Self(Notify::new(NotifyType::InvalidSyntax, Vec::new()), why.into())
    }
}

/// The request cannot be decoded.
impl From<ParseError> for Refusal {
    fn from(error: ParseError) -> Self {
        let notify = match error {
            ParseError::Critical(payload) => Notify::unsupported_critical(payload),
            _ => Notify::new(error.notify(), Vec::new()),
        };
        Self(notify, error.to_string())
    }
}

impl Session<'_> {
    /// Tells the initiator as much as it may know, and logs the rest. The IKE SA ends.
    pub(super) fn refuse_initiator(
        &mut self,
        request: &Request,
        Refusal(notify, why): Refusal,
    ) -> Result<(), Reason> {
        let from = format!("{} of {}", request.exchange, request.path.remote);
        // Its signature was verified by another thread: its datagram has long been processed.
        let shown = self.shown_source(request.path);
        self.env.effects.stats.set_source(shown);
        self.env.effects.discard_initiator(self.now, self.sa, &from, &why);
        self.env.effects.stats.set_source(None);
        self.respond(request, vec![Payload::Notify(notify)])?;
        Err(Reason::Refused(why))
    }
}
