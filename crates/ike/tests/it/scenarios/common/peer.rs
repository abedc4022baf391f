//! An initiator that says whatever a scenario wants: the suites are real, the manners are not.

use super::{Random, World};
use testudo_base::spi::{SenderId, Spi};
use testudo_ike::config::{EspProposal, Identity, IkeProposal, KeyExchange};
use testudo_ike::message::{
    ExchangeType, Header, IdPayload, IkeSpi, Message, MessageBuilder, MessageId, Nonce, Notify, NotifyType,
    Payload, SaSpi, TsPayload,
};
use testudo_ike::output::Path;
use testudo_ike::suite::{
    Entropy, IkeKeys, IkeSpis, IntAuth, KePrivate, Nonces, Role, SignedOctets, SkOpener, SkSealer, accept,
    offer, select,
};
use testudo_ipsec::sa::EspAlgorithm;

pub(crate) struct Peer {
    pub(crate) path: Path,
    pub(crate) spis: IkeSpis,
    pub(crate) keys: IkeKeys,
    pub(crate) sealer: SkSealer,
    pub(crate) opener: SkOpener,
    pub(crate) nonces: Nonces,
    init_request: Vec<u8>,
    init_response: Vec<u8>,
    /// The octets of IKE_INTERMEDIATE.
    pub(crate) int_auth: IntAuth,
    /// Message ID of the next request.
    pub(crate) next: u32,
    /// The last request as sent.
    pub(crate) last: Vec<u8>,
}

/// SPI of the child that the peer offers.
pub(crate) const SPI: Spi = Spi(0x1234_5678);

/// The header of an IKE_SA_INIT request, with an SPI of its own.
pub(crate) fn init_header(random: &mut Random) -> Header {
    Header {
        initiator_spi: IkeSpi(random.next()),
        responder_spi: IkeSpi::ZERO,
        exchange: ExchangeType::IkeSaInit,
        from_initiator: true,
        response: false,
        message_id: MessageId(0),
    }
}

/// The payloads of an IKE_SA_INIT request, and what stays secret.
pub(crate) fn init_payloads(random: &mut Random) -> (Vec<Payload>, KePrivate, Nonce) {
    init_payloads_for(random, &[super::build::ike_proposal(&[KeyExchange::X25519])])
}

fn init_payloads_for(random: &mut Random, proposals: &[IkeProposal]) -> (Vec<Payload>, KePrivate, Nonce) {
    let ke = KePrivate::generate(KeyExchange::X25519, random).unwrap();
    let mut octets = vec![0; 32];
    random.fill(&mut octets);
    let nonce = Nonce::new(octets).unwrap();
    let payloads = vec![
        Payload::Sa(offer::ike(proposals, None)),
        Payload::Ke(ke.payload()),
        Payload::Nonce(nonce.clone()),
    ];
    (payloads, ke, nonce)
}

/// Sends octets to host 0 of the world; gives what it sends back at once.
pub(crate) fn exchange(world: &mut World, path: Path, bytes: &[u8]) -> Vec<Vec<u8>> {
    let before = world.hosts[0].sent.len();
    let arrival = Path { local: path.remote, remote: path.local };
    let now = world.now;
    world.hosts[0].endpoint.handle_datagram(now, arrival, bytes);
    world.settle(0);
    world.hosts[0].sent[before..].iter().map(|(_, bytes)| bytes.clone()).collect()
}

pub(crate) fn message(header: Header, payloads: Vec<Payload>) -> MessageBuilder {
    payloads.into_iter().fold(MessageBuilder::new(header), MessageBuilder::with)
}

impl Peer {
    /// Host 0 becomes sun; the peer is moon, as far as IKE_SA_INIT. `extra` goes behind the
    /// payloads of the request.
    pub(crate) fn init(world: &mut World, seed: u64, extra: Vec<Payload>) -> Self {
        Self::try_init(world, seed, extra).unwrap_or_else(|| panic!("an answer: {:?}", world.hosts[0].log()))
    }

    /// The same; returns a cookie if one is demanded. `None` if there is no answer.
    pub(crate) fn try_init(world: &mut World, seed: u64, extra: Vec<Payload>) -> Option<Self> {
        let proposals = [super::build::ike_proposal(&[KeyExchange::X25519])];
        Self::try_init_for(world, seed, &proposals, extra)
    }

