//! Dispatch: from a datagram to its IKE SA and exchange.

use crate::endpoint::{Discard, Endpoint};
use crate::exchange::fragments::is_fragment;
use crate::exchange::receive::Datagram;
use crate::exchange::{InitRequest, InitResponder, WindowPlace, place};
use crate::message::{
    ExchangeType, Header, Message, MessageBuilder, MessageId, Notify, NotifyType, ParseError, Payload,
};
use crate::output::{Path, Time};
use crate::sa::{IkeSa, InitKey, Phase, digest};
use crate::suite::Role;

/// Bound on a message: none of ours or of an honest peer is larger.
const MAX_MESSAGE: usize = 16 * 1024;
/// Bound on an IKE_SA_INIT, which half-open IKE SAs must store.
const MAX_INIT: usize = 4 * 1024;

impl Endpoint {
    /// An IKE message has arrived (without the non-ESP marker).
    pub fn handle_datagram(&mut self, now: Time, path: Path, bytes: &[u8]) {
        self.env.effects.stats.received += 1;
        self.env.effects.stats.set_source(Some(path.remote.ip()));
        self.dispatch(Datagram { now, path, bytes });
        self.env.effects.stats.set_source(None);
        self.env.run_jobs(now);
    }

    pub(crate) fn dispatch(&mut self, datagram: Datagram<'_>) {
        let Datagram { now, path, bytes } = datagram;
        if bytes.len() > MAX_MESSAGE {
            let length = bytes.len();
            return self.env.effects.discard(now, Discard::TooLarge, || {
                format!("ignored a message of {length} octets from {}", path.remote)
            });
        }
        let header = match Header::parse(bytes) {
            Ok(header) => header,
            Err(error) => return self.unreadable(datagram, &error),
        };
        let begins = header.exchange == ExchangeType::IkeSaInit && !header.response;
        if begins {
            return self.initiated(datagram, header);
        }
        let ours = if header.from_initiator { header.responder_spi } else { header.initiator_spi };
        let Some(sa) = self.env.table.by_spi(ours) else { return self.unknown(datagram, header) };
        let id = sa.id;
        if let Err((reason, why)) = check_header(sa, &header, bytes) {
            return self.env.effects.discard(now, reason, || format!("ignored {why} from {}", path.remote));
        }
        let message = match Message::parse(bytes) {
            Ok(message) => message,
            Err(error) => return self.unreadable(datagram, &error),
        };
        self.env.with_sa(now, id, |session| session.of_sa(datagram, &message));
    }

    /// A datagram that cannot be decoded. Only a higher major version is answered (RFC 7296 §2.5),
    /// because nothing else in it can be trusted.
    fn unreadable(&mut self, datagram: Datagram<'_>, error: &ParseError) {
        let Datagram { now, path, bytes } = datagram;
        if let ParseError::MajorVersion { found, header } = *error {
            if found > 2 && !header.response {
                self.answer_with(datagram, header, Notify::new(NotifyType::InvalidMajorVersion, Vec::new()));
            }
            return self.env.effects.discard(now, Discard::Version, || {
                format!("ignored a message of IKE version {found} from {}", path.remote)
            });
        }
        self.env.effects.discard(now, Discard::Malformed, || {
            format!("ignored a malformed message of {} octets from {}: {error}", bytes.len(), path.remote)
        });
    }

    /// A message for an IKE SA that we do not have. The answer tells the peer, after a crash of
    /// ours, to check the IKE SA (RFC 7296 §2.21.4).
    fn unknown(&mut self, datagram: Datagram<'_>, header: Header) {
        if !header.response {
            self.answer_with(datagram, header, Notify::new(NotifyType::InvalidIkeSpi, Vec::new()));
        }
        let remote = datagram.path.remote;
        self.env.effects.discard(datagram.now, Discard::UnknownSpi, || {
            let (i, r) = (header.initiator_spi, header.responder_spi);
            format!("ignored a message from {remote} for an unknown IKE_SA {i}_i {r}_r")
        });
    }

    /// Answers a request outside any IKE SA, in clear and rate-limited (RFC 7296 §2.21.4).
    fn answer_with(&mut self, datagram: Datagram<'_>, request: Header, notify: Notify) {
        if !self.env.effects.answer_limit.take(datagram.now) {
            return;
        }
        let header = Header { response: true, from_initiator: !request.from_initiator, ..request };
        let message = MessageBuilder::new(header).with(Payload::Notify(notify));
        self.env.answer_stranger(datagram.path, datagram.bytes, &message);
    }

