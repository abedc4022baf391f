//! Errors of setting the fast path up. Nothing here happens per packet: packets that cannot go on
//! are counted, not reported.

use std::io;

/// Errors of ports, frames and workers.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A system call failed that concerns no interface.
    #[error("{call}: {source}")]
    System {
        /// The call and its purpose.
        call: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A system call on an interface failed.
    #[error("interface {interface}: {call}: {source}")]
    Interface {
        /// Name of the interface.
        interface: String,
        /// The call and its purpose.
        call: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The number of frames is out of range.
    #[error("frame pool of {found} frames, expected 1 to {limit}")]
    FrameCount {
        /// Frames asked for.
        found: usize,
        /// Most frames that a pool may have.
        limit: usize,
    },
    /// The size of a ring is out of range.
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
    /// The interface's packets do not fit into a frame.
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
    /// The interface has no such queue.
    #[error("interface {interface}: receive queue {found}, expected one of 0 to {}", queues.saturating_sub(1))]
    Queue {
        /// Name of the interface.
        interface: String,
        /// The queue that was asked for.
        found: u32,
        /// Receive queues in use.
        queues: u32,
    },
    /// The worker was given more ports than it has numbers for.
    #[error(
        "worker {worker}: {found} queues of ports, expected at most {limit}: have more workers, or fewer queues"
    )]
    TooManyPorts {
        /// Number of the worker.
        worker: u8,
        /// Ports that it was to have.
        found: usize,
        /// Ports that it may have.
        limit: usize,
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

/// Result of setting the fast path up.
pub type Result<T> = std::result::Result<T, Error>;
