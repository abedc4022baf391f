//! From the engine's views to the group's: exchange, start, delivery.

use super::bulk::BulkTransfer;
use super::durable::Begun;
use super::exchange::{Exchange, Heard, Held, Outcome, Status, Verdict};
use super::frame::{self, Chain, Frame, Header, Kind};
use super::heartbeat::{self, mask};
use super::keys;
use super::lease::{Ask, Lease};
use super::outbox::{Entry, entries};
use super::stability::{Position, Stability};
use super::status::Topic;
use super::{Group, GroupConfig, GroupOutput, ViewStart};
use crate::engine::View;
use crate::node::{NodeId, names};
use aws_lc_rs::aead::LessSafeKey;
use std::collections::BTreeMap;
use std::time::Duration;
use testudo_ike::output::{LogLevel, Time};
use testudo_planted::{Plant, planted};
use zeroize::Zeroizing;

/// A STATUS that has not come back by then is said again.
const STATUS_REPEAT_INTERVAL: Duration = Duration::from_secs(1);

/// Where this node stands.
pub(super) enum Stage {
    /// No engine.
    Down,
    /// In a view without quorum.
    Minority(View),
    /// In a quorate view whose members have not all been heard.
    Forming(Exchange),
    /// In a view that has begun.
    Running(Box<Running>),
}

/// A view that has begun.
pub(super) struct Running {
    pub(super) view: View,
    pub(super) epoch: u64,
    pub(super) current: Vec<NodeId>,
    /// Nobody held the state.
    pub(super) reset: bool,
    pub(super) boots: BTreeMap<NodeId, u64>,
    pub(super) key: LessSafeKey,
    /// What this node has sealed.
    pub(super) serial: u64,
    /// The last of each sender that was opened.
    seen: BTreeMap<NodeId, u64>,
    pub(super) stability: Stability,
    /// Where own updates were delivered that are not stable yet.
    pub(super) unstable: std::collections::VecDeque<(u64, super::Ticket)>,
    pub(super) bulk: BulkTransfer,
}

/// What is in a message.
enum Opened {
    Plain(Zeroizing<Vec<u8>>),
    /// The rest of it has not come, or something else in its place.
    NotYet,
    /// It was not sealed by that node for this view, or with this key.
    Wrong,
}

impl Running {
    fn open(&mut self, from: NodeId, header: &Header, body: &[u8]) -> Opened {
        if header.kind != Kind::Bulk {
            return frame::open(&self.key, from, header, &[], body).map_or(Opened::Wrong, Opened::Plain);
        }
        let proven = frame::proven(&self.key, from, header, body).filter(|_| self.bulk.is_used());
        let Some(tag) = proven else { return Opened::Wrong };
        if !self.bulk.wanted() {
            // It says what this node knows.
            return Opened::Plain(Zeroizing::default());
        }
        match self.bulk.take(from, header.serial) {
            Some(rest) => {
                let opened = frame::open(&self.key, from, header, &[], &[&rest, tag].concat());
                // Not what belongs there: that is asked for.
                opened.map_or(Opened::NotYet, Opened::Plain)
            }
            None if planted(Plant::RestNotAwaited) => Opened::Plain(Zeroizing::default()),
            None => Opened::NotYet,
        }
    }

    /// No message of that node with this serial, or a later one, has been opened.
    pub(super) fn is_to_come(&self, from: NodeId, serial: u64) -> bool {
        self.seen.get(&from).is_none_or(|last| *last < serial)
    }
}

impl Stage {
    /// The engine's view.
    pub(super) fn view(&self) -> Option<&View> {
        match self {
            Self::Down => None,
            Self::Minority(view) => Some(view),
            Self::Forming(exchange) => Some(&exchange.view),
            Self::Running(running) => Some(&running.view),
        }
    }
}

impl Group {
    /// The engine has a new view.
    pub(super) fn view(&mut self, now: Time, mut view: View) {
        if !planted(Plant::UnsortedView) {
            view.members.sort_unstable();
            view.members.dedup();
        }
        if !view.members.contains(&self.core.node()) {
            return self.down(now, "the engine's view does not hold this node");
        }
        let before = self.stage.view().map(|view| view.members.clone()).unwrap_or_default();
        self.leave(now);
        self.out = false;
        let view = self.believe(view);
        let trusted = self.peers.ring(now, &before, &view.members);
        self.core.outputs.extend(trusted.into_iter().map(GroupOutput::Trusted));
        if view.quorate {
            self.stage = Stage::Forming(Exchange::new(view, self.core.config.nodes.len()));
            self.say_status(now);
        } else {
            self.waits_since = None;
            self.stage = Stage::Minority(view.clone());
            self.powerless(now, view);
        }
    }

