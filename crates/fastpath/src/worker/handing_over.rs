//! Shards that go to another node or come from one, and the packets received before that moment.

use super::{HostPort, Pipeline, Worker, WorkerCommand};
use crate::port::xdp::RING_ENTRIES;
use crate::port::{BURST, FrameBurst, Port};
use testudo_ipsec::dataplane::Command;

/// Bursts taken from each port before shards go: as many as the largest ring holds.
const BURSTS_PER_RING: usize = (RING_ENTRIES as usize).div_ceil(BURST);

impl<P: Port, H: HostPort, D: Pipeline> Worker<P, H, D> {
    /// True if this command gives shards to another node.
    pub(super) fn gives_up(&self, command: &WorkerCommand) -> bool {
        match command {
            WorkerCommand::Ipsec(Command::SetShards(shards)) => !self.leaving.without(*shards).is_empty(),
            _ => false,
        }
    }

    /// Works on all packets that the ports hold, before shards go to another node. The next owner
    /// keeps packets of the last milliseconds back; packets that have waited here for longer are
    /// for this node alone.
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

    /// Works on the packets that waited for a shard, in the order of their arrival, after shards
    /// have come or have stayed with their owner. Packets that must wait longer are queued again.
    pub(super) fn receive_from_transit(&mut self) {
        if !std::mem::take(&mut self.shards_moved) {
            return;
        }
        // A packet that is queued again is not taken twice.
        let mut left = self.delivery.in_transit();
        self.run_in_bursts(&mut FrameBurst::new(), |delivery| {
            left = left.checked_sub(1)?;
            delivery.take_from_transit()
        });
    }
}
