//! The interface of the engine: membership, total order, quorum.

use crate::node::NodeId;
use serde::{Deserialize, Serialize};

/// Names a membership as the engine's ring protocol does. A higher `seq` is later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RingId {
    /// Grows with every membership.
    pub seq: u64,
    /// The ring's representative.
    pub node: u32,
}

/// A membership on which all of its members agree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct View {
    /// The membership's name.
    pub ring: RingId,
    /// The members, sorted.
    pub members: Vec<NodeId>,
    /// True with a majority of the votes: no other view can be quorate beside this one.
    pub quorate: bool,
}

/// Events of the engine, in the order that all members of a view share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EngineEvent {
    /// A new view. Members that come from the same view have had the same messages before it. The
    /// engine has matched membership and quorum by ring, and holds back the new view's messages
    /// until it has.
    View(View),
    /// A message of a member of the view, this node included. Its delivery says nothing about which
    /// other members have it.
    Message {
        /// Its sender.
        from: NodeId,
        /// The message.
        bytes: Vec<u8>,
    },
    /// This node stood still, and the others have gone on without it. The view is over. The next
    /// view says that this node has joined them again.
    PutOut,
    /// The engine is gone, and the view with it. The next view says that the engine is back.
    Down {
        /// The reason, for the log.
        reason: String,
    },
    /// A problem that the operator must fix, for the log.
    Notice(String),
}

/// A total-order multicast with views and quorum. No call blocks. How to wait for events is up to
/// each engine.
pub trait Engine {
    /// Multicasts a message. Returns it if the engine cannot take it now: try again later.
    fn multicast(&mut self, message: Vec<u8>) -> Result<(), Vec<u8>>;

    /// The next event, if there is one.
    fn next_event(&mut self) -> Option<EngineEvent>;
}
