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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::member::Member;
    use crate::member::samples::{START, first, has_published, id, member, spread_child};

    /// Node 1, in a view, and a spread Child SA of that node, which replaces another one.
    fn renewed(owner: u32) -> (Member, Spi) {
        let mut member = member();
        member.core.view.running = true;
        let mut child = spread_child(first(member.core.table.owned_by(id(owner))), 1);
        let spi = child.params.spi_in;
        child.replaces = Some(Spi(spi.0 - 1));
        member.replication.replicas.insert_child(child);
        (member, spi)
    }

    /// A packet comes after this time. True if node 1 tells the owner.
    fn tells(member: &mut Member, after: u64, spi: Spi) -> bool {
        let Member { core, replication, .. } = member;
        let child = replication.replicas.child(spi).unwrap().id;
        replication.traffic_seen(core, START.plus(Duration::from_millis(after)), child);
        has_published(core)
    }

    #[test]
    fn the_owner_is_told_again_if_it_has_not_switched_after_a_second() {
        let (mut member, spi) = renewed(2);
        let told = [0, 999, 1000, 1999, 2000].map(|after| tells(&mut member, after, spi));
        assert_eq!(told, [true, false, true, false, true]);
    }

    #[test]
    fn nothing_is_told_unless_another_node_waits_for_it() {
        type Change = fn(&mut Member, Spi);
        let cases: [(&str, u32, Change); 5] = [
            ("it is the owner", 1, |_, _| {}),
            ("there is no view", 2, |member, _| member.core.view.running = false),
            ("a member knows no proofs", 2, |member, _| {
                member.core.view.version = crate::update::PROOFS - 1;
            }),
            ("the new Child SA sends", 2, |member, spi| {
                member.replication.replicas.child_mut(spi).unwrap().switched = true;
            }),
            ("it replaces none", 2, |member, spi| {
                member.replication.replicas.child_mut(spi).unwrap().replaces = None;
            }),
        ];
        for (why, owner, change) in cases {
            let (mut member, spi) = renewed(owner);
            change(&mut member, spi);
            assert!(!tells(&mut member, 0, spi), "{why}");
        }
    }
}
