//! The world: nodes, peers, the networks between them, and the time, which advances from event to
//! event.

mod fate;
mod finish;
mod holders;
mod last;
pub(crate) mod members;
mod nodes;
mod peers;
mod routers;
mod schedule;
mod slot;
mod traffic;

pub use finish::Outcome;
pub use slot::{Birth, Make};

use crate::checks::Checks;
use crate::engine::{Engines, Nanos};
use crate::faults::Kind;
use crate::host::Input;
use crate::network::{Link, Network};
use crate::peer::Peer;
use crate::random::Random;
use crate::scenario::Scenario;
use crate::trace::{Trace, Who};
use fate::Fate;
use holders::Holders;
use routers::Routers;
use schedule::{Due, Schedule};
use slot::Slot;
use testudo_cluster::group::Durable;
use testudo_cluster::node::NodeId;
use testudo_ike::output::Path;
use traffic::Traffic;

/// A future event.
#[derive(Debug)]
enum What {
    /// Something arrives at a node.
    Node(usize, Arrival),
    /// A copy of a packet reaches the routers.
    Repeated(Link, u64, Arrival),
    /// An IKE message arrives at a peer.
    PeerIke(usize, Path, Vec<u8>),
    /// An ESP packet arrives at a peer.
    PeerEsp(usize, Vec<u8>),
    /// The server, or the peer's client, sends a packet through a tunnel.
    Probe(usize, bool),
    /// An operator of the peer or of the gateway maintains a tunnel.
    Care(usize),
    /// A peer loses its memory.
    Forget(usize),
    /// An operator changes the configuration, and will do so this many times more.
    Configure(u64),
    /// A fault begins.
    Fault,
    /// A fault ends.
    End(Kind, usize),
    /// An operator adds or removes a node.
    Change,
    /// A node is not one of the cluster's any more.
    Left(usize),
    /// The engine forms a ring again without a reason, and will do so this many times more.
    Storm(u32),
    /// A node's disk has completed a write; with the number of the node's start.
    Written(usize, u64, Durable),
    /// The faults end.
    Heal,
}

/// Something that arrives at a node from outside.
#[derive(Clone, Debug)]
enum Arrival {
    /// An input for the daemon.
    Input(Input),
    /// An IKE message for the filter.
    Ike(Path, Vec<u8>),
    /// An ESP packet for the filter.
    Outer(Vec<u8>),
    /// An ESP packet in fragments: every node reassembles it, and finds its shard only then.
    Fragments(Vec<u8>),
    /// A clear packet for the filter.
    Inner(Vec<u8>),
    /// A packet that so many other nodes have relayed.
    Relayed(Box<Arrival>, u8),
}

/// A host with deadlines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Actor {
    Node(usize),
    Peer(usize),
}

/// Everything.
pub struct World {
    scenario: Scenario,
    schedule: Schedule,
    engines: Engines,
    network: Network,
    slots: Vec<Slot>,
    peers: Vec<Peer>,
    tunnels: Vec<peers::Tunnel>,
    traffic: Traffic,
    checks: Checks,
    trace: Trace,
    random: Random,
    make: Make,
    /// Randomness for bursts and fragments.
    spice: Random,
    fate: Fate,
    holders: Holders,
    routers: Routers,
    /// Packets that nodes have relayed.
    relayed: u64,
}

/// Number of configuration changes by operators.
const COMMAND_COUNT: u64 = 12;
/// How long nodes wait for one that may hold the state, and then come to an agreement.
const STATE_PATIENCE: Nanos = 40_000_000_000;
/// More steps than this mean an error in the simulation.
const MAX_STEPS: u64 = 5_000_000;

impl World {
    /// A world before its start. `make` makes the nodes.
    pub fn new(scenario: Scenario, make: Make) -> Self {
        let mut random = Random::new(scenario.seed ^ 0x0123_4567_89ab_cdef);
        let ids: Vec<NodeId> = (1..=scenario.nodes as u32).filter_map(NodeId::new).collect();
        let engines = Engines::new(&ids, scenario.votes, scenario.detection, random.fork());
        let network = Network::new(random.fork());
        let slots = ids.iter().zip(&scenario.clocks).map(|(id, clock)| Slot::new(*id, *clock)).collect();
        let mut world = Self {
            schedule: Schedule::default(),
            engines,
            network,
            slots,
            peers: Vec::new(),
            tunnels: Vec::new(),
            traffic: Traffic::default(),
            checks: Checks::default(),
            trace: Trace::new(scenario.lines),
            spice: random.fork(),
            random,
            make,
            fate: Fate::new(&scenario),
            holders: Holders::default(),
            routers: Routers::default(),
            relayed: 0,
            scenario,
        };
        world.begin();
        world
    }

