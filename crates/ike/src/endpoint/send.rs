//! The ways in which messages leave: requests that are repeated, responses that are kept, answers to strangers.

use super::exchanges::Counted;
use super::report::{FAILURE, Way};
use super::{Discard, Endpoint};
use crate::message::{ExchangeType, MessageBuilder, MessageId, Payload};
use crate::output::{CommitId, IkeSaId, Output, Path, Reason, Time};
use crate::sa::{Answered, IkeSa, Pending, RequestKind};
use crate::suite::{Role, SuiteError};

/// Message IDs must not start over; the IKE SA ends before (RFC 7296 §2.2).
pub(crate) const LAST_ID: MessageId = MessageId(u32::MAX);

impl Endpoint {
    /// The state of the SA changes; what is sent from now on depends on it.
    pub(crate) fn commit(&mut self, sa: &mut IkeSa) {
        self.commit = CommitId(self.commit.0.saturating_add(1));
        sa.commit = self.commit;
        self.changed(sa.id);
    }

    /// Hands a message out, in one datagram or in fragments.
    pub(crate) fn send(&mut self, now: Time, sa: &mut IkeSa, path: Path, datagrams: Vec<Vec<u8>>) {
        // What goes elsewhere does not keep the NAT's mapping of the path alive.
        if path == sa.path {
            sa.last_sent = now;
        }
        self.stats.sent += 1;
        let (ike, after) = (Some(sa.id), sa.commit);
        self.outputs.extend(datagrams.into_iter().map(|bytes| Output::Send { ike, after, path, bytes }));
    }

    /// See [`Endpoint::not_sent`].
    pub(crate) fn failed_to_send(&mut self, now: Time, ike: Option<IkeSaId>, path: Path, error: &str) {
        let Path { local, remote } = path;
        let has_address = self.local_addrs.is_empty() || self.local_addrs.contains(&local.ip());
        let hint =
            if has_address { String::new() } else { format!("; this host has no address {}", local.ip()) };
        let error = format!("{error}{hint}");
        let line = format!("cannot send from {local} to {remote}: {error}");
        let ours = |sa: &&IkeSa| sa.role == Role::Initiator || sa.is_established();
        let Some(id) = ike.and_then(|id| self.table.get(id)).filter(ours).map(|sa| sa.id) else {
            // Strangers can cause this at will.
            return self.discard(now, Discard::NotSent, || line);
        };
        self.with_sa(now, id, |endpoint, sa| {
            endpoint.commit(sa);
            if let Some(pending) = &mut sa.outgoing.pending {
                pending.unsent = Some(error);
            }
            endpoint.log(sa, FAILURE, line);
            Ok(())
        });
    }

    /// Answers somebody with whom we share no state, if that is no gain to an attacker with a forged address: never
    /// with more octets than the request had.
    pub(crate) fn answer_stranger(&mut self, path: Path, request: &[u8], message: &MessageBuilder) {
        let Ok(bytes) = message.finish() else { return };
        if bytes.len() <= request.len() {
            self.stats.sent += 1;
            self.outputs.push_back(Output::Send { ike: None, after: self.commit, path, bytes });
        }
    }

    /// Encrypts a message under the keys of the SA, in fragments where it is too large for `path` and the peer knows how
    /// to put them together. Every call uses up IVs, so every call changes the state.
    fn seal(
        &mut self,
        sa: &mut IkeSa,
        path: Path,
        message: &MessageBuilder,
    ) -> Result<Vec<Vec<u8>>, SuiteError> {
        self.commit(sa);
        self.show(sa, Way::Sent, message.header(), message.payloads());
        let limit = self.datagram_limit(path);
        let keys = sa.keys.as_mut().ok_or(SuiteError::Seal)?;
        if sa.extensions.fragment {
            keys.sealer.seal_fragments(message, limit, &mut *self.alloc)
        } else {
            keys.sealer.seal(message, &mut *self.alloc).map(|whole| vec![whole])
        }
    }

    /// Octets of an IKE message that leave room in an IP datagram for the headers of IP and UDP, and for the non-ESP marker.
    fn datagram_limit(&self, path: Path) -> usize {
        let headers = if path.remote.is_ipv4() { 20 + 8 + 4 } else { 40 + 8 + 4 };
        self.config.fragment_size.saturating_sub(headers)
    }

