//! Sleeping while there is nothing to do.

use super::{AWAKE_TURNS, HostPort, MAX_PORTS_PER_WORKER, Pipeline, TICK_MS, Worker};
use crate::port::Port;
use arrayvec::ArrayVec;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Descriptors to wait for: ports, the TUN and the wake-up by control.
const MAX_DESCRIPTORS: usize = MAX_PORTS_PER_WORKER + 2;
/// How long the worker sleeps when no timer is due, so that slow ticks continue. In unit tests it
/// is longer than any test waits: a sleeping worker that acts in time was woken.
const MAX_SLEEP_MS: u16 = if cfg!(test) { u16::MAX } else { 1000 };

impl<P: Port, H: HostPort, D: Pipeline> Worker<P, H, D> {
    /// Has the kernel poll the devices, where this worker polls them.
    pub(super) fn look(&mut self) {
        if !self.config.busy_poll.is_zero() {
            self.delivery.egress.ports_mut().for_each(Port::look);
        }
    }

    /// Sleeps until a packet or a command arrives, or a timer is due.
    pub(super) fn sleep(&mut self) {
        let delivery = &self.delivery;
        let mut descriptors: ArrayVec<PollFd<'_>, MAX_DESCRIPTORS> = ArrayVec::new();
        let tun = delivery.host.as_ref().and_then(HostPort::fd);
        let ports = delivery.egress.ports().filter_map(Port::fd);
        let fds = tun.into_iter().chain([delivery.channel.worker_fd()]).chain(ports);
        descriptors.extend(fds.take(MAX_DESCRIPTORS).map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
        let timeout = if delivery.egress.has_backlog() || self.inbox.is_waiting() {
            PollTimeout::from(1u8)
        } else if delivery.is_holding() {
            PollTimeout::from(TICK_MS as u8)
        } else {
            PollTimeout::from(MAX_SLEEP_MS)
        };
        delivery.counters.sleeps.add(1);
        if let Some(slot) = &mut self.slot {
            slot.set_asleep(true);
        }
        // An interrupted sleep is only a short one.
        let _ = poll(&mut descriptors, timeout);
        if let Some(slot) = &mut self.slot {
            slot.set_asleep(false);
        }
        let is_ready = |at: usize| descriptors.get(at).is_some_and(|fd| fd.any() == Some(true));
        let woken = is_ready(usize::from(tun.is_some()));
        if tun.is_some() && is_ready(0) {
            self.turns_to_tun = 0;
        }
        if woken {
            self.awake_turns = if self.slot.is_some() { AWAKE_TURNS } else { 0 };
            self.delivery.channel.quiet_worker();
        }
    }
}
