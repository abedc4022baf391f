//! One initiator of the swarm: an IKE endpoint with one connection, which exists until its Child SA
//! is up.

use super::shape::Shape;
use crate::error::BenchError;
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};
use testudo_base::spi::SenderId;
use testudo_ike::alloc::SingleNodeAllocator;
use testudo_ike::config::{Connection, Identity, SharedSecret, TsSpec};
use testudo_ike::endpoint::{Endpoint, EndpointConfig, Target};
use testudo_ike::output::{ChildSaId, Event, IkeSaId, Output, Path, Reason, Time};
use testudo_ike::suite::Entropy;
use testudo_ipsec::selector::{AddrRange, TrafficSelector};
use testudo_vici::message::Message;
use testudo_vici::schema;

/// The responder's address, and the swarm's: every initiator has its own address, and they share
/// the port.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// The responder's address.
    pub(crate) responder: Ipv4Addr,
    /// The first initiator's address: that of a prefix with room for [`MAX`].
    pub(crate) first: Ipv4Addr,
    /// The initiators' port.
    pub(crate) port: u16,
}

impl Place {
    /// Everything on one host.
    pub(crate) const LOOPBACK: Self =
        Self { responder: Ipv4Addr::LOCALHOST, first: Ipv4Addr::new(127, 128, 0, 0), port: 10_500 };

    /// The address of an initiator.
    pub(crate) fn address(&self, number: u32) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.first.to_bits() | number)
    }
}

/// The algorithms of IKE.
pub(crate) const PROPOSAL: &str = "aes128gcm16-prfsha256-x25519";
/// The algorithms of ESP.
pub(crate) const ESP_PROPOSAL: &str = "aes128gcm16";
/// The network that the responder protects.
pub(crate) const PROTECTED: &str = "192.168.77.0/24";
/// The pre-shared key of a peer.
pub(crate) fn key(shape: Shape, number: u32) -> String {
    match shape {
        Shape::OneForAll => "a key that only the bench knows".into(),
        Shape::Each => format!("a key that only the bench and peer {number} know"),
    }
}

/// The identity of a peer.
pub(crate) fn host(number: u32) -> String {
    format!("host{number}.bench")
}

/// The most initiators: there are no more addresses.
pub(crate) const MAX: u32 = 1 << 20;

/// Random octets from the operating system.
struct OsEntropy;

impl Entropy for OsEntropy {
    fn fill(&mut self, out: &mut [u8]) {
        aws_lc_rs::rand::fill(out).expect("the operating system has random octets");
    }
}

/// Data that all initiators share.
pub(crate) struct Template {
    connection: Connection,
    secret: SharedSecret,
    shape: Shape,
    place: Place,
}

impl Template {
    pub(crate) fn new(shape: Shape, place: Place) -> Result<Self, BenchError> {
        let psk = || Message::new().with("auth", "psk");
        let child = Message::new()
            .with_list("esp_proposals", [ESP_PROPOSAL])
            .with_list("remote_ts", [PROTECTED])
            .with_list("local_ts", ["172.16.0.0/12"]);
        let connection = Message::new()
            .with_list("remote_addrs", [place.responder.to_string().as_str()])
            .with_list("proposals", [PROPOSAL])
            .with_section("local", psk())
            .with_section("remote", psk().with("id", "gateway.bench"))
            .with_section("children", Message::new().with_section("net", child));
        let connection =
            schema::connection(&Message::new().with_section("swarm", connection), schema::Policy::Modern);
        Ok(Self { connection: connection.map_err(refused)?, secret: secret(&key(shape, 0))?, shape, place })
    }

    fn secret(&self, number: u32) -> Result<SharedSecret, BenchError> {
        match self.shape {
            Shape::OneForAll => Ok(self.secret.clone()),
            Shape::Each => secret(&key(self.shape, number)),
        }
    }

    fn connection(&self, number: u32) -> Connection {
        let mut connection = self.connection.clone();
        connection.local_port = self.place.port;
        connection.local_addrs = single(self.place.address(number).into());
        connection.local.id = Some(Identity::Fqdn(host(number)));
        for child in &mut connection.children {
            child.local_ts = single(inner(number).into()).into_iter().map(everything).collect();
        }
        connection
    }
}

fn secret(key: &str) -> Result<SharedSecret, BenchError> {
    schema::shared_secret(&Message::new().with("type", "ike").with("data", key)).map_err(refused)
}

fn refused(refusal: schema::Refusal) -> BenchError {
    BenchError::Template(refusal.to_string())
}

