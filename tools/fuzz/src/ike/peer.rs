//! The peer: honest by itself, but the fuzzer may edit its next message before it is sealed and
//! sent.

use super::config::{PEER, PSK, connections};
use super::seal::{Head, MessageKeys};
use testudo_base::spi::Spi;
use testudo_ike::config::{Child, Connection, Identity, TsSpec};
use testudo_ike::message::{
    AuthPayload, ExchangeType, Header, IdPayload, IkeSpi, KePayload, Message, MessageBuilder, MessageId,
    Nonce, Notify, NotifyType, Payload, PayloadType, SaPayload, TsPayload,
};
use testudo_ike::suite::offer::ChildExchange;
use testudo_ike::suite::{
    Entropy, IkeKeys, IkeSpis, IkeSuite, KePrivate, Nonces, Role, SignedOctets, nat_detection_hash, offer,
    select,
};

const INIT: u8 = 34;
pub(super) const AUTH: u8 = 35;
const INFORMATIONAL: u8 = 37;
const RESPONSE: u8 = 0x20;
const FROM_INITIATOR: u8 = 0x08;
/// The SPI of packets to the peer.
const SPI: Spi = Spi(0x5050_0100);

/// The peer of the endpoint under test.
#[derive(Clone)]
pub(crate) struct Peer {
    role: Role,
    nat: bool,
    nonce: Nonce,
    spi: IkeSpi,
    cookie: Option<Vec<u8>>,
    /// The IKE_SA_INIT messages as they were sent, which AUTH covers.
    request: Vec<u8>,
    response: Vec<u8>,
    sa: Option<Sa>,
    next_request: u32,
    /// A request of the endpoint that has not been answered yet.
    asked: Option<(ExchangeType, u32)>,
    child: Option<SaPayload>,
}

/// Keys.
#[derive(Clone)]
struct Sa {
    spis: IkeSpis,
    ike: IkeKeys,
    messages: MessageKeys,
    nonces: Nonces,
}

/// A message before it is sealed: its payloads in clear, and its header.
pub(super) struct Draft {
    pub(super) head: Head,
    pub(super) first: u8,
    pub(super) payloads: Vec<u8>,
    /// Whether the payloads go into an Encrypted payload.
    pub(super) sealed: bool,
}

struct Constant;

impl Entropy for Constant {
    fn fill(&mut self, out: &mut [u8]) {
        out.fill(0x33);
    }
}

/// The endpoint's connection to this peer.
fn site() -> &'static Connection {
    &connections()[0]
}

/// The child that this peer requests.
fn net() -> &'static Child {
    &site().children[0]
}

/// The selectors that are not dynamic.
fn fixed(specs: &[TsSpec]) -> TsPayload {
    let fixed = specs.iter().filter_map(|spec| match spec {
        TsSpec::Fixed(selector) => Some(*selector),
        TsSpec::Dynamic { .. } => None,
    });
    TsPayload::new(fixed.collect())
}

impl Peer {
    /// A peer that initiates or responds. With `nat` it seems to be behind one.
    pub(crate) fn new(role: Role, nat: bool) -> Self {
        Self {
            role,
            nat,
            nonce: Nonce::new(vec![0x44; 32]).expect("a nonce"),
            spi: IkeSpi(0x0505_0505_0505_0505),
            cookie: None,
            request: Vec::new(),
            response: Vec::new(),
            sa: None,
            next_request: 0,
            asked: None,
            child: None,
        }
    }

    /// The SPIs that are known so far.
    fn spis(&self) -> IkeSpis {
        let none = match self.role {
            Role::Initiator => IkeSpis { initiator: self.spi, responder: IkeSpi::ZERO },
            Role::Responder => IkeSpis { initiator: self.their_spi(), responder: self.spi },
        };
        self.sa.as_ref().map_or(none, |sa| sa.spis)
    }

    /// The SPI of the initiator, from its request.
    fn their_spi(&self) -> IkeSpi {
        self.request.first_chunk().map_or(IkeSpi::ZERO, |spi| IkeSpi(u64::from_be_bytes(*spi)))
    }

    fn flag(&self) -> u8 {
        if self.role == Role::Initiator { FROM_INITIATOR } else { 0 }
    }

    /// The header of the next request, or of the answer that is due.
    pub(super) fn head(&self, exchange: u8, response: bool) -> Head {
        let (flags, id) = match self.asked {
            Some((_, id)) if response => (self.flag() | RESPONSE, id),
            _ if response => (self.flag() | RESPONSE, 0),
            _ => (self.flag(), self.next_request),
        };
        Head { spis: self.spis(), exchange, flags, id }
    }

