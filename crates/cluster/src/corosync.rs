//! The engine of real clusters: corosync's closed process groups (CPG) and its votequorum.
//!
//! One thread calls corosync's libraries and nothing else does: they block while a daemon does not
//! answer. The host hands messages over and takes events, and waits for [`Corosync::wake_fd`].
//!
//! The host loads the libraries ([`Libraries::load`]). A gateway that stands alone does not, and
//! runs without them.
//!
//! A daemon that dies is waited for: [`EngineEvent::Down`] reports it once, and the next view says
//! that it is back. Messages that were not sent when a view ended belong to that view and are
//! dropped: the host must publish again what still counts.
//!
//! A host has to take its events. A host that stands still for seconds, stopped or stuck, is put
//! out by the others, and joins again when it goes on.

mod agreement;
mod error;
mod roll;
mod rule;
mod session;
mod shared;
mod thread;
mod wire;
mod witness;

use crate::engine::{Engine, EngineEvent};
use crate::node::NodeId;
use shared::Shared;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;
use thread::Thread;
use witness::Watch;

pub use rule::Electorate;
pub use testudo_corosync::{Error, Libraries};

/// How long the end waits for corosync's libraries. They block if the daemon is stopped.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);
/// `CPG_NAMELEN_MAX` without the closing NUL.
const GROUP_NAME: usize = 127;

/// A member of a group in this host's corosync.
pub struct Corosync {
    shared: Arc<Shared>,
}

impl Corosync {
    /// Starts the thread, which connects by these libraries to the corosync of the calling thread's
    /// network namespace. `node` is the number that corosync has to have as its `nodeid`, in a
    /// cluster of this `electorate`; `group` names the cluster among those that share the corosync.
    /// `begin` is called first on the new thread: to set its priority, say.
    pub fn start(
        libraries: Libraries,
        node: NodeId,
        electorate: Electorate,
        group: &str,
        begin: impl FnOnce() + Send + 'static,
    ) -> io::Result<Self> {
        if group.is_empty() || group.len() > GROUP_NAME {
            let message =
                format!("a group's name has 1 to {GROUP_NAME} octets, this one has {}", group.len());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let poll = mio::Poll::new()?;
        let waker = mio::Waker::new(poll.registry(), thread::WAKE)?;
        let shared = Arc::new(Shared::new(waker, electorate)?);
        let thread = Thread {
            poll,
            shared: Arc::clone(&shared),
            libraries,
            node,
            rule: electorate.rule,
            group: group.to_owned(),
            witness: Watch::default(),
        };
        std::thread::Builder::new().name("corosync".into()).spawn(move || {
            begin();
            thread.run();
        })?;
        Ok(Self { shared })
    }

    /// Leaves the group and joins it again: the events so far, and the others' knowledge of this
    /// node, are void.
    pub fn rejoin(&mut self) {
        self.shared.rejoin();
    }

    /// Whether the witness (corosync's quorum device) gives this node its vote, as of the last
    /// check, one a second. `None` if corosync has no witness, or is not running.
    pub fn witness(&self) -> Option<bool> {
        self.shared.witness()
    }

    /// What in corosync.conf does not fit the rule of quorum, as of the last check.
    pub fn misfit(&self) -> Option<String> {
        self.shared.misfit()
    }

    /// The nodes of corosync.conf, as the daemon has read it last. `None` if it is not running, or
    /// has not been asked yet.
    pub fn nodes(&self) -> Option<Vec<NodeId>> {
        self.shared.nodes()
    }

    /// The nodes of the cluster have changed: the next ring is judged by these.
    pub fn set_electorate(&self, electorate: Electorate) {
        self.shared.set_electorate(electorate);
    }

    /// Leaves the group for good.
    pub fn leave(&self) {
        self.shared.leave();
    }

    /// A descriptor that is readable from the moment when there is an event, or room again after
    /// [`Engine::multicast`] has returned a message, until [`Engine::next_event`] has found none.
    pub fn wake_fd(&self) -> BorrowedFd<'_> {
        self.shared.wake_host.as_fd()
    }
}

impl Engine for Corosync {
    fn multicast(&mut self, message: Vec<u8>) -> Result<(), Vec<u8>> {
        self.shared.offer(message)
    }

    fn next_event(&mut self) -> Option<EngineEvent> {
        self.shared.next_event()
    }
}

impl Drop for Corosync {
    fn drop(&mut self) {
        // A thread that hangs in a library ends with the process, or when the daemon continues.
        let _ended = self.shared.stop(STOP_TIMEOUT);
    }
}
