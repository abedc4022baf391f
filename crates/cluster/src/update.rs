//! Updates: messages in which the owners of shards publish changes, with the names of [HA]. An
//! update holds everything that one event has changed. It is delivered whole or not at all, so that
//! no survivor has half of a rekey.
//!
//! [HA]: strongSwan's high availability plugin has the same names.

mod operator;
mod stripe;

pub(crate) use operator::{Answer, Answered, Configure, Manifest, RemoteEvent};
pub use operator::{Ask, Class, Effect, InitiationOutcome, PieceName, Sa};
pub(crate) use stripe::Stripe;

use crate::node::NodeId;
use crate::shard::Ranking;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::time::Duration;
use testudo_base::shard::ShardSet;
use testudo_base::spi::{Shard, Spi};
use testudo_base::turn::InTurn;
use testudo_ike::delta::Delta;
use testudo_ike::endpoint::{Contact, Outline, SnapshotVersion};
use testudo_ike::message::IkeSpi;
use testudo_ike::output::{CommitId, Path};
use testudo_ipsec::sa::ChildSaParams;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

/// The update versions that this build supports. The nodes of a view use the highest version that
/// all of them support, so that nodes can be upgraded one by one. 15 ends with [`Op::Resynced`]. 17
/// has no new operation: a node of that version is brought up to date beside the engine. 18 has
/// more in the states of IKE SAs: see [`states`]. 19 brought [`Op::LineRate`]. 20 again has more in
/// the states of IKE SAs. 21 brought [`Effect::Replace`]. 22 brought Child SAs that are spread over
/// the nodes, 23 [`Ranking::Balanced`] and other lanes. 24 brought [`Op::EngineNodes`]. 25 brought
/// [`Op::LaneFloors`], [`Op::Prefer`], and SAs of their own for the ESP and AH that nodes relay. 26
/// brought [`Op::ChildProven`]. 27 brought marks of shared keys into the states of IKE SAs. 28
/// brought lanes that take turns, 29 sessions that do.
pub(crate) const OLDEST: u8 = 15;
pub(crate) const NEWEST: u8 = 29;
/// The version that brought [`Op::Configure`] and all operations after it, and RFC 6311 in the
/// states of IKE SAs.
pub(crate) const CONTROL_PLANE: u8 = 16;
/// The version that brought a moved peer's former address and its proof into the states of IKE SAs.
const ORIGINS: u8 = 18;

/// The version that brought [`Op::LineRate`].
pub(crate) const LINE_RATES: u8 = 19;

/// The version that brought the earlier rounds of authentication (RFC 4739) into the states of IKE
/// SAs.
const EARLIER_ROUNDS: u8 = 20;

/// The version that brought [`Effect::Replace`].
pub(crate) const REPLACEMENTS: u8 = 21;

/// The first version whose nodes spread Child SAs as this one does. [`Op::SpreadChild`],
/// [`Op::Stripe`] and [`Op::LaneTops`] came with 22, whose lanes were others.
pub(crate) const SPREADING: u8 = 23;

/// The version that brought changes of the roster, and [`Op::EngineNodes`].
pub(crate) const ROSTERS: u8 = 24;

/// The version that brought relay SAs of the kind `Head`.
pub(crate) const RELAYED_HEADS: u8 = 25;

/// The version that brought [`Op::LaneFloors`], and Child SAs that are spread over nodes behind
/// routers.
pub(crate) const LANE_FLOORS: u8 = 25;

/// The version in which shards move to the nodes that their packets reach: it brought
/// [`Op::Prefer`] and [`Op::Preferences`].
pub(crate) const FOLLOWING: u8 = 25;

/// The version that brought [`Op::ChildProven`].
pub(crate) const PROOFS: u8 = 26;

/// The version that brought marks of the shared keys on which they rest into the states of IKE SAs.
const SHARED_KEYS: u8 = 27;

/// The version that brought lanes that take turns ([`testudo_base::turn`]).
const TURNS: u8 = 28;

/// The version that brought sessions that take turns, of which nodes tell each other
/// ([`testudo_base::session`]).
const SESSIONS: u8 = 29;

