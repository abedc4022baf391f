//! What the data path of a cluster's node is told beside what one is told that stands alone: which shares it carries, with which
//! numbers and sender ID, and until when.

use super::DataPath;
use std::collections::{BTreeSet, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use testudo_cluster::member::TakenIn;
use testudo_cluster::share::ShareSet;
use testudo_fastpath::filter::{ClusterFilter, Filter};
use testudo_fastpath::vip::host;
use testudo_fastpath::worker::Fence;
use testudo_ike::output::{ChildSaId, Time};
use testudo_ipsec::dataplane::Command;
use testudo_ipsec::number::SequenceBlock;
use testudo_ipsec::siphash::HashKey;
use testudo_ipsec::spi::{SenderId, Spi};

/// What the start of a node's data path needs.
pub(crate) struct ClusterPlan<'a> {
    /// Addresses that all nodes have.
    pub(crate) vips: BTreeSet<IpAddr>,
    /// Names of the ports.
    pub(crate) ports: Vec<&'a str>,
    /// By which packets that show no home find one.
    pub(crate) key: HashKey,
}

/// The state of a node's data path.
pub(super) struct Clustered {
    pub(super) fence: Arc<Fence>,
    pub(super) vips: BTreeSet<IpAddr>,
    /// Shares that have been given up, until the worker is done with what it had of theirs.
    flushing: VecDeque<ShareSet>,
    /// A deadline that waits until the worker has been sent all that was to be known before it.
    fence_wanted: Option<Time>,
    /// The one that holds.
    fence_at: Time,
}

impl ClusterPlan<'_> {
    /// Has the filter keep nothing of what all nodes see, then makes the host one that has the VIPs, and says so to nobody.
    pub(super) fn begin(&self, filter: &mut Filter, former: &BTreeSet<IpAddr>) -> Result<Clustered, String> {
        let shown = ClusterFilter { vips: self.vips.clone(), key: self.key.words() };
        filter.set_cluster(Some(&shown)).map_err(|e| e.to_string())?;
        for port in &self.ports {
            host::silence(port).map_err(|e| e.to_string())?;
        }
        host::set_addresses(&self.vips, former).map_err(|e| e.to_string())?;
        Ok(Clustered {
            fence: Arc::new(Fence::shut()),
            vips: self.vips.clone(),
            flushing: VecDeque::new(),
            fence_wanted: None,
            fence_at: Time::default(),
        })
    }

    /// What the worker hears before any packet.
    pub(super) fn commands(&self) -> [Command; 2] {
        [Command::SetShares(ShareSet::EMPTY), Command::SetHashKey(self.key)]
    }
}

impl DataPath {
    /// What this node carries from now on. The worker has all that was told before; the filter brings it what is new.
    pub(crate) fn set_shares(
        &mut self,
        packets: ShareSet,
        ike: ShareSet,
        default_host: bool,
    ) -> Result<(), String> {
        self.send(Command::SetShares(packets));
        self.guard.set_shares(*packets.words(), *ike.words(), default_host)
    }

    /// Packets may leave until then, on the clock of [`testudo_fastpath::worker::boottime`].
    pub(crate) fn set_fence(&mut self, until: Time) -> Result<(), String> {
        if let Some(cluster) = &mut self.cluster {
            cluster.fence_wanted = Some(until);
        }
        self.move_fence()
    }

    /// Moves the fence as far as was last wanted. Whoever sees it open must have all that was to be known by then: while commands
    /// wait it stays where it is, and moves when they have gone. A deadline that is taken back waits for nothing.
    pub(super) fn move_fence(&mut self) -> Result<(), String> {
        let Some(cluster) = &mut self.cluster else { return Ok(()) };
        let at = cluster.fence_at;
        let is_flushed = self.workers.is_flushed();
        let due = |until: &mut Time| is_flushed || *until < at;
        let Some(until) = cluster.fence_wanted.take_if(due) else { return Ok(()) };
        cluster.fence_at = until;
        cluster.fence.extend(until.0);
        self.guard.set_fence(u64::try_from(until.0.as_nanos()).unwrap_or(u64::MAX))
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
    pub(crate) fn grant(
        &mut self,
        child: ChildSaId,
        block: SequenceBlock,
        at_once: bool,
    ) -> Result<(), String> {
        self.sas.grant(child, block, at_once)
    }

    /// Packets of these SAs are this node's to take in: what another may have accepted counts as seen. Up to where, is returned.
    pub(crate) fn take_in(&mut self, children: &[TakenIn]) -> Result<Box<[(Spi, u64)]>, String> {
        let floor = |taken: &TakenIn| Ok((taken.spi_in, taken.floor(self.guard.seen(taken.spi_in)?)));
        let floors: Box<[(Spi, u64)]> = children.iter().map(floor).collect::<Result<_, String>>()?;
        self.send(Command::TakeIn(floors.clone()));
        Ok(floors)
    }

    /// Shares that have been given up: [`DataPath::flushed`] tells when the worker is done with what it had of theirs.
    pub(crate) fn flush_shares(&mut self, shares: ShareSet) {
        if let Some(cluster) = &mut self.cluster {
            cluster.flushing.push_back(shares);
            // It comes back when all commands before it have been worked off, between two bursts.
            self.send(Command::TakeIn(Box::default()));
        }
    }

    /// A mark of [`DataPath::flush_shares`] has come back.
    pub(super) fn note_flushed(&mut self) -> Option<(ShareSet, Vec<(Spi, u64)>)> {
        let shares = self.cluster.as_mut()?.flushing.pop_front()?;
        let edges = self.sas.edges().filter(|(spi, _)| shares.contains(spi.share())).collect();
        Some((shares, edges))
    }

    /// Up to where packets have been taken in, on SAs where it has moved since this was asked last.
    pub(crate) fn moved_edges(&self) -> Vec<(Spi, u64)> {
        self.sas.moved_edges().collect()
    }
}