    fn begin(&mut self) {
        self.begin_changes();
        for node in 0..self.slots.len() {
            if !self.slots[node].away {
                self.boot(node);
            }
        }
        self.begin_peers();
        let first = self.scenario.calm + self.random.below(self.scenario.fault_pace);
        self.schedule.at(first, What::Fault);
        fate::configure(self, COMMAND_COUNT);
        self.schedule.at(self.scenario.calm + self.scenario.faults, What::Heal);
    }

    /// Runs to the end, or to the first violation.
    pub fn run(mut self) -> Outcome {
        let healed = self.scenario.calm + self.scenario.faults;
        let end = healed + self.scenario.settle;
        self.run_until(if self.scenario.goes_on { end } else { healed + self.scenario.watch });
        let mut amiss = self.watch();
        // The last watch begins at the end, as it does in a world that goes on.
        while amiss.is_some() && self.schedule.now <= end {
            amiss = self.watch();
        }
        // The node with the newest state stands still for good: the others begin without it, once
        // they have waited for it. The tunnels go with the state.
        if amiss.is_some() && self.is_state_awaited() {
            self.run_until(self.schedule.now + STATE_PATIENCE);
            amiss = self.watch_agreement();
        }
        if let Some(amiss) = amiss {
            self.blame(amiss);
        }
        self.check_peers_accounts();
        fate::excuse(&mut self);
        self.outcome()
    }

    fn run_until(&mut self, end: Nanos) {
        while self.checks.violations().is_empty() && self.trace.steps < MAX_STEPS {
            let Some(next) = self.next().filter(|next| *next <= end) else { break };
            self.schedule.now = self.schedule.now.max(next);
            self.step();
        }
        self.schedule.now = self.schedule.now.max(end);
    }

    fn next(&self) -> Option<Nanos> {
        [self.engines.next(), self.schedule.next()].into_iter().flatten().min()
    }

    /// Processes one event.
    fn step(&mut self) {
        self.trace.steps += 1;
        if self.engines.next().is_some_and(|at| at <= self.schedule.now) {
            self.engines.step(self.schedule.now, &self.network);
        } else {
            match self.schedule.take_due() {
                Some(Due::Event(what)) => self.happen(what),
                Some(Due::Deadline(Actor::Node(node))) => self.arrive(node, Arrival::Input(Input::Timeout)),
                Some(Due::Deadline(Actor::Peer(peer))) => self.with_peer(peer, Peer::handle_timeout),
                None => {}
            }
        }
        self.check_rings();
        self.hand_on();
        fate::excuse(self);
    }

    fn happen(&mut self, what: What) {
        match what {
            What::Node(node, arrival) => self.arrive(node, arrival),
            What::Repeated(link, flow, arrival) => self.repeated(link, flow, arrival),
            What::PeerIke(peer, path, bytes) => self.peer_ike(peer, path, &bytes),
            What::PeerEsp(peer, packet) => self.with_peer(peer, |peer, now| peer.handle_esp(now, &packet)),
            What::Probe(peer, outward) => self.probe(peer, outward),
            What::Care(peer) => self.care(peer),
            What::Forget(peer) => self.forget(peer),
            What::Configure(left) => fate::configure(self, left),
            What::Fault => fate::fault(self),
            What::End(kind, node) => fate::end(self, kind, node),
            What::Change => self.change_nodes(),
            What::Left(node) => self.left(node),
            What::Storm(left) => fate::storm(self, left),
            What::Written(node, boot, durable) => self.written(node, boot, durable),
            What::Heal if self.fate.may_strike => fate::heal(self),
            What::Heal => {}
        }
    }

    /// Passes the engines' deliveries to the nodes.
    fn hand_on(&mut self) {
        for (node, event) in self.engines.take_delivered() {
            self.arrive(node, Arrival::Input(Input::Engine(event)));
        }
    }

    fn note(&mut self, who: Who, what: &'static str, a: u64, b: u64) {
        self.trace.note(self.schedule.now, who, what, [a, b]);
    }
}
