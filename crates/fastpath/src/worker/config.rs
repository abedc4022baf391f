//! How a worker works.

use crate::fib::PortSet;
use std::time::Duration;

/// Settings of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerConfig {
    /// Number of the worker.
    pub id: u8,
    /// The core that it keeps to; `None` leaves that to the scheduler.
    pub cpu: Option<usize>,
    /// By how much it comes before other threads of the machine, 0 to 20; above 0 needs
    /// CAP_SYS_NICE.
    pub priority: u8,
    /// How long it goes on looking without any work, and has the kernel look at the devices of its
    /// ports each time, before it sleeps. Its ports should be opened for that
    /// ([`crate::port::xdp::XdpConfig::busy_poll`]).
    pub busy_poll: Duration,
    /// Turns without work before it sleeps until something arrives.
    pub idle_turns: u32,
    /// While busy, it looks at a TUN that has had nothing for long once in so many turns.
    pub tun_interval: u32,
    /// Ports with asymmetric routes: what comes in there to be protected may come from anywhere.
    pub unchecked: PortSet,
    /// Ports whose neighbours may leave checksums open: they are filled in.
    pub fills: PortSet,
    /// Ports by whose default route decrypted packets may leave in clear, though their peers are
    /// reached by it too.
    pub clear_by_default: PortSet,
}

impl WorkerConfig {
    /// The usual settings.
    pub fn new(id: u8) -> Self {
        let busy_poll = Duration::ZERO;
        Self {
            id,
            cpu: None,
            priority: 0,
            busy_poll,
            idle_turns: 16,
            tun_interval: 8,
            unchecked: PortSet::default(),
            fills: PortSet::default(),
            clear_by_default: PortSet::default(),
        }
    }
}
