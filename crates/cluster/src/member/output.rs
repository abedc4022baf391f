//! Outputs of a member: what its host must do.

use super::CarrierTable;
use crate::dispatch::Ownership;
use crate::group::{Durable, RelayKeys};
use crate::node::NodeId;
use crate::update::{Effect, InitiationOutcome, PieceName};
use std::net::IpAddr;
use std::time::Duration;
use testudo_base::lane::Spread;
use testudo_base::session::Told;
use testudo_base::shard::ShardSet;
use testudo_base::spi::{SenderId, Shard, Spi};
use testudo_ike::output::{ChildSaId, Event, IkeSaId, Output, Time};
use testudo_ipsec::dataplane::Note;
use testudo_ipsec::number::{SequenceBlock, Stripe};
use testudo_ipsec::pmtu::TooBig;
use testudo_ipsec::replay::LaneFloor;
use testudo_ipsec::sa::ChildSaParams;
use testudo_planted::{Plant, planted};
use zeroize::Zeroizing;

/// One task for the host, to be done in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberOutput {
    /// An output of IKE. A message comes only once all members hold the state that it depends on. A
    /// Child SA to install comes as [`MemberOutput::InstallChild`] instead, and numbers to skip as
    /// [`MemberOutput::Numbers`].
    Ike(Output),
    /// Hand this message to the engine. If the engine refuses it, give it back with
    /// [`super::Member::multicast_refused`] before asking for the next output.
    Multicast(Vec<u8>),
    /// Send a datagram to a node over a link. It may be lost.
    Datagram {
        /// The receiver.
        to: NodeId,
        /// The link.
        link: u8,
        /// The datagram.
        bytes: Vec<u8>,
    },
    /// Give a Child SA of any shard to the data plane. It has no numbers to send with yet.
    InstallChild {
        /// Its IKE SA, if this node knows of it.
        ike: Option<IkeSaId>,
        /// The Child SA.
        child: ChildSaId,
        /// `connections.<name>`.
        connection: String,
        /// `children.<name>`.
        name: String,
        /// The parameters for the data plane.
        params: Box<ChildSaParams>,
        /// The Child SA that it renews. Until [`Output::SwitchChild`] the new one is used inbound
        /// only.
        replaces: Option<ChildSaId>,
        /// Among Child SAs that protect the same traffic, the one with the highest place sends. A
        /// place is below 2^63 and equal on all nodes. Only Child SAs that renew each other share
        /// one.
        place: u64,
        /// Set if its packets are spread over all nodes: each node works on those whose lane it
        /// carries, and sends with numbers of [`MemberOutput::Stripe`].
        spread: Option<Spread>,
    },
    /// Give the data plane sequence numbers that only this node may send with: call `advance` of
    /// [`testudo_ipsec::number::SequenceAllocator`] with `at_once`, else its `follow`.
    Numbers {
        /// The Child SA.
        child: ChildSaId,
        /// The SPI that we chose.
        spi_in: Spi,
        /// The numbers.
        block: SequenceBlock,
        /// The rest of the present block must not be used any more.
        at_once: bool,
    },
    /// Give the data plane this node's part of the next numbers of a spread Child SA.
    Stripe {
        /// The Child SA.
        child: ChildSaId,
        /// The SPI that we chose.
        spi_in: Spi,
        /// The numbers.
        stripe: Stripe,
    },
    /// How far the row clocks of these shards have come at another node. A clock that is behind
    /// goes on from there.
    RowClocks(Vec<(Shard, u64)>),
    /// Call [`Sessions::clear`]: what is in the table is of another time.
    ///
    /// [`Sessions::clear`]: testudo_base::session::Sessions::clear
    ForgetSessions,
    /// What authorities say of their slots: call [`Sessions::follow`] with each.
    ///
    /// [`Sessions::follow`]: testudo_base::session::Sessions::follow
    Sessions(Vec<Told>),
    /// This node accepts packets of these lanes of spread Child SAs from now on. Numbers up to
    /// [`TakenLanes::floors`] count as seen; pass the highest floor of each Child SA that is not
    /// exact to [`super::Member::taken_in`]. To be done before the [`MemberOutput::Shards`] that
    /// follows.
    TakeInLanes {
        /// The Child SAs.
        children: Vec<TakenLanes>,
    },
    /// This node accepts packets of these Child SAs from now on. Numbers up to [`TakenIn::floor`]
    /// count as seen; pass the floors to [`super::Member::taken_in`]. To be done before the
    /// [`MemberOutput::Shards`] that follows.
    TakeIn {
        /// The Child SAs.
        children: Vec<TakenIn>,
    },
    /// The shards whose packets and IKE this node keeps from now on.
    Shards(Ownership),
    /// Protect packets on their way to these nodes, and back, with these keys. They replace those
    /// of before. Under each key numbers begin from 1. Only with [`crate::group::Ingress::Routed`],
    /// as the following two.
    RelayKeys(Vec<RelayKeys>),
    /// Relay the packets of each shard to this node from now on.
    Carriers(Box<CarrierTable>),
    /// True if routers are to give this node packets, as long as its fence is open.
    Serves(bool),
    /// A router has said this to another node. It is not verified.
    TooBig(TooBig),
    /// Exactly these shards are about to go to other nodes: note the clear packets of theirs that
    /// are worked on from now on.
    Note {
        /// The shards.
        shards: ShardSet,
    },
    /// These shards are not carried any more since the last [`MemberOutput::Shards`]. Once no
    /// packet of theirs is being worked on, call [`super::Member::flushed`].
    Flush {
        /// The shards.
        shards: ShardSet,
    },
    /// Packets will soon be sent to these neighbours, each with its port's place in the
    /// configuration: resolve those that are not known.
    Neighbours(Vec<(u8, IpAddr)>),
    /// Clear packets of these shards that other nodes have worked on, by the hashes that they
    /// noted. Drop these packets. To be done before the [`MemberOutput::Shards`] that follows,
    /// which releases the packets that were kept back.
    Handled {
        /// The shards.
        shards: ShardSet,
        /// The hashes.
        digests: Vec<u64>,
    },
    /// Another node has learned a path MTU. It may be known here already, or be outdated.
    PathMtu {
        /// The far end of the path.
        remote: IpAddr,
        /// The MTU in octets, outer header included.
        mtu: u16,
        /// Time since it was learned.
        age: Duration,
    },
    /// Send with this sender ID from now on. It has never been used.
    Sender(SenderId),
    /// Send nothing under a sender ID until the next [`MemberOutput::Sender`].
    ForgetSender,
    /// Packets may leave until then. The host gets a later time again and again.
    Fence(Time),
    /// Write this to disk, durably, and then call [`super::Member::persisted`]. If the incarnation
    /// has changed, do so before anything else.
    Persist(Durable),
    /// This node answers for the virtual addresses from now on: announce them to the neighbours
    /// (gratuitous ARP, unsolicited NA).
    Announce,
    /// Leave the engine's group and join it again.
    Rejoin,
    /// Leave the engine's group for good: this node is not one of the cluster's.
    Leave,
    /// The nodes of the cluster have changed: see [`super::Member::rosters`].
    Rosters,
    /// Carry out this command, which changes the configuration of all nodes.
    Configure {
        /// The node on which the command was given.
        from: NodeId,
        /// Its effect, for [`super::Member::refused`].
        effect: Effect,
        /// The command.
        octets: Zeroizing<Vec<u8>>,
    },
    /// Remove a piece of configuration that the cluster does not have.
    Unconfigure {
        /// The piece.
        name: PieceName,
        /// The command that set it.
        octets: Zeroizing<Vec<u8>>,
    },
    /// The other nodes know of a command that was carried out here.
    Configured {
        /// The number that [`super::Member::configure`] was given.
        job: u64,
    },
    /// A command that was carried out here is undone on this node, and has changed nothing on the
    /// others: see [`Effect::Replace`].
    Outdated {
        /// The number that [`super::Member::configure`] was given.
        job: u64,
    },
    /// A log line of another node about a task that this node gave it.
    Line {
        /// The number that [`super::Member::ask`] was given.
        job: u64,
        /// `connections.<name>`, if known.
        connection: Option<String>,
        /// See [`testudo_ike::output::LogLevel::charon`].
        level: u8,
        /// The line.
        message: String,
    },
    /// An initiation by another node has ended.
    Initiated {
        /// The number that [`super::Member::ask`] was given.
        job: u64,
        /// Whether the SA is up.
        outcome: InitiationOutcome,
    },
    /// An event of an SA that another node owns.
    RemoteEvent(Event),
}

