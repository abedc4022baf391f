//! What the group is told at its start.

use crate::node::NodeId;
use std::time::Duration;
use zeroize::Zeroizing;

/// The secret that all nodes of a cluster shard. Everything that they say to each other is
/// protected by keys derived from it.
#[derive(Clone)]
pub struct ClusterKey(Zeroizing<[u8; Self::LEN]>);

impl ClusterKey {
    /// Octets of a key.
    pub const LEN: usize = 32;

    /// Takes the key over; the caller wipes its own copy.
    pub fn new(key: [u8; Self::LEN]) -> Self {
        Self(Zeroizing::new(key))
    }

    /// For deriving keys from it.
    pub fn octets(&self) -> &[u8; Self::LEN] {
        &self.0
    }
}

impl std::fmt::Debug for ClusterKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ClusterKey(..)")
    }
}

/// What a node does whose engine has no quorum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NoQuorum {
    /// Existing SAs go on carrying packets, in the number blocks and under the sender ID already
    /// held.
    #[default]
    Forward,
    /// Nothing leaves.
    Stop,
}

/// When a silent node becomes a suspect: after the mean between its heartbeats plus so many
/// deviations, within bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SuspicionConfig {
    /// Never before this much silence.
    pub floor: Duration,
    /// Always after this much.
    pub ceiling: Duration,
    /// How many mean deviations the silence may exceed the mean by.
    pub factor: u32,
}

impl Default for SuspicionConfig {
    fn default() -> Self {
        Self { floor: Duration::from_millis(25), ceiling: Duration::from_millis(200), factor: 8 }
    }
}

/// What the group is told at its start.
#[derive(Clone, Debug)]
pub struct GroupConfig {
    /// This node.
    pub node: NodeId,
    /// All nodes of the cluster, this one included: what a majority is a majority of.
    pub nodes: Vec<NodeId>,
    /// How many links heartbeats go over: 0 is the cluster's own, 1 and up are the ports.
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
    /// How long the nodes of a view in which nobody holds the latest state wait for who may. Then
    /// they begin with nothing: shorter than peers are patient, and longer than hosts take to start
    /// together.
    pub patience: Duration,
    /// The highest version of what is published that this node speaks. The first version is what
    /// nodes speak that do not say.
    pub speaks: u8,
}

impl GroupConfig {
    /// What every build speaks.
    pub const OLDEST: u8 = crate::update::OLDEST;
    /// From this one on what operators do at one node counts for all.
    pub const CONTROL_PLANE: u8 = crate::update::CONTROL_PLANE;
    /// The highest that this build speaks.
    pub const NEWEST: u8 = crate::update::NEWEST;

    /// The usual times, for one link.
    pub fn new(node: NodeId, nodes: Vec<NodeId>, key: ClusterKey) -> Self {
        Self {
            node,
            nodes,
            links: 1,
            key,
            heartbeat: Duration::from_millis(10),
            fence: Duration::from_millis(50),
            suspicion: SuspicionConfig::default(),
            no_quorum: NoQuorum::default(),
            patience: Duration::from_secs(30),
            speaks: Self::NEWEST,
        }
    }

    /// The smallest number of nodes that any two of make an overlap, of those configured.
    pub(super) fn majority(&self) -> usize {
        self.nodes.len() / 2 + 1
    }
}
