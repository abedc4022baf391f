//! Groups in virtual time, over a total order that the test may break.

use crate::engine::{EngineEvent, RingId, View};
use crate::group::{
    ClusterKey, Durable, Group, GroupConfig, GroupOutput, Position, RelayKeys, Ticket, ViewStart,
};
use crate::node::NodeId;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use testudo_base::session::Told;
use testudo_base::spi::{SenderId, Shard};
use testudo_ike::output::Time;
use testudo_ike::suite::Entropy;

/// Pseudorandom numbers, which are the same in each run.
pub(super) struct Numbers(pub(super) u64);

impl Entropy for Numbers {
    fn fill(&mut self, out: &mut [u8]) {
        for octet in out {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *octet = (self.0 >> 56) as u8;
        }
    }
}

pub(super) fn id(number: u8) -> NodeId {
    NodeId::new(number.into()).unwrap()
}

/// A node, and what its group has told it.
pub(super) struct Node {
    pub(super) group: Group,
    pub(super) ring: Option<(RingId, Vec<u8>)>,
    pub(super) views: Vec<ViewStart>,
    pub(super) updates: Vec<(u8, Vec<u8>)>,
    pub(super) stable: Ticket,
    pub(super) stable_up_to: Position,
    pub(super) senders: Vec<SenderId>,
    pub(super) fence: Time,
    pub(super) suspects: BTreeSet<u8>,
    /// How often another node became a suspect.
    pub(super) suspicions: usize,
    pub(super) told: Vec<(u8, u32, usize)>,
    pub(super) row_clocks: Vec<(Shard, u64)>,
    /// What other nodes have said of sessions.
    pub(super) sessions: Vec<(u8, Vec<Told>)>,
    /// The keys of each view.
    pub(super) relay_keys: Vec<Vec<RelayKeys>>,
    pub(super) relayed: Vec<(u8, Vec<u8>)>,
    pub(super) well: bool,
    /// It is stopped: nothing reaches it, and nothing leaves it.
    pub(super) stopped: bool,
    /// What has come into its sockets meanwhile.
    pub(super) kept: Vec<(u8, Vec<u8>)>,
    pub(super) disk: Durable,
    /// What a slow disk has not written yet.
    pub(super) writing: Option<Durable>,
    pub(super) slow_disk: bool,
    pub(super) log: Vec<String>,
    pub(super) in_view: bool,
    pub(super) rejoin: bool,
    pub(super) has_left: bool,
    /// How many more messages the engine refuses.
    pub(super) refuse: usize,
}

/// Nodes, the engine between them, and the datagrams under way.
pub(super) struct Net {
    pub(super) now: Time,
    pub(super) nodes: BTreeMap<u8, Node>,
    pub(super) all: Vec<u8>,
    seed: u64,
    rings: u64,
    /// The messages in total order: ring, its members, sender, octets.
    pub(super) order: VecDeque<(RingId, Vec<u8>, u8, Vec<u8>)>,
    pub(super) datagrams: VecDeque<(u8, u8, u8, Vec<u8>)>,
    /// All datagrams from the first node to the second are lost.
    pub(super) lost: BTreeSet<(u8, u8)>,
    /// All datagrams over these links are lost.
    pub(super) lost_links: BTreeSet<u8>,
    /// All datagrams to a node over a link are lost; and all from a node.
    pub(super) deaf: BTreeSet<(u8, u8)>,
    pub(super) mute: BTreeSet<(u8, u8)>,
    pub(super) key: [u8; 32],
    pub(super) tune: fn(&mut GroupConfig),
}

impl Net {
    pub(super) fn new(count: u8) -> Self {
        Self::tuned(count, |_| {})
    }

    pub(super) fn tuned(count: u8, tune: fn(&mut GroupConfig)) -> Self {
        let mut net = Self {
            now: Time(Duration::from_secs(1000)),
            nodes: BTreeMap::new(),
            all: (1..=count).collect(),
            seed: 1,
            rings: 0,
            order: VecDeque::new(),
            datagrams: VecDeque::new(),
            lost: BTreeSet::new(),
            lost_links: BTreeSet::new(),
            deaf: BTreeSet::new(),
            mute: BTreeSet::new(),
            key: [9; 32],
            tune,
        };
        net.all.clone().into_iter().for_each(|number| net.start(number, Durable::default()));
        net
    }

