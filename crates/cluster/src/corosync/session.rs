//! One connection to corosync: CPG, quorum and its votes together, from initialisation to the end
//! of any.

use super::callbacks;
use super::error::{Error, Result};
use super::wire::Process;
use crate::node::NodeId;
use rust_corosync::votequorum::NodeInfoFlags;
use rust_corosync::{CsError, DispatchFlags, TrackFlags, cpg, quorum, votequorum};
use std::os::fd::RawFd;

/// Callbacks of one descriptor before the other things get their turn.
const MAX_CALLBACKS: usize = 256;

/// All handles; dropping them ends the membership.
pub(super) struct Session {
    cpg: cpg::Handle,
    quorum: quorum::Handle,
    votes: votequorum::Handle,
    /// Descriptors of CPG and of quorum.
    pub(super) fds: [RawFd; 2],
    /// This process in the group.
    pub(super) me: Process,
}

/// What became of an attempt to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// Corosync has it.
    Yes,
    /// Not now: a membership is being formed, or too much is under way.
    TryAgain,
}

impl Session {
    /// Connects and asks to join. The join itself comes as the first membership.
    pub(super) fn open(node: NodeId, group: &str) -> Result<Self> {
        callbacks::clear();
        // CPG first: whatever changes from here on it tells. Then quorum, which tells its present
        // state at once.
        let cpg = cpg::initialize(&callbacks::of_cpg(), 0).map_err(Error::call("connect to corosync"))?;
        let local = u32::from(cpg::local_get(&cpg).map_err(Error::call("ask corosync for its nodeid"))?);
        if local != u32::from(node.get()) {
            return Err(Error::NodeId { found: local, expected: node });
        }
        let (quorum, kind) = quorum::initialize(&callbacks::of_quorum(), 0)
            .map_err(Error::call("connect to corosync's quorum service"))?;
        if matches!(kind, quorum::QuorumType::Free) {
            return Err(Error::NoVotes);
        }
        quorum::trackstart(&quorum, TrackFlags::Changes).map_err(Error::call("follow corosync's quorum"))?;
        let votes = votequorum::initialize(&callbacks::of_votes())
            .map_err(Error::call("connect to corosync's votequorum"))?;
        let fds = [cpg::fd_get(&cpg), quorum::fd_get(&quorum)];
        let [Ok(cpg_fd), Ok(quorum_fd)] = fds else {
            return Err(Error::NoDescriptor);
        };
        cpg::join(&cpg, group).map_err(Error::call("join corosync's group"))?;
        let me = Process { node: local, pid: std::process::id() };
        Ok(Self { cpg, quorum, votes, fds: [cpg_fd, quorum_fd], me })
    }

    /// Has CPG call back what waits; true if there may be more.
    pub(super) fn dispatch_cpg(&self) -> Result<bool> {
        dispatch(|| cpg::dispatch(&self.cpg, DispatchFlags::OneNonblocking))
    }

    /// Has quorum call back what waits; true if there may be more.
    pub(super) fn dispatch_quorum(&self) -> Result<bool> {
        dispatch(|| quorum::dispatch(&self.quorum, DispatchFlags::OneNonblocking))
    }

    /// Whether no other ring can be quorate beside one of so many daemons that corosync calls
    /// quorate.
    pub(super) fn is_the_only_one(&self, daemons: usize) -> Result<bool> {
        let info = self.info().map_err(Error::call("ask corosync for its votes"))?;
        Ok(is_majority(info.quorum, info.highest_expected, daemons))
    }

    /// Whether corosync's quorum device, the witness, gives this node its vote. `None` if none is
    /// configured, or nobody knows.
    pub(super) fn witness(&self) -> Option<bool> {
        let info = self.info().ok()?;
        votes(info.qdevice_votes, &info.flags)
    }

    /// What votequorum knows of this node.
    fn info(&self) -> rust_corosync::Result<votequorum::NodeInfo> {
        votequorum::get_info(&self.votes, rust_corosync::NodeId::from(self.me.node))
    }

    /// Multicasts in agreed order.
    pub(super) fn send(&self, framed: &[u8]) -> Result<Sent> {
        match cpg::mcast_joined(&self.cpg, cpg::Guarantee::TypeAgreed, framed) {
            Ok(()) => Ok(Sent::Yes),
            Err(CsError::CsErrTryAgain) => Ok(Sent::TryAgain),
            Err(error) => Err(Error::call("multicast through corosync")(error)),
        }
    }
}

/// With `two_node: 1` one vote of two is a quorum, and each half of a cluster that is cut has it.
/// Who sees both daemons is alone all the same.
fn is_majority(quorum: u32, votes: u32, daemons: usize) -> bool {
    let votes = u64::from(votes);
    u64::from(quorum) * 2 > votes || daemons as u64 * 2 > votes
}

fn votes(device: u32, flags: &NodeInfoFlags) -> Option<bool> {
    // Where corosync, a later one, sets a flag that the library does not know, the library shows
    // none.
    let known = device > 0 && !flags.is_empty();
    known.then(|| flags.contains(NodeInfoFlags::VOTEQUORUM_INFO_QDEVICE_CAST_VOTE))
}

fn dispatch(one: impl Fn() -> rust_corosync::Result<()>) -> Result<bool> {
    for _ in 0..MAX_CALLBACKS {
        match one() {
            Ok(()) => {}
            Err(CsError::CsErrTryAgain) => return Ok(false),
            Err(error) => return Err(Error::call("hear corosync")(error)),
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::{NodeInfoFlags, is_majority, votes};

    #[test]
    fn one_vote_of_two_is_no_majority_whatever_corosync_calls_it() {
        assert!(is_majority(2, 3, 2) && is_majority(2, 2, 2) && is_majority(3, 4, 3));
        assert!(is_majority(2, 3, 1), "one daemon, and the vote of a device");
        assert!(!is_majority(1, 2, 1), "two_node");
        assert!(is_majority(1, 2, 2), "two_node, with both there");
        assert!(is_majority(1, 1, 1), "a cluster of one");
    }

    #[test]
    fn a_witness_votes_only_if_corosync_says_so() {
        let quorate = NodeInfoFlags::VOTEQUORUM_INFO_QUORATE.bits();
        let there = NodeInfoFlags::VOTEQUORUM_INFO_QDEVICE_ALIVE.bits();
        let cast = NodeInfoFlags::VOTEQUORUM_INFO_QDEVICE_CAST_VOTE.bits();
        let told =
            |device, flags| votes(device, &NodeInfoFlags::from_bits(flags).unwrap_or(NodeInfoFlags::empty()));
        assert_eq!(told(0, quorate), None, "none is configured");
        assert_eq!(told(1, quorate | there | cast), Some(true));
        assert_eq!(told(1, quorate | there), Some(false), "its daemon is there, and has no answer of it");
        assert_eq!(told(1, quorate), Some(false), "not even its daemon");
        assert_eq!(told(1, quorate | there | cast | 1 << 20), None, "a flag that the library does not know");
    }
}
