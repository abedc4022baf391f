//! The kernel's counters of a socket, for threads that do not own it.

use super::sys;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Reads the kernel's counters of a socket for as long as its owner has it open. The owner takes
/// the lock once, when it closes the socket.
#[derive(Clone, Debug)]
pub(crate) struct Gauge(Arc<Mutex<Option<RawFd>>>);

impl Gauge {
    pub(super) fn new(socket: BorrowedFd<'_>) -> Self {
        Self(Arc::new(Mutex::new(Some(socket.as_raw_fd()))))
    }

    /// To be called before the socket is closed.
    pub(super) fn close(&self) {
        *self.lock() = None;
    }

    /// The counters now. `None` once the socket is closed.
    pub(crate) fn read(&self) -> Option<libc::xdp_statistics> {
        let descriptor = self.lock();
        let number = (*descriptor)?;
        // SAFETY: the descriptor is open: its owner calls `close` before it closes the descriptor,
        // and `close` waits for the lock, which is held until the end of this function.
        let socket = unsafe { BorrowedFd::borrow_raw(number) };
        sys::get(socket, libc::SOL_XDP, libc::XDP_STATISTICS).ok()
    }

    fn lock(&self) -> MutexGuard<'_, Option<RawFd>> {
        // A number is never half written.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
