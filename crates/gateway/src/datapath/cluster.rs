//! What the data path of a cluster's node is told beside what one is told that stands alone: which
//! shards it carries, with which numbers and sender ID, and until when.

use super::DataPath;
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
use testudo_fastpath::filter::{ClusterFilter, Filter};
use testudo_fastpath::generation;
use testudo_fastpath::vip::host;
use testudo_fastpath::worker::Fence;
use testudo_ike::output::{ChildSaId, Time};
use testudo_ipsec::dataplane::{Command, Note};
use testudo_ipsec::number::SequenceBlock;

/// Packets that a worker notes of shards that go to another node: what passes in some milliseconds.
const MAX_NOTES: usize = 16 << 10;

/// How long what others have worked on is told to workers again, with what has come since: longer
/// than they ask for it.
const HANDLED_LIFETIME: Duration = Duration::from_secs(1);

/// What the start of a node's data path needs.
pub(crate) struct ClusterPlan<'a> {
    /// Addresses that all nodes have.
    pub(crate) vips: BTreeSet<IpAddr>,
    /// Names of the ports.
    pub(crate) ports: Vec<&'a str>,
    /// By which packets that show no home find one.
    pub(crate) key: SipKey,
}

/// The state of a node's data path.
pub(super) struct Clustered {
    pub(super) fence: Arc<Fence>,
    pub(super) vips: BTreeSet<IpAddr>,
    /// Shards that have been given up, until the worker is done with what it had of theirs.
    flushing: VecDeque<ShardSet>,
    /// What others have worked on of shards that have come lately.
    handled: Vec<Handled>,
    /// A deadline that waits until the worker has been sent all that was to be known before it.
    fence_wanted: Option<Time>,
    /// The one that holds.
    fence_at: Time,
}

/// What another node has worked on of shards that have come here.
struct Handled {
    since: Instant,
    shards: ShardSet,
    digests: Vec<u64>,
}

impl ClusterPlan<'_> {
    /// Has the filter keep nothing of what all nodes see, then makes the host one that has the
    /// VIPs, and says so to nobody.
    pub(super) fn begin(&self, filter: &mut Filter, former: &BTreeSet<IpAddr>) -> Result<Clustered> {
        let shown = ClusterFilter { vips: self.vips.clone(), key: self.key.words() };
        filter.set_cluster(Some(&shown))?;
        // One that is missing is made silent when it comes.
        for port in self.ports.iter().filter(|port| is_there(port)) {
            host::silence(port)?;
        }
        host::set_addresses(&self.vips, former)?;
        Ok(Clustered {
            fence: Arc::new(Fence::shut().watching(generation::current)),
            vips: self.vips.clone(),
            flushing: VecDeque::new(),
            handled: Vec::new(),
            fence_wanted: None,
            fence_at: Time::default(),
        })
    }

    /// What the worker hears before any packet.
    pub(super) fn commands(&self) -> [Command; 2] {
        [Command::SetShards(ShardSet::EMPTY), Command::SetHashKey(self.key)]
    }
}

impl DataPath {
    /// What this node carries from now on. The worker has all that was told before; the filter
    /// brings it what is new.
    pub(crate) fn set_shards(&mut self, shown: &Ownership) -> Result<()> {
        let Ownership { packets, held, ike, default_host } = *shown;
        // A worker may stop between the two: what is held then although it is carried only waits.
        self.send(Command::SetShards(packets));
        self.send(Command::Hold(held));
        self.guard.set_shards([packets, ike, held].map(|shards| *shards.words()), default_host)
    }

