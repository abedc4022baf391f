//! What goes through CPG: the host's messages, and what processes say of themselves, told apart by
//! the first octet.

use crate::node::NodeId;
use serde::{Deserialize, Serialize};

/// A process in corosync's group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Process {
    /// Corosync's `nodeid`.
    pub(super) node: u32,
    /// As its node counts.
    pub(super) pid: u32,
}

impl Process {
    /// The number of its node, if that is one that a node may have.
    pub(super) fn number(self) -> Option<NodeId> {
        NodeId::new(self.node)
    }
}

/// A ring as Totem names it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Ring {
    /// Grows with every ring.
    pub(super) seq: u64,
    /// Its representative.
    pub(super) node: u32,
}

/// What a process says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Standing {
    /// The first of the members opens an epoch: it has seen the last change. The number is never
    /// given twice.
    Open(u64),
    /// It has seen that the members are quorate.
    Ready(Ready),
    /// They are no longer.
    NotQuorate,
    /// Its host serves it. A process that says it no more is put out.
    Alive,
}

/// For what a process is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Ready {
    /// What the epoch was opened with.
    pub(super) epoch: u64,
    /// The ring that is quorate.
    pub(super) ring: Ring,
    /// The number of the last view of this ring that it has seen begin.
    pub(super) generation: u32,
}

/// The first octet of the host's messages.
const MESSAGE: u8 = 0;
/// The first octet of what a process says of itself; another version of that has another.
const STANDING: u8 = 1;

/// A message that has come, taken apart.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Incoming {
    /// The host's.
    Message(Vec<u8>),
    /// The engine's own.
    Standing(Standing),
    /// Of another version, or broken.
    Unknown,
}

/// The host's message as it goes out.
pub(super) fn message(bytes: &[u8]) -> Vec<u8> {
    let mut framed = Vec::with_capacity(bytes.len().saturating_add(1));
    framed.push(MESSAGE);
    framed.extend_from_slice(bytes);
    framed
}

/// What a process says of itself, as it goes out.
pub(super) fn standing(standing: &Standing) -> Vec<u8> {
    // Plain data into memory: there is nothing that could fail.
    postcard::to_extend(standing, vec![STANDING]).unwrap_or_default()
}

/// Takes a message apart.
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
    fn what_is_framed_comes_apart_again_and_rubbish_is_nothing() {
        let ready = Ready { epoch: u64::MAX, ring: Ring { seq: 1 << 40, node: 3 }, generation: 9 };
        for said in [Standing::Open(7), Standing::Ready(ready), Standing::NotQuorate, Standing::Alive] {
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
