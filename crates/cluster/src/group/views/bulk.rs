//! Bulk transfer: what brings fresh nodes up to date goes beside the engine, to them alone. There
//! is much of it, and it says nothing new to the others.
//!
//! The engine carries the header and the tag of what is sealed, with a proof of both. That gives
//! the message its place in the order. The rest of it goes as a datagram. A fresh node takes in
//! nothing behind such a place before it has the rest. What the datagrams lose goes by the engine
//! after all: when a fresh node asks for it, or has not acknowledged it for long.

use super::stability::Stability;
use crate::group::core::Core;
use crate::group::datagram::{Body, MessageName};
use crate::group::frame::{self, Frame, Header, Kind};
use crate::group::links::Links;
use crate::group::queue::EngineQueue;
use crate::node::NodeId;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use testudo_ike::output::Time;

/// The first version of what is published whose speakers know of bulk transfer.
const BULK_SINCE_VERSION: u8 = 17;
/// A longer rest does not fit into a datagram.
const MAX_REST_OCTETS: usize = 60_000;
/// A node asks for rests when the first that it needs has not come for this long, and again.
const REST_TIMEOUT: Duration = Duration::from_millis(10);
/// It asks for at most this many at a time.
const MAX_ASKED_AT_ONCE: usize = 128;
/// A rest that was sent again is not sent once more before this time has passed.
const RESEND_INTERVAL: Duration = Duration::from_millis(100);
/// What a fresh node has not acknowledged this long after its delivery goes by the engine unasked:
/// perhaps no question gets through.
const UNASKED_AFTER: Duration = Duration::from_millis(300);
const MAX_UNASKED_AT_ONCE: usize = 8;
/// If at least this many rests were missing, and at least one of [`TOLD_PER_MISSING`], datagrams of
/// that size do not pass: the engine carries everything.
const MIN_MISSING: usize = 8;
const TOLD_PER_MISSING: usize = 64;
/// The most octets of rests whose place has not come. Nodes have a megabyte or two under way.
const MAX_KEPT_OCTETS: usize = 32 << 20;
/// A turn takes in at most this many of the messages that have waited, or a quarter of as many with
/// a rest, so that heartbeats do not wait for all.
pub(in crate::group) const MESSAGES_PER_TURN: usize = 16;
const WEIGHT_WITH_REST: usize = 4;

/// The bulk transfer of one view.
pub(in crate::group) struct BulkTransfer {
    /// The nodes that need it.
    fresh: Vec<NodeId>,
    /// This node is one of them.
    wanted: bool,
    /// All members know of bulk transfer.
    all_know: bool,
    /// The rests of this node's messages that a fresh node may still need.
    sent: VecDeque<SentRest>,
    /// How many rests this node has sent, and how many of them went by the engine after all.
    told: usize,
    missing: usize,
    /// Rests whose place has not come, by sender and serial.
    came: BTreeMap<(NodeId, u64), Vec<u8>>,
    octets: usize,
    /// The messages of the view from the first on whose rest has not come.
    waiting: VecDeque<(NodeId, Vec<u8>)>,
    /// When this node asks for the rests that are missing in them.
    ask: Option<Time>,
    /// The first of them can be taken in.
    goes_on: bool,
}

/// The rest of a message of this node.
struct SentRest {
    serial: u64,
    octets: Vec<u8>,
    /// How many messages were delivered when this one was, and when that was.
    delivered: Option<(u64, Time)>,
    /// When it was last sent by the engine.
    again: Option<Time>,
}

