//! Packets that wait until their neighbour's MAC address is known (RFC 1122 §2.3.2.2).
//!
//! Five bounds hold: on neighbours, on the packets of one neighbour, on all packets, on jumbo
//! frames, and on time. The latest packets of a neighbour are kept, not the first ones. The latest
//! neighbours are kept too, so that a scan of unused addresses does not stop other neighbours from
//! being found.

use super::origin::Context;
use crate::fib::PortIndex;
use crate::frame::Frame;
use std::collections::VecDeque;
use std::net::IpAddr;

/// Bound on the neighbours that packets wait for at a time.
pub(super) const MAX_NEIGHBOURS: usize = 32;
/// Bound on the packets that wait for one neighbour while the kernel asks for it.
const MAX_PACKETS_PER_NEIGHBOUR: usize = 256;
/// Packets that may wait for one neighbour, however many wait in all.
const MIN_PACKETS_PER_NEIGHBOUR: usize = 8;
/// Beyond those, one in this many frames may hold a waiting packet.
pub(super) const HELD_FRACTION: usize = 16;
/// Bound on the neighbours that may displace an older one between two ticks. It bounds the
/// questions to the kernel too.
pub(super) const MAX_DISPLACED_PER_TICK: u32 = 100;
/// How long packets wait, in milliseconds: as long as the kernel asks, three times at intervals of
/// a second. The first question or its answer may get lost, or be late on a busy machine.
pub(super) const NEIGHBOUR_TIMEOUT_MS: u64 = 3000;

/// A waiting packet, and its context.
#[derive(Debug)]
pub(super) struct NeighbourWaiter {
    pub(super) frame: Frame,
    pub(super) context: Context,
}

/// What became of a packet that was to wait.
#[derive(Debug)]
pub(super) enum HoldOutcome {
    /// It is the first for its neighbour, so control should ask the kernel for the neighbour.
    First,
    /// It waits behind others.
    Behind,
    /// It waits, and displaced this older packet.
    InsteadOf(Frame),
    /// It is the first for its neighbour, and displaced the neighbour that had been waited for
    /// longest.
    InsteadOfNeighbour(VecDeque<NeighbourWaiter>),
    /// Too many neighbours are waited for, and too many were displaced since the last tick.
    TableFull(Frame),
}

/// The packets for one neighbour.
#[derive(Debug)]
struct WaitingNeighbour {
    port: PortIndex,
    neighbour: IpAddr,
    since: u64,
    packets: VecDeque<NeighbourWaiter>,
}

/// All waiting packets.
#[derive(Debug)]
pub(super) struct HoldQueue {
    /// Oldest first.
    waiting: Vec<WaitingNeighbour>,
    /// Neighbours that may still displace an older one until the next tick.
    places_left: u32,
    /// Bound on the waiting packets in jumbo frames.
    max_jumbo: usize,
    /// Bound on the waiting packets, beyond a few of each neighbour.
    max_packets: usize,
}

impl HoldQueue {
    /// A queue for a worker with `frames` frames. At most `max_jumbo` packets may wait in jumbo
    /// frames: there may be few, and other packets need them.
    pub(super) fn new(frames: usize, max_jumbo: usize) -> Self {
        Self {
            waiting: Vec::with_capacity(MAX_NEIGHBOURS),
            places_left: MAX_DISPLACED_PER_TICK,
            max_jumbo,
            max_packets: frames / HELD_FRACTION,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The number of waiting packets.
    pub(super) fn len(&self) -> usize {
        self.waiting.iter().map(|entry| entry.packets.len()).sum()
    }

    /// Takes out the packet that must make room if this frame is to wait: the first one in a jumbo
    /// frame, of the neighbour waited for longest. That neighbour is still waited for.
    pub(super) fn make_room(&mut self, frame: &Frame) -> Option<Frame> {
        let is_jumbo = |waiter: &NeighbourWaiter| waiter.frame.is_jumbo();
        let jumbo = || self.waiting.iter().flat_map(|entry| &entry.packets).filter(|waiter| is_jumbo(waiter));
        if !frame.is_jumbo() || jumbo().count() < self.max_jumbo {
            return None;
        }
        self.waiting.iter_mut().find_map(|WaitingNeighbour { packets, .. }| {
            let at = packets.iter().position(is_jumbo)?;
            packets.remove(at).map(|waiter| waiter.frame)
        })
    }

    /// Keeps an IP packet until its neighbour is known.
    pub(super) fn hold(
        &mut self,
        port: PortIndex,
        neighbour: IpAddr,
        waiter: NeighbourWaiter,
        now: u64,
    ) -> HoldOutcome {
        let is_full = self.len() >= self.max_packets;
        let known = self.waiting.iter_mut().find(|entry| entry.port == port && entry.neighbour == neighbour);
        if let Some(entry) = known {
            let packets = &mut entry.packets;
            let is_full = packets.len() >= MAX_PACKETS_PER_NEIGHBOUR
                || is_full && packets.len() >= MIN_PACKETS_PER_NEIGHBOUR;
            let oldest = packets.pop_front_if(|_| is_full).map(|waiter| waiter.frame);
            packets.push_back(waiter);
            return oldest.map_or(HoldOutcome::Behind, HoldOutcome::InsteadOf);
        }
        let full = self.waiting.len() == MAX_NEIGHBOURS;
        if full && self.places_left == 0 {
            return HoldOutcome::TableFull(waiter.frame);
        }
        let oldest = full.then(|| self.waiting.remove(0).packets);
        self.places_left -= u32::from(full);
        let packets = VecDeque::from_iter([waiter]);
        self.waiting.push(WaitingNeighbour { port, neighbour, since: now, packets });
        oldest.map_or(HoldOutcome::First, HoldOutcome::InsteadOfNeighbour)
    }

    /// Called about ten times a second: lets neighbours displace others again.
    pub(super) fn tick(&mut self) {
        self.places_left = MAX_DISPLACED_PER_TICK;
    }

    /// Takes the packets of a neighbour for which `ready` holds, oldest first.
    pub(super) fn release(
        &mut self,
        ready: impl Fn(PortIndex, IpAddr) -> bool,
    ) -> Option<VecDeque<NeighbourWaiter>> {
        let at = self.waiting.iter().position(|entry| ready(entry.port, entry.neighbour))?;
        Some(self.waiting.remove(at).packets)
    }

    /// Takes the packets of a neighbour that has been waited for too long.
    pub(super) fn expire(&mut self, now: u64) -> Option<VecDeque<NeighbourWaiter>> {
        let at =
            self.waiting.iter().position(|entry| now.saturating_sub(entry.since) >= NEIGHBOUR_TIMEOUT_MS)?;
        Some(self.waiting.remove(at).packets)
    }

    /// Takes all packets, neighbour by neighbour.
    pub(super) fn clear(&mut self) -> Option<VecDeque<NeighbourWaiter>> {
        self.waiting.pop().map(|entry| entry.packets)
    }
}
