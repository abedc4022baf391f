//! Applying the updates of other nodes' SAs.

use super::Replication;
use super::replicas::{ChildReplica, IkeReplica, SpreadReplica};
use crate::group::Position;
use crate::member::MemberOutput;
use crate::member::core::Core;
use crate::member::numbers::Switch;
use crate::member::numbers::blocks::{Ledger, standbys};
use crate::update::{ChildState, Grant, IkeState, Op, Stripe};
use testudo_base::shard::ShardSet;
use testudo_base::spi::{Shard, Spi};
use testudo_ike::message::IkeSpi;
use testudo_ike::output::{LogLevel, Output, Path, Time};

impl Replication {
    pub(in crate::member) fn ike_added(&mut self, core: &mut Core, now: Time, ike: IkeState) {
        let IkeState { outline, age, state, .. } = ike;
        let spi = outline.spi;
        self.wanted.remove(&spi);
        let old = self.replicas.ikes.get(&spi);
        let known = old.map(|old| (old.id, old.outline.leases.clone()));
        let (id, before) =
            known.unwrap_or_else(|| (core.endpoint.replication_mut().new_ike_number(), Vec::new()));
        for (pool, addr) in before.iter().filter(|lease| !outline.leases.contains(lease)) {
            core.endpoint.replication_mut().drop_lease(id, pool, *addr);
        }
        for (pool, addr) in &outline.leases {
            if !core.endpoint.replication_mut().hold_lease(id, &outline, pool, *addr) {
                core.log(LogLevel::Error, format!("virtual IP {addr} is leased to two peers, by two nodes"));
            }
        }
        let came = Time(now.0.saturating_sub(age));
        let told = Some((came, state));
        self.replicas.insert_ike(spi, IkeReplica::new(id, outline, told, None));
    }

    pub(in crate::member) fn ike_gone(&mut self, core: &mut Core, spi: IkeSpi) {
        self.wanted.remove(&spi);
        let Some(ike) = self.replicas.remove_ike(spi) else { return };
        for (pool, addr) in &ike.outline.leases {
            core.endpoint.replication_mut().drop_lease(ike.id, pool, *addr);
        }
    }

    pub(in crate::member) fn child_added(
        &mut self,
        core: &mut Core,
        now: Time,
        at: Position,
        state: ChildState,
    ) {
        let spi = state.params.spi_in;
        let ledger = Ledger { reserved: state.reserved, log2: state.log2 };
        let granted = state.standby == Some(core.node);
        match self.replicas.child_mut(spi).filter(|child| *child.params == state.params) {
            // It was published again to all, because a node was missing.
            Some(child) => {
                child.ledger.reserved = child.ledger.reserved.max(ledger.reserved);
                child.ledger.log2 = ledger.log2;
                child.mark = child.mark.max(state.mark);
                let waits = child.replaces.is_some() && !child.switched;
                (child.ike, child.replaces, child.stale) = (state.ike, state.replaces, false);
                if waits && state.replaces.is_none() {
                    // It has started to send while this node was away.
                    let child = child.id;
                    core.outputs.push_back(MemberOutput::Ike(Output::StartChild { child }));
                }
            }
            None => self.child_appeared(core, now, state, None),
        }
        if granted && let Some(start) = ledger.reserved.checked_sub(2 << ledger.log2.min(32)) {
            self.numbers.standby.push_back((at, spi, standbys(Grant { spi, start, log2: ledger.log2 })));
        }
    }

    /// Another node has published a spread Child SA. A node that is being brought up to date does
    /// not send with that stripe: its former self may have.
    pub(in crate::member) fn spread_child_added(
        &mut self,
        core: &mut Core,
        now: Time,
        at: Position,
        state: ChildState,
        stripe: Stripe,
    ) {
        let spi = state.params.spi_in;
        let known = self.replicas.child(spi).is_some_and(|child| *child.params == state.params);
        let sends = !known && !self.resync.fresh().contains(&core.node);
        match known {
            true => {
                self.replicas.set_stripe(stripe.clone());
                self.child_added(core, now, at, state);
            }
            false => self.child_appeared(core, now, state, Some(stripe.clone())),
        }
        if sends {
            self.numbers.sends_with(core, at, stripe);
        }
    }

    /// A Child SA that this node does not know. Its slot may have been reused while this node was
    /// away.
    fn child_appeared(&mut self, core: &mut Core, now: Time, state: ChildState, stripe: Option<Stripe>) {
        self.child_gone(core, now, state.params.spi_in);
        let ledger = Ledger { reserved: state.reserved, log2: state.log2 };
        self.new_child(core, now, state, ledger, stripe);
    }

