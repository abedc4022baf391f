//! Grants for the shards of this node. A shard that has been given up gets its numbers from its
//! next owner.

use super::Shards;
use crate::group::Ticket;
use crate::member::core::Core;
use crate::member::replication::Replication;
use crate::node::NodeId;
use crate::update::{Grants, Op};
use testudo_base::shard::ShardSet;
use testudo_base::spi::Spi;
use testudo_ike::output::Time;

impl Shards {
    /// A Child SA has used half of its last block or stripe, or has none, at this rate in packets a
    /// second.
    pub(in crate::member) fn numbers_low(
        &self,
        core: &mut Core,
        replication: &mut Replication,
        now: Time,
        spi_in: Spi,
        rate: u64,
    ) {
        if !self.may_grant(core, replication, spi_in) {
            return;
        }
        let Some(child) = replication.replicas.child_mut(spi_in) else { return };
        if child.spread.is_some() {
            return self.stripe_low(core, replication, now, spi_in);
        }
        // Without a grant nothing changes: all nodes have the same ledger.
        let mut ledger = child.ledger;
        ledger.fit(rate, child.params.esn);
        let grant = ledger.grant(spi_in, child.params.esn);
        let op = grant.map(|grant| {
            child.ledger = ledger;
            replication.numbers.own.granted(Some(grant), false);
            let (shard, standby) = (spi_in.shard(), core.table.standby(spi_in.shard()));
            Op::Renew(Grants { shard, standby, grants: vec![grant] })
        });
        Self::grant_or_rekey(core, replication, now, spi_in, op);
    }

    /// It is time for the next stripe of a spread Child SA.
    pub(in crate::member) fn stripe_low(
        &self,
        core: &mut Core,
        replication: &mut Replication,
        now: Time,
        spi_in: Spi,
    ) {
        if self.may_grant(core, replication, spi_in) {
            let Replication { numbers, replicas, .. } = &mut *replication;
            let stripe = numbers.next_stripe(core, replicas, spi_in, 0, false);
            Self::grant_or_rekey(core, replication, now, spi_in, stripe.map(Op::Stripe));
        }
    }

    /// True if this node grants the next numbers of a Child SA, and has not just done so. The next
    /// owner grants those of a given-up shard, once all nodes know of it.
    fn may_grant(&self, core: &Core, replication: &Replication, spi_in: Spi) -> bool {
        let shard = spi_in.shard();
        let given_up = self.handover.held().contains(shard);
        let asked = replication.numbers.is_asked(spi_in);
        core.view.running && !asked && !given_up && core.table.owner(shard) == Some(core.node)
    }

    /// Publishes the next numbers of a Child SA. Without any it is rekeyed, and some time before: the
    /// peer may answer late.
    fn grant_or_rekey(
        core: &mut Core,
        replication: &mut Replication,
        now: Time,
        spi_in: Spi,
        op: Option<Op>,
    ) {
        let Some(child) = replication.replicas.child(spi_in) else { return };
        let (id, ends) = (child.id, op.is_none() || child.ledger.ends_soon(child.params.esn));
        op.and_then(|op| replication.publish_grants(core, vec![op]));
        if ends && core.endpoint.rekey_child(now, id) {
            replication.turn(core, now);
        }
    }

    /// Grants stripes of all spread Child SAs of this node in which a node has no numbers yet, or
    /// one of those that have joined.
    pub(in crate::member) fn grant_to_all(
        &self,
        core: &mut Core,
        replication: &mut Replication,
        now: Time,
        joined: &[NodeId],
    ) {
        let shards = core.table.owned_by(core.node).without(self.handover.given_up(core.view.epoch));
        let Replication { numbers, replicas, .. } = &mut *replication;
        let (ops, used_up) = numbers.stripes_for_all(core, replicas, shards, joined);
        replication.publish_grants(core, ops);
        for child in used_up {
            core.endpoint.rekey_child(now, child);
        }
    }

    /// Grants new blocks of all SAs to the owner and the standby of shards that this node owns.
    /// `at_once`: another node may have used the numbers above ours, so ours must not be used any
    /// more. Given-up shards are left out: their next owners would not count these grants.
    ///
    /// All shards are lanes of spread Child SAs, also those without numbers to grant. At once these
    /// are told of too: the standby stops, and this node counts as seen what it has accepted.
    pub(in crate::member) fn grant_all(
        &self,
        core: &mut Core,
        replication: &mut Replication,
        shards: ShardSet,
        at_once: bool,
    ) -> Option<Ticket> {
        let mut ops = Vec::new();
        let lanes = at_once && !core.is_routed() && replication.replicas.spread().next().is_some();
        for shard in shards.without(self.handover.given_up(core.view.epoch)).iter() {
            let (standby, before) = (core.table.standby(shard), ops.len());
            replication.numbers.grant_shard(&mut replication.replicas, shard, standby, at_once, &mut ops);
            if lanes && ops.len() == before {
                ops.push(Op::Bump(Grants { shard, standby, grants: Vec::new() }));
            }
        }
        replication.publish_grants(core, ops)
    }
}
