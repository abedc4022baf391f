//! The world: nodes, peers, what is between them, and the time, which goes from one event to the
//! next.

mod fate;
mod finish;
mod holders;
mod nodes;
mod peers;
mod slot;
mod traffic;

pub use finish::Outcome;
pub use slot::{Birth, Make};

use crate::checks::Checks;
use crate::engine::{Engines, Nanos, Votes};
use crate::faults::Kind;
use crate::host::Input;
use crate::network::{Link, Network};
use crate::peer::Peer;
use crate::random::Random;
use crate::scenario::Scenario;
use crate::trace::{Trace, Who};
use holders::Holders;
use slot::Slot;
use std::collections::{BTreeMap, BTreeSet};
use testudo_cluster::group::Durable;
use testudo_cluster::node::NodeId;
use testudo_ike::output::Path;
use traffic::Traffic;

/// Something that will happen.
#[derive(Debug)]
enum What {
    /// To a node: something arrives.
    Node(usize, Arrival),
    /// To a peer: an IKE message arrives.
    PeerIke(usize, Path, Vec<u8>),
    /// To a peer: an ESP packet arrives.
    PeerEsp(usize, Vec<u8>),
    /// A packet of a tunnel is sent: by the server, or by the peer's client.
    Probe(usize, bool),
    /// An operator of the peer, or of the gateway, looks after a tunnel.
    Care(usize),
    /// A peer loses its memory.
    Forget(usize),
    /// An operator changes the configuration, so many times more.
    Configure(u64),
    /// A fault begins.
    Fault,
    /// A fault ends.
    End(Kind, usize),
    /// The engine forms a ring anew without reason; so many times more.
    Storm(u32),
    /// What a node, in that life, had to write is on its disk.
    Written(usize, u64, Durable),
    /// Faults are over.
    Heal,
}

/// What arrives at a node from outside.
#[derive(Clone, Debug)]
enum Arrival {
    /// For the daemon.
    Input(Input),
    /// An IKE message, to be looked at by the filter.
    Ike(Path, Vec<u8>),
    /// An ESP packet, to be looked at by the filter.
    Outer(Vec<u8>),
    /// An ESP packet in fragments: every node puts it together, and finds out only then whose it
    /// is.
    Fragments(Vec<u8>),
    /// A clear packet, to be looked at by the filter.
    Inner(Vec<u8>),
}

/// Who has deadlines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Actor {
    Node(usize),
    Peer(usize),
}

/// Everything.
pub struct World {
    scenario: Scenario,
    now: Nanos,
    queue: BTreeMap<(Nanos, u64), What>,
    queued: u64,
    wakes: BTreeSet<(Nanos, Actor)>,
    wake_of: BTreeMap<Actor, Nanos>,
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
    /// Chance that decides on bursts and fragments.
    spice: Random,
    /// And on what operators do.
    whims: Random,
    /// Since when nodes need a sender ID; they will be set back to before that.
    renewals: BTreeMap<usize, Nanos>,
    /// Faults may begin.
    faulty: bool,
    faults: BTreeMap<Kind, u64>,
    /// Whose process stands still for good.
    stopped: Option<usize>,
    /// What is dead for good.
    dead_port: Option<(Link, usize)>,
    /// Both of two nodes may be quorate alone.
    split: bool,
    holders: Holders,
    /// The state was lost because all who had it lost their memory: nobody can be blamed for
    /// tunnels.
    state_lost: u64,
}

/// So often operators change the configuration.
const COMMAND_COUNT: u64 = 12;
/// How often it is looked whether nodes agree.
const AGREEMENT_INTERVAL: Nanos = 7_000_000;
/// Steps after which something must be wrong with the simulation.
const MAX_STEPS: u64 = 5_000_000;

impl World {
    /// A world that has not begun. `make` makes the nodes.
    pub fn new(scenario: Scenario, make: Make) -> Self {
        let mut random = Random::new(scenario.seed ^ 0x0123_4567_89ab_cdef);
        let ids: Vec<NodeId> = (1..=scenario.nodes as u32).filter_map(NodeId::new).collect();
        let engines = Engines::new(&ids, scenario.votes, scenario.detection, random.fork());
        let network = Network::new(random.fork());
        let slots = ids.iter().zip(&scenario.clocks).map(|(id, clock)| Slot::new(*id, *clock)).collect();
        let mut world = Self {
            now: 0,
            queue: BTreeMap::new(),
            queued: 0,
            wakes: BTreeSet::new(),
            wake_of: BTreeMap::new(),
            engines,
            network,
            slots,
            peers: Vec::new(),
            tunnels: Vec::new(),
            traffic: Traffic::default(),
            checks: Checks::default(),
            trace: Trace::new(scenario.lines),
            whims: Random::new(scenario.seed ^ 0x5eed_0f0b_e4a7_0125),
            spice: random.fork(),
            random,
            make,
            renewals: BTreeMap::new(),
            faulty: true,
            faults: BTreeMap::new(),
            stopped: None,
            dead_port: None,
            split: scenario.votes == Votes::TwoNode,
            holders: Holders::default(),
            state_lost: 0,
            scenario,
        };
        world.begin();
        world
    }

