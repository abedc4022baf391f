//! Ports: one queue of an interface each, by which a worker receives and sends packets.
//!
//! A port moves frames and does not read them. [`xdp::XdpPort`] is AF_XDP; [`fake::FakePort`] is
//! memory, for tests and for measuring the pipeline without a network.

mod facts;
pub mod fake;
mod join;
mod link;
mod open_checksums;
pub mod xdp;

pub use crate::sys::ethtool::Queues;
pub use facts::{Facts, facts_of};
pub use link::{driver_of, queues_of, speed_of};
pub use open_checksums::leaves_checksums_open;

use crate::fib::PortIndex;
use crate::frame::{Frame, FramePool};
use crate::mac::MacAddr;
use arrayvec::ArrayVec;
use std::os::fd::BorrowedFd;

/// Bound on the frames that a port gives or takes at a time.
pub const BURST: usize = 64;

/// A burst of frames in order of arrival.
pub type FrameBurst = ArrayVec<Frame, BURST>;

/// The interface of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortInfo {
    /// Number of the port within the instance.
    pub index: PortIndex,
    /// Name of the interface.
    pub name: String,
    /// Index of the interface in the kernel.
    pub ifindex: u32,
    /// Address of the interface; source of the frames sent.
    pub mac: MacAddr,
    /// Largest IP packet that the interface took when the port was opened.
    pub mtu: u16,
    /// Largest IP packet that the port can send, even if the interface takes more by now.
    pub limit: u16,
}

/// Losses and other events below the port, which the worker cannot count (XDP_STATISTICS).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortStatistics {
    /// Packets lost because of a fault other than a full or empty ring.
    pub rx_dropped: u64,
    /// Packets lost because the RX ring was full.
    pub rx_ring_full: u64,
    /// Packets lost because the FILL ring was empty.
    pub fill_ring_empty: u64,
    /// RX descriptors that the kernel found invalid.
    pub rx_invalid: u64,
    /// TX descriptors that the kernel found invalid: packets lost.
    pub tx_invalid: u64,
    /// Times that the kernel found the TX ring empty.
    pub tx_ring_empty: u64,
    /// Packets that the device refused and the kernel dropped.
    pub tx_refused: u64,
    /// Descriptors from the kernel that named no frame on loan, or left it. Above zero it shows a
    /// driver's fault.
    pub stray: u64,
    /// Packets in several chunks that were lost: too long for a jumbo frame, or none was free.
    pub rx_not_joined: u64,
}

impl PortStatistics {
    /// The sum of the losses of two ports, or of one port before and after a reopening.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            rx_dropped: self.rx_dropped + other.rx_dropped,
            rx_ring_full: self.rx_ring_full + other.rx_ring_full,
            fill_ring_empty: self.fill_ring_empty + other.fill_ring_empty,
            rx_invalid: self.rx_invalid + other.rx_invalid,
            tx_invalid: self.tx_invalid + other.tx_invalid,
            tx_ring_empty: self.tx_ring_empty + other.tx_ring_empty,
            tx_refused: self.tx_refused + other.tx_refused,
            stray: self.stray + other.stray,
            rx_not_joined: self.rx_not_joined + other.rx_not_joined,
        }
    }
}

/// The result of a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flushed {
    /// All are on their way.
    All,
    /// Some must wait: flush again a little later.
    Later,
    /// The interface is down or gone. Frames stay queued, in case it comes up again.
    Down,
}

/// One queue of an interface. Frames are Ethernet frames without check sequence.
pub trait Port {
    /// The interface of the port.
    fn info(&self) -> &PortInfo;

    /// Appends received frames to `burst` until it is full or there are no more. A packet that
    /// comes in several chunks is joined in a jumbo frame of the pool.
    fn rx(&mut self, burst: &mut FrameBurst, pool: &mut FramePool);

    /// Takes frames from the front of `burst` and queues them for sending; leaves those that find
    /// no room.
    fn tx(&mut self, burst: &mut FrameBurst);

    /// Makes sure that queued frames leave. Makes at most a few system calls, and none if the other
    /// side is awake.
    fn flush(&mut self) -> Flushed;

    /// Lends free frames of the pool to the receiving side.
    fn refill(&mut self, pool: &mut FramePool);

    /// Returns sent frames to the pool.
    fn reclaim(&mut self, pool: &mut FramePool);

    /// Has the kernel poll the device in this thread, if the port was opened for that.
    fn look(&mut self) {}

    /// A descriptor that is readable when there is something to receive. `None` if waiting is not
    /// possible.
    fn fd(&self) -> Option<BorrowedFd<'_>>;

    /// Losses below the port.
    fn statistics(&self) -> PortStatistics;

    /// Chunks that the port holds: lent for receiving, received and not fetched, or queued and not
    /// yet sent.
    fn held(&self) -> usize;

    /// Closes the port and returns every frame to the pool.
    fn close(self, pool: &mut FramePool)
    where
        Self: Sized;
}
