//! The world: nodes, an engine with a total order, and peers.

mod checks;
mod outputs;
pub(crate) mod table;

use crate::config::{VIP, of_cluster, of_peer, peer_addr, secret};
use crate::random::Random;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;
use testudo_base::lane::Spread;
use testudo_base::shard::{SHARDS, ShardSet};
use testudo_base::spi::{SenderId, Spi};
use testudo_cluster::engine::{EngineEvent, RingId, View};
use testudo_cluster::group::{ClusterKey, Durable, GroupConfig, Ingress};
use testudo_cluster::member::{CarrierTable, FollowConfig, InitiationOutcome, Member, MemberConfig};
use testudo_cluster::node::NodeId;
use testudo_ike::alloc::SingleNodeAllocator;
use testudo_ike::config::Connection;
use testudo_ike::endpoint::{Endpoint, EndpointConfig};
use testudo_ike::output::{ChildSaId, Event, Path, Time, UnixTime};
use testudo_ipsec::number::SequenceAllocator;
use testudo_ipsec::pmtu::TooBig;
use testudo_ipsec::sa::ChildSaParams;

/// From one node, or the engine, to another.
pub(crate) const LAN: Duration = Duration::from_micros(300);
/// Packets a second that the ports of a node can bring it.
pub(crate) const LINE_RATE: u64 = 2_000_000;
/// Between the cluster and its peers.
pub(crate) const WAN: Duration = Duration::from_millis(5);

pub(crate) struct Node {
    pub(crate) member: Option<Member>,
    seed: u64,
    /// The content of its disk.
    disk: Durable,
    pub(crate) sender: Option<SenderId>,
    pub(crate) installed: BTreeMap<ChildSaId, (Box<ChildSaParams>, BTreeSet<u64>)>,
    /// Those of them that send, or would if no other did.
    pub(crate) sending: BTreeSet<ChildSaId>,
    /// The numbers it sends with, by our SPI.
    numbers: BTreeMap<Spi, SequenceAllocator>,
    /// Where its policies stand: a Child SA that renews another has that one's.
    policies: BTreeMap<ChildSaId, u64>,
    /// Up to where numbers count as seen on it, as far as it has taken SAs over.
    pub(crate) floors: BTreeMap<Spi, u64>,
    /// The highest of them so far: a window never goes back.
    pub(crate) highest_floors: BTreeMap<Spi, u64>,
    pub(crate) shards: (ShardSet, ShardSet),
    /// Shards whose packets it keeps back.
    pub(crate) held: ShardSet,
    /// Shards that it has stopped, and of which its workers still have packets.
    pub(crate) unflushed: ShardSet,
    /// Hashes of packets that former owners have worked on.
    pub(crate) handled: BTreeSet<u64>,
    pub(crate) default_host: bool,
    /// Which node it relays the packets of each shard to, and whether it serves.
    pub(crate) carriers: CarrierTable,
    pub(crate) serves: bool,
    pub(crate) table: table::Table,
    /// What routers have told other nodes.
    pub(crate) too_big: Vec<TooBig>,
    pub(crate) logs: Vec<String>,
    /// Initiations that it was asked for, with their ends, and what their owners logged meanwhile.
    pub(crate) initiated: Vec<(u64, InitiationOutcome)>,
    pub(crate) lines: Vec<u64>,
    /// Events of SAs on other nodes.
    pub(crate) remote_events: Vec<Event>,
    /// Where peers have moved to.
    pub(crate) moved: Vec<Path>,
    /// Path MTUs that were reported to it, with their times.
    pub(crate) paths: BTreeMap<IpAddr, (u16, Time)>,
    ring: Option<RingId>,
}

pub(crate) struct Peer {
    pub(crate) endpoint: Endpoint,
    pub(crate) installed: BTreeMap<ChildSaId, ChildSaParams>,
    pub(crate) sent: usize,
    /// How many sequence numbers it was to leave out, and of which.
    pub(crate) skipped: Vec<(ChildSaId, u64)>,
}