    /// A node begins, or begins anew.
    pub(super) fn start(&mut self, number: u8, disk: Durable) {
        self.seed += 1;
        let nodes = self.all.iter().map(|number| id(*number)).collect();
        let mut config = GroupConfig::new(id(number), nodes, ClusterKey::new(self.key));
        (self.tune)(&mut config);
        let node = Node {
            group: Group::new(config, disk.clone(), Box::new(Numbers(self.seed)), self.now),
            ring: None,
            views: vec![],
            updates: vec![],
            stable: Ticket(0),
            stable_up_to: Position::default(),
            senders: vec![],
            fence: Time::default(),
            suspects: BTreeSet::new(),
            suspicions: 0,
            told: vec![],
            row_clocks: vec![],
            sessions: vec![],
            relay_keys: vec![],
            relayed: vec![],
            well: true,
            stopped: false,
            kept: vec![],
            disk,
            writing: None,
            slow_disk: false,
            log: vec![],
            in_view: false,
            rejoin: false,
            has_left: false,
            refuse: 0,
        };
        self.nodes.insert(number, node);
    }

    pub(super) fn node(&mut self, number: u8) -> &mut Node {
        self.nodes.get_mut(&number).unwrap()
    }

    /// The engine tells the members of a new view. What is under way in an older view is lost.
    pub(super) fn view(&mut self, members: &[u8], quorate: bool) {
        self.order.retain(|(_, of, _, _)| !of.iter().any(|node| members.contains(node)));
        self.rings += 1;
        let ring = RingId { seq: self.rings, node: members[0].into() };
        for number in members {
            let view = View { ring, members: members.iter().map(|node| id(*node)).collect(), quorate };
            self.node(*number).ring = Some((ring, members.to_vec()));
            let now = self.now;
            self.node(*number).group.handle_event(now, EngineEvent::View(view));
        }
        self.collect();
    }

    /// Does what all groups ask for.
    pub(super) fn collect(&mut self) {
        for (number, node) in &mut self.nodes {
            node.group.flush(self.now);
            while let Some(output) = node.group.poll_output() {
                match output {
                    GroupOutput::Multicast(bytes) if node.refuse > 0 => {
                        node.refuse -= 1;
                        node.group.multicast_refused(self.now, bytes);
                    }
                    GroupOutput::Multicast(bytes) => {
                        if let Some((ring, members)) = &node.ring {
                            self.order.push_back((*ring, members.clone(), *number, bytes));
                        }
                    }
                    GroupOutput::Datagram { to, link, bytes } => {
                        self.datagrams.push_back((*number, to.get(), link, bytes));
                    }
                    other => {
                        node.told(other);
                        node.group.flush(self.now);
                    }
                }
            }
        }
    }

    /// Delivers the next message to all members of its ring. False if there is none.
    pub(super) fn deliver(&mut self) -> bool {
        let Some((ring, members, from, bytes)) = self.order.pop_front() else {
            return false;
        };
        for number in members {
            self.deliver_to(number, ring, from, &bytes);
        }
        self.collect();
        true
    }

    pub(super) fn deliver_to(&mut self, number: u8, ring: RingId, from: u8, bytes: &[u8]) {
        let now = self.now;
        if let Some(node) = self.nodes.get_mut(&number)
            && node.ring.as_ref().is_some_and(|(of, _)| *of == ring)
        {
            node.group.handle_event(now, EngineEvent::Message { from: id(from), bytes: bytes.to_vec() });
        }
    }

    /// Delivers the datagrams under way.
    pub(super) fn carry(&mut self) {
        while let Some((from, to, link, bytes)) = self.datagrams.pop_front() {
            let now = self.now;
            if !self.lost.contains(&(from, to))
                && !self.lost_links.contains(&link)
                && !self.deaf.contains(&(to, link))
                && !self.mute.contains(&(from, link))
                && let Some(node) = self.nodes.get_mut(&to)
            {
                match node.stopped {
                    true => node.kept.push((link, bytes)),
                    false => node.group.handle_datagram(now, link, &bytes),
                }
            }
        }
        self.collect();
    }

    /// Until nothing moves.
    pub(super) fn settle(&mut self) {
        self.collect();
        for _ in 0..10_000 {
            let moved = self.deliver();
            let carried = !self.datagrams.is_empty();
            self.carry();
            if !moved && !carried {
                return;
            }
        }
        panic!("it does not come to rest");
    }

