//! Several workers at both ends of SAs that come and go: in whatever order commands and packets
//! reach them, each packet arrives once, and no number is used twice.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use testudo_base::spi::{SenderId, Shard, Spi};
use testudo_crypto::Library;
use testudo_ipsec::dataplane::{Config, Dataplane, PolicyBlock};
use testudo_ipsec::number::{SequenceBlock, WorkerId};
use testudo_ipsec::sa::{
    ChildSaParams, Encapsulation, EspAlgorithm, HeaderCopy, InboundSa, KeyMaterial, Mode, OutboundSa,
};
use testudo_ipsec::sad::SlotBlock;
use testudo_ipsec::selector::{AddrRange, TrafficSelector};
use testudo_ipsec::spd::{Action as Act, Policy, PolicyId, Spd};

const WORKERS: usize = 3;
pub(super) const POLICY: PolicyId = PolicyId(0);
pub(super) const US: &str = "192.0.2.1";
pub(super) const BEHIND: &str = "10.9.0.7";
/// Where each packet has its number, behind the IPv4 header.
pub(super) const NUMBER: usize = 24;

pub(super) type GatewayWorker = Worker<FakePort, FakeTun, Dataplane>;

/// The workers of one gateway, and commands that have not got to them yet.
pub(super) struct Gateway {
    pub(super) workers: Vec<GatewayWorker>,
    pending: Vec<VecDeque<Command>>,
}

impl Gateway {
    pub(super) fn new(workers: usize, own: &str, sender: u16, fib: &Arc<Fib>) -> Self {
        let worker = |number: usize| {
            let id = WorkerId::new(number as u8).unwrap();
            let mut plane = Dataplane::new(&Config { flow_bits: 4, ..Config::new(id, SenderId(sender), 7) });
            plane.apply(Command::SetLocalAddrs(Arc::new([addr(own)].into_iter().collect())));
            let pool = FramePool::new(2 * FRAMES, ChunkSize::K2).unwrap();
            let config = WorkerConfig::new(number as u8);
            Worker::new(config, vec![deep(0), deep(1)], None, pool, Arc::clone(fib), plane).unwrap()
        };
        Self { workers: (0..workers).map(worker).collect(), pending: vec![VecDeque::new(); workers] }
    }

    pub(super) fn tell(&mut self, commands: impl IntoIterator<Item = Command>) {
        for command in commands {
            self.pending.iter_mut().for_each(|pending| pending.push_back(command.clone()));
        }
    }

    /// The next command gets to a worker. False if it has all.
    pub(super) fn pass_on(&mut self, worker: usize) -> bool {
        let Some(command) = self.pending[worker].pop_front() else { return false };
        self.workers[worker].delivery.channel.commands.push(WorkerCommand::Ipsec(command)).unwrap();
        true
    }

    /// Every packet reaches its destination.
    pub(super) fn settle(&mut self) {
        for worker in 0..self.workers.len() {
            while self.pass_on(worker) {}
            self.turn(worker);
            self.turn(worker);
        }
    }

    pub(super) fn turn(&mut self, worker: usize) {
        self.workers[worker].turn(1);
    }

    pub(super) fn arrive(&mut self, worker: usize, place: usize, packet: &[u8], class: Class) {
        let worker = &mut self.workers[worker];
        let frame = stamped(worker.pool_mut(), packet, class as u8);
        worker.port_mut(place).unwrap().deliver(frame).unwrap();
    }

    /// IP packets that a worker has sent through a port.
    pub(super) fn sent(&mut self, worker: usize, place: usize) -> Vec<Vec<u8>> {
        let worker = &mut self.workers[worker];
        let mut packets = Vec::new();
        while let Some(frame) = worker.port_mut(place).unwrap().sent() {
            packets.push(frame.data()[14..].to_vec());
            worker.pool_mut().give(frame);
        }
        packets
    }

    fn close(self) {
        for worker in self.workers {
            let totals = worker.counters().totals();
            assert!(totals.is_balanced(), "{totals:?}");
            assert_eq!((totals.dropped, totals.dropped_by_pipeline, totals.held), (0, 0, 0), "{totals:?}");
            assert_eq!(worker.close(), 0, "frames leaked");
        }
    }
}

/// Both gateways, and what is known of the SAs between them.
struct Line {
    left: Gateway,
    right: Gateway,
    generation: u16,
    inbound: Vec<Arc<InboundSa>>,
    sent: u32,
    arrived: Vec<u32>,
    /// SPI and sequence number, and IVs, as seen between the two.
    numbers: BTreeSet<[u8; 8]>,
    ivs: BTreeSet<[u8; 8]>,
}

pub(super) fn behind_fib() -> Arc<Fib> {
    let ports = [0, 1].map(|index| full_fib().port(PortIndex(index)).unwrap().clone());
    let builder = ports.into_iter().fold(Fib::builder(), |builder, link| builder.port(link));
    let builder = builder
        .route("10.9.0.0/16".parse().unwrap(), next_hop(0, None))
        .route("192.0.2.0/24".parse().unwrap(), next_hop(1, None))
        .neighbour(PortIndex(0), addr(BEHIND), mac(0x55));
    Arc::new(builder.build())
}

fn net(start: &str, end: &str) -> Vec<TrafficSelector> {
    vec![TrafficSelector::all(AddrRange::new(addr(start), addr(end)).unwrap())]
}

