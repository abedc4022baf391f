//! Packets that wait: for their neighbour, their SA, their shard, or their remaining fragments.

use super::super::channel::WorkerEvent;
use super::super::drops::WorkerDrop;
use super::super::hold::{HoldOutcome, NeighbourWaiter};
use super::super::host::HostPort;
use super::super::origin::{Context, KeptPacket, Source};
use super::Delivery;
use crate::fib::PortIndex;
use crate::frame::Frame;
use crate::port::Port;
use std::net::IpAddr;
use testudo_base::spi::Spi;

impl<P: Port, H: HostPort> Delivery<P, H> {
    #[cold]
    pub(super) fn hold_early(&mut self, frame: Frame, spi: Spi, source: Source) {
        if let Some(oldest) = self.early.hold(frame, spi, source, self.now) {
            self.give_up_early(oldest);
        }
        self.count_held();
    }

    /// Has a packet wait until its shard comes to this node.
    #[cold]
    pub(super) fn hold_for_shard(&mut self, frame: Frame, Context { source, direction, .. }: Context) {
        if let Some(oldest) = self.transit.hold(KeptPacket { frame, source, direction }, self.now) {
            self.discard(oldest, WorkerDrop::TransitDisplaced);
        }
        self.count_held();
    }

    /// The number of packets that wait for their shards.
    pub(in super::super) fn in_transit(&self) -> usize {
        self.transit.len()
    }

    /// Takes the oldest packet that waits for its shard.
    pub(in super::super) fn take_from_transit(&mut self) -> Option<KeptPacket> {
        let taken = self.transit.take()?;
        self.count_held();
        Some(taken)
    }

    /// Has a fragment wait for the rest of its datagram.
    #[cold]
    pub(super) fn join(&mut self, frame: Frame, context: Context) {
        // Nobody asks for the pieces of a packet that was split here.
        if context.source == Source::Again {
            return self.discard(frame, WorkerDrop::Resubmitted);
        }
        let counters = &self.counters;
        let lost = &mut |reason, packet: &[u8]| counters.count_lost_fragment(reason, packet);
        if let Some(fragments) = self.joining.add(frame, context, self.now, &mut self.pool, lost) {
            // The reassembled packet replaces one of the fragments.
            counters.joined.add(fragments - 1);
        }
        self.count_held();
    }

    /// Takes a reassembled packet.
    #[inline]
    pub(in super::super) fn take_joined(&mut self) -> Option<KeptPacket> {
        self.joining.take()
    }

    pub(super) fn give_up_early(&mut self, frame: Frame) {
        self.counters.dropped_by_pipeline.add(1);
        self.given_up += 1;
        self.pool.give(frame);
    }

    /// Releases the packets that wait for the SA with this SPI: it has been installed.
    pub(in super::super) fn expect_early(&mut self, spi: Spi) {
        self.early.expect(spi);
    }

    /// Takes a packet whose SA has been installed.
    pub(in super::super) fn take_early(&mut self) -> Option<(Frame, Source)> {
        let taken = self.early.release()?;
        self.count_held();
        Some(taken)
    }

    /// The number of packets that have given up waiting for their SA since the last call.
    #[inline]
    pub(in super::super) fn take_given_up(&mut self) -> u64 {
        std::mem::take(&mut self.given_up)
    }

    pub(super) fn count_held(&self) {
        let held = self.hold.len() + self.early.len() + self.joining.len() + self.transit.len();
        self.counters.held.set(held as u64);
    }

    #[cold]
    pub(super) fn wait(&mut self, waiter: NeighbourWaiter, port: PortIndex, neighbour: IpAddr) {
        if let Some(oldest) = self.hold.make_room(&waiter.frame) {
            self.discard(oldest, WorkerDrop::NeighbourQueueFull);
        }
        match self.hold.hold(port, neighbour, waiter, self.now) {
            HoldOutcome::First => self.tell(WorkerEvent::NeighbourMissing { port, addr: neighbour }),
            HoldOutcome::Behind => {}
            HoldOutcome::InsteadOf(oldest) => self.discard(oldest, WorkerDrop::NeighbourQueueFull),
            HoldOutcome::InsteadOfNeighbour(oldest) => {
                self.tell(WorkerEvent::NeighbourMissing { port, addr: neighbour });
                for waiter in oldest {
                    self.discard(waiter.frame, WorkerDrop::NeighbourTableFull);
                }
            }
            HoldOutcome::TableFull(frame) => self.discard(frame, WorkerDrop::NeighbourTableFull),
        }
        self.count_held();
    }
}