    /// Time passes, a millisecond at a time.
    pub(super) fn pass(&mut self, millis: u64) {
        for _ in 0..millis {
            self.now = self.now.plus(Duration::from_millis(1));
            let now = self.now;
            for node in self.nodes.values_mut() {
                if !node.stopped && node.group.next_timeout().is_some_and(|at| at <= now) {
                    node.group.handle_timeout(now);
                }
            }
            self.settle();
        }
    }

    /// Time passes, and what leaves meanwhile stays under way.
    pub(super) fn pass_without_carrying(&mut self, millis: u64) {
        self.now = self.now.plus(Duration::from_millis(millis));
        let now = self.now;
        self.nodes.values_mut().for_each(|node| node.group.handle_timeout(now));
        self.collect();
    }

    /// From now on no datagram reaches the node, and none leaves it.
    pub(super) fn isolate(&mut self, node: u8) {
        let others = self.all.iter().filter(|other| **other != node);
        self.lost.extend(others.flat_map(|other| [(node, *other), (*other, node)]));
    }

    /// A stopped node goes on.
    pub(super) fn wake(&mut self, number: u8) {
        let now = self.now;
        let node = self.node(number);
        node.stopped = false;
        for (link, bytes) in std::mem::take(&mut node.kept) {
            node.group.handle_datagram(now, link, &bytes);
        }
        self.settle();
    }

    /// A node loses its memory, and begins anew with what is on its disk.
    pub(super) fn restart(&mut self, number: u8) {
        let disk = self.node(number).disk.clone();
        self.start(number, disk);
    }

    /// The slow disk of a node has written.
    pub(super) fn write(&mut self, number: u8) {
        let node = self.node(number);
        if let Some(durable) = node.writing.take() {
            node.group.persisted(&durable);
            node.disk = durable;
        }
        self.settle();
    }

    pub(super) fn publish(&mut self, number: u8, update: &[u8]) -> Ticket {
        self.node(number).group.publish(update.to_vec())
    }
}

impl Node {
    fn told(&mut self, output: GroupOutput) {
        match output {
            GroupOutput::View(start) => {
                self.in_view = start.view.quorate;
                if start.reset {
                    self.updates.clear();
                }
                self.views.push(start);
            }
            GroupOutput::NoView => self.in_view = false,
            GroupOutput::Delivered { from, update, .. } => {
                assert!(self.in_view, "nothing is delivered without a view");
                self.updates.push((from.get(), update.to_vec()));
            }
            GroupOutput::Stable(ticket) => {
                assert!(ticket >= self.stable);
                self.stable = ticket;
            }
            GroupOutput::StableUpTo(at) => {
                assert!(at > self.stable_up_to);
                self.stable_up_to = at;
            }
            GroupOutput::Sender(sender) => self.senders.push(sender),
            GroupOutput::Persist(durable) if self.slow_disk => self.writing = Some(durable),
            GroupOutput::Persist(durable) => {
                self.group.persisted(&durable);
                self.disk = durable;
            }
            GroupOutput::Rejoin => self.rejoin = true,
            GroupOutput::Leave => self.has_left = true,
            GroupOutput::Log { message, .. } => self.log.push(message),
            GroupOutput::Fence(until) => self.fence = until,
            GroupOutput::Suspected(node) => {
                self.suspicions += usize::from(self.suspects.insert(node.get()));
            }
            GroupOutput::Trusted(node) => assert!(self.suspects.remove(&node.get())),
            GroupOutput::Ports { well } => self.well = well,
            GroupOutput::Told { from, links, provisional } => {
                self.told.push((from.get(), links, provisional.len()));
            }
            GroupOutput::RowClocks(clocks) => self.row_clocks = clocks,
            GroupOutput::Sessions { from, told } => self.sessions.push((from.get(), told)),
            GroupOutput::RelayKeys(keys) => self.relay_keys.push(keys),
            GroupOutput::Relayed { from, octets } => self.relayed.push((from.get(), octets)),
            GroupOutput::Multicast(_) | GroupOutput::Datagram { .. } | GroupOutput::Rosters => {}
        }
    }

    pub(super) fn last_view(&self) -> &ViewStart {
        self.views.last().unwrap()
    }
}
