//! Provisional carrying: the standby of a suspect carries its packets at once. If the suspicion is
//! wrong, the owner moves its numbers above those with which the standby has sent.

use super::Shards;
use crate::member::core::Core;
use crate::member::replication::Replication;
use crate::node::NodeId;
use std::time::Duration;
use testudo_base::shard::ShardSet;
use testudo_base::spi::Shard;
use testudo_ike::output::{LogLevel, Time};
use testudo_planted::{Plant, planted};

/// How often an owner moves its numbers while a standby goes on with its shard.
const BUMP_INTERVAL: Duration = Duration::from_millis(300);

impl Shards {
    /// Carries exactly the packets of these shards: those of suspects whose standby this node is,
    /// and those of departed owners whose standby it was.
    pub(in crate::member) fn provide(&mut self, core: &mut Core, replication: &mut Replication, now: Time) {
        let mut provisional = ShardSet::EMPTY;
        if core.view.quorate {
            provisional = self.inherited;
            for suspect in &self.suspects {
                let theirs = core.table.owned_by(*suspect);
                provisional =
                    provisional.union(theirs.iter().filter(|shard| self.is_standby(core, *shard)).collect());
            }
        }
        let before =
            std::mem::replace(&mut self.provisional, provisional.without(self.active).without(self.yielded));
        self.log_provisional(core, before);
        // The owner, if alive, learns of it by the next heartbeat that it hears. It is told until
        // it has moved its numbers, however short the suspicion was: the peer's window has moved on
        // with the first packet.
        self.used = self.used.union(self.provisional).without(self.active);
        self.tell_used(core);
        self.show(core, replication, now);
    }

    /// Logs the shards that were taken from suspects and given back since.
    fn log_provisional(&self, core: &mut Core, before: ShardSet) {
        let (came, went) = (self.provisional.without(before), before.without(self.provisional));
        // Shards that it has taken over for good are logged where it takes them.
        let back = went.without(self.active).len();
        if !came.is_empty() {
            core.log(LogLevel::Info, format!("carries {} shards of suspects provisionally", came.len()));
        }
        if back > 0 {
            core.log(LogLevel::Info, format!("returns {back} shards to former suspects"));
        }
    }

    pub(in crate::member) fn tell_used(&self, core: &mut Core) {
        core.group.set_load(self.load, self.used);
    }

    /// The owner has moved its numbers above all with which this node may have sent as its standby.
    pub(in crate::member) fn owner_bumped(&mut self, core: &mut Core, shard: Shard) {
        // A node that still carries the shard has more to report.
        if !self.provisional.contains(shard) {
            self.used.remove(shard);
            self.tell_used(core);
        }
    }

    /// The view alone names the standby. By suspicion, two nodes with different suspects would both
    /// be next in line.
    fn is_standby(&self, core: &Core, shard: Shard) -> bool {
        if planted(Plant::StandbyBySuspicion) {
            let ranked = core.table.ranking().ranks(shard, core.table.synced());
            let first = ranked.iter().find(|node| !self.suspects.contains(node));
            return first == Some(&core.node);
        }
        core.table.standby(shard) == Some(core.node)
    }

    /// Another node reports the shards that it carries or has carried provisionally. If one is
    /// ours, that node suspects or suspected us and has sent with higher numbers than ours: nothing
    /// leaves until ours are above them again.
    pub(in crate::member) fn told(
        &mut self,
        core: &mut Core,
        replication: &mut Replication,
        now: Time,
        from: NodeId,
        provisional: ShardSet,
    ) {
        self.told.insert(from, provisional);
        self.bump(core, replication, now);
    }

    /// Moves the numbers of shards with which others have sent: again and again while these go on,
    /// and once more when they have stopped.
    pub(in crate::member) fn bump(&mut self, core: &mut Core, replication: &mut Replication, now: Time) {
        // The group passes on only changes: what a node reported before it left the view still
        // holds when it is back.
        let told = self.told.iter().filter(|(node, _)| core.view.members.contains(node));
        let told = told.fold(ShardSet::EMPTY, |all, (_, told)| all.union(*told));
        // The next owner grants the numbers of a given-up shard.
        let told = told.intersection(self.active.without(self.handover.held()));
        if told.is_empty() || !core.view.running {
            return;
        }
        let again = |at: &Time| now.since(*at) >= BUMP_INTERVAL;
        let due =
            |shard: &Shard| !self.bumping.contains_key(shard) && self.bumped_at.get(shard).is_none_or(again);
        let due: ShardSet = told.iter().filter(due).collect();
        if due.is_empty() || planted(Plant::OwnerNotTold) {
            return;
        }
        self.bumped_at.extend(due.iter().map(|shard| (shard, now)));
        if let Some(ticket) = self.grant_all(core, replication, due, true) {
            self.bumping.extend(due.iter().map(|shard| (shard, ticket)));
        }
        self.show(core, replication, now);
    }

