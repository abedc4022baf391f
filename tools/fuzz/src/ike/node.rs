//! The endpoint under test, with the checks that a host around it could make.

use super::config::{connections, limits, secret};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;
use testudo_base::spi::{SenderId, Spi};
use testudo_ike::alloc::SingleNodeAllocator;
use testudo_ike::endpoint::Endpoint;
use testudo_ike::message::Message;
use testudo_ike::output::{ChildSaId, Event, IkeSaId, Output, Path, Time};
use testudo_ike::suite::Entropy;

/// More timers than any state of the endpoint can trigger.
const MANY: usize = 20_000;

/// A generator with the same sequence in every run (SplitMix64).
pub(super) struct Random(pub(super) u64);

impl Entropy for Random {
    fn fill(&mut self, out: &mut [u8]) {
        for octet in out {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            *octet = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb).to_be_bytes()[0];
        }
    }
}

/// A host's knowledge of its endpoint.
#[derive(Clone, Default)]
struct Seen {
    installed: BTreeMap<ChildSaId, Spi>,
    up: BTreeSet<IkeSaId>,
    /// Message ID of the last response, by the SPIs.
    answered: BTreeMap<[u8; 16], u32>,
}

/// An endpoint and its host.
pub(super) struct Node {
    pub(super) endpoint: Endpoint,
    pub(super) now: Time,
    seen: Seen,
    /// Messages by SPIs, direction and IV.
    sealed: BTreeMap<([u8; 16], bool, [u8; 8]), Vec<u8>>,
    /// The peer has proved its identity, so that SAs may be established.
    pub(super) trusted: bool,
    delivered: u64,
}

/// All of a node's state, to restart from it.
#[derive(Clone)]
pub(super) struct State {
    sas: Vec<Vec<u8>>,
    now: Time,
    seen: Seen,
}

impl Node {
    pub(super) fn new(seed: u64) -> Self {
        let alloc = SingleNodeAllocator::new(Random(seed), SenderId(1));
        let mut endpoint = Endpoint::new(limits(), Box::new(alloc));
        let now = Time(Duration::from_secs(1000));
        endpoint.set_local_addresses(vec![IpAddr::from([192, 0, 2, 1])]);
        for connection in connections() {
            endpoint.load_connection(now, connection.clone()).expect("a connection");
        }
        endpoint.load_secret(secret());
        let (seen, sealed) = (Seen::default(), BTreeMap::new());
        Self { endpoint, now, seen, sealed, trusted: false, delivered: 0 }
    }

    pub(super) fn save(&self) -> State {
        let ids = self.endpoint.states().map(|(id, _)| id);
        let sas =
            ids.map(|id| self.endpoint.export_sa(self.now, id).expect("every state serialises").to_vec());
        State { sas: sas.collect(), now: self.now, seen: self.seen.clone() }
    }

    pub(super) fn restore(seed: u64, state: &State) -> Self {
        let mut node = Self::new(seed);
        node.now = state.now;
        node.seen = state.seen.clone();
        node.trusted = !node.seen.up.is_empty();
        for sa in &state.sas {
            node.endpoint.import_sa(node.now, sa).expect("every state is restored");
        }
        node
    }

    /// Child SAs of the data plane.
    pub(super) fn children(&self) -> usize {
        self.seen.installed.len()
    }

    /// A datagram arrives. Returns the messages sent.
    pub(super) fn deliver(&mut self, path: Path, datagram: &[u8]) -> Vec<Vec<u8>> {
        let stranger = self.endpoint.states().next().is_none();
        self.delivered += 1;
        self.endpoint.handle_datagram(self.now, path, datagram);
        assert_eq!(self.endpoint.stats().received, self.delivered);
        let sent = self.drain();
        if stranger {
            // A forged source address must not turn the endpoint into an amplifier.
            let octets: usize = sent.iter().map(Vec::len).sum();
            assert!(octets <= 2 * datagram.len(), "{octets} octets for {}", datagram.len());
        }
        sent
    }

