//! What a member is told at its start.

use super::numbers::line_rates::ASSUMED_PACKETS_PER_SECOND;
use crate::group::GroupConfig;
use std::time::Duration;
use testudo_ike::endpoint::EndpointConfig;

/// Settings of a [`super::Member`].
#[derive(Clone, Debug)]
pub struct MemberConfig {
    /// The group: who the nodes are, and how they watch each other.
    pub group: GroupConfig,
    /// IKE. That changes are tracked is seen to.
    pub endpoint: EndpointConfig,
    /// Packets a second that the ports of this node can bring it at most, until it is told which
    /// ports it has ([`super::Member::set_line_rate`]): so many it can take in on one SA, and does
    /// not tell the others of before it dies.
    pub line_rate: u64,
    /// How long the loss of a node may go unnoticed.
    pub detection: Duration,
    /// What is configured on one node is configured on all.
    pub replicate_configuration: bool,
    /// Make sure of the Message IDs of every IKE SA that is taken over from a node that died, if
    /// its peer can (RFC 6311).
    pub message_id_sync: bool,
    /// Of the blocks of numbers that a view brings by the ten thousand, as many as the data plane
    /// is given in a turn, unless packets wait for them: a millisecond's worth.
    pub blocks_at_once: usize,
}

impl MemberConfig {
    /// With the defaults of everything that has one.
    pub fn new(group: GroupConfig) -> Self {
        Self {
            group,
            endpoint: EndpointConfig::default(),
            line_rate: ASSUMED_PACKETS_PER_SECOND,
            detection: Duration::from_millis(500),
            replicate_configuration: true,
            message_id_sync: false,
            blocks_at_once: 1024,
        }
    }
}
