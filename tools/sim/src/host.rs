//! The simulator's interface to a node: inputs and the time in, effects out, and accessors for the
//! checks.

use crate::plane::Plane;
use std::net::IpAddr;
use std::ops::Range;
use testudo_base::spi::{Shard, Spi};
use testudo_cluster::engine::EngineEvent;
use testudo_cluster::group::{Durable, Majorities, NodeChange, Rosters, Standing};
use testudo_cluster::node::NodeId;
use testudo_ike::endpoint::{Endpoint, IkeSaState, IkeSaStatus};
use testudo_ike::message::IkeSpi;
use testudo_ike::output::{Event, Path, Time};

/// An input of a node.
#[derive(Clone, Debug)]
pub enum Input {
    /// An event of the engine.
    Engine(EngineEvent),
    /// The engine has refused a message.
    Refused(Vec<u8>),
    /// The engine may accept messages again.
    Ready,
    /// A heartbeat of another node.
    Heartbeat(u8, Vec<u8>),
    /// An IKE message.
    Ike(Path, Vec<u8>),
    /// An ESP packet that the filter has passed.
    Esp(Vec<u8>),
    /// A clear packet that the filter has passed.
    Clear(Vec<u8>),
    /// A deadline has passed.
    Timeout,
    /// A port goes down or up.
    Link(u8, bool),
    /// A command of an operator.
    Operator(Wish),
    /// An operator drains that node, or ends its drain.
    Drain(usize, bool),
    /// An operator sets or removes an item of the configuration, by its number.
    Configure(u64, Option<u64>),
    /// The worker reports that IVs run low.
    IvLow,
    /// So many packets are sent to a peer at once that only this many numbers of the present block
    /// remain.
    Burst(usize, u64),
    /// Its disk has written this.
    Written(Durable),
    /// An operator adds a node to the cluster, or removes one.
    Change(NodeChange),
    /// The machine was restored to an earlier state.
    RolledBack,
}

/// A command of an operator on a node, about the tunnel with a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Bring it up.
    Initiate(usize),
    /// Take it down.
    Terminate(usize),
    /// Rekey its Child SA.
    RekeyChild(usize),
    /// Rekey its IKE SA.
    RekeyIke(usize),
}

/// An action of a node.
#[derive(Debug)]
pub enum Effect {
    /// Multicasts.
    Multicast(Vec<u8>),
    /// Sends another node a datagram over a link.
    Heartbeat(NodeId, u8, Vec<u8>),
    /// Sends an IKE message.
    Ike(Path, Vec<u8>),
    /// Sends a packet from its outer port.
    Outer(Sent),
    /// Sends a packet from its inner port.
    Inner(Vec<u8>),
    /// Has accepted an ESP packet.
    Accepted(Taken),
    /// Has used these numbers of the key with that fingerprint.
    Spent(u64, Range<u64>),
    /// Allocates this SPI, whose slot has not rested long enough since its last use.
    Unrested(Spi),
    /// Relays an IKE message that another node has relayed to it.
    RelayedAgain,
    /// Leaves the engine's group and joins it again.
    Rejoin,
    /// Leaves the engine's group for good.
    Leave,
    /// Its engine counts by these nodes from now on, after so many changes.
    Majorities(u64, Majorities),
    /// Writes this to its disk.
    Persist(Durable),
    /// An event of its IKE.
    Event(Event),
}

/// A packet for a peer.
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

/// An ESP packet that was authentic and not a replay.
#[derive(Debug)]
pub struct Taken {
    /// The fingerprint of its key.
    pub key: u64,
    /// Its sequence number.
    pub sequence: u32,
    /// Its tunnel's shard.
    pub shard: Shard,
    /// The node is not the owner by the view.
    pub provisional: bool,
    /// The node had not seen that number, nor a later one.
    pub unseen: bool,
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
    /// Processes an input.
    fn handle(&mut self, now: Time, input: Input);

    /// Its actions since the last call, in order.
    fn take_effects(&mut self) -> Vec<Effect>;

    /// Its next deadline.
    fn next_timeout(&self) -> Option<Time>;

    /// Its kernel's filter sees a packet on the outer network. Returns true if it passes it to the
    /// worker.
    fn filter_outer(&mut self, packet: &[u8]) -> bool;

    /// The same for a clear packet on the inner network.
    fn filter_inner(&mut self, packet: &[u8]) -> bool;

    /// The same for an IKE message.
    fn filter_ike(&mut self, bytes: &[u8]) -> bool;

    /// Where routers give each packet to one node: true if it announces itself to them.
    fn serves(&self, _now: Time) -> bool {
        false
    }

    /// The node to which it relays a packet that its filter has not passed. `counts`: routers gave it
    /// to this node, so that its shard may follow it there.
    fn relays_outer(&mut self, _now: Time, _packet: &[u8], _counts: bool) -> Option<NodeId> {
        None
    }

    /// The same for a clear packet.
    fn relays_inner(&mut self, _now: Time, _packet: &[u8], _counts: bool) -> Option<NodeId> {
        None
    }

    /// Its data plane.
    fn plane(&self) -> &Plane;

    /// Its position. `None`: outside of all views.
    fn standing(&self) -> Option<Standing>;

    /// Digest of the state on which all synchronized nodes must agree.
    fn state(&self) -> u64;

    /// True if packets of the shard pass here now, and not provisionally.
    fn owns(&self, now: Time, shard: Shard) -> bool;

    /// How far the rows of spread SAs have come, by home shard, where nodes have to tell each other.
    fn rows(&self) -> Vec<(Shard, u64)> {
        Vec::new()
    }

    /// True if the last view, and the messages since, make it the owner or the standby of the
    /// shard.
    fn is_named(&self, shard: Shard) -> bool;

    /// True if it knows that the peer's request with that message ID was answered in the IKE SA of
    /// which the gateway chose that SPI.
    fn knows(&self, ours: IkeSpi, message_id: u32) -> bool;

    /// The initiators' SPIs of the IKE SAs with a peer at that address that it is responsible for.
    fn ikes_with(&self, peer: IpAddr) -> Vec<IkeSpi>;

    /// The nodes of its cluster.
    fn rosters(&self) -> Option<&Rosters> {
        None
    }

    /// Its counters, for reports.
    fn counters(&self) -> Vec<(&'static str, u64)>;
}