    /// Seals any content. `None` before there are keys.
    pub(super) fn seal(&self, head: Head, first: u8, content: &[u8], pad_len: u8) -> Option<Vec<u8>> {
        let sa = self.sa.as_ref()?;
        Some(sa.messages.seal(self.role, head, first, content, pad_len))
    }

    /// The next message of an honest peer: an answer if one is due, else a request.
    pub(super) fn next(&self) -> Option<Draft> {
        match (self.role, &self.asked, &self.sa) {
            (_, Some((ExchangeType::IkeSaInit, _)), _) => self.init_response(),
            (_, Some((ExchangeType::IkeAuth, _)), Some(sa)) => self.auth_response(sa),
            (_, Some((exchange, _)), Some(_)) => {
                Some(self.draft(u8::from(*exchange), true, Vec::new(), true))
            }
            (Role::Initiator, None, None) => self.init_request(),
            (Role::Initiator, None, Some(sa)) if self.next_request == 1 => self.auth_request(sa),
            (_, None, Some(_)) => Some(self.draft(INFORMATIONAL, false, Vec::new(), true)),
            _ => None,
        }
    }

    fn draft(&self, exchange: u8, response: bool, payloads: Vec<Payload>, sealed: bool) -> Draft {
        let first = payloads.first().map_or(PayloadType::None, Payload::kind);
        let header = Header {
            initiator_spi: IkeSpi::ZERO,
            responder_spi: IkeSpi::ZERO,
            exchange: ExchangeType::from(exchange),
            from_initiator: false,
            response,
            message_id: MessageId(0),
        };
        let message = payloads.into_iter().fold(MessageBuilder::new(header), MessageBuilder::with);
        let payloads = message.draft(0).expect("a message").plaintext;
        Draft { head: self.head(exchange, response), first: u8::from(first), payloads, sealed }
    }

    /// Notifies with a wrong source address, so that this peer seems to be behind a NAT.
    fn nat_notifies(&self) -> Vec<Payload> {
        let addr = |text: &str| text.parse().expect("an address");
        let spis = IkeSpis { responder: IkeSpi::ZERO, ..self.spis() };
        let spis = if self.role == Role::Initiator { spis } else { self.spis() };
        let to = nat_detection_hash(spis, addr("192.0.2.1:500"));
        let notify = |kind: u16, data| Payload::Notify(Notify::new(NotifyType::from(kind), data));
        if self.nat { vec![notify(16388, vec![0; 20]), notify(16389, to)] } else { Vec::new() }
    }

    fn init_request(&self) -> Option<Draft> {
        let cookie =
            self.cookie.clone().map(|cookie| Payload::Notify(Notify::new(NotifyType::Cookie, cookie)));
        let proposals = &site().proposals;
        let ke = KePrivate::generate(*proposals.first()?.ke.first()?, &mut Constant).ok()?;
        let payloads = [
            Payload::Sa(offer::ike(proposals, None)),
            Payload::Ke(ke.payload()),
            Payload::Nonce(self.nonce.clone()),
        ];
        let all = cookie.into_iter().chain(payloads).chain(self.nat_notifies()).collect();
        Some(self.draft(INIT, false, all, false))
    }

    fn init_response(&self) -> Option<Draft> {
        let request = Message::parse(&self.request).ok()?;
        let choice = select::ike(request.payloads.sa()?, &site().proposals).ok()?;
        let ke = KePrivate::generate(choice.suite.ke, &mut Constant).ok()?;
        let payloads =
            [Payload::Sa(choice.answer(None)), Payload::Ke(ke.payload()), Payload::Nonce(self.nonce.clone())];
        Some(self.draft(INIT, true, payloads.into_iter().chain(self.nat_notifies()).collect(), false))
    }

    /// IDr or IDi, and AUTH.
    fn proof(&self, sa: &Sa) -> Option<(IdPayload, AuthPayload)> {
        let id = IdPayload::from(&Identity::Fqdn(PEER.to_owned()));
        let (message, peer_nonce) = match self.role {
            Role::Initiator => (&self.request, &sa.nonces.responder),
            Role::Responder => (&self.response, &sa.nonces.initiator),
        };
        let octets = SignedOctets { message, peer_nonce, id: &id, int_auth: &[] };
        let auth = sa.ike.psk_auth(self.role, PSK, &octets).ok()?;
        Some((id, auth))
    }

