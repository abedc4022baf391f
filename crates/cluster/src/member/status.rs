//! What operators see of a member.

use super::{ConfigurationStatus, HandoverStage, IkeUpdateCounts, Member};
use crate::group::GroupStatus;
use crate::node::NodeId;
use std::collections::BTreeMap;
use testudo_base::shard::ShardSet;
use testudo_base::spi::Shard;
use testudo_ike::output::Time;

/// What was not taken in, and what was told, since the node began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemberCounters {
    /// IKE messages for shards whose IKE another node speaks.
    pub not_ours: u64,
    /// Changes of a shard that came when it was not their sender's any more.
    pub not_owner: u64,
    /// Updates that cannot be read.
    pub unread: u64,
    /// Changes of IKE SAs that are not for what is held here of them.
    pub unfit: u64,
    /// What was told to others.
    pub told: IkeUpdateCounts,
}

/// For `testudo cluster`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterStatus {
    /// The group.
    pub group: GroupStatus,
    /// Shards by their owner, as the last view and all that followed say.
    pub owners: Vec<(NodeId, ShardSet)>,
    /// Shards whose packets are carried here, and those whose IKE is spoken.
    pub packets: ShardSet,
    /// See there.
    pub ike: ShardSet,
    /// Of the first, those that are a suspect's.
    pub provisional: ShardSet,
    /// This node answers for the virtual addresses otherwise.
    pub default_host: bool,
    /// Members that are silent.
    pub suspects: Vec<NodeId>,
    /// Members that are being brought up to date.
    pub fresh: Vec<NodeId>,
    /// Members that are to own nothing, and those that have lost a port.
    pub drained: Vec<NodeId>,
    /// See there.
    pub unfit: Vec<NodeId>,
    /// Shards on their way from here to other nodes, and what is waited for.
    pub handovers: Vec<(Shard, HandoverStage)>,
    /// Shards of this node that others should have, by those.
    pub misplaced: Vec<(NodeId, usize)>,
    /// Shards that are about to come here from nodes that live.
    pub arrivals: ShardSet,
    /// Shards that this node is to take, and from when on if it is a matter of time: else when all
    /// know of it.
    pub takes: Vec<(ShardSet, Option<Time>)>,
    /// What this node has still to tell nodes that are being brought up to date, in SAs.
    pub untold: usize,
    /// Owners that have not told them all.
    pub awaited: Vec<NodeId>,
    /// What the cluster is configured with.
    pub configuration: ConfigurationStatus,
    /// Of the updates in the last view: the highest that all of its members speak.
    pub version: u8,
    /// IKE SAs and Child SAs of the whole cluster that are known here.
    pub ike_sas: usize,
    /// See there.
    pub child_sas: usize,
    /// IKE messages that wait until all members hold what they depend on.
    pub held: usize,
    /// IKE SAs of shards taken over whose states have not been read yet.
    pub unread_states: usize,
    /// What was not taken in, and what was told.
    pub counters: MemberCounters,
}

impl Member {
    /// The part of [`Member::status`] that the group knows. It costs a fraction of the whole.
    pub fn group_status(&self) -> GroupStatus {
        self.core.group.status()
    }

    /// The shards that this node carries provisionally.
    pub fn provisional(&self) -> ShardSet {
        self.shards.provisional
    }

    /// For `testudo cluster`.
    pub fn status(&self) -> ClusterStatus {
        let mut misplaced = BTreeMap::new();
        for (_, to) in self.core.table.misplaced(self.core.node) {
            *misplaced.entry(to).or_default() += 1;
        }
        ClusterStatus {
            group: self.core.group.status(),
            owners: self
                .core
                .table
                .synced()
                .iter()
                .map(|node| (*node, self.core.table.owned_by(*node)))
                .collect(),
            packets: self.shards.shown.packets,
            ike: self.shards.shown.ike,
            provisional: self.shards.provisional,
            default_host: self.shards.shown.default_host,
            suspects: self.shards.suspects.iter().copied().collect(),
            fresh: self.replication.resync.fresh().to_vec(),
            drained: self.core.table.drained().iter().copied().collect(),
            unfit: self.core.table.unfit().iter().copied().collect(),
            handovers: self.shards.handover.stages(),
            misplaced: misplaced.into_iter().collect(),
            arrivals: self.shards.arrivals.shards(),
            takes: self.shards.takes.iter().map(|take| (take.shards(), take.at())).collect(),
            untold: self.replication.resync.untold_sas(),
            awaited: self.replication.resync.awaited(),
            configuration: self.configuration.configuration_status(&self.core),
            version: self.core.view.version,
            ike_sas: self.replication.replicas.ikes.len(),
            child_sas: self.replication.replicas.children_len(),
            held: self.core.commits.held(),
            unread_states: self.shards.imports.len(),
            counters: self.core.counters,
        }
    }
}