impl BulkTransfer {
    pub(in crate::group) fn new(node: NodeId, fresh: &[NodeId], version: u8) -> Self {
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

    /// True if messages of this view may go beside the engine.
    pub(in crate::group) fn is_used(&self) -> bool {
        self.all_know && !self.fresh.is_empty()
    }

    /// True if datagrams of that size pass, as far as is known.
    fn passes(&self) -> bool {
        self.missing < MIN_MISSING.max(self.told / TOLD_PER_MISSING)
    }

    /// True if this number of octets of this node may go beside the engine.
    pub(in crate::group) fn takes(&self, octets: usize) -> bool {
        self.is_used() && self.passes() && octets <= MAX_REST_OCTETS
    }

    /// True on a fresh node, which takes in what goes beside the engine.
    pub(in crate::group) fn wanted(&self) -> bool {
        self.wanted
    }

    /// Sends the rest of a message to the fresh nodes.
    pub(in crate::group) fn send(&mut self, core: &mut Core, links: Links, header: &Header, rest: Vec<u8>) {
        let body = Body::Rest(header.name(), rest);
        core.send(&self.fresh, links.up().take(1), &body);
        if let Body::Rest(of, octets) = body {
            self.told += 1;
            self.sent.push_back(SentRest { serial: of.serial, octets, delivered: None, again: None });
        }
    }

    /// A message of this node has been delivered here: `count` messages have been until now.
    pub(in crate::group) fn delivered(&mut self, now: Time, serial: u64, count: u64) {
        if let Some(sent) = self.sent.iter_mut().find(|sent| sent.serial == serial) {
            sent.delivered = Some((count, now));
        }
    }

    /// All members have this many messages.
    pub(in crate::group) fn stable(&mut self, count: u64) {
        self.sent.retain(|sent| sent.delivered.is_none_or(|(at, _)| at > count));
    }

    /// A fresh node asks for the rest of a message of this node.
    pub(in crate::group) fn send_asked(&mut self, queue: &mut EngineQueue, now: Time, of: MessageName) {
        self.send_by_engine(queue, now, of, RESEND_INTERVAL);
    }

    /// A fresh node may have asked for it in vain.
    pub(in crate::group) fn send_unasked(&mut self, queue: &mut EngineQueue, now: Time, of: MessageName) {
        self.send_by_engine(queue, now, of, UNASKED_AFTER);
    }

    /// The oldest messages of this node that fresh nodes have not acknowledged for long.
    pub(in crate::group) fn overdue(&self, stability: &Stability, now: Time) -> Vec<u64> {
        let acked = self.fresh.iter().filter_map(|node| stability.acked(*node)).min().unwrap_or(u64::MAX);
        let overdue = |sent: &SentRest| {
            let (count, at) = sent.delivered?;
            (count > acked && now.since(at) >= UNASKED_AFTER).then_some(sent.serial)
        };
        self.sent.iter().filter_map(overdue).take(MAX_UNASKED_AT_ONCE).collect()
    }

    /// Sends the rest of a message of this node by the engine, unless it has done so within
    /// `every`.
    fn send_by_engine(&mut self, queue: &mut EngineQueue, now: Time, of: MessageName, every: Duration) {
        // An engine that is busy has what it was given before.
        if queue.is_busy() {
            return;
        }
        let Some(sent) = self.sent.iter_mut().find(|sent| sent.serial == of.serial) else { return };
        if sent.again.is_none_or(|at| now.since(at) >= every) {
            self.missing += usize::from(sent.again.is_none());
            sent.again = Some(now);
            let header = Header { kind: Kind::Rest, ring: of.ring, epoch: of.epoch, serial: of.serial };
            queue.push(frame::rest(&header, &sent.octets));
        }
    }

    /// Takes the rest of a message, if it has come.
    pub(in crate::group) fn take(&mut self, from: NodeId, serial: u64) -> Option<Vec<u8>> {
        let rest = self.came.remove(&(from, serial))?;
        self.octets -= rest.len();
        Some(rest)
    }

    /// A rest has come as a datagram. What the first message that waits needs is always kept: only
    /// that makes room.
    pub(in crate::group) fn keep(&mut self, from: NodeId, serial: u64, rest: Vec<u8>) {
        let is_needed = self.needed().next() == Some((from, serial));
        let fits = self.octets + rest.len() <= MAX_KEPT_OCTETS || is_needed;
        if self.wanted && fits && !self.came.contains_key(&(from, serial)) {
            self.octets += rest.len();
            self.came.insert((from, serial), rest);
            self.goes_on |= is_needed;
        }
    }

    /// A rest has come by the engine. Its sender has not vouched for it yet, so it is kept only if
    /// a message waits for it. False if none does.
    pub(in crate::group) fn keep_needed(&mut self, from: NodeId, serial: u64, rest: &[u8]) -> bool {
        let is_needed = self.needed().any(|needed| needed == (from, serial));
        if is_needed {
            self.take(from, serial);
            self.keep(from, serial, rest.to_vec());
        }
        is_needed
    }

    /// A node's message has been taken in: what came for its earlier ones is of no use.
    pub(in crate::group) fn passed(&mut self, from: NodeId, serial: u64) {
        while let Some((first, _)) = self.came.range((from, 0)..=(from, serial)).next() {
            let (_, serial) = *first;
            self.take(from, serial);
        }
    }

    /// The rests that the messages that wait need, in their order.
    fn needed(&self) -> impl Iterator<Item = (NodeId, u64)> + '_ {
        self.waiting.iter().filter_map(|(from, bytes)| Some((*from, needs(bytes)?)))
    }

