//! Where routers give each packet to one node ([`crate::group::Ingress::Routed`]): which node
//! carries the packets of each shard, so that others relay them to it, and whether routers are to
//! give this node any packets.
//!
//! The table is a hint. A node that a packet was relayed to drops it unless it carries its shard,
//! so a wrong entry costs packets and nothing else.
//!
//! **A suspect** receives nothing more: its standby carries its packets.
//!
//! **A handover** loses no packet. Once all nodes know of the offer, the receiver keeps back what
//! comes for the shard, and the others relay its packets there. The owner goes on for a while
//! longer, so what was relayed to it before is worked on. Then it relays to the receiver, too, what
//! routers give it.

use super::Shards;
use crate::group::{NoQuorum, Position};
use crate::member::MemberOutput;
use crate::member::core::Core;
use crate::node::NodeId;
use std::collections::BTreeMap;
use testudo_base::shard::{SHARDS, ShardSet};
use testudo_base::spi::Shard;
use testudo_ike::output::Time;

/// The node that carries the packets of each shard, if one is known.
pub type CarrierTable = [Option<NodeId>; SHARDS];

/// What the host was last shown, and what it depends on.
#[derive(Debug)]
pub(in crate::member) struct Carriers {
    shown: CarrierTable,
    serves: bool,
    /// Shards that their owners are handing over to other nodes.
    offered: BTreeMap<Shard, Offered>,
}

/// An offer of a shard by one node to another.
#[derive(Clone, Copy, Debug)]
struct Offered {
    to: NodeId,
    /// Its place in the total order.
    at: Position,
    /// When it is forgotten.
    until: Time,
}

impl Carriers {
    /// Nothing is known yet.
    pub(in crate::member) fn new() -> Self {
        Self { shown: [None; SHARDS], serves: false, offered: BTreeMap::new() }
    }

    /// The owner of these shards has offered them to other nodes.
    pub(in crate::member) fn offered(
        &mut self,
        at: Position,
        until: Time,
        shards: impl Iterator<Item = (Shard, NodeId)>,
    ) {
        self.offered.extend(shards.map(|(shard, to)| (shard, Offered { to, at, until })));
    }

    /// The shard has another owner.
    pub(in crate::member) fn dropped(&mut self, shard: Shard) {
        self.offered.remove(&shard);
    }

    /// A view begins: offers are void.
    pub(in crate::member) fn forget_offers(&mut self) {
        self.offered.clear();
    }
}

impl Shards {
    /// Informs the host of the carriers, and of whether this node serves, if that has changed.
    pub(in crate::member) fn show_carriers(&mut self, core: &mut Core, now: Time) {
        if !core.is_routed() {
            return;
        }
        self.show_table(core, now, self.shown.kept(), ShardSet::EMPTY);
        let serves = self.serves(core);
        if serves != self.carriers.serves {
            self.carriers.serves = serves;
            core.outputs.push_back(MemberOutput::Serves(serves));
        }
    }

    /// Informs the host of the carriers of shards that this node is about to keep no longer. A packet
    /// that came between both would be for nobody. Those of shards that it is about to keep
    /// (`kept`) follow: until it does, others have them.
    pub(super) fn show_leaving(&mut self, core: &mut Core, now: Time, kept: ShardSet) {
        if core.is_routed() {
            self.show_table(core, now, kept, kept.without(self.shown.kept()));
        }
    }

    /// Informs the host of the carriers, if they have changed: of all shards but `unchanged`.
    fn show_table(&mut self, core: &mut Core, now: Time, kept: ShardSet, unchanged: ShardSet) {
        let mut table = self.carriers.shown;
        for (shard, carrier) in (0..=u8::MAX).map(Shard).zip(&mut table) {
            if !unchanged.contains(shard) {
                *carrier = self.carrier(core, now, shard, kept);
            }
        }
        if table != self.carriers.shown {
            self.carriers.shown = table;
            core.outputs.push_back(MemberOutput::Carriers(Box::new(table)));
        }
    }

