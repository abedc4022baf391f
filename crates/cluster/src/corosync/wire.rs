//! Messages through CPG: the host's, and statements of the processes, told apart by the first
//! octet.

use crate::group::Majorities;
use crate::node::NodeId;
use serde::{Deserialize, Serialize};

/// A process in corosync's group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Process {
    /// Corosync's `nodeid`.
    pub(super) node: u32,
    /// Process number on its node.
    pub(super) pid: u32,
}

impl Process {
    /// The number of its node, if it is valid.
    pub(super) fn number(self) -> Option<NodeId> {
        NodeId::new(self.node)
    }
}

/// A ring as Totem names it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Ring {
    /// Grows with every ring.
    pub(super) seq: u64,
    /// The ring's representative.
    pub(super) node: u32,
}

/// A statement of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Standing {
    /// The first of the members opens an epoch: it has seen the last change. The number is never
    /// reused.
    Open(u64),
    /// The process has seen that the members are quorate.
    Ready(Ready),
    /// The members are not quorate any more.
    NotQuorate,
    /// The process's host serves it. A process that stops stating this is put out.
    Alive,
    /// The nodes of the cluster, as far as the process knows. Builds of before do not state it.
    Nodes(KnownNodes),
}

/// See [`Standing::Nodes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct KnownNodes {
    /// The number with which the epoch was opened.
    pub(super) epoch: u64,
    /// How often the nodes have been changed.
    pub(super) number: u64,
    /// The nodes.
    pub(super) nodes: Majorities,
}

/// The scope of [`Standing::Ready`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Ready {
    /// The number with which the epoch was opened.
    pub(super) epoch: u64,
    /// The ring that is quorate.
    pub(super) ring: Ring,
    /// The number of the last view of this ring that it has seen begin.
    pub(super) generation: u32,
}

/// First octet of the host's messages.
const MESSAGE: u8 = 0;
/// First octet of a process's statements. Another version of these gets another octet.
const STANDING: u8 = 1;

/// A received message, decoded.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Incoming {
    /// A message of the host.
    Message(Vec<u8>),
    /// A statement of the engine.
    Standing(Standing),
    /// A message of another version, or a damaged one.
    Unknown,
}

/// Encodes a message of the host.
pub(super) fn message(bytes: &[u8]) -> Vec<u8> {
    let mut framed = Vec::with_capacity(bytes.len().saturating_add(1));
    framed.push(MESSAGE);
    framed.extend_from_slice(bytes);
    framed
}

/// Encodes a statement.
pub(super) fn standing(standing: &Standing) -> Vec<u8> {
    // Plain data into memory: this cannot fail.
    postcard::to_extend(standing, vec![STANDING]).unwrap_or_default()
}

/// Decodes a message.
pub(super) fn read(framed: &[u8]) -> Incoming {
    match framed.split_first() {
        Some((&MESSAGE, bytes)) => Incoming::Message(bytes.to_vec()),
        Some((&STANDING, bytes)) => postcard::from_bytes(bytes).map_or(Incoming::Unknown, Incoming::Standing),
        _ => Incoming::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_can_be_parsed_and_garbage_is_ignored() {
        let ready = Ready { epoch: u64::MAX, ring: Ring { seq: 1 << 40, node: 3 }, generation: 9 };
        let known = KnownNodes { epoch: 7, number: 1, nodes: Majorities::of(&[NodeId::new(31).unwrap()]) };
        for said in [
            Standing::Open(7),
            Standing::Ready(ready),
            Standing::NotQuorate,
            Standing::Alive,
            Standing::Nodes(known),
        ] {
            assert_eq!(read(&standing(&said)), Incoming::Standing(said));
        }
        assert_eq!(read(&message(b"state")), Incoming::Message(b"state".to_vec()));
        for rubbish in
            [&b""[..], b"\x02x", b"\x01", b"\x01\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"]
        {
            assert_eq!(read(rubbish), Incoming::Unknown, "{rubbish:?}");
        }
    }
}
