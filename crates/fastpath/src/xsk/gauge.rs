//! The kernel's counters of a socket, for threads that do not own it.

use crate::sys::lent_fd::LentFd;
use crate::sys::socket;

/// Reads the kernel's counters of a socket for as long as its owner has it open.
#[derive(Clone, Debug)]
pub(crate) struct Gauge(pub(super) LentFd);

impl Gauge {
    /// The counters now. `None` once the socket is closed.
    pub(crate) fn read(&self) -> Option<libc::xdp_statistics> {
        self.0.with(|socket| socket::get(socket, libc::SOL_XDP, libc::XDP_STATISTICS).ok())?
    }
}
