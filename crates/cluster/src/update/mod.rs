//! What the owners of shards tell the other nodes, under the names of [HA]. An update is everything
//! that one event has changed: it is delivered whole or not at all, so that no survivor finds half
//! of a rekey.
//!
//! [HA]: strongSwan's high availability plugin calls them the same.

mod operator;

pub(crate) use operator::{Answer, Answered, Configure, Manifest, RemoteEvent};
pub use operator::{Ask, Class, Effect, PieceName, Sa};

use crate::node::NodeId;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::time::Duration;
use testudo_base::shard::ShardSet;
use testudo_base::spi::{Shard, Spi};
use testudo_ike::delta::Delta;
use testudo_ike::endpoint::{Contact, Outline, SnapshotVersion};
use testudo_ike::message::IkeSpi;
use testudo_ike::output::{CommitId, Path};
use testudo_ipsec::sa::ChildSaParams;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

/// The versions of everything here that this build speaks: in a view all speak the highest that all
/// of its members do, so that nodes can be upgraded one by one. 15 ends with [`Op::Resynced`]. With
/// 17 came no new operation: who speaks it hears what it is brought up to date with beside the
/// engine. 18 says more in the states of IKE SAs: see [`states`]. With 19 came [`Op::LineRate`].
pub(crate) const OLDEST: u8 = 15;
pub(crate) const NEWEST: u8 = 19;
/// With this version came [`Op::Configure`] and all behind it, and RFC 6311 in the states of IKE
/// SAs.
pub(crate) const CONTROL_PLANE: u8 = 16;
/// With this version came where a peer was that has moved, and what vouched for it, in the states
/// of IKE SAs.
const ORIGINS: u8 = 18;

/// With this version came [`Op::LineRate`].
pub(crate) const LINE_RATES: u8 = 19;

/// In what form nodes that all speak that version tell each other of IKE SAs.
pub(crate) fn states(version: u8) -> SnapshotVersion {
    match version {
        ..CONTROL_PLANE => SnapshotVersion::V26,
        CONTROL_PLANE..ORIGINS => SnapshotVersion::V27,
        ORIGINS.. => SnapshotVersion::V28,
    }
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Op {
    /// IKE_ADD: the whole state of an IKE SA, pending exchanges and their octets included.
    Ike(Box<IkeState>),
    /// IKE_MID_I: our window has moved in it, by a request of ours or its response.
    IkeMidI(Box<IkeChange>),
    /// IKE_MID_R: the peer's has: a request is answered, and its answer kept.
    IkeMidR(Box<IkeChange>),
    /// IKE_UPDATE: both have, or something else has changed.
    IkeUpdate(Box<IkeChange>),
    /// The sender cannot read what has changed in it, and has forgotten it: its owner says all of
    /// it again.
    IkeWanted { spi: IkeSpi },
    /// IKE_DELETE: nothing is left of it, not even a response to repeat.
    IkeDelete { spi: IkeSpi },
    /// CHILD_ADD: a Child SA, new or sent again to a node that must be brought up to date.
    Child(Box<ChildState>),
    /// What went out through `from` goes out through `to`.
    ChildSwitch { from: Spi, to: Spi },
    /// It carries by itself, although it came up beside another.
    ChildStart { spi: Spi },
    /// CHILD_UPDATE: the peer has moved.
    ChildUpdate { spi: Spi, path: Path },
    /// CHILD_DELETE: its slot rests on every node.
    ChildDelete { spi: Spi },
    /// RENEW: the owner goes on with these numbers when its present ones are used up.
    Renew(Grants),
    /// BUMP: owner and standby both go on in these numbers at once.
    Bump(Grants),
    /// EDGES: high-water marks, up to where the owner has taken packets in. `all_of`: of these
    /// shards, which it carries, all have been told now that have moved. Said in the view of that
    /// epoch: delivered in a later one it is no more than what once was.
    HighWaterMarks { moved: Vec<(Spi, u64)>, all_of: ShardSet, epoch: u64 },
    /// MTU: what paths take.
    PathMtus(Vec<PathMtu>),
    /// SEG_OFFER: the owner will give shards up for other nodes, which keep back what packets of
    /// theirs come from now on.
    SegOffer(Offer),
    /// SEG_DROP: the owner has given the shard up for that node, in the view of that epoch. In a
    /// later one it is void.
    SegDrop { shard: Shard, to: NodeId, epoch: u64, left: Left },
    /// The sender has lost a port, or has all of them again.
    Fit { fit: bool },
    /// An operator wants that node to own nothing any more, or to own again.
    Drain { node: NodeId, drained: bool },
    /// RESYNC begins: what follows brings the fresh nodes of that view up to date with what the
    /// sender owns. `owners`: whose each shard is at the view's start, by the numbers of the nodes;
    /// `unfit`: who has lost a port; `drained`: who is to own nothing.
    Resync { epoch: u64, owners: Vec<u8>, unfit: Vec<NodeId>, drained: Vec<NodeId> },
    /// RESYNC ends: that was all.
    Resynced { epoch: u64 },
    /// A command of an operator changes the configuration of all nodes.
    Configure(Box<Configure>),
    /// A piece of the configuration that all but the fresh nodes of that view have.
    Piece { epoch: u64, name: PieceName, octets: Secret },
    /// That was all of it.
    Pieces { epoch: u64 },
    /// Which configuration the sender has.
    Manifest(Manifest),
    /// An operator has asked the sender for something that is its owner's to do.
    Ask { job: u64, ask: Ask },
    /// What has come of it.
    Answer(Answer),
    /// Something has happened to an SA of the sender.
    RemoteEvent(RemoteEvent),
    /// Packets a second that the sender's ports can bring it at most.
    LineRate { rate: u64 },
}

/// An IKE SA.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct IkeState {
    pub(crate) outline: Outline,
    /// How long ago it was exported: the times in it are on the clock of that moment.
    pub(crate) age: Duration,
    pub(crate) state: Secret,
    /// It is up now, and the older ones of its peer go, whose each may be. At one place in the
    /// order with that it is up: of two IKE SAs of one peer only one is younger.
    pub(crate) contact: Option<Box<Contact>>,
}

