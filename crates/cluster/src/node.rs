//! Nodes and their numbers.

use serde::{Deserialize, Serialize};
use testudo_base::spi::SenderId;

/// Number of a node of the cluster: corosync's `nodeid`, and the node slot of its sender IDs (RFC
/// 6054).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "u8")]
pub struct NodeId(u8);

/// No node has this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is no number of a node")]
pub struct NotANode(u8);

impl TryFrom<u8> for NodeId {
    type Error = NotANode;

    fn try_from(number: u8) -> Result<Self, NotANode> {
        Self::new(number.into()).ok_or(NotANode(number))
    }
}

impl NodeId {
    /// The highest number: sender IDs have room for no more. 0 stands for a lone gateway.
    pub const MAX: u8 = SenderId::LAST_NODE;

    /// `None` unless the number is 1 to [`Self::MAX`].
    pub fn new(number: u32) -> Option<Self> {
        let number = u8::try_from(number).ok()?;
        (1..=Self::MAX).contains(&number).then_some(Self(number))
    }

    /// The number.
    pub fn get(self) -> u8 {
        self.0
    }

    /// The sender ID of one incarnation of this node. `None` if there is no such incarnation.
    pub fn sender(self, incarnation: u16) -> Option<SenderId> {
        SenderId::from_parts(self.0, incarnation)
    }
}

/// The numbers as a text.
pub fn names(nodes: &[NodeId]) -> String {
    nodes.iter().map(NodeId::to_string).collect::<Vec<_>>().join(", ")
}

impl std::fmt::Display for NodeId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_sender_ids_stay_within_their_bits() {
        assert_eq!(NodeId::new(0), None);
        assert_eq!(NodeId::new(32), None);
        assert_eq!(NodeId::new(257), None);
        let node = NodeId::new(31).unwrap();
        assert_eq!(node.sender(2047), Some(SenderId(u16::MAX)));
        assert_eq!(node.sender(2048), None);
        let read = |octet: u8| postcard::from_bytes::<NodeId>(&[octet]).ok();
        assert_eq!((read(31), read(0), read(32)), (Some(node), None, None));
    }
}
