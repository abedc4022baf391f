//! Outputs of the IKE endpoint: tasks for its host, and events.

pub use testudo_base::time::Time;

use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};
use testudo_base::spi::Spi;
use testudo_ipsec::sa::ChildSaParams;

/// The time of day, in seconds since 1970, by which certificates are valid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct UnixTime(pub u64);

/// For logs, in UTC.
impl std::fmt::Display for UnixTime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match der::DateTime::from_unix_duration(std::time::Duration::from_secs(self.0)) {
            Ok(time) => write!(f, "{time}"),
            Err(_) => write!(f, "{} s after 1970", self.0),
        }
    }
}

/// Local number of an IKE SA: strongSwan's `uniqueid`. An endpoint never reuses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct IkeSaId(pub u64);

/// Local number of a Child SA: strongSwan's `uniqueid` of a child. An endpoint never reuses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ChildSaId(pub u64);

/// Identifies a state change. An output may leave only once its change is stable; a lone node
/// commits at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CommitId(pub u64);

/// The two ends of a UDP conversation. On port 4500 the host puts the non-ESP marker before the
/// message (RFC 7296 §2.23).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Path {
    /// Our address and port.
    pub local: SocketAddr,
    /// The peer's address and port.
    pub remote: SocketAddr,
}

/// A task for the host, to be done in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Output {
    /// Send an IKE message (without non-ESP marker) once `after` is stable.
    Send {
        /// The IKE SA whose message it is; none for an answer to a stranger. For
        /// [`crate::endpoint::Endpoint::not_sent`].
        ike: Option<IkeSaId>,
        /// The state change that the message depends on.
        after: CommitId,
        /// The path.
        path: Path,
        /// The message.
        bytes: Vec<u8>,
    },
    /// Send a NAT keepalive, one octet 0xFF (RFC 3948 §2.3).
    Keepalive {
        /// The path.
        path: Path,
    },
    /// Give the Child SA to the data plane.
    InstallChild {
        /// Its IKE SA.
        ike: IkeSaId,
        /// The Child SA.
        child: ChildSaId,
        /// `connections.<name>`.
        connection: String,
        /// `children.<name>`.
        name: String,
        /// The parameters for the data plane.
        params: Box<ChildSaParams>,
        /// The Child SA that it rekeys: until [`Output::SwitchChild`] the new one is used inbound
        /// only, and the old one continues to send. `None`: both directions are used at once.
        replaces: Option<ChildSaId>,
    },
    /// Move outbound traffic from one Child SA to another, from the next packet on. The first one
    /// is still used inbound.
    SwitchChild {
        /// The former one.
        from: ChildSaId,
        /// Its successor.
        to: ChildSaId,
    },
    /// Send the traffic of a Child SA's selectors through it from the next packet on, although it
    /// came up beside another one that has other traffic too and stays.
    StartChild {
        /// The Child SA.
        child: ChildSaId,
    },
    /// The peer has moved (RFC 7296 §2.23): the Child SA has new outer addresses. Not sent for one
    /// that does not send any more.
    UpdateChild {
        /// The Child SA.
        child: ChildSaId,
        /// The SPI that we chose.
        spi_in: Spi,
        /// The SPI that the peer chose.
        spi_out: Spi,
        /// The new ends; the ports count with UDP encapsulation.
        path: Path,
    },
    /// The peer, a cluster, asks to skip numbers (RFC 6311 §5.2): the next packet's number is
    /// higher by at least this many. If the Child SA has too few numbers left, it must be rekeyed.
    AdvanceSequence {
        /// The Child SA.
        child: ChildSaId,
        /// How many.
        by: u64,
    },
    /// Remove the Child SA from the data plane; its SPI rests.
    RemoveChild {
        /// The Child SA.
        child: ChildSaId,
        /// The SPI that we chose.
        spi_in: Spi,
    },
    /// The peer has assigned a virtual address to us: it is ours for as long as the IKE SA lives.
    InstallAddress {
        /// The IKE SA that brought it.
        ike: IkeSaId,
        /// The address.
        addr: IpAddr,
    },
    /// The virtual address is not ours any more, unless another IKE SA has brought it too.
    RemoveAddress {
        /// The IKE SA that brought it.
        ike: IkeSaId,
        /// The address.
        addr: IpAddr,
    },
    /// An event for operators and waiting commands.
    Event(Event),
    /// Send through the Child SA what this worker sends of the traffic of its selectors (RFC 9611).
    /// It was installed beside the fallback SA, which it does not replace. The successor to which it
    /// switches is for the same worker, unless it is the fallback SA itself; one to which the fallback
    /// SA switches is for all.
    BindChild {
        /// The Child SA.
        child: ChildSaId,
        /// Number of the worker.
        worker: u16,
    },
}

