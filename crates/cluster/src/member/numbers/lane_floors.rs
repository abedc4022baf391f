//! Floors of lanes of spread Child SAs that may lie above all that their peers have sent.
//!
//! A node that takes lanes of a dead node counts all numbers as seen that the dead node can have
//! accepted in them. Where routers choose the nodes, that is more than any peer has sent, and a
//! forged number may do the same elsewhere. The peer has to skip these numbers, or to get new keys.
//! Only the owner of the SA's home shard can ask it, so the node that took the lanes tells all
//! others of its floors.
//!
//! It does so once a lane is its own. A suspicion may be wrong, and the node carries the lane only
//! for a moment; its floor stays, and is told when the lane comes to it later.
//!
//! A node that was away when floors were told may become the owner of the SA's home. So the nodes
//! tell what is still in doubt once more when such a node has been brought up to date.

use super::Numbers;
use crate::member::core::Core;
use crate::member::replication::replicas::Replicas;
use crate::update::Op;
use std::collections::BTreeMap;
use testudo_base::shard::ShardSet;
use testudo_base::spi::Spi;
use testudo_ike::output::Time;
use testudo_planted::{Plant, planted};

/// Bound on the floors of one update, so that it fits about one batch.
const MAX_FLOORS_PER_UPDATE: usize = 512;

/// Floors that this node has set in its data plane and not told yet.
#[derive(Debug, Default)]
pub(in crate::member) struct LaneFloors {
    /// The lanes that have them.
    lanes: ShardSet,
    /// The highest one of each Child SA.
    floors: BTreeMap<Spi, u64>,
}

impl LaneFloors {
    /// A floor was set that the peer may not have reached.
    pub(super) fn raised(&mut self, spi: Spi, floor: u64) {
        let known = self.floors.entry(spi).or_default();
        *known = floor.max(*known);
    }
}

impl Numbers {
    /// This node takes these lanes, whose former carriers have not told their last numbers.
    pub(in crate::member) fn lanes_estimated(&mut self, lanes: ShardSet) {
        self.lane_floors.lanes = self.lane_floors.lanes.union(lanes);
    }

    /// Tells the other nodes of the floors of lanes that have become this node's own. `active`: its
    /// shards.
    pub(in crate::member) fn tell_lane_floors(
        &mut self,
        core: &mut Core,
        replicas: &Replicas,
        now: Time,
        active: ShardSet,
    ) {
        let LaneFloors { lanes, floors } = &self.lane_floors;
        if floors.is_empty() || !core.view.running || lanes.intersection(active).is_empty() {
            return;
        }
        let floors: Vec<(Spi, u64)> = std::mem::take(&mut self.lane_floors).floors.into_iter().collect();
        if planted(Plant::LaneFloorsNotTold) {
            return;
        }
        self.lane_floors_told(replicas, now, &floors);
        publish(core, &floors);
    }

    /// Tells the floors of lanes that are still in doubt once more, of Child SAs of these home
    /// shards: nodes have been brought up to date.
    pub(in crate::member) fn tell_lane_floors_again(&self, core: &mut Core, homes: ShardSet) {
        let floors: Vec<(Spi, u64)> = self.marks.doubtful_lanes(homes).collect();
        publish(core, &floors);
    }

    /// A node counts numbers up to these floors as seen in some lanes. Whichever node speaks for
    /// the Child SA will ask the peer, also if that node changes first.
    pub(in crate::member) fn lane_floors_told(
        &mut self,
        replicas: &Replicas,
        now: Time,
        floors: &[(Spi, u64)],
    ) {
        for (spi, floor) in floors {
            if replicas.child(*spi).is_some_and(|child| child.spread.is_some() && child.mark < *floor) {
                self.marks.doubt(now, *spi, *floor, true);
            }
        }
    }
}

fn publish(core: &mut Core, floors: &[(Spi, u64)]) {
    if core.tells_lane_floors() {
        let ops = floors.chunks(MAX_FLOORS_PER_UPDATE).map(|floors| Op::LaneFloors(floors.to_vec()));
        core.publish(ops.collect());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::member::samples::{START, insert, member, only, spread_child};
    use testudo_base::spi::Shard;

    /// A suspicion may be wrong, and without a view nobody would hear of them.
    #[test]
    fn floors_are_told_once_a_lane_is_this_nodes_own_in_a_view() {
        let member = &mut member();
        let (core, replication) = (&mut member.core, &mut member.replication);
        let (numbers, replicas) = (&mut replication.numbers, &mut replication.replicas);
        let [spi] = insert(replicas, [spread_child(Shard(1), 0)]);
        let [lane, other] = [4, 5].map(|lane| only(Shard(lane)));
        numbers.lanes_estimated(lane);
        numbers.tell_lane_floors(core, replicas, START, lane);
        assert_eq!(numbers.lane_floors.lanes, lane, "there is no floor");
        numbers.lane_floors.raised(spi, 9000);
        for (running, own, told) in [(false, lane, false), (true, other, false), (true, lane, true)] {
            core.view.running = running;
            numbers.tell_lane_floors(core, replicas, START, own);
            let in_doubt: Vec<_> = numbers.marks.doubtful_lanes(ShardSet::ALL).collect();
            assert_eq!(in_doubt, if told { vec![(spi, 9000)] } else { Vec::new() });
            assert_eq!(numbers.lane_floors.lanes, if told { ShardSet::EMPTY } else { lane });
        }
    }
}
