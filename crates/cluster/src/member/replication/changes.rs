//! Updates of IKE SAs: the whole state, or its difference to the last update.
//!
//! All nodes hold the same octets of each IKE SA, as the total order makes them: whole states set
//! them, changes lead from one to the next. A change names the octets to which it applies. A node
//! that has others has missed an update: it discards its state and requests the whole one.

use super::Replication;
use super::replicas::IkeReplica;
use crate::member::core::Core;
use crate::update::{IkeChange, IkeState, Op, Secret};
use std::time::Duration;
use testudo_ike::delta::Delta;
use testudo_ike::endpoint::Outline;
use testudo_ike::message::IkeSpi;
use testudo_ike::output::{IkeSaId, LogLevel, Time};

/// The number and octets of updates of IKE SAs that this node has published.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IkeUpdateCounts {
    /// IKE_ADD: whole states.
    pub states: MessageCount,
    /// IKE_MID_I: changes by our requests and their responses.
    pub mid_i: MessageCount,
    /// IKE_MID_R: changes by requests of the peer.
    pub mid_r: MessageCount,
    /// IKE_UPDATE: changes by both, or by something else.
    pub updates: MessageCount,
}

/// A count of messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MessageCount {
    /// Number of messages.
    pub messages: u64,
    /// Their octets, without the seal.
    pub octets: u64,
}

impl IkeUpdateCounts {
    pub(in crate::member) fn count(&mut self, op: &Op) {
        let count = match op {
            Op::IkeMidI(_) => &mut self.mid_i,
            Op::IkeMidR(_) => &mut self.mid_r,
            Op::IkeUpdate(_) => &mut self.updates,
            _ => &mut self.states,
        };
        count.messages += 1;
        count.octets += op.size() as u64;
    }
}

impl Replication {
    /// Publishes the change of an IKE SA of this node, or its whole state if that is hardly larger.
    pub(in crate::member) fn tell_ike(
        &mut self,
        core: &mut Core,
        now: Time,
        id: IkeSaId,
        outline: Outline,
    ) -> Option<Op> {
        match self.change_of(core, id, &outline) {
            Some(op) => {
                core.counters.told.count(&op);
                Some(op)
            }
            None => self.tell_whole_ike(core, now, id, outline),
        }
    }

    /// Publishes the whole state of an IKE SA of this node.
    pub(in crate::member) fn tell_whole_ike(
        &mut self,
        core: &mut Core,
        now: Time,
        id: IkeSaId,
        outline: Outline,
    ) -> Option<Op> {
        let here = core.endpoint.replication().message_ids(id);
        let state = Secret::new(core.endpoint.export_sa(now, id)?);
        let told = Some((now, state.clone()));
        self.replicas.insert_ike(outline.spi, IkeReplica::new(id, outline.clone(), told, here));
        let op = Op::Ike(Box::new(IkeState { outline, age: Duration::ZERO, state, contact: None }));
        core.counters.told.count(&op);
        Some(op)
    }

    /// The change of an IKE SA. `None` if the whole state must be published.
    fn change_of(&mut self, core: &Core, id: IkeSaId, outline: &Outline) -> Option<Op> {
        let ike = self.replicas.ikes.get_mut(&outline.spi)?;
        let alike = Outline { commit: ike.outline.commit, ..outline.clone() } == ike.outline;
        let (at, base) = ike.told.as_mut().filter(|_| alike)?;
        let before = ike.here?;
        // Exported for the same moment: otherwise every time in it would have changed.
        let state = Secret::new(core.endpoint.export_sa(*at, id)?);
        let delta = Delta::between(base.octets(), state.octets());
        if delta.size() * 4 > state.octets().len() * 3 {
            return None;
        }
        let windows = core.endpoint.replication().message_ids(id)?;
        (*base, ike.here, ike.outline.commit) = (state, Some(windows), outline.commit);
        let change = Box::new(IkeChange { spi: outline.spi, commit: outline.commit, delta });
        Some(match (windows.0 != before.0, windows.1 != before.1) {
            (true, false) => Op::IkeMidI(change),
            (false, true) => Op::IkeMidR(change),
            _ => Op::IkeUpdate(change),
        })
    }

    /// The owner of an IKE SA has published a change of it.
    pub(in crate::member) fn ike_changed(&mut self, core: &mut Core, change: &IkeChange) {
        let spi = change.spi;
        if let Some(ike) = self.replicas.ikes.get_mut(&spi)
            && let Some((_, octets)) = &mut ike.told
            && let Some(state) = change.delta.apply(octets.octets())
        {
            *octets = Secret::new(state);
            ike.outline.commit = change.commit;
            return;
        }
        // A node that is being brought up to date will receive the whole state.
        if self.resync.fresh().contains(&core.node) || self.wanted.contains(&spi) {
            return;
        }
        core.counters.unfit += 1;
        core.log(
            LogLevel::Error,
            format!("a change of IKE_SA {spi} does not fit the state held here; requesting the whole state"),
        );
        // A survivor that went on from an older state would encrypt answered exchanges again.
        self.ike_gone(core, spi);
        self.wanted.insert(spi);
        core.publish(vec![Op::IkeWanted { spi }]);
    }