fn single(addr: IpAddr) -> Vec<AddrRange> {
    AddrRange::new(addr, addr).into_iter().collect()
}

fn everything(addrs: AddrRange) -> TsSpec {
    TsSpec::Fixed(TrafficSelector::all(addrs))
}

/// The network that an initiator protects: its one host in 172.16.0.0/12.
pub(crate) fn inner(number: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(0xac10_0000 | number)
}

/// The initiator with that address.
pub(crate) fn number_of(addr: Ipv4Addr) -> u32 {
    addr.to_bits() & (MAX - 1)
}

/// The state of an initiator.
pub(crate) enum Progress {
    Waiting,
    /// It has reached its goal.
    Done,
    Failed(String),
}

/// An initiator.
pub(crate) struct Initiator {
    endpoint: Endpoint,
    /// Its first message, until it is sent.
    first: VecDeque<Output>,
    /// When it was started. Its clock does not run before, however long the preparation of the
    /// others takes.
    begun: Option<Instant>,
    /// The SAs that it has set up.
    tunnel: Option<(IkeSaId, ChildSaId)>,
}

impl Initiator {
    /// Its first message, with its key pair, is prepared, so that it is not part of the
    /// measurement.
    pub(crate) fn new(template: &Template, number: u32) -> Result<Self, BenchError> {
        let now = Time::default();
        let settings = EndpointConfig::default();
        let mut endpoint =
            Endpoint::new(settings, Box::new(SingleNodeAllocator::new(OsEntropy, SenderId(1))));
        endpoint.set_local_addresses(vec![template.place.address(number).into()]);
        endpoint.load_secret(template.secret(number)?);
        let refused = |error: String| BenchError::Template(error);
        endpoint.load_connection(now, template.connection(number)).map_err(|e| refused(e.to_string()))?;
        endpoint.initiate(now, None, "net").map_err(|e| refused(e.to_string()))?;
        let first = std::iter::from_fn(|| endpoint.poll_output()).collect();
        Ok(Self { endpoint, first, begun: None, tunnel: None })
    }

    /// Its first message.
    pub(crate) fn first_message(&self) -> Option<&[u8]> {
        self.first.iter().find_map(|output| match output {
            Output::Send { bytes, .. } => Some(bytes.as_slice()),
            _ => None,
        })
    }

    /// Rekeys its Child SA next. Only a responder that has both SAs and the current message IDs can
    /// answer.
    pub(crate) fn renew(&mut self) {
        let now = self.now();
        if let Some((_, child)) = self.tunnel {
            self.endpoint.rekey_child(now, child);
        }
    }

    /// Deletes its tunnel next.
    pub(crate) fn end(&mut self) {
        let now = self.now();
        if let Some((ike, _)) = self.tunnel {
            // If it is already gone, that is noticed too.
            let _ = self.endpoint.terminate(now, &Target::Ike(ike), false);
        }
    }

    fn now(&mut self) -> Time {
        Time(self.begun.get_or_insert_with(Instant::now).elapsed())
    }

    /// Processes a message.
    pub(crate) fn receive(&mut self, path: Path, message: &[u8]) {
        let now = self.now();
        self.endpoint.handle_datagram(now, path, message);
    }

    /// True if it has retransmitted something.
    pub(crate) fn look_at_clock(&mut self) -> bool {
        let now = self.now();
        let due = self.endpoint.next_timeout().is_some_and(|due| due <= now);
        if due {
            self.endpoint.handle_timeout(now);
        }
        due
    }

    /// Sends its pending messages, and returns its state.
    pub(crate) fn run(&mut self, mut send: impl FnMut(Path, &[u8])) -> Progress {
        let mut progress = Progress::Waiting;
        while let Some(output) = self.first.pop_front().or_else(|| self.endpoint.poll_output()) {
            match output {
                Output::Send { path, bytes, .. } => send(path, &bytes),
                Output::Event(Event::InitiateDone { ike, result: Ok(child), .. }) => {
                    self.tunnel = Some((ike, child));
                    progress = Progress::Done;
                }
                Output::Event(Event::InitiateDone { result: Err(reason), .. }) => {
                    progress = Progress::Failed(reason.to_string());
                }
                Output::Event(Event::ChildRekeyed(ike, _, child)) => {
                    self.tunnel = Some((ike, child));
                    progress = Progress::Done;
                }
                Output::Event(Event::IkeDown(_, Reason::Requested)) => progress = Progress::Done,
                Output::Event(Event::IkeDown(_, reason)) => progress = Progress::Failed(reason.to_string()),
                _ => {}
            }
        }
        progress
    }

    /// How long an answer may take.
    pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
}