    fn new_child(
        &mut self,
        core: &mut Core,
        now: Time,
        state: ChildState,
        ledger: Ledger,
        stripe: Option<Stripe>,
    ) {
        let ChildState { ike, connection, name, params, replaces, place, mark, .. } = state;
        let id = core.endpoint.replication_mut().new_child_number();
        core.endpoint.replication_mut().claim_spi(params.spi_in);
        let replaced = replaces.and_then(|spi| self.replicas.child(spi)).map(|child| child.id);
        let replica = ChildReplica {
            id,
            ike,
            connection,
            name,
            params: Box::new(params),
            replaces: replaces.filter(|_| replaced.is_some()),
            place,
            switched: false,
            ledger,
            mark,
            mark_at: now,
            rate: 0,
            measured: (mark, now),
            order: 0,
            stale: false,
            outdated: false,
            spread: stripe.map(|stripe| Box::new(SpreadReplica::new(stripe))),
        };
        let of = self.replicas.ikes.get(&ike).map(|ike| ike.id);
        core.install(of, &replica, replaced);
        self.replicas.insert_child(replica);
    }

    /// The carrier of lanes has stopped, and tells how far it got in them.
    pub(in crate::member) fn lane_tops_told(&mut self, told: &[(Spi, Vec<(Shard, u64)>)]) {
        for (spi, tops) in told {
            let spread = self.replicas.child_mut(*spi).and_then(|child| child.spread.as_mut());
            if let Some(spread) = spread {
                spread.tops.extend(tops.iter().copied());
            }
        }
    }

    pub(in crate::member) fn switched(&mut self, core: &mut Core, from: Spi, to: Spi) {
        let ids = self.replicas.child(from).map(|child| child.id);
        let Some(child) = self.replicas.child_mut(to).filter(|child| !child.switched) else { return };
        child.switched = true;
        let to = child.id;
        match ids {
            // Here too a spread Child SA sends once it has numbers.
            Some(from) => self.numbers.switch(core, &self.replicas, Switch { from, to }),
            None => core.outputs.push_back(MemberOutput::Ike(Output::StartChild { child: to })),
        }
    }

    pub(in crate::member) fn moved(&mut self, core: &mut Core, spi_in: Spi, path: Path) {
        let Some(child) = self.replicas.child_mut(spi_in) else { return };
        (child.params.local, child.params.remote) = (path.local, path.remote);
        let (child, spi_out) = (child.id, child.params.spi_out);
        core.outputs.push_back(MemberOutput::Ike(Output::UpdateChild { child, spi_in, spi_out, path }));
    }

    /// A Child SA is gone. Its SPI rests here as on its owner, so that this node does not reuse it
    /// too soon if it takes the shard over.
    pub(in crate::member) fn child_gone(&mut self, core: &mut Core, now: Time, spi_in: Spi) {
        let Some(child) = self.replicas.remove_child(spi_in) else { return };
        self.numbers.switch_those(core, |switch| switch.from == child.id || switch.to == child.id);
        self.numbers.forget(spi_in);
        core.endpoint.replication_mut().release_spi(now, spi_in);
        core.outputs.push_back(MemberOutput::Ike(Output::RemoveChild { child: child.id, spi_in }));
    }

    /// Removes the SAs that no node has named again.
    pub(in crate::member) fn forget_stale(&mut self, core: &mut Core, now: Time) {
        let (ikes, children) = self.replicas.stale();
        ikes.into_iter().for_each(|spi| self.ike_gone(core, spi));
        children.into_iter().for_each(|spi| self.child_gone(core, now, spi));
    }

    /// Removes Child SAs without an IKE SA: their former owner died between two updates that belong
    /// together.
    pub(in crate::member) fn remove_orphans(&mut self, core: &mut Core, now: Time, shards: ShardSet) {
        let of = |shard| self.replicas.children_of(shard);
        let children = shards.iter().flat_map(of);
        let orphans: Vec<Spi> = children
            .filter(|(_, child)| core.endpoint.ike_of(child.id).is_none())
            .map(|(spi, _)| *spi)
            .collect();
        for spi in orphans {
            self.child_gone(core, now, spi);
            core.publish(vec![Op::ChildDelete { spi }]);
        }
    }
}

#[cfg(test)]
mod tests;