/// Which nodes and peers synchronize counters after a failover, the version of the nodes' protocol,
/// and whether tunnels are spread.
#[derive(Clone, Copy, Default)]
pub(crate) struct Syncs {
    /// The version that nodes speak; `None`: [`GroupConfig::NEWEST`].
    pub(crate) version: Option<u8>,
    /// Nodes ask for it, of Message IDs.
    pub(crate) asked: bool,
    /// Peers know nothing of it.
    pub(crate) unknown: bool,
    /// All tunnels are to be spread over the nodes, in this way.
    pub(crate) spread: Option<Spread>,
    /// Routers give each message of a peer to one node ([`World::entry`]).
    pub(crate) routed: bool,
    /// The shards of this node do not move to where their packets go.
    pub(crate) stays: Option<usize>,
}

/// How long a node that gives its shards away waits until routers know.
pub(crate) const WITHDRAW: Duration = Duration::from_millis(400);

enum Arrival {
    Engine(usize, RingId, EngineEvent),
    Heartbeat(usize, u8, Vec<u8>),
    ToCluster(Path, Vec<u8>),
    ToPeer(usize, Path, Vec<u8>),
}

pub(crate) struct World {
    pub(crate) now: Time,
    pub(crate) nodes: Vec<Node>,
    pub(crate) peers: Vec<Peer>,
    arrivals: BTreeMap<(Time, u64), Arrival>,
    count: u64,
    ring: u64,
    heartbeat: Duration,
    /// Datagrams of this node, and to it, are lost.
    pub(crate) mute: Option<usize>,
    /// The delay of messages from this node.
    pub(crate) slow: Option<(usize, Duration)>,
    /// The workers of this node are done with stopped shards when a test says so.
    pub(crate) busy: Option<usize>,
    /// The highest numbers that all nodes' filters have seen pass, forged or not.
    pub(crate) seen: BTreeMap<Spi, u32>,
    /// Requests of peers to authenticate take so long to come.
    pub(crate) late_auth: Duration,
    /// Shards that two nodes have carried at once, provisionally.
    pub(crate) doubled: ShardSet,
    pub(crate) syncs: Syncs,
    /// The node to which routers give what peers send.
    pub(crate) entry: usize,
    /// Peers hear nothing.
    pub(crate) deaf: bool,
    /// Requests of the cluster with Message ID 0 that have left, by INFORMATIONAL.
    pub(crate) beside: usize,
    /// Both halves may have been quorate.
    split: bool,
    /// Every message of the cluster after IKE_SA_INIT: one content each.
    messages: BTreeMap<(Vec<u8>, u16), Vec<u8>>,
    /// IVs by SPIs and direction.
    ivs: BTreeMap<(u64, u64, bool, [u8; 8]), Vec<u8>>,
    /// Where each Child SA stands among its like: everywhere the same.
    pub(crate) places: BTreeMap<Spi, u64>,
    /// Blocks of numbers by SPI: where each begins, where it ends, and whose it is.
    blocks: BTreeMap<Spi, BTreeMap<u64, (u64, usize)>>,
}

pub(crate) fn id(node: usize) -> NodeId {
    NodeId::new(node as u32 + 1).unwrap()
}

fn member(
    (nodes, peers, heartbeat, syncs): (usize, usize, Duration, Syncs),
    (node, seed, disk): (usize, u64, Durable),
    now: Time,
) -> Member {
    let all = (0..nodes).map(id).collect();
    let mut group = GroupConfig::new(id(node), all, ClusterKey::new([7; 32]));
    group.heartbeat = heartbeat;
    group.links = 2;
    group.speaks = syncs.version.unwrap_or(GroupConfig::NEWEST);
    group.fence = heartbeat * 5;
    group.ingress = if syncs.routed { Ingress::Routed } else { Ingress::Flood };
    group.suspicion.floor = heartbeat * 5 / 2;
    group.suspicion.ceiling = heartbeat * 20;
    // Few, so that some are left over.
    let config = MemberConfig {
        message_id_sync: syncs.asked,
        blocks_at_once: 2,
        line_rate: LINE_RATE,
        withdraw: WITHDRAW,
        follow: FollowConfig { follows: syncs.stays != Some(node), ..FollowConfig::default() },
        spread: syncs
            .spread
            .into_iter()
            .flat_map(|by| (0..peers).map(move |peer| (of_cluster(peer).name, by)))
            .collect(),
        ..MemberConfig::new(group)
    };
    let mut member =
        Member::new(config, disk, [Box::new(Random(seed)), Box::new(Random(seed ^ 0x5555_aaaa))], now);
    member.set_unix_time(now, UnixTime(1_700_000_000));
    member.endpoint_mut().set_local_addresses(vec![VIP.parse().unwrap()]);
    member.endpoint_mut().load_secret(secret());
    for peer in 0..peers {
        member.endpoint_mut().load_connection(now, of_cluster(peer)).unwrap();
    }
    member
}

