//! Lanes by counting ([FLAT]): every node counts all clear packets of a spread tunnel, and finds by
//! itself whose turn it is. `crates/fastpath/bpf/turn.h` computes the same.
//!
//! [FLAT]'s nodes count from the first packet on, so one that misses a copy disagrees with the others
//! for ever: some packets are then worked on twice, and others not at all. Here some packets are
//! **marks**, by their hash: the count begins again with each, from a number that the mark shows. So
//! nodes agree again from the next mark on, without a message. Where no marks come, because all
//! packets are alike, hashes decide.
//!
//! Lanes take turns, not nodes. So the count does not depend on which node carries a lane, and lanes
//! change their carriers as ever.

use crate::lane::{Seen, Spread};
use crate::siphash::SipKey;
use crate::spi::Shard;
use testudo_planted::{Plant, planted};

/// Whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The next lane.
    RoundRobin,
    /// A lane of the queue into which the fewest octets were put since the last mark.
    ShortestQueue,
}

/// Queues of [`Rule::ShortestQueue`], of [`LANES`] lanes each.
const QUEUES: usize = 16;
const LANES: u32 = 16;
/// One packet in 64 is a mark.
const ONE_IN: u64 = 64;
/// Packets after a mark that take turns.
const LONGEST: u32 = 1024;

/// What a node has counted for the spread tunnels of one home shard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Turns {
    next: u32,
    /// The first lane of the first queue.
    base: u8,
    queues: [u32; QUEUES],
    /// What the last mark has shown.
    mark: u32,
}

impl Turns {
    /// The lane of a packet.
    fn take(&mut self, rule: Rule, octets: u32) -> Shard {
        let lane = match rule {
            Rule::RoundRobin => self.next as u8,
            Rule::ShortestQueue => {
                let shortest = (0_u8..).zip(&mut self.queues).min_by_key(|(_, queue)| **queue);
                let place = shortest.map_or(0, |(place, queue)| {
                    *queue = queue.wrapping_add(octets);
                    place
                });
                self.base.wrapping_add(place << 4 | (self.next % LANES) as u8)
            }
        };
        self.next = self.next.wrapping_add(1);
        Shard(lane)
    }

    /// Begins again if the packet with this hash is a mark. In a flow whose packets are all alike each
    /// would be one, and take the same lane: only the first counts.
    fn look(&mut self, hash: u64) {
        let mark = (hash >> 32) as u32;
        if (hash >> 24).is_multiple_of(ONE_IN) && mark != self.mark && !planted(Plant::MarkIgnored) {
            let shown = mark >> 16;
            *self = Self { next: shown, base: (shown >> 8) as u8, queues: [0; QUEUES], mark };
        }
    }

    /// Counts a clear packet, and gives its lane. `None` if its hash decides
    /// ([`crate::lane::of_packet`]).
    pub fn count(&mut self, key: SipKey, spread: Spread, packet: &[u8]) -> Option<Shard> {
        let (rule, seen) = (spread.turns()?, Seen::of(key, spread, packet));
        if !seen.is_whole {
            return None;
        }
        self.look(seen.hash);
        let lane = self.take(rule, seen.octets);
        let since = self.next.wrapping_sub(self.mark >> 16);
        (since <= LONGEST).then_some(lane)
    }
}

#[cfg(test)]
mod tests;
