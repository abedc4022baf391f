//! What brings fresh nodes up to date goes beside the engine, to them alone: there is much of it, and it says nothing new to the others.
//! The engine tells its place in the order, by the header and the tag of what is sealed, with a proof of both; the rest comes as a datagram.
//! A fresh node takes in nothing behind such a place before it has that, and what the datagrams lose comes by the engine after all:
//! when it is asked for, or when a fresh node has not acknowledged it for long.

use super::datagram::{Body, Place, Sender};
use super::frame::{self, Frame, Header, Kind};
use super::view::{Running, Stage};
use super::{Group, Ticket};
use crate::node::NodeId;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use testudo_ike::output::Time;
use zeroize::Zeroizing;

/// The first version of what is published whose speakers know of it.
const SINCE: u8 = 17;
/// What is longer does not fit into a datagram.
const LONGEST: usize = 60_000;
/// Rests are asked for when the first that is needed has not come for so long, and again.
const PATIENCE: Duration = Duration::from_millis(10);
/// So many in one go.
const ASKED_AT_ONCE: usize = 128;
/// Who is asked again meanwhile has sent it.
const AGAIN: Duration = Duration::from_millis(100);
/// What a fresh node has not acknowledged so long after its delivery goes by the engine unasked, some at a time: perhaps no question
/// gets through.
const UNASKED: Duration = Duration::from_millis(300);
const UNASKED_AT_ONCE: usize = 8;
/// Where so many were missing, and one of so many, datagrams of that size do not pass: the engine does it all.
const MISSING: usize = 8;
const OF: usize = 64;
/// Octets of rests whose place has not come. Nodes have a megabyte or two under way.
const ROOM: usize = 32 << 20;
/// Rests that are kept for a view that has begun elsewhere: its owners begin with one chunk each.
const EARLY: usize = 64;
/// What has waited is taken in by and by, so that heartbeats do not wait for all: so many messages, or a quarter of as many with a rest.
const AT_ONCE: usize = 16;

/// A rest that came before its view: whose, which, and what.
pub(super) type Early = (NodeId, Place, Vec<u8>);

/// Of one view.
pub(super) struct Aside {
    /// Who needs it.
    fresh: Vec<NodeId>,
    /// This node is one of them.
    wanted: bool,
    all_know: bool,
    /// The rests of this node's messages that somebody may need yet.
    sent: VecDeque<Sent>,
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

struct Sent {
    serial: u64,
    octets: Vec<u8>,
    /// Messages that were delivered with it, and when.
    delivered: Option<(u64, Time)>,
    /// When it was sent by the engine.
    again: Option<Time>,
}

impl Aside {
    pub(super) fn new(node: NodeId, fresh: &[NodeId], version: u8) -> Self {
        Self {
            fresh: fresh.to_vec(),
            wanted: fresh.contains(&node),
            all_know: version >= SINCE,
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
        self.missing < MISSING.max(self.told / OF)
    }

    /// True if so many octets of this node's may go beside the engine.
    pub(super) fn takes(&self, octets: usize) -> bool {
        self.is_used() && self.passes() && octets <= LONGEST
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
        let fits = self.octets + rest.len() <= ROOM || is_needed;
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

    /// The oldest that have been delivered for long, with the count of messages that it takes to have them.
    fn overdue(&self, now: Time) -> impl Iterator<Item = (u64, u64)> + '_ {
        let overdue = move |sent: &Sent| {
            let (count, at) = sent.delivered?;
            (now.since(at) >= UNASKED).then_some((sent.serial, count))
        };
        self.sent.iter().filter_map(overdue).take(UNASKED_AT_ONCE)
    }

    pub(super) fn next_timeout(&self) -> Option<Time> {
        if self.goes_on { Some(Time::default()) } else { self.ask }
    }
}

impl Group {
    /// Adds an update that says nothing new to those who hold the state: it is for the fresh nodes of the view, and to others it is not
    /// delivered if all members speak a version that knows of that.
    pub fn publish_aside(&mut self, update: Vec<u8>) -> Ticket {
        self.outbox.publish_aside(&Zeroizing::new(update))
    }

    /// True if such updates go beside the engine.
    pub fn goes_aside(&self) -> bool {
        matches!(&self.stage, Stage::Running(running) if running.aside.takes(0))
    }