    /// The carrier of a shard, if this node keeps the packets of `kept`.
    fn carrier(&self, core: &Core, now: Time, shard: Shard, kept: ShardSet) -> Option<NodeId> {
        if kept.contains(shard) {
            return Some(core.node);
        }
        let known = |node: &NodeId| core.view.members.contains(node) && !self.suspects.contains(node);
        let holds = |offered: &&Offered| offered.at <= core.view.stable_upto && now < offered.until;
        if let Some(Offered { to, .. }) = self.carriers.offered.get(&shard).filter(holds)
            && core.view.members.contains(to)
        {
            return Some(*to);
        }
        // What this node is giving away goes to its standby, and so does what a suspect owns.
        let owner = core.table.owner(shard).filter(|owner| known(owner) && *owner != core.node);
        let standby = || core.table.standby(shard).filter(|standby| known(standby) && *standby != core.node);
        owner.or_else(standby)
    }

    /// True if routers are to give this node packets: it carries shards, and is not giving them
    /// away; or it could. A node whose shards have all moved to where their packets went would
    /// otherwise get none of them back.
    fn serves(&self, core: &Core) -> bool {
        let is_drained = self.leaves || core.table.drained().contains(&core.node);
        let gives_away = is_drained && !self.nobody_could_follow(core, core.node);
        let may_carry = core.view.quorate || core.config.group.no_quorum == NoQuorum::Forward;
        let carries = !self.active.union(self.provisional).is_empty();
        let could = core.view.running
            && core.unheard_of.is_none()
            && core.table.synced().contains(&core.node)
            && !core.table.is_last(core.node);
        may_carry && (carries || could) && !gives_away
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::member::Member;
    use crate::member::samples::{START, first, id, member, routed_member};
    use crate::shard::Ranking;
    use std::time::Duration;

    #[test]
    fn without_a_quorum_a_node_serves_only_if_it_is_to_forward() {
        for (no_quorum, quorate, serves) in [
            (NoQuorum::Forward, false, true),
            (NoQuorum::Stop, false, false),
            (NoQuorum::Forward, true, true),
            (NoQuorum::Stop, true, true),
        ] {
            let Member { mut core, mut shards, .. } = member();
            (core.config.group.no_quorum, core.view.quorate) = (no_quorum, quorate);
            assert!(!shards.serves(&core), "it carries nothing");
            shards.active = core.table.owned_by(core.node);
            assert_eq!(shards.serves(&core), serves, "{no_quorum:?}");
        }
    }

    /// Until then the receiver may not keep back its packets.
    #[test]
    fn an_offered_shard_goes_to_its_receiver_from_when_all_nodes_know_until_the_offer_ends() {
        let Member { mut core, mut shards, .. } = routed_member();
        let nodes = [id(1), id(2), id(3)];
        core.table.view(&nodes, Ranking::Balanced);
        core.view.members = nodes.to_vec();
        let shard = first(core.table.owned_by(id(2)));
        let at = Position { count: 1, ..Position::default() };
        let until = START.plus(Duration::from_secs(1));
        shards.carriers.offered(at, until, std::iter::once((shard, id(3))));
        let carrier = |shards: &Shards, core: &Core, now| shards.carrier(core, now, shard, ShardSet::EMPTY);
        assert_eq!(carrier(&shards, &core, START), Some(id(2)));
        core.view.stable_upto = at;
        assert_eq!(carrier(&shards, &core, START), Some(id(3)));
        assert_eq!(carrier(&shards, &core, until), Some(id(2)));
        shards.carriers.dropped(shard);
        assert_eq!(carrier(&shards, &core, START), Some(id(2)));
        shards.carriers.offered(at, until, std::iter::once((shard, id(3))));
        shards.carriers.forget_offers();
        assert_eq!(carrier(&shards, &core, START), Some(id(2)));
    }
}