    /// The same with another offer.
    pub(crate) fn try_init_for(
        world: &mut World,
        seed: u64,
        proposals: &[IkeProposal],
        extra: Vec<Payload>,
    ) -> Option<Self> {
        let path = Path { local: "192.0.2.1:500".parse().unwrap(), remote: "192.0.2.2:500".parse().unwrap() };
        let mut random = Random::new(seed);
        let (mut payloads, ke, nonce) = init_payloads_for(&mut random, proposals);
        payloads.extend(extra);
        let header = init_header(&mut random);
        let initiator = header.initiator_spi;
        let mut request = message(header, payloads.clone()).finish().unwrap();
        let mut answers = exchange(world, path, &request);
        let demand = Message::parse(answers.first()?).unwrap();
        if let Some(cookie) = demand.payloads.notify(NotifyType::Cookie) {
            payloads.insert(0, Payload::Notify(cookie.clone()));
            request = message(header, payloads).finish().unwrap();
            answers = exchange(world, path, &request);
        }
        let [answer] = &answers[..] else { return None };
        let response = Message::parse(answer).unwrap();
        let spis = IkeSpis { initiator, responder: response.header.responder_spi };
        let answer = response.payloads.sa()?;
        let (suite, _) = accept::ike(&offer::ike(proposals, None), proposals, answer).unwrap();
        let shared = ke.agree(response.payloads.ke().unwrap()).unwrap();
        let nonces = Nonces { initiator: nonce, responder: response.payloads.nonce().unwrap().clone() };
        let keys = IkeKeys::derive(suite, &shared, &nonces, spis).unwrap();
        Some(Self {
            path,
            spis,
            sealer: keys.sealer(Role::Initiator, SenderId(0xffff)),
            opener: keys.opener(Role::Responder),
            keys,
            nonces,
            init_request: request,
            init_response: answers[0].clone(),
            int_auth: IntAuth::default(),
            next: 1,
            last: Vec::new(),
        })
    }

    /// As far as IKE_AUTH, with a child.
    pub(crate) fn establish(world: &mut World, seed: u64) -> Self {
        let mut peer = Self::init(world, seed, vec![]);
        let payloads = peer.auth_payloads();
        let answer = peer.request(world, ExchangeType::IkeAuth, payloads).expect("an answer");
        assert!(answer.iter().any(|payload| matches!(payload, Payload::Sa(_))), "{answer:?}");
        peer
    }

    /// The payloads of a correct moon in IKE_AUTH.
    pub(crate) fn auth_payloads(&self) -> Vec<Payload> {
        self.auth_as(&super::build::fqdn("moon"), b"a shared key")
    }

    /// The octets that AUTH of moon covers.
    pub(crate) fn signed_octets(&self, id: &IdPayload) -> Vec<u8> {
        let octets = SignedOctets {
            message: &self.init_request,
            peer_nonce: &self.nonces.responder,
            id,
            int_auth: &[],
        };
        self.keys.signed_octets(Role::Initiator, &octets).unwrap()
    }

    /// The octets that AUTH of the host covers.
    pub(crate) fn octets_of_host(&self, id: &IdPayload) -> Vec<u8> {
        let octets = SignedOctets {
            message: &self.init_response,
            peer_nonce: &self.nonces.initiator,
            id,
            int_auth: &[],
        };
        self.keys.signed_octets(Role::Responder, &octets).unwrap()
    }

    pub(crate) fn auth_as(&self, identity: &Identity, psk: &[u8]) -> Vec<Payload> {
        let id = IdPayload::from(identity);
        let octets = SignedOctets {
            message: &self.init_request,
            peer_nonce: &self.nonces.responder,
            id: &id,
            int_auth: &self.int_auth.octets(MessageId(self.next)),
        };
        let auth = self.keys.psk_auth(Role::Initiator, psk, &octets).unwrap();
        let esp: EspProposal = super::build::esp_proposal(EspAlgorithm::Aes128Gcm16);
        let ts = |range: &str| TsPayload::new(vec![super::build::ts(range)]);
        vec![
            Payload::IdInitiator(id),
            Payload::Auth(auth),
            Payload::Sa(offer::esp(&[esp], SPI, offer::ChildExchange::IkeAuth)),
            Payload::TsInitiator(ts("10.109.0.0-10.109.255.255")),
            Payload::TsResponder(ts("10.115.0.0-10.115.255.255")),
        ]
    }

