//! The side of the follower that workers and control use: the newest table, and requests for
//! neighbours.

use crate::fib::{Fib, PortIndex};
use arc_swap::{ArcSwap, Guard};
use crossbeam_queue::ArrayQueue;
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Bound on the neighbours requested at a time. A worker that finds no room requests again with the
/// next packet.
const MAX_REQUESTS: usize = 256;

#[derive(Debug)]
pub(super) struct FollowerShared {
    pub(super) fib: ArcSwap<Fib>,
    requests: ArrayQueue<(PortIndex, IpAddr)>,
    /// True while the follower has been woken and has not taken the requests yet.
    woken: AtomicBool,
    wake: EventFd,
    changed: EventFd,
    stopping: AtomicBool,
    pub(super) statistics: Counts,
}

#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) overruns: AtomicU64,
    pub(super) errors: AtomicU64,
    pub(super) probes: AtomicU64,
    unasked: AtomicU64,
}

/// Counts of the follower.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FollowStatistics {
    /// Times that messages were lost because there was no room for them; all tables were read
    /// again.
    pub overruns: u64,
    /// Requests that the kernel refused.
    pub errors: u64,
    /// Neighbours that the kernel was told to ask for or to check.
    pub probes: u64,
    /// Neighbours that the kernel was not asked for, because too many were requested at a time.
    pub unasked: u64,
}

impl FollowerShared {
    pub(super) fn new(fib: Fib) -> io::Result<Self> {
        let event = || EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC);
        Ok(Self {
            fib: ArcSwap::from_pointee(fib),
            requests: ArrayQueue::new(MAX_REQUESTS),
            woken: AtomicBool::new(false),
            wake: event()?,
            changed: event()?,
            stopping: AtomicBool::new(false),
            statistics: Counts::default(),
        })
    }

    /// Readable after [`Self::wake`].
    pub(super) fn wake_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// The neighbours requested since the last call.
    pub(super) fn take_requests(&self) -> impl Iterator<Item = (PortIndex, IpAddr)> + '_ {
        // In this order, so that a request that comes now wakes the follower again.
        let _ = self.wake.read();
        self.woken.store(false, Ordering::SeqCst);
        std::iter::from_fn(|| self.requests.pop())
    }

    pub(super) fn publish(&self, fib: Fib) {
        self.fib.store(Arc::new(fib));
        // The write fails only after 2^64 unread ones.
        let _ = self.changed.write(1);
    }

    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.wake();
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    fn wake(&self) {
        if !self.woken.swap(true, Ordering::SeqCst) {
            let _ = self.wake.write(1);
        }
    }
}

/// Access to the follower's results; cheap to clone.
#[derive(Clone, Debug)]
pub struct FibHandle {
    pub(super) shared: Arc<FollowerShared>,
}

impl FibHandle {
    /// The newest table, for the time of a burst: takes no lock and counts no reference.
    #[inline]
    pub fn load(&self) -> Guard<Arc<Fib>> {
        self.shared.fib.load()
    }

    /// The newest table, to keep.
    pub fn fib(&self) -> Arc<Fib> {
        self.shared.fib.load_full()
    }

    /// Asks the kernel for a neighbour. It will be in a later table if it answers. Never blocks,
    /// and makes a system call only if the follower sleeps.
    pub fn resolve(&self, port: PortIndex, addr: IpAddr) {
        if self.shared.requests.push((port, addr)).is_err() {
            self.shared.statistics.unasked.fetch_add(1, Ordering::Relaxed);
        }
        self.shared.wake();
    }

    /// A descriptor that is readable when there is a table that [`Self::acknowledge`] has not been
    /// called for.
    pub fn changed(&self) -> BorrowedFd<'_> {
        self.shared.changed.as_fd()
    }

    /// Makes [`Self::changed`] unreadable until the next table. Call it before looking at the
    /// table.
    pub fn acknowledge(&self) {
        let _ = self.shared.changed.read();
    }

    /// The follower's counts.
    pub fn statistics(&self) -> FollowStatistics {
        let counts = &self.shared.statistics;
        FollowStatistics {
            overruns: counts.overruns.load(Ordering::Relaxed),
            errors: counts.errors.load(Ordering::Relaxed),
            probes: counts.probes.load(Ordering::Relaxed),
            unasked: counts.unasked.load(Ordering::Relaxed),
        }
    }
}
