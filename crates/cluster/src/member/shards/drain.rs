//! Draining: a node that will be away for a time gives its shards away first, so that planned work
//! costs no packet.
//!
//! Any node may order it. All nodes agree on it at its position in the total order; then its shards
//! are handed over as usual. A node that leaves the view and comes back is not drained any more.

use super::Shards;
use crate::member::Member;
use crate::member::core::Core;
use crate::member::replication::Replication;
use crate::node::{NodeId, names};
use crate::update::Op;
use std::time::Duration;
use testudo_ike::output::{LogLevel, Time};

/// How long a leaving node stays after its last shard has gone: the new owner needs its
/// acknowledgement, and once more if that is lost.
const LEAVE_DELAY: Duration = Duration::from_millis(300);

/// Why a node is not drained.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DrainError {
    /// This node is in no quorate view.
    #[error("there is no quorum: the nodes cannot agree on it")]
    NoView,
    /// The node is not in the view.
    #[error("found node {node}, expected one that is in the view: {}", names(.members))]
    NotThere {
        /// The node that was to be drained.
        node: NodeId,
        /// The nodes of the view.
        members: Vec<NodeId>,
    },
    /// No other node could take the shards.
    #[error(
        "nobody could take the shards of node {node}: \
         all others are drained, lack a port or are being brought up to date"
    )]
    NobodyElse {
        /// The node that was to be drained.
        node: NodeId,
    },
}

impl Member {
    /// Drains a node, or lets it own shards again.
    pub fn drain(&mut self, now: Time, node: NodeId, drained: bool) -> Result<(), DrainError> {
        self.shards.ask_to_drain(&mut self.core, node, drained)?;
        self.pump(now);
        Ok(())
    }

    /// Drains this node before it ends. If a view is beginning, the node does so in that view, in
    /// which the others can agree to it.
    pub fn leave(&mut self, now: Time) -> Result<(), DrainError> {
        self.shards.leaves = true;
        if self.core.group.is_forming() { Ok(()) } else { self.drain(now, self.core.node, true) }
    }
}

impl Shards {
    fn ask_to_drain(&self, core: &mut Core, node: NodeId, drained: bool) -> Result<(), DrainError> {
        if !core.view.running {
            return Err(DrainError::NoView);
        }
        if !core.view.members.contains(&node) {
            return Err(DrainError::NotThere { node, members: core.view.members.clone() });
        }
        if drained && self.nobody_could_follow(core, node) {
            return Err(DrainError::NobodyElse { node });
        }
        core.publish(vec![Op::Drain { node, drained }]);
        Ok(())
    }

    /// A view has begun: a node that was told to leave, and is not known to be drained, publishes
    /// it again.
    pub(in crate::member) fn leave_anew(&self, core: &mut Core) {
        let known = core.table.drained().contains(&core.node);
        if self.leaves && !known && !self.nobody_could_follow(core, core.node) {
            core.publish(vec![Op::Drain { node: core.node, drained: true }]);
        }
    }

    pub(super) fn nobody_could_follow(&self, core: &Core, node: NodeId) -> bool {
        !core.table.synced().iter().any(|other| *other != node && !core.table.is_last(*other))
    }

    /// An operator's drain order has been delivered, given on node `from`.
    pub(in crate::member) fn told_drain(
        &mut self,
        core: &mut Core,
        replication: &mut Replication,
        now: Time,
        from: NodeId,
        node: NodeId,
        drained: bool,
    ) {
        if let Some(unheard) = &mut core.unheard_of {
            unheard.drained.push((node, drained));
            return;
        }
        let what = if drained { "gives its shards away" } else { "may own shards again" };
        core.log(LogLevel::Notice, format!("node {node} {what}, as ordered on node {from}"));
        let changes = core.table.set_drained(node, drained);
        if node == core.node && drained && core.is_routed() {
            // Routers first learn that this node serves no more: what they give it until then, it
            // still carries itself.
            let from = now.plus(core.config.withdraw);
            self.offers_from = Some(self.offers_from.map_or(from, |other| other.max(from)));
        }
        self.ranks_changed(core, replication, now, changes);
        self.hand_over(core, replication, now);
    }

