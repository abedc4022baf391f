//! What the data path needs in a cluster: which shards the node carries, with which numbers and
//! sender ID, and until when.

use super::DataPath;
use super::relay::Relays;
use super::spread::{NodeClocks, NodeSessions};
use crate::clock::on_boottime;
use crate::error::{Error, Result};
use crate::queue_assignment::is_there;
use std::collections::{BTreeSet, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use testudo_base::shard::ShardSet;
use testudo_base::siphash::SipKey;
use testudo_base::spi::{SenderId, Shard, Spi};
use testudo_cluster::dispatch::Ownership;
use testudo_cluster::member::{Flushed, TakenIn};
use testudo_fastpath::fib::PortIndex;
use testudo_fastpath::filter::{ClusterFilter, Filter, KeptShards};
use testudo_fastpath::generation;
use testudo_fastpath::vip::host;
use testudo_fastpath::worker::Fence;
use testudo_ike::output::{ChildSaId, Time};
use testudo_ipsec::dataplane::{Command, Note};
use testudo_ipsec::number::SequenceBlock;

/// Packets of departing shards that a worker notes: as many as pass in some milliseconds.
const MAX_NOTES: usize = 16 << 10;

/// How long workers are told again of packets that others have worked on: longer than they ask for
/// them.
const HANDLED_LIFETIME: Duration = Duration::from_secs(1);

/// What the start of a node's data path needs.
pub(crate) struct ClusterPlan<'a> {
    /// Addresses that all nodes have.
    pub(crate) vips: BTreeSet<IpAddr>,
    /// Names of the ports.
    pub(crate) ports: Vec<&'a str>,
    /// Chooses the home of packets that show none.
    pub(crate) key: SipKey,
    /// How many nodes there are.
    pub(crate) nodes: u64,
    /// How many numbers the smallest replay window of a spread tunnel's peer holds.
    pub(crate) peer_window: u64,
    /// Routers bring each packet to one node.
    pub(crate) routed: bool,
}

/// The state of a node's data path.
pub(super) struct Clustered {
    pub(super) fence: Arc<Fence>,
    pub(super) vips: BTreeSet<IpAddr>,
    pub(super) clocks: Arc<NodeClocks>,
    pub(super) sessions: NodeSessions,
    /// How many nodes there are.
    pub(super) nodes: u64,
    /// How many numbers the smallest replay window of a spread tunnel's peer holds.
    pub(super) peer_window: u64,
    /// Routers bring each packet to one node.
    routed: bool,
    pub(super) relays: Relays,
    /// Shards that were given up, until the workers are done with their packets.
    flushing: VecDeque<ShardSet>,
    /// What former owners have worked on, of shards that have come lately.
    handled: Vec<Handled>,
    /// A deadline that waits until the workers have all commands before it.
    fence_wanted: Option<Time>,
    /// The deadline that holds.
    fence_at: Time,
}

/// What a former owner has worked on, of shards that have come here.
struct Handled {
    since: Instant,
    shards: ShardSet,
    digests: Vec<u64>,
}

impl ClusterPlan<'_> {
    /// Has the filter take none of the packets that all nodes see, then adds the VIPs to the host,
    /// silently.
    pub(super) fn begin(&self, filter: &mut Filter, former: &BTreeSet<IpAddr>) -> Result<Clustered> {
        let shown = ClusterFilter { vips: self.vips.clone(), key: self.key.words(), routed: self.routed };
        filter.set_cluster(Some(&shown))?;
        // A missing interface is made silent when it comes.
        for port in self.ports.iter().filter(|port| is_there(port)) {
            host::silence(port)?;
        }
        host::set_addresses(&self.vips, former)?;
        Ok(Clustered {
            fence: Arc::new(Fence::shut().watching(generation::current)),
            vips: self.vips.clone(),
            clocks: Arc::new(NodeClocks::new(filter.clocks()?)),
            sessions: NodeSessions::new(filter.sessions()?),
            nodes: self.nodes,
            peer_window: self.peer_window,
            routed: self.routed,
            relays: Relays::new(),
            flushing: VecDeque::new(),
            handled: Vec::new(),
            fence_wanted: None,
            fence_at: Time::default(),
        })
    }

    /// The commands that workers get before any packet.
    pub(super) fn commands(&self) -> [Command; 2] {
        [Command::SetShards(ShardSet::EMPTY), Command::SetHashKey(self.key)]
    }
}

impl DataPath {
    /// The number of the cluster's nodes.
    pub(crate) fn set_node_count(&mut self, nodes: u64) {
        if let Some(cluster) = &mut self.cluster {
            cluster.nodes = nodes;
        }
    }

    /// Sets what this node carries. The workers have all commands from before; the filter brings
    /// them the new packets.
    pub(crate) fn set_shards(&mut self, shown: &Ownership) -> Result<()> {
        let Ownership { packets, held, ike, default_host, in_turn } = *shown;
        // A worker may stop between the two: packets that are held although they are carried only
        // wait.
        self.send(Command::SetShards(packets));
        self.send(Command::Hold(held));
        let [packets, ike, held] = [packets, ike, held].map(|shards| *shards.words());
        self.guard.set_shards(KeptShards { packets, ike, held, default_host, in_turn })
    }