    /// Sends the rest of a message beside the engine.
    pub(super) fn send_aside(&mut self, header: &Header, rest: Vec<u8>) {
        let Stage::Running(running) = &mut self.stage else { return };
        let fresh = running.aside.fresh.clone();
        let body = Body::Rest(place(header), rest);
        let link = self.links_up().take(1);
        self.tell_by_datagram(&fresh, link, &body);
        if let (Body::Rest(_, octets), Stage::Running(running)) = (body, &mut self.stage) {
            running.aside.told += 1;
            running.aside.sent.push_back(Sent {
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
                return self.rest_by_engine(now, from, &place(&header), rest.to_vec());
            }
            if let Stage::Running(running) = &mut self.stage
                && running.view.ring == header.ring
                && !running.aside.waiting.is_empty()
            {
                return running.aside.waiting.push_back((from, bytes));
            }
        }
        if !self.message(now, from, &bytes)
            && let Stage::Running(running) = &mut self.stage
        {
            running.aside.waiting.push_back((from, bytes));
            running.aside.ask = Some(now.plus(PATIENCE));
        }
    }

    /// The rest of a message comes by the engine, behind its place. Nobody has vouched for it yet: it takes no other's room.
    fn rest_by_engine(&mut self, now: Time, from: NodeId, of: &Place, rest: Vec<u8>) {
        let Some(running) = self.running_at(of) else { return };
        let aside = &mut running.aside;
        if aside.needed().any(|needed| needed == (from, of.serial)) {
            aside.take(from, of.serial);
            aside.keep(from, of.serial, rest);
            self.go_on(now);
        }
    }

    /// The rest of a message has come as a datagram.
    pub(super) fn rest_came(&mut self, now: Time, from: NodeId, of: Place, rest: Vec<u8>) {
        match self.running_at(&of) {
            Some(running) if running.view.members.contains(&from) && running.is_to_come(from, of.serial) => {
                running.aside.keep(from, of.serial, rest);
                self.go_on(now);
            }
            Some(_) => {}
            None => {
                let forming =
                    matches!(&self.stage, Stage::Forming(exchange) if exchange.view.ring == of.ring);
                if forming && self.early.len() < EARLY {
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
                running.aside.keep(from, of.serial, rest);
            }
        }
    }

    /// The view is over, and what was delivered in it to all who go on together counts: takes in all that there is all of.
    pub(super) fn go_on_to_the_end(&mut self, now: Time) {
        while matches!(&self.stage, Stage::Running(running) if running.aside.goes_on) {
            self.go_on(now);
        }
    }

    /// Takes in what has waited, as far as there is all of it, and not too much in one go.
    fn go_on(&mut self, now: Time) {
        let mut room = AT_ONCE;
        while room > 0 {
            let Stage::Running(running) = &mut self.stage else { return };
            if !running.aside.goes_on {
                return;
            }
            let Some((from, bytes)) = running.aside.waiting.pop_front() else {
                running.aside.goes_on = false;
                return;
            };
            room = room.saturating_sub(if needs(&bytes).is_some() { 4 } else { 1 });
            let taken = self.message(now, from, &bytes);
            let Stage::Running(running) = &mut self.stage else { return };
            let aside = &mut running.aside;
            if taken {
                aside.goes_on = !aside.waiting.is_empty();
            } else {
                aside.waiting.push_front((from, bytes));
                aside.goes_on = false;
            }
            aside.ask = (!aside.waiting.is_empty()).then(|| now.plus(PATIENCE));
        }
    }

    /// Goes on with what waits, asks for what has not come, and sends what others may have asked for in vain.
    pub(super) fn look_after_rests(&mut self, now: Time) {
        self.go_on(now);
        let Stage::Running(running) = &mut self.stage else { return };
        let (aside, stability) = (&running.aside, &running.stability);
        let least = aside.fresh.iter().filter_map(|node| stability.acked(*node)).min().unwrap_or(u64::MAX);
        let overdue = aside.overdue(now).filter(|(_, count)| *count > least).map(|(serial, _)| serial);
        let overdue: Vec<u64> = overdue.collect();
        let (ring, epoch) = (running.view.ring, running.epoch);
        let mut missing = Vec::new();
        if running.aside.ask.is_some_and(|at| at <= now) {
            running.aside.ask = Some(now.plus(PATIENCE));
            let came = &running.aside.came;
            missing.extend(running.aside.needed().filter(|of| !came.contains_key(of)).take(ASKED_AT_ONCE));
        }
        for (from, serial) in missing {
            let body = Body::Missing(from, Place { ring, epoch, serial });
            let links = self.links_up();
            self.tell_by_datagram(&[from], links, &body);
        }
        for serial in overdue {
            self.send_by_engine(now, Place { ring, epoch, serial }, UNASKED);
        }
    }

    /// A fresh node has not got what was sent beside the engine: now it goes by the engine.
    pub(super) fn rest_missing(&mut self, now: Time, from: Sender, of: &Place) {
        let known = self.running_at(of).is_some_and(|it| it.boots.get(&from.node) == Some(&from.boot));
        if known {
            self.send_by_engine(now, *of, AGAIN);
        }
    }

    fn send_by_engine(&mut self, now: Time, of: Place, every: Duration) {
        // An engine that is busy has what it was given before.
        if self.retry.is_some() {
            return;
        }
        let Some(running) = self.running_at(&of) else { return };
        let header = Header { kind: Kind::Rest, ring: of.ring, epoch: of.epoch, serial: of.serial };
        let bytes = running.aside.again(now, of.serial, every).map(|octets| frame::rest(&header, octets));
        self.outgoing.extend(bytes);
    }

    fn running_at(&mut self, of: &Place) -> Option<&mut Running> {
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
        Frame::This(header, _) if header.kind == Kind::Aside => Some(header.serial),
        _ => None,
    }
}

fn place(header: &Header) -> Place {
    Place { ring: header.ring, epoch: header.epoch, serial: header.serial }
}
