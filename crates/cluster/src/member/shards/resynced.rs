//! A node that has been brought up to date becomes a standby, and receives shards.

use super::Shards;
use crate::member::core::Core;
use crate::member::numbers::stripes::NOTICE;
use crate::member::replication::Replication;
use crate::node::NodeId;
use testudo_base::shard::ShardSet;
use testudo_ike::output::{LogLevel, Time};

impl Shards {
    /// An owner has sent everything.
    pub(in crate::member) fn resynced(
        &mut self,
        core: &mut Core,
        replication: &mut Replication,
        now: Time,
        from: NodeId,
        epoch: u64,
    ) {
        // The end mark of an earlier view means nothing for this one.
        if epoch != core.view.epoch {
            return;
        }
        // All owners have sent everything, at the same position for all nodes: the fresh nodes hold
        // the state now.
        let Some(fresh) = replication.resync.ended(from) else { return };
        if fresh.contains(&core.node) {
            replication.forget_stale(core, now);
            core.group.synced();
            core.log(LogLevel::Info, "this node holds the whole state of the cluster".to_owned());
        }
        let changes = core.table.synced_too(&fresh);
        replication.numbers.became_standby(core, &mut replication.replicas, changes.standby);
        let owned = core.table.owned_by(core.node);
        let standbys: ShardSet = owned.intersection(changes.standby);
        self.grant_all(core, replication, standbys, false);
        self.grant_to_all(core, replication, now, &fresh);
        // What the owner of a home knows, and what a fresh node told while it was alone.
        let homes = if fresh.contains(&core.node) { ShardSet::ALL } else { owned };
        replication.numbers.tell_lane_floors_again(core, homes);
        if replication.replicas.spread().next().is_some() {
            // With a lane it would begin to send at once, ahead of the rows of the others.
            self.offers_from = Some(now.plus(NOTICE));
        }
        self.hand_over(core, replication, now);
        self.provide(core, replication, now);
    }
}