    /// All neighbours that are known, by the places of their ports.
    pub(crate) fn neighbours(&self) -> impl Iterator<Item = (u8, IpAddr)> + '_ {
        let of_port = |(PortIndex(port), addr)| Some((u8::try_from(port).ok()?, addr));
        self.fib().neighbours().filter_map(of_port)
    }

    /// Asks for those neighbours that are not known.
    pub(crate) fn find_neighbours(&self, neighbours: &[(u8, IpAddr)]) {
        let fib = self.fib();
        for (port, addr) in neighbours {
            let port = PortIndex((*port).into());
            if fib.port(port).is_some() && fib.neighbour(port, *addr).is_none() {
                self.routing.resolve(port, *addr);
            }
        }
    }

    /// From now on clear packets of these shards, which are about to go to another node, are noted.
    pub(crate) fn note(&mut self, shards: ShardSet) {
        let blank = Note { shard: Shard(0), digest: 0 };
        self.send(Command::Note(shards, vec![blank; MAX_NOTES].into_boxed_slice()));
    }

    /// Of shards that come here: what their former nodes have worked on, so that it is not worked
    /// on again.
    pub(crate) fn set_handled(&mut self, shards: ShardSet, digests: Vec<u64>) {
        let Some(cluster) = &mut self.cluster else { return };
        // Shards come one shortly after another, and a worker has one list: what it was told before
        // must stay in it.
        let now = Instant::now();
        cluster.handled.retain(|handled| now.duration_since(handled.since) < HANDLED_LIFETIME);
        cluster.handled.push(Handled { since: now, shards, digests });
        let all = cluster.handled.iter().fold(ShardSet::EMPTY, |all, handled| all.union(handled.shards));
        let digests = cluster.handled.iter().flat_map(|handled| &handled.digests);
        let digests = digests.map(|digest| (*digest, false)).collect();
        self.send(Command::Handled(all, digests));
    }

    /// Packets may leave until then, on the clock of [`crate::clock::cluster_time`].
    pub(crate) fn set_fence(&mut self, until: Time) -> Result<()> {
        if let Some(cluster) = &mut self.cluster {
            cluster.fence_wanted = Some(until);
        }
        self.move_fence()
    }

    /// Moves the fence as far as was last wanted. Whoever sees it open must have all that was to be
    /// known by then: while commands wait it stays where it is, and moves when they have gone. A
    /// deadline that is taken back waits for nothing.
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

    /// What the node holds from now on is of that generation of the machine.
    pub(crate) fn renewed(&mut self, generation: u64) {
        if let Some(cluster) = &mut self.cluster {
            cluster.fence.renewed(generation);
        }
    }

    /// Goes on with a sender ID that nobody has used before.
    pub(crate) fn set_sender(&mut self, sender: SenderId) {
        self.send(Command::SetSenderId(sender));
    }

    /// Sends with none until the next is told.
    pub(crate) fn forget_sender(&mut self) {
        self.send(Command::ForgetSenderId);
    }

    /// Numbers that this node alone may send with.
    pub(crate) fn grant(&mut self, child: ChildSaId, block: SequenceBlock, at_once: bool) -> Result<()> {
        self.sas.grant(child, block, at_once)
    }

    /// Leaves numbers of a gateway that stands alone out. False if there are not so many.
    pub(crate) fn skip_numbers(&self, child: ChildSaId, by: u64) -> bool {
        self.sas.skip(child, by)
    }

    /// Packets of these SAs are this node's to take in: what another may have accepted counts as
    /// seen. Up to where, is returned.
    pub(crate) fn take_in(&mut self, children: &[TakenIn]) -> Result<Box<[(Spi, u64)]>> {
        let floor = |taken: &TakenIn| {
            // Where it is known exactly nobody need look: that takes a system call each.
            let seen = if taken.reach == 0 { None } else { self.guard.seen(taken.spi_in)? };
            Ok::<_, Error>((taken.spi_in, taken.floor(seen)))
        };
        let floors: Box<[(Spi, u64)]> = children.iter().map(floor).collect::<Result<_>>()?;
        self.send(Command::TakeIn(floors.clone()));
        Ok(floors)
    }

    /// Shards that have been given up: [`DataPath::flushed`] tells when the worker is done with
    /// what it had of theirs.
    pub(crate) fn flush_shards(&mut self, shards: ShardSet) {
        if let Some(cluster) = &mut self.cluster {
            cluster.flushing.push_back(shards);
            // The notes come back when all commands before it have been worked off, between two
            // bursts.
            self.send(Command::TakeNotes);
        }
    }

    /// Notes that [`DataPath::flush_shards`] has asked for have come back from all workers.
    pub(super) fn note_flushed(&mut self, notes: Vec<Note>) -> Option<Flushed> {
        let shards = self.cluster.as_mut()?.flushing.pop_front()?;
        let marks = shards.iter().flat_map(|shard| self.sas.edges(shard)).collect();
        Some(Flushed { shards, marks, notes })
    }

    /// Up to where packets have been taken in, on SAs where it has moved since this was asked last.
    pub(crate) fn moved_edges(&self) -> Vec<(Spi, u64)> {
        self.sas.moved_edges().collect()
    }
}