    /// All neighbours that are known, with the places of their ports.
    pub(crate) fn neighbours(&self) -> impl Iterator<Item = (u8, IpAddr)> + '_ {
        let of_port = |(PortIndex(port), addr)| Some((u8::try_from(port).ok()?, addr));
        self.fib().neighbours().filter_map(of_port)
    }

    /// Asks for the neighbours that are not known.
    pub(crate) fn find_neighbours(&self, neighbours: &[(u8, IpAddr)]) {
        let fib = self.fib();
        for (port, addr) in neighbours {
            let port = PortIndex((*port).into());
            if fib.port(port).is_some() && fib.neighbour(port, *addr).is_none() {
                self.routing.resolve(port, *addr);
            }
        }
    }

    /// True if no packet reaches two nodes.
    pub(super) fn is_routed(&self) -> bool {
        self.cluster.as_ref().is_some_and(|cluster| cluster.routed)
    }

    /// Has workers note the clear packets of these shards, which are about to go to another node.
    /// The next owner drops what was noted. If it has none of these packets, what looks like one is
    /// another packet: nothing is noted.
    pub(crate) fn note(&mut self, shards: ShardSet) {
        let blank = Note { shard: Shard(0), digest: 0 };
        let room = if self.is_routed() { 0 } else { MAX_NOTES };
        self.send(Command::Note(shards, vec![blank; room].into_boxed_slice()));
    }

    /// Shards come here: sets what their former owners have worked on, so that it is not worked on
    /// again.
    pub(crate) fn set_handled(&mut self, shards: ShardSet, digests: Vec<u64>) {
        let Some(cluster) = &mut self.cluster else { return };
        // Shards come shortly one after another, and a worker has a single list: what came before
        // must stay in it.
        let now = Instant::now();
        cluster.handled.retain(|handled| now.duration_since(handled.since) < HANDLED_LIFETIME);
        cluster.handled.push(Handled { since: now, shards, digests });
        let all = cluster.handled.iter().fold(ShardSet::EMPTY, |all, handled| all.union(handled.shards));
        let digests = cluster.handled.iter().flat_map(|handled| &handled.digests);
        let digests = digests.map(|digest| (*digest, false)).collect();
        self.send(Command::Handled(all, digests));
    }

    /// Sets until when packets may leave, on the clock of [`crate::clock::cluster_time`].
    pub(crate) fn set_fence(&mut self, until: Time) -> Result<()> {
        if let Some(cluster) = &mut self.cluster {
            cluster.fence_wanted = Some(until);
        }
        self.move_fence()
    }

    /// Moves the fence to the deadline that was last wanted. A worker that sees it open must have
    /// all commands from before: while some wait, the fence moves only when they have gone. An
    /// earlier deadline does not wait.
    pub(super) fn move_fence(&mut self) -> Result<()> {
        let Some(cluster) = &mut self.cluster else { return Ok(()) };
        let at = cluster.fence_at;
        let is_flushed = self.workers.is_flushed();
        let due = |until: &mut Time| is_flushed || *until < at;
        let Some(until) = cluster.fence_wanted.take_if(due) else { return Ok(()) };
        cluster.fence_at = until;
        let until = on_boottime(until);
        cluster.fence.extend(until);
        self.guard.set_fence(u64::try_from(until.as_nanos()).unwrap_or(u64::MAX))
    }

    /// What the node holds from now on belongs to that generation of the machine.
    pub(crate) fn renewed(&mut self, generation: u64) {
        if let Some(cluster) = &mut self.cluster {
            cluster.fence.renewed(generation);
        }
    }

    /// Goes on with a sender ID that nobody has used before.
    pub(crate) fn set_sender(&mut self, sender: SenderId) {
        self.send(Command::SetSenderId(sender));
    }

    /// Sends nothing that needs a sender ID until the next one is set.
    pub(crate) fn forget_sender(&mut self) {
        self.send(Command::ForgetSenderId);
    }

    /// Grants numbers that only this node may send with.
    pub(crate) fn grant(&mut self, child: ChildSaId, block: SequenceBlock, at_once: bool) -> Result<()> {
        self.sas.grant(child, block, at_once)
    }

    /// Skips numbers, in a gateway that stands alone. False if fewer are left.
    pub(crate) fn skip_numbers(&self, child: ChildSaId, by: u64) -> bool {
        self.sas.skip(child, by)
    }

    /// This node accepts packets of these SAs from now on. Numbers that another node may have
    /// accepted count as seen. Gives the highest of them.
    pub(crate) fn take_in(&mut self, children: &[TakenIn]) -> Result<Box<[(Spi, u64)]>> {
        let floor = |taken: &TakenIn| {
            // Where it is known exactly, no system call is spent on it.
            let seen = if taken.reach == 0 { None } else { self.guard.seen(taken.spi_in)? };
            Ok::<_, Error>((taken.spi_in, taken.floor(seen)))
        };
        let floors: Box<[(Spi, u64)]> = children.iter().map(floor).collect::<Result<_>>()?;
        self.send(Command::TakeIn(floors.clone()));
        Ok(floors)
    }

    /// Shards were given up: [`WorkerEvent::Flushed`] tells when the workers are done with their
    /// packets.
    pub(crate) fn flush_shards(&mut self, shards: ShardSet) {
        if let Some(cluster) = &mut self.cluster {
            cluster.flushing.push_back(shards);
            // The notes come back when all commands before this one are done, between two bursts.
            self.send(Command::TakeNotes);
        }
    }

    /// Notes that [`DataPath::flush_shards`] has asked for have come back from all workers.
    pub(super) fn note_flushed(&mut self, notes: Vec<Note>) -> Option<Flushed> {
        let shards = self.cluster.as_mut()?.flushing.pop_front()?;
        let marks = shards.iter().flat_map(|shard| self.sas.high_water_marks(shard)).collect();
        Some(Flushed { shards, marks, tops: self.lane_tops(shards), notes })
    }

    /// The high-water marks that have moved since the last call.
    pub(crate) fn moved_high_water_marks(&self) -> Vec<(Spi, u64)> {
        self.sas.moved_high_water_marks().collect()
    }
}
