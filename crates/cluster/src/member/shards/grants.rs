//! Grants for the shards of this node. A shard that has been given up gets its numbers from its
//! next owner.

use super::Shards;
use crate::group::Ticket;
use crate::member::core::Core;
use crate::member::replication::Replication;
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
        child.ledger.fit(rate, child.params.esn);
        if child.spread.is_some() {
            return self.stripe_low(core, replication, now, spi_in);
        }
        let (id, grant) = (child.id, child.ledger.grant(spi_in, child.params.esn));
        match grant {
            Some(grant) => {
                replication.numbers.own.granted(Some(grant), false);
                let standby = core.table.standby(shard);
                let ticket = core.publish(vec![Op::Renew(Grants { shard, standby, grants: vec![grant] })]);
                ticket.into_iter().for_each(|ticket| {
                    replication.numbers.blocks_published(core, &mut replication.replicas, ticket)
                });
            }
            None => {
                core.endpoint.rekey_child(now, id);
                replication.turn(core, now);
            }
        }
    }

    /// A spread Child SA of this node has used half of its last stripe.
    fn stripe_low(&self, core: &mut Core, replication: &mut Replication, now: Time, spi_in: Spi) {
        match replication.numbers.next_stripe(core, &mut replication.replicas, spi_in, 0, false) {
            Some(stripe) => {
                let ticket = core.publish(vec![Op::Stripe(stripe)]);
                ticket.into_iter().for_each(|ticket| {
                    replication.numbers.blocks_published(core, &mut replication.replicas, ticket)
                });
            }
            None => {
                if let Some(child) = replication.replicas.child(spi_in).map(|child| child.id) {
                    core.endpoint.rekey_child(now, child);
                    replication.turn(core, now);
                }
            }
        }
    }

    /// Grants stripes that include the nodes that have joined, of all spread Child SAs in shards
    /// that this node owns.
    pub(in crate::member) fn grant_to_joined(
        &self,
        core: &mut Core,
        replication: &mut Replication,
        owned: ShardSet,
    ) {
        let shards = owned.without(self.handover.given_up(core.view.epoch));
        let ops = replication.numbers.stripes_for_joined(core, &mut replication.replicas, shards);
        let ticket = core.publish(ops);
        ticket
            .into_iter()
            .for_each(|ticket| replication.numbers.blocks_published(core, &mut replication.replicas, ticket));
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
