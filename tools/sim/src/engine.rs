//! A model of corosync's CPG and votequorum, with the properties that its users must expect.
//!
//! - **Agreed order, not safe order.** All members of a ring see its messages in one order. A
//!   sender sees its own messages as soon as they are ordered, whether or not others have them.
//!   When the ring breaks, messages that no other member has received are lost.
//! - **Virtual synchrony.** Nodes that move together from one ring to the next have seen the same
//!   messages in the first.
//! - **A sender's messages keep their order.** After a message that no member of the next ring has,
//!   nothing of its sender is delivered in the last ring: corosync drops what follows such a gap.
//! - **Not gated by quorum.** An isolated node continues to deliver to itself.
//! - **Expels a stopped process.** The daemon continues without the process that it serves. After a
//!   second the others continue without that process, if they are more than half of all nodes. The
//!   process receives everything that came before its expulsion.
//! - **Counts daemons.** Votequorum counts the daemons of a ring, also those whose process has ended.
//! - **Late.** A lost node is detected only after a while; members may be slow. After a change the
//!   engine accepts nothing for a moment (TRY_AGAIN). A message accepted while the ring was forming
//!   is delivered in the next ring, or never.
//! - **No agreement between partitions.** When a ring breaks, one side may continue while the other
//!   has not noticed yet, and hears only itself. The order of the members in a view may differ
//!   between nodes.

use crate::random::Random;
use std::collections::{BTreeMap, BTreeSet};
use testudo_cluster::engine::{EngineEvent, RingId, View};
use testudo_cluster::group::Majorities;
use testudo_cluster::node::NodeId;
use votes::LastMan;

mod messages;
mod votes;

pub use votes::Votes;

/// Nanoseconds since the beginning of the simulation.
pub type Nanos = u64;

/// A millisecond.
pub const MILLI: Nanos = 1_000_000;

/// By how much a ring's number is higher than those of the rings before.
const RING_STEP: u64 = 4;

/// A process is expelled after this time without a sign of life.
const SILENCE_TIMEOUT: Nanos = 1000 * MILLI;

/// Which nodes hear which others, in one direction.
pub trait Reach {
    /// True if packets of `from` reach `to`.
    fn reaches(&self, from: usize, to: usize) -> bool;
}

/// The time until the engines detect a missing node.
#[derive(Clone, Copy, Debug)]
pub struct Detection {
    /// The shortest.
    pub shortest: Nanos,
    /// The longest.
    pub longest: Nanos,
}

/// The engines of all nodes.
#[derive(Debug)]
pub struct Engines {
    nodes: Vec<Node>,
    rings: BTreeMap<RingId, Ring>,
    votes: Votes,
    /// The ring that has the witness's vote.
    witness: Option<RingId>,
    last_man: LastMan,
    /// When a change of connectivity will be noticed.
    reform_at: Option<Nanos>,
    receptions: BTreeSet<(Nanos, u64, Reception)>,
    count: u64,
    detection: Detection,
    random: Random,
    /// Random choices of who notices late, and of the order of members.
    fate: Random,
    /// Deliveries to nodes, in order.
    delivered: Vec<(usize, EngineEvent)>,
    /// The nodes by which each process judges a ring; empty where votequorum's count does.
    majorities: BTreeMap<usize, (u64, Majorities)>,
    /// The nodes of rings that have become quorate.
    quorate: Vec<Vec<NodeId>>,
    /// Views formed so far.
    pub views: u64,
    /// Messages that only their sender received.
    pub lost: u64,
}

#[derive(Debug)]
struct Node {
    id: NodeId,
    up: bool,
    /// The daemon runs, and the process that it served has ended.
    bare: bool,
    /// Stopped with its host.
    frozen: bool,
    /// Since when the process that it serves is stopped, or since the ring formed after that.
    still: Option<Nanos>,
    /// The process has been expelled.
    out: bool,
    ring: Option<RingId>,
    /// Highest ring sequence that it knows, on disk.
    seq: u64,
    /// Number of messages of the ring that it has delivered.
    cursor: usize,
    /// It accepts nothing before this time.
    busy_until: Nanos,
    /// Additional delay of its messages.
    slow: Nanos,
    /// Messages accepted while a ring was forming.
    waiting: Vec<Vec<u8>>,
}