/// What takes turns between nodes of this version.
pub(crate) fn in_turn(version: u8) -> InTurn {
    match version {
        SESSIONS.. => InTurn::Sessions,
        TURNS.. => InTurn::Packets,
        _ => InTurn::Nothing,
    }
}

/// How nodes of this version rank for a shard.
pub(crate) fn ranking(version: u8) -> Ranking {
    const BALANCED: u8 = 23;
    if version < BALANCED { Ranking::Hashed } else { Ranking::Balanced }
}

/// The format of IKE SA states between nodes of this version.
pub(crate) fn states(version: u8) -> SnapshotVersion {
    match version {
        ..CONTROL_PLANE => SnapshotVersion::V26,
        CONTROL_PLANE..ORIGINS => SnapshotVersion::V27,
        ORIGINS..EARLIER_ROUNDS => SnapshotVersion::V28,
        EARLIER_ROUNDS..SHARED_KEYS => SnapshotVersion::V29,
        SHARED_KEYS.. => SnapshotVersion::V31,
    }
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Op {
    /// IKE_ADD: the whole state of an IKE SA, including pending exchanges and their octets.
    Ike(Box<IkeState>),
    /// IKE_MID_I: our window has moved, by a request of ours or its response.
    IkeMidI(Box<IkeChange>),
    /// IKE_MID_R: the peer's window has moved: a request is answered, and its answer kept.
    IkeMidR(Box<IkeChange>),
    /// IKE_UPDATE: both windows have moved, or something else has changed.
    IkeUpdate(Box<IkeChange>),
    /// The sender cannot apply a change to its state, and has discarded that state: the owner must
    /// publish the whole one.
    IkeWanted { spi: IkeSpi },
    /// IKE_DELETE: nothing is left of the IKE SA, not even a response to repeat.
    IkeDelete { spi: IkeSpi },
    /// CHILD_ADD: a Child SA, new or sent again to a node that must be brought up to date.
    Child(Box<ChildState>),
    /// Outbound traffic moves from `from` to `to`.
    ChildSwitch { from: Spi, to: Spi },
    /// A Child SA that came up beside another one sends now.
    ChildStart { spi: Spi },
    /// CHILD_UPDATE: the peer has moved.
    ChildUpdate { spi: Spi, path: Path },
    /// CHILD_DELETE: its slot rests on every node.
    ChildDelete { spi: Spi },
    /// RENEW: the owner goes on with these numbers when its present block is used up.
    Renew(Grants),
    /// BUMP: owner and standby go on with these numbers at once.
    Bump(Grants),
    /// EDGES: inbound high-water marks of the owner. `all_of`: shards that it carries and whose
    /// moved marks have all been published. In another view than that of `epoch` a mark only says
    /// what once was.
    HighWaterMarks { moved: Vec<(Spi, u64)>, all_of: ShardSet, epoch: u64 },
    /// MTU: path MTUs.
    PathMtus(Vec<PathMtu>),
    /// SEG_OFFER: the owner will give shards to other nodes, which keep back packets for them from
    /// now on.
    SegOffer(Offer),
    /// SEG_DROP: the owner has given the shard to node `to`, in the view of `epoch`. In a later
    /// view it is void.
    SegDrop { shard: Shard, to: NodeId, epoch: u64, left: Left },
    /// The sender has lost a port, or has all of them again.
    Fit { fit: bool },
    /// An operator drains a node, or lets it own shards again.
    Drain { node: NodeId, drained: bool },
    /// RESYNC begins: the following updates bring the fresh nodes of the view up to date with the
    /// sender's shards. `owners`: the number of each shard's owner at the start of the view;
    /// `unfit`: nodes that have lost a port; `drained`: nodes that should own nothing.
    Resync { epoch: u64, owners: Vec<u8>, unfit: Vec<NodeId>, drained: Vec<NodeId> },
    /// RESYNC ends: everything has been sent.
    Resynced { epoch: u64 },
    /// A command of an operator changes the configuration of all nodes.
    Configure(Box<Configure>),
    /// A piece of the configuration that all but the fresh nodes of the view have.
    Piece { epoch: u64, name: PieceName, octets: Secret },
    /// All pieces have been sent.
    Pieces { epoch: u64 },
    /// The sender's configuration digests.
    Manifest(Manifest),
    /// An operator on the sender's node gives a task to an SA's owner.
    Ask { job: u64, ask: Ask },
    /// The result of a task.
    Answer(Answer),
    /// An event of one of the sender's SAs.
    RemoteEvent(RemoteEvent),
    /// The most packets a second that the sender's ports can receive.
    LineRate { rate: u64 },
    /// CHILD_ADD of a Child SA that is spread over the nodes, with its latest stripe.
    SpreadChild { child: Box<ChildState>, stripe: Stripe },
    /// RENEW of a spread Child SA: from the stripe's first row on, nodes go on with its numbers.
    Stripe(Stripe),
    /// EDGES of spread Child SAs: the highest numbers that the sender has accepted in lanes that it
    /// has stopped carrying.
    LaneTops(Vec<(Spi, Vec<(Shard, u64)>)>),
    /// The nodes that the sender's engine is configured with.
    EngineNodes { nodes: Vec<NodeId> },
    /// Spread Child SAs of which the sender has taken lanes, and numbers up to which it counts all
    /// of them as seen. They may lie above all that the peer has sent.
    LaneFloors(Vec<(Spi, u64)>),
    /// A shard is to go to the node that its packets reach, or back to its first rank.
    Prefer { shard: Shard, preference: Preference },
    /// The preferences at the start of the view, for nodes that are brought up to date. It comes
    /// before [`Op::Resync`].
    Preferences { epoch: u64, of: Vec<(Shard, Preference)> },
    /// The sender has received an authentic packet on a spread Child SA of another node: its peer
    /// uses it.
    ChildProven { spi: Spi },
}

/// Where a shard should be, if that is not its first rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Preference {
    /// The node that the shard's packets reach.
    pub(crate) node: Option<NodeId>,
    /// How unsteady they were: it doubles how long they must reach another node.
    pub(crate) level: u8,
}