/// What has changed in an IKE SA since it was last said, for the same moment. What its outline has
/// besides has not.
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
    /// The one whose place it takes, by its inbound SPI, as long as both are there.
    pub(crate) replaces: Option<Spi>,
    /// Where it stands among those that protect the same.
    pub(crate) place: u64,
    /// Its numbers up to here have been given to some node.
    pub(crate) reserved: u64,
    /// Blocks of so many numbers, as a power of two.
    pub(crate) log2: u8,
    /// Of a new one: the standby, whose block follows the owner's. The two end at `reserved`.
    pub(crate) standby: Option<NodeId>,
    /// Packets were taken in up to here.
    pub(crate) mark: u64,
}

/// Numbers of some Child SAs of one shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Grants {
    pub(crate) shard: Shard,
    /// Whose the second block of each is. None: nobody's.
    pub(crate) standby: Option<NodeId>,
    pub(crate) grants: Vec<Grant>,
}

/// Two blocks of as many numbers: the owner's from `start` on, and the standby's behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Grant {
    pub(crate) spi: Spi,
    pub(crate) start: u64,
    pub(crate) log2: u8,
}

/// What a path was found to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PathMtu {
    pub(crate) remote: IpAddr,
    pub(crate) mtu: u16,
    /// How long ago, in seconds.
    pub(crate) age: u16,
}

/// Shards that their owner will give up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Offer {
    /// Each for whom.
    pub(crate) shards: Vec<(Shard, NodeId)>,
    /// Whom the owner knows, by port.
    pub(crate) neighbours: Vec<(u8, IpAddr)>,
    /// The view in which it said so.
    pub(crate) epoch: u64,
}

/// How a shard was left.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Left {
    /// Packets have been taken in up to the high-water marks that were told, and no further.
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
    /// The shard whose owner alone may say this; none for what concerns no shard.
    pub(crate) fn shard(&self) -> Option<Shard> {
        Some(match self {
            Self::Ike(ike) => ike.outline.spi.shard(),
            Self::IkeMidI(change) | Self::IkeMidR(change) | Self::IkeUpdate(change) => change.spi.shard(),
            Self::IkeDelete { spi } => spi.shard(),
            Self::Child(child) => child.params.spi_in.shard(),
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
            | Self::LineRate { .. } => {
                return None;
            }
        })
    }

    /// About how many octets it is.
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::Ike(ike) => ike.state.0.len() + 128 + ike.contact.as_ref().map_or(0, |_| 256),
            Self::IkeMidI(change) | Self::IkeMidR(change) | Self::IkeUpdate(change) => {
                change.delta.size() + 24
            }
            Self::Child(_) => 512,
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
            _ => 32,
        }
    }
}

