//! What a node reports to its member: accepted sequence numbers, and packets that it has relayed or
//! carried.

use super::Node;
use std::time::Duration;
use testudo_base::shard::ShardSet;
use testudo_base::spi::{Shard, Spi};
use testudo_cluster::member::FollowConfig;
use testudo_cluster::node::NodeId;
use testudo_ike::output::Time;

/// Interval of reports of accepted sequence numbers.
pub(super) const MARKS_INTERVAL: Duration = Duration::from_secs(1);
/// Interval of reports of relayed and carried packets.
pub(super) const PACKETS_INTERVAL: Duration = Duration::from_millis(500);
/// The worlds have few packets, and not much time for a shard to move.
pub(super) const FOLLOW: FollowConfig =
    FollowConfig { follows: true, wait: Duration::from_secs(1), max_doublings: 1, min_rate: 2 };

impl Node {
    /// The highest accepted numbers on the SAs of these shards.
    pub(super) fn marks_of(&self, shards: ShardSet) -> Vec<(Spi, u64)> {
        let children = self.plane.children().filter(|(spi, _)| shards.contains(spi.shard()));
        let mark = |(spi, child)| Some((spi, self.plane.inbound_sa(child)?.window().high_water_mark()));
        children.filter_map(mark).collect()
    }

    pub(super) fn tell_marks(&mut self, now: Time) {
        if now < self.next_marks {
            return;
        }
        self.next_marks = now.plus(MARKS_INTERVAL);
        let own = self.shown.packets.without(self.provisional);
        let mut marks = self.marks_of(own);
        marks.retain(|(spi, top)| self.marks.insert(*spi, *top) != Some(*top));
        self.member.report_marks(now, &marks);
    }

    /// Reports the packets of each shard, if it is time.
    pub(super) fn tell_packets(&mut self, now: Time) {
        if self.is_routed && now >= self.next_packets {
            self.next_packets = now.plus(PACKETS_INTERVAL);
            self.member.report_packets(now, &self.packets);
        }
    }

    pub(super) fn count_carried(&mut self, shard: Shard) {
        self.packets.carried[usize::from(shard.0)] += 1;
    }

    /// The node to which a packet of this shard is relayed. The shard may follow its packets, unless
    /// they are of a spread SA.
    pub(super) fn relays(&mut self, now: Time, shard: Shard, counts: bool) -> Option<NodeId> {
        let to = self.carrier(now, shard)?;
        self.packets.relayed[usize::from(shard.0)] += u64::from(counts);
        Some(to)
    }

    /// The other node that carries the packets of a shard. Nothing is relayed behind the fence.
    fn carrier(&self, now: Time, shard: Shard) -> Option<NodeId> {
        let carrier = self.carriers.as_ref()?.get(usize::from(shard.0)).copied().flatten();
        carrier.filter(|carrier| *carrier != self.member.node() && self.is_open(now))
    }
}
