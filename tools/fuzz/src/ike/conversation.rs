//! Two endpoints communicate over a network controlled by the fuzzer: it drops, duplicates,
//! reorders, delays and changes messages, at arbitrary times and with arbitrary commands of
//! operators. When it stops, both sides must agree.

use super::certified;
use super::config::{limits, pair, secret};
use super::node::Random;
use crate::input::{Input, bit};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use testudo_base::spi::{SenderId, Spi};
use testudo_ike::alloc::SingleNodeAllocator;
use testudo_ike::endpoint::{ChildSaState, Endpoint, IkeSaState, Target};
use testudo_ike::message::Message;
use testudo_ike::output::{ChildSaId, Event, IkeSaId, Output, Path, Time};

/// The most steps of one input.
const MOST: usize = 200;
/// The most messages in transit; further ones are lost, as in any network.
const MOST_UNDER_WAY: usize = 64;
/// Long enough for every retransmission, liveness check and delete to finish.
const CALM: Duration = Duration::from_secs(900);
/// The most rounds of timers and deliveries in the calm phase.
const MANY: usize = 50_000;

/// `kind:8`, and `what:8 | ...` per step, see [`Rig::step`].
pub fn target(data: &[u8]) {
    let mut input = Input::new(data);
    let mut rig = Rig::new(Kind::of(input.u8()));
    for _ in 0..MOST {
        if input.is_empty() {
            break;
        }
        rig.step(&mut input);
        rig.sides.iter_mut().for_each(Side::check_states);
    }
    rig.calm();
    rig.check_agreement();
}

/// The authentication and key exchange of the two.
#[derive(Clone, Copy)]
enum Kind {
    /// A shared key, and additional key exchanges with a curve.
    Shared,
    /// Certificates, ML-KEM, virtual addresses and reauthentication: see [`certified`].
    Certified,
}

impl Kind {
    fn of(octet: u8) -> Self {
        if bit(octet, 0) { Self::Certified } else { Self::Shared }
    }
}

/// A message in transit, or an old one.
#[derive(Clone)]
struct Sent {
    to: usize,
    /// As its receiver sees it.
    path: Path,
    bytes: Vec<u8>,
}

struct Rig {
    now: Time,
    sides: [Side; 2],
    under_way: Vec<Sent>,
    /// All messages sent, for replays.
    heard: Vec<Sent>,
}

struct Side {
    number: usize,
    endpoint: Endpoint,
    now: Time,
    installed: BTreeMap<ChildSaId, Spi>,
    /// Virtual addresses, and the IKE SAs that assigned them.
    addresses: BTreeSet<(IpAddr, IkeSaId)>,
    up: BTreeSet<IkeSaId>,
    /// Messages by SPIs, direction and IV.
    sealed: BTreeMap<([u8; 16], bool, [u8; 8]), Vec<u8>>,
    sent: Vec<Sent>,
}

impl Rig {
    fn new(kind: Kind) -> Self {
        let now = Time(Duration::from_secs(1000));
        Self {
            now,
            sides: [0, 1].map(|number| Side::new(kind, number, now)),
            under_way: Vec::new(),
            heard: Vec::new(),
        }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        let what = input.u8();
        let side = usize::from(bit(what, 7));
        match what & 7 {
            0 => self.deliver(0),
            1 => self.deliver(usize::from(input.u8())),
            2 => {
                let at = usize::from(input.u8());
                if at < self.under_way.len() {
                    self.under_way.remove(at);
                }
            }
            3 => {
                let copy = self.under_way.get(usize::from(input.u8())).cloned();
                self.under_way.extend(copy);
            }
            4 => self.change(input),
            5 => {
                let old = self.heard.get(usize::from(input.u16())).cloned();
                self.under_way.extend(old);
            }
            6 => self.pass(Duration::from_millis(u64::from(input.u16()) * 20)),
            _ => self.sides[side].operator(what >> 3 & 15),
        }
        self.collect();
    }

    /// The message at that place arrives, before messages that were sent earlier.
    fn deliver(&mut self, at: usize) {
        if at < self.under_way.len() {
            let message = self.under_way.remove(at);
            self.sides[message.to].hear(message.path, &message.bytes);
        }
    }

    /// Changes a message in transit: an octet, its end, or its source.
    fn change(&mut self, input: &mut Input<'_>) {
        let (at, how) = (usize::from(input.u8()), input.u8());
        let (place, value) = (usize::from(input.u16()), input.u8());
        let Some(message) = self.under_way.get_mut(at) else { return };
        match how & 3 {
            0 | 1 => {
                if let Some(octet) = message.bytes.get_mut(place) {
                    *octet ^= value;
                }
            }
            2 => message.bytes.truncate(place),
            _ => message.path.remote = SocketAddr::from(([192, 0, 2, 9], 1000 + u16::from(value))),
        }
    }