    /// True if this leaving node has nothing left to give away and the others know it, or if no
    /// node could take its shards. While a view begins, because another node leaves too, this is
    /// not known yet.
    pub(in crate::member) fn is_empty_handed(&mut self, core: &mut Core, now: Time) -> bool {
        if !core.view.running {
            self.empty_since = None;
            return !core.group.is_forming();
        }
        let drained = core.table.drained().contains(&core.node);
        // A node that is being brought up to date owns nothing, and receives nothing before it has
        // published that it holds the state.
        let has_none = !core.table.synced().contains(&core.node);
        if has_none || !drained && self.nobody_could_follow(core, core.node) {
            return true;
        }
        let waits =
            !drained || core.table.misplaced(core.node).next().is_some() || !self.handover.held().is_empty();
        match (waits, self.empty_since) {
            (true, _) => self.empty_since = None,
            (false, None) => self.empty_since = Some(now),
            (false, Some(since)) => return now.since(since) >= LEAVE_DELAY,
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::Ingress;
    use crate::member::samples::{START, has_published, id, millis, routed_member};

    fn ends(member: &mut Member, now: Time) -> bool {
        member.shards.is_empty_handed(&mut member.core, now)
    }

    #[test]
    fn the_last_node_that_could_own_shards_is_not_drained() {
        let Member { mut core, shards, .. } = routed_member();
        assert_eq!(shards.ask_to_drain(&mut core, id(2), true), Ok(()));
        core.table.set_drained(id(2), true);
        let refused = shards.ask_to_drain(&mut core, id(1), true);
        assert_eq!(refused, Err(DrainError::NobodyElse { node: id(1) }));
    }

    #[test]
    fn a_leaving_node_orders_its_draining_in_every_view_until_it_is_drained() {
        let Member { mut core, mut shards, .. } = routed_member();
        let mut orders = |leaves, drained: u32| {
            shards.leaves = leaves;
            for node in [1, 2] {
                core.table.set_drained(id(node), node == drained);
            }
            shards.leave_anew(&mut core);
            has_published(&mut core)
        };
        assert!(!orders(false, 0));
        assert!(orders(true, 0));
        assert!(!orders(true, 1), "it is drained");
        assert!(!orders(true, 2), "nobody could take its shards");
    }

    /// What routers still give it, it carries itself.
    #[test]
    fn a_drained_node_offers_its_shards_once_routers_know_that_it_serves_no_more() {
        let withdraw = Duration::from_secs(5);
        for (ingress, node, drained, waits) in [
            (Ingress::Routed, 1, true, true),
            (Ingress::Routed, 1, false, false),
            (Ingress::Routed, 2, true, false),
            (Ingress::Flood, 1, true, false),
        ] {
            let Member { mut core, mut replication, mut shards, .. } = routed_member();
            (core.config.group.ingress, core.config.withdraw) = (ingress, withdraw);
            shards.told_drain(&mut core, &mut replication, START, id(2), id(node), drained);
            let from = waits.then(|| START.plus(withdraw));
            assert_eq!(shards.offers_from, from, "{ingress:?} {node} {drained}");
        }
    }

    #[test]
    fn a_leaving_node_ends_some_time_after_its_last_shard_has_gone() {
        let member = &mut routed_member();
        assert!(!ends(member, millis(0)) && !ends(member, millis(300)), "it is not drained");
        member.core.table.set_drained(id(1), true);
        assert!(!ends(member, millis(0)) && !ends(member, millis(300)), "it has shards");
        for shard in member.core.table.owned_by(id(1)).iter() {
            member.core.table.drop(id(1), shard, id(2)).unwrap();
        }
        assert!(!ends(member, millis(0)) && !ends(member, millis(299)) && ends(member, millis(300)));
    }

    #[test]
    fn a_leaving_node_ends_at_once_if_no_node_could_take_its_shards() {
        let member = &mut routed_member();
        member.core.table.set_drained(id(2), true);
        assert!(ends(member, millis(0)));
        // All nodes are drained: each keeps what it has.
        member.core.table.set_drained(id(1), true);
        assert!(!ends(member, millis(0)) && ends(member, millis(300)));
    }
}