impl Peer {
    fn new(peer: usize, seed: u64, syncs: Syncs, now: Time) -> Self {
        let alloc = SingleNodeAllocator::new(Random(seed), SenderId(0));
        let config = EndpointConfig { counter_sync: !syncs.unknown, ..EndpointConfig::default() };
        let mut endpoint = Endpoint::new(config, Box::new(alloc));
        endpoint.set_local_addresses(vec![peer_addr(peer)]);
        endpoint.load_secret(secret());
        endpoint.load_connection(now, of_peer(peer)).unwrap();
        Self { endpoint, installed: BTreeMap::new(), sent: 0, skipped: Vec::new() }
    }
}

impl World {
    pub(crate) fn new(nodes: usize, peers: usize, seed: u64, heartbeat: Duration, syncs: Syncs) -> Self {
        let now = Time(Duration::from_secs(1000));
        let mut random = Random(seed);
        let node = |index| {
            let seed = random.next();
            Node {
                member: Some(member(
                    (nodes, peers, heartbeat, syncs),
                    (index, seed, Durable::default()),
                    now,
                )),
                seed,
                disk: Durable::default(),
                sending: BTreeSet::new(),
                sender: None,
                installed: BTreeMap::new(),
                numbers: BTreeMap::new(),
                policies: BTreeMap::new(),
                floors: BTreeMap::new(),
                highest_floors: BTreeMap::new(),
                shards: Default::default(),
                held: ShardSet::EMPTY,
                unflushed: ShardSet::EMPTY,
                handled: BTreeSet::new(),
                default_host: false,
                carriers: [None; SHARDS],
                serves: false,
                too_big: Vec::new(),
                table: table::Table::default(),
                logs: Vec::new(),
                initiated: Vec::new(),
                lines: Vec::new(),
                remote_events: Vec::new(),
                moved: Vec::new(),
                paths: BTreeMap::new(),
                ring: None,
            }
        };
        let nodes = (0..nodes).map(node).collect();
        let peers = (0..peers).map(|peer| Peer::new(peer, random.next(), syncs, now)).collect();
        Self {
            now,
            nodes,
            peers,
            arrivals: BTreeMap::new(),
            count: 0,
            ring: 0,
            heartbeat,
            mute: None,
            slow: None,
            busy: None,
            late_auth: WAN,
            doubled: ShardSet::EMPTY,
            syncs,
            entry: 0,
            deaf: false,
            beside: 0,
            split: false,
            seen: BTreeMap::new(),
            messages: BTreeMap::new(),
            ivs: BTreeMap::new(),
            places: BTreeMap::new(),
            blocks: BTreeMap::new(),
        }
    }

    /// A cluster that has begun, with all tunnels up.
    pub(crate) fn established(nodes: usize, peers: usize, seed: u64) -> Self {
        Self::established_with(nodes, peers, seed, Syncs::default())
    }

    /// The same, with these manners.
    pub(crate) fn established_with(nodes: usize, peers: usize, seed: u64, syncs: Syncs) -> Self {
        let mut world = Self::begun_with(nodes, peers, seed, Duration::from_millis(50), syncs);
        world.establish();
        world
    }

