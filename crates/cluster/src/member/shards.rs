//! The shards of this node: which it has taken, carries provisionally, is given, or gives away, and
//! what it shows its host of them.

pub(super) mod drain;
pub(super) mod fitness;
pub(super) mod grants;
pub(super) mod handover;
pub(super) mod imports;
pub(super) mod ownership;
pub(super) mod provisional;
pub(super) mod resynced;
pub(super) mod shown;
pub(super) mod syncs;
pub(super) mod takeover;

use super::core::Core;
use super::replication::Replication;
use crate::dispatch::Ownership;
use crate::group::Ticket;
use crate::node::NodeId;
use fitness::Fitness;
use handover::{Arrivals, Handover};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use syncs::Syncs;
use takeover::Take;
use testudo_base::shard::ShardSet;
use testudo_base::spi::Shard;
use testudo_ike::message::{Header, IkeSpi};
use testudo_ike::output::Time;

/// See the module.
pub(super) struct Shards {
    pub(super) handover: Handover,
    pub(super) arrivals: Arrivals,
    pub(super) fitness: Fitness,
    /// It is to end, and gives away what it owns.
    pub(super) leaves: bool,
    /// Since when nothing is left that this node, being drained, could give away.
    pub(super) empty_since: Option<Time>,
    pub(super) load: u16,
    /// Neighbours of this node, by port: for whoever takes over.
    pub(super) neighbours: Vec<(u8, IpAddr)>,
    pub(super) suspects: BTreeSet<NodeId>,
    /// What each other node carries provisionally.
    pub(super) told: BTreeMap<NodeId, ShardSet>,
    /// Shards of suspects that have shown that they live: they have new numbers in front of those
    /// that we would send with.
    pub(super) yielded: ShardSet,
    pub(super) takes: Vec<Take>,
    /// Shards that this node has taken, and of those whose IKE it speaks.
    pub(super) active: ShardSet,
    pub(super) ike: ShardSet,
    pub(super) provisional: ShardSet,
    /// Shards that the view has made this node's, that are not taken yet, and whose standby it was
    /// before.
    pub(super) inherited: ShardSet,
    /// Those that it has carried since their owner last moved its numbers.
    pub(super) used: ShardSet,
    /// When this node last moved the numbers of a shard because another had carried it.
    pub(super) bumped_at: BTreeMap<Shard, Time>,
    /// Shards in which nothing is sent until that is stable.
    pub(super) bumping: BTreeMap<Shard, Ticket>,
    /// IKE SAs that are this node's and whose states have not been read yet; and the shards where
    /// there may be some.
    pub(super) imports: BTreeSet<IkeSpi>,
    pub(super) imported: ShardSet,
    pub(super) homes: Option<ShardSet>,
    pub(super) shown: Ownership,
    pub(super) syncs: Syncs,
}

impl Shards {
    /// It has none.
    pub(super) fn new() -> Self {
        Self {
            handover: Handover::default(),
            arrivals: Arrivals::default(),
            fitness: Fitness::default(),
            leaves: false,
            empty_since: None,
            load: 0,
            neighbours: Vec::new(),
            suspects: BTreeSet::new(),
            told: BTreeMap::new(),
            yielded: ShardSet::EMPTY,
            takes: Vec::new(),
            active: ShardSet::EMPTY,
            ike: ShardSet::EMPTY,
            provisional: ShardSet::EMPTY,
            inherited: ShardSet::EMPTY,
            used: ShardSet::EMPTY,
            bumped_at: BTreeMap::new(),
            bumping: BTreeMap::new(),
            imports: BTreeSet::new(),
            imported: ShardSet::EMPTY,
            homes: None,
            shown: Ownership::default(),
            syncs: Syncs::default(),
        }
    }

    /// Whether the message is for a shard whose IKE this node speaks. The IKE SA is in the endpoint
    /// then.
    pub(super) fn is_ours(
        &mut self,
        core: &mut Core,
        replication: &mut Replication,
        now: Time,
        bytes: &[u8],
    ) -> bool {
        let Ok(header) = Header::parse(bytes) else { return true };
        let ours = if header.from_initiator { header.responder_spi } else { header.initiator_spi };
        let begins = ours.is_zero();
        let shard = if begins { core.key.initiator(header.initiator_spi.to_bytes()) } else { ours.shard() };
        // What is not yet read may have answered this request already.
        let unread = begins && self.imported.contains(shard);
        if !self.shown.ike.contains(shard) || unread {
            core.counters.not_ours += 1;
            return false;
        }
        if self.imports.contains(&ours) {
            self.import(core, replication, now, ours);
        }
        true
    }
}