    /// True while messages wait: further ones must wait behind them.
    pub(in crate::group) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// True if the first message that waits can be taken in.
    pub(in crate::group) fn goes_on(&self) -> bool {
        self.goes_on
    }

    /// A message waits behind the others.
    pub(in crate::group) fn wait(&mut self, from: NodeId, bytes: Vec<u8>) {
        self.waiting.push_back((from, bytes));
    }

    /// The next message that can be taken in, and how much of [`MESSAGES_PER_TURN`] it takes.
    pub(in crate::group) fn next(&mut self) -> Option<(NodeId, Vec<u8>, usize)> {
        if !self.goes_on {
            return None;
        }
        let next = self.waiting.pop_front();
        self.goes_on = next.is_some();
        next.map(|(from, bytes)| {
            let weight = if needs(&bytes).is_some() { WEIGHT_WITH_REST } else { 1 };
            (from, bytes, weight)
        })
    }

    /// The message of [`Self::next`] has been taken in.
    pub(in crate::group) fn taken_in(&mut self, now: Time) {
        self.goes_on = self.has_waiting();
        self.ask = self.has_waiting().then(|| now.plus(REST_TIMEOUT));
    }

    /// A message whose turn it is must wait for its rest.
    pub(in crate::group) fn wait_first(&mut self, now: Time, from: NodeId, bytes: Vec<u8>) {
        self.waiting.push_front((from, bytes));
        self.goes_on = false;
        self.ask = Some(now.plus(REST_TIMEOUT));
    }

    /// What to ask for now.
    pub(in crate::group) fn missing(&mut self, now: Time) -> Vec<(NodeId, u64)> {
        if self.ask.is_none_or(|at| at > now) {
            return Vec::new();
        }
        self.ask = Some(now.plus(REST_TIMEOUT));
        self.needed().filter(|of| !self.came.contains_key(of)).take(MAX_ASKED_AT_ONCE).collect()
    }

    pub(in crate::group) fn next_timeout(&self) -> Option<Time> {
        if self.goes_on { Some(Time::default()) } else { self.ask }
    }
}