/// An IKE SA.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct IkeState {
    pub(crate) outline: Outline,
    /// Time since the export: the times in the state are on the clock of that moment.
    pub(crate) age: Duration,
    pub(crate) state: Secret,
    /// Present if the IKE SA is established now: the older IKE SAs of its peer end. It has the same
    /// position in the order as the establishment, so that of two IKE SAs of one peer only one is
    /// younger.
    pub(crate) contact: Option<Box<Contact>>,
}

/// The change of an IKE SA since its last update, for the same moment. The other fields of its
/// outline are unchanged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct IkeChange {
    pub(crate) spi: IkeSpi,
    pub(crate) commit: CommitId,
    pub(crate) delta: Delta,
}

/// A Child SA.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ChildState {
    /// The IKE SA that made it.
    pub(crate) ike: IkeSpi,
    pub(crate) connection: String,
    pub(crate) name: String,
    pub(crate) params: ChildSaParams,
    /// Inbound SPI of the Child SA that it replaces, as long as both exist.
    pub(crate) replaces: Option<Spi>,
    /// Its place among Child SAs that protect the same traffic.
    pub(crate) place: u64,
    /// All numbers below this have been granted.
    pub(crate) reserved: u64,
    /// Size of a block, as a power of two.
    pub(crate) log2: u8,
    /// For a new Child SA the standby, whose block follows the owner's. The two blocks end at
    /// `reserved`.
    pub(crate) standby: Option<NodeId>,
    /// The inbound high-water mark.
    pub(crate) mark: u64,
}

/// Grants for some Child SAs of one shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Grants {
    pub(crate) shard: Shard,
    /// The owner of the second block of each grant, if there is one.
    pub(crate) standby: Option<NodeId>,
    pub(crate) grants: Vec<Grant>,
}

/// Two blocks of equal size: the owner's from `start` on, and the standby's above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Grant {
    pub(crate) spi: Spi,
    pub(crate) start: u64,
    pub(crate) log2: u8,
}

/// A path MTU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PathMtu {
    pub(crate) remote: IpAddr,
    pub(crate) mtu: u16,
    /// Time since it was learned, in seconds.
    pub(crate) age: u16,
}

