//! What leaves: batches to the engine, acknowledgements to the members; and what follows from those
//! that come.

use super::datagram::{Ack, Body};
use super::frame::{self, Header, Kind};
use super::stability::Position;
use super::view::Stage;
use super::{Group, GroupOutput};
use crate::node::NodeId;
use testudo_ike::output::Time;

/// So many messages are under way at most; further ones wait.
const MAX_IN_FLIGHT: u64 = 1 << 14;

impl Group {
    /// The host's turn ends: the open batch goes out, and what was delivered is acknowledged.
    pub fn flush(&mut self, _now: Time) {
        self.outbox.close();
        let Stage::Running(running) = &mut self.stage else {
            return;
        };
        let unstable = running.stability.count() - running.stability.stable();
        let room = MAX_IN_FLIGHT.saturating_sub(unstable).saturating_sub(self.outbox.in_flight() as u64);
        let mut beside = Vec::new();
        for _ in 0..room {
            running.serial += 1;
            let serial = running.serial;
            let Some(batch) = self.outbox.send(serial) else {
                running.serial -= 1;
                break;
            };
            let bulk = batch.bulk && running.bulk.takes(batch.plain.len());
            let kind = if bulk { Kind::Bulk } else { Kind::Batch };
            let header = Header { kind, ring: running.view.ring, epoch: running.epoch, serial };
            let sealed = frame::seal(&running.key, self.core.node(), &header, &[], &batch.plain);
            if bulk {
                let (by_engine, rest) = frame::split(&running.key, self.core.node(), sealed);
                self.queue.push(by_engine);
                beside.push((header, rest));
            } else {
                self.queue.push(sealed);
            }
        }
        beside.into_iter().for_each(|(header, rest)| self.send_bulk(&header, rest));
        if self.unacknowledged && self.is_on_disk() {
            self.unacknowledged = false;
            self.acknowledge();
        }
    }

    /// The engine did not take what [`GroupOutput::Multicast`] gave: it is kept, and offered again
    /// soon.
    pub fn multicast_refused(&mut self, now: Time, bytes: Vec<u8>) {
        self.core.counters.refused += 1;
        let ours = |frame: frame::Frame<'_>| match (frame, self.stage.view()) {
            (frame::Frame::This(header, _), Some(view)) => header.ring == view.ring,
            _ => false,
        };
        // What belongs to a view that is over is sealed anew from the outbox.
        if ours(frame::parse(&bytes)) {
            self.queue.refused(now, bytes);
        }
    }

    /// The engine takes messages again.
    pub fn multicast_ready(&mut self) {
        self.queue.ready();
    }

    /// True once the disk knows that the view has begun here. A node that acknowledged something
    /// and then forgot even that it was there would let others go on without it.
    fn is_on_disk(&self) -> bool {
        matches!(&self.stage, Stage::Running(running) if running.epoch <= self.on_disk)
    }

    /// What this node holds of the view.
    pub(super) fn ack(&self) -> Option<Ack> {
        let Stage::Running(running) = &self.stage else {
            return None;
        };
        if !self.is_on_disk() {
            return None;
        }
        let (ring, epoch) = (running.view.ring, running.epoch);
        let digest = running.stability.chain().short();
        Some(Ack { ring, epoch, count: running.stability.count(), digest })
    }

    fn acknowledge(&mut self) {
        let (Some(ack), Stage::Running(running)) = (self.ack(), &self.stage) else {
            return;
        };
        let members = running.view.members.iter().copied();
        let others: Vec<NodeId> = members.filter(|node| *node != self.core.node()).collect();
        self.core.send(&others, self.links.up().take(1), &Body::Ack(ack));
    }

    /// A member has told what it holds. Acknowledgements are cumulative: one that is repeated says
    /// nothing new.
    pub(super) fn acknowledged(&mut self, from: NodeId, boot: u64, ack: &Ack) {
        let Stage::Running(running) = &mut self.stage else {
            return;
        };
        let known = running.boots.get(&from) == Some(&boot);
        if known && (ack.ring, ack.epoch) == (running.view.ring, running.epoch) {
            running.stability.acknowledge(from, ack.count, ack.digest);
        }
    }

    /// Tells what has become stable, and what follows from it.
    pub(super) fn settle(&mut self) {
        if !self.is_on_disk() {
            return;
        }
        let Stage::Running(running) = &mut self.stage else {
            return;
        };
        if running.stability.advance() {
            let (epoch, count) = (running.epoch, running.stability.stable());
            running.bulk.stable(count);
            let mut last = None;
            while let Some((at, ticket)) = running.unstable.front().copied()
                && at <= count
            {
                last = Some(ticket);
                running.unstable.pop_front();
            }
            self.core.outputs.extend(last.map(GroupOutput::Stable));
            self.core.outputs.push_back(GroupOutput::StableUpTo(Position { epoch, count }));
        }
        let stability = &running.stability;
        let granted = self.leases.grant(self.core.config.majority(), |count| stability.holders(count));
        if let Some(sender) = granted {
            self.core.outputs.push_back(GroupOutput::Sender(sender));
            self.lease(false);
        }
    }
}
