//! The ports of a worker and the frames collected for them during a turn.

use super::MAX_PORTS_PER_WORKER;
use super::counters::WorkerCounters;
use super::drops::WorkerDrop;
use super::fence::Fence;
use super::route::SendHop;
use crate::fib::PortIndex;
use crate::frame::{Frame, FramePool};
use crate::port::{Flushed, FrameBurst, Port, PortStatistics};
use std::sync::Arc;
use testudo_wire::ethernet::HEADER;

/// A port and the frames staged for it.
#[derive(Debug)]
struct Lane<P> {
    index: PortIndex,
    /// `None` while its interface is missing.
    port: Option<P>,
    staged: FrameBurst,
    /// Octets of the staged frames.
    octets: u64,
    /// The result of the last flush.
    state: Flushed,
    /// Losses below the ports that were closed here, added up.
    closed: PortStatistics,
}

/// All ports of a worker.
#[derive(Debug)]
pub(super) struct Egress<P> {
    lanes: Vec<Lane<P>>,
    fence: Arc<Fence>,
}

impl<P: Port> Egress<P> {
    pub(super) fn new(ports: Vec<P>) -> Self {
        Self { lanes: ports.into_iter().map(Lane::new).collect(), fence: Arc::new(Fence::open()) }
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
        self.lanes.iter().filter_map(|lane| lane.port.as_ref())
    }

    pub(super) fn ports_mut(&mut self) -> impl Iterator<Item = &mut P> {
        self.lanes.iter_mut().filter_map(|lane| lane.port.as_mut())
    }

    pub(super) fn port_mut(&mut self, place: usize) -> Option<&mut P> {
        self.lanes.get_mut(place).and_then(|lane| lane.port.as_mut())
    }

    /// True if a port still has frames that the kernel would not take.
    pub(super) fn has_backlog(&self) -> bool {
        self.lanes.iter().any(|lane| lane.state == Flushed::Later)
    }

    /// Receives a burst from a port.
    #[inline]
    pub(super) fn receive(
        &mut self,
        place: usize,
        burst: &mut FrameBurst,
        pool: &mut FramePool,
        counters: &WorkerCounters,
    ) {
        let Some(port) = &mut self.lanes[place].port else { return };
        port.rx(burst, pool);
        if !burst.is_empty() {
            let port = &counters.ports[place];
            port.rx_packets.add(burst.len() as u64);
            port.rx_bytes.add(burst.iter().map(|frame| u64::from(frame.len())).sum());
        }
    }

    /// Writes the Ethernet header before an IP packet and stages the frame.
    #[inline]
    pub(super) fn send(
        &mut self,
        mut frame: Frame,
        hop: &SendHop,
        pool: &mut FramePool,
        counters: &WorkerCounters,
    ) {
        let place = usize::from(hop.place);
        let lane = &mut self.lanes[place];
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
            lane.submit(place, &self.fence, pool, counters);
        }
        lane.octets += u64::from(frame.len());
        lane.staged.push(frame);
    }

    /// Sends the staged frames, takes sent frames back, and lends free ones for receiving.
    #[inline]
    pub(super) fn flush(&mut self, pool: &mut FramePool, counters: &WorkerCounters) {
        for (place, lane) in self.lanes.iter_mut().enumerate() {
            let due = if lane.staged.is_empty() {
                lane.state == Flushed::Later && self.fence.is_open()
            } else {
                lane.submit(place, &self.fence, pool, counters)
            };
            let Some(port) = &mut lane.port else { continue };
            if due {
                lane.state = port.flush();
            }
            port.reclaim(pool);
            port.refill(pool);
        }
    }

    /// Retries ports that were down.
    pub(super) fn retry(&mut self) {
        for lane in self.lanes.iter_mut().filter(|lane| lane.state == Flushed::Down) {
            if let Some(port) = &mut lane.port {
                lane.state = port.flush();
            }
        }
    }

    /// Publishes the losses below the ports.
    pub(super) fn publish(&self, counters: &WorkerCounters) {
        for (lane, counters) in self.lanes.iter().zip(&counters.ports) {
            let now = lane.port.as_ref().map(Port::statistics).unwrap_or_default();
            counters.set_below(&lane.closed.plus(now));
        }
    }

    /// Closes all queues of a port and takes their frames back. Their lanes stay, so that other
    /// ports keep their places.
    #[cold]
    pub(super) fn vacate(&mut self, index: PortIndex, pool: &mut FramePool, counters: &WorkerCounters) {
        for lane in self.lanes.iter_mut().filter(|lane| lane.index == index) {
            let Some(port) = lane.port.take() else { continue };
            lane.closed = lane.closed.plus(port.statistics());
            lane.give_up(WorkerDrop::PortDown, pool, counters);
            lane.state = Flushed::Down;
            port.close(pool);
        }
    }

    /// Opens a queue of a port: in the first vacant lane of that port, or in a new one. Returns its
    /// place, or the queue itself if there is no place.
    #[cold]
    pub(super) fn occupy(&mut self, port: P) -> std::result::Result<usize, P> {
        let index = port.info().index;
        let vacant = |lane: &Lane<P>| lane.index == index && lane.port.is_none();
        if let Some((place, lane)) = self.lanes.iter_mut().enumerate().find(|(_, lane)| vacant(lane)) {
            lane.port = Some(port);
            lane.state = Flushed::All;
            return Ok(place);
        }
        if self.lanes.len() == MAX_PORTS_PER_WORKER {
            return Err(port);
        }
        self.lanes.push(Lane::new(port));
        Ok(self.lanes.len() - 1)
    }

    /// Closes all ports and takes their frames back.
    pub(super) fn close(self, pool: &mut FramePool) {
        for mut lane in self.lanes {
            lane.staged.drain(..).for_each(|frame| pool.give(frame));
            if let Some(port) = lane.port {
                port.close(pool);
            }
        }
    }
}

impl<P: Port> Lane<P> {
    fn new(port: P) -> Self {
        Self {
            index: port.info().index,
            port: Some(port),
            staged: FrameBurst::new(),
            octets: 0,
            state: Flushed::All,
            closed: PortStatistics::default(),
        }
    }

    /// Moves the staged frames to the port's queue; frames that find no room at a second attempt
    /// are dropped. No frame can be kept back after this, so the fence is checked once more.
    /// Returns false if the fence is shut.
    fn submit(
        &mut self,
        place: usize,
        fence: &Fence,
        pool: &mut FramePool,
        counters: &WorkerCounters,
    ) -> bool {
        if !fence.is_open() {
            self.give_up(WorkerDrop::FencedLate, pool, counters);
            return false;
        }
        let Some(port) = &mut self.port else {
            self.give_up(WorkerDrop::PortDown, pool, counters);
            return false;
        };
        let staged = self.staged.len();
        port.tx(&mut self.staged);
        if !self.staged.is_empty() {
            port.flush();
            port.reclaim(pool);
            port.tx(&mut self.staged);
        }
        let port = &counters.ports[place];
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
    fn give_up(&mut self, reason: WorkerDrop, pool: &mut FramePool, counters: &WorkerCounters) {
        for frame in self.staged.drain(..) {
            counters.count_drop(reason);
            pool.give(frame);
        }
        self.octets = 0;
    }
}
