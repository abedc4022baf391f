//! What the simulator asks of a node: inputs and the time in, effects out, and a look inside for
//! the checks.

use crate::plane::Plane;
use std::net::IpAddr;
use std::ops::Range;
use testudo_base::spi::{Shard, Spi};
use testudo_cluster::engine::{EngineEvent, RingId};
use testudo_cluster::group::Durable;
use testudo_cluster::node::NodeId;
use testudo_ike::endpoint::{Endpoint, IkeSaState, IkeSaStatus};
use testudo_ike::message::IkeSpi;
use testudo_ike::output::{Event, Path, Time};

/// Something that happens to a node.
#[derive(Clone, Debug)]
pub enum Input {
    /// The engine tells something.
    Engine(EngineEvent),
    /// The engine has not taken a message.
    Refused(Vec<u8>),
    /// It may take it now.
    Ready,
    /// A datagram of another node.
    Heartbeat(u8, Vec<u8>),
    /// An IKE message.
    Ike(Path, Vec<u8>),
    /// An ESP packet that the filter has let in.
    Esp(Vec<u8>),
    /// A clear packet that the filter has let in.
    Clear(Vec<u8>),
    /// Something is due.
    Timeout,
    /// A port goes down or up.
    Link(u8, bool),
    /// An operator wants something.
    Operator(Wish),
    /// An operator has that node give its shards away, or lets it own again.
    Drain(usize, bool),
    /// An operator gives it a piece of configuration by its number, or takes it away.
    Configure(u64, Option<u64>),
    /// Its worker says that IVs run low.
    IvLow,
    /// So much is sent at once to a peer that the present block of numbers is used up, but for so
    /// many.
    Burst(usize, u64),
    /// Its disk has written that.
    Written(Durable),
    /// The machine was set back to an earlier state.
    RolledBack,
}

/// What an operator may want on a node, for the tunnel with a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Bring it up.
    Initiate(usize),
    /// Take it down.
    Terminate(usize),
    /// New keys for its Child SA.
    RekeyChild(usize),
    /// New keys for its IKE SA.
    RekeyIke(usize),
}

/// What a node does.
#[derive(Debug)]
pub enum Effect {
    /// Multicasts.
    Multicast(Vec<u8>),
    /// Sends another node a datagram over a link.
    Heartbeat(NodeId, u8, Vec<u8>),
    /// Sends an IKE message.
    Ike(Path, Vec<u8>),
    /// Lets a packet out of its outer port.
    Outer(Sent),
    /// Lets a packet out of its inner port.
    Inner(Vec<u8>),
    /// Has taken an ESP packet in.
    Accepted(Taken),
    /// Has used up these numbers of the key with that fingerprint.
    Spent(u64, Range<u64>),
    /// Gives this SPI, whose slot another has not left for long enough.
    Unrested(Spi),
    /// Leaves the engine's group and joins it again.
    Rejoin,
    /// Writes this to its disk.
    Persist(Durable),
    /// Its IKE tells something.
    Event(Event),
}

/// A packet on its way to a peer.
#[derive(Debug)]
pub struct Sent {
    /// The packet.
    pub packet: Vec<u8>,
    /// The fingerprint of its key, if it is ESP.
    pub key: Option<u64>,
    /// Its tunnel's shard.
    pub shard: Option<Shard>,
    /// The node is not the owner by the view.
    pub provisional: bool,
}

/// An ESP packet that was authentic, and new.
#[derive(Debug)]
pub struct Taken {
    /// The fingerprint of its key.
    pub key: u64,
    /// Its number.
    pub sequence: u32,
    /// Its tunnel's shard.
    pub shard: Shard,
    /// The node is not the owner by the view.
    pub provisional: bool,
    /// The node had not seen that number, nor a later one, before.
    pub unseen: bool,
}

/// A node's view of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The ring of its view.
    pub ring: RingId,
    /// Counts quorate views.
    pub epoch: u64,
    /// How many members the view has.
    pub members: usize,
    /// The view is quorate.
    pub quorate: bool,
    /// It holds the state.
    pub synced: bool,
}

/// The initiators' SPIs of the IKE SAs that are established with a peer at that address.
pub fn established_with(endpoint: &Endpoint, peer: IpAddr) -> Vec<IkeSpi> {
    let there = |sa: &IkeSaStatus| {
        sa.remote.ip() == peer && matches!(sa.state, IkeSaState::Established | IkeSaState::Rekeying)
    };
    endpoint.sas().filter(there).map(|sa| sa.spi_i).collect()
}

/// A node of the cluster.
pub trait Host {
    /// Something happens.
    fn handle(&mut self, now: Time, input: Input);

    /// What it has done since the last call, in order.
    fn take_effects(&mut self) -> Vec<Effect>;

    /// When something is due.
    fn next_timeout(&self) -> Option<Time>;

    /// The filter in its kernel sees a packet on the outer network. True: it lets it in.
    fn filter_outer(&mut self, packet: &[u8]) -> bool;

    /// The same with a clear packet on the inner network.
    fn filter_inner(&mut self, packet: &[u8]) -> bool;

    /// The same with an IKE message.
    fn filter_ike(&mut self, bytes: &[u8]) -> bool;

    /// Its data plane.
    fn plane(&self) -> &Plane;

    /// Where it stands. `None`: outside of all views.
    fn standing(&self) -> Option<Standing>;

    /// Digest of what all who hold the state must agree on.
    fn state(&self) -> u64;

    /// True if packets of the shard pass here now, not provisionally.
    fn owns(&self, now: Time, shard: Shard) -> bool;

    /// True if the last view, and all that followed, names it the owner or the standby of the
    /// shard.
    fn is_named(&self, shard: Shard) -> bool;

    /// True if it knows that the peer's request of that number was answered in the IKE SA, of which
    /// we chose that SPI.
    fn knows(&self, ours: IkeSpi, message_id: u32) -> bool;

    /// The initiators' SPIs of the IKE SAs that it speaks for with a peer at that address.
    fn ikes_with(&self, peer: IpAddr) -> Vec<IkeSpi>;

    /// What it has counted, for reports.
    fn counters(&self) -> Vec<(&'static str, u64)>;
}
