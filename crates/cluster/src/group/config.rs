//! The settings of a group.

use super::roster::Rosters;
use crate::node::NodeId;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use zeroize::Zeroizing;

/// The secret that all nodes of a cluster have. Keys derived from it protect everything that they
/// say to each other.
#[derive(Clone)]
pub struct ClusterKey(Zeroizing<[u8; Self::LEN]>);

impl ClusterKey {
    /// Octets of a key.
    pub const LEN: usize = 32;

    /// Takes the key over; the caller wipes its own copy.
    pub fn new(key: [u8; Self::LEN]) -> Self {
        Self(Zeroizing::new(key))
    }

    /// The octets, to derive keys from.
    pub fn octets(&self) -> &[u8; Self::LEN] {
        &self.0
    }
}

impl std::fmt::Debug for ClusterKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ClusterKey(..)")
    }
}

/// What a node does when its engine has no quorum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NoQuorum {
    /// Existing SAs go on carrying packets, in number blocks and under a sender ID that the node
    /// already holds.
    #[default]
    Forward,
    /// Nothing leaves.
    Stop,
}

/// Which nodes may go on without the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum QuorumRule {
    /// More than half of the configured nodes.
    #[default]
    Majority,
    /// More than half of the nodes that were left last, or half of them with the lowest: down to
    /// one node.
    LastManStanding,
}

impl QuorumRule {
    /// Its name in testudo.toml.
    pub fn name(self) -> &'static str {
        match self {
            Self::Majority => "majority",
            Self::LastManStanding => "last_man_standing",
        }
    }
}

/// How packets from outside come to the nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ingress {
    /// Switches give every packet to every node.
    #[default]
    Flood,
    /// Routers give each packet to one node. If another node carries it, that node relays it.
    Routed,
}

impl Ingress {
    /// Its name in testudo.toml.
    pub fn name(self) -> &'static str {
        match self {
            Self::Flood => "flood",
            Self::Routed => "routed",
        }
    }
}

/// True if those that vote are more than half of all, or half of them with the first.
pub(crate) fn is_most<T: Copy>(all: impl Iterator<Item = T>, votes: impl Fn(T) -> bool) -> bool {
    let votes: Vec<bool> = all.map(votes).collect();
    let voting = votes.iter().filter(|votes| **votes).count() * 2;
    voting > votes.len() || voting == votes.len() && votes.first() == Some(&true)
}

/// When a silent node becomes a suspect: after the mean time between its heartbeats and a multiple
/// of the mean deviation, within bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SuspicionConfig {
    /// Never before this much silence.
    pub floor: Duration,
    /// Always after this much.
    pub ceiling: Duration,
    /// By how many mean deviations the silence may exceed the mean.
    pub factor: u32,
}

impl Default for SuspicionConfig {
    fn default() -> Self {
        Self { floor: Duration::from_millis(25), ceiling: Duration::from_millis(200), factor: 8 }
    }
}

/// The settings of a group.
#[derive(Clone, Debug)]
pub struct GroupConfig {
    /// This node.
    pub node: NodeId,
    /// The nodes of testudo.toml, this one included. They count until the roster is changed.
    pub roster: Rosters,
    /// The number of links that heartbeats go over. Link 0 is the cluster's own; 1 and up are
    /// ports.
    pub links: u8,
    /// The cluster's secret.
    pub key: ClusterKey,
    /// Time between heartbeats.
    pub heartbeat: Duration,
    /// How long packets may leave after the newest proof that a majority hears this node.
    pub fence: Duration,
    /// When a silent node becomes a suspect.
    pub suspicion: SuspicionConfig,
    /// What to do without a quorum.
    pub no_quorum: NoQuorum,
    /// Which nodes may go on without the others. It is the same on all nodes.
    pub quorum: QuorumRule,
    /// How packets come to the nodes. It is the same on all nodes.
    pub ingress: Ingress,
    /// How many numbers the smallest replay window of a spread tunnel's peer holds.
    pub peer_window: u64,
    /// How long the members of a view in which none holds the latest state wait for a node that may
    /// hold it. Then they begin with nothing. It is shorter than peers wait, and long enough for
    /// hosts that start together.
    pub patience: Duration,
    /// The highest version of updates that this node speaks. A node that does not say speaks
    /// [`Self::OLDEST`].
    pub speaks: u8,
}

impl GroupConfig {
    /// The version that every build speaks.
    pub const OLDEST: u8 = crate::update::OLDEST;
    /// From this version on, what operators do at one node counts for all.
    pub const CONTROL_PLANE: u8 = crate::update::CONTROL_PLANE;
    /// From this version on, nodes can be added and removed.
    pub const ROSTERS: u8 = crate::update::ROSTERS;
    /// The highest version that this build speaks.
    pub const NEWEST: u8 = crate::update::NEWEST;

    /// What a peer's replay window holds if nothing else is said: RFC 4303 §3.4.3 asks for 32
    /// numbers.
    pub const PEER_WINDOW: u64 = 32;

    /// The default times, for one link.
    pub fn new(node: NodeId, nodes: Vec<NodeId>, key: ClusterKey) -> Self {
        Self {
            node,
            roster: Rosters::first(nodes.into_iter().map(|node| (node, Vec::new()))),
            links: 1,
            key,
            heartbeat: Duration::from_millis(10),
            fence: Duration::from_millis(50),
            suspicion: SuspicionConfig::default(),
            no_quorum: NoQuorum::default(),
            quorum: QuorumRule::default(),
            ingress: Ingress::default(),
            peer_window: Self::PEER_WINDOW,
            patience: Duration::from_secs(30),
            speaks: Self::NEWEST,
        }
    }
}
