//! One connection to corosync: CPG, quorum and votequorum together, from initialisation until one
//! of them ends.

use super::error::{Error, Result};
use super::wire::{Incoming, Process, Ring, read};
use crate::node::NodeId;
use std::collections::VecDeque;
use std::os::fd::RawFd;
use testudo_corosync::{
    Address, Cpg, CpgEvent, Error as CallError, Libraries, Map, Quorum, QuorumEvent, RingId, Status,
    VoteInfo, Votes,
};

/// Notifications of one connection before the other things get their turn.
const MAX_DISPATCHED: usize = 256;

/// All connections; dropping them ends the membership.
pub(super) struct Session {
    cpg: Cpg,
    quorum: Quorum,
    votes: Votes,
    map: Map,
    /// Descriptors of CPG and of quorum.
    pub(super) fds: [RawFd; 2],
    /// This process in the group.
    pub(super) me: Process,
}

/// A notification of CPG or of quorum.
#[derive(Debug)]
pub(super) enum Notification {
    /// The processes of the group.
    Members(Vec<Process>),
    /// CPG's order has come to this ring.
    Ring(Ring),
    /// A message of the group.
    Message(Process, Incoming),
    /// Whether a ring is quorate, and the nodes of its daemons.
    Quorum(Ring, bool, Vec<NodeId>),
}

/// The result of an attempt to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// Corosync has it.
    Yes,
    /// Not now: a membership is being formed, or too many messages are under way.
    TryAgain,
}

impl Session {
    /// Connects and asks to join. The join itself comes as the first membership.
    pub(super) fn open(libraries: Libraries, node: NodeId, group: &str) -> Result<Self> {
        // CPG first: it reports every change from here on. Then quorum, which reports its present
        // state at once.
        let cpg = Cpg::connect(libraries).map_err(Error::call("connect to corosync"))?;
        let local = cpg.nodeid().map_err(Error::call("ask corosync for its nodeid"))?;
        if local != u32::from(node.get()) {
            return Err(Error::NodeId { found: local, expected: node });
        }
        let quorum =
            Quorum::connect(libraries).map_err(Error::call("connect to corosync's quorum service"))?;
        if !quorum.counts_votes() {
            return Err(Error::NoVotes);
        }
        quorum.follow().map_err(Error::call("follow corosync's quorum"))?;
        let votes = Votes::connect(libraries).map_err(Error::call("connect to corosync's votequorum"))?;
        let map = Map::connect(libraries).map_err(Error::call("connect to corosync's map"))?;
        let (Ok(cpg_fd), Ok(quorum_fd)) = (cpg.fd(), quorum.fd()) else {
            return Err(Error::NoDescriptor);
        };
        cpg.join(group).map_err(Error::call("join corosync's group"))?;
        let me = Process { node: local, pid: std::process::id() };
        Ok(Self { cpg, quorum, votes, map, fds: [cpg_fd, quorum_fd], me })
    }

    /// Appends what CPG notifies of to the queue; true if there may be more.
    pub(super) fn dispatch_cpg(&self, queue: &mut VecDeque<Notification>) -> Result<bool> {
        dispatch(queue, || self.cpg.dispatch())
    }

    /// Appends what quorum notifies of to the queue; true if there may be more.
    pub(super) fn dispatch_quorum(&self, queue: &mut VecDeque<Notification>) -> Result<bool> {
        dispatch(queue, || self.quorum.dispatch())
    }

    /// Votequorum's data about this node.
    pub(super) fn votes(&self) -> Result<VoteInfo> {
        self.votes.info(self.me.node).map_err(Error::call("ask corosync for its votes"))
    }

    /// The nodes of corosync.conf, as this daemon has read it last.
    pub(super) fn nodes(&self) -> Result<Vec<NodeId>> {
        let nodes = self.map.nodes().map_err(Error::call("ask corosync for its nodes"))?;
        Ok(numbers(&nodes))
    }

    /// Multicasts in agreed order.
    pub(super) fn send(&self, framed: &[u8]) -> Result<Sent> {
        match self.cpg.multicast(framed) {
            Ok(()) => Ok(Sent::Yes),
            Err(CallError::Call(Status::TRY_AGAIN)) => Ok(Sent::TryAgain),
            Err(error) => Err(Error::call("multicast through corosync")(error)),
        }
    }
}

impl From<Address> for Process {
    fn from(address: Address) -> Self {
        Self { node: address.nodeid, pid: address.pid }
    }
}

impl From<RingId> for Ring {
    fn from(ring: RingId) -> Self {
        Self { seq: ring.seq, node: ring.nodeid }
    }
}

impl From<CpgEvent> for Notification {
    fn from(event: CpgEvent) -> Self {
        match event {
            CpgEvent::Members(members) => Self::Members(members.into_iter().map(Process::from).collect()),
            CpgEvent::Ring(ring) => Self::Ring(ring.into()),
            CpgEvent::Message(from, bytes) => Self::Message(from.into(), read(&bytes)),
        }
    }
}

impl From<QuorumEvent> for Notification {
    fn from(event: QuorumEvent) -> Self {
        Self::Quorum(event.ring.into(), event.quorate, numbers(&event.nodes))
    }
}

/// The nodes with valid numbers, sorted.
fn numbers(nodes: &[u32]) -> Vec<NodeId> {
    let mut nodes: Vec<NodeId> = nodes.iter().copied().filter_map(NodeId::new).collect();
    nodes.sort_unstable();
    nodes
}

fn dispatch<E: Into<Notification>>(
    queue: &mut VecDeque<Notification>,
    next: impl Fn() -> std::result::Result<Option<E>, CallError>,
) -> Result<bool> {
    for _ in 0..MAX_DISPATCHED {
        match next() {
            Ok(event) => queue.extend(event.map(Into::into)),
            Err(CallError::Call(Status::TRY_AGAIN)) => return Ok(false),
            Err(error) => return Err(Error::call("hear corosync")(error)),
        }
    }
    Ok(true)
}
