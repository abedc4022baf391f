//! Ports that are closed and opened while their worker runs, because interfaces go and come.

use super::{HostPort, Pipeline, Worker};
use crate::fib::PortIndex;
use crate::port::Port;
use crossbeam_queue::ArrayQueue;
use std::sync::Arc;

/// Bound on the changes that wait for a worker: all queues that a worker may have, closed and
/// opened.
const MAX_CHANGES: usize = 2 * super::MAX_PORTS_PER_WORKER;

/// A change of a worker's ports.
#[derive(Debug)]
pub enum PortChange<P> {
    /// Closes all queues of a port, because its interface is gone. Packets that would leave by it
    /// are dropped from then on.
    Close(PortIndex),
    /// Opens a queue of a port. Its frames come from the worker's pool, and it has none yet. The
    /// first queue that is opened after a close is the one by which the worker sends. `fills`: the
    /// worker fills in checksums that the port's neighbours leave open.
    Open {
        /// The queue.
        port: P,
        /// Whether its checksums are filled in.
        fills: bool,
    },
}

/// Port changes on their way from control to a worker, which takes them at
/// [`super::WorkerCommand::Ports`]. They are apart from the commands because a port cannot be
/// copied, while one command goes to several workers.
#[derive(Debug)]
pub struct PortChanges<P>(ArrayQueue<PortChange<P>>);

impl<P> Default for PortChanges<P> {
    fn default() -> Self {
        Self(ArrayQueue::new(MAX_CHANGES))
    }
}

impl<P> PortChanges<P> {
    /// Queues a change behind those that wait. Returns it if the queue is full.
    pub fn push(&self, change: PortChange<P>) -> Result<(), PortChange<P>> {
        self.0.push(change)
    }

    fn take(&self) -> Option<PortChange<P>> {
        self.0.pop()
    }
}

impl<P: Port, H: HostPort, D: Pipeline> Worker<P, H, D> {
    /// Lets control close and open this worker's ports while it runs.
    #[must_use]
    pub fn changing(self, changes: Arc<PortChanges<P>>) -> Self {
        Self { changes: Some(changes), ..self }
    }

    /// Closes and opens ports as control has asked. This allocates and frees; it happens only when
    /// an interface goes or comes.
    #[cold]
    pub(super) fn change_ports(&mut self) {
        while let Some(change) = self.changes.as_ref().and_then(|changes| changes.take()) {
            if let PortChange::Open { port, fills } = &change {
                self.config.fills = self.config.fills.put(port.info().index, *fills);
            }
            self.delivery.change_port(change);
        }
    }
}
