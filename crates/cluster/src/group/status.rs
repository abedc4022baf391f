//! What a group tells operators: its state and its counters, and how often it logs.

use super::{Group, Obstacle, Position, Rosters};
use crate::engine::{RingId, View};
use crate::node::NodeId;
use std::time::Duration;
use testudo_base::shard::ShardSet;
use testudo_base::spi::SenderId;
use testudo_ike::output::Time;

/// How far a node's view has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The engine is gone, or has told no view yet.
    Down,
    /// In a view without quorum.
    NoQuorum,
    /// In a quorate view whose members have not all been heard.
    Exchange,
    /// In a view that has begun.
    Running,
}

/// What a node has counted since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages that were delivered in views.
    pub delivered: u64,
    /// Messages that the engine refused, and that were kept.
    pub refused: u64,
    /// Messages of a view that is over, or of a node that is not in the view.
    pub old_ring: u64,
    /// Messages that cannot be opened: they have another key.
    pub unopened: u64,
    /// Messages and datagrams that have come before, or were sent over another link.
    pub replayed: u64,
    /// Messages and datagrams that cannot be read.
    pub malformed: u64,
    /// Messages and datagrams of another version.
    pub other_version: u64,
    /// Datagrams whose sender does not have the cluster key.
    pub forged: u64,
    /// Heartbeats of nodes that are not configured, or of another boot than is known of the node.
    pub unproven: u64,
    /// How often this node itself was late: paused, or starved.
    pub late: u64,
    /// How often another node became a suspect.
    pub suspicions: u64,
    /// Acknowledgements of other messages than were delivered here.
    pub contradictions: u64,
}

/// What is known of another node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerStatus {
    /// Its number.
    pub node: NodeId,
    /// It is in the view.
    pub member: bool,
    /// When it was last heard, over any link.
    pub heard: Option<Time>,
    /// How long ago it had last heard this node, as its newest heartbeat says. `None` if it had
    /// not.
    pub hears: Option<Duration>,
    /// How much silence makes it a suspect.
    pub threshold: Duration,
    /// It is a suspect.
    pub suspected: bool,
    /// Its links that are up, one bit each, link 0 lowest.
    pub links: u32,
    /// How much of one processor it takes, in thousandths.
    pub load: u16,
    /// The shards whose packets it carries provisionally.
    pub provisional: ShardSet,
    /// The number of messages that it has acknowledged in the view.
    pub acked: Option<u64>,
    /// The highest incarnation that is known to be leased to it.
    pub incarnation: u16,
}

/// The state of a group, for `testudo cluster`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupStatus {
    /// This node.
    pub node: NodeId,
    /// How far its view has come.
    pub phase: Phase,
    /// Why its quorate view does not begin.
    pub obstacle: Option<Obstacle>,
    /// The engine's view.
    pub view: Option<View>,
    /// The members that hold the state, in a view that has begun.
    pub current: Vec<NodeId>,
    /// This node holds the state.
    pub synced: bool,
    /// Up to where messages have been delivered here.
    pub delivered: Position,
    /// Up to where all members hold them.
    pub stable: Position,
    /// The number of this node's messages that wait or are under way.
    pub waiting: usize,
    /// The sender ID that is leased.
    pub sender: Option<SenderId>,
    /// The other nodes, both those configured and those in the view.
    pub peers: Vec<PeerStatus>,
    /// The nodes of the cluster.
    pub rosters: Rosters,
    /// Packets may leave until then.
    pub fence: Time,
    /// What has been counted.
    pub counters: Counters,
}

/// A node's position in the cluster, which costs nothing to tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The ring of its view.
    pub ring: RingId,
    /// Number of quorate views.
    pub epoch: u64,
    /// Number of members of the view.
    pub members: usize,
    /// The view is quorate, and has begun.
    pub quorate: bool,
    /// It has the cluster's state.
    pub synced: bool,
    /// Its quorate view does not begin: a missing node may have the state.
    pub waits: bool,
}

/// The topics of log lines that others can cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Topic {
    Version,
    Forged,
    Excluded,
    Waiting,
}