    /// A node requests the whole state of an IKE SA.
    pub(in crate::member) fn ike_wanted(&mut self, core: &mut Core, now: Time, spi: IkeSpi) {
        if core.table.owner(spi.shard()) == Some(core.node) {
            // Publishes earlier changes first.
            self.turn(core, now);
            let op = self.ike_again(core, now, spi);
            core.publish(op.into_iter().collect());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{EngineEvent, RingId, View};
    use crate::group::{ClusterKey, Durable, GroupConfig, Position};
    use crate::member::counter::Counter;
    use crate::member::{Member, MemberConfig, MemberOutput};
    use crate::node::NodeId;
    use testudo_ike::output::CommitId;
    use zeroize::Zeroizing;

    const SPI: IkeSpi = IkeSpi(0x0700_0000_0000_0001);
    const NOW: Time = Time(Duration::from_secs(100));

    fn node(number: u32) -> NodeId {
        NodeId::new(number).unwrap()
    }

    /// A lone node in a quorate view: it owns all shards.
    fn alone() -> Member {
        let group = GroupConfig::new(node(1), vec![node(1)], ClusterKey::new([7; 32]));
        let mut member = Member::new(
            MemberConfig::new(group),
            Durable::default(),
            [Box::new(Counter(0)), Box::new(Counter(9))],
            NOW,
        );
        let view = View { ring: RingId { seq: 1, node: 1 }, members: vec![node(1)], quorate: true };
        member.handle_engine(NOW, EngineEvent::View(view));
        said(&mut member);
        assert_eq!(member.core.table.owner(SPI.shard()), Some(node(1)));
        member
    }

    /// The number of messages that it multicasts. They are delivered back to it.
    fn said(member: &mut Member) -> usize {
        let mut count = 0;
        member.pump(NOW);
        while let Some(output) = member.poll_output() {
            if let MemberOutput::Multicast(bytes) = output {
                count += 1;
                member.handle_engine(NOW, EngineEvent::Message { from: node(1), bytes });
                member.pump(NOW);
            }
        }
        count
    }

    fn state(octet: u8) -> Vec<u8> {
        vec![octet; 100]
    }

    fn whole(octets: &[u8]) -> IkeState {
        let outline = Outline {
            spi: SPI,
            commit: CommitId(0),
            established: true,
            connection: "c".into(),
            identity: None,
            leases: vec![],
        };
        let state = Secret::new(Zeroizing::new(octets.to_vec()));
        IkeState { outline, age: Duration::ZERO, state, contact: None }
    }

    fn change(from: &[u8], to: &[u8]) -> IkeChange {
        IkeChange { spi: SPI, commit: CommitId(0), delta: Delta::between(from, to) }
    }

    fn held(member: &Member) -> Option<&[u8]> {
        let ike = member.replication.replicas.ikes.get(&SPI)?;
        ike.told.as_ref().map(|(_, state)| state.octets())
    }

    #[test]
    fn a_delta_that_fits_is_applied_and_another_is_requested_once() {
        let mut member = alone();
        member.replication.ike_added(&mut member.core, NOW, whole(&state(1)));
        member.replication.ike_changed(&mut member.core, &change(&state(1), &state(2)));
        assert_eq!(held(&member), Some(&state(2)[..]));
        assert_eq!(said(&mut member), 0);

        // A change in between is missing: neither the old state nor a mixture of both may be used.
        member.replication.ike_changed(&mut member.core, &change(&state(3), &state(4)));
        assert_eq!((held(&member), member.core.counters.unfit), (None, 1));
        member.replication.ike_changed(&mut member.core, &change(&state(4), &state(5)));
        assert_eq!((said(&mut member), member.core.counters.unfit), (1, 1), "it asks once");

        member.replication.ike_added(&mut member.core, NOW, whole(&state(5)));
        member.replication.ike_changed(&mut member.core, &change(&state(5), &state(6)));
        assert_eq!(held(&member), Some(&state(6)[..]));
        assert_eq!(said(&mut member), 0);
        member.replication.ike_changed(&mut member.core, &change(&state(5), &state(6)));
        assert_eq!(held(&member), None);
        assert_eq!(said(&mut member), 1, "the next time it asks again");
    }

    #[test]
    fn its_owner_tells_all_of_it_to_who_asks() {
        let mut member = alone();
        member.replication.ike_added(&mut member.core, NOW, whole(&state(1)));
        let asks = Op::IkeWanted { spi: SPI };
        member.apply(NOW, node(2), Position::default(), asks.clone());
        assert_eq!(said(&mut member), 1);
        let unknown = Op::IkeWanted { spi: IkeSpi(0x0700_0000_0000_0002) };
        member.apply(NOW, node(2), Position::default(), unknown);
        assert_eq!(said(&mut member), 0, "there is none");
        member.core.table.reset();
        member.apply(NOW, node(2), Position::default(), asks);
        assert_eq!(said(&mut member), 0, "it is another's");
    }
}
