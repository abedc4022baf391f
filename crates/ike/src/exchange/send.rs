//! Sending: requests that are repeated, responses that are kept, answers to strangers.

use crate::environment::exchanges::Counted;
use crate::environment::report::Way;
use crate::exchange::session::Session;
use crate::message::{ExchangeType, MessageBuilder, MessageId, Payload};
use crate::output::{Output, Path, Reason};
use crate::sa::{Answered, Pending, RequestKind};
use crate::suite::SuiteError;

/// Message IDs must not start over: the IKE SA ends before (RFC 7296 §2.2).
pub(crate) const LAST_ID: MessageId = MessageId(u32::MAX);

impl Session<'_> {
    /// Hands a message to the host, in one datagram or in fragments.
    pub(crate) fn send(&mut self, path: Path, datagrams: Vec<Vec<u8>>) {
        // A message by another path does not keep the NAT's mapping of this one alive.
        if path == self.sa.path {
            self.sa.last_sent = self.now;
        }
        self.env.effects.stats.sent += 1;
        let (ike, after) = (Some(self.sa.id), self.sa.commit);
        self.env.effects.outputs.extend(datagrams.into_iter().map(|bytes| Output::Send {
            ike,
            after,
            path,
            bytes,
        }));
    }

    /// Encrypts a message under the keys of the SA, in fragments if it is too large for `path` and
    /// the peer supports them. Every call uses IVs, so every call changes the state.
    fn seal(&mut self, path: Path, message: &MessageBuilder) -> Result<Vec<Vec<u8>>, SuiteError> {
        self.commit();
        self.env.show(self.sa, Way::Sent, message.header(), message.payloads());
        let limit = self.env.datagram_limit(path);
        let keys = self.sa.keys.as_mut().ok_or(SuiteError::Seal)?;
        if self.sa.extensions.fragment {
            keys.sealer.seal_fragments(message, limit, &mut *self.env.alloc)
        } else {
            keys.sealer.seal(message, &mut *self.env.alloc).map(|whole| vec![whole])
        }
    }

    /// Sends a protected request and keeps it for repetition.
    pub(crate) fn request(
        &mut self,
        exchange: ExchangeType,
        kind: RequestKind,
        payloads: Vec<Payload>,
    ) -> Result<(), Reason> {
        let id = self.sa.outgoing.next;
        if id == LAST_ID {
            return Err(Reason::Refused("no Message ID is left".into()));
        }
        let mut message = MessageBuilder::new(self.sa.header(exchange, false, id));
        for payload in payloads {
            message.push(payload);
        }
        let datagrams = self.seal(self.sa.path, &message)?;
        self.request_made(exchange, kind, datagrams);
        Ok(())
    }

    /// Sends a finished request as the next one of the SA, and keeps it for repetition.
    pub(crate) fn request_made(
        &mut self,
        exchange: ExchangeType,
        kind: RequestKind,
        datagrams: Vec<Vec<u8>>,
    ) {
        let id = self.sa.outgoing.next;
        self.sa.outgoing.next = MessageId(id.0.saturating_add(1));
        self.await_response(exchange, id, kind, datagrams);
    }

    /// Sends a request with Message ID 0, outside the window (RFC 6311 §5.1), and keeps it for
    /// repetition.
    pub(crate) fn request_beside_window(
        &mut self,
        kind: RequestKind,
        payload: Payload,
    ) -> Result<(), Reason> {
        let (exchange, id) = (ExchangeType::Informational, MessageId(0));
        let message = MessageBuilder::new(self.sa.header(exchange, false, id)).with(payload);
        let datagrams = self.seal(self.sa.path, &message)?;
        self.await_response(exchange, id, kind, datagrams);
        Ok(())
    }

    fn await_response(
        &mut self,
        exchange: ExchangeType,
        id: MessageId,
        kind: RequestKind,
        datagrams: Vec<Vec<u8>>,
    ) {
        self.env.effects.count_message(self.sa, exchange, Counted::OutRequest);
        if exchange == ExchangeType::IkeSaInit {
            datagrams.iter().for_each(|bytes| self.env.show_clear(self.sa, Way::Sent, bytes));
        }
        let policy = self.env.config.retransmit;
        let expects_losses = self.now < self.env.losses_until;
        let wait = if expects_losses { policy.wait_for_lost() } else { policy.wait_after(1) };
        let next = self.now.plus(wait);
        let stored = datagrams.clone();
        let pending = Pending {
            id,
            exchange,
            kind,
            datagrams: stored,
            transmissions: 1,
            unsent: None,
            next,
            fragments: None,
        };
        self.sa.outgoing.pending = Some(Box::new(pending));
        self.send(self.sa.path, datagrams);
    }

    /// Answers the peer's request, to its source (RFC 7296 §2.11), and keeps the answer for
    /// repetition.
    pub(crate) fn respond(&mut self, request: &Request, payloads: Vec<Payload>) -> Result<(), Reason> {
        if request.id == LAST_ID {
            return Err(Reason::Refused("the peer has used up its Message IDs".into()));
        }
        let answered = self.answer(request, payloads)?;
        // A synchronisation may have moved on while the answer was computed.
        self.sa.incoming.expected = self.sa.incoming.expected.max(MessageId(request.id.0.saturating_add(1)));
        self.sa.incoming.last = Some(answered);
        Ok(())
    }

    /// Answers a request, in the window or outside. Returns the answer to keep.
    pub(crate) fn answer(&mut self, request: &Request, payloads: Vec<Payload>) -> Result<Answered, Reason> {
        let mut message = MessageBuilder::new(self.sa.header(request.exchange, true, request.id));
        for payload in payloads {
            message.push(payload);
        }
        let response = self.seal(request.path, &message)?;
        self.env.effects.count_message(self.sa, request.exchange, Counted::OutResponse);
        let answered = Answered {
            id: request.id,
            digest: request.digest,
            response: response.as_slice().into(),
            repeated_until: self.now,
        };
        self.send(request.path, response);
        Ok(answered)
    }
}

/// A request of the peer, once authenticated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) exchange: ExchangeType,
    pub(crate) id: MessageId,
    pub(crate) path: Path,
    /// Digest of the datagram, or of that with the first fragment.
    pub(crate) digest: [u8; 32],
}
