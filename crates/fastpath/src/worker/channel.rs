//! The channel between control and a worker: commands to the worker, garbage and events back, each
//! a bounded queue without a lock.

use crate::error::{Error, Result};
use crate::fib::{Fib, PortIndex};
use crossbeam_queue::ArrayQueue;
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use testudo_ipsec::dataplane;

/// Bound on the commands that wait for a worker, and on the garbage that waits for control: one
/// command makes one piece at most.
const MAX_COMMANDS: usize = 4096;
/// Bound on the events that wait for control.
const MAX_EVENTS: usize = 1024;

/// A command of control to a worker. It is applied between two bursts, in order.
#[derive(Clone, Debug)]
pub enum WorkerCommand {
    /// A command for the IPsec pipeline.
    Ipsec(dataplane::Command),
    /// A new forwarding table.
    Fib(Arc<Fib>),
    /// The worker's ports have changes to take ([`super::PortChanges`]).
    Ports,
}

/// What a command has displaced; control frees it.
#[derive(Debug)]
pub enum WorkerGarbage {
    /// From the IPsec pipeline.
    Ipsec(dataplane::Garbage),
    /// A former forwarding table.
    Fib(Arc<Fib>),
}

/// An event that a worker reports to control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerEvent {
    /// From the IPsec pipeline.
    Ipsec(dataplane::Event),
    /// Packets wait for this neighbour: control asks the kernel for it. Sent at most every three
    /// seconds for a neighbour, more often only while too many neighbours are waited for.
    NeighbourMissing {
        /// The port on whose link the neighbour is.
        port: PortIndex,
        /// The neighbour's address.
        addr: IpAddr,
    },
    /// A protected packet is larger than the MTU of the link towards its destination: the path MTU
    /// of its SA is too large.
    PathTooBig {
        /// Outer destination.
        remote: IpAddr,
        /// MTU of the link.
        mtu: u16,
    },
}

/// The queues, and an eventfd that wakes either side.
#[derive(Debug)]
pub(super) struct Channel {
    pub(super) commands: ArrayQueue<WorkerCommand>,
    pub(super) garbage: ArrayQueue<WorkerGarbage>,
    /// Each event with the time at which it occurred.
    pub(super) events: ArrayQueue<(Instant, WorkerEvent)>,
    stop: AtomicBool,
    to_worker: EventFd,
    to_control: EventFd,
}

impl Channel {
    pub(super) fn new() -> Result<Self> {
        let eventfd = || {
            EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)
                .map_err(|errno| Error::System { call: "eventfd", source: errno.into() })
        };
        Ok(Self {
            commands: ArrayQueue::new(MAX_COMMANDS),
            garbage: ArrayQueue::new(MAX_COMMANDS),
            events: ArrayQueue::new(MAX_EVENTS),
            stop: AtomicBool::new(false),
            to_worker: eventfd()?,
            to_control: eventfd()?,
        })
    }

    /// Ends the worker at its next turn.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.wake_worker();
    }

    #[inline]
    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Wakes the worker if it sleeps. The write fails only if the counter is full, and then the
    /// worker is awake already.
    pub(super) fn wake_worker(&self) {
        let _ = self.to_worker.write(1);
    }

    pub(super) fn wake_control(&self) {
        let _ = self.to_control.write(1);
    }

    /// Readable after [`Channel::wake_worker`].
    pub(super) fn worker_fd(&self) -> BorrowedFd<'_> {
        self.to_worker.as_fd()
    }

    /// Readable after [`Channel::wake_control`].
    pub(super) fn control_fd(&self) -> BorrowedFd<'_> {
        self.to_control.as_fd()
    }

    /// Makes the worker's descriptor unreadable again.
    pub(super) fn quiet_worker(&self) {
        let _ = self.to_worker.read();
    }

    /// Makes control's descriptor unreadable again.
    pub(super) fn quiet_control(&self) {
        let _ = self.to_control.read();
    }
}
