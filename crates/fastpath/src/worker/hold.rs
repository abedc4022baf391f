//! Packets that wait until their neighbour's MAC address is known (RFC 1122 §2.3.2.2).
//!
//! Bounded five ways: neighbours, packets a neighbour, packets of all, jumbo frames, and time. A
//! neighbour's latest packets are kept, not its first; and the latest neighbours, so that a scan of
//! addresses that nobody has keeps no other neighbour from being found.

use super::origin::Context;
use crate::fib::PortIndex;
use crate::frame::Frame;
use std::collections::VecDeque;
use std::net::IpAddr;

/// Neighbours that packets wait for at a time.
pub(super) const MAX_NEIGHBOURS: usize = 32;
/// Packets that wait for one neighbour: what comes while it is asked for.
const MAX_PACKETS_PER_NEIGHBOUR: usize = 256;
/// Packets that may wait for one neighbour however many wait in all.
const MIN_PACKETS_PER_NEIGHBOUR: usize = 8;
/// Beyond those, one of so many frames may hold a packet that waits.
pub(super) const HELD_FRACTION: usize = 16;
/// Neighbours that may take the place of an older one between two ticks. It bounds what the kernel
/// is asked for too.
pub(super) const MAX_DISPLACED_PER_TICK: u32 = 100;
/// How long packets wait, in milliseconds: as long as the kernel asks, three times at intervals of
/// a second. The first question, or the answer to it, may get lost, or be late where a machine is
/// busy.
pub(super) const NEIGHBOUR_TIMEOUT_MS: u64 = 3000;

/// A packet that waits, and what is known of it.
#[derive(Debug)]
pub(super) struct NeighbourWaiter {
    pub(super) frame: Frame,
    pub(super) context: Context,
}

/// What became of a packet that was to wait.
#[derive(Debug)]
pub(super) enum HoldOutcome {
    /// It is the first for its neighbour, which somebody should ask for.
    First,
    /// It waits with others.
    Behind,
    /// It waits, and this older one had to go.
    InsteadOf(Frame),
    /// It is the first for its neighbour, and took the place of the neighbour that had been waited
    /// for longest.
    InsteadOfNeighbour(VecDeque<NeighbourWaiter>),
    /// Too many neighbours are waited for, and too many have had to go of late.
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

/// All packets that wait.
#[derive(Debug)]
pub(super) struct HoldQueue {
    /// Oldest first.
    waiting: Vec<WaitingNeighbour>,
    /// Neighbours that may still take the place of an older one.
    places_left: u32,
    /// Packets that may wait in jumbo frames.
    max_jumbo: usize,
    /// Packets that may wait, but for a few of each neighbour.
    max_packets: usize,
}

impl HoldQueue {
    /// Of so many frames; at most so many in jumbo frames, of which there may be few, and others
    /// need them.
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

    /// Packets that wait.
    pub(super) fn len(&self) -> usize {
        self.waiting.iter().map(|entry| entry.packets.len()).sum()
    }

    /// Takes a packet out that would be one too many, should that frame wait: the neighbour waited
    /// for longest has the first one in a jumbo frame. It is waited for nevertheless.
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

    /// Lets an IP packet wait for a neighbour.
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

    /// About ten times a second: lets neighbours take the place of others again.
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
