//! Applying the updates of other nodes, at their positions in the total order.

use super::numbers::marks::ToldMarks;
use super::shards::takeover::Handed;
use super::{Member, MemberOutput};
use crate::group::Position;
use crate::node::NodeId;
use crate::update::{Op, decode};
use testudo_ike::output::{LogLevel, Output, Time};

impl Member {
    /// An update has been delivered.
    pub(super) fn delivered(&mut self, now: Time, from: NodeId, at: Position, update: &[u8]) {
        let Some(ops) = decode(update) else {
            self.core.counters.unread += 1;
            return self.core.log(
                LogLevel::Error,
                format!("cannot decode an update of node {from}: does it run another version of Testudo?"),
            );
        };
        for op in ops {
            // An update that a former owner published before it lost the shard, but that is
            // delivered only now, is void: the new owner has gone on from the common state. A
            // SEG_DROP of an earlier view changes nothing: a node that has joined since may be
            // receiving the shard's state.
            let late = matches!(op, Op::SegDrop { epoch, .. } if epoch != self.core.view.epoch);
            if late || op.shard().is_some_and(|shard| !self.core.may_say(from, shard)) {
                self.core.counters.not_owner += 1;
                if let Op::SegDrop { shard, .. } = op
                    && from == self.core.node
                {
                    self.shards.not_dropped(&mut self.core, &mut self.replication, now, shard);
                }
                continue;
            }
            self.apply(now, from, at, op);
        }
    }

    pub(super) fn apply(&mut self, now: Time, from: NodeId, at: Position, op: Op) {
        match op {
            Op::SegOffer(offer) => {
                return self.shards.offered(&mut self.core, &mut self.replication, now, at, (from, offer));
            }
            Op::SegDrop { shard, to, left, .. } => {
                let handed = Handed { from, shard, to, left };
                return self.shards.dropped(&mut self.core, &mut self.replication, now, at, handed);
            }
            Op::Prefer { shard, preference } => {
                return self.shards.told_preference(
                    &mut self.core,
                    &mut self.replication,
                    now,
                    shard,
                    preference,
                );
            }
            Op::Preferences { epoch, of } => {
                return self.shards.told_preferences(&mut self.core, now, epoch, of);
            }
            Op::Resync { epoch, owners, unfit, drained } => {
                return self.core.told_owners(epoch, &owners, &unfit, &drained);
            }
            Op::Drain { node, drained } => {
                return self.shards.told_drain(
                    &mut self.core,
                    &mut self.replication,
                    now,
                    from,
                    node,
                    drained,
                );
            }
            Op::Fit { fit } => {
                return self.shards.told_fitness(&mut self.core, &mut self.replication, now, from, fit);
            }
            Op::Resynced { epoch } => {
                return self.shards.resynced(&mut self.core, &mut self.replication, now, from, epoch);
            }
            Op::Configure(configure) => {
                let is_joining = !self.replication.resync.fresh().is_empty();
                return self.configuration.configured(&mut self.core, now, from, *configure, is_joining);
            }
            Op::Piece { epoch, name, octets } => {
                return self.configuration.piece_told(&self.core, epoch, name, octets);
            }
            Op::Pieces { epoch } => return self.configuration.pieces_told(&mut self.core, now, epoch),
            Op::Manifest(manifest) => {
                return self.configuration.manifest_told(&self.core, now, from, manifest);
            }
            Op::Ask { job, ask } => {
                return self.asks.asked(
                    &mut self.core,
                    &mut self.replication,
                    &mut self.shards,
                    now,
                    from,
                    job,
                    ask,
                );
            }
            Op::Answer(answer) => return self.core.answered(answer),
            Op::RemoteEvent(remote) => {
                return self.replication.remote_event(&mut self.core, from, remote);
            }
            Op::EngineNodes { nodes } => return self.engine_nodes.told(from, nodes),
            Op::LineRate { rate } => return self.replication.numbers.told_line_rate(&self.core, from, rate),
            _ => {}
        }
        if from == self.core.node {
            // It was applied when it was published.
            if let Op::Ike(ike) = op {
                let (spi, established) = (ike.outline.spi, ike.outline.established);
                self.replication.ike_told(&mut self.core, now, at, spi, established, ike.contact.as_deref());
            }
            return;
        }
        match op {
            Op::Ike(mut ike) => {
                let (spi, established) = (ike.outline.spi, ike.outline.established);
                let contact = ike.contact.take();
                self.replication.ike_added(&mut self.core, now, *ike);
                self.replication.ike_told(&mut self.core, now, at, spi, established, contact.as_deref());
            }
            Op::IkeMidI(change) | Op::IkeMidR(change) | Op::IkeUpdate(change) => {
                self.replication.ike_changed(&mut self.core, &change)
            }
            Op::IkeWanted { spi } => self.replication.ike_wanted(&mut self.core, now, spi),
            Op::IkeDelete { spi } => self.replication.ike_gone(&mut self.core, spi),
            Op::Child(child) => self.replication.child_added(&mut self.core, now, at, *child),
            Op::SpreadChild { child, stripe } => {
                self.replication.spread_child_added(&mut self.core, now, at, *child, stripe)
            }
            Op::Stripe(stripe) => self.replication.numbers.stripe_granted(
                &self.core,
                &mut self.replication.replicas,
                at,
                stripe,
            ),
            Op::LaneTops(tops) => self.replication.lane_tops_told(&tops),
            Op::LaneFloors(floors) => {
                self.replication.numbers.lane_floors_told(&self.replication.replicas, now, &floors)
            }
            Op::ChildProven { spi } => self.replication.proven(&mut self.core, now, spi),
            Op::ChildSwitch { from, to } => self.replication.switched(&mut self.core, from, to),
            Op::ChildStart { spi } => {
                self.replication.started(spi);
                if let Some(child) = self.replication.replicas.child(spi).map(|child| child.id) {
                    self.core.outputs.push_back(MemberOutput::Ike(Output::StartChild { child }));
                }
            }
            Op::ChildUpdate { spi, path } => self.replication.moved(&mut self.core, spi, path),
            Op::ChildDelete { spi } => self.replication.child_gone(&mut self.core, now, spi),
            Op::Renew(grants) => {
                self.replication.numbers.granted(&mut self.core, &mut self.replication.replicas, at, &grants)
            }
            Op::Bump(grants) => {
                self.shards.yield_to_owner(&mut self.core, &mut self.replication, now, grants.shard);
                self.replication.numbers.granted(&mut self.core, &mut self.replication.replicas, at, &grants);
                self.shards.owner_bumped(&mut self.core, grants.shard);
            }
            Op::HighWaterMarks { moved, all_of, epoch } => self.replication.numbers.marks_told(
                &self.core,
                &mut self.replication.replicas,
                now,
                ToldMarks { from, moved: &moved, all_of, epoch },
            ),
            Op::PathMtus(paths) => self.replication.paths.path_mtus_told(&mut self.core, now, &paths),
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
            | Op::RemoteEvent(_)
            | Op::EngineNodes { .. }
            | Op::Prefer { .. }
            | Op::Preferences { .. }
            | Op::LineRate { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests;
