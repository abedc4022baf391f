//! From a datagram to the IKE SA and the exchange that it belongs to.

use super::exchanges::Counted;
use super::fragments::{is_fragment, wants_fragment};
use super::report::Way;
use super::send::Request;
use super::{Discard, Endpoint};
use crate::exchange::{InitRequest, Place, Reply, place};
use crate::message::{
    Delete, Encrypted, ExchangeType, Header, Message, MessageBuilder, MessageId, Notify, NotifyType,
    ParseError, Payload, Payloads,
};
use crate::output::{Path, Reason, Time};
use crate::sa::{FirstDatagram, IkeSa, InitKey, Phase, RequestKind, digest};
use crate::suite::{IntAuth, Opened, Role, SkOpener};
use std::net::IpAddr;
use std::time::Duration;

/// No message of ours or of an honest peer is larger.
const MAX_MESSAGE: usize = 16 * 1024;
/// Nor is an IKE_SA_INIT, which half-open IKE SAs must store.
const MAX_INIT: usize = 4 * 1024;
/// Forged hints lead to a liveness check at most this often (RFC 7296 §2.21.4).
pub(super) const HINT_INTERVAL: Duration = Duration::from_secs(10);

/// A datagram with its circumstances.
#[derive(Clone, Copy)]
pub(crate) struct Datagram<'a> {
    pub(crate) now: Time,
    pub(crate) path: Path,
    pub(crate) bytes: &'a [u8],
}