/// Octets to publish, in that version. Holds keys.
pub(crate) fn encode(version: u8, ops: &[Op]) -> Vec<u8> {
    let mut size = 64 + ops.iter().map(Op::size).sum::<usize>();
    loop {
        // A fresh buffer each time, so that nothing is reallocated and left behind with keys in it.
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

/// The changes of an update. `None`: of another version, or damaged.
pub(crate) fn decode(octets: &[u8]) -> Option<Vec<Op>> {
    match postcard::take_from_bytes::<(u8, Vec<Op>)>(octets) {
        Ok(((OLDEST..=NEWEST, ops), [])) => Some(ops),
        _ => None,
    }
}

/// Cuts what one event has changed into updates of about a batch. Only what a timer does to many
/// SAs at once is that large; one SA is never cut through. What makes Child SAs comes first and
/// what takes them away last: who has a part of it finds at most a Child SA that no IKE SA knows,
/// and takes it away.
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
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn marks(count: usize) -> Op {
        Op::HighWaterMarks {
            moved: (0..count).map(|n| (Spi(n as u32), n as u64)).collect(),
            all_of: ShardSet::EMPTY,
            epoch: 1,
        }
    }

    #[test]
    fn an_update_is_what_was_published() {
        let ops = vec![
            marks(300),
            Op::SegOffer(Offer {
                shards: vec![(Shard(7), NodeId::new(3).unwrap())],
                neighbours: vec![(1, "10.1.0.2".parse().unwrap())],
                epoch: 4,
            }),
            Op::SegDrop {
                shard: Shard(7),
                to: NodeId::new(3).unwrap(),
                epoch: 4,
                left: Left { is_exact: true, handled: vec![u64::MAX; 3] },
            },
            Op::Renew(Grants {
                shard: Shard(1),
                standby: NodeId::new(2),
                grants: vec![Grant { spi: Spi(0x0100_0400), start: u64::MAX - 1, log2: 24 }],
            }),
        ];
        let octets = encode(NEWEST, &ops);
        assert_eq!(decode(&octets), Some(ops));
        let mut other = octets.clone();
        other[0] += 1;
        assert_eq!(decode(&other), None, "another version");
        assert_eq!(decode(&octets[..octets.len() - 1]), None, "cut");
        assert_eq!(decode(&[octets, vec![0]].concat()), None, "longer");
    }

    /// What nodes of version 15 read must not change, as long as there may be some: a view with one
    /// speaks it.
    #[test]
    fn what_version_15_reads_is_as_it_was() {
        let ops = [
            Op::IkeWanted { spi: IkeSpi(1) },
            Op::ChildStart { spi: Spi(2) },
            Op::Drain { node: NodeId::new(3).unwrap(), drained: true },
            Op::Resynced { epoch: 4 },
        ];
        assert_eq!(encode(15, &ops), [15, 4, 4, 1, 8, 2, 18, 3, 1, 20, 4]);
    }

    #[test]
    fn secrets_are_not_shown() {
        assert_eq!(format!("{:?}", Secret::new(Zeroizing::new(vec![1, 2, 3]))), "Secret(3 octets)");
    }

    proptest! {
        #[test]
        fn any_octets_are_read_without_panic(octets in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = decode(&octets);
        }

        #[test]
        fn what_is_cut_is_whole_together(counts in prop::collection::vec(0_usize..600, 0..20)) {
            let ops: Vec<Op> = counts.into_iter().map(marks).collect();
            let parts: Vec<Vec<Op>> = cut(ops.clone(), 4096).collect();
            prop_assert!(parts.iter().all(|part| part.len() == 1 || encode(NEWEST, part).len() <= 4096 + 64));
            prop_assert_eq!(parts.concat(), ops);
        }
    }
}
