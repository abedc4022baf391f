//! The ports of a worker and the frames collected for them during a turn.

use super::counters::WorkerCounters;
use super::drops::WorkerDrop;
use super::fence::Fence;
use super::route::SendHop;
use crate::frame::{Frame, FramePool};
use crate::port::{Flushed, FrameBurst, Port};
use std::sync::Arc;
use testudo_wire::ethernet::HEADER;

/// A port and what is about to be sent through it.
#[derive(Debug)]
struct Lane<P> {
    port: P,
    staged: FrameBurst,
    /// Octets of these.
    octets: u64,
    /// What the last flush came to.
    state: Flushed,
}

/// All ports of a worker.
#[derive(Debug)]
pub(super) struct Egress<P> {
    lanes: Vec<Lane<P>>,
    fence: Arc<Fence>,
}

impl<P: Port> Egress<P> {
    pub(super) fn new(ports: Vec<P>) -> Self {
        let lane = |port| Lane { port, staged: FrameBurst::new(), octets: 0, state: Flushed::All };
        Self { lanes: ports.into_iter().map(lane).collect(), fence: Arc::new(Fence::open()) }
    }

    pub(super) fn set_fence(&mut self, fence: Arc<Fence>) {
        self.fence = fence;
    }

    #[inline]
    pub(super) fn is_open(&self) -> bool {
        self.fence.is_open()
    }

    pub(super) fn len(&self) -> usize {
        self.lanes.len()
    }

    pub(super) fn ports(&self) -> impl Iterator<Item = &P> {
        self.lanes.iter().map(|lane| &lane.port)
    }

    pub(super) fn ports_mut(&mut self) -> impl Iterator<Item = &mut P> {
        self.lanes.iter_mut().map(|lane| &mut lane.port)
    }

    pub(super) fn port_mut(&mut self, slot: usize) -> Option<&mut P> {
        self.lanes.get_mut(slot).map(|lane| &mut lane.port)
    }

    /// True if a port still has frames that the kernel would not take.
    pub(super) fn has_backlog(&self) -> bool {
        self.lanes.iter().any(|lane| lane.state == Flushed::Later)
    }

    /// Receives a burst from a port.
    #[inline]
    pub(super) fn receive(
        &mut self,
        slot: usize,
        burst: &mut FrameBurst,
        pool: &mut FramePool,
        counters: &WorkerCounters,
    ) {
        self.lanes[slot].port.rx(burst, pool);
        if !burst.is_empty() {
            let port = &counters.ports[slot];
            port.rx_packets.add(burst.len() as u64);
            port.rx_bytes.add(burst.iter().map(|frame| u64::from(frame.len())).sum());
        }
    }

    /// Writes the Ethernet header before an IP packet and stages it.
    #[inline]
    pub(super) fn send(
        &mut self,
        mut frame: Frame,
        hop: &SendHop,
        pool: &mut FramePool,
        counters: &WorkerCounters,
    ) {
        let slot = usize::from(hop.slot);
        let lane = &mut self.lanes[slot];
        if lane.state == Flushed::Down {
            counters.count_drop(WorkerDrop::PortDown);
            return pool.give(frame);
        }
        let extended = usize::from(frame.start())
            .checked_sub(HEADER)
            .is_some_and(|start| frame.set_extent(start, usize::from(frame.len()) + HEADER));
        if !extended {
            counters.count_drop(WorkerDrop::BadEthernet);
            return pool.give(frame);
        }
        frame.data_mut()[..HEADER].copy_from_slice(&hop.header);
        if lane.staged.is_full() {
            lane.submit(slot, &self.fence, pool, counters);
        }
        lane.octets += u64::from(frame.len());
        lane.staged.push(frame);
    }

    /// Sends what is staged, brings sent frames back, and lends free ones for receiving.
    #[inline]
    pub(super) fn flush(&mut self, pool: &mut FramePool, counters: &WorkerCounters) {
        for (slot, lane) in self.lanes.iter_mut().enumerate() {
            let due = if lane.staged.is_empty() {
                lane.state == Flushed::Later && self.fence.is_open()
            } else {
                lane.submit(slot, &self.fence, pool, counters)
            };
            if due {
                lane.state = lane.port.flush();
            }
            lane.port.reclaim(pool);
            lane.port.refill(pool);
        }
    }

    /// Tries ports that were down.
    pub(super) fn retry(&mut self) {
        for lane in self.lanes.iter_mut().filter(|lane| lane.state == Flushed::Down) {
            lane.state = lane.port.flush();
        }
    }

    /// Ends all ports and brings their frames home.
    pub(super) fn close(self, pool: &mut FramePool) {
        for mut lane in self.lanes {
            lane.staged.drain(..).for_each(|frame| pool.give(frame));
            lane.port.close(pool);
        }
    }
}

impl<P: Port> Lane<P> {
    /// Moves what is staged to the port's queue; what finds no room after a second attempt is dropped. This is the last that can
    /// be kept back, so the fence is looked at once more: false if it is shut.
    fn submit(
        &mut self,
        slot: usize,
        fence: &Fence,
        pool: &mut FramePool,
        counters: &WorkerCounters,
    ) -> bool {
        if !fence.is_open() {
            self.give_up(pool, counters);
            return false;
        }
        let staged = self.staged.len();
        self.port.tx(&mut self.staged);
        if !self.staged.is_empty() {
            self.port.flush();
            self.port.reclaim(pool);
            self.port.tx(&mut self.staged);
        }
        let port = &counters.ports[slot];
        port.tx_packets.add((staged - self.staged.len()) as u64);
        for frame in self.staged.drain(..) {
            self.octets -= u64::from(frame.len());
            counters.count_drop(WorkerDrop::TxRingFull);
            pool.give(frame);
        }
        port.tx_bytes.add(std::mem::take(&mut self.octets));
        true
    }

    #[cold]
    fn give_up(&mut self, pool: &mut FramePool, counters: &WorkerCounters) {
        for frame in self.staged.drain(..) {
            counters.count_drop(WorkerDrop::FencedLate);
            pool.give(frame);
        }
        self.octets = 0;
    }
}