    /// A view in which nothing can be decided.
    fn powerless(&mut self, now: Time, view: View) {
        self.interrupted();
        self.core.outputs.push_back(GroupOutput::View(ViewStart {
            view: View { quorate: false, ..view },
            epoch: self.held.epoch,
            current: Vec::new(),
            fresh: Vec::new(),
            reset: false,
            wait_until: now,
            version: GroupConfig::OLDEST,
        }));
    }

    /// The engine is gone.
    pub(super) fn down(&mut self, now: Time, reason: &str) {
        self.core.log(LogLevel::Error, format!("the cluster's engine is gone: {reason}"));
        self.interrupted();
        self.leave(now);
        self.peers.ring(now, &[], &[]);
    }

    /// The others have gone on without this node. Whether what it holds still counts, the next
    /// view's exchange tells.
    pub(super) fn put_out(&mut self, now: Time) {
        self.core.log(
            LogLevel::Warning,
            "this node stood still, and the others have gone on without it".to_owned(),
        );
        self.interrupted();
        self.leave(now);
        self.peers.ring(now, &[], &[]);
        self.out = true;
    }

    /// No view from now on. What is under way in the old ring is ignored by everybody.
    pub(super) fn leave(&mut self, now: Time) {
        if !matches!(self.stage, Stage::Down | Stage::Forming(_)) {
            self.core.outputs.push_back(GroupOutput::NoView);
        }
        self.stage = Stage::Down;
        self.attentive = now;
        self.queue.clear();
        (self.repeat, self.unacknowledged) = (None, false);
        self.early.clear();
    }

    /// Says STATUS in the ring of the exchange.
    pub(super) fn say_status(&mut self, now: Time) {
        let Stage::Forming(exchange) = &self.stage else {
            self.repeat = None;
            return;
        };
        let ring = exchange.view.ring;
        let (random, salt) = (self.core.random(), self.core.random());
        let status = Status {
            members: mask(&exchange.view.members),
            boot: self.core.boot(),
            held: self.held,
            begun: self.durable.begun,
            doubtful: self.doubtful,
            synced: self.synced,
            patient: self.waits_since.is_none_or(|since| now.since(since) < self.core.config.patience),
            random,
            leases: self.leases.table().map(|(node, incarnation)| (node.get(), incarnation)).collect(),
            promises: self.promises(now),
        };
        let Ok(plain) = postcard::to_allocvec(&(&status, self.core.config.speaks)).map(Zeroizing::new) else {
            return self.core.log(LogLevel::Error, "a STATUS cannot be written".to_owned());
        };
        let sealed = frame::seal_status(&self.core.config.key, self.core.node(), ring, &salt, &plain);
        self.queue.push_first(sealed);
        self.repeat = Some(now.plus(STATUS_REPEAT_INTERVAL));
    }

    /// A message's turn has come. False: not all of it is here, and it must wait.
    pub(super) fn message(&mut self, now: Time, from: NodeId, bytes: &[u8]) -> bool {
        let frame = frame::parse(bytes);
        let Some(view) = self.stage.view().filter(|view| view.members.contains(&from)) else {
            self.core.counters.old_ring += 1;
            return true;
        };
        match frame {
            Frame::Malformed => self.core.counters.malformed += 1,
            Frame::OtherVersion => {
                self.core.counters.other_version += 1;
                self.heard(now, from, None);
            }
            Frame::This(header, _) if header.ring != view.ring => self.core.counters.old_ring += 1,
            Frame::This(header, body) if header.kind == Kind::Status => {
                let plain = frame::open_status(&self.core.config.key, from, &header, body);
                if plain.is_none() {
                    self.core.counters.unopened += 1;
                }
                self.heard(now, from, plain.and_then(|plain| Heard::read(&plain)));
            }
            Frame::This(header, body) => return self.batch(now, from, &header, body),
        }
        true
    }

