//! What the group asks of its host, and what it tells the layer above.

use super::outbox::Ticket;
use super::stability::Position;
use crate::engine::View;
use crate::node::NodeId;
use testudo_base::shard::ShardSet;
use testudo_base::spi::SenderId;
use testudo_ike::output::{LogLevel, Time};
use zeroize::Zeroizing;

/// A view begins. All its members see this at the same place in the total order, with the same
/// content but for `wait_until`, which is each one's own clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewStart {
    /// The members that understand each other, sorted, and whether they are a quorum. If not,
    /// nothing is published or becomes stable.
    pub view: View,
    /// Counts quorate views; that of the last one if this one is not quorate.
    pub epoch: u64,
    /// Those who hold the state, sorted. What they have had delivered until now is stable once the
    /// view has begun everywhere. Empty without quorum.
    pub current: Vec<NodeId>,
    /// Those who must be brought up to date, sorted: what they hold, or have published, is void.
    /// Empty without quorum.
    pub fresh: Vec<NodeId>,
    /// Nobody here has the state of the last view: all are in `current` and begin with nothing;
    /// what this node holds of the replicated state is void. So it is at the first start.
    pub reset: bool,
    /// No shard of a node that is not in `current` is taken before: packets of its may leave until
    /// then.
    pub wait_until: Time,
    /// Of what is published: the highest that all members speak.
    pub version: u8,
}

/// One thing for the host to do or the layer above to know, in order.
#[derive(Clone, PartialEq, Eq)]
pub enum GroupOutput {
    /// Hand this to the engine. If the engine refuses, give it back with
    /// [`super::Group::multicast_refused`] before asking for the next output.
    Multicast(Vec<u8>),
    /// Send a datagram to a node over a link; it may be lost.
    Datagram {
        /// To whom.
        to: NodeId,
        /// Over which link.
        link: u8,
        /// What.
        bytes: Vec<u8>,
    },
    /// A view begins.
    View(ViewStart),
    /// The engine is gone, or forms a view: nothing is delivered or becomes stable until the next
    /// [`GroupOutput::View`].
    NoView,
    /// An update, in total order; one's own too.
    Delivered {
        /// Who published it.
        from: NodeId,
        /// Its place. Updates that left together share one.
        at: Position,
        /// What was published.
        update: Zeroizing<Vec<u8>>,
    },
    /// All own updates up to this one are held by every member of the quorate view.
    Stable(Ticket),
    /// Everything delivered up to here is.
    StableUpTo(Position),
    /// A member of the view is silent on all links. Who is still silent when a view begins is named
    /// again behind it.
    Suspected(NodeId),
    /// A suspect is heard again, or begins anew in a view.
    Trusted(NodeId),
    /// What a node tells of itself in its heartbeats has changed.
    Told {
        /// Which node.
        from: NodeId,
        /// Its links that are up, one bit each, link 0 lowest.
        links: u32,
        /// The shards whose packets it carries provisionally.
        provisional: ShardSet,
    },
    /// All ports of this node work, or one of them does not.
    Ports {
        /// See there.
        well: bool,
    },
    /// Packets may leave until then. Extended again and again; taken back after
    /// [`super::Group::rolled_back`], and where the others turn out to have gone on without this
    /// node.
    Fence(Time),
    /// Write this to disk, durably, and then call [`super::Group::persisted`]. Where the
    /// incarnation is another than before, do so before anything else: the next message asks for
    /// it.
    Persist(super::Durable),
    /// A new sender ID is leased to this node.
    Sender(SenderId),
    /// Leave the engine's group and join it again: what the engine told this node is no longer
    /// true.
    Rejoin,
    /// A line for the log.
    Log {
        /// How much it matters.
        level: LogLevel,
        /// The line.
        message: String,
    },
}

/// Without what is in the messages: updates hold keys.
impl std::fmt::Debug for GroupOutput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Multicast(bytes) => write!(f, "Multicast({} octets)", bytes.len()),
            Self::Datagram { to, link, bytes } => {
                write!(f, "Datagram({} octets to node {to} over link {link})", bytes.len())
            }
            Self::View(start) => f.debug_tuple("View").field(start).finish(),
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
            Self::Ports { well } => write!(f, "Ports(well: {well})"),
            Self::Fence(until) => write!(f, "Fence({:?})", until.0),
            Self::Persist(durable) => write!(f, "Persist({durable:?})"),
            Self::Sender(sender) => write!(f, "Sender({:04x})", sender.0),
            Self::Rejoin => f.write_str("Rejoin"),
            Self::Log { level, message } => write!(f, "Log({level:?}: {message})"),
        }
    }
}