    /// Takes all outputs. Returns the messages sent.
    pub(super) fn drain(&mut self) -> Vec<Vec<u8>> {
        let mut sent = Vec::new();
        while let Some(output) = self.endpoint.poll_output() {
            match output {
                Output::Send { bytes, .. } => {
                    self.check_sent(&bytes);
                    sent.push(bytes);
                }
                Output::InstallChild { child, params, .. } => {
                    assert!(self.trusted, "nobody has proved who he is");
                    assert!(self.seen.installed.insert(child, params.spi_in).is_none());
                }
                Output::RemoveChild { child, spi_in } => {
                    assert_eq!(self.seen.installed.remove(&child), Some(spi_in));
                }
                Output::SwitchChild { from, to } => {
                    assert!(self.seen.installed.contains_key(&from) && self.seen.installed.contains_key(&to));
                }
                Output::StartChild { child }
                | Output::BindChild { child, .. }
                | Output::AdvanceSequence { child, .. } => {
                    assert!(self.seen.installed.contains_key(&child));
                }
                Output::UpdateChild { child, spi_in, .. } => {
                    assert_eq!(self.seen.installed.get(&child), Some(&spi_in));
                }
                Output::Event(event) => self.check_event(&event),
                Output::InstallAddress { .. } | Output::RemoveAddress { .. } => {
                    panic!("no connection asks for an address");
                }
                Output::Keepalive { .. } => (),
            }
        }
        assert!(self.endpoint.half_open() <= limits().half_open_limit);
        sent
    }

    fn check_sent(&mut self, bytes: &[u8]) {
        let message = Message::parse(bytes).expect("what we send is well formed");
        let Some(encrypted) = message.encrypted else { return };
        let spis: [u8; 16] = *bytes.first_chunk().expect("SPIs");
        let iv = *encrypted.body.first_chunk().expect("an IV");
        let direction = message.header.from_initiator;
        let first = self.sealed.entry((spis, direction, iv)).or_insert_with(|| bytes.to_vec());
        assert_eq!(first, bytes, "an IV is used for one message only");
        if message.header.response {
            // The endpoint's first answer is to IKE_AUTH, or to the first request of a responder
            // (RFC 7296 §2.2).
            let (id, first) = (message.header.message_id.0, u32::from(!direction));
            let last = self.seen.answered.insert(spis, id);
            let in_turn = last.map_or(id == first, |last| id == last || id == last + 1);
            assert!(in_turn, "answered {id} after {last:?}");
        }
    }

    fn check_event(&mut self, event: &Event) {
        match event {
            Event::Log { message, .. } => {
                assert!(!message.contains(char::is_control), "a peer forges log lines: {message:?}");
            }
            Event::IkeUp(id) => {
                assert!(self.trusted, "nobody has proved who he is");
                assert!(self.seen.up.insert(*id));
            }
            Event::IkeDown(id, reason) => {
                self.seen.up.remove(id);
                assert!(!reason.to_string().contains(char::is_control));
            }
            Event::ChildUp(..) => assert!(self.trusted, "nobody has proved who he is"),
            Event::ChildDown(_, child, _) => assert!(!self.seen.installed.contains_key(child)),
            Event::InitiateDone { .. }
            | Event::InitiateMoved { .. }
            | Event::ChildRekeyed(..)
            | Event::IkeRekeyed(..) => (),
            Event::OtherVoucher { identity, line, .. } => {
                assert!(!identity.contains(char::is_control) && !line.contains(char::is_control));
            }
        }
    }

    /// Time passes. Returns the messages sent.
    pub(super) fn pass(&mut self, time: Duration) -> Vec<Vec<u8>> {
        let end = self.now.plus(time);
        let mut sent = Vec::new();
        for _ in 0..MANY {
            let Some(next) = self.endpoint.next_timeout().filter(|next| *next <= end) else {
                self.now = end;
                return sent;
            };
            self.now = self.now.max(next);
            self.endpoint.handle_timeout(self.now);
            sent.extend(self.drain());
        }
        panic!("the timers of the endpoint never rest");
    }

    /// Every state must be the same after export and import.
    pub(super) fn check_states(&mut self) {
        let ids: Vec<IkeSaId> = self.endpoint.states().map(|(id, _)| id).collect();
        let (half_open, next) = (self.endpoint.half_open(), self.endpoint.next_timeout());
        for id in ids {
            let state = self.endpoint.export_sa(self.now, id).expect("every state serialises");
            assert_eq!(self.endpoint.import_sa(self.now, &state), Ok(id));
            assert_eq!(self.endpoint.export_sa(self.now, id), Some(state));
        }
        assert_eq!((self.endpoint.half_open(), self.endpoint.next_timeout()), (half_open, next));
    }

    /// The peer stays silent: no state may remain.
    pub(super) fn finish(&mut self) {
        self.pass(Duration::from_secs(3600));
        assert_eq!(self.endpoint.states().count(), 0, "a state stays behind");
        assert_eq!(self.endpoint.half_open(), 0);
        assert!(self.seen.installed.is_empty() && self.seen.up.is_empty());
    }
}