    /// A member's STATUS; `None` if it cannot be read.
    fn heard(&mut self, now: Time, from: NodeId, heard: Option<Heard>) {
        let Stage::Forming(exchange) = &mut self.stage else {
            return;
        };
        // An engine may tell of several views in one ring. What was said for one of them says
        // nothing in another.
        if heard.as_ref().is_some_and(|heard| heard.status.members != mask(&exchange.view.members)) {
            self.core.counters.old_ring += 1;
            return;
        }
        if from == self.core.node() {
            self.repeat = None;
        }
        let waited = exchange.waits();
        exchange.insert(from, heard);
        match exchange.outcome() {
            None => {}
            Some(Verdict::Begin(outcome)) => self.begin(now, outcome),
            Some(Verdict::Wait(_)) if waited => self.stay_patient(now),
            Some(Verdict::Wait(nodes)) => self.wait(now, &nodes),
            Some(Verdict::Unreadable(nodes)) => {
                let nodes = names(&nodes);
                let line = format!(
                    "no view: nodes {nodes} have another cluster key or version, and those that have ours are not more than half"
                );
                self.core.log_limited(now, Topic::Excluded, line);
            }
        }
    }

    /// All members have been heard, and none of them holds the latest state. Until who may hold it
    /// comes, this is as if there were no quorum: going on from an older state would answer peers
    /// anew, and use numbers again. All of them waiting in vain for [`GroupConfig::patience`] is
    /// the end of it: they begin with nothing.
    ///
    /// [`GroupConfig::patience`]: super::GroupConfig::patience
    fn wait(&mut self, now: Time, nodes: &[NodeId]) {
        let Some(view) = self.stage.view().cloned() else { return };
        let line = match nodes {
            [] => "no view: what nodes have forgotten may be known to those who are not here".to_owned(),
            _ => format!(
                "no view: none of its nodes holds the latest state; waiting for nodes {}",
                names(nodes)
            ),
        };
        self.core.log_limited(now, Topic::Waiting, line);
        self.waits_since.get_or_insert(now);
        self.stay_patient(now);
        self.powerless(now, view);
    }

    /// STATUS is said again when this node has waited for long enough.
    fn stay_patient(&mut self, now: Time) {
        let end = self.waits_since.map(|since| since.plus(self.core.config.patience));
        self.repeat = end.filter(|end| *end > now);
    }

    /// All members have been heard: the view begins.
    fn begin(&mut self, now: Time, outcome: Outcome) {
        let Outcome { view, epoch, current, fresh, version, .. } = outcome;
        if !view.members.contains(&self.core.node()) {
            return;
        }
        if !outcome.unreadable.is_empty() {
            let nodes = names(&outcome.unreadable);
            let line = format!("nodes {nodes} are left out: they have another cluster key or version");
            self.core.log_limited(now, Topic::Excluded, line);
        }
        let holds = current.contains(&self.core.node()) && !(outcome.reset && self.held.epoch > 0);
        let chain = Chain::begin(view.ring, epoch, &view.members, &current);
        let members = mask(&view.members);
        let others = view.members.iter().copied().filter(|node| *node != self.core.node());
        let running = Running {
            epoch,
            reset: outcome.reset,
            boots: outcome.boots.into_iter().collect(),
            key: keys::group(&self.core.config.key, view.ring, &outcome.randoms),
            serial: 0,
            seen: BTreeMap::new(),
            stability: Stability::new(chain, others),
            // Those who hold the state have all had the same messages. They are stable once the
            // view has begun everywhere: until then the next one may come together without any of
            // these.
            unstable: self.outbox.last_delivered().filter(|_| holds).map(|ticket| (0, ticket)).into_iter().collect(),
            bulk: BulkTransfer::new(self.core.node(), &fresh, version.unwrap_or(GroupConfig::OLDEST)),
            current: current.clone(),
            view: view.clone(),
        };
        self.held = Held { epoch, ring: view.ring, count: 0, chain };
        self.synced = current.contains(&self.core.node());
        (self.waits_since, self.doubtful) = (None, self.doubtful && !self.synced);
        // Until this is on the disk, nothing in the view is acknowledged.
        self.durable.begun = Begun::new(&view, epoch);
        self.unbroken = true;
        self.unacknowledged = true;
        self.leases.merge(&outcome.leases);
        let trusted = self.peers.pin(&running.boots, now, self.core.config.heartbeat);
        self.stage = Stage::Running(Box::new(running));
        self.take_early();
        // Before anything is carried: whoever is passed over, and may hear this node, stops now and
        // not when the next heartbeat is due.
        self.heartbeat(now);
        self.core.outputs.extend(trusted.into_iter().map(GroupOutput::Trusted));
        let wait = if planted(Plant::PromiseIgnored) { Duration::ZERO } else { outcome.wait };
        let wait_until = now.plus(wait);
        let version = version.unwrap_or(GroupConfig::OLDEST);
        let start = ViewStart { view, epoch, current, fresh, reset: outcome.reset, wait_until, version };
        self.core.outputs.push_back(GroupOutput::View(start));
        if holds {
            self.outbox.again();
        } else {
            self.outbox.clear();
        }
        let suspects = self.peers.suspects().filter(|node| heartbeat::within(members, *node));
        self.core.outputs.extend(suspects.map(GroupOutput::Suspected));
        if !self.lease(true) {
            self.core.outputs.push_back(GroupOutput::Persist(self.durable));
        }
    }