    /// Time passes for both without arrivals.
    fn pass(&mut self, time: Duration) {
        let end = self.now.plus(time);
        self.sides.iter_mut().for_each(|side| side.pass(end));
        self.now = end;
        self.collect();
    }

    /// Puts sent messages in transit.
    fn collect(&mut self) {
        for side in &mut self.sides {
            self.heard.extend(side.sent.iter().cloned());
            self.under_way.append(&mut side.sent);
        }
        self.under_way.truncate(MOST_UNDER_WAY);
    }

    /// A network without faults, for a while.
    fn calm(&mut self) {
        let end = self.now.plus(CALM);
        for _ in 0..MANY {
            self.collect();
            if !self.under_way.is_empty() {
                self.deliver(0);
                continue;
            }
            let next = self.sides.iter().filter_map(|side| side.endpoint.next_timeout()).min();
            let Some(next) = next.filter(|next| *next <= end) else { return };
            self.now = self.now.max(next);
            self.sides.iter_mut().for_each(|side| side.pass(next));
        }
        panic!("the two never come to rest");
    }

    /// Both sides must have the same SAs.
    fn check_agreement(&self) {
        let [one, two] = &self.sides;
        assert_eq!(one.ikes(), two.ikes(), "IKE SAs");
        let mirrored: BTreeSet<(Spi, Spi)> = two.children().into_iter().map(|(a, b)| (b, a)).collect();
        assert_eq!(one.children(), mirrored, "Child SAs, by the SPIs of the first side");
        for side in &self.sides {
            assert_eq!(side.endpoint.half_open(), 0, "half open for ever");
            let known: BTreeSet<ChildSaId> =
                side.endpoint.sas().flat_map(|sa| sa.children).map(|child| child.id).collect();
            let installed: BTreeSet<ChildSaId> = side.installed.keys().copied().collect();
            assert_eq!(installed, known, "what the data plane has, and what IKE knows");
        }
    }
}

impl Side {
    fn new(kind: Kind, number: usize, now: Time) -> Self {
        let alloc = SingleNodeAllocator::new(Random(number as u64 + 1), SenderId(number as u16 + 1));
        let mut endpoint = Endpoint::new(limits(), Box::new(alloc));
        endpoint.set_local_addresses(vec![IpAddr::from([192, 0, 2, number as u8 + 1])]);
        match kind {
            Kind::Shared => {
                endpoint.load_secret(secret());
                endpoint.load_connection(now, pair()[number].clone()).expect("a connection");
            }
            Kind::Certified => certified::load(&mut endpoint, now, number),
        }
        let (installed, addresses, up, sealed, sent) = Default::default();
        Self { number, endpoint, now, installed, addresses, up, sealed, sent }
    }

    fn hear(&mut self, path: Path, bytes: &[u8]) {
        self.endpoint.handle_datagram(self.now, path, bytes);
        self.drain();
    }

    fn pass(&mut self, end: Time) {
        for _ in 0..MANY {
            let Some(next) = self.endpoint.next_timeout().filter(|next| *next <= end) else {
                self.now = self.now.max(end);
                return;
            };
            self.now = self.now.max(next);
            self.endpoint.handle_timeout(self.now);
            self.drain();
        }
        panic!("the timers of an endpoint never rest");
    }

    /// A random command of an operator. It may fail if there is no such SA.
    fn operator(&mut self, what: u8) {
        let (now, which) = (self.now, usize::from(what >> 3));
        let ike = self.endpoint.sas().nth(which).map(|sa| sa.id);
        let child = self.installed.keys().nth(which).copied();
        match what & 7 {
            0 => drop(self.endpoint.initiate(now, Some("site"), "net")),
            1 => drop(self.endpoint.initiate(now, Some("site"), "web")),
            2 | 3 => drop(child.map(|child| self.endpoint.rekey_child(now, child))),
            4 => drop(ike.map(|ike| self.endpoint.rekey_ike(now, ike))),
            5 => drop(ike.map(|ike| self.endpoint.reauthenticate_ike(now, ike))),
            6 => drop(child.map(|child| self.endpoint.terminate(now, &Target::Child(child), false))),
            _ => drop(ike.map(|ike| self.endpoint.terminate(now, &Target::Ike(ike), false))),
        }
        self.drain();
    }

    fn drain(&mut self) {
        while let Some(output) = self.endpoint.poll_output() {
            match output {
                Output::Send { path, bytes, .. } => {
                    self.check_sent(&bytes);
                    let path = Path { local: path.remote, remote: path.local };
                    self.sent.push(Sent { to: 1 - self.number, path, bytes });
                }
                Output::InstallChild { child, params, .. } => {
                    assert!(self.installed.insert(child, params.spi_in).is_none());
                }
                Output::RemoveChild { child, spi_in } => {
                    assert_eq!(self.installed.remove(&child), Some(spi_in));
                }
                Output::InstallAddress { ike, addr } => assert!(self.addresses.insert((addr, ike))),
                Output::RemoveAddress { ike, addr } => assert!(self.addresses.remove(&(addr, ike))),
                Output::Event(Event::IkeRekeyed(old, new)) => {
                    let moved = |(addr, ike)| (addr, if ike == old { new } else { ike });
                    self.addresses = std::mem::take(&mut self.addresses).into_iter().map(moved).collect();
                }
                Output::Event(Event::IkeUp(id)) => assert!(self.up.insert(id)),
                Output::Event(Event::IkeDown(id, _)) => drop(self.up.remove(&id)),
                _ => (),
            }
        }
    }

