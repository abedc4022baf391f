//! Shards that go to another node, and that come from one: what had come before.

use super::{HostPort, Pipeline, Worker, WorkerCommand};
use crate::port::xdp::RING_ENTRIES;
use crate::port::{BURST, FrameBurst, Port};
use testudo_ipsec::dataplane::Command;

/// Bursts from each port that are taken before shards go: as many as the largest ring holds.
const BURSTS_PER_RING: usize = (RING_ENTRIES as usize).div_ceil(BURST);

impl<P: Port, H: HostPort, D: Pipeline> Worker<P, H, D> {
    /// True if shards go to another node with that.
    pub(super) fn gives_up(&self, command: &WorkerCommand) -> bool {
        match command {
            WorkerCommand::Ipsec(Command::SetShards(shards)) => !self.leaving.without(*shards).is_empty(),
            _ => false,
        }
    }

    /// Works on all that the ports hold, before shards go to another node. That one keeps back what
    /// has come in the last milliseconds; what waits here for longer is nobody else's.
    #[cold]
    pub(super) fn empty_ports(&mut self) {
        self.end_tasks(None);
        self.receive_early();
        self.receive_from_transit();
        for _ in 0..BURSTS_PER_RING {
            let mut any = false;
            for place in 0..self.delivery.egress.len() {
                any |= self.delivery.is_open() && self.has_room() && self.receive(place);
            }
            self.end_tasks(None);
            self.delivery.flush();
            if !any {
                return;
            }
        }
    }

    /// What has waited for shards, in the order in which it came, after some have come or stayed
    /// away: what goes on waiting gets in line again.
    pub(super) fn receive_from_transit(&mut self) {
        if !std::mem::take(&mut self.shards_moved) {
            return;
        }
        // What gets in line again is not looked at twice.
        let mut left = self.delivery.in_transit();
        self.run_in_bursts(&mut FrameBurst::new(), |delivery| {
            left = left.checked_sub(1)?;
            delivery.take_from_transit()
        });
    }
}
