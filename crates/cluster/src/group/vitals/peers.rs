//! What this node knows of the others by their heartbeats.

use super::ports;
use super::suspicion::Listener;
use crate::engine::RingId;
use crate::group::config::GroupConfig;
use crate::group::heartbeat::{Heard, Heartbeat};
use crate::group::roster::Rosters;
use crate::node::NodeId;
use std::collections::BTreeMap;
use std::time::Duration;
use testudo_base::shard::ShardSet;
use testudo_ike::output::Time;

/// How long a promise lasts. By its own clock a node relies on having been heard for as long as the
/// fence; the node that heard it keeps still for an eighth more. That covers clocks whose rates
/// differ by a ninth.
pub(in crate::group) fn promise(fence: Duration) -> Duration {
    fence + fence / 8
}

/// One other node.
#[derive(Clone, Debug)]
pub(in crate::group) struct Peer {
    /// Its boot, by its last STATUS. Heartbeats of another boot do not count.
    pub(in crate::group) boot: Option<u64>,
    /// Its newest heartbeat over each link, so that none counts twice.
    links: Vec<u64>,
    /// When it was last heard on each link.
    pub(in crate::group) on: Vec<Option<Time>>,
    /// The links on which it says that it hears this node, and those on which it hears others, one
    /// bit each.
    pub(in crate::group) hearing: (u8, u8),
    /// Its newest heartbeat over any link, and when that came.
    pub(in crate::group) seq: u64,
    pub(in crate::group) at: Option<Time>,
    /// Its newest heartbeat that it may rely on; 0 if there is none in the present ring.
    pub(in crate::group) proof: u64,
    /// This node has promised not to take its shards before.
    pub(in crate::group) promised: Time,
    /// This node's newest heartbeat of which it says, in the present ring, that this node may rely
    /// on it.
    pub(in crate::group) echoed: u64,
    pub(in crate::group) listener: Listener,
    /// When it last said that it was in a quorate view.
    pub(in crate::group) quorate: Option<Time>,
    /// How long ago it had last heard this node, when it said so.
    pub(in crate::group) hears: Option<Duration>,
    /// What it says of itself: links that are up, load, shards that it carries provisionally.
    pub(in crate::group) up: u32,
    pub(in crate::group) load: u16,
    pub(in crate::group) provisional: ShardSet,
    /// Its newest datagram about sessions.
    pub(in crate::group) sessions: u64,
}

impl Peer {
    fn new(config: &GroupConfig, now: Time) -> Self {
        Self {
            boot: None,
            links: vec![0; usize::from(config.links)],
            on: vec![None; usize::from(config.links)],
            hearing: (0, 0),
            seq: 0,
            at: None,
            proof: 0,
            // Before a restart this node may have promised anything.
            promised: now.plus(promise(config.fence)),
            echoed: 0,
            listener: Listener::new(now, config.heartbeat),
            quorate: None,
            hears: None,
            up: u32::MAX,
            load: 0,
            provisional: ShardSet::EMPTY,
            sessions: 0,
        }
    }

    /// Notes a heartbeat of a link. False if it, or a later one, has come before.
    pub(in crate::group) fn admit(&mut self, now: Time, link: u8, seq: u64) -> bool {
        let at = usize::from(link);
        let (Some(last), Some(on)) = (self.links.get_mut(at), self.on.get_mut(at)) else {
            return false;
        };
        let new = seq > *last;
        if new {
            (*last, *on) = (seq, Some(now));
        }
        new
    }

    /// Notes what its newest heartbeat says. `hears`: what that says of this node's.
    pub(in crate::group) fn note(
        &mut self,
        now: Time,
        node: NodeId,
        heartbeat: &Heartbeat,
        hears: Option<&Heard>,
    ) {
        (self.seq, self.at) = (heartbeat.seq, Some(now));
        (self.up, self.load, self.provisional) = (heartbeat.links, heartbeat.load, heartbeat.provisional);
        self.hearing = ports::of(&heartbeat.heard, node);
        self.hears = hears.map(|heard| Duration::from_millis(heard.age.into()));
        if heartbeat.stance.quorate {
            self.quorate = Some(now);
        }
    }
}

/// All other nodes, and what this node has sent to them.
#[derive(Clone, Debug)]
pub(in crate::group) struct Peers {
    pub(in crate::group) all: BTreeMap<NodeId, Peer>,
    /// This node's last heartbeat.
    pub(in crate::group) seq: u64,
    /// When this node's last heartbeats were sent.
    sent: std::collections::VecDeque<(u64, Time)>,
}