    fn auth_request(&self, sa: &Sa) -> Option<Draft> {
        let (id, auth) = self.proof(sa)?;
        let child = net();
        let payloads = vec![
            Payload::IdInitiator(id),
            Payload::Auth(auth),
            Payload::Sa(offer::esp(&child.proposals, SPI, ChildExchange::IkeAuth)),
            Payload::TsInitiator(fixed(&child.remote_ts)),
            Payload::TsResponder(fixed(&child.local_ts)),
        ];
        Some(self.draft(AUTH, false, payloads, true))
    }

    fn auth_response(&self, sa: &Sa) -> Option<Draft> {
        let (id, auth) = self.proof(sa)?;
        let child = net();
        let choice = select::esp(self.child.as_ref()?, &child.proposals, ChildExchange::IkeAuth).ok()?;
        let payloads = vec![
            Payload::IdResponder(id),
            Payload::Auth(auth),
            Payload::Sa(choice.answer(SPI)),
            Payload::TsInitiator(fixed(&child.local_ts)),
            Payload::TsResponder(fixed(&child.remote_ts)),
        ];
        Some(self.draft(AUTH, true, payloads, true))
    }

    /// Seals and sends a draft, and records what later messages need.
    pub(super) fn send(&mut self, draft: &Draft) -> Option<Vec<u8>> {
        let message = if draft.sealed {
            self.seal(draft.head, draft.first, &draft.payloads, 0)?
        } else {
            draft.head.clear(draft.first, &draft.payloads)
        };
        if draft.head.exchange == INIT {
            match self.role {
                Role::Initiator => self.request = message.clone(),
                Role::Responder => {
                    self.response = message.clone();
                    self.keys();
                }
            }
        }
        if draft.head.flags & RESPONSE != 0 {
            self.asked = None;
        }
        Some(message)
    }

    /// A message of the endpoint arrives.
    pub(super) fn hear(&mut self, bytes: &[u8]) {
        let Ok(message) = Message::parse(bytes) else { return };
        let header = message.header;
        if !header.response {
            if header.exchange == ExchangeType::IkeSaInit {
                *self = Self { request: bytes.to_vec(), ..Self::new(Role::Responder, self.nat) };
            }
            self.asked = Some((header.exchange, header.message_id.0));
            if let Some((sa, encrypted)) = self.sa.as_ref().zip(message.encrypted)
                && let Ok(opened) = sa.ike.opener(self.role.peer()).open(&encrypted)
                && let Ok(payloads) = opened.payloads()
            {
                self.child = payloads.sa().cloned();
            }
        } else if header.exchange == ExchangeType::IkeSaInit {
            self.init_answered(bytes, &message);
        } else if header.message_id.0 == self.next_request {
            self.next_request = self.next_request.wrapping_add(1);
        }
    }

    fn init_answered(&mut self, bytes: &[u8], message: &Message<'_>) {
        if let Some(cookie) = message.payloads.notify(NotifyType::Cookie) {
            self.cookie = Some(cookie.data.clone());
        } else if self.sa.is_none() && message.payloads.sa().is_some() {
            self.response = bytes.to_vec();
            self.keys();
            self.next_request = 1;
        }
    }

    /// Derives the keys when both IKE_SA_INIT messages are there.
    fn keys(&mut self) {
        self.sa = self.derived();
    }

    fn derived(&self) -> Option<Sa> {
        let (request, response) = (Message::parse(&self.request).ok()?, Message::parse(&self.response).ok()?);
        let nonces = Nonces {
            initiator: request.payloads.nonce()?.clone(),
            responder: response.payloads.nonce()?.clone(),
        };
        let spis =
            IkeSpis { initiator: request.header.initiator_spi, responder: response.header.responder_spi };
        let chosen = select::ike(response.payloads.sa()?, &site().proposals).ok()?;
        let suite: IkeSuite = chosen.suite;
        let theirs: &KePayload =
            if self.role == Role::Initiator { response.payloads.ke()? } else { request.payloads.ke()? };
        let ke = KePrivate::generate(suite.ke, &mut Constant).ok()?;
        let shared = ke.agree(theirs).ok()?;
        let ike = IkeKeys::derive(suite, &shared, &nonces, spis).ok()?;
        let messages = MessageKeys::derive(suite, &shared, &nonces, spis);
        Some(Sa { spis, ike, messages, nonces })
    }
}
