//! The proof that a peer uses a new Child SA: a packet that it has sent on it. Until then outbound
//! traffic stays on the Child SA that the new one replaces.
//!
//! The owner of the home shard waits for that packet. Of a spread Child SA another node may receive
//! it, and all packets for a while if they are few. That node tells the owner.

use super::Replication;
use crate::member::core::Core;
use crate::update::Op;
use std::time::Duration;
use testudo_base::spi::Spi;
use testudo_ike::output::{ChildSaId, Time};

/// The owner is told again if it has not switched after this time: the home may have moved.
const RETELL_INTERVAL: Duration = Duration::from_secs(1);

impl Replication {
    /// An authentic packet has arrived here on a Child SA.
    pub(in crate::member) fn traffic_seen(&mut self, core: &mut Core, now: Time, child: ChildSaId) {
        core.endpoint.traffic_seen(now, child);
        let Some(spi) = self.replicas.spi_of_child(child) else { return };
        if core.table.owner(spi.shard()) == Some(core.node) || !core.view.running || !core.tells_proofs() {
            return;
        }
        let Some(child) = self.replicas.child_mut(spi).filter(|child| child.waits()) else { return };
        let Some(spread) = &mut child.spread else { return };
        if spread.proof_told.is_none_or(|at| now.since(at) >= RETELL_INTERVAL) {
            spread.proof_told = Some(now);
            core.publish(vec![Op::ChildProven { spi }]);
        }
    }

    /// Another node has received an authentic packet on a Child SA.
    pub(in crate::member) fn proven(&self, core: &mut Core, now: Time, spi: Spi) {
        if let Some(child) = self.replicas.child(spi) {
            core.endpoint.traffic_seen(now, child.id);
        }
    }
}