/// The last state of shards that this node has stopped carrying.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flushed {
    /// The shards.
    pub shards: ShardSet,
    /// The inbound high-water mark of each of their Child SAs.
    pub marks: Vec<(Spi, u64)>,
    /// The highest numbers that were accepted in these shards as lanes, by spread Child SA.
    pub tops: Vec<(Spi, Vec<(Shard, u64)>)>,
    /// The latest clear packets that were worked on since [`MemberOutput::Note`], in any order.
    pub notes: Vec<Note>,
}

/// A Child SA whose packets this node begins to accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TakenIn {
    /// The SPI that we chose.
    pub spi_in: Spi,
    /// The high-water mark that the former owner last reported.
    pub mark: u64,
    /// The highest number that the former owner can have accepted since.
    pub reach: u64,
    /// True with extended sequence numbers.
    pub esn: bool,
    /// True if packets for other nodes do not pass this node's filter.
    pub unseen: bool,
}

impl TakenIn {
    /// The number up to which all count as seen. `seen` is the highest number that this node's
    /// filter has seen. Where it does not see what other nodes accept, it is the highest number
    /// that the former owner can have accepted.
    pub fn floor(&self, seen: Option<u64>) -> u64 {
        if self.unseen && !planted(Plant::FloorAsSeen) {
            return self.mark.saturating_add(self.reach);
        }
        testudo_ipsec::replay::floor(self.mark, seen, self.reach, self.esn)
    }
}

