//! An AF_XDP socket: one queue of an interface as four rings of frame addresses.
//!
//! It moves addresses; [`crate::port::xdp`] knows whose frames they are. `socket` sets the socket
//! up, and this file holds the work per burst.

mod gauge;
mod socket;

pub(crate) use gauge::Gauge;

use crate::error::Result;
use crate::frame::FrameMemory;
use crate::port::Flushed;
use crate::ring::{Consumer, Producer};
use crate::sys::lent_fd::LendingFd;
use crate::sys::socket as call;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// The queue of a socket, and the sizes of its rings (powers of two).
#[derive(Clone, Debug)]
pub(crate) struct XskConfig<'a> {
    pub(crate) interface: &'a str,
    pub(crate) ifindex: u32,
    pub(crate) queue: u32,
    pub(crate) fill_ring: u32,
    pub(crate) rx_ring: u32,
    /// Also the size of the COMPLETION ring: no more frames can complete than were queued.
    pub(crate) tx_ring: u32,
    pub(crate) busy_poll: bool,
    pub(crate) zero_copy: bool,
    /// True if packets may lie in several chunks.
    pub(crate) scatter: bool,
    /// How long the call may wait for a queue whose last socket has only just been closed.
    pub(crate) patience: Duration,
    /// Ends the wait as soon as it is set.
    pub(crate) called_off: Option<&'a AtomicBool>,
}

/// An AF_XDP socket bound to a queue.
#[derive(Debug)]
pub(crate) struct XskSocket {
    pub(crate) fill: Producer<u64>,
    pub(crate) rx: Consumer<libc::xdp_desc>,
    pub(crate) tx: Producer<libc::xdp_desc>,
    pub(crate) completion: Consumer<u64>,
    /// Packets that the device refused and the kernel dropped.
    tx_refused: u64,
    busy_poll: bool,
    fd: LendingFd,
}

impl XskSocket {
    /// Opens a socket, registers the memory as its UMEM, maps its rings, binds.
    pub(crate) fn open(config: &XskConfig<'_>, memory: &FrameMemory) -> Result<Self> {
        socket::open(config, memory)
    }

    /// A descriptor that is readable when the RX ring is not empty.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Packets that the device refused.
    pub(crate) fn tx_refused(&self) -> u64 {
        self.tx_refused
    }

    /// Publishes the staged entries of the TX ring and makes the kernel take them.
    #[inline]
    pub(crate) fn flush_tx(&mut self) -> Flushed {
        self.tx.publish();
        if !self.tx.needs_wakeup() {
            return Flushed::All;
        }
        let mut left = self.tx.outstanding();
        while left != 0 {
            let before = left;
            let result = call::kick_tx(self.fd.as_fd());
            left = self.tx.outstanding();
            match result.as_ref().map_err(io::Error::raw_os_error) {
                // Either all are taken, or the COMPLETION ring is full.
                Ok(()) => break,
                // The device refused one packet, which is lost; the kernel has not read the rest.
                Err(Some(libc::EBUSY)) => self.tx_refused += 1,
                Err(Some(libc::ENETDOWN | libc::ENXIO | libc::ENODEV)) => return Flushed::Down,
                // EAGAIN: more was queued than one call takes. ENOBUFS: no memory at the moment.
                Err(_) => {}
            }
            if left >= before {
                break;
            }
        }
        if left == 0 { Flushed::All } else { Flushed::Later }
    }

    /// Publishes the staged entries of the FILL ring, and wakes the driver if it sleeps for lack of
    /// frames.
    #[inline]
    pub(crate) fn flush_fill(&mut self) {
        self.fill.publish();
        if self.fill.needs_wakeup() {
            // Whatever the result, the next burst tries again.
            let _ = call::kick_rx(self.fd.as_fd());
        }
    }

    /// Has the kernel poll the device in this thread, once and without waiting, if the socket was
    /// opened for that.
    pub(crate) fn look(&self) {
        if self.busy_poll {
            // An error is harmless: there may be nothing to poll, and a port that is down shows
            // when something is sent.
            let _ = call::kick_rx(self.fd.as_fd());
        }
    }

    /// The kernel's counters of this socket.
    pub(crate) fn statistics(&self) -> io::Result<libc::xdp_statistics> {
        call::get(self.fd.as_fd(), libc::SOL_XDP, libc::XDP_STATISTICS)
    }

    /// Reads the same counters from another thread.
    pub(crate) fn gauge(&self) -> Gauge {
        Gauge(self.fd.lend())
    }
}
