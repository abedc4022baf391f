//! The state of a member, for operators.

use super::{ConfigurationStatus, HandoverStage, IkeUpdateCounts, Member};
use crate::group::{GroupStatus, Standing};
use crate::node::NodeId;
use std::collections::BTreeMap;
use testudo_base::shard::ShardSet;
use testudo_base::spi::Shard;
use testudo_ike::output::Time;

/// Counts of discarded input and of published updates, since the node began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemberCounters {
    /// IKE messages for shards whose IKE another node speaks.
    pub not_ours: u64,
    /// Those of them that were relayed to that node.
    pub relayed_ike: u64,
    /// Orders, of any node, that a shard move to the node that its packets reach.
    pub followed: u64,
    /// Changes of a shard that came when their sender did not own it any more.
    pub not_owner: u64,
    /// Updates that cannot be decoded.
    pub unread: u64,
    /// Changes of IKE SAs that do not fit the state held here.
    pub unfit: u64,
    /// Published updates of IKE SAs.
    pub told: IkeUpdateCounts,
}

/// The state for `testudo cluster`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterStatus {
    /// The group.
    pub group: GroupStatus,
    /// The shards of each owner, by the last view and everything after it.
    pub owners: Vec<(NodeId, ShardSet)>,
    /// Shards whose packets are carried here, and those whose IKE is spoken.
    pub packets: ShardSet,
    /// See `packets`.
    pub ike: ShardSet,
    /// Those of `packets` that belong to a suspect.
    pub provisional: ShardSet,
    /// True if this node answers for the VIPs where nothing else decides.
    pub default_host: bool,
    /// Members that are silent.
    pub suspects: Vec<NodeId>,
    /// Members that are being brought up to date.
    pub fresh: Vec<NodeId>,
    /// Drained members, and members that have lost a port.
    pub drained: Vec<NodeId>,
    /// See `drained`.
    pub unfit: Vec<NodeId>,
    /// Shards on their way from here to other nodes, and what they wait for.
    pub handovers: Vec<(Shard, HandoverStage)>,
    /// Number of this node's shards that another node should have, by that node.
    pub misplaced: Vec<(NodeId, usize)>,
    /// Number of shards that should be at a node because their packets reach it, by that node.
    pub preferred: Vec<(NodeId, usize)>,
    /// Shards that are about to come here from living nodes.
    pub arrivals: ShardSet,
    /// Shards that this node is about to take, and when. Without a time: once all nodes know of it.
    pub takes: Vec<(ShardSet, Option<Time>)>,
    /// SAs that this node still has to send to nodes that are being brought up to date.
    pub untold: usize,
    /// Owners that have not sent them everything.
    pub awaited: Vec<NodeId>,
    /// The state of the configuration.
    pub configuration: ConfigurationStatus,
    /// Version of the updates in the last view: the highest that all of its members support.
    pub version: u8,
    /// IKE SAs and Child SAs of the whole cluster that are known here.
    pub ike_sas: usize,
    /// See `ike_sas`.
    pub child_sas: usize,
    /// IKE messages that wait until all members hold the state that they depend on.
    pub held: usize,
    /// IKE SAs of shards taken over whose states have not been decoded yet.
    pub unread_states: usize,
    /// Members whose engines are configured with other nodes than the cluster's, or have not told.
    pub engines_behind: Vec<NodeId>,
    /// Counts of discarded input and of published updates.
    pub counters: MemberCounters,
}

impl Member {
    /// The group's part of [`Member::status`]. It costs a fraction of the whole.
    pub fn group_status(&self) -> GroupStatus {
        self.core.group.status()
    }

    /// The position of this node in its group; `None` before its first view.
    pub fn standing(&self) -> Option<Standing> {
        self.core.group.standing()
    }

    /// The shards that this node carries provisionally.
    pub fn provisional(&self) -> ShardSet {
        self.shards.provisional
    }

    /// The state for `testudo cluster`.
    pub fn status(&self) -> ClusterStatus {
        let preferences = self.core.table.preferences();
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
            misplaced: by_node(self.core.table.misplaced(self.core.node).map(|(_, to)| to)),
            preferred: by_node(preferences.into_iter().filter_map(|(_, preference)| preference.node)),
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
            engines_behind: self.engines_behind(),
            counters: self.core.counters,
        }
    }
}

/// How often each node is among these.
fn by_node(nodes: impl Iterator<Item = NodeId>) -> Vec<(NodeId, usize)> {
    let mut counts = BTreeMap::new();
    nodes.for_each(|node| *counts.entry(node).or_default() += 1);
    counts.into_iter().collect()
}