/// Of how many heartbeats the times are remembered: more than leave during a fence.
const MAX_SENT_TIMES: usize = 512;

impl Peers {
    pub(in crate::group) fn new(config: &GroupConfig, rosters: &Rosters, now: Time) -> Self {
        let mut peers = Self { all: BTreeMap::new(), seq: 0, sent: std::collections::VecDeque::new() };
        peers.follow(config, rosters, now);
        peers
    }

    /// The nodes of the cluster are these from now on.
    pub(in crate::group) fn follow(&mut self, config: &GroupConfig, rosters: &Rosters, now: Time) {
        self.all.retain(|node, _| rosters.has(*node));
        for node in rosters.nodes().into_keys().filter(|node| *node != config.node) {
            self.all.entry(node).or_insert_with(|| Peer::new(config, now));
        }
    }

    /// The next heartbeat leaves now.
    pub(in crate::group) fn send(&mut self, now: Time) -> u64 {
        self.seq += 1;
        self.sent.push_back((self.seq, now));
        if self.sent.len() > MAX_SENT_TIMES {
            self.sent.pop_front();
        }
        self.seq
    }

    /// When a heartbeat of this node was sent.
    pub(in crate::group) fn sent(&self, seq: u64) -> Option<Time> {
        let at = self.sent.binary_search_by_key(&seq, |(sent, _)| *sent).ok()?;
        self.sent.get(at).map(|(_, at)| *at)
    }

    /// A view begins, and the exchange has told the boots of its members. Gives the suspects that
    /// have another boot than before: they begin anew.
    pub(in crate::group) fn pin(
        &mut self,
        boots: &[(NodeId, u64)],
        now: Time,
        heartbeat: Duration,
    ) -> Vec<NodeId> {
        let mut trusted = Vec::new();
        for (node, boot) in boots {
            let Some(peer) = self.all.get_mut(node).filter(|peer| peer.boot != Some(*boot)) else {
                continue;
            };
            trusted.extend(peer.listener.suspected().then_some(*node));
            peer.boot = Some(*boot);
            peer.links.fill(0);
            peer.on.fill(None);
            peer.hearing = (0, 0);
            (peer.seq, peer.proof, peer.echoed, peer.at) = (0, 0, 0, None);
            peer.sessions = 0;
            peer.listener = Listener::new(now, heartbeat);
        }
        trusted
    }

    /// This node has yet to hear what has come meanwhile: no node's silence counts until now.
    pub(in crate::group) fn grant_all(&mut self, now: Time) {
        self.all.values_mut().for_each(|peer| peer.listener.grant(now));
    }

    /// When a node last said that it was in a quorate view.
    pub(in crate::group) fn last_quorate(&self) -> Option<Time> {
        self.all.values().filter_map(|peer| peer.quorate).max()
    }

    /// The nodes that are suspects.
    pub(in crate::group) fn suspects(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.all.iter().filter(|(_, peer)| peer.listener.suspected()).map(|(node, _)| *node)
    }

    /// A ring begins. What was heard in another ring proves nothing in it. Gives the suspects that
    /// begin anew in it.
    pub(in crate::group) fn ring(&mut self, now: Time, before: &[NodeId], members: &[NodeId]) -> Vec<NodeId> {
        let mut trusted = Vec::new();
        for (node, peer) in &mut self.all {
            (peer.proof, peer.echoed) = (0, 0);
            if members.contains(node) && !before.contains(node) {
                trusted.extend(peer.listener.clear().then_some(*node));
                peer.listener.grant(now);
            }
        }
        trusted
    }

    /// When this node sent the newest heartbeat that at least `others` members say they have heard
    /// in this ring.
    pub(in crate::group) fn proven(&self, members: &[NodeId], others: usize) -> Option<Time> {
        let mut echoed: Vec<u64> =
            members.iter().filter_map(|node| self.all.get(node)).map(|peer| peer.echoed).collect();
        echoed.sort_unstable_by(|a, b| b.cmp(a));
        self.sent(*echoed.get(others.checked_sub(1)?)?)
    }
}

/// The ring of a node without a view. No engine counts its rings from 0.
pub(in crate::group) const NO_RING: RingId = RingId { seq: 0, node: 0 };
