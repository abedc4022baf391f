//! Numbers for the shards of this node: those that it has given up are their next owners' to
//! number.

use super::Shards;
use crate::group::Ticket;
use crate::member::core::Core;
use crate::member::replication::Replication;
use crate::update::{Grants, Op};
use testudo_base::shard::ShardSet;
use testudo_base::spi::Spi;
use testudo_ike::output::Time;

impl Shards {
    /// Half of the last block of a Child SA is used, or there is none: at so many packets a second.
    pub(in crate::member) fn numbers_low(
        &self,
        core: &mut Core,
        replication: &mut Replication,
        now: Time,
        spi_in: Spi,
        rate: u64,
    ) {
        let shard = spi_in.shard();
        let asked = replication.numbers.own.is_asked(spi_in);
        // A shard that has been given up is its next owner's to number, from when all know of it.
        let given_up = self.handover.held().contains(shard);
        if !core.view.running || asked || given_up || core.table.owner(shard) != Some(core.node) {
            return;
        }
        let Some(child) = replication.replicas.child_mut(spi_in) else { return };
        child.ledger.fit(rate, child.params.esn);
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

    /// Grants the owner and the standby of shards that this node owns new blocks of all SAs.
    /// `at_once`: another may have used the numbers behind our own, so ours are over. Those that it
    /// has given up are their next owners' to number: nobody else would count what is granted here.
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