/// The serial of a message whose rest goes beside the engine.
fn needs(bytes: &[u8]) -> Option<u64> {
    match frame::parse(bytes) {
        Frame::This(header, _) if header.kind == Kind::Bulk => Some(header.serial),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::RingId;
    use crate::group::frame::Chain;

    const RING: RingId = RingId { seq: 3, node: 1 };

    fn node(number: u32) -> NodeId {
        NodeId::new(number).unwrap()
    }

    fn at(ms: u64) -> Time {
        Time(Duration::from_millis(1000 + ms))
    }

    fn message(kind: Kind, serial: u64) -> Vec<u8> {
        frame::rest(&Header { kind, ring: RING, epoch: 2, serial }, b"octets")
    }

    #[test]
    fn messages_that_wait_follow_their_rest_and_nothing_is_asked_for_behind_the_last() {
        let mut bulk = BulkTransfer::new(node(3), &[node(3)], BULK_SINCE_VERSION);
        bulk.wait_first(at(0), node(1), message(Kind::Bulk, 5));
        bulk.wait(node(2), message(Kind::Batch, 6));
        bulk.wait(node(1), message(Kind::Bulk, 7));
        assert!(bulk.next().is_none(), "the rest has not come");
        assert_eq!(bulk.missing(at(0)), []);
        assert_eq!(bulk.missing(at(10)), [(node(1), 5), (node(1), 7)], "a whole message needs none");
        bulk.keep(node(1), 7, b"rest".to_vec());
        assert!(bulk.next().is_none(), "that is a later one's");
        bulk.keep(node(1), 5, b"rest".to_vec());
        let mut weights = Vec::new();
        while let Some((.., weight)) = bulk.next() {
            weights.push(weight);
            bulk.taken_in(at(20));
        }
        assert_eq!(weights, [WEIGHT_WITH_REST, 1, WEIGHT_WITH_REST]);
        assert_eq!((bulk.has_waiting(), bulk.goes_on(), bulk.next_timeout()), (false, false, None));
    }

    /// A longer one does not fit into a datagram, and a member of an older version would not
    /// know what to do with it.
    #[test]
    fn what_fits_goes_beside_the_engine_in_views_that_know_of_it() {
        let is_taken = |version, octets| BulkTransfer::new(node(1), &[node(3)], version).takes(octets);
        assert!(is_taken(BULK_SINCE_VERSION, MAX_REST_OCTETS));
        assert!(!is_taken(BULK_SINCE_VERSION, MAX_REST_OCTETS + 1));
        assert!(!is_taken(BULK_SINCE_VERSION - 1, 0));
    }

    #[test]
    fn what_all_members_hold_is_sent_no_more() {
        let mut bulk = BulkTransfer::new(node(1), &[node(3)], BULK_SINCE_VERSION);
        for serial in 5..=8 {
            bulk.sent.push_back(SentRest { serial, octets: vec![7; 9], delivered: None, again: None });
        }
        (5..=7).for_each(|serial| bulk.delivered(at(0), serial, serial + 10));
        bulk.stable(16);
        assert_eq!(bulk.sent.iter().map(|sent| sent.serial).collect::<Vec<_>>(), [7, 8]);
    }

    /// Another member keeps them from being stable.
    #[test]
    fn what_the_fresh_nodes_have_does_not_keep_what_they_lack_from_being_sent_unasked() {
        let mut bulk = BulkTransfer::new(node(1), &[node(3)], BULK_SINCE_VERSION);
        let chain = Chain::default();
        let mut stability = Stability::new(chain, [2, 3].map(node).into_iter());
        for serial in 1..=20 {
            let octets = vec![7; 9];
            bulk.sent.push_back(SentRest { serial, octets, delivered: Some((serial, at(0))), again: None });
            stability.delivered(chain);
        }
        stability.acknowledge(node(3), 10, chain.short());
        assert_eq!(bulk.overdue(&stability, at(299)), [0; 0]);
        assert_eq!(bulk.overdue(&stability, at(300)), [11, 12, 13, 14, 15, 16, 17, 18]);
    }

    /// A member may send any number of them.
    #[test]
    fn what_is_kept_is_bounded_and_goes_with_the_messages_that_are_taken_in() {
        let mut bulk = BulkTransfer::new(node(3), &[node(3)], BULK_SINCE_VERSION);
        let kept = |bulk: &BulkTransfer| bulk.came.keys().map(|(_, serial)| *serial).collect::<Vec<_>>();
        bulk.keep(node(1), 6, vec![0; MAX_KEPT_OCTETS - 1]);
        bulk.keep(node(1), 6, vec![0; 1]);
        bulk.keep(node(1), 7, vec![0; 1]);
        bulk.keep(node(1), 8, vec![0; 1]);
        assert_eq!((kept(&bulk), bulk.octets), (vec![6, 7], MAX_KEPT_OCTETS));
        bulk.wait_first(at(0), node(1), message(Kind::Bulk, 5));
        bulk.keep(node(1), 5, vec![0; 1]);
        assert_eq!(kept(&bulk), [5, 6, 7], "only that makes room");
        bulk.passed(node(1), 6);
        assert_eq!((kept(&bulk), bulk.octets), (vec![7], 1));
        bulk.keep(node(2), 7, vec![0; 2]);
        assert_eq!(bulk.take(node(1), 7), Some(vec![0; 1]));
        assert_eq!((kept(&bulk), bulk.octets), (vec![7], 2));
        let mut current = BulkTransfer::new(node(2), &[node(3)], BULK_SINCE_VERSION);
        current.keep(node(1), 6, vec![0; 1]);
        assert_eq!(kept(&current), [], "it knows all of that");
    }

    #[test]
    fn a_rest_that_is_asked_for_again_and_again_is_sent_once_in_an_interval() {
        let mut bulk = BulkTransfer::new(node(1), &[node(3)], BULK_SINCE_VERSION);
        bulk.sent.push_back(SentRest { serial: 5, octets: vec![7; 9], delivered: None, again: None });
        let of = MessageName { ring: RING, epoch: 2, serial: 5 };
        let mut queue = EngineQueue::default();
        let sent: Vec<u64> = (0..=250)
            .step_by(10)
            .filter(|ms| {
                bulk.send_asked(&mut queue, at(*ms), of);
                queue.pop().is_some()
            })
            .collect();
        assert_eq!((sent, bulk.missing), (vec![0, 100, 200], 1));
    }
}
