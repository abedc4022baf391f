//! Packets of the tunnels: those sent, and those arrived.

use super::{Arrival, What, World};
use crate::config;
use crate::engine::{MILLI, Nanos};
use crate::host::Input;
use crate::network::Link;
use crate::probe;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use testudo_base::lane::Spread;
use testudo_ike::output::Time;

/// Packets sent this recently may still be in transit.
const IN_FLIGHT_FOR: Nanos = 300 * MILLI;

/// Sessions of a spread tunnel.
const SESSIONS: u64 = 8;

/// Sessions that take turns and last, and packets after which another one begins.
const LASTING: u64 = 16;
const SHORT: u64 = 32;

/// Packets of which at least one is a mark ([`testudo_base::turn`]), but for one series of 30 000.
const MARKED: usize = 650;

/// A packet that was sent.
#[derive(Clone, Copy, Debug)]
struct Sent {
    peer: usize,
    outward: bool,
    at: Nanos,
    copies: u32,
}

/// All packets.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    next: u64,
    sent: BTreeMap<u64, Sent>,
    /// The time from which packets count.
    watched: Option<Nanos>,
    pub(super) delivered: u64,
    pub(super) doubles: u64,
    pub(super) rekeys: u64,
    pub(super) ike_rekeys: u64,
}

/// The results of the watched packets of one tunnel in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Flow {
    pub(super) sent: u64,
    pub(super) arrived: u64,
    pub(super) doubled: u64,
}

impl Traffic {
    /// From now on every packet sent must arrive.
    pub(super) fn watch(&mut self, now: Nanos) {
        self.watched = Some(now);
    }

    pub(super) fn sent(&self) -> u64 {
        self.next
    }

    fn send(&mut self, peer: usize, outward: bool, at: Nanos) -> u64 {
        self.next += 1;
        self.sent.insert(self.next, Sent { peer, outward, at, copies: 0 });
        self.next
    }

    /// A packet has left the tunnel at a peer.
    pub(super) fn arrived(&mut self, number: u64) {
        let Some(sent) = self.sent.get_mut(&number) else { return };
        sent.copies += 1;
        self.delivered += u64::from(sent.copies == 1);
        self.doubles += u64::from(sent.copies > 1);
    }

    /// A packet has reached the server.
    pub(super) fn arrived_inside(&mut self, packet: &[u8]) {
        if let Some(number) = probe::number(packet) {
            self.arrived(number);
        }
    }

    /// The results of a tunnel's packets that count.
    pub(super) fn flow(&self, peer: usize, outward: bool, now: Nanos) -> Flow {
        let Some(from) = self.watched else { return Flow::default() };
        let counts = |sent: &&Sent| {
            sent.peer == peer
                && sent.outward == outward
                && (from..now.saturating_sub(IN_FLIGHT_FOR)).contains(&sent.at)
        };
        self.sent.values().filter(counts).fold(Flow::default(), |flow, sent| Flow {
            sent: flow.sent + 1,
            arrived: flow.arrived + u64::from(sent.copies > 0),
            doubled: flow.doubled + u64::from(sent.copies > 1),
        })
    }
}

/// A session that no other packet has, as far as nodes remember.
fn new_session(number: u64) -> u64 {
    0x8000 + number % 0x8000
}

impl World {
    /// The server, or the peer's client, sends a packet through a tunnel.
    pub(super) fn probe(&mut self, peer: usize, outward: bool) {
        let pace = self.scenario.probe_pace;
        let next = self.schedule.now + pace / 2 + self.random.below(pace);
        self.schedule.at(next, What::Probe(peer, outward));
        if outward && self.fate.may_strike && self.spice.permille(20) {
            self.burst(peer);
        }
        let number = self.traffic.send(peer, outward, self.schedule.now);
        if outward {
            let packet = probe::packet(self.server(peer, number), config::client(peer), number);
            self.deliver(Link::Inner, self.flow(peer, number), Arrival::Inner(packet));
        } else {
            let packet = probe::packet(config::client(peer), config::SERVER, number);
            self.with_peer(peer, |peer, now: Time| peer.handle_clear(now, &packet));
        }
    }

    /// So many packets go to each peer whose lanes take turns that there is a mark among them: from
    /// then on the nodes count alike, whatever some of them have missed. Each is of a new session.
    pub(super) fn deal_anew(&mut self) {
        if self.scenario.routed.is_some() {
            return;
        }
        let in_turn = |(_, by): &(usize, Option<Spread>)| by.is_some_and(|by| by.turns().is_some());
        let spread = self.scenario.spread.clone().into_iter().enumerate();
        for (peer, _) in spread.filter(in_turn) {
            for _ in 0..MARKED {
                let number = self.traffic.send(peer, true, self.schedule.now);
                let packet = probe::packet(config::server(new_session(number)), config::client(peer), number);
                self.flood(Link::Inner, &Arrival::Inner(packet));
                self.run_until(self.schedule.now + MILLI);
            }
        }
    }

    /// The server that sends a packet to a peer. Where sessions take turns there are a few that last,
    /// and others that begin and end.
    fn server(&self, peer: usize, number: u64) -> Ipv4Addr {
        match self.scenario.spread.get(peer).copied().flatten() {
            Some(by) if by.has_sessions() && number.is_multiple_of(2) => config::server(number % LASTING),
            Some(by) if by.has_sessions() => config::server(LASTING + number / SHORT),
            _ => config::SERVER,
        }
    }

    /// The flow of a packet to a peer, for routers. Many sessions take a spread tunnel.
    fn flow(&self, peer: usize, number: u64) -> u64 {
        let is_spread = self.scenario.spread.get(peer).is_some_and(Option::is_some);
        let session = if is_spread { number % SESSIONS } else { 0 };
        peer as u64 | session << 32
    }

    /// The server sends so many packets at once to a peer that the node that carries them runs out
    /// of numbers within a few packets.
    fn burst(&mut self, peer: usize) {
        let left = self.spice.below(4);
        for node in 0..self.slots.len() {
            self.arrive(node, Arrival::Input(Input::Burst(peer, left)));
        }
    }
}
