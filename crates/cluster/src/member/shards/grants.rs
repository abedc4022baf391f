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
    /// A Child SA has used half of its last block, or has none, at this rate in packets a second.
    pub(in crate::member) fn numbers_low(
        &self,
        core: &mut Core,
        replication: &mut Replication,
        now: Time,
        spi_in: Spi,
        rate: u64,
    ) {
        let shard = spi_in.shard();
        let asked = replication.numbers.is_asked(spi_in);
        // The next owner grants the numbers of a given-up shard, once all nodes know of it.
        let given_up = self.handover.held().contains(shard);
        if !core.view.running || asked || given_up || core.table.owner(shard) != Some(core.node) {
            return;
        }
        let Some(child) = replication.replicas.child_mut(spi_in) else { return };
        let (id, esn) = (child.id, child.params.esn);
        let op = match child.spread {
            Some(_) => {
                let numbers = &mut replication.numbers;
                numbers.next_stripe(core, &mut replication.replicas, spi_in, 0, false).map(Op::Stripe)
            }
            None => {
                // Without a grant nothing changes: all nodes have the same ledger.
                let mut ledger = child.ledger;
                ledger.fit(rate, esn);
                ledger.grant(spi_in, esn).map(|grant| {
                    child.ledger = ledger;
                    replication.numbers.own.granted(Some(grant), false);
                    let standby = core.table.standby(shard);
                    Op::Renew(Grants { shard, standby, grants: vec![grant] })
                })
            }
        };
        // Not only when none is left: the peer may answer late.
        let ends = replication.replicas.child(spi_in).is_some_and(|child| child.ledger.ends_soon(esn));
        let rekeys = op.is_none() || ends;
        if let Some(ticket) = op.and_then(|op| core.publish(vec![op])) {
            replication.numbers.blocks_published(core, &mut replication.replicas, ticket);
        }
        if rekeys && core.endpoint.rekey_child(now, id) {
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
        if let Some(ticket) = core.publish(ops) {
            replication.numbers.blocks_published(core, &mut replication.replicas, ticket);
        }
        for child in used_up {
            core.endpoint.rekey_child(now, child);
        }
    }

    /// Grants new blocks of all SAs to the owner and the standby of shards that this node owns.
    /// `at_once`: another node may have used the numbers above ours, so ours must not be used any
    /// more. Given-up shards are left out: their next owners would not count these grants.
    pub(in crate::member) fn grant_all(
        &self,
        core: &mut Core,
        replication: &mut Replication,
        shards: ShardSet,
        at_once: bool,
    ) -> Option<Ticket> {
        let mut ops = Vec::new();
        for shard in shards.without(self.handover.given_up(core.view.epoch)).iter() {
            let standby = core.table.standby(shard);
            replication.numbers.grant_shard(&mut replication.replicas, shard, standby, at_once, &mut ops);
        }
        let ticket = core.publish(ops);
        ticket
            .into_iter()
            .for_each(|ticket| replication.numbers.blocks_published(core, &mut replication.replicas, ticket));
        ticket
    }
}