    /// Sends a protected request and keeps it for repetition.
    pub(crate) fn request(
        &mut self,
        now: Time,
        sa: &mut IkeSa,
        exchange: ExchangeType,
        kind: RequestKind,
        payloads: Vec<Payload>,
    ) -> Result<(), Reason> {
        let id = sa.outgoing.next;
        if id == LAST_ID {
            return Err(Reason::Refused("no Message ID is left".into()));
        }
        let mut message = MessageBuilder::new(sa.header(exchange, false, id));
        for payload in payloads {
            message.push(payload);
        }
        let datagrams = self.seal(sa, sa.path, &message)?;
        self.request_made(now, sa, exchange, kind, datagrams);
        Ok(())
    }

    /// Sends a request that is already made, as the next of the SA, and keeps it for repetition.
    pub(crate) fn request_made(
        &mut self,
        now: Time,
        sa: &mut IkeSa,
        exchange: ExchangeType,
        kind: RequestKind,
        datagrams: Vec<Vec<u8>>,
    ) {
        let id = sa.outgoing.next;
        sa.outgoing.next = MessageId(id.0.saturating_add(1));
        self.await_response(now, sa, (exchange, id), kind, datagrams);
    }

    /// Sends a request with Message ID 0, which takes no place in the window (RFC 6311 §5.1), and keeps it for repetition.
    pub(crate) fn request_beside_window(
        &mut self,
        now: Time,
        sa: &mut IkeSa,
        kind: RequestKind,
        payload: Payload,
    ) -> Result<(), Reason> {
        let (exchange, id) = (ExchangeType::Informational, MessageId(0));
        let message = MessageBuilder::new(sa.header(exchange, false, id)).with(payload);
        let datagrams = self.seal(sa, sa.path, &message)?;
        self.await_response(now, sa, (exchange, id), kind, datagrams);
        Ok(())
    }

    fn await_response(
        &mut self,
        now: Time,
        sa: &mut IkeSa,
        (exchange, id): (ExchangeType, MessageId),
        kind: RequestKind,
        datagrams: Vec<Vec<u8>>,
    ) {
        self.count_message(sa, exchange, Counted::OutRequest);
        if exchange == ExchangeType::IkeSaInit {
            datagrams.iter().for_each(|bytes| self.show_clear(sa, Way::Sent, bytes));
        }
        let next = now.plus(self.config.retransmit.wait_after(1));
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
        sa.outgoing.pending = Some(Box::new(pending));
        self.send(now, sa, sa.path, datagrams);
    }

    /// Answers the peer's request, to where it came from (RFC 7296 §2.11), and keeps the answer for repetition.
    pub(crate) fn respond(
        &mut self,
        now: Time,
        sa: &mut IkeSa,
        request: &Request,
        payloads: Vec<Payload>,
    ) -> Result<(), Reason> {
        if request.id == LAST_ID {
            return Err(Reason::Refused("the peer has used up its Message IDs".into()));
        }
        let answered = self.answer(now, sa, request, payloads)?;
        // A synchronization may have moved on while the answer was computed.
        sa.incoming.expected = sa.incoming.expected.max(MessageId(request.id.0.saturating_add(1)));
        sa.incoming.last = Some(answered);
        Ok(())
    }

    /// Answers a request, in the window or beside it. Gives what is to be kept.
    pub(crate) fn answer(
        &mut self,
        now: Time,
        sa: &mut IkeSa,
        request: &Request,
        payloads: Vec<Payload>,
    ) -> Result<Answered, Reason> {
        let mut message = MessageBuilder::new(sa.header(request.exchange, true, request.id));
        for payload in payloads {
            message.push(payload);
        }
        let response = self.seal(sa, request.path, &message)?;
        self.count_message(sa, request.exchange, Counted::OutResponse);
        let answered = Answered {
            id: request.id,
            digest: request.digest,
            response: response.as_slice().into(),
            repeated_until: now,
        };
        self.send(now, sa, request.path, response);
        Ok(answered)
    }
}

/// A request of the peer, once authenticated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) exchange: ExchangeType,
    pub(crate) id: MessageId,
    pub(crate) path: Path,
    /// Of the datagram, or of that with its first fragment.
    pub(crate) digest: [u8; 32],
}
