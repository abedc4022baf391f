//! What others say is done here, at its place in the total order.

use super::blocks::{Ledger, standbys};
use super::replicas::{ChildReplica, IkeReplica};
use super::{Member, MemberOutput};
use crate::group::Position;
use crate::node::NodeId;
use crate::update::{ChildState, Grant, IkeState, Op, decode};
use testudo_ike::message::IkeSpi;
use testudo_ike::output::{LogLevel, Output, Path, Time};
use testudo_ipsec::spi::{Shard, Spi};

impl Member {
    /// An update has been delivered.
    pub(super) fn delivered(&mut self, now: Time, from: NodeId, at: Position, update: &[u8]) {
        let Some(ops) = decode(update) else {
            self.counters.unread += 1;
            return self.log(
                LogLevel::Error,
                format!("an update of node {from} cannot be read: another version of Testudo?"),
            );
        };
        for op in ops {
            // What an owner has said of its shard before it lost it, and what came only now, is void: another has gone on
            // from what all had.
            // What was given up in an earlier view stays: a node that has come since may be in the middle of being told of it.
            let late = matches!(op, Op::SegDrop { epoch, .. } if epoch != self.epoch);
            if late || op.shard().is_some_and(|shard| !self.may_say(from, shard)) {
                self.counters.not_owner += 1;
                if let Op::SegDrop { shard, .. } = op
                    && from == self.node
                {
                    self.not_dropped(now, shard);
                }
                continue;
            }
            self.apply(now, from, at, op);
        }
    }

    /// True for the owner of the shard. A fresh node that has not heard who owns what believes those who hold the state: they know.
    pub(super) fn may_say(&self, from: NodeId, shard: Shard) -> bool {
        match &self.unheard_of {
            Some(_) => self.table.synced().contains(&from),
            None => self.table.owner(shard) == Some(from),
        }
    }

    pub(super) fn apply(&mut self, now: Time, from: NodeId, at: Position, op: Op) {
        match op {
            Op::SegOffer(offer) => return self.offered(now, from, offer),
            Op::SegDrop { shard, to, left, .. } => return self.dropped(now, from, at, (shard, to), left),
            Op::Resync { epoch, owners, unfit, drained } => {
                return self.told_owners(epoch, &owners, (&unfit, &drained));
            }
            Op::Drain { node, drained } => return self.told_drain(now, from, (node, drained)),
            Op::Fit { fit } => return self.told_fitness(now, from, fit),
            Op::Resynced { epoch } => return self.resynced(now, from, epoch),
            Op::Configure(configure) => return self.configured(now, from, *configure),
            Op::Piece { epoch, name, octets } => return self.piece_told(epoch, name, octets),
            Op::Pieces { epoch } => return self.pieces_told(now, epoch),
            Op::Manifest(manifest) => return self.manifest_told(now, from, manifest),
            Op::Ask { job, ask } => return self.asked(now, from, job, ask),
            Op::Answer(answer) => return self.answered(answer),
            Op::Happened(happening) => return self.happened(from, happening),
            Op::LineRate { rate } => return self.told_line_rate(from, rate),
            _ => {}
        }
        if from == self.node {
            // It was done when it was said.
            if let Op::Ike(ike) = op {
                let of = (ike.outline.spi, ike.outline.established);
                self.ike_told(now, at, of, ike.contact.as_deref());
            }
            return;
        }
        match op {
            Op::Ike(mut ike) => {
                let (of, contact) = ((ike.outline.spi, ike.outline.established), ike.contact.take());
                self.ike_added(now, *ike);
                self.ike_told(now, at, of, contact.as_deref());
            }
            Op::IkeMidI(change) | Op::IkeMidR(change) | Op::IkeUpdate(change) => self.ike_changed(&change),
            Op::IkeWanted { spi } => self.ike_wanted(now, spi),
            Op::IkeDelete { spi } => self.ike_gone(spi),
            Op::Child(child) => self.child_added(now, at, *child),
            Op::ChildSwitch { from, to } => self.switched(from, to),
            Op::ChildStart { spi } => {
                self.started(spi);
                if let Some(child) = self.replicas.child(spi).map(|child| child.id) {
                    self.outputs.push_back(MemberOutput::Ike(Output::StartChild { child }));
                }
            }
            Op::ChildUpdate { spi, path } => self.moved(spi, path),
            Op::ChildDelete { spi } => self.child_gone(now, spi),
            Op::Renew(grants) => self.granted(at, &grants),
            Op::Bump(grants) => {
                self.yield_to_owner(now, grants.shard);
                self.granted(at, &grants);
                self.owner_bumped(grants.shard);
            }
            Op::Edges { moved, all_of, epoch } => self.edges_told(now, from, &moved, (all_of, epoch)),
            Op::PathMtus(paths) => self.path_mtus_told(now, &paths),
            Op::SegOffer(_)
            | Op::SegDrop { .. }
            | Op::Fit { .. }
            | Op::Drain { .. }
            | Op::Resync { .. }
            | Op::Resynced { .. }
            | Op::Configure(_)
            | Op::Piece { .. }
            | Op::Pieces { .. }
            | Op::Manifest(_)
            | Op::Ask { .. }
            | Op::Answer(_)
            | Op::Happened(_)
            | Op::LineRate { .. } => {}
        }
    }

