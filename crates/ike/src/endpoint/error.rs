//! Errors of the endpoint's operations.

use crate::config::StartAction;
use crate::message::IkeSpi;
use crate::output::{CommitId, Reason};
use std::net::IpAddr;

/// The connection cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// Something is empty that must not be.
    #[error("{connection}: {what} is empty, expected at least one")]
    Empty {
        /// Name of the connection, followed by the child's if it concerns one.
        connection: String,
        /// What is empty.
        what: &'static str,
    },
    /// Ciphers and integrity algorithms of a proposal do not go together.
    #[error(
        "{0}: a proposal mixes AEADs with other ciphers or with integrity algorithms, expected either AEADs alone or ciphers with integrity algorithms"
    )]
    Integrity(String),
    /// Two children have one name.
    #[error("{connection}: two children are named {child}, expected different names")]
    DuplicateChild {
        /// Name of the connection.
        connection: String,
        /// The name.
        child: String,
    },
    /// A child that we must initiate has no peer.
    #[error(
        "{connection}: child {child}: found {key} = {}, but the connection has no remote address; only a trap in transport mode does without",
        action.name()
    )]
    NoPeer {
        /// Name of the connection.
        connection: String,
        /// Name of the child.
        child: String,
        /// The key.
        key: &'static str,
        /// Its value.
        action: StartAction,
    },
}

/// A pool cannot be replaced or unloaded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    /// No such pool is loaded.
    #[error("no pool is named {0}")]
    Unknown(String),
    /// Some of its addresses are in use.
    #[error("pool {pool} has {online} online leases, and cannot be replaced or unloaded")]
    Online {
        /// Name of the pool.
        pool: String,
        /// How many.
        online: usize,
    },
}

/// An initiation could not begin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InitiateError {
    /// No such connection is loaded.
    #[error("no connection is named {0}")]
    UnknownConnection(String),
    /// No connection (or not the named one) has such a child.
    #[error("no child is named {0}")]
    UnknownChild(String),
    /// The child is a bypass or discard policy.
    #[error("child {0} is a bypass or discard policy and needs no SA")]
    NotNegotiated(String),
    /// The connection does not say where the peer is.
    #[error("connection {0} has no single remote address to initiate to")]
    NoPeer(String),
    /// The names that the connection has for its peer have no address.
    #[error("no name in remote_addrs of connection {0} has an address")]
    Unresolved(String),
    /// A connection without a child to negotiate has no IKE SA.
    #[error("connection {0} has bypass and discard policies alone and needs no IKE_SA")]
    NoIkeSa(String),
    /// In transport mode only a packet from this host to another one can initiate.
    #[error("connection {connection}: a packet from {local} to {remote} is not from this host to a peer")]
    NotBetweenHosts {
        /// Name of the connection.
        connection: String,
        /// Source of the packet.
        local: IpAddr,
        /// Destination of the packet.
        remote: IpAddr,
    },
    /// Packets have begun too many IKE SAs that are not established yet.
    #[error("connection {connection} has {most} IKE_SAs on their way already")]
    TooMany {
        /// Name of the connection.
        connection: String,
        /// The bound.
        most: usize,
    },
    /// None of our addresses can reach the peer for this connection.
    #[error("connection {connection} has no local address to reach {peer} from")]
    NoLocalAddress {
        /// Name of the connection.
        connection: String,
        /// The peer.
        peer: IpAddr,
    },
    /// There is no key to authenticate with.
    #[error("no shared key is loaded for connection {0} between its identities")]
    NoSecret(String),
    /// There is no certificate with a private key to sign with.
    #[error("no certificate whose private key is loaded belongs to our identity on connection {0}")]
    NoPrivateKey(String),
    /// A PPK is required, and none is loaded.
    #[error("connection {0} requires a PPK, but has no ppk_id whose PPK is loaded")]
    NoPpk(String),
    /// Another node of the cluster initiates this connection.
    #[error("connection {0} has its home on another node, which initiates it")]
    Elsewhere(String),
    /// The connection has gone while its names were resolved.
    #[error("the connection was unloaded meanwhile")]
    ConnectionUnloaded,
    /// The child has gone while the names of its connection were resolved.
    #[error("the child was unloaded meanwhile")]
    ChildUnloaded,
    /// The first message could not be made.
    #[error("{0}")]
    Failed(Reason),
}

/// Nothing was terminated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TerminateError {
    /// Nothing matches.
    #[error("no matching SA found")]
    NotFound,
}

/// A serialised IKE SA was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// Another version of the format.
    #[error("snapshot of version {found}, expected {expected}")]
    Version {
        /// The version found.
        found: u16,
        /// The version that this code supports.
        expected: u16,
    },
    /// Older than the present state: going back would reuse IVs and Message IDs.
    #[error("snapshot of {found:?}, but the IKE SA is at {current:?} already")]
    Stale {
        /// The last change in the snapshot.
        found: CommitId,
        /// The last change here.
        current: CommitId,
    },
    /// Another IKE SA here has the SPI.
    #[error("the SPI {0} belongs to another IKE SA")]
    SpiInUse(IkeSpi),
    /// Not the serialised state of an IKE SA.
    #[error("snapshot of {0} octets is damaged")]
    Damaged(usize),
}