/// Shards that their owner will give away.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Offer {
    /// Each shard with its receiver.
    pub(crate) shards: Vec<(Shard, NodeId)>,
    /// Neighbours that the owner knows, by port.
    pub(crate) neighbours: Vec<(u8, IpAddr)>,
    /// The view in which the offer was made.
    pub(crate) epoch: u64,
}

/// The last state of a shard that was given away.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Left {
    /// True if the published high-water marks are exact: no packet above them was accepted.
    pub(crate) is_exact: bool,
    /// Hashes of the clear packets that were worked on last: since SEG_OFFER, if there was room for
    /// all.
    pub(crate) handled: Vec<u64>,
}

/// Octets that hold keys.
#[derive(Clone, PartialEq, Eq, Zeroize, ZeroizeOnDrop, Serialize, Deserialize)]
pub(crate) struct Secret(Vec<u8>);

impl Secret {
    pub(crate) fn new(mut octets: Zeroizing<Vec<u8>>) -> Self {
        Self(std::mem::take(&mut *octets))
    }

    pub(crate) fn octets(&self) -> &[u8] {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Secret({} octets)", self.0.len())
    }
}

impl Op {
    /// The shard whose owner alone may publish this; `None` if it concerns no shard.
    pub(crate) fn shard(&self) -> Option<Shard> {
        Some(match self {
            Self::Ike(ike) => ike.outline.spi.shard(),
            Self::IkeMidI(change) | Self::IkeMidR(change) | Self::IkeUpdate(change) => change.spi.shard(),
            Self::IkeDelete { spi } => spi.shard(),
            Self::Child(child) | Self::SpreadChild { child, .. } => child.params.spi_in.shard(),
            Self::Stripe(stripe) => stripe.spi.shard(),
            Self::ChildSwitch { to: spi, .. }
            | Self::ChildStart { spi }
            | Self::ChildUpdate { spi, .. }
            | Self::ChildDelete { spi } => spi.shard(),
            Self::Renew(grants) | Self::Bump(grants) => grants.shard,
            Self::SegDrop { shard, .. } => *shard,
            Self::IkeWanted { .. }
            | Self::PathMtus(_)
            | Self::HighWaterMarks { .. }
            | Self::SegOffer(_)
            | Self::Fit { .. }
            | Self::Drain { .. }
            | Self::Resync { .. }
            | Self::Resynced { .. }
            | Self::Configure(_)
            | Self::Piece { .. }
            | Self::Pieces { .. }
            | Self::Manifest(_)
            | Self::Ask { .. }
            | Self::Answer(_)
            | Self::RemoteEvent(_)
            | Self::LineRate { .. }
            | Self::LaneTops(_)
            | Self::LaneFloors(_)
            | Self::ChildProven { .. }
            | Self::EngineNodes { .. }
            | Self::Prefer { .. }
            | Self::Preferences { .. } => {
                return None;
            }
        })
    }

    /// Approximate size in octets.
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::Ike(ike) => ike.state.0.len() + 128 + ike.contact.as_ref().map_or(0, |_| 256),
            Self::IkeMidI(change) | Self::IkeMidR(change) | Self::IkeUpdate(change) => {
                change.delta.size() + 24
            }
            Self::Child(_) | Self::SpreadChild { .. } => 512,
            Self::LaneTops(sas) => sas.iter().map(|(_, tops)| 12 + tops.len() * 11).sum::<usize>() + 8,
            Self::LaneFloors(floors) => 8 + floors.len() * 15,
            Self::Renew(grants) | Self::Bump(grants) => 16 + grants.grants.len() * 16,
            Self::HighWaterMarks { moved, .. } => 48 + moved.len() * 14,
            Self::PathMtus(paths) => 8 + paths.len() * 24,
            Self::SegOffer(offer) => 16 + offer.shards.len() * 3 + offer.neighbours.len() * 19,
            Self::SegDrop { left, .. } => 32 + left.handled.len() * 10,
            Self::Configure(configure) => configure.octets.0.len() + 96,
            Self::Piece { name, octets, .. } => name.name.len() + octets.0.len() + 8,
            Self::Manifest(Manifest { pieces: Some(pieces), .. }) => {
                pieces.iter().map(|(name, _)| name.name.len() + 14).sum::<usize>() + 16
            }
            Self::Ask { ask: Ask::Terminate { sas, .. } | Ask::Rekey { sas, .. }, .. } => 16 + sas.len() * 11,
            Self::Ask { .. } | Self::Answer(_) => 256,
            Self::EngineNodes { nodes } => 8 + nodes.len(),
            Self::Preferences { of, .. } => 16 + of.len() * 6,
            _ => 32,
        }
    }
}

