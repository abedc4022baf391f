//! A view that has begun: what this node seals for it, what it opens of it, and what is stable.

use super::bulk::BulkTransfer;
use super::exchange::Outcome;
use super::stability::{Position, Stability};
use crate::engine::View;
use crate::group::core::Core;
use crate::group::datagram::{Ack, Body, MessageName};
use crate::group::frame::{self, Chain, Header, Kind};
use crate::group::keys;
use crate::group::links::Links;
use crate::group::outbox::{Batch, Outbox};
use crate::group::queue::EngineQueue;
use crate::group::status::Topic;
use crate::group::{GroupOutput, Ticket};
use crate::node::NodeId;
use aws_lc_rs::aead::LessSafeKey;
use std::collections::{BTreeMap, VecDeque};
use testudo_ike::output::Time;
use testudo_planted::{Plant, planted};
use zeroize::Zeroizing;

/// At most this many messages are under way. Further ones wait.
pub(in crate::group) const MAX_IN_FLIGHT: u64 = 1 << 14;

/// See the module.
pub(in crate::group) struct Running {
    pub(in crate::group) view: View,
    pub(in crate::group) epoch: u64,
    /// The members that hold the state.
    pub(in crate::group) current: Vec<NodeId>,
    /// No member held the state.
    pub(in crate::group) reset: bool,
    /// The version that all members speak.
    pub(in crate::group) version: u8,
    pub(in crate::group) since: Time,
    /// After how many messages of the view this node was told of the next roster.
    pub(in crate::group) roster_at: u64,
    boots: BTreeMap<NodeId, u64>,
    key: LessSafeKey,
    /// The last message that this node has sealed.
    serial: u64,
    /// The last message of each sender that was opened.
    seen: BTreeMap<NodeId, u64>,
    pub(in crate::group) stability: Stability,
    /// Where updates of this node were delivered that are not stable yet.
    unstable: VecDeque<(u64, Ticket)>,
    pub(in crate::group) bulk: BulkTransfer,
    /// Something was delivered since the last acknowledgement, or there was none.
    unacknowledged: bool,
}

/// A message of a view, before it is opened.
#[derive(Clone, Copy, Debug)]
pub(in crate::group) struct Sealed<'a> {
    pub(in crate::group) from: NodeId,
    pub(in crate::group) header: Header,
    pub(in crate::group) body: &'a [u8],
}

/// What comes of a message whose turn it is.
pub(in crate::group) enum Opened {
    /// It is delivered, with this content.
    Plain(Zeroizing<Vec<u8>>),
    /// What goes beside the engine has not come, or something else in its place.
    NotYet,
    /// It does not count.
    Ignored,
}

impl Running {
    /// `delivered`: this node's last update before the view, if it is among what the view begins
    /// with.
    pub(in crate::group) fn new(
        core: &Core,
        now: Time,
        outcome: &Outcome,
        delivered: Option<Ticket>,
    ) -> Self {
        let Outcome { view, epoch, current, .. } = outcome;
        let chain = Chain::begin(view.ring, *epoch, &view.members, current);
        let others = view.members.iter().copied().filter(|node| *node != core.node());
        Self {
            view: view.clone(),
            epoch: *epoch,
            current: current.clone(),
            reset: outcome.reset,
            version: outcome.version(),
            since: now,
            roster_at: 0,
            boots: outcome.boots.iter().copied().collect(),
            key: keys::group(&core.config.key, view.ring, &outcome.randoms),
            serial: 0,
            seen: BTreeMap::new(),
            stability: Stability::new(chain, others),
            // The members that hold the state have had the same messages. These are stable once the
            // view has begun everywhere. Until then the next view may come together without any of
            // these members.
            unstable: delivered.map(|ticket| (0, ticket)).into_iter().collect(),
            bulk: BulkTransfer::new(core.node(), &outcome.fresh, outcome.version()),
            unacknowledged: true,
        }
    }

    /// What has been delivered here.
    pub(in crate::group) fn delivered(&self) -> Position {
        Position { epoch: self.epoch, count: self.stability.count() }
    }

    /// What this node holds of the view.
    pub(in crate::group) fn ack(&self) -> Ack {
        let digest = self.stability.chain().short();
        Ack { ring: self.view.ring, epoch: self.epoch, count: self.stability.count(), digest }
    }

    /// True if this is the node as the exchange has shown it, and not as it was before a restart.
    pub(in crate::group) fn knows(&self, node: NodeId, boot: u64) -> bool {
        self.boots.get(&node) == Some(&boot)
    }

    /// Seals the closed batches for the engine, as many as may be under way.
    pub(in crate::group) fn send(
        &mut self,
        core: &mut Core,
        outbox: &mut Outbox,
        queue: &mut EngineQueue,
        links: Links,
    ) {
        let unstable = self.stability.count() - self.stability.stable();
        let room = MAX_IN_FLIGHT.saturating_sub(unstable).saturating_sub(outbox.in_flight() as u64);
        let mut beside = Vec::new();
        for _ in 0..room {
            let Some(batch) = outbox.send(self.serial + 1) else { break };
            self.serial += 1;
            let (header, sealed) = self.seal(core.node(), batch);
            if header.kind == Kind::Bulk {
                let (by_engine, rest) = frame::split(&self.key, core.node(), sealed);
                queue.push(by_engine);
                beside.push((header, rest));
            } else {
                queue.push(sealed);
            }
        }
        for (header, rest) in beside {
            self.bulk.send(core, links, &header, rest);
        }
    }