    pub(crate) fn header(&self, exchange: ExchangeType, response: bool, id: u32) -> Header {
        Header {
            initiator_spi: self.spis.initiator,
            responder_spi: self.spis.responder,
            exchange,
            from_initiator: true,
            response,
            message_id: MessageId(id),
        }
    }

    /// The next request, sealed.
    pub(crate) fn seal(&mut self, exchange: ExchangeType, payloads: Vec<Payload>) -> Vec<u8> {
        let header = self.header(exchange, false, self.next);
        self.sealer.seal(&message(header, payloads), &mut Random::new(1)).unwrap()
    }

    /// Sends the next request; gives what the answer holds, if there is one.
    pub(crate) fn request(
        &mut self,
        world: &mut World,
        exchange: ExchangeType,
        payloads: Vec<Payload>,
    ) -> Option<Vec<Payload>> {
        let bytes = self.seal(exchange, payloads);
        self.request_bytes(world, bytes)
    }

    pub(crate) fn request_bytes(&mut self, world: &mut World, bytes: Vec<u8>) -> Option<Vec<Payload>> {
        let answers = self::exchange(world, self.path, &bytes);
        self.last = bytes;
        let answer = self.open(answers.first()?);
        self.next += 1;
        Some(answer)
    }

    /// Answers the host's request number `id` with nothing; gives what the host says to that.
    pub(crate) fn answer(&mut self, world: &mut World, exchange: ExchangeType, id: u32) -> Vec<Vec<u8>> {
        let header = self.header(exchange, true, id);
        let bytes = self.sealer.seal(&message(header, vec![]), &mut Random::new(1)).unwrap();
        self::exchange(world, self.path, &bytes)
    }

    /// Answers the host's wish for a Child SA that stands in the last of its messages, its request
    /// number `id`, with the nonce and the selectors asked for; gives the SPI that the host chose,
    /// and what it says to that.
    pub(crate) fn answer_child(
        &mut self,
        world: &mut World,
        id: u32,
        (spi, nonce): (Spi, [u8; 32]),
    ) -> (Spi, Vec<Vec<u8>>) {
        let asked = self.open(&world.hosts[0].sent.last().unwrap().1.clone());
        let mut payloads = Vec::new();
        let mut chosen = None;
        for payload in asked {
            match payload {
                Payload::Sa(offered) => {
                    let SaSpi::Child(theirs) = offered.proposals[0].spi else { panic!("{offered:?}") };
                    let esp = super::build::esp_proposal(EspAlgorithm::Aes128Gcm16);
                    let exchange = offer::ChildExchange::CreateChildSa;
                    let choice = select::esp(&offered, &[esp], exchange).unwrap();
                    chosen = Some(theirs);
                    payloads.push(Payload::Sa(choice.answer(spi)));
                    payloads.push(Payload::Nonce(Nonce::new(nonce.to_vec()).unwrap()));
                }
                Payload::TsInitiator(_) | Payload::TsResponder(_) => payloads.push(payload),
                _ => {}
            }
        }
        let header = self.header(ExchangeType::CreateChildSa, true, id);
        let bytes = self.sealer.seal(&message(header, payloads), &mut Random::new(1)).unwrap();
        (chosen.expect("an offer"), self::exchange(world, self.path, &bytes))
    }

    /// The content of a protected message of the host.
    pub(crate) fn open(&self, bytes: &[u8]) -> Vec<Payload> {
        let message = Message::parse(bytes).unwrap();
        assert_eq!(message.payloads.iter().count(), 0, "nothing in clear");
        let opened = self.opener.open(&message.encrypted.expect("protected")).unwrap();
        opened.payloads().unwrap().into()
    }
}

/// The one notify of an answer that holds nothing else.
pub(crate) fn only_notify(answer: Option<Vec<Payload>>) -> NotifyType {
    match answer.as_deref() {
        Some([Payload::Notify(notify)]) => notify.kind,
        other => panic!("one notify, not {other:?}"),
    }
}

pub(crate) fn status(kind: NotifyType) -> Payload {
    Payload::Notify(Notify::new(kind, Vec::new()))
}
