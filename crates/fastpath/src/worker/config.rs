//! The settings of a worker.

use crate::fib::PortSet;
use std::time::Duration;

/// Settings of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerConfig {
    /// Number of the worker.
    pub id: u8,
    /// The core to which it is pinned; `None` leaves the choice to the scheduler.
    pub cpu: Option<usize>,
    /// By how much it comes before other threads of the machine, 0 to 20; above 0 needs
    /// CAP_SYS_NICE.
    pub priority: u8,
    /// How long it polls without any work, and has the kernel poll the devices of its ports, before
    /// it sleeps. Its ports should be opened for that ([`crate::port::xdp::XdpConfig::busy_poll`]).
    pub busy_poll: Duration,
    /// Turns without work before it sleeps until something arrives.
    pub idle_turns: u32,
    /// While busy, it reads a TUN that has long been empty once in this many turns.
    pub tun_interval: u32,
    /// Ports with asymmetric routes: the sources of packets that are to be protected are not
    /// checked there.
    pub unchecked: PortSet,
    /// Ports whose neighbours may leave checksums open: the worker fills them in.
    pub fills: PortSet,
    /// Ports by whose default route decrypted packets may leave in clear, even though their peers
    /// are reached by it too.
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
