//! What a group asks of its host, and what it tells the layer above.

use super::outbox::Ticket;
use super::relays::RelayKeys;
use super::views::stability::Position;
use crate::engine::View;
use crate::node::NodeId;
use testudo_base::session::Told;
use testudo_base::shard::ShardSet;
use testudo_base::spi::{SenderId, Shard};
use testudo_ike::output::{LogLevel, Time};
use zeroize::Zeroizing;

/// A view begins. All of its members see this at the same place in the total order and with the
/// same content, but for `wait_until`, which is a time of each node's own clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewStart {
    /// The members that understand each other, sorted, and whether they are a quorum. If they are
    /// not, nothing is published or becomes stable.
    pub view: View,
    /// The number of the quorate view; if this one is not quorate, that of the last one.
    pub epoch: u64,
    /// The members that hold the state, sorted. What was delivered to them until now is stable once
    /// the view has begun everywhere. Empty without quorum.
    pub current: Vec<NodeId>,
    /// The members that must be brought up to date, sorted. What they hold, or have published, is
    /// void. Empty without quorum.
    pub fresh: Vec<NodeId>,
    /// No member has the state of the last view. All are in `current` and begin with nothing: what
    /// this node holds of the replicated state is void. The first start of a cluster is such a
    /// case.
    pub reset: bool,
    /// Until then a node that is not in `current` may still send packets. No shard of such a node
    /// is taken before.
    pub wait_until: Time,
    /// The highest version of updates that all members speak.
    pub version: u8,
}

/// One thing for the host to do, or for the layer above to know. Their order counts.
#[derive(Clone, PartialEq, Eq)]
pub enum GroupOutput {
    /// Hand this to the engine. If the engine refuses, give it back with
    /// [`super::Group::multicast_refused`] before asking for the next output.
    Multicast(Vec<u8>),
    /// Send a datagram to a node over a link. It may be lost.
    Datagram {
        /// The node.
        to: NodeId,
        /// The link.
        link: u8,
        /// The datagram.
        bytes: Vec<u8>,
    },
    /// A view begins.
    View(ViewStart),
    /// What protects packets on their way to other members of the view that has just begun, and
    /// back. It replaces that of earlier views. Only with [`super::Ingress::Routed`].
    RelayKeys(Vec<RelayKeys>),
    /// A member of the view has sent this with [`super::Group::relay`].
    Relayed {
        /// The member.
        from: NodeId,
        /// What it has sent.
        octets: Vec<u8>,
    },
    /// The engine is gone, or forms a view: nothing is delivered or becomes stable until the next
    /// [`GroupOutput::View`].
    NoView,
    /// An update, in total order. A node's own updates are delivered too.
    Delivered {
        /// The node that published it.
        from: NodeId,
        /// Its place. Updates that left in one message have the same place.
        at: Position,
        /// The update.
        update: Zeroizing<Vec<u8>>,
    },
    /// Every member of the quorate view holds this node's updates up to this one.
    Stable(Ticket),
    /// Every member of the quorate view holds everything that was delivered up to here.
    StableUpTo(Position),
    /// A member of the view is silent on all links. If it is still silent when a view begins, it is
    /// named again after [`GroupOutput::View`].
    Suspected(NodeId),
    /// A suspect is heard again, or begins anew in a view.
    Trusted(NodeId),
    /// What a node says of itself in its heartbeats has changed.
    Told {
        /// The node.
        from: NodeId,
        /// Its links that are up, one bit each, link 0 lowest.
        links: u32,
        /// The shards whose packets it carries provisionally.
        provisional: ShardSet,
    },
    /// How far the row clocks of these shards have come at another node.
    RowClocks(Vec<(Shard, u64)>),
    /// What a node says of the slots of sessions.
    Sessions {
        /// The node.
        from: NodeId,
        /// The slots.
        told: Vec<Told>,
    },
    /// All ports of this node work, or one of them does not.
    Ports {
        /// True if all of them work.
        well: bool,
    },
    /// Packets may leave until then. This is extended again and again. It is taken back after
    /// [`super::Group::rolled_back`], and when this node hears that the others have gone on without
    /// it.
    Fence(Time),
    /// Write this to the disk, durably, and then call [`super::Group::persisted`]. If the
    /// incarnation has changed, do so before anything else: the next message asks for it.
    Persist(super::Durable),
    /// A new sender ID is leased to this node.
    Sender(SenderId),
    /// Leave the engine's group and join it again: what the engine told this node is no longer
    /// true.
    Rejoin,
    /// Leave the engine's group for good: this node is not one of the cluster's.
    Leave,
    /// The nodes of the cluster have changed: see [`super::Group::rosters`].
    Rosters,
    /// A line for the log.
    Log {
        /// Its level.
        level: LogLevel,
        /// The line.
        message: String,
    },
}

/// Without the content of messages: updates hold keys.
impl std::fmt::Debug for GroupOutput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Multicast(bytes) => write!(f, "Multicast({} octets)", bytes.len()),
            Self::Datagram { to, link, bytes } => {
                write!(f, "Datagram({} octets to node {to} over link {link})", bytes.len())
            }
            Self::View(start) => f.debug_tuple("View").field(start).finish(),
            Self::RelayKeys(keys) => f.debug_tuple("RelayKeys").field(keys).finish(),
            Self::Relayed { from, octets } => write!(f, "Relayed({} octets from node {from})", octets.len()),
            Self::NoView => f.write_str("NoView"),
            Self::Delivered { from, at, update } => {
                write!(f, "Delivered({} octets from node {from} at {}.{})", update.len(), at.epoch, at.count)
            }
            Self::Stable(ticket) => write!(f, "Stable({})", ticket.0),
            Self::StableUpTo(at) => write!(f, "StableUpTo({}.{})", at.epoch, at.count),
            Self::Suspected(node) => write!(f, "Suspected({node})"),
            Self::Trusted(node) => write!(f, "Trusted({node})"),
            Self::Told { from, links, provisional } => {
                write!(f, "Told(node {from}: links {links:b}, {} shards provisionally)", provisional.len())
            }
            Self::RowClocks(clocks) => write!(f, "RowClocks({} shards)", clocks.len()),
            Self::Sessions { from, told } => write!(f, "Sessions(node {from}: {} slots)", told.len()),
            Self::Ports { well } => write!(f, "Ports(well: {well})"),
            Self::Fence(until) => write!(f, "Fence({:?})", until.0),
            Self::Persist(durable) => write!(f, "Persist({durable:?})"),
            Self::Sender(sender) => write!(f, "Sender({:04x})", sender.0),
            Self::Rejoin => f.write_str("Rejoin"),
            Self::Leave => f.write_str("Leave"),
            Self::Rosters => f.write_str("Rosters"),
            Self::Log { level, message } => write!(f, "Log({level:?}: {message})"),
        }
    }
}
