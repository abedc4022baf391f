//! Packets that another node of the cluster has relayed here, out of their SAs. Each takes the way
//! that it would have taken from a port of this node, in bursts of one direction.

use super::classify::Direction;
use super::origin::KeptPacket;
use crate::port::BURST;
use std::collections::VecDeque;

/// Bound on the packets that wait: a burst from a port, and as many that were reassembled.
const MAX_RELAYED: usize = 2 * BURST;

/// All of them, until the end of the burst in which they came.
#[derive(Debug)]
pub(super) struct RelayedPackets {
    inbound: VecDeque<KeptPacket>,
    outbound: VecDeque<KeptPacket>,
}

impl RelayedPackets {
    pub(super) fn new() -> Self {
        Self { inbound: VecDeque::with_capacity(MAX_RELAYED), outbound: VecDeque::with_capacity(MAX_RELAYED) }
    }

    /// Adds a packet. Returns it if there is no room.
    #[inline]
    pub(super) fn push(&mut self, packet: KeptPacket) -> Result<(), KeptPacket> {
        let queue = match packet.direction {
            Direction::Inbound => &mut self.inbound,
            Direction::Outbound | Direction::Clear => &mut self.outbound,
        };
        if queue.len() == MAX_RELAYED {
            return Err(packet);
        }
        queue.push_back(packet);
        Ok(())
    }

    /// Takes the next packet.
    #[inline]
    pub(super) fn take(&mut self) -> Option<KeptPacket> {
        self.inbound.pop_front().or_else(|| self.outbound.pop_front())
    }
}
