//! A responder that says whatever a scenario wants.

use super::{Random, World, build, peer};
use testudo_base::spi::{SenderId, Spi};
use testudo_ike::config::KeyExchange;
use testudo_ike::message::{
    ExchangeType, Header, IdPayload, IkeSpi, Message, MessageId, Nonce, Payload, SaSpi, TsPayload,
};
use testudo_ike::output::Path;
use testudo_ike::suite::{
    Entropy, IkeKeys, IkeSpis, KePrivate, Nonces, Role, SignedOctets, SkOpener, SkSealer, offer, select,
};
use testudo_ipsec::sa::EspAlgorithm;

pub(crate) struct Responder {
    path: Path,
    spis: IkeSpis,
    keys: IkeKeys,
    sealer: SkSealer,
    opener: SkOpener,
    nonces: Nonces,
    init_response: Vec<u8>,
    /// The host's IKE_AUTH payloads.
    pub(crate) auth: Vec<Payload>,
}

/// SPI of the child that the responder answers with.
pub(crate) const SPI: Spi = Spi(0x0765_4321);

impl Responder {
    /// Host 0 is moon, and initiates to sun, which answers its IKE_SA_INIT.
    pub(crate) fn answer_init(world: &mut World) -> Self {
        Self::answer_init_saying(world, vec![])
    }

    /// Host 0 is moon, and sets up an IKE SA with sun and its child.
    pub(crate) fn establish(world: &mut World) -> Self {
        let mut sun = Self::answer_init(world);
        let payloads = sun.auth_payloads();
        sun.answer(world, ExchangeType::IkeAuth, 1, payloads);
        sun
    }

    /// Answers its IKE_SA_INIT only, with this in the answer too.
    pub(crate) fn answer_init_saying(world: &mut World, more: Vec<Payload>) -> Self {
        world.initiate(0);
        let (path, request) = world.hosts[0].sent.last().unwrap().clone();
        let request = Message::parse(&request).unwrap();
        let mut random = Random::new(4711);
        let proposals = [build::ike_proposal(&[KeyExchange::X25519])];
        let choice = select::ike(request.payloads.sa().unwrap(), &proposals).unwrap();
        let ke = KePrivate::generate(KeyExchange::X25519, &mut random).unwrap();
        let mut octets = vec![0; 32];
        random.fill(&mut octets);
        let responder = Nonce::new(octets).unwrap();
        let mut payloads = vec![
            Payload::Sa(choice.answer(None)),
            Payload::Ke(ke.payload()),
            Payload::Nonce(responder.clone()),
        ];
        payloads.extend(more);
        let initiator = request.header.initiator_spi;
        let spis = IkeSpis { initiator, responder: IkeSpi(random.next()) };
        let nonces = Nonces { initiator: request.payloads.nonce().unwrap().clone(), responder };
        let shared = ke.agree(request.payloads.ke().unwrap()).unwrap();
        let keys = IkeKeys::derive(choice.suite, &shared, &nonces, spis).unwrap();
        let header = header(spis, ExchangeType::IkeSaInit, true, 0);
        let init_response = peer::message(header, payloads).finish().unwrap();
        let mut this = Self {
            path: Path { local: path.remote, remote: path.local },
            spis,
            sealer: keys.sealer(Role::Responder, SenderId(0xffff)),
            opener: keys.opener(Role::Initiator),
            keys,
            nonces,
            init_response: init_response.clone(),
            auth: Vec::new(),
        };
        let said = this.exchange(world, &init_response);
        this.auth = this.open(&said[0]);
        this
    }

    /// The answer of a correct sun in IKE_AUTH.
    pub(crate) fn auth_payloads(&self) -> Vec<Payload> {
        self.auth_as("sun", b"a shared key")
    }

    pub(crate) fn auth_as(&self, name: &str, psk: &[u8]) -> Vec<Payload> {
        let id = IdPayload::from(&build::fqdn(name));
        let octets = SignedOctets {
            message: &self.init_response,
            peer_nonce: &self.nonces.initiator,
            id: &id,
            int_auth: &[],
        };
        let auth = self.keys.psk_auth(Role::Responder, psk, &octets).unwrap();
        let offered = self.auth.iter().find_map(|payload| match payload {
            Payload::Sa(sa) => Some(sa),
            _ => None,
        });
        let esp = [build::esp_proposal(EspAlgorithm::Aes128Gcm16)];
        let choice = select::esp(offered.unwrap(), &esp, offer::ChildExchange::IkeAuth).unwrap();
        let ts = |range: &str| TsPayload::new(vec![build::ts(range)]);
        vec![
            Payload::IdResponder(id),
            Payload::Auth(auth),
            Payload::Sa(choice.answer(SPI)),
            Payload::TsInitiator(ts("10.109.0.0-10.109.255.255")),
            Payload::TsResponder(ts("10.115.0.0-10.115.255.255")),
        ]
    }

    /// Answers a request of the host; gives the content of what the host says to that.
    pub(crate) fn answer(
        &mut self,
        world: &mut World,
        exchange: ExchangeType,
        id: u32,
        payloads: Vec<Payload>,
    ) -> Vec<(Header, Vec<Payload>)> {
        let header = header(self.spis, exchange, true, id);
        let bytes = self.sealer.seal(&peer::message(header, payloads), &mut Random::new(1)).unwrap();
        let said = self.exchange(world, &bytes);
        said.iter().map(|bytes| (Header::parse(bytes).unwrap(), self.open(bytes))).collect()
    }

    /// Asks the host; gives the content of what it says to that.
    pub(crate) fn request(
        &mut self,
        world: &mut World,
        exchange: ExchangeType,
        id: u32,
        payloads: Vec<Payload>,
    ) -> Option<Vec<Payload>> {
        let header = header(self.spis, exchange, false, id);
        let bytes = self.sealer.seal(&peer::message(header, payloads), &mut Random::new(1)).unwrap();
        self.exchange(world, &bytes).first().map(|answer| self.open(answer))
    }

    /// The last request of the host, which was not fragmented.
    pub(crate) fn asked(&self, world: &World) -> (Header, Vec<Payload>) {
        let bytes = &world.hosts[0].sent.last().unwrap().1;
        (Header::parse(bytes).unwrap(), self.open(bytes))
    }

    fn exchange(&self, world: &mut World, bytes: &[u8]) -> Vec<Vec<u8>> {
        peer::exchange(world, self.path, bytes)
    }

    fn open(&self, bytes: &[u8]) -> Vec<Payload> {
        let message = Message::parse(bytes).unwrap();
        self.opener.open(&message.encrypted.expect("protected")).unwrap().payloads().unwrap().into()
    }
}

fn header(spis: IkeSpis, exchange: ExchangeType, response: bool, id: u32) -> Header {
    Header {
        initiator_spi: spis.initiator,
        responder_spi: spis.responder,
        exchange,
        from_initiator: false,
        response,
        message_id: MessageId(id),
    }
}

/// Gives the ESP answer another SPI.
pub(crate) fn with_spi(payload: &mut Payload, spi: Spi) {
    let Payload::Sa(sa) = payload else { panic!("SA") };
    sa.proposals[0].spi = SaSpi::Child(spi);
}
