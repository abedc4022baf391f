//! The other nodes, as their heartbeats show them.

use super::config::GroupConfig;
use super::heartbeat::{Heard, Heartbeat};
use super::ports;
use super::suspicion::Listener;
use crate::engine::RingId;
use crate::node::NodeId;
use std::collections::BTreeMap;
use std::time::Duration;
use testudo_base::shard::ShardSet;
use testudo_ike::output::Time;

/// A node relies on having been heard for as long as the fence, by its own clock; whoever heard it
/// keeps still for an eighth more. That covers clocks whose rates differ by a ninth.
pub(super) fn promise(fence: Duration) -> Duration {
    fence + fence / 8
}

/// One other node.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    /// The boot that its STATUS told, once there was one. Nothing else of it counts.
    pub(super) boot: Option<u64>,
    /// The newest heartbeat over each link, so that none counts twice.
    links: Vec<u64>,
    /// When it was last heard on each.
    pub(super) on: Vec<Option<Time>>,
    /// On which links it says to hear this node, and on which others, as bits.
    pub(super) hearing: (u8, u8),
    /// The newest over any link, and when it came.
    pub(super) seq: u64,
    pub(super) at: Option<Time>,
    /// The newest that it may rely on; 0 if none in the present ring.
    pub(super) proof: u64,
    /// No takeover from it before.
    pub(super) promised: Time,
    /// Our newest heartbeat that we may rely on its having heard, in the present ring.
    pub(super) echoed: u64,
    pub(super) listener: Listener,
    /// When it last said that it was in a quorate view.
    pub(super) quorate: Option<Time>,
    /// How long ago it had heard this node when it was last heard.
    pub(super) hears: Option<Duration>,
    /// What it tells of itself.
    pub(super) up: u32,
    pub(super) load: u16,
    pub(super) provisional: ShardSet,
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
        }
    }

    /// Notes a heartbeat of a link; false if it, or a later one, has been there.
    pub(super) fn admit(&mut self, now: Time, link: u8, seq: u64) -> bool {
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

    /// Notes what its newest heartbeat tells; `hears`: what that says of this node's own.
    pub(super) fn note(&mut self, now: Time, node: NodeId, heartbeat: &Heartbeat, hears: Option<&Heard>) {
        (self.seq, self.at) = (heartbeat.seq, Some(now));
        (self.up, self.load, self.provisional) = (heartbeat.links, heartbeat.load, heartbeat.provisional);
        self.hearing = ports::of(&heartbeat.heard, node);
        self.hears = hears.map(|heard| Duration::from_millis(heard.age.into()));
        if heartbeat.stance.quorate {
            self.quorate = Some(now);
        }
    }
}

/// All of them, and what this node has sent to them.
#[derive(Clone, Debug)]
pub(super) struct Peers {
    pub(super) all: BTreeMap<NodeId, Peer>,
    /// Our last heartbeat.
    pub(super) seq: u64,
    /// When the last ones were sent.
    sent: std::collections::VecDeque<(u64, Time)>,
}

/// So many heartbeats' times are remembered: more than a fence holds.
const MAX_SENT_TIMES: usize = 512;

impl Peers {
    pub(super) fn new(config: &GroupConfig, now: Time) -> Self {
        let others = config.nodes.iter().filter(|node| **node != config.node);
        Self {
            all: others.map(|node| (*node, Peer::new(config, now))).collect(),
            seq: 0,
            sent: std::collections::VecDeque::new(),
        }
    }

    /// The next heartbeat leaves now.
    pub(super) fn send(&mut self, now: Time) -> u64 {
        self.seq += 1;
        self.sent.push_back((self.seq, now));
        if self.sent.len() > MAX_SENT_TIMES {
            self.sent.pop_front();
        }
        self.seq
    }

    /// When a heartbeat was sent.
    pub(super) fn sent(&self, seq: u64) -> Option<Time> {
        let at = self.sent.binary_search_by_key(&seq, |(sent, _)| *sent).ok()?;
        self.sent.get(at).map(|(_, at)| *at)
    }

    /// The exchange has told the boots of the members. Gives the suspects that begin anew.
    pub(super) fn pin(&mut self, boots: &[(NodeId, u64)], now: Time, heartbeat: Duration) -> Vec<NodeId> {
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
            peer.listener = Listener::new(now, heartbeat);
        }
        trusted
    }

    /// This node has yet to hear what has come meanwhile: no node's silence counts until now.
    pub(super) fn grant_all(&mut self, now: Time) {
        self.all.values_mut().for_each(|peer| peer.listener.grant(now));
    }

    /// When a node last said that it was in a quorate view.
    pub(super) fn last_quorate(&self) -> Option<Time> {
        self.all.values().filter_map(|peer| peer.quorate).max()
    }

    /// Those who are silent.
    pub(super) fn suspects(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.all.iter().filter(|(_, peer)| peer.listener.suspected()).map(|(node, _)| *node)
    }

    /// A ring begins: nothing that was heard in another proves anything in it. Gives the suspects
    /// that begin anew in it.
    pub(super) fn ring(&mut self, now: Time, before: &[NodeId], members: &[NodeId]) -> Vec<NodeId> {
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

    /// When the newest heartbeat of ours was sent that `others` members, at least, say they have
    /// heard in this ring.
    pub(super) fn proven(&self, members: &[NodeId], others: usize) -> Option<Time> {
        let mut echoed: Vec<u64> =
            members.iter().filter_map(|node| self.all.get(node)).map(|peer| peer.echoed).collect();
        echoed.sort_unstable_by(|a, b| b.cmp(a));
        self.sent(*echoed.get(others.checked_sub(1)?)?)
    }
}

/// The ring of a node without a view: no engine's counts from 0.
pub(super) const NO_RING: RingId = RingId { seq: 0, node: 0 };