    /// All tunnels come up.
    pub(crate) fn establish(&mut self) {
        (0..self.peers.len()).for_each(|peer| self.initiate(peer));
        self.run(Duration::from_secs(1));
        (0..self.peers.len()).for_each(|peer| self.assert_tunnel(peer));
    }

    /// A cluster that has begun.
    pub(crate) fn begun(nodes: usize, peers: usize, seed: u64, heartbeat: Duration) -> Self {
        Self::begun_with(nodes, peers, seed, heartbeat, Syncs::default())
    }

    pub(crate) fn begun_with(
        nodes: usize,
        peers: usize,
        seed: u64,
        heartbeat: Duration,
        syncs: Syncs,
    ) -> Self {
        let mut world = Self::new(nodes, peers, seed, heartbeat, syncs);
        world.view(&(0..nodes).collect::<Vec<_>>());
        world.run(heartbeat * 20);
        world.assert_all_shards_once();
        world
    }

    fn at(&mut self, after: Duration, arrival: Arrival) {
        self.count += 1;
        self.arrivals.insert((self.now.plus(after), self.count), arrival);
    }

    /// The engine tells these nodes that they are a view.
    pub(crate) fn view(&mut self, members: &[usize]) {
        self.view_of(members, members.len() * 2 > self.nodes.len());
    }

    /// A witness may make half of the nodes quorate.
    pub(crate) fn view_of(&mut self, members: &[usize], quorate: bool) {
        self.split |= quorate && members.len() * 2 <= self.nodes.len();
        self.ring += 1;
        let ring = RingId { seq: self.ring, node: members[0] as u32 + 1 };
        let view = View { ring, members: members.iter().map(|node| id(*node)).collect(), quorate };
        for node in members {
            self.nodes[*node].ring = Some(ring);
            self.at(LAN, Arrival::Engine(*node, ring, EngineEvent::View(view.clone())));
        }
    }

    /// The node dies with its state. `lossy`: also its messages that have not reached all nodes
    /// yet.
    pub(crate) fn crash(&mut self, node: usize, lossy: bool) {
        let of_it = |arrival: &Arrival| match arrival {
            Arrival::Engine(_, _, EngineEvent::Message { from, .. }) => *from == id(node),
            _ => false,
        };
        self.arrivals.retain(|_, arrival| !(lossy && of_it(arrival)));
        self.nodes[node].member = None;
        self.nodes[node].ring = None;
        self.nodes[node].shards = Default::default();
        self.nodes[node].held = ShardSet::EMPTY;
        self.nodes[node].unflushed = ShardSet::EMPTY;
        self.nodes[node].installed.clear();
        self.nodes[node].sending.clear();
        self.nodes[node].numbers.clear();
        self.nodes[node].policies.clear();
        self.nodes[node].paths.clear();
    }

    /// Its engine is gone, and it is there.
    pub(crate) fn lose_engine(&mut self, node: usize) {
        self.nodes[node].ring = None;
        let down = EngineEvent::Down { reason: "ended".to_owned() };
        let now = self.now;
        self.nodes[node].member.as_mut().unwrap().handle_engine(now, down);
    }

    /// It starts again.
    pub(crate) fn restart(&mut self, node: usize) {
        let (nodes, peers, now) = (self.nodes.len(), self.peers.len(), self.now);
        let state = &mut self.nodes[node];
        state.seed += 1;
        state.sender = None;
        let of_node = (node, state.seed, state.disk.clone());
        state.member = Some(member((nodes, peers, self.heartbeat, self.syncs), of_node, now));
    }

    /// Every node does what its member asks for.
    pub(crate) fn settle(&mut self) {
        for node in 0..self.nodes.len() {
            let now = self.now;
            if let Some(member) = &mut self.nodes[node].member {
                member.pump(now);
            }
            while let Some(output) = self.nodes[node].member.as_mut().and_then(Member::poll_output) {
                self.perform(node, output);
            }
        }
        for peer in 0..self.peers.len() {
            while let Some(output) = self.peers[peer].endpoint.poll_output() {
                self.perform_of_peer(peer, output);
            }
        }
    }