    fn begin(&mut self) {
        for node in 0..self.slots.len() {
            self.boot(node);
        }
        self.begin_peers();
        let first = self.scenario.calm + self.random.below(self.scenario.fault_pace);
        self.at(first, What::Fault);
        self.configure(COMMAND_COUNT);
        self.at(self.scenario.calm + self.scenario.faults, What::Heal);
    }

    /// Runs to the end, or to the first violation.
    pub fn run(mut self) -> Outcome {
        let end = self.scenario.calm + self.scenario.faults + self.scenario.settle;
        self.run_until(end);
        self.traffic.watch(self.now);
        let tail = end + self.scenario.watch;
        // Something may be under way at any moment, but not always.
        while self.now < tail && !(self.do_nodes_agree() && self.relics().is_empty()) {
            self.run_until(self.now + AGREEMENT_INTERVAL);
        }
        self.check_agreement();
        self.check_relics();
        self.run_until(tail);
        self.check_flow();
        self.excuse();
        self.outcome()
    }

    fn run_until(&mut self, end: Nanos) {
        while self.checks.violations().is_empty() && self.trace.steps < MAX_STEPS {
            let Some(next) = self.next().filter(|next| *next <= end) else { break };
            self.now = self.now.max(next);
            self.step();
        }
        self.now = self.now.max(end);
    }

    fn next(&self) -> Option<Nanos> {
        let queued = self.queue.first_key_value().map(|((at, _), _)| *at);
        let wake = self.wakes.first().map(|(at, _)| *at);
        [self.engines.next(), queued, wake].into_iter().flatten().min()
    }

    /// One thing happens.
    fn step(&mut self) {
        self.trace.steps += 1;
        if self.engines.next().is_some_and(|at| at <= self.now) {
            self.engines.step(self.now, &self.network);
        } else if self.queue.first_key_value().is_some_and(|((at, _), _)| *at <= self.now) {
            if let Some((_, what)) = self.queue.pop_first() {
                self.happen(what);
            }
        } else if let Some((at, actor)) = self.wakes.pop_first() {
            debug_assert!(at <= self.now);
            self.wake_of.remove(&actor);
            match actor {
                Actor::Node(node) => self.arrive(node, Arrival::Input(Input::Timeout)),
                Actor::Peer(peer) => self.with_peer(peer, Peer::handle_timeout),
            }
        }
        self.hand_on();
        self.excuse();
    }

    fn happen(&mut self, what: What) {
        match what {
            What::Node(node, arrival) => self.arrive(node, arrival),
            What::PeerIke(peer, path, bytes) => self.peer_ike(peer, path, &bytes),
            What::PeerEsp(peer, packet) => self.with_peer(peer, |peer, now| peer.handle_esp(now, &packet)),
            What::Probe(peer, outward) => self.probe(peer, outward),
            What::Care(peer) => self.care(peer),
            What::Forget(peer) => self.forget(peer),
            What::Configure(left) => self.configure(left),
            What::Fault => self.fault(),
            What::End(kind, node) => self.end(kind, node),
            What::Storm(left) => self.storm(left),
            What::Written(node, boot, durable) => self.written(node, boot, durable),
            What::Heal => self.heal(),
        }
    }

    /// What the engines have delivered goes to the nodes.
    fn hand_on(&mut self) {
        for (node, event) in self.engines.take_delivered() {
            self.arrive(node, Arrival::Input(Input::Engine(event)));
        }
    }

    fn at(&mut self, at: Nanos, what: What) {
        self.queued += 1;
        self.queue.insert((at.max(self.now), self.queued), what);
    }

    fn wake(&mut self, actor: Actor, at: Option<Nanos>) {
        if let Some(old) = self.wake_of.remove(&actor) {
            self.wakes.remove(&(old, actor));
        }
        if let Some(at) = at {
            self.wakes.insert((at, actor));
            self.wake_of.insert(actor, at);
        }
    }

    fn note(&mut self, who: Who, what: &'static str, a: u64, b: u64) {
        self.trace.note(self.now, who, what, [a, b]);
    }
}
