//! Packets of shards that are about to come from another node. They wait until the shard has come.
//!
//! Both nodes receive each of these packets. The other node works on them for some milliseconds
//! more, so most of the waiting packets are already its own work; only the latest are not.

use super::origin::KeptPacket;
use crate::frame::Frame;
use std::collections::VecDeque;

/// Bound on the packets that wait at a time.
const MAX_TRANSIT_PACKETS: usize = 8192;
/// One in this many frames may hold a waiting packet.
const TRANSIT_FRACTION: usize = 4;
/// How long packets wait, in milliseconds. A shard that has not come by then has stayed with its
/// owner.
pub(super) const TRANSIT_TIMEOUT_MS: u64 = 500;

#[derive(Debug)]
struct ShardWaiter {
    packet: KeptPacket,
    since: u64,
}

/// All waiting packets, oldest first.
#[derive(Debug)]
pub(super) struct TransitQueue {
    waiting: VecDeque<ShardWaiter>,
    max_packets: usize,
    jumbo: usize,
    max_jumbo: usize,
}

impl TransitQueue {
    /// A queue for a worker with this many frames and jumbo frames.
    pub(super) fn new(frames: usize, jumbo: usize) -> Self {
        let max_packets = (frames / TRANSIT_FRACTION).clamp(1, MAX_TRANSIT_PACKETS);
        let max_jumbo = (jumbo / TRANSIT_FRACTION).max(1);
        Self { waiting: VecDeque::with_capacity(max_packets), max_packets, jumbo: 0, max_jumbo }
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Keeps a packet. Returns the oldest packet if it must make room: the shard's former node has
    /// most likely worked on it.
    pub(super) fn hold(&mut self, packet: KeptPacket, now: u64) -> Option<Frame> {
        let is_jumbo = packet.frame.is_jumbo();
        let at = match is_jumbo && self.jumbo >= self.max_jumbo {
            true => self.waiting.iter().position(|waiter| waiter.packet.frame.is_jumbo()),
            false => (self.waiting.len() >= self.max_packets).then_some(0),
        };
        let oldest = at.and_then(|at| self.waiting.remove(at)).map(|waiter| waiter.packet.frame);
        self.jumbo -= usize::from(oldest.as_ref().is_some_and(Frame::is_jumbo));
        self.jumbo += usize::from(is_jumbo);
        self.waiting.push_back(ShardWaiter { packet, since: now });
        oldest
    }

    /// Takes the oldest packet.
    pub(super) fn take(&mut self) -> Option<KeptPacket> {
        let packet = self.waiting.pop_front()?.packet;
        self.jumbo -= usize::from(packet.frame.is_jumbo());
        Some(packet)
    }

    /// Takes a packet that has waited for too long.
    pub(super) fn expire(&mut self, now: u64) -> Option<Frame> {
        let is_late = |waiter: &ShardWaiter| now.saturating_sub(waiter.since) >= TRANSIT_TIMEOUT_MS;
        if self.waiting.front().is_some_and(is_late) { self.take().map(|packet| packet.frame) } else { None }
    }
}