/// Lanes of a spread Child SA whose packets this node begins to accept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakenLanes {
    /// The SPI that we chose.
    pub spi_in: Spi,
    /// The high-water mark that was last reported.
    pub mark: u64,
    /// The highest number above it that another node can have accepted since.
    pub reach: u64,
    /// True with extended sequence numbers.
    pub esn: bool,
    /// True if packets for other nodes do not pass this node's filter.
    pub unseen: bool,
    /// The lanes. Of a lane that a living node has handed over, the highest number that was
    /// accepted in it.
    pub lanes: Vec<(Shard, Option<u64>)>,
}

impl TakenLanes {
    /// The number up to which all of a lane count as seen, where the former carrier has not told
    /// its last. `here`: the highest number that this node has accepted in any lane. `seen`: the
    /// highest number that its filter has seen. Where it does not see what other nodes accept, the
    /// floor is the highest number that they can have accepted.
    pub fn floor(&self, here: u64, seen: Option<u64>) -> u64 {
        let mark = self.mark.max(here);
        if self.unseen && !planted(Plant::FloorAsSeen) {
            return self.mark.saturating_add(self.reach).max(here);
        }
        let reach = self.reach.saturating_sub(mark.saturating_sub(self.mark));
        testudo_ipsec::replay::floor(mark, seen, reach, self.esn)
    }

    /// True if the floors of some lanes are estimates.
    pub fn is_estimate(&self) -> bool {
        self.lanes.iter().any(|(_, exact)| exact.is_none())
    }

    /// The floor of each lane.
    pub fn floors(&self, here: u64, seen: Option<u64>) -> impl Iterator<Item = LaneFloor> + '_ {
        let (estimate, known) = (self.floor(here, seen), self.mark.max(here));
        self.lanes.iter().map(move |(lane, exact)| {
            let floor = exact.unwrap_or(estimate);
            LaneFloor { spi: self.spi_in, lane: *lane, floor, known }
        })
    }
}

#[cfg(test)]
mod tests;