/// The right side's view of the SA; only what goes from left to right is used.
pub(super) fn params(generation: u16) -> ChildSaParams {
    let spi = |shard| Spi::from_parts(Shard(shard), generation, generation % 1024).unwrap();
    ChildSaParams {
        spi_in: spi(0xb2),
        spi_out: spi(0xa1),
        algorithm: EspAlgorithm::Aes128Gcm16,
        key_in: KeyMaterial(vec![generation as u8; 20]),
        key_out: KeyMaterial(vec![!generation as u8; 20]),
        esn: true,
        replay_window: 1024,
        local_ts: net("10.9.0.0", "10.9.255.255"),
        remote_ts: net("10.0.0.0", "10.0.0.255"),
        local: SocketAddr::new(addr(PEER), 0),
        remote: SocketAddr::new(addr(US), 0),
        encapsulation: Encapsulation::Plain,
        mode: Mode::Tunnel,
        copy: HeaderCopy::default(),
    }
}

impl Line {
    fn new() -> Self {
        let mut line = Self {
            left: Gateway::new(WORKERS, US, 1, &full_fib()),
            right: Gateway::new(WORKERS, PEER, 2, &behind_fib()),
            generation: 0,
            inbound: Vec::new(),
            sent: 0,
            arrived: Vec::new(),
            numbers: BTreeSet::new(),
            ivs: BTreeSet::new(),
        };
        let params = params(0).mirrored();
        let policy = Policy {
            priority: 0,
            local: params.local_ts.clone(),
            remote: params.remote_ts.clone(),
            action: Act::Protect(POLICY),
        };
        let spd = Arc::new(Spd::new(vec![policy]).unwrap());
        line.left.tell([Command::AddPolicies(Box::new(PolicyBlock::of(POLICY))), Command::SetSpd(spd)]);
        line.renew();
        line.left.settle();
        line.right.settle();
        line
    }

    /// Another SA replaces the present one.
    fn renew(&mut self) {
        self.generation += 1;
        let (params, library) = (params(self.generation), Library::detect());
        let inbound = Arc::new(InboundSa::new(&params, POLICY, 1500, library).unwrap());
        let blocks = Command::AddSlots(Box::new(SlotBlock::of(params.spi_in)));
        self.right.tell([blocks, Command::AddInbound(Arc::clone(&inbound))]);
        self.inbound.push(inbound);
        let numbers = SequenceBlock::whole(true);
        let outbound = OutboundSa::new(&params.mirrored(), POLICY, numbers, 1500, library).unwrap();
        self.left.tell([Command::SetOutbound(POLICY, Arc::new(outbound))]);
    }

    fn arrive(&mut self, worker: usize) {
        let mut packet = ipv4(CLIENT, BEHIND, 100, false);
        packet[NUMBER..][..4].copy_from_slice(&self.sent.to_be_bytes());
        self.sent += 1;
        self.left.arrive(worker, LAN, &packet, Class::Protect);
    }

    /// A packet sent by a worker on the left arrives at one on the right.
    fn carry(&mut self, from: usize, to: usize) {
        for packet in self.left.sent(from, WAN) {
            let (numbers, iv) = (&packet[20..28], &packet[28..36]);
            assert!(self.numbers.insert(numbers.try_into().unwrap()), "a sequence number twice");
            assert!(self.ivs.insert(iv.try_into().unwrap()), "an IV twice");
            self.right.arrive(to, WAN, &packet, Class::Esp);
        }
    }

    fn turn_right(&mut self, worker: usize) {
        self.right.turn(worker);
        let numbers = self.right.sent(worker, LAN);
        self.arrived.extend(numbers.iter().map(|p| u32::from_be_bytes(p[NUMBER..][..4].try_into().unwrap())));
    }

    fn end(mut self) {
        self.left.settle();
        for worker in 0..WORKERS {
            self.carry(worker, worker);
        }
        self.right.settle();
        (0..WORKERS).for_each(|worker| self.turn_right(worker));
        self.arrived.sort_unstable();
        assert_eq!(self.arrived, (0..self.sent).collect::<Vec<_>>(), "each once");
        self.right.tell(self.inbound.iter().map(|sa| Command::RemoveInbound(sa.spi())).collect::<Vec<_>>());
        self.right.settle();
        for worker in &self.right.workers {
            while worker.delivery.channel.garbage.pop().is_some() {}
            assert_eq!(worker.pipeline().counters().totals().inbound_sas, 0);
        }
        assert!(self.inbound.iter().all(|sa| Arc::strong_count(sa) == 1), "an SA that nobody freed");
        self.left.close();
        self.right.close();
    }
}

#[derive(Clone, Copy, Debug)]
enum Action {
    Arrive(usize),
    TurnLeft(usize),
    TurnRight(usize),
    Carry(usize, usize),
    TellLeft(usize),
    TellRight(usize),
    Renew,
}

fn action() -> impl Strategy<Value = Action> {
    let worker = || 0..WORKERS;
    prop_oneof![
        6 => worker().prop_map(Action::Arrive),
        4 => worker().prop_map(Action::TurnLeft),
        4 => worker().prop_map(Action::TurnRight),
        4 => (worker(), worker()).prop_map(|(from, to)| Action::Carry(from, to)),
        2 => worker().prop_map(Action::TellLeft),
        3 => worker().prop_map(Action::TellRight),
        1 => Just(Action::Renew),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    #[test]
    fn each_packet_arrives_once_whoever_hears_of_its_sa_when(
        actions in prop::collection::vec(action(), 0..400),
    ) {
        let mut line = Line::new();
        for action in actions {
            match action {
                Action::Arrive(worker) => line.arrive(worker),
                Action::TurnLeft(worker) => line.left.turn(worker),
                Action::TurnRight(worker) => line.turn_right(worker),
                Action::Carry(from, to) => line.carry(from, to),
                Action::TellLeft(worker) => drop(line.left.pass_on(worker)),
                Action::TellRight(worker) => drop(line.right.pass_on(worker)),
                Action::Renew => line.renew(),
            }
        }
        line.end();
    }
}
