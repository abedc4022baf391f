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
//!
//! Where sessions take turns, only the first packet of one does, or is a mark. The others take its
//! lane ([`crate::session`]).

use crate::lane::{Seen, Spread};
use crate::session::{Found, Sessions};
use crate::shard::SHARDS;
use crate::siphash::SipKey;
use crate::spi::Shard;
use testudo_planted::{Plant, planted};

/// Whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The next lane.
    RoundRobin,
    /// A lane of the queue into which the fewest octets were put since the last mark; for a session,
    /// a lane in which few octets were sent since then.
    ShortestQueue,
}

/// What takes turns in a view: what all of its nodes count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InTurn {
    /// Hashes decide.
    #[default]
    Nothing,
    /// Packets do, and sessions go by their hashes.
    Packets,
    /// Packets and sessions.
    Sessions,
}

impl InTurn {
    /// True if tunnels that are spread in this way take turns as configured. True where hashes
    /// decide anyway.
    pub fn knows(self, spread: Spread) -> bool {
        match spread.turns() {
            None => true,
            Some(_) if spread.is_by_session() => self == Self::Sessions,
            Some(_) => self != Self::Nothing,
        }
    }
}

/// Queues of [`Rule::ShortestQueue`], of [`LANES`] lanes each, where packets take turns.
const QUEUES: usize = 16;
const LANES: u32 = 16;
/// One packet in 64 is a mark.
const ONE_IN: u64 = 64;
/// One new session in 16: where the count is wrong, so is the beginning of a session, and not only a
/// packet. Of the shortest queue that costs nothing, as `testudo bench spread --only balance` shows.
const SESSIONS_ONE_IN: u64 = 16;
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
    lanes: LaneQueues,
}

/// The octets that sessions have sent in each lane since the last mark.
#[derive(Clone, Debug, PartialEq, Eq)]
struct LaneQueues([u32; SHARDS]);

impl Default for LaneQueues {
    fn default() -> Self {
        Self([0; SHARDS])
    }
}

impl LaneQueues {
    fn add(&mut self, lane: Shard, octets: u32) {
        if let Some(queue) = self.0.get_mut(usize::from(lane.0)) {
            *queue = queue.saturating_add(octets);
        }
    }

    /// The lane of a new session: of the four that its hash names, that with the fewest octets.
    /// [FLAT] compares all queues. Four of so many are nearly as good, and cost the same however
    /// many nodes there are.
    fn shortest_of(&self, hash: u64) -> Shard {
        let [.., a, b, c, d] = hash.to_le_bytes();
        let shortest = [a, b, c, d].into_iter().min_by_key(|lane| self.0.get(usize::from(*lane)));
        Shard(shortest.unwrap_or(a))
    }
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

    /// Begins again if the packet with this hash is a mark. True if it is. In a flow whose packets
    /// are all alike each would be one, and take the same lane: only the first counts. Of a session
    /// only its first packet is looked at, and one that comes again and again is a mark each time.
    fn look(&mut self, spread: Spread, hash: u64) -> bool {
        let mark = (hash >> 32) as u32;
        let (one_in, is_new) = match spread.is_by_session() {
            true => (SESSIONS_ONE_IN, true),
            false => (ONE_IN, mark != self.mark),
        };
        let is_mark = (hash >> 24).is_multiple_of(one_in) && is_new && !planted(Plant::MarkIgnored);
        if is_mark {
            (self.next, self.base, self.queues) = (mark >> 16, (mark >> 24) as u8, [0; QUEUES]);
            self.mark = mark;
        }
        is_mark
    }

    /// Counts a clear packet, and gives its lane. `sessions` are those of which this node knows.
    /// `None` if its hash decides ([`crate::lane::of_packet`]).
    pub fn count(
        &mut self,
        key: SipKey,
        spread: Spread,
        packet: &[u8],
        sessions: Sessions<'_>,
    ) -> Option<Shard> {
        let (rule, seen) = (spread.turns()?, Seen::of(key, spread, packet));
        if !seen.is_whole {
            return None;
        }
        if !spread.is_by_session() {
            return self.next_turn(spread, rule, seen);
        }
        let lane = match sessions.find(seen.hash) {
            Found::Lane(lane) => Some(lane),
            Found::Other => None,
            Found::Nothing => {
                let lane = self.of_new_session(spread, rule, seen);
                lane.inspect(|lane| sessions.enter(seen.hash, *lane))
            }
        };
        if rule == Rule::ShortestQueue {
            self.lanes.add(lane.unwrap_or(Shard(seen.hash as u8)), seen.octets);
        }
        lane
    }

    fn of_new_session(&mut self, spread: Spread, rule: Rule, seen: Seen) -> Option<Shard> {
        match rule {
            Rule::RoundRobin => self.next_turn(spread, rule, seen),
            Rule::ShortestQueue => {
                if self.look(spread, seen.hash) {
                    self.lanes = LaneQueues::default();
                }
                Some(self.lanes.shortest_of(seen.hash))
            }
        }
    }

    fn next_turn(&mut self, spread: Spread, rule: Rule, seen: Seen) -> Option<Shard> {
        self.look(spread, seen.hash);
        let lane = self.take(rule, seen.octets);
        let since = self.next.wrapping_sub(self.mark >> 16);
        (since <= LONGEST).then_some(lane)
    }
}

#[cfg(test)]
mod tests;