/// Admits one line a second for each [`Topic`].
#[derive(Clone, Debug, Default)]
pub(super) struct LogLimit([Option<Time>; 4]);

impl LogLimit {
    pub(super) fn admit(&mut self, now: Time, topic: Topic) -> bool {
        let Some(last) = self.0.get_mut(topic as usize) else {
            return false;
        };
        let admitted = last.is_none_or(|last| now.since(last) >= Duration::from_secs(1));
        if admitted {
            *last = Some(now);
        }
        admitted
    }
}

impl Group {
    /// The state of the group, for `testudo cluster`.
    pub fn status(&self) -> GroupStatus {
        let running = self.views.running();
        let history = &self.views.history;
        let held = history.held();
        let mut counters = self.core.counters;
        counters.contradictions = running.map_or(0, |running| running.stability.contradictions);
        GroupStatus {
            node: self.core.node(),
            phase: self.views.phase(),
            obstacle: self.views.obstacle(),
            view: self.views.view().map(|view| View {
                quorate: view.quorate && self.views.phase() != Phase::NoQuorum,
                ..view.clone()
            }),
            current: running.map(|running| running.current.clone()).unwrap_or_default(),
            synced: history.is_synced(),
            delivered: Position { epoch: held.epoch, count: held.count },
            stable: Position {
                epoch: held.epoch,
                count: running.map_or(0, |running| running.stability.stable()),
            },
            waiting: self.outbox.waiting() + self.outbox.in_flight(),
            sender: self.leases.granted(),
            peers: self.peer_status(),
            rosters: self.core.rosters.clone(),
            fence: self.fence.until(),
            counters,
        }
    }

    /// The position of this node; `None` before its first view.
    pub fn standing(&self) -> Option<Standing> {
        let view = self.views.view()?;
        let (phase, history) = (self.views.phase(), &self.views.history);
        let quorate = view.quorate && phase != Phase::NoQuorum;
        Some(Standing {
            ring: view.ring,
            epoch: history.held().epoch,
            members: view.members.len(),
            quorate: quorate && self.views.running().is_some_and(|running| !running.current.is_empty()),
            synced: history.is_synced(),
            waits: quorate && phase == Phase::Exchange,
        })
    }

    fn peer_status(&self) -> Vec<PeerStatus> {
        let suspicion = &self.core.config.suspicion;
        let members = self.views.members();
        let mut nodes: Vec<NodeId> =
            self.core.rosters.nodes().into_keys().chain(members.iter().copied()).collect();
        nodes.sort_unstable();
        nodes.dedup();
        let acked = |node| self.views.running()?.stability.acked(node);
        let incarnation = |node| self.leases.table().find(|(of, _)| *of == node).map_or(0, |(_, n)| n);
        let others = nodes.into_iter().filter(|node| *node != self.core.node());
        others
            .map(|node| {
                let peer = self.vitals.peers.all.get(&node);
                PeerStatus {
                    node,
                    member: members.contains(&node),
                    heard: peer.and_then(|peer| peer.at),
                    hears: peer.and_then(|peer| peer.hears),
                    threshold: peer.map_or(Duration::ZERO, |peer| peer.listener.threshold(suspicion)),
                    suspected: members.contains(&node) && peer.is_some_and(|peer| peer.listener.suspected()),
                    links: peer.map_or(0, |peer| peer.up),
                    load: peer.map_or(0, |peer| peer.load),
                    provisional: peer.map(|peer| peer.provisional).unwrap_or_default(),
                    acked: acked(node),
                    incarnation: incarnation(node),
                }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_others_can_cause_is_logged_once_a_second_for_each_topic() {
        let mut logs = LogLimit::default();
        let at = |millis| Time(Duration::from_millis(millis));
        let admitted: Vec<u64> =
            (0..=2500).step_by(100).filter(|millis| logs.admit(at(*millis), Topic::Forged)).collect();
        assert_eq!(admitted, [0, 1000, 2000]);
        assert!(logs.admit(at(2500), Topic::Version) && !logs.admit(at(2500), Topic::Version));
    }
}
