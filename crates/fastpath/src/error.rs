//! What can go wrong when the fast path is set up. Nothing here happens per packet: packets that cannot go on are
//! counted, not reported.

use std::io;

/// Errors of ports, frames and workers.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A system call failed that has no interface to name.
    #[error("{call}: {source}")]
    System {
        /// The call and what it was for.
        call: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A system call on an interface failed.
    #[error("interface {interface}: {call}: {source}")]
    Interface {
        /// Name of the interface.
        interface: String,
        /// The call and what it was for.
        call: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A number of frames that cannot be.
    #[error("frame pool of {found} frames, expected 1 to {limit}")]
    FrameCount {
        /// Frames asked for.
        found: usize,
        /// Most frames that a pool may have.
        limit: usize,
    },
    /// A ring size that cannot be.
    #[error("interface {interface}: ring of {found} entries, expected a power of two from {least} to {most}")]
    RingSize {
        /// Name of the interface.
        interface: String,
        /// Entries asked for.
        found: u32,
        /// Fewest entries.
        least: u32,
        /// Most entries.
        most: u32,
    },
    /// A packet of this size does not fit into a frame.
    #[error("interface {interface}: MTU {found}, expected at most {limit} with frames of {chunk} octets")]
    MtuTooLarge {
        /// Name of the interface.
        interface: String,
        /// MTU of the interface.
        found: u32,
        /// Largest MTU that fits.
        limit: u32,
        /// Octets of a frame.
        chunk: usize,
    },
    /// Packets of every queue but one would be lost.
    #[error(
        "interface {interface}: {found} receive queues, expected 1: ethtool -L {interface} combined 1, or rx 1 tx 1 where \
         the driver counts them apart"
    )]
    Queues {
        /// Name of the interface.
        interface: String,
        /// Receive queues in use.
        found: u32,
    },
    /// The interface is not an Ethernet one.
    #[error("interface {interface}: link type {found}, expected Ethernet (1)")]
    NotEthernet {
        /// Name of the interface.
        interface: String,
        /// ARPHRD number found.
        found: u16,
    },
    /// The worker's thread ended by a panic.
    #[error("worker {worker} panicked: {message}")]
    WorkerPanicked {
        /// Number of the worker.
        worker: u8,
        /// The panic's message.
        message: String,
    },
    /// The XDP filter.
    #[error(transparent)]
    Filter(#[from] crate::filter::FilterError),
    /// The TUN.
    #[error(transparent)]
    Tun(#[from] crate::tun::TunError),
    /// Routes and neighbours.
    #[error(transparent)]
    Netlink(#[from] crate::netlink::NetlinkError),
}

/// What the fast path's set-up answers.
pub type Result<T> = std::result::Result<T, Error>;