    /// Asks for a lease, if one is wanted and there is a view to ask in. True if that had to be
    /// written to the disk.
    pub(super) fn lease(&mut self, begun: bool) -> bool {
        if !matches!(self.stage, Stage::Running(_)) {
            return false;
        }
        let (incarnation, is_new) = match self.leases.ask(begun) {
            None => return false,
            Some(Ask::Exhausted) => {
                let line =
                    "no sender ID is left for this node: nothing can be sent until all SAs have new keys";
                self.core.log(LogLevel::Error, line.to_owned());
                return false;
            }
            Some(Ask::New(incarnation)) => (incarnation, true),
            Some(Ask::Again(incarnation)) => (incarnation, false),
        };
        if is_new {
            self.durable.incarnation = incarnation;
            self.core.outputs.push_back(GroupOutput::Persist(self.durable));
        }
        self.outbox.lease(&Lease { boot: self.core.boot(), incarnation }.write());
        is_new
    }

    /// A message of the view: opened, counted, and handed on. False: the rest of it has not come.
    fn batch(&mut self, now: Time, from: NodeId, header: &Header, body: &[u8]) -> bool {
        let Stage::Running(running) = &mut self.stage else {
            self.core.counters.old_ring += 1;
            return true;
        };
        if header.epoch != running.epoch {
            self.core.counters.old_ring += 1;
            return true;
        }
        if !running.is_to_come(from, header.serial) {
            self.core.counters.replayed += 1;
            return true;
        }
        let plain = match running.open(from, header, body) {
            Opened::Plain(plain) => plain,
            Opened::NotYet => return false,
            Opened::Wrong => {
                self.core.counters.unopened += 1;
                let line = format!("a message of node {from} cannot be opened, and is ignored");
                self.core.log_limited(now, Topic::Forged, line);
                return true;
            }
        };
        running.seen.insert(from, header.serial);
        running.bulk.passed(from, header.serial);
        let tag = body.get(body.len().saturating_sub(frame::TAG_OCTETS)..).unwrap_or_default();
        running.stability.delivered(running.stability.chain().next(from, header, tag));
        let count = running.stability.count();
        (self.held.count, self.held.chain) = (count, running.stability.chain());
        if from == self.core.node()
            && let Some(ticket) = self.outbox.delivered(header.serial)
        {
            running.unstable.push_back((count, ticket));
            running.bulk.delivered(now, header.serial, count);
        }
        (self.unacknowledged, self.core.counters.delivered) = (true, self.core.counters.delivered + 1);
        let at = Position { epoch: running.epoch, count };
        for entry in entries(&plain) {
            match entry {
                Some(Entry::Update(update)) => {
                    let update = Zeroizing::new(update.to_vec());
                    self.core.outputs.push_back(GroupOutput::Delivered { from, at, update });
                }
                Some(Entry::Lease(lease)) => {
                    if let Some(lease) = Lease::read(lease) {
                        self.leases.delivered(from, lease, self.core.boot(), count);
                    }
                }
                None => self.core.counters.malformed += 1,
            }
        }
        true
    }
}