/// Events for logs, `swanctl --initiate` and monitoring.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// A line about an IKE SA as `swanctl` would show it; never holds a secret.
    Log {
        /// The IKE SA, if there is one yet.
        ike: Option<IkeSaId>,
        /// `connections.<name>`, if known.
        connection: Option<String>,
        /// Its level.
        level: LogLevel,
        /// The line.
        message: String,
    },
    /// An IKE SA is established.
    IkeUp(IkeSaId),
    /// An IKE SA is gone.
    IkeDown(IkeSaId, Reason),
    /// A Child SA is installed.
    ChildUp(IkeSaId, ChildSaId),
    /// A Child SA is gone.
    ChildDown(IkeSaId, ChildSaId, Reason),
    /// A peer has proved its identity by a certificate of another CA than before. It is accepted: the
    /// configuration trusts both.
    OtherVoucher {
        /// The IKE SA.
        ike: IkeSaId,
        /// The identity.
        identity: String,
        /// How it was proved, for people.
        line: String,
    },
    /// The second Child SA is installed in place of the first, which will be removed soon.
    ChildRekeyed(IkeSaId, ChildSaId, ChildSaId),
    /// The second IKE SA is established in place of the first, which will end soon, and has its
    /// Child SAs now.
    IkeRekeyed(IkeSaId, IkeSaId),
    /// The peer makes no further Child SA on an IKE SA: the initiation continues with an IKE SA of
    /// its own.
    InitiateMoved {
        /// The former IKE SA.
        from: IkeSaId,
        /// The new IKE SA.
        to: IkeSaId,
        /// `children.<name>`.
        child: String,
    },
    /// An initiation that the host asked for has ended.
    InitiateDone {
        /// The last IKE SA that tried.
        ike: IkeSaId,
        /// `children.<name>`.
        child: String,
        /// The Child SA, or why there is none.
        result: Result<ChildSaId, Reason>,
    },
}

/// Levels of log lines, the most important first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum LogLevel {
    /// This gateway cannot do its job.
    Error,
    /// A request has failed, usually for a tunnel, or is about to fail.
    Warning,
    /// SAs that come up, and changes by an operator.
    Notice,
    /// The ordinary course.
    Info,
    /// Offers, choices, and their reasons.
    Detail,
}

impl LogLevel {
    /// charon's level for such lines, by which clients of VICI select them. Failures have the
    /// lowest.
    pub fn charon(self) -> u8 {
        match self {
            Self::Error | Self::Warning | Self::Notice => 0,
            Self::Info => 1,
            Self::Detail => 2,
        }
    }
}

/// Why something ended; the text is for operators.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Reason {
    /// The operator asked for it.
    #[error("terminated by request")]
    Requested,
    /// The peer sent a delete.
    #[error("deleted by the peer")]
    DeletedByPeer,
    /// No answer to this many transmissions.
    #[error("no answer from {remote} after {transmissions} transmissions")]
    Timeout {
        /// The silent peer.
        remote: SocketAddr,
        /// How often the request was sent.
        transmissions: u32,
    },
    /// There was no answer, and this host could not send.
    #[error(
        "no answer from {remote} after {transmissions} transmissions, the last of which could not be sent: {error}"
    )]
    Unsent {
        /// The peer that could not be reached.
        remote: SocketAddr,
        /// How often sending was tried.
        transmissions: u32,
        /// The error of the last attempt.
        error: String,
    },
    /// The peer answered with an error notify (RFC 7296 §3.10.1).
    #[error("the peer answered {0}")]
    Notify(String),
    /// The peer's message is not acceptable, or nothing could be sent; the text says why.
    #[error("{0}")]
    Refused(String),
    /// Another SA has taken its place.
    #[error("replaced by a new SA")]
    Rekeyed,
    /// An IKE SA that was set up from scratch has taken its place.
    #[error("reauthenticated: a new IKE_SA has replaced it")]
    Reauthenticated,
    /// Its lifetime is over, and it was not renewed.
    #[error("its lifetime is over")]
    Expired,
    /// The same peer set up a new IKE SA and said that it knows of no other (INITIAL_CONTACT).
    #[error("replaced: the peer started again")]
    Replaced,
}

impl Reason {
    /// True if it ended by a failure that an operator should know.
    pub fn is_failure(&self) -> bool {
        match self {
            Self::Timeout { .. }
            | Self::Unsent { .. }
            | Self::Notify(_)
            | Self::Refused(_)
            | Self::Expired => true,
            Self::Requested
            | Self::DeletedByPeer
            | Self::Rekeyed
            | Self::Reauthenticated
            | Self::Replaced => false,
        }
    }
}
