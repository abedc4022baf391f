//! What brings fresh nodes up to date goes beside the engine, to them alone: there is much of it,
//! and it says nothing new to the others. The engine tells its place in the order, by the header
//! and the tag of what is sealed, with a proof of both; the rest comes as a datagram. A fresh node
//! takes in nothing behind such a place before it has that, and what the datagrams lose comes by
//! the engine after all: when it is asked for, or when a fresh node has not acknowledged it for
//! long.

use super::datagram::{Body, MessageName, Sender};
use super::frame::{self, Frame, Header, Kind};
use super::view::{Running, Stage};
use super::{Group, Ticket};
use crate::node::NodeId;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use testudo_ike::output::Time;
use zeroize::Zeroizing;

/// The first version of what is published whose speakers know of it.
const BULK_SINCE_VERSION: u8 = 17;
/// What is longer does not fit into a datagram.
const MAX_REST_OCTETS: usize = 60_000;
/// Rests are asked for when the first that is needed has not come for so long, and again.
const REST_TIMEOUT: Duration = Duration::from_millis(10);
/// So many in one go.
const MAX_ASKED_AT_ONCE: usize = 128;
/// Who is asked again meanwhile has sent it.
const RESEND_INTERVAL: Duration = Duration::from_millis(100);
/// What a fresh node has not acknowledged so long after its delivery goes by the engine unasked,
/// some at a time: perhaps no question gets through.
const UNASKED_AFTER: Duration = Duration::from_millis(300);
const MAX_UNASKED_AT_ONCE: usize = 8;
/// Where so many were missing, and one of so many, datagrams of that size do not pass: the engine
/// does it all.
const MIN_MISSING: usize = 8;
const TOLD_PER_MISSING: usize = 64;
/// Octets of rests whose place has not come. Nodes have a megabyte or two under way.
const MAX_KEPT_OCTETS: usize = 32 << 20;
/// Rests that are kept for a view that has begun elsewhere: its owners begin with one chunk each.
const MAX_EARLY_RESTS: usize = 64;
/// What has waited is taken in by and by, so that heartbeats do not wait for all: so many messages,
/// or a quarter of as many with a rest.
const MESSAGES_PER_TURN: usize = 16;

/// A rest that came before its view: whose, which, and what.
pub(super) type Early = (NodeId, MessageName, Vec<u8>);

/// Of one view.
pub(super) struct BulkTransfer {
    /// Who needs it.
    fresh: Vec<NodeId>,
    /// This node is one of them.
    wanted: bool,
    all_know: bool,
    /// The rests of this node's messages that somebody may need yet.
    sent: VecDeque<SentRest>,
    /// How many there were, and how many of them have gone by the engine after all.
    told: usize,
    missing: usize,
    /// Rests whose place has not come.
    came: BTreeMap<(NodeId, u64), Vec<u8>>,
    octets: usize,
    /// Messages of the view from the first on whose rest has not come.
    waiting: VecDeque<(NodeId, Vec<u8>)>,
    /// When what is missing in them is asked for; and that the first of them can be taken in.
    ask: Option<Time>,
    goes_on: bool,
}

struct SentRest {
    serial: u64,
    octets: Vec<u8>,
    /// Messages that were delivered with it, and when.
    delivered: Option<(u64, Time)>,
    /// When it was sent by the engine.
    again: Option<Time>,
}

impl BulkTransfer {
    pub(super) fn new(node: NodeId, fresh: &[NodeId], version: u8) -> Self {
        Self {
            fresh: fresh.to_vec(),
            wanted: fresh.contains(&node),
            all_know: version >= BULK_SINCE_VERSION,
            sent: VecDeque::new(),
            told: 0,
            missing: 0,
            came: BTreeMap::new(),
            octets: 0,
            waiting: VecDeque::new(),
            ask: None,
            goes_on: false,
        }
    }

    /// In this view something may go beside the engine.
    pub(super) fn is_used(&self) -> bool {
        self.all_know && !self.fresh.is_empty()
    }

    /// Datagrams of that size pass, as far as is known.
    fn passes(&self) -> bool {
        self.missing < MIN_MISSING.max(self.told / TOLD_PER_MISSING)
    }

    /// True if so many octets of this node's may go beside the engine.
    pub(super) fn takes(&self, octets: usize) -> bool {
        self.is_used() && self.passes() && octets <= MAX_REST_OCTETS
    }

    /// True for who takes in what is said there.
    pub(super) fn wanted(&self) -> bool {
        self.wanted
    }

    /// The rest of a message, if it has come.
    pub(super) fn take(&mut self, from: NodeId, serial: u64) -> Option<Vec<u8>> {
        let rest = self.came.remove(&(from, serial))?;
        self.octets -= rest.len();
        Some(rest)
    }

    /// What the first that waits needs is always kept: nothing else would make room.
    fn keep(&mut self, from: NodeId, serial: u64, rest: Vec<u8>) {
        let is_needed = self.needed().next() == Some((from, serial));
        let fits = self.octets + rest.len() <= MAX_KEPT_OCTETS || is_needed;
        if self.wanted && fits && !self.came.contains_key(&(from, serial)) {
            self.octets += rest.len();
            self.came.insert((from, serial), rest);
            self.goes_on |= is_needed;
        }
    }