impl Endpoint {
    pub(crate) fn dispatch(&mut self, datagram: Datagram<'_>) {
        let Datagram { now, path, bytes } = datagram;
        if bytes.len() > MAX_MESSAGE {
            let length = bytes.len();
            return self.discard(now, Discard::TooLarge, || {
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
        let Some(sa) = self.table.by_spi(ours) else { return self.unknown(datagram, header) };
        let id = sa.id;
        if let Err((reason, why)) = check_header(sa, &header, bytes) {
            return self.discard(now, reason, || format!("ignored {why} from {}", path.remote));
        }
        let message = match Message::parse(bytes) {
            Ok(message) => message,
            Err(error) => return self.unreadable(datagram, &error),
        };
        self.with_sa(now, id, |endpoint, sa| endpoint.of_sa(datagram, sa, &message));
    }

    /// What cannot be read as a message. Only a higher major version is answered (RFC 7296 §2.5), for nobody vouches
    /// for the rest.
    fn unreadable(&mut self, datagram: Datagram<'_>, error: &ParseError) {
        let Datagram { now, path, bytes } = datagram;
        if let ParseError::MajorVersion { found, header } = *error {
            if found > 2 && !header.response {
                self.answer_with(datagram, header, Notify::new(NotifyType::InvalidMajorVersion, Vec::new()));
            }
            return self.discard(now, Discard::Version, || {
                format!("ignored a message of IKE version {found} from {}", path.remote)
            });
        }
        self.discard(now, Discard::Malformed, || {
            format!("ignored a malformed message of {} octets from {}: {error}", bytes.len(), path.remote)
        });
    }

    /// A message that names no IKE SA of ours. After a crash of ours the peer learns by the answer that it should look
    /// (RFC 7296 §2.21.4).
    fn unknown(&mut self, datagram: Datagram<'_>, header: Header) {
        if !header.response {
            self.answer_with(datagram, header, Notify::new(NotifyType::InvalidIkeSpi, Vec::new()));
        }
        let remote = datagram.path.remote;
        self.discard(datagram.now, Discard::UnknownSpi, || {
            let (i, r) = (header.initiator_spi, header.responder_spi);
            format!("ignored a message from {remote} for an unknown IKE_SA {i}_i {r}_r")
        });
    }

    /// Answers a request outside any IKE SA, in clear, and not too often (RFC 7296 §2.21.4).
    fn answer_with(&mut self, datagram: Datagram<'_>, request: Header, notify: Notify) {
        if !self.answer_limit.take(datagram.now) {
            return;
        }
        let header = Header { response: true, from_initiator: !request.from_initiator, ..request };
        let message = MessageBuilder::new(header).with(Payload::Notify(notify));
        self.answer_stranger(datagram.path, datagram.bytes, &message);
    }

    /// IKE_SA_INIT, or its repetition.
    fn initiated(&mut self, datagram: Datagram<'_>, header: Header) {
        let Datagram { now, path, bytes } = datagram;
        let well_formed = header.from_initiator
            && header.message_id == MessageId(0)
            && header.responder_spi.is_zero()
            && !header.initiator_spi.is_zero();
        if !well_formed || bytes.len() > MAX_INIT {
            let reason = if well_formed { Discard::TooLarge } else { Discard::WrongRole };
            return self.discard(now, reason, || {
                format!("ignored an IKE_SA_INIT request from {} with an odd header or size", path.remote)
            });
        }
        let key = InitKey::of(path.remote, bytes);
        if let Some(sa) = self.table.by_init(&key) {
            let id = sa.id;
            return self.with_sa(now, id, |endpoint, sa| endpoint.repeat(datagram, sa, digest(bytes)));
        }
        if self.is_computing_for(key) {
            return self.stats.discard(Discard::Repeated);
        }
        let message = match Message::parse(bytes) {
            Ok(message) => message,
            Err(ParseError::Critical(payload)) => {
                self.answer_with(datagram, header, Notify::unsupported_critical(payload));
                return self.unreadable(datagram, &ParseError::Critical(payload));
            }
            Err(error) => return self.unreadable(datagram, &error),
        };
        self.init_request(&InitRequest { now, path, message: &message, bytes, key });
    }

    /// A message that belongs to an IKE SA by its header.
    fn of_sa(&mut self, datagram: Datagram<'_>, sa: &mut IkeSa, message: &Message<'_>) -> Result<(), Reason> {
        let Datagram { now, path, bytes } = datagram;
        let header = message.header;
        let place = place(sa, &header);
        let is_new =
            header.response || header.message_id >= sa.incoming.expected || place == Place::BesideWindow;
        if is_new && self.is_computing(sa.id, header.response) {
            self.stats.discard(Discard::Repeated);
            return Ok(());
        }
        if header.exchange == ExchangeType::IkeSaInit {
            self.show(sa, Way::Received, &header, message.payloads.iter().as_slice());
            return self.init_response(now, sa, Reply { path, message, bytes });
        }
        let Some(encrypted) = &message.encrypted else {
            self.unprotected(datagram, sa, message);
            return Ok(());
        };
        if !may_come_from(sa, path) {
            self.discard(now, Discard::Elsewhere, || {
                let first = sa.path.remote.ip();
                format!(
                    "ignored {} from {}: IKE_SA_INIT came from {first}, and there is no NAT",
                    header.exchange, path.remote
                )
            });
            return Ok(());
        }
        let seen = digest(bytes);
        let is_old = header.message_id < sa.incoming.expected
            && (place != Place::BesideWindow || encrypted.fragment.is_some());
        if !header.response && (is_old || sa.incoming.answered(&seen).is_some()) {
            return match encrypted.fragment {
                None => self.repeat(datagram, sa, seen),
                Some(fragment) => self.repeated_fragment(datagram, sa, header, encrypted, fragment),
            };
        }
        if let Some(fragment) = encrypted.fragment
            && let Err(why) = wants_fragment(sa, header, fragment)
        {
            self.discard(now, Discard::Fragment, || format!("ignored {why} from {}", path.remote));
            return Ok(());
        }
        let opener = sa.keys.as_ref().map(|keys| &keys.opener);
        let Some(opened) = opener.and_then(|opener| self.unseal(datagram, opener, header, encrypted)) else {
            return Ok(());
        };
        if let Some(payloads) = beside_window(place, encrypted, &opened) {
            return self.sync_message(datagram, sa, header, seen, &payloads);
        }
        self.heard(now, sa, path);
        let first = FirstDatagram { digest: seen, head: encrypted.head() };
        let whole = match encrypted.fragment {
            None => Some((opened, first)),
            Some(fragment) => self.collect(datagram, sa, header, fragment, first, opened),
        };
        let Some((opened, first)) = whole else { return Ok(()) };
        let counted = if header.response { Counted::InResponse } else { Counted::InRequest };
        self.count_message(sa, header.exchange, counted);
        if self.config.details
            && let Ok(payloads) = opened.payloads()
        {
            self.show(sa, Way::Received, &header, payloads.iter().as_slice());
        }
        let digest = first.digest;
        let request = Request { exchange: header.exchange, id: header.message_id, path, digest };
        match (header.exchange, header.response) {
            (ExchangeType::IkeIntermediate, response) => {
                let covered = covered(sa, &first, &opened)?;
                match response {
                    true => self.intermediate_response(now, sa, covered, opened.payloads()),
                    false => self.intermediate_request(now, sa, &request, covered, opened.payloads()),
                }
            }
            (_, true) => self.protected_response(now, sa, header, opened.payloads()),
            (_, false) => self.protected_request(now, sa, &request, opened.payloads()),
        }
    }

    /// The peer lives, and where its message comes from.
    pub(crate) fn heard(&mut self, now: Time, sa: &mut IkeSa, path: Path) {
        self.commit(sa);
        sa.last_heard = now;
        self.follow(sa, path);
    }

    /// Checks and decrypts; what fails is as if it had never come.
    pub(super) fn unseal(
        &mut self,
        datagram: Datagram<'_>,
        opener: &SkOpener,
        header: Header,
        encrypted: &Encrypted<'_>,
    ) -> Option<Opened> {
        match opener.open(encrypted) {
            Ok(opened) => Some(opened),
            Err(error) => {
                self.discard(datagram.now, Discard::Integrity, || {
                    format!("ignored {} from {}: {error}", header.exchange, datagram.path.remote)
                });
                None
            }
        }
    }

    fn protected_request(
        &mut self,
        now: Time,
        sa: &mut IkeSa,
        request: &Request,
        payloads: Result<Payloads, ParseError>,
    ) -> Result<(), Reason> {
        if request.exchange == ExchangeType::IkeAuth {
            return self.auth_request(now, sa, request, payloads);
        }
        if sa.rival_of.is_some() && payloads.as_ref().is_ok_and(|payloads| !ends_ike_sa(payloads)) {
            self.decide_for(now, sa)?;
        }
        self.peer_is_ready(sa);
        match (payloads, request.exchange) {
            (Err(error), _) => self.unreadable_request(now, sa, request, &error),
            (Ok(payloads), ExchangeType::CreateChildSa | ExchangeType::IkeFollowupKe) => {
                self.create_child_request(now, sa, request, payloads)
            }
            (Ok(payloads), _) => self.informational_request(now, sa, request, &payloads),
        }
    }

    fn protected_response(
        &mut self,
        now: Time,
        sa: &mut IkeSa,
        header: Header,
        payloads: Result<Payloads, ParseError>,
    ) -> Result<(), Reason> {
        if header.exchange == ExchangeType::IkeAuth {
            return self.auth_response(now, sa, payloads);
        }
        let Some(kind) = sa.outgoing.asked(header.exchange, header.message_id) else { return Ok(()) };
        let payloads = payloads
            .map_err(|error| Reason::Refused(format!("the peer sent a malformed response: {error}")))?;
        if kind == RequestKind::CreateChild {
            return self.create_child_response(now, sa, header, payloads);
        }
        sa.outgoing.answered(header.exchange, header.message_id);
        self.informational_response(now, sa, kind, &payloads)
    }

    /// An answered request comes again: the answer goes out again, octet for octet. To where the request comes from, for a
    /// NAT may have changed that; but where there is none, another address is that of a victim.
    pub(super) fn repeat(
        &mut self,
        datagram: Datagram<'_>,
        sa: &mut IkeSa,
        digest: [u8; 32],
    ) -> Result<(), Reason> {
        let Datagram { now, path, .. } = datagram;
        let elsewhere = path.remote.ip() != sa.path.remote.ip();
        let may = sa.nat.remote || !elsewhere;
        let response = match sa.incoming.answered(&digest).filter(|_| may) {
            None => Err("an old request"),
            Some(last) if last.is_repeated_too_often(now, elsewhere) => {
                Err("a request that was answered often enough")
            }
            Some(last) => {
                last.repeated(now);
                Ok(last.response.to_vec())
            }
        };
        match response {
            Ok(response) => {
                self.stats.responses_repeated += 1;
                self.send(now, sa, path, response);
            }
            Err(what) => {
                self.discard(now, Discard::MessageId, || format!("ignored {what} from {}", path.remote));
            }
        }
        Ok(())
    }

    /// A message in clear within an IKE SA changes nothing. One that says that the peer has lost the SA makes us ask,
    /// now and then (RFC 7296 §2.21.4).
    fn unprotected(&mut self, datagram: Datagram<'_>, sa: &mut IkeSa, message: &Message<'_>) {
        let Datagram { now, path, .. } = datagram;
        let hint = message.payloads.notify(NotifyType::InvalidIkeSpi).is_some();
        if hint && sa.is_established() && sa.outgoing.pending.is_none() && now >= sa.next_hint {
            sa.next_hint = now.plus(HINT_INTERVAL);
            // The request can fail to be sealed only when no IV is left; then nothing else can be sent either.
            if self.check_liveness(now, sa).is_err() {
                self.stats.discard(Discard::Exhausted);
            }
        }
        self.discard(now, Discard::Unprotected, || {
            let kind = message.payloads.error().map_or_else(|| "nothing".to_owned(), |n| n.kind.to_string());
            format!("ignored an unprotected message from {} that tells {kind}", path.remote)
        });
    }
}

/// False while an initiator is not authenticated, if its message takes another way than IKE_SA_INIT
/// did and no NAT can have changed that: the tunnels would end where nobody has shown to be. Its
/// port may be another (RFC 7296 §2.23).
fn may_come_from(sa: &IkeSa, path: Path) -> bool {
    let moved = |changeable: bool, from: IpAddr, to: IpAddr| !changeable && from != to;
    sa.phase.half_open().is_none()
        || !moved(sa.nat.local, sa.path.local.ip(), path.local.ip())
            && !moved(sa.nat.remote, sa.path.remote.ip(), path.remote.ip())
}

/// True for a delete of the IKE SA.
fn ends_ike_sa(payloads: &Payloads) -> bool {
    payloads.deletes().any(|delete| *delete == Delete::IkeSa)
}

/// What AUTH covers with the message: as it came, and with the keys under which it came (RFC 9242 §3.3.2). The SA takes it
/// over once the message has had its effect.
fn covered(sa: &IkeSa, first: &FirstDatagram, opened: &Opened) -> Result<IntAuth, Reason> {
    let mut int_auth = sa.phase.int_auth().cloned().unwrap_or_default();
    if let Some(keys) = &sa.keys {
        int_auth.received(&keys.ike, sa.role.peer(), &first.head, opened)?;
    }
    Ok(int_auth)
}

/// What a message holds that has its place beside the windows. One that may be of the window too is known by what it holds.
fn beside_window(place: Place, encrypted: &Encrypted<'_>, opened: &Opened) -> Option<Payloads> {
    let payloads = || opened.payloads().unwrap_or_default();
    let syncs = |payloads: &Payloads| payloads.notify(NotifyType::MessageIdSync).is_some();
    match place {
        Place::Window => None,
        Place::BesideWindow => Some(payloads()),
        Place::Either => encrypted.fragment.is_none().then(payloads).filter(syncs),
    }
}

/// Whether a message may belong to the SA at all, by what can be seen without a key.
fn check_header(sa: &IkeSa, header: &Header, bytes: &[u8]) -> Result<(), (Discard, &'static str)> {
    let peer_is_initiator = sa.role == Role::Responder;
    if header.from_initiator != peer_is_initiator {
        return Err((Discard::WrongRole, "a message of ours that came back"));
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
        false => Err((Discard::UnexpectedResponse, "a response that nothing waits for")),
        true if place(sa, header) == Place::BesideWindow && is_fragment(bytes) => {
            Err((Discard::Fragment, "a fragment beside the window"))
        }
        true => Ok(()),
    }
}

fn check_request(sa: &IkeSa, header: &Header, bytes: &[u8]) -> Result<(), (Discard, &'static str)> {
    let last = sa.incoming.last.as_ref().filter(|last| last.id == header.message_id);
    // Repeated fragments need not be the same: the peer may have made them smaller (RFC 7383 §2.5.2).
    if last.is_some_and(|last| is_fragment(bytes) || last.digest == digest(bytes)) {
        return Ok(());
    }
    let beside = place(sa, header) == Place::BesideWindow && !is_fragment(bytes);
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
