//! A descriptor that other threads may use as long as its owner keeps it open.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The owner's side. It takes the lock only to close the descriptor.
#[derive(Debug)]
pub(crate) struct LendingFd {
    lent: LentFd,
    fd: OwnedFd,
}

/// The side of the other threads. `None` once the descriptor is closed.
#[derive(Clone, Debug)]
pub(crate) struct LentFd(Arc<Mutex<Option<RawFd>>>);

impl LendingFd {
    pub(crate) fn new(fd: OwnedFd) -> Self {
        Self { lent: LentFd(Arc::new(Mutex::new(Some(fd.as_raw_fd())))), fd }
    }

    /// A copy for another thread.
    pub(crate) fn lend(&self) -> LentFd {
        self.lent.clone()
    }
}

impl AsFd for LendingFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for LendingFd {
    fn drop(&mut self) {
        *self.lent.lock() = None;
    }
}

impl LentFd {
    /// Calls `f` with the descriptor. `None` if it is closed.
    pub(crate) fn with<R>(&self, f: impl FnOnce(BorrowedFd<'_>) -> R) -> Option<R> {
        let number = self.lock();
        // SAFETY: the descriptor is open. Its owner removes the number before it closes the
        // descriptor, and needs for that the lock, which this function holds until its end.
        let fd = unsafe { BorrowedFd::borrow_raw((*number)?) };
        Some(f(fd))
    }

    fn lock(&self) -> MutexGuard<'_, Option<RawFd>> {
        // A number is never half written, so a poisoned lock is harmless.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