impl Op {
    fn stripe(&self) -> Option<&Stripe> {
        match self {
            Self::SpreadChild { stripe, .. } | Self::Stripe(stripe) => Some(stripe),
            _ => None,
        }
    }

    /// The same for a node that does not know these turns. Nobody takes any while it is in the view.
    fn without_turns(&self) -> Self {
        let mut op = self.clone();
        if let Self::SpreadChild { stripe, .. } | Self::Stripe(stripe) = &mut op {
            stripe.by = stripe.by.by_hash();
        }
        op
    }

    /// The first version that knows it.
    fn since(&self) -> u8 {
        match self {
            Self::Configure(_)
            | Self::Piece { .. }
            | Self::Pieces { .. }
            | Self::Manifest(_)
            | Self::Ask { .. }
            | Self::Answer(_)
            | Self::RemoteEvent(_) => CONTROL_PLANE,
            Self::LineRate { .. } => LINE_RATES,
            Self::SpreadChild { .. } | Self::Stripe(_) | Self::LaneTops(_) => SPREADING,
            Self::EngineNodes { .. } => ROSTERS,
            Self::LaneFloors(_) => LANE_FLOORS,
            Self::Prefer { .. } | Self::Preferences { .. } => FOLLOWING,
            Self::ChildProven { .. } => PROOFS,
            _ => OLDEST,
        }
    }
}

/// Encodes an update in this version. The octets hold keys.
pub(crate) fn encode(version: u8, ops: &[Op]) -> Vec<u8> {
    let is_known = |op: &Op| op.stripe().is_none_or(|stripe| in_turn(version).knows(stripe.by));
    if ops.iter().all(is_known) {
        return encode_as(version, ops);
    }
    let known = |op: &Op| if is_known(op) { op.clone() } else { op.without_turns() };
    encode_as(version, &ops.iter().map(known).collect::<Vec<_>>())
}

fn encode_as(version: u8, ops: &[Op]) -> Vec<u8> {
    debug_assert!(ops.iter().all(|op| op.since() <= version), "some member of the view knows it not");
    let mut size = 64 + ops.iter().map(Op::size).sum::<usize>();
    loop {
        // A new buffer each time, so that no reallocation leaves keys behind.
        let mut buffer = Zeroizing::new(vec![0; size]);
        match postcard::to_slice(&(version, ops), &mut buffer) {
            Ok(used) => {
                let length = used.len();
                buffer.truncate(length);
                return std::mem::take(&mut *buffer);
            }
            Err(_) => size = size.saturating_mul(2),
        }
    }
}

/// Decodes an update. `None` if it is of another version, or damaged.
pub(crate) fn decode(octets: &[u8]) -> Option<Vec<Op>> {
    match postcard::take_from_bytes::<(u8, Vec<Op>)>(octets) {
        Ok(((OLDEST..=NEWEST, ops), [])) => Some(ops),
        _ => None,
    }
}

/// Cuts the changes of one event into updates of about a batch. Only a timer that acts on many SAs
/// at once makes that many changes. The changes of one SA are never cut. Updates that make Child
/// SAs come first, and those that remove them last: a node that has received only a part has at
/// most a Child SA without an IKE SA, and removes it.
pub(crate) fn cut(ops: Vec<Op>, limit: usize) -> impl Iterator<Item = Vec<Op>> {
    let mut ops = ops.into_iter().peekable();
    std::iter::from_fn(move || {
        let mut part = vec![ops.next()?];
        let mut size = part.iter().map(Op::size).sum::<usize>();
        while let Some(op) = ops.next_if(|op| size + op.size() <= limit) {
            size += op.size();
            part.push(op);
        }
        Some(part)
    })
}

#[cfg(test)]
mod tests;