    pub(super) fn ike_added(&mut self, now: Time, ike: IkeState) {
        let IkeState { outline, age, state, .. } = ike;
        let spi = outline.spi;
        self.wanted.remove(&spi);
        let old = self.replicas.ikes.get(&spi);
        let known = old.map(|old| (old.id, old.outline.leases.clone()));
        let (id, before) = known.unwrap_or_else(|| (self.endpoint.new_ike_number(), Vec::new()));
        for (pool, addr) in before.iter().filter(|lease| !outline.leases.contains(lease)) {
            self.endpoint.drop_lease(id, pool, *addr);
        }
        for (pool, addr) in &outline.leases {
            if !self.endpoint.hold_lease(id, &outline, pool, *addr) {
                self.log(
                    LogLevel::Error,
                    format!("virtual IP {addr} has been leased to two peers, by two nodes"),
                );
            }
        }
        let came = Time(now.0.saturating_sub(age));
        let told = Some((came, state));
        self.replicas.insert_ike(spi, IkeReplica::new(id, outline, told, None));
    }

    pub(super) fn ike_gone(&mut self, spi: IkeSpi) {
        self.wanted.remove(&spi);
        let Some(ike) = self.replicas.remove_ike(spi) else { return };
        for (pool, addr) in &ike.outline.leases {
            self.endpoint.drop_lease(ike.id, pool, *addr);
        }
    }

    fn child_added(&mut self, now: Time, at: Position, state: ChildState) {
        let spi = state.params.spi_in;
        let ledger = Ledger { reserved: state.reserved, log2: state.log2 };
        let granted = state.standby == Some(self.node);
        match self.replicas.child_mut(spi).filter(|child| *child.params == state.params) {
            // Said again to all because somebody was not there.
            Some(child) => {
                child.ledger.reserved = child.ledger.reserved.max(ledger.reserved);
                child.ledger.log2 = ledger.log2;
                child.edge = child.edge.max(state.edge);
                (child.ike, child.replaces, child.stale) = (state.ike, state.replaces, false);
            }
            None => {
                // While this node was away its slot has come round again.
                self.child_gone(now, spi);
                self.new_child(now, state, ledger);
            }
        }
        if granted && let Some(start) = ledger.reserved.checked_sub(2 << ledger.log2.min(32)) {
            self.standby_blocks.push_back((at, spi, standbys(Grant { spi, start, log2: ledger.log2 })));
        }
    }

    fn new_child(&mut self, now: Time, state: ChildState, ledger: Ledger) {
        let ChildState { ike, connection, name, params, replaces, place, edge, .. } = state;
        let id = self.endpoint.new_child_number();
        self.endpoint.claim_spi(params.spi_in);
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
            edge,
            edge_at: now,
            rate: 0,
            measured: (edge, now),
            order: 0,
            stale: false,
            outdated: false,
        };
        let of = self.replicas.ikes.get(&ike).map(|ike| ike.id);
        self.install(of, &replica, replaced);
        self.replicas.insert_child(replica);
    }

    fn switched(&mut self, from: Spi, to: Spi) {
        let ids = self.replicas.child(from).map(|child| child.id);
        let Some(child) = self.replicas.child_mut(to).filter(|child| !child.switched) else { return };
        child.switched = true;
        let to = child.id;
        match ids {
            Some(from) => self.outputs.push_back(MemberOutput::Ike(Output::SwitchChild { from, to })),
            None => self.outputs.push_back(MemberOutput::Ike(Output::StartChild { child: to })),
        }
    }

    fn moved(&mut self, spi_in: Spi, path: Path) {
        let Some(child) = self.replicas.child_mut(spi_in) else { return };
        (child.params.local, child.params.remote) = (path.local, path.remote);
        let (child, spi_out) = (child.id, child.params.spi_out);
        self.outputs.push_back(MemberOutput::Ike(Output::UpdateChild { child, spi_in, spi_out, path }));
    }

    /// Its SPI rests here as it does there: a node that takes the shard over does not give it out again too soon.
    pub(super) fn child_gone(&mut self, now: Time, spi_in: Spi) {
        let Some(child) = self.replicas.remove_child(spi_in) else { return };
        self.switch_those(|_, switch| switch.from == child.id || switch.to == child.id);
        self.own_blocks.forget(spi_in);
        self.endpoint.release_spi(now, spi_in);
        self.outputs.push_back(MemberOutput::Ike(Output::RemoveChild { child: child.id, spi_in }));
    }
}