    fn seal(&self, node: NodeId, batch: &Batch) -> (Header, Vec<u8>) {
        let bulk = batch.bulk && self.bulk.takes(batch.plain.len());
        let kind = if bulk { Kind::Bulk } else { Kind::Batch };
        let header = Header { kind, ring: self.view.ring, epoch: self.epoch, serial: self.serial };
        (header, frame::seal(&self.key, node, &header, &[], &batch.plain))
    }

    /// Opens a message whose turn has come, and counts it. What does not count is logged or
    /// counted.
    pub(in crate::group) fn take(&mut self, core: &mut Core, now: Time, message: &Sealed<'_>) -> Opened {
        let Sealed { from, header, body } = *message;
        if header.epoch != self.epoch {
            core.counters.old_ring += 1;
            return Opened::Ignored;
        }
        if !self.is_to_come(from, header.serial) {
            core.counters.replayed += 1;
            return Opened::Ignored;
        }
        let opened = self.open(message);
        match &opened {
            Opened::Plain(_) => {
                self.seen.insert(from, header.serial);
                self.bulk.passed(from, header.serial);
                let tag = body.get(body.len().saturating_sub(frame::TAG_OCTETS)..).unwrap_or_default();
                self.stability.delivered(self.stability.chain().next(from, &header, tag));
                self.unacknowledged = true;
                core.counters.delivered += 1;
            }
            Opened::NotYet => {}
            Opened::Ignored => {
                core.counters.unopened += 1;
                let line = format!("a message of node {from} cannot be opened, and is ignored");
                core.log_limited(now, Topic::Forged, line);
            }
        }
        opened
    }

    /// A message that this node has not sealed for this view, or not with this key, is ignored.
    fn open(&mut self, message: &Sealed<'_>) -> Opened {
        let Sealed { from, header, body } = *message;
        if header.kind != Kind::Bulk {
            return frame::open(&self.key, from, &header, &[], body).map_or(Opened::Ignored, Opened::Plain);
        }
        let proven = frame::proven(&self.key, from, &header, body).filter(|_| self.bulk.is_used());
        let Some(tag) = proven else { return Opened::Ignored };
        if !self.bulk.wanted() {
            // It says what this node knows.
            return Opened::Plain(Zeroizing::default());
        }
        match self.bulk.take(from, header.serial) {
            Some(rest) => {
                let opened = frame::open(&self.key, from, &header, &[], &[&rest, tag].concat());
                // These are other octets than belong there. The right ones are asked for.
                opened.map_or(Opened::NotYet, Opened::Plain)
            }
            None if planted(Plant::RestNotAwaited) => Opened::Plain(Zeroizing::default()),
            None => Opened::NotYet,
        }
    }

    /// True if no message of that node with this serial, or a later one, has been opened.
    pub(in crate::group) fn is_to_come(&self, from: NodeId, serial: u64) -> bool {
        self.seen.get(&from).is_none_or(|last| *last < serial)
    }

    /// Asks for the rests that have not come.
    pub(in crate::group) fn ask_for_rests(&mut self, core: &mut Core, links: Links, now: Time) {
        for (from, serial) in self.bulk.missing(now) {
            core.send(&[from], links.up(), &Body::Missing(from, self.name(serial)));
        }
    }

    /// Sends rests by the engine that others may have asked for in vain.
    pub(in crate::group) fn send_rests_unasked(&mut self, queue: &mut EngineQueue, now: Time) {
        for serial in self.bulk.overdue(&self.stability, now) {
            self.bulk.send_unasked(queue, now, self.name(serial));
        }
    }

    fn name(&self, serial: u64) -> MessageName {
        MessageName { ring: self.view.ring, epoch: self.epoch, serial }
    }

    /// A message of this node has been delivered here, and `ticket` is the last update in it.
    pub(in crate::group) fn own_delivered(&mut self, now: Time, serial: u64, ticket: Ticket) {
        let count = self.stability.count();
        self.unstable.push_back((count, ticket));
        self.bulk.delivered(now, serial, count);
    }

    /// Acknowledges what was delivered, if that is not done yet.
    pub(in crate::group) fn acknowledge(&mut self, core: &mut Core, links: Links) {
        if std::mem::take(&mut self.unacknowledged) {
            let others: Vec<NodeId> =
                self.view.members.iter().copied().filter(|node| *node != core.node()).collect();
            core.send(&others, links.up().take(1), &Body::Ack(self.ack()));
        }
    }

    /// A member says what it holds. Acknowledgements are cumulative: a repeated one says nothing
    /// new.
    pub(in crate::group) fn acknowledged(&mut self, from: NodeId, boot: u64, ack: &Ack) {
        if self.knows(from, boot) && (ack.ring, ack.epoch) == (self.view.ring, self.epoch) {
            self.stability.acknowledge(from, ack.count, ack.digest);
        }
    }

    /// Tells the layer above what has become stable.
    pub(in crate::group) fn settle(&mut self, core: &mut Core) {
        if !self.stability.advance() {
            return;
        }
        let (epoch, count) = (self.epoch, self.stability.stable());
        self.bulk.stable(count);
        let mut last = None;
        while let Some((at, ticket)) = self.unstable.front().copied()
            && at <= count
        {
            last = Some(ticket);
            self.unstable.pop_front();
        }
        core.outputs.extend(last.map(GroupOutput::Stable));
        core.outputs.push_back(GroupOutput::StableUpTo(Position { epoch, count }));
    }
}
