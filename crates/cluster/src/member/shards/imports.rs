//! Decoding the states of IKE SAs that this node has become the owner of, a few at a time, so that
//! heartbeats do not wait.

use super::Shards;
use crate::alloc::OwnedHomes;
use crate::member::core::Core;
use crate::member::replication::Replication;
use crate::update::Op;
use testudo_base::spi::Spi;
use testudo_ike::message::IkeSpi;
use testudo_ike::output::{ChildSaId, LogLevel, Time};

/// Bound on the IKE SAs whose states are decoded in one turn. More would delay this node's
/// heartbeats.
const MAX_IMPORTS_AT_ONCE: usize = 64;

impl Shards {
    /// Decodes some of the states of the IKE SAs that this node has become the owner of.
    pub(in crate::member) fn import_some(
        &mut self,
        core: &mut Core,
        replication: &mut Replication,
        now: Time,
    ) {
        if core.sender.is_none() || self.imported.is_empty() {
            return;
        }
        for _ in 0..MAX_IMPORTS_AT_ONCE {
            let Some(spi) = self.imports.first().copied() else { break };
            self.import(core, replication, now, spi);
        }
        if self.imports.is_empty() {
            let shards = std::mem::take(&mut self.imported);
            self.syncs.all_imported(shards);
            replication.remove_orphans(core, now, shards);
            self.update_homes(core, now);
            // Before its shard moves on.
            self.renew_what_is_doubtful(core, replication, now);
            self.hand_over(core, replication, now);
        }
    }

    /// Goes on with an IKE SA. From now on its IVs come from this node's sender ID.
    pub(in crate::member) fn import(
        &mut self,
        core: &mut Core,
        replication: &mut Replication,
        now: Time,
        spi: IkeSpi,
    ) {
        self.imports.remove(&spi);
        let Some(ike) = replication.replicas.ikes.get(&spi) else { return };
        let Some((at, state)) = ike.told.as_ref().filter(|_| ike.here.is_none()) else { return };
        let replicas = &replication.replicas;
        let number = |spi: Spi| -> Option<ChildSaId> { replicas.child(spi).map(|child| child.id) };
        match core.endpoint.replication_mut().import_sa_as(*at, state.octets(), Some(ike.id), &number) {
            Ok(id) => {
                self.syncs.imported(spi);
                let here = core.endpoint.replication().message_ids(id);
                let contact = replication.replicas.ikes.get_mut(&spi).and_then(|ike| {
                    ike.here = here;
                    ike.contact.take()
                });
                if let Some((contact, older)) = contact.as_deref() {
                    core.endpoint.replication_mut().contacted_before(now, id, contact, *older);
                    // After this its Child SAs are not orphans.
                    replication.turn(core, now);
                }
            }
            Err(error) => {
                core.log(LogLevel::Error, format!("cannot load the state of IKE_SA {spi}: {error}"));
                replication.ike_gone(core, spi);
                core.publish(vec![Op::IkeDelete { spi }]);
            }
        }
    }

    /// Rekeys Child SAs whose floor may be too high, or that a member does not know how to spread,
    /// if this node speaks for them.
    pub(in crate::member) fn renew_what_is_doubtful(
        &self,
        core: &mut Core,
        replication: &mut Replication,
        now: Time,
    ) {
        replication.numbers.tell_lane_floors(core, &replication.replicas, now, self.active);
        let spoken = self.shown.ike.without(self.imported);
        replication.numbers.renew_doubtful(core, &replication.replicas, now, spoken);
        replication.numbers.gather_spread(core, &replication.replicas, now);
    }

    /// Updates the homes: connections start, and addresses are leased, on the nodes that speak
    /// their IKE and know all SAs.
    pub(in crate::member) fn update_homes(&mut self, core: &mut Core, now: Time) {
        let owned = self.ike.without(self.imported).without(self.handover.held());
        if self.homes != Some(owned) {
            self.homes = Some(owned);
            core.endpoint.replication_mut().set_homes(now, Box::new(OwnedHomes { key: core.key, owned }));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::member::Member;
    use crate::member::samples::{START, first, id, only, routed_member};
    use testudo_base::spi::SenderId;

    /// IVs of the IKE SAs that it decodes come from its sender ID.
    #[test]
    fn a_node_decodes_nothing_before_it_has_a_sender_id() {
        let Member { mut core, mut replication, mut shards, .. } = routed_member();
        let own = only(first(core.table.owned_by(id(1))));
        shards.imported = own;
        shards.import_some(&mut core, &mut replication, START);
        assert_eq!(shards.imported, own);
        core.sender = Some(SenderId(1));
        shards.import_some(&mut core, &mut replication, START);
        assert!(shards.imported.is_empty());
    }
}