    /// An IV may be used for one message only, and a Message ID for one request and one response
    /// (RFC 7296 §2.2).
    fn check_sent(&mut self, bytes: &[u8]) {
        let message = Message::parse(bytes).expect("what we send is well formed");
        let Some(encrypted) = message.encrypted else { return };
        let spis: [u8; 16] = *bytes.first_chunk().expect("SPIs");
        let iv = *encrypted.body.first_chunk().expect("an IV");
        let key = (spis, message.header.from_initiator, iv);
        let first = self.sealed.entry(key).or_insert_with(|| bytes.to_vec());
        assert_eq!(first, bytes, "two messages under one IV");
    }

    /// Every state must be the same after export and import.
    fn check_states(&mut self) {
        let ids: Vec<IkeSaId> = self.endpoint.states().map(|(id, _)| id).collect();
        for id in ids {
            let state = self.endpoint.export_sa(self.now, id).expect("every state serialises");
            assert_eq!(self.endpoint.import_sa(self.now, &state), Ok(id));
            assert_eq!(self.endpoint.export_sa(self.now, id), Some(state));
        }
        self.drain();
    }

    /// SPIs of the established IKE SAs.
    fn ikes(&self) -> BTreeSet<(u64, u64)> {
        let established = self.endpoint.sas().filter(|sa| sa.state == IkeSaState::Established);
        established.map(|sa| (sa.spi_i.0, sa.spi_r.0)).collect()
    }

    /// The SPIs of the Child SAs, ours and the peer's.
    fn children(&self) -> BTreeSet<(Spi, Spi)> {
        let children = self.endpoint.sas().flat_map(|sa| sa.children);
        children
            .filter(|child| child.state == ChildSaState::Installed)
            .map(|child| (child.spi_in, child.spi_out))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seeds;
    use testudo_ike::endpoint::ExchangeCounter::{ChildRekey, IkeAuthOutReq, IkeRekeyInit};

    #[test]
    fn those_with_certificates_have_addresses_and_reauthenticate() {
        // The responder leaves it to a client that has an address.
        let begun =
            [("certified-up", [1, 0]), ("certified-reauth", [2, 0]), ("certified-reauth-at-once", [2, 0])];
        for (name, requests) in begun {
            let (_, seed) = seeds::of("ike_conversation").into_iter().find(|(seed, _)| seed == name).unwrap();
            let mut input = Input::new(&seed);
            let mut rig = Rig::new(Kind::of(input.u8()));
            while !input.is_empty() {
                rig.step(&mut input);
            }
            for (side, requests) in rig.sides.iter().zip(requests) {
                assert_eq!((side.ikes().len(), side.children().len()), (1, 1), "{name}");
                let asked = side.endpoint.stats().exchanges.total().get(IkeAuthOutReq);
                assert_eq!(asked, requests, "{name}: {}", side.number);
            }
            if name == "certified-up" {
                assert_eq!(rig.sides[0].addresses.len(), 1);
                assert!(rig.sides[0].endpoint.sas().all(|sa| sa.additional_ke.iter().flatten().count() == 1));
            }
            rig.check_agreement();
            rig.calm();
            rig.check_agreement();
        }
    }

    /// If the seeds did not get anywhere, the fuzzer would find nothing.
    #[test]
    fn the_seeds_bring_up_and_renew_what_they_say() {
        for (name, ikes, children) in [("up", 0, 0), ("rekey-child", 0, 1), ("rekey-ike", 1, 0)] {
            let (_, seed) = seeds::of("ike_conversation").into_iter().find(|(seed, _)| seed == name).unwrap();
            let mut input = Input::new(&seed);
            let mut rig = Rig::new(Kind::of(input.u8()));
            while !input.is_empty() {
                rig.step(&mut input);
            }
            for side in &rig.sides {
                assert_eq!((side.ikes().len(), side.children().len()), (1, 1), "{name}");
                let counters = side.endpoint.stats().exchanges.total();
                assert_eq!(counters.get(IkeRekeyInit), ikes, "{name}");
                assert!(counters.get(ChildRekey) >= children, "{name}");
            }
            rig.check_agreement();
            // Lifetimes end in the calm phase: both sides rekey at the same time.
            rig.calm();
            for side in &rig.sides {
                assert!(side.endpoint.stats().exchanges.total().get(ChildRekey) >= 3, "{name}");
            }
            rig.check_agreement();
        }
    }
}
