//! What the host is shown: whose packets and whose IKE this node keeps.

use super::Shards;
use crate::dispatch::Ownership;
use crate::group::NoQuorum;
use crate::member::core::Core;
use crate::member::replication::Replication;
use crate::member::replication::replicas::SpreadReplica;
use crate::member::{MemberOutput, TakenIn, TakenLanes};
use crate::node::NodeId;
use testudo_base::shard::ShardSet;
use testudo_ike::output::Time;

impl Shards {
    /// Informs the host of what this node keeps, and of what others carry, if that has changed.
    pub(in crate::member) fn show(&mut self, core: &mut Core, replication: &mut Replication, now: Time) {
        self.show_own(core, replication, now);
        self.show_carriers(core, now);
    }

    fn show_own(&mut self, core: &mut Core, replication: &mut Replication, now: Time) {
        let carries = core.view.quorate || core.config.group.no_quorum == NoQuorum::Forward;
        let bumping: ShardSet = self.bumping.keys().copied().collect();
        let mut packets = self.active.union(self.provisional).without(bumping.union(self.handover.stopped()));
        let mut ike = self.ike.without(self.handover.held());
        if !core.view.quorate {
            ike = ShardSet::EMPTY;
        }
        if !carries {
            packets = ShardSet::EMPTY;
        }
        let default_host = match core.view.running {
            // Nobody floods what routers give to one node: it answers.
            true if core.is_routed() => true,
            true => self.next_host(core) == Some(core.node),
            // No node knows better now; but if a part of the cluster has a quorum, that part has a
            // default host of its own.
            false => self.shown.default_host && carries,
        };
        let held = if core.view.quorate { self.arrivals.shards().without(packets) } else { ShardSet::EMPTY };
        let shown = Ownership { packets, held, ike, default_host, in_turn: core.in_turn_here() };
        if shown == self.shown {
            return;
        }
        self.show_leaving(core, now, shown.kept());
        let new = packets.without(self.shown.packets);
        if !new.is_empty() {
            // Packets of these shards leave with these blocks.
            replication.numbers.use_blocks_of(core, &mut replication.replicas, new);
        }
        self.take_in_lanes(core, replication, now, new);
        self.take_in(core, replication, now, new);
        if default_host && !self.shown.default_host && !core.is_routed() {
            core.outputs.push_back(MemberOutput::Announce);
        }
        self.shown = shown;
        if core.is_routed() {
            core.shared.set_answering(shown.ike);
        }
        core.outputs.push_back(MemberOutput::Shards(shown));
    }

    /// Packets of these lanes of spread Child SAs are accepted here from now on.
    fn take_in_lanes(&mut self, core: &mut Core, replication: &mut Replication, now: Time, shards: ShardSet) {
        let exact = |spread: &SpreadReplica, lane| {
            let told = || spread.tops.get(&lane).copied().unwrap_or_default();
            (self.arrivals.is_exact(lane) && core.can_spread()).then(told)
        };
        let children = replication.replicas.spread().map(|(spi, child, spread)| TakenLanes {
            spi_in: spi,
            mark: child.mark,
            reach: replication.numbers.reach(core, now, spi.shard(), child),
            esn: child.params.esn,
            unseen: core.is_routed(),
            lanes: shards.iter().map(|lane| (lane, exact(spread, lane))).collect(),
        });
        let children: Vec<TakenLanes> = children.collect();
        if !children.is_empty() && !shards.is_empty() {
            let estimated = shards.iter().filter(|lane| !self.arrivals.is_exact(*lane)).collect();
            replication.numbers.lanes_estimated(estimated);
            core.outputs.push_back(MemberOutput::TakeInLanes { children });
        }
    }

    /// Packets of these shards are accepted here from now on.
    fn take_in(&mut self, core: &mut Core, replication: &Replication, now: Time, shards: ShardSet) {
        // Where a spread Child SA has got follows from its lanes.
        let of = |shard| replication.replicas.children_of(shard).filter(|(_, child)| child.spread.is_none());
        // Where the former owner has reported its last mark, no estimate is needed.
        let reach = |shard, child| match self.arrivals.is_exact(shard) {
            true => 0,
            false => replication.numbers.reach(core, now, shard, child),
        };
        let children = shards.iter().flat_map(of).map(|(spi, child)| TakenIn {
            spi_in: *spi,
            mark: child.mark,
            reach: reach(spi.shard(), child),
            esn: child.params.esn,
            unseen: core.is_routed(),
        });
        let children: Vec<TakenIn> = children.collect();
        self.arrivals.taken(shards);
        if !children.is_empty() {
            core.outputs.push_back(MemberOutput::TakeIn { children });
        }
    }

    /// The default host: the first node that is heard, among those with all of their ports if there
    /// are any.
    fn next_host(&self, core: &Core) -> Option<NodeId> {
        let heard = || core.view.members.iter().copied().filter(|node| !self.suspects.contains(node));
        heard().find(|node| !core.table.is_last(*node)).or_else(|| heard().next())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::Ingress;
    use crate::member::Member;
    use crate::member::samples::{
        START, child, first, has_published, id, insert, only, routed_member, spread_child,
    };

    /// Shows that this node has taken these shards. Gives what the host does before that.
    fn shown(member: &mut Member, active: ShardSet) -> Vec<&'static str> {
        let Member { core, replication, shards, .. } = member;
        shards.active = active;
        core.outputs.clear();
        shards.show(core, replication, START);
        let name = |output: &MemberOutput| match output {
            MemberOutput::Numbers { .. } => Some("numbers"),
            MemberOutput::TakeInLanes { .. } => Some("lanes"),
            MemberOutput::TakeIn { .. } => Some("marks"),
            MemberOutput::Announce => Some("announce"),
            _ => None,
        };
        core.outputs.iter().filter_map(name).collect()
    }

    /// Otherwise it would send with numbers that are used up, or accept packets a second time.
    #[test]
    fn before_a_shard_is_shown_its_numbers_and_marks_are_given_to_the_data_plane() {
        let member = &mut routed_member();
        let shard = first(member.core.table.owned_by(id(1)));
        insert(&mut member.replication.replicas, [child(shard, 0), spread_child(shard, 1)]);
        assert_eq!(shown(member, ShardSet::EMPTY), [""; 0]);
        let Member { core, replication, shards, .. } = &mut *member;
        shards.grant_all(core, replication, only(shard), true);
        assert!(has_published(core));
        replication.numbers.own_blocks_stable(core, &mut replication.replicas);
        assert_eq!(shown(member, only(shard)), ["numbers", "lanes", "marks"]);
    }

    /// Where routers give each packet to one node, all nodes answer.
    #[test]
    fn a_flooded_node_announces_itself_when_it_becomes_the_default_host() {
        for (ingress, fit, announced) in
            [(Ingress::Flood, true, 1), (Ingress::Flood, false, 0), (Ingress::Routed, true, 0)]
        {
            let member = &mut routed_member();
            member.core.config.group.ingress = ingress;
            member.core.table.set_fit(id(1), fit);
            member.shards.shown = Ownership::default();
            let own = member.core.table.owned_by(id(1));
            assert_eq!(shown(member, own).len(), announced, "{ingress:?} {fit}");
            assert_eq!(shown(member, only(first(own))), [""; 0]);
        }
    }
}
