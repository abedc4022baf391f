//! Packets of a suspect are carried by its standby at once. Should the suspicion be wrong, the
//! owner moves its numbers behind those that the standby has sent with.

use super::Shards;
use crate::member::core::Core;
use crate::member::replication::Replication;
use crate::node::NodeId;
use std::time::Duration;
use testudo_base::shard::ShardSet;
use testudo_base::spi::Shard;
use testudo_ike::output::{LogLevel, Time};
use testudo_planted::{Plant, planted};

/// While a standby goes on with a shard, its owner moves its numbers this often.
const BUMP_INTERVAL: Duration = Duration::from_millis(300);

impl Shards {
    /// Carries the packets of those whom it suspects and whose standby it is, and of those whose
    /// standby it was until they left; no others.
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
        // The owner, should it live, learns of it by the next heartbeat that it hears: it is told
        // until the owner has moved its numbers, however short the suspicion was. The peer's window
        // has moved on with the first packet.
        self.used = self.used.union(self.provisional).without(self.active);
        self.tell_used(core);
        self.show(core, replication, now);
    }

    /// What came and went since that was carried for suspects.
    fn log_provisional(&self, core: &mut Core, before: ShardSet) {
        let (came, went) = (self.provisional.without(before), before.without(self.provisional));
        // Those that it has taken for good are told of where it takes them.
        let back = went.without(self.active).len();
        if !came.is_empty() {
            core.log(LogLevel::Info, format!("carries {} shards of suspects provisionally", came.len()));
        }
        if back > 0 {
            core.log(LogLevel::Info, format!("gives {back} shards of former suspects back"));
        }
    }

    pub(in crate::member) fn tell_used(&self, core: &mut Core) {
        core.group.set_load(self.load, self.used);
    }

    /// The owner has moved its numbers behind all that this node may have sent with as its standby.
    pub(in crate::member) fn owner_bumped(&mut self, core: &mut Core, shard: Shard) {
        // One that still carries the shard has more to tell.
        if !self.provisional.contains(shard) {
            self.used.remove(shard);
            self.tell_used(core);
        }
    }

    /// The standby is who the view says. Two nodes that suspect different ones would both be the
    /// next in line otherwise.
    fn is_standby(&self, core: &Core, shard: Shard) -> bool {
        if planted(Plant::StandbyBySuspicion) {
            let ranked = crate::shard::ranks(shard, core.table.synced());
            let first = ranked.iter().find(|node| !self.suspects.contains(node));
            return first == Some(&core.node);
        }
        core.table.standby(shard) == Some(core.node)
    }

    /// What another node says that it carries provisionally, or has carried. If that is ours, it
    /// suspects us, or did, and has sent with higher numbers than we do: nothing leaves until ours
    /// are behind them again.
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

    /// Moves the numbers of shards that others have sent for; again and again while they go on, and
    /// once more when they are done.
    pub(in crate::member) fn bump(&mut self, core: &mut Core, replication: &mut Replication, now: Time) {
        // The group tells only what has changed: what a node had said before it left the view still
        // holds when it is back.
        let told = self.told.iter().filter(|(node, _)| core.view.members.contains(node));
        let told = told.fold(ShardSet::EMPTY, |all, (_, told)| all.union(*told));
        // One that has been given up is the next owner's to number.
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

    /// The owner has bumped a shard: it lives, and knows of what we carry. Our next block lies
    /// behind its own, so we must not begin with it.
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

    /// Blocks of bumped shards are stable.
    pub(in crate::member) fn bumped(&mut self, core: &Core) {
        let commits = &core.commits;
        self.bumping.retain(|_, ticket| !commits.is_stable(*ticket));
    }
}