    /// A node's message has been taken in: what came for earlier ones is of no use.
    pub(super) fn passed(&mut self, from: NodeId, serial: u64) {
        while let Some((first, _)) = self.came.range((from, 0)..=(from, serial)).next() {
            let (_, serial) = *first;
            self.take(from, serial);
        }
    }

    /// What the messages that wait need, in their order.
    fn needed(&self) -> impl Iterator<Item = (NodeId, u64)> + '_ {
        self.waiting.iter().filter_map(|(from, bytes)| Some((*from, needs(bytes)?)))
    }

    /// A message of this node has been delivered here, as so manieth.
    pub(super) fn delivered(&mut self, now: Time, serial: u64, count: u64) {
        if let Some(sent) = self.sent.iter_mut().find(|sent| sent.serial == serial) {
            sent.delivered = Some((count, now));
        }
    }

    /// All have so many messages.
    pub(super) fn stable(&mut self, count: u64) {
        self.sent.retain(|sent| sent.delivered.is_none_or(|(at, _)| at > count));
    }

    /// The rest of a message of this node, to go by the engine.
    fn again(&mut self, now: Time, serial: u64, every: Duration) -> Option<&[u8]> {
        let sent = self.sent.iter_mut().find(|sent| sent.serial == serial)?;
        if sent.again.is_some_and(|at| now.since(at) < every) {
            return None;
        }
        self.missing += usize::from(sent.again.is_none());
        sent.again = Some(now);
        Some(&sent.octets)
    }

    /// The oldest that have been delivered for long, with the count of messages that it takes to
    /// have them.
    fn overdue(&self, now: Time) -> impl Iterator<Item = (u64, u64)> + '_ {
        let overdue = move |sent: &SentRest| {
            let (count, at) = sent.delivered?;
            (now.since(at) >= UNASKED_AFTER).then_some((sent.serial, count))
        };
        self.sent.iter().filter_map(overdue).take(MAX_UNASKED_AT_ONCE)
    }

    pub(super) fn next_timeout(&self) -> Option<Time> {
        if self.goes_on { Some(Time::default()) } else { self.ask }
    }
}

impl Group {
    /// Adds an update that says nothing new to those who hold the state: it is for the fresh nodes
    /// of the view, and to others it is not delivered if all members speak a version that knows of
    /// that.
    pub fn publish_bulk(&mut self, update: Vec<u8>) -> Ticket {
        self.outbox.publish_bulk(&Zeroizing::new(update))
    }

    /// True if such updates go beside the engine.
    pub fn sends_bulk_directly(&self) -> bool {
        matches!(&self.stage, Stage::Running(running) if running.bulk.takes(0))
    }

    /// Sends the rest of a message beside the engine.
    pub(super) fn send_bulk(&mut self, header: &Header, rest: Vec<u8>) {
        let Stage::Running(running) = &mut self.stage else { return };
        let fresh = running.bulk.fresh.clone();
        let body = Body::Rest(name_of(header), rest);
        self.core.send(&fresh, self.links.up().take(1), &body);
        if let (Body::Rest(_, octets), Stage::Running(running)) = (body, &mut self.stage) {
            running.bulk.told += 1;
            running.bulk.sent.push_back(SentRest {
                serial: header.serial,
                octets,
                delivered: None,
                again: None,
            });
        }
    }

    /// The engine has delivered a message: its turn comes when that of all before it has come.
    pub(super) fn in_turn(&mut self, now: Time, from: NodeId, bytes: Vec<u8>) {
        if let Frame::This(header, rest) = frame::parse(&bytes) {
            if header.kind == Kind::Rest {
                return self.rest_by_engine(now, from, &name_of(&header), rest.to_vec());
            }
            if let Stage::Running(running) = &mut self.stage
                && running.view.ring == header.ring
                && !running.bulk.waiting.is_empty()
            {
                return running.bulk.waiting.push_back((from, bytes));
            }
        }
        if !self.message(now, from, &bytes)
            && let Stage::Running(running) = &mut self.stage
        {
            running.bulk.waiting.push_back((from, bytes));
            running.bulk.ask = Some(now.plus(REST_TIMEOUT));
        }
    }

    /// The rest of a message comes by the engine, behind its place. Nobody has vouched for it yet:
    /// it takes no other's room.
    fn rest_by_engine(&mut self, now: Time, from: NodeId, of: &MessageName, rest: Vec<u8>) {
        let Some(running) = self.running_at(of) else { return };
        let bulk = &mut running.bulk;
        if bulk.needed().any(|needed| needed == (from, of.serial)) {
            bulk.take(from, of.serial);
            bulk.keep(from, of.serial, rest);
            self.go_on(now);
        }
    }