    /// An IKE_SA_INIT, or its repetition.
    fn initiated(&mut self, datagram: Datagram<'_>, header: Header) {
        let Datagram { now, path, bytes } = datagram;
        let well_formed = header.from_initiator
            && header.message_id == MessageId(0)
            && header.responder_spi.is_zero()
            && !header.initiator_spi.is_zero();
        if !well_formed || bytes.len() > MAX_INIT {
            let reason = if well_formed { Discard::TooLarge } else { Discard::WrongRole };
            return self.env.effects.discard(now, reason, || {
                format!("ignored an IKE_SA_INIT request from {} with an odd header or size", path.remote)
            });
        }
        let key = InitKey::of(path.remote, bytes);
        if let Some(sa) = self.env.table.by_init(&key) {
            let id = sa.id;
            return self.env.with_sa(now, id, |session| session.repeat(datagram, digest(bytes)));
        }
        if self.env.is_computing_for(key) {
            return self.env.effects.stats.discard(Discard::Repeated);
        }
        let message = match Message::parse(bytes) {
            Ok(message) => message,
            Err(ParseError::Critical(payload)) => {
                self.answer_with(datagram, header, Notify::unsupported_critical(payload));
                return self.unreadable(datagram, &ParseError::Critical(payload));
            }
            Err(error) => return self.unreadable(datagram, &error),
        };
        let request = InitRequest { path, message: &message, bytes, key };
        InitResponder { now, env: &mut self.env }.init_request(&request);
    }
}

/// Checks, without a key, whether a message can belong to the SA.
fn check_header(sa: &IkeSa, header: &Header, bytes: &[u8]) -> Result<(), (Discard, &'static str)> {
    let peer_is_initiator = sa.role == Role::Responder;
    if header.from_initiator != peer_is_initiator {
        return Err((Discard::WrongRole, "our own message, reflected"));
    }
    let theirs = if peer_is_initiator { header.initiator_spi } else { header.responder_spi };
    // The first response brings the responder's SPI.
    if theirs != sa.peer_spi() && !(header.exchange == ExchangeType::IkeSaInit && header.response) {
        return Err((Discard::UnknownSpi, "a message with another peer's SPI"));
    }
    if header.response { check_response(sa, header, bytes) } else { check_request(sa, header, bytes) }
}

fn check_response(sa: &IkeSa, header: &Header, bytes: &[u8]) -> Result<(), (Discard, &'static str)> {
    let waiting = sa
        .outgoing
        .pending
        .as_ref()
        .is_some_and(|pending| (pending.id, pending.exchange) == (header.message_id, header.exchange));
    match waiting {
        false => Err((Discard::UnexpectedResponse, "an unexpected response")),
        true if place(sa, header) == WindowPlace::BesideWindow && is_fragment(bytes) => {
            Err((Discard::Fragment, "a fragment outside the window"))
        }
        true => Ok(()),
    }
}

fn check_request(sa: &IkeSa, header: &Header, bytes: &[u8]) -> Result<(), (Discard, &'static str)> {
    let last = sa.incoming.last.as_ref().filter(|last| last.id == header.message_id);
    // Repeated fragments need not be equal: the peer may have made them smaller (RFC 7383 §2.5.2).
    if last.is_some_and(|last| is_fragment(bytes) || last.digest == digest(bytes)) {
        return Ok(());
    }
    let beside = place(sa, header) == WindowPlace::BesideWindow && !is_fragment(bytes);
    if header.message_id != sa.incoming.expected && !beside {
        return Err((Discard::MessageId, "a request outside the window"));
    }
    let fits = match &sa.phase {
        // Exactly as many IKE_INTERMEDIATE as there are key exchanges left (RFC 9242 §5).
        Phase::HalfOpen(half) if sa.has_additional_ke(half.place) => {
            header.exchange == ExchangeType::IkeIntermediate
        }
        Phase::HalfOpen(_) | Phase::HalfProven(_) => header.exchange == ExchangeType::IkeAuth,
        Phase::Established => {
            use ExchangeType::{CreateChildSa, IkeFollowupKe, Informational};
            matches!(header.exchange, Informational | CreateChildSa | IkeFollowupKe)
        }
        Phase::InitSent(_)
        | Phase::Intermediate(_)
        | Phase::AuthSent(_)
        | Phase::AuthRounds(_)
        | Phase::Rejecting
        | Phase::Gone { .. } => false,
    };
    if fits { Ok(()) } else { Err((Discard::WrongExchange, "a request that does not fit the state")) }
}
