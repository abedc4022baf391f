//! What the member asks of its host.

use crate::dispatch::Ownership;
use crate::group::Durable;
use crate::node::NodeId;
use crate::update::{Effect, PieceName};
use std::net::IpAddr;
use std::time::Duration;
use testudo_base::shard::ShardSet;
use testudo_base::spi::{SenderId, Spi};
use testudo_ike::output::{ChildSaId, Event, IkeSaId, Output, Time};
use testudo_ipsec::dataplane::Note;
use testudo_ipsec::number::SequenceBlock;
use testudo_ipsec::sa::ChildSaParams;
use zeroize::Zeroizing;

/// One thing for the host to do, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberOutput {
    /// What IKE asks for. A message is given only once all members hold what it depends on. A Child
    /// SA to install comes as [`MemberOutput::InstallChild`], and numbers to leave out as
    /// [`MemberOutput::Numbers`].
    Ike(Output),
    /// Hand this to the engine. If it refuses, give it back with
    /// [`super::Member::multicast_refused`] before asking for the next output.
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
    /// Give the Child SA to the data plane, of whatever shard it is. It has no numbers to send with
    /// yet.
    InstallChild {
        /// Its IKE SA, if this node has heard of it.
        ike: Option<IkeSaId>,
        /// The Child SA.
        child: ChildSaId,
        /// `connections.<name>`.
        connection: String,
        /// `children.<name>`.
        name: String,
        /// All that the data plane needs.
        params: Box<ChildSaParams>,
        /// The Child SA that it renews: until [`Output::SwitchChild`] it only takes packets in.
        replaces: Option<ChildSaId>,
        /// Of those that protect the same and send, the one with the highest place does. It is
        /// below 2^63 and the same on all nodes, and only those that renew each other have it in
        /// common.
        place: u64,
    },
    /// Numbers that this node alone may send with: [`testudo_ipsec::number::SequenceAllocator`]'s
    /// `advance` if they are to be used at once, else its `follow`.
    Numbers {
        /// The Child SA.
        child: ChildSaId,
        /// The SPI that we chose.
        spi_in: Spi,
        /// The numbers.
        block: SequenceBlock,
        /// What is left of the present block is not to be used any more.
        at_once: bool,
    },
    /// Packets of these Child SAs are taken in here from now on: they count as seen up to
    /// [`TakenIn::floor`], which [`super::Member::taken_in`] is told. To be done before
    /// [`MemberOutput::Shards`], which follows.
    TakeIn {
        /// The Child SAs.
        children: Vec<TakenIn>,
    },
    /// What this node keeps of what comes to all nodes, from now on.
    Shards(Ownership),
    /// These shards, and no others, are to go to other nodes soon: note the clear packets that are
    /// worked on in them from now on.
    Note {
        /// The shards.
        shards: ShardSet,
    },
    /// These shards are not carried any more, by the last [`MemberOutput::Shards`]. When nothing of
    /// theirs is being worked on any more, tell [`super::Member::flushed`].
    Flush {
        /// The shards.
        shards: ShardSet,
    },
    /// These neighbours, by the ports' places in the configuration, will be sent to soon: find
    /// those that are not known.
    Neighbours(Vec<(u8, IpAddr)>),
    /// Clear packets of these shards that other nodes have worked on, by the hashes that they
    /// noted: not to be worked on again. To be done before [`MemberOutput::Shards`], which follows,
    /// and brings what was kept back.
    Handled {
        /// The shards.
        shards: ShardSet,
        /// The hashes.
        digests: Vec<u64>,
    },
    /// Another node has learned that the path to there takes no more than that. It may be known, or
    /// be old.
    PathMtu {
        /// The other end.
        remote: IpAddr,
        /// Octets, outer header included.
        mtu: u16,
        /// How long ago it was learned.
        age: Duration,
    },
    /// Go on with this sender ID, which nobody has used before.
    Sender(SenderId),
    /// Send with no sender ID until the next is told.
    ForgetSender,
    /// Packets may leave until then. Extended again and again.
    Fence(Time),
    /// Write this to disk, durably, and then call [`super::Member::persisted`]. Where the
    /// incarnation is another than before, do so before anything else.
    Persist(Durable),
    /// This node answers for the virtual addresses now: tell the neighbours (gratuitous ARP,
    /// unsolicited NA).
    Announce,
    /// Leave the engine's group and join it again.
    Rejoin,
    /// Carry this command out: it changes the configuration of all nodes.
    Configure {
        /// The node on which it was given.
        from: NodeId,
        /// What it does, for [`super::Member::refused`].
        effect: Effect,
        /// The command.
        octets: Zeroizing<Vec<u8>>,
    },
    /// The cluster has no such piece of configuration: it is to go here too.
    Unconfigure {
        /// The piece.
        name: PieceName,
        /// The command that set it.
        octets: Zeroizing<Vec<u8>>,
    },
    /// The other nodes have been told of a command that was carried out here.
    Configured {
        /// The number that [`super::Member::configure`] was given.
        job: u64,
    },
    /// A line of another node's log about what it was asked to do.
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
    /// An initiation by another node has come to its end.
    Initiated {
        /// The number that [`super::Member::ask`] was given.
        job: u64,
        /// Or why there is no Child SA.
        result: Result<(), String>,
    },
    /// The same, to SAs of another node.
    RemoteEvent(Event),
}

/// What was done of shards until they went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flushed {
    /// The shards.
    pub shards: ShardSet,
    /// Up to where packets have been taken in on their Child SAs.
    pub marks: Vec<(Spi, u64)>,
    /// The latest clear packets that were worked on since [`MemberOutput::Note`], in any order.
    pub notes: Vec<Note>,
}

/// A Child SA that this node begins to take packets in on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TakenIn {
    /// The SPI that we chose.
    pub spi_in: Spi,
    /// Packets were taken in up to here, as the former owner has told.
    pub mark: u64,
    /// How far it can have got since.
    pub reach: u64,
    /// Extended sequence numbers.
    pub esn: bool,
}

impl TakenIn {
    /// Up to where numbers count as seen. `seen`: the low half of the highest number that this
    /// node's filter has seen pass.
    pub fn floor(&self, seen: Option<u32>) -> u64 {
        testudo_ipsec::replay::floor(self.mark, seen, self.reach, self.esn)
    }
}