    /// The rest of a message has come as a datagram.
    pub(super) fn rest_came(&mut self, now: Time, from: NodeId, of: MessageName, rest: Vec<u8>) {
        match self.running_at(&of) {
            Some(running) if running.view.members.contains(&from) && running.is_to_come(from, of.serial) => {
                running.bulk.keep(from, of.serial, rest);
                self.go_on(now);
            }
            Some(_) => {}
            None => {
                let forming =
                    matches!(&self.stage, Stage::Forming(exchange) if exchange.view.ring == of.ring);
                if forming && self.early.len() < MAX_EARLY_RESTS {
                    self.early.push((from, of, rest));
                }
            }
        }
    }

    /// The view has begun: takes what came for it before.
    pub(super) fn take_early(&mut self) {
        for (from, of, rest) in std::mem::take(&mut self.early) {
            if let Some(running) = self.running_at(&of).filter(|running| running.view.members.contains(&from))
            {
                running.bulk.keep(from, of.serial, rest);
            }
        }
    }

    /// The view is over, and what was delivered in it to all who go on together counts: takes in
    /// all that there is all of.
    pub(super) fn go_on_to_the_end(&mut self, now: Time) {
        while matches!(&self.stage, Stage::Running(running) if running.bulk.goes_on) {
            self.go_on(now);
        }
    }

    /// Takes in what has waited, as far as there is all of it, and not too much in one go.
    fn go_on(&mut self, now: Time) {
        let mut room = MESSAGES_PER_TURN;
        while room > 0 {
            let Stage::Running(running) = &mut self.stage else { return };
            if !running.bulk.goes_on {
                return;
            }
            let Some((from, bytes)) = running.bulk.waiting.pop_front() else {
                running.bulk.goes_on = false;
                return;
            };
            room = room.saturating_sub(if needs(&bytes).is_some() { 4 } else { 1 });
            let taken = self.message(now, from, &bytes);
            let Stage::Running(running) = &mut self.stage else { return };
            let bulk = &mut running.bulk;
            if taken {
                bulk.goes_on = !bulk.waiting.is_empty();
            } else {
                bulk.waiting.push_front((from, bytes));
                bulk.goes_on = false;
            }
            bulk.ask = (!bulk.waiting.is_empty()).then(|| now.plus(REST_TIMEOUT));
        }
    }

    /// Goes on with what waits, asks for what has not come, and sends what others may have asked
    /// for in vain.
    pub(super) fn look_after_rests(&mut self, now: Time) {
        self.go_on(now);
        let Stage::Running(running) = &mut self.stage else { return };
        let (bulk, stability) = (&running.bulk, &running.stability);
        let least = bulk.fresh.iter().filter_map(|node| stability.acked(*node)).min().unwrap_or(u64::MAX);
        let overdue = bulk.overdue(now).filter(|(_, count)| *count > least).map(|(serial, _)| serial);
        let overdue: Vec<u64> = overdue.collect();
        let (ring, epoch) = (running.view.ring, running.epoch);
        let mut missing = Vec::new();
        if running.bulk.ask.is_some_and(|at| at <= now) {
            running.bulk.ask = Some(now.plus(REST_TIMEOUT));
            let came = &running.bulk.came;
            missing.extend(running.bulk.needed().filter(|of| !came.contains_key(of)).take(MAX_ASKED_AT_ONCE));
        }
        for (from, serial) in missing {
            let body = Body::Missing(from, MessageName { ring, epoch, serial });
            self.core.send(&[from], self.links.up(), &body);
        }
        for serial in overdue {
            self.send_by_engine(now, MessageName { ring, epoch, serial }, UNASKED_AFTER);
        }
    }

    /// A fresh node has not got what was sent beside the engine: now it goes by the engine.
    pub(super) fn rest_missing(&mut self, now: Time, from: Sender, of: &MessageName) {
        let known = self.running_at(of).is_some_and(|it| it.boots.get(&from.node) == Some(&from.boot));
        if known {
            self.send_by_engine(now, *of, RESEND_INTERVAL);
        }
    }

    fn send_by_engine(&mut self, now: Time, of: MessageName, every: Duration) {
        // An engine that is busy has what it was given before.
        if self.queue.is_busy() {
            return;
        }
        let Some(running) = self.running_at(&of) else { return };
        let header = Header { kind: Kind::Rest, ring: of.ring, epoch: of.epoch, serial: of.serial };
        if let Some(octets) = running.bulk.again(now, of.serial, every) {
            let message = frame::rest(&header, octets);
            self.queue.push(message);
        }
    }

    fn running_at(&mut self, of: &MessageName) -> Option<&mut Running> {
        match &mut self.stage {
            Stage::Running(running) if (running.view.ring, running.epoch) == (of.ring, of.epoch) => {
                Some(running)
            }
            _ => None,
        }
    }
}

/// The serial of a message whose rest comes beside the engine.
fn needs(bytes: &[u8]) -> Option<u64> {
    match frame::parse(bytes) {
        Frame::This(header, _) if header.kind == Kind::Bulk => Some(header.serial),
        _ => None,
    }
}

fn name_of(header: &Header) -> MessageName {
    MessageName { ring: header.ring, epoch: header.epoch, serial: header.serial }
}