    /// The owner has bumped a shard: it is alive, and knows what we carry. Our next block lies
    /// above its own, so we must not begin with it.
    pub(in crate::member) fn yield_to_owner(
        &mut self,
        core: &mut Core,
        replication: &mut Replication,
        now: Time,
        shard: Shard,
    ) {
        if self.provisional.contains(shard) {
            self.yielded.insert(shard);
            self.provide(core, replication, now);
        }
    }

    /// Ends the pause of shards whose bump is stable.
    pub(in crate::member) fn bumped(&mut self, core: &Core) {
        let commits = &core.commits;
        self.bumping.retain(|_, ticket| !commits.is_stable(*ticket));
    }
}

#[cfg(test)]
mod tests {
    use crate::group::Ingress;
    use crate::member::samples::{
        START, child, first, has_published, id, insert, millis, only, routed_member, spread_child,
    };
    use crate::member::{Member, MemberOutput};

    #[test]
    fn an_owner_moves_its_numbers_again_and_again_while_a_standby_goes_on() {
        let Member { mut core, mut replication, mut shards, .. } = routed_member();
        let shard = first(core.table.owned_by(id(1)));
        insert(&mut replication.replicas, [child(shard, 0)]);
        core.view.running = false;
        shards.told(&mut core, &mut replication, START, id(2), only(shard));
        assert!(!has_published(&mut core), "there is no view");
        core.view.running = true;
        shards.told(&mut core, &mut replication, START, id(2), only(shard));
        assert!(has_published(&mut core) && !shards.shown.packets.contains(shard));
        shards.bump(&mut core, &mut replication, millis(300));
        assert!(!has_published(&mut core), "the first move is not known to all");
        shards.bumped(&core);
        for (at, moves) in [(299, false), (300, true)] {
            shards.bump(&mut core, &mut replication, millis(at));
            assert_eq!(has_published(&mut core), moves, "after {at} ms");
        }
    }

    /// What the standby has accepted in a lane, and the owner not, would otherwise be accepted once
    /// more when somebody sends it again. Behind routers the floor would lie above all that the
    /// peer has sent.
    #[test]
    fn an_owner_takes_the_floor_of_a_lane_anew_that_a_standby_has_carried() {
        for (ingress, anew) in [(Ingress::Flood, true), (Ingress::Routed, false)] {
            let Member { mut core, mut replication, mut shards, .. } = routed_member();
            core.config.group.ingress = ingress;
            let lane = first(core.table.owned_by(id(1)));
            insert(&mut replication.replicas, [spread_child(first(core.table.owned_by(id(2))), 0)]);
            core.outputs.clear();
            shards.told(&mut core, &mut replication, START, id(2), only(lane));
            assert_eq!(has_published(&mut core), anew, "{ingress:?}");
            assert_eq!(shards.shown.packets.contains(lane), !anew, "{ingress:?}: until all know");
            shards.bumped(&core);
            shards.show(&mut core, &mut replication, START);
            assert!(shards.shown.packets.contains(lane), "{ingress:?}");
            let takes = |output: &MemberOutput| match output {
                MemberOutput::TakeInLanes { children } => children[0].lanes == [(lane, None)],
                _ => false,
            };
            assert_eq!(core.outputs.iter().any(takes), anew, "{ingress:?}");
        }
    }

    /// The owner sends with numbers above those of the standby.
    #[test]
    fn a_standby_stops_carrying_a_shard_whose_owner_has_moved_its_numbers() {
        let Member { mut core, mut replication, mut shards, .. } = routed_member();
        let shard = first(core.table.owned_by(id(2)));
        shards.suspects.insert(id(2));
        shards.provide(&mut core, &mut replication, START);
        let carried = shards.shown.packets;
        assert!(carried.contains(shard));
        shards.yield_to_owner(&mut core, &mut replication, START, shard);
        assert_eq!(shards.shown.packets, carried.without(only(shard)));
    }
}
