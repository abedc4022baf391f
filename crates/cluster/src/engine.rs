//! What the cluster needs of its engine: membership, total order, quorum.

use crate::node::NodeId;
use serde::{Deserialize, Serialize};

/// Names a membership as the engine's ring protocol does; higher `seq` is later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RingId {
    /// Grows with every change.
    pub seq: u64,
    /// The ring's representative.
    pub node: u32,
}

/// The members that a node agrees on with all of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct View {
    /// Which membership.
    pub ring: RingId,
    /// Sorted.
    pub members: Vec<NodeId>,
    /// A majority of the votes is here: no other view can be quorate beside this one.
    pub quorate: bool,
}

/// What the engine tells, in the one order that all members of a view see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EngineEvent {
    /// A new view. Members that come from the same view have had the same messages before it. The
    /// engine has matched membership and quorum by ring, and holds back the new view's messages
    /// until it has.
    View(View),
    /// A message of a member of the view, one's own included. That it has come says nothing about
    /// who else has it.
    Message {
        /// Its sender.
        from: NodeId,
        /// As multicast.
        bytes: Vec<u8>,
    },
    /// This node stood still, and the others have gone on without it; with that the view is over.
    /// The next one tells that it has joined them again.
    PutOut,
    /// The engine is gone, and with it the view; the next view tells that it is back.
    Down {
        /// Why, for the log.
        reason: String,
    },
    /// Something for the log that operators must mend.
    Notice(String),
}

/// A total-order multicast with views and quorum. Nothing blocks; how to wait for events is each
/// engine's own.
pub trait Engine {
    /// Hands a message over to be multicast. Gives it back if the engine cannot take it now: try
    /// again later.
    fn multicast(&mut self, message: Vec<u8>) -> Result<(), Vec<u8>>;

    /// The next event, if there is one.
    fn next_event(&mut self) -> Option<EngineEvent>;
}
