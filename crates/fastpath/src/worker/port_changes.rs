//! Ports that are closed and opened while their worker runs, because interfaces go and come.

use super::{HostPort, Pipeline, Worker};
use crate::fib::PortIndex;
use crate::port::Port;
use crossbeam_queue::ArrayQueue;
use std::sync::Arc;

/// Changes that may wait for a worker: all queues that a worker may have, closed and opened.
const MAX_CHANGES: usize = 2 * super::MAX_PORTS_PER_WORKER;

/// A change of a worker's ports.
#[derive(Debug)]
pub enum PortChange<P> {
    /// All queues of a port end: its interface is gone. What is to leave by it is dropped from then
    /// on.
    Close(PortIndex),
    /// A queue of a port begins. Its frames are those of the worker's pool, and it has none yet.
    /// The first queue that begins after an end is the one that the worker sends by.
    Open(P),
}

/// Changes on their way from control to a worker, which takes them at
/// [`super::WorkerCommand::Ports`]. They are apart from commands because a port cannot be copied,
/// as commands for several workers are.
#[derive(Debug)]
pub struct PortChanges<P>(ArrayQueue<PortChange<P>>);

impl<P> Default for PortChanges<P> {
    fn default() -> Self {
        Self(ArrayQueue::new(MAX_CHANGES))
    }
}

impl<P> PortChanges<P> {
    /// Puts a change behind those that wait. It comes back if too many do.
    pub fn push(&self, change: PortChange<P>) -> Result<(), PortChange<P>> {
        self.0.push(change)
    }

    fn take(&self) -> Option<PortChange<P>> {
        self.0.pop()
    }
}

impl<P: Port, H: HostPort, D: Pipeline> Worker<P, H, D> {
    /// The worker whose ports may be closed, and others opened, while it runs.
    #[must_use]
    pub fn changing(self, changes: Arc<PortChanges<P>>) -> Self {
        Self { changes: Some(changes), ..self }
    }

    /// Closes ports and takes others over, as control has asked for. That allocates, and frees: it
    /// happens when an interface goes or comes.
    #[cold]
    pub(super) fn change_ports(&mut self) {
        while let Some(change) = self.changes.as_ref().and_then(|changes| changes.take()) {
            self.delivery.change_port(change);
        }
    }
}
