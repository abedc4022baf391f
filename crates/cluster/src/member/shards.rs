//! The shards of this node: those that it has taken, carries provisionally, receives or gives away,
//! and what its host is shown of them.

pub(super) mod carriers;
pub(super) mod drain;
pub(super) mod fitness;
pub(super) mod following;
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
use carriers::Carriers;
use fitness::Fitness;
use following::Following;
use handover::{Arrivals, Handover};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use syncs::Syncs;
use takeover::Take;
use testudo_base::shard::ShardSet;
use testudo_base::spi::Shard;
use testudo_ike::message::{Header, IkeSpi};
use testudo_ike::output::Time;

/// The shards of this node.
pub(super) struct Shards {
    pub(super) handover: Handover,
    /// No shard is offered before: nodes have joined that do not send on spread SAs yet.
    pub(super) offers_from: Option<Time>,
    pub(super) arrivals: Arrivals,
    pub(super) fitness: Fitness,
    /// This node is about to end, and gives its shards away.
    pub(super) leaves: bool,
    /// Since when this drained node has had nothing left to give away.
    pub(super) empty_since: Option<Time>,
    pub(super) load: u16,
    /// Neighbours of this node, by port, for the next owner of its shards.
    pub(super) neighbours: Vec<(u8, IpAddr)>,
    pub(super) suspects: BTreeSet<NodeId>,
    /// Shards that each other node carries provisionally.
    pub(super) told: BTreeMap<NodeId, ShardSet>,
    /// Shards of suspects that have proved to be alive: their new numbers lie above those that this
    /// node would send with.
    pub(super) yielded: ShardSet,
    pub(super) takes: Vec<Take>,
    /// Shards that this node has taken, and those whose IKE it speaks.
    pub(super) active: ShardSet,
    pub(super) ike: ShardSet,
    pub(super) provisional: ShardSet,
    /// Shards that the view has given to this node, that it has not taken yet, and whose standby it
    /// was before.
    pub(super) inherited: ShardSet,
    /// Shards that this node has carried provisionally since their owner last moved its numbers.
    pub(super) used: ShardSet,
    /// When this node last moved the numbers of a shard that another node had carried.
    pub(super) bumped_at: BTreeMap<Shard, Time>,
    /// Shards in which nothing is sent until this update is stable.
    pub(super) bumping: BTreeMap<Shard, Ticket>,
    /// IKE SAs of this node whose states are not decoded yet; and the shards that may have such.
    pub(super) imports: BTreeSet<IkeSpi>,
    pub(super) imported: ShardSet,
    pub(super) homes: Option<ShardSet>,
    pub(super) shown: Ownership,
    pub(super) carriers: Carriers,
    pub(super) following: Following,
    pub(super) syncs: Syncs,
}

impl Shards {
    /// The state of a node without shards.
    pub(super) fn new() -> Self {
        Self {
            handover: Handover::default(),
            offers_from: None,
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
            carriers: Carriers::new(),
            following: Following::new(),
            syncs: Syncs::default(),
        }
    }

    /// The node to which an IKE message that is not for this node is to be relayed.
    pub(super) fn speaker(&self, core: &Core, bytes: &[u8]) -> Option<NodeId> {
        let header = Header::parse(bytes).ok().filter(|_| core.is_routed() && core.view.running)?;
        let ours = if header.from_initiator { header.responder_spi } else { header.initiator_spi };
        let shard = match ours.is_zero() {
            // Another node answers it only if this node speaks for no shard.
            true if !self.shown.ike.is_empty() => return None,
            true => core.key.initiator(header.initiator_spi.to_bytes()),
            false => ours.shard(),
        };
        core.table.owner(shard).filter(|owner| *owner != core.node && core.view.members.contains(owner))
    }

    /// True if the message is for a shard whose IKE this node speaks. Its IKE SA is in the endpoint
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
        let shard = if begins { self.answers_in(core, header.initiator_spi) } else { ours.shard() };
        // A state that is not decoded yet may have answered this request already.
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

    /// The shard in which a peer's first message is answered. Where routers give it to one node,
    /// that node answers in a shard of its own. The allocator finds the shard in the same way.
    fn answers_in(&self, core: &Core, initiator: IkeSpi) -> Shard {
        let hashed = core.key.initiator(initiator.to_bytes());
        let own = if core.is_routed() { self.shown.ike } else { ShardSet::EMPTY };
        own.pick(hashed).unwrap_or(hashed)
    }
}

#[cfg(test)]
mod tests;
