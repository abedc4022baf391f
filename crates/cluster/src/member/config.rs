//! Settings of a member.

use super::FollowConfig;
use super::numbers::line_rates::ASSUMED_PACKETS_PER_SECOND;
use crate::group::GroupConfig;
use std::collections::BTreeMap;
use std::time::Duration;
use testudo_base::lane::Spread;
use testudo_ike::endpoint::EndpointConfig;

/// Settings of a [`super::Member`].
#[derive(Clone, Debug)]
pub struct MemberConfig {
    /// The group: its nodes, and how they watch each other.
    pub group: GroupConfig,
    /// Settings of IKE. The member turns on the tracking of changes itself.
    pub endpoint: EndpointConfig,
    /// The most packets a second that the ports of this node can receive, until
    /// [`super::Member::set_line_rate`] sets it from the real ports. It bounds the packets of one
    /// SA that a node can accept without reporting them before it dies.
    pub line_rate: u64,
    /// How long the loss of a node may go unnoticed.
    pub detection: Duration,
    /// True if all nodes have the same configuration.
    pub replicate_configuration: bool,
    /// Synchronise the Message IDs of every IKE SA that is taken over from a dead node, if its peer
    /// supports it (RFC 6311).
    pub message_id_sync: bool,
    /// Bound on the bulk blocks that the data plane is given in one turn, unless packets wait for
    /// them: about a millisecond's work. A view brings tens of thousands.
    pub blocks_at_once: usize,
    /// How long a node that is to give its shards away waits before it offers them, so that routers
    /// stop giving it packets.
    pub withdraw: Duration,
    /// How shards move to the nodes that their packets reach.
    pub follow: FollowConfig,
    /// Connections whose Child SAs are spread over all nodes. The same on all nodes.
    pub spread: BTreeMap<String, Spread>,
}

impl MemberConfig {
    /// Settings with all defaults.
    pub fn new(group: GroupConfig) -> Self {
        Self {
            group,
            endpoint: EndpointConfig::default(),
            line_rate: ASSUMED_PACKETS_PER_SECOND,
            detection: Duration::from_millis(500),
            replicate_configuration: true,
            message_id_sync: false,
            blocks_at_once: 1024,
            withdraw: Duration::ZERO,
            follow: FollowConfig::default(),
            spread: BTreeMap::new(),
        }
    }
}