    fn next_event(&self) -> Option<Time> {
        let members = self.nodes.iter().filter_map(|node| node.member.as_ref());
        let members = members.filter_map(Member::next_timeout);
        let peers = self.peers.iter().filter_map(|peer| peer.endpoint.next_timeout());
        let arrival = self.arrivals.first_key_value().map(|((at, _), _)| *at);
        members.chain(peers).chain(arrival).min()
    }

    /// One event; false if there is none until `end`.
    pub(crate) fn step(&mut self, end: Time) -> bool {
        self.settle();
        let Some(next) = self.next_event().filter(|next| *next <= end) else { return false };
        self.now = self.now.max(next);
        let now = self.now;
        if let Some(entry) = self.arrivals.first_entry().filter(|entry| entry.key().0 <= now) {
            let arrival = entry.remove();
            self.arrive(arrival);
        } else {
            self.nodes.iter_mut().for_each(|node| node.handle_timeout(now));
            for peer in &mut self.peers {
                if peer.endpoint.next_timeout().is_some_and(|at| at <= now) {
                    peer.endpoint.handle_timeout(now);
                }
            }
        }
        self.settle();
        true
    }

    fn arrive(&mut self, arrival: Arrival) {
        let now = self.now;
        match arrival {
            Arrival::Engine(node, ring, event) => {
                if self.nodes[node].ring == Some(ring)
                    && let Some(member) = &mut self.nodes[node].member
                {
                    member.handle_engine(now, event);
                }
            }
            Arrival::Heartbeat(node, link, bytes) => {
                // A node that was added to the cluster may not have been started.
                if let Some(member) = self.nodes.get_mut(node).and_then(|node| node.member.as_mut()) {
                    member.handle_heartbeat(now, link, &bytes);
                }
            }
            // All see all, or one does.
            Arrival::ToCluster(path, bytes) => {
                let (routed, entry) = (self.syncs.routed, self.entry);
                let nodes = self.nodes.iter_mut().enumerate();
                let here = nodes.filter(|(node, _)| !routed || *node == entry);
                for member in here.filter_map(|(_, node)| node.member.as_mut()) {
                    member.handle_ike(now, path, &bytes);
                }
            }
            Arrival::ToPeer(..) if self.deaf => {}
            Arrival::ToPeer(peer, path, bytes) => {
                self.peers[peer].endpoint.handle_datagram(now, path, &bytes);
            }
        }
    }

    pub(crate) fn run(&mut self, time: Duration) {
        let end = self.now.plus(time);
        while self.step(end) {}
        self.now = end;
    }

    /// Nodes and peers load their connections as these make them.
    pub(crate) fn configure(
        &mut self,
        edit_of_cluster: impl Fn(&mut Connection),
        edit_of_peer: impl Fn(&mut Connection),
    ) {
        let now = self.now;
        for (peer, state) in self.peers.iter_mut().enumerate() {
            let (mut here, mut there) = (of_cluster(peer), of_peer(peer));
            edit_of_cluster(&mut here);
            edit_of_peer(&mut there);
            for member in self.nodes.iter_mut().filter_map(|node| node.member.as_mut()) {
                member.endpoint_mut().load_connection(now, here.clone()).unwrap();
            }
            state.endpoint.load_connection(now, there).unwrap();
        }
        self.settle();
    }

    pub(crate) fn set_link(&mut self, node: usize, up: bool) {
        let now = self.now;
        let member = self.nodes[node].member.as_mut().unwrap();
        member.set_link(now, 1, up);
        member.pump(now);
        self.settle();
    }

    pub(crate) fn initiate(&mut self, peer: usize) {
        let now = self.now;
        self.peers[peer].endpoint.initiate(now, Some("cluster"), "net").unwrap();
        self.settle();
    }

    /// The peer starts again without memory.
    pub(crate) fn forget(&mut self, peer: usize, seed: u64) {
        self.peers[peer] = Peer::new(peer, seed, self.syncs, self.now);
    }
}