#[derive(Debug)]
struct Ring {
    members: Vec<usize>,
    /// Nodes whose daemons are in the ring, without a process.
    bare: Vec<usize>,
    log: Vec<Logged>,
}

#[derive(Debug)]
struct Logged {
    from: usize,
    sender: NodeId,
    bytes: Vec<u8>,
    holders: BTreeSet<usize>,
}

impl Logged {
    fn event(&self) -> EngineEvent {
        EngineEvent::Message { from: self.sender, bytes: self.bytes.clone() }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Reception {
    ring: RingId,
    index: usize,
    node: usize,
}

impl Engines {
    /// Engines that are all stopped.
    pub fn new(ids: &[NodeId], votes: Votes, detection: Detection, mut random: Random) -> Self {
        let node = |id: &NodeId| Node {
            id: *id,
            up: false,
            bare: false,
            frozen: false,
            still: None,
            out: false,
            ring: None,
            seq: 0,
            cursor: 0,
            busy_until: 0,
            slow: 0,
            waiting: Vec::new(),
        };
        Self {
            nodes: ids.iter().map(node).collect(),
            rings: BTreeMap::new(),
            votes,
            witness: None,
            last_man: LastMan::new(ids.len()),
            reform_at: None,
            receptions: BTreeSet::new(),
            count: 0,
            detection,
            fate: random.fork(),
            random,
            delivered: Vec::new(),
            majorities: BTreeMap::new(),
            quorate: Vec::new(),
            views: 0,
            lost: 0,
        }
    }

    /// The daemon of a node starts.
    pub fn start(&mut self, now: Nanos, index: usize) {
        let node = &mut self.nodes[index];
        if node.up {
            return;
        }
        if !std::mem::take(&mut node.bare) {
            self.last_man.start(index);
        }
        (node.up, node.ring, node.cursor) = (true, None, 0);
        node.waiting.clear();
        self.changed(now);
    }

    /// The daemon of a node dies; `tell`: its host is running and notices.
    pub fn stop(&mut self, now: Nanos, index: usize, tell: bool) {
        let node = &mut self.nodes[index];
        let was_bare = std::mem::take(&mut node.bare);
        if !node.up && !was_bare {
            return;
        }
        (node.up, node.ring, node.out) = (false, None, false);
        if tell && !was_bare {
            let reason = "the engine has died".into();
            self.delivered.push((index, EngineEvent::Down { reason }));
        }
        self.changed(now);
    }

    /// The process that a node's daemon serves ends.
    pub fn leave(&mut self, now: Nanos, index: usize) {
        let node = &mut self.nodes[index];
        if node.up {
            (node.up, node.bare, node.ring, node.out) = (false, true, None, false);
            self.changed(now);
        }
    }

    /// A whole host stops, or continues.
    pub fn freeze(&mut self, now: Nanos, node: usize, frozen: bool) {
        self.nodes[node].frozen = frozen;
        self.changed(now);
    }

    /// The process that a node's daemon serves stops, or continues. An expelled process joins
    /// again.
    pub fn serve(&mut self, now: Nanos, index: usize, serves: bool) {
        let node = &mut self.nodes[index];
        node.still = (!serves).then_some(now);
        if serves && std::mem::take(&mut node.out) {
            self.changed(now);
        }
    }

    /// Sets an additional delay of a node's messages.
    pub fn slow(&mut self, node: usize, by: Nanos) {
        self.nodes[node].slow = by;
    }

    /// The connectivity has changed: new rings form once that is noticed.
    pub fn changed(&mut self, now: Nanos) {
        let Detection { shortest, longest } = self.detection;
        let at = now + self.random.between(shortest, longest);
        // The first loss determines the time: timers run from there.
        self.reform_at = Some(self.reform_at.map_or(at, |old| old.min(at)));
    }

    /// A ring is formed again although nothing has changed.
    pub fn storm(&mut self, now: Nanos) {
        let rings: BTreeSet<RingId> = self.nodes.iter().filter_map(|node| node.ring).collect();
        let Some(ring) = self.random.pick(&rings.into_iter().collect::<Vec<_>>()).copied() else { return };
        let here = |node: &usize| self.nodes[*node].ring == Some(ring) && !self.nodes[*node].frozen;
        let mut members: Vec<usize> = (0..self.nodes.len()).filter(here).collect();
        if members.is_empty() {
            return;
        }
        let bare = self.bare_of(ring);
        // Sometimes a member drops out and returns.
        let victim = self.random.below(members.len() as u64) as usize;
        if members.len() > 1 && self.random.permille(400) {
            let alone = members.remove(victim);
            self.form(now, &[alone], &[]);
            self.changed(now);
        }
        self.form(now, &members, &bare);
    }

    /// The nodes whose daemons are still in the ring, without a process.
    fn bare_of(&self, ring: RingId) -> Vec<usize> {
        let bare = self.rings.get(&ring).map(|ring| ring.bare.clone()).unwrap_or_default();
        bare.into_iter().filter(|node| self.nodes[*node].bare).collect()
    }

    /// The ring of this node and its members, the node included.
    pub fn members(&self, node: usize) -> Option<(RingId, &[usize])> {
        let ring = self.nodes[node].ring?;
        Some((ring, &self.rings.get(&ring)?.members))
    }

    /// A node sends a message. It is returned if the engine refuses it (TRY_AGAIN).
    pub fn multicast(&mut self, now: Nanos, index: usize, bytes: Vec<u8>) -> Result<(), Vec<u8>> {
        let node = &mut self.nodes[index];
        if !node.up || now < node.busy_until || self.random.permille(5) {
            return Err(bytes);
        }
        let Some(ring) = node.ring else {
            node.waiting.push(bytes);
            return Ok(());
        };
        self.log(now, ring, index, bytes);
        Ok(())
    }

    /// The time of the next event.
    pub fn next(&self) -> Option<Nanos> {
        let received = self.receptions.first().map(|(at, ..)| *at);
        let silent = self.nodes.iter().filter_map(|node| self.puts_out_at(node)).min();
        [received, self.reform_at, silent, self.last_man.next()].into_iter().flatten().min()
    }

    /// When the others expel a node's process.
    fn puts_out_at(&self, node: &Node) -> Option<Nanos> {
        let members = &self.rings.get(&node.ring?)?.members;
        (members.len() > 1 && node.up && !node.frozen).then_some(node.still? + SILENCE_TIMEOUT)
    }

    /// Expels stopped processes, at one position in the order of their ring.
    fn put_out(&mut self, now: Nanos, reach: &dyn Reach) {
        let due = |node: &Node| self.puts_out_at(node).is_some_and(|at| at <= now);
        let Some(ring) = self.nodes.iter().find(|node| due(node)).and_then(|node| node.ring) else { return };
        let members = self.rings.get(&ring).map(|ring| ring.members.clone()).unwrap_or_default();
        let (out, rest): (Vec<usize>, Vec<usize>) = members.iter().partition(|node| due(&self.nodes[**node]));
        let whole = members.iter().all(|a| members.iter().all(|b| a == b || reach.reaches(*a, *b)));
        if !whole || rest.is_empty() {
            // No message of theirs is ordered before the ring is formed again.
            out.iter().for_each(|node| self.nodes[*node].still = Some(now));
            return;
        }
        self.flush(&members);
        let bare = self.bare_of(ring);
        for index in out {
            let node = &mut self.nodes[index];
            (node.ring, node.out) = (None, true);
            self.delivered.push((index, EngineEvent::PutOut));
        }
        self.begin(now, &rest, &bare);
    }

    /// A node's process knows these nodes from now on, after so many changes. The members judge a
    /// ring by the newest that one of them knows, whatever corosync.conf says: the worst corosync
    /// counts by no nodes at all.
    pub fn count_by(&mut self, node: usize, number: u64, nodes: Majorities) {
        self.majorities.insert(node, (number, nodes));
    }

    /// The nodes of the rings that have become quorate since the last call.
    pub fn take_quorate(&mut self) -> Vec<Vec<NodeId>> {
        std::mem::take(&mut self.quorate)
    }

    /// Executes what is due.
    pub fn step(&mut self, now: Nanos, reach: &dyn Reach) {
        self.last_man.step(now);
        if self.reform_at.is_some_and(|at| at <= now) {
            self.reform_at = None;
            self.reform(now, reach);
        }
        self.put_out(now, reach);
        while let Some((at, _, reception)) = self.receptions.first().copied()
            && at <= now
        {
            self.receptions.pop_first();
            self.receive(now, reception, reach);
        }
    }

    /// The deliveries since the last call, in order.
    pub fn take_delivered(&mut self) -> Vec<(usize, EngineEvent)> {
        std::mem::take(&mut self.delivered)
    }

    /// Distributes all nodes to rings of those that hear each other.
    fn reform(&mut self, now: Nanos, reach: &dyn Reach) {
        let mut groups: Vec<Vec<usize>> = Vec::new();
        for node in 0..self.nodes.len() {
            let Node { up, bare, frozen, out, .. } = self.nodes[node];
            if !(up || bare) || frozen || out {
                continue;
            }
            let hears = |other: &usize| reach.reaches(node, *other) && reach.reaches(*other, node);
            match groups.iter_mut().find(|group| group.iter().all(hears)) {
                Some(group) => group.push(node),
                None => groups.push(vec![node]),
            }
        }
        let several = groups.len() > 1;
        for group in groups {
            let (group, bare): (Vec<usize>, Vec<usize>) =
                group.iter().partition(|node| self.nodes[**node].up);
            let Some(first) = group.first() else { continue };
            let ring = self.nodes[*first].ring;
            let same = |node: &usize| ring.is_some() && self.nodes[*node].ring == ring;
            let is_the_same = |ring: &Ring| ring.members == group && ring.bare == bare;
            let stands = group.iter().all(same)
                && ring.and_then(|ring| self.rings.get(&ring)).is_some_and(is_the_same);
            if stands {
                continue;
            }
            if several && self.fate.permille(400) {
                let late = now + self.fate.between(5, 120) * MILLI;
                self.reform_at = Some(self.reform_at.map_or(late, |at| at.min(late)));
                continue;
            }
            // A node that wakes up, or returns from isolation, may first see itself alone.
            if group.len() > 1 && self.random.permille(300) {
                let alone = *self.random.pick(&group).expect("not empty");
                self.form(now, &[alone], &[]);
            }
            self.form(now, &group, &bare);
        }
    }

    /// Forms a new ring.
    fn form(&mut self, now: Nanos, members: &[usize], bare: &[usize]) {
        self.flush(members);
        self.begin(now, members, bare);
    }

    /// Begins a view of these nodes, which have received the same messages of the previous one, in
    /// a ring with the daemons of `bare`.
    fn begin(&mut self, now: Nanos, members: &[usize], bare: &[usize]) {
        let daemons: Vec<usize> = members.iter().chain(bare).copied().collect();
        let seq = daemons.iter().map(|node| self.nodes[*node].seq).max().unwrap_or(0) + RING_STEP;
        let lowest = members.iter().map(|node| self.nodes[*node].id).min();
        let Some(lowest) = lowest else { return };
        let id = RingId { seq, node: u32::from(lowest.get()) };
        let quorate = self.is_quorate(now, members, &daemons, id);
        if quorate && !self.majorities.is_empty() {
            self.quorate.push(daemons.iter().map(|node| self.nodes[*node].id).collect());
        }
        self.views += 1;
        let view =
            View { ring: id, members: members.iter().map(|node| self.nodes[*node].id).collect(), quorate };
        self.rings.insert(id, Ring { members: members.to_vec(), bare: bare.to_vec(), log: Vec::new() });
        bare.iter().for_each(|node| self.nodes[*node].seq = seq);
        for index in members {
            let node = &mut self.nodes[*index];
            (node.ring, node.seq, node.cursor) = (Some(id), seq, 0);
            node.still = node.still.map(|_| now);
            node.busy_until = now + self.random.below(40) * MILLI;
            let mut told = view.clone();
            told.members.rotate_left(self.fate.below(members.len() as u64) as usize);
            self.delivered.push((*index, EngineEvent::View(told)));
        }
        for index in members {
            for bytes in std::mem::take(&mut self.nodes[*index].waiting) {
                if self.random.permille(500) {
                    self.log(now, id, *index, bytes);
                }
            }
        }
        let used: BTreeSet<RingId> = self.nodes.iter().filter_map(|node| node.ring).collect();
        self.rings.retain(|id, _| used.contains(id));
    }
}

#[cfg(test)]
mod tests;
