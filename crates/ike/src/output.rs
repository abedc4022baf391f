//! What the IKE endpoint asks its host to do, and what it tells.

pub use testudo_base::time::Time;

use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};
use testudo_base::spi::Spi;
use testudo_ipsec::sa::ChildSaParams;

/// The time of day, in seconds since 1970: what certificates are valid by.
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

/// Local number of an IKE SA: strongSwan's `uniqueid`. Never used twice by one endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct IkeSaId(pub u64);

/// Local number of a Child SA: strongSwan's `uniqueid` of a child. Never used twice by one
/// endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ChildSaId(pub u64);

/// Names a state change. An output may leave only once the change it names is stable; a single node
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

/// One thing for the host to do, in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Output {
    /// Send an IKE message (without non-ESP marker) once `after` is stable.
    Send {
        /// The IKE SA whose message it is; none for an answer to a stranger. For
        /// [`crate::endpoint::Endpoint::not_sent`].
        ike: Option<IkeSaId>,
        /// The state change that the message depends on.
        after: CommitId,
        /// From where to where.
        path: Path,
        /// The message.
        bytes: Vec<u8>,
    },
    /// Send a NAT keepalive, one octet 0xFF (RFC 3948 §2.3).
    Keepalive {
        /// From where to where.
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
        /// All that the data plane needs.
        params: Box<ChildSaParams>,
        /// The Child SA that it renews: until [`Output::SwitchChild`] it only takes packets in, and
        /// that one goes on sending. None: both directions are used at once.
        replaces: Option<ChildSaId>,
    },
    /// What has gone out through one Child SA goes out through another from the next packet on. The
    /// first still takes packets in.
    SwitchChild {
        /// The one that is done.
        from: ChildSaId,
        /// The one that has taken its place.
        to: ChildSaId,
    },
    /// What the selectors of a Child SA say goes out through it from the next packet on, although
    /// it came up beside another, which carries something else too and stays.
    StartChild {
        /// The Child SA.
        child: ChildSaId,
    },
    /// The peer moved (RFC 7296 §2.23): the Child SA has new outer addresses from now on. Not asked
    /// for one through which nothing goes out any more.
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
    /// The peer, a cluster, wants numbers left out (RFC 6311 §5.2): the next packet has one at
    /// least so much higher than it would have had. Where the Child SA has not so many, it needs
    /// new keys.
    AdvanceSequence {
        /// The Child SA.
        child: ChildSaId,
        /// How many.
        by: u64,
    },
    /// Take the Child SA away from the data plane; its SPI rests.
    RemoveChild {
        /// The Child SA.
        child: ChildSaId,
        /// The SPI that we chose.
        spi_in: Spi,
    },
    /// The peer has given us a virtual address: it is ours for as long as the IKE SA lives.
    InstallAddress {
        /// The IKE SA that it came with.
        ike: IkeSaId,
        /// The address.
        addr: IpAddr,
    },
    /// The virtual address is no longer ours, unless another IKE SA has brought it too.
    RemoveAddress {
        /// The IKE SA that it came with.
        ike: IkeSaId,
        /// The address.
        addr: IpAddr,
    },
    /// Something happened that operators and waiting commands want to know.
    Event(Event),
}

/// Events for logs, `swanctl --initiate` and monitoring.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// A line about an IKE SA as `swanctl` would show it; never holds a secret.
    Log {
        /// Which IKE SA, if any yet.
        ike: Option<IkeSaId>,
        /// `connections.<name>`, if known.
        connection: Option<String>,
        /// How much it matters.
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
    /// The second Child SA is installed in the place of the first, which goes soon.
    ChildRekeyed(IkeSaId, ChildSaId, ChildSaId),
    /// The second IKE SA is established in the place of the first, which goes soon; the Child SAs
    /// are the second's now.
    IkeRekeyed(IkeSaId, IkeSaId),
    /// The peer makes no further Child SA on that IKE SA: the initiation goes on with an IKE SA of
    /// its own.
    InitiateMoved {
        /// The IKE SA that tried.
        from: IkeSaId,
        /// The one that tries now.
        to: IkeSaId,
        /// `children.<name>`.
        child: String,
    },
    /// An initiation asked for by the host came to its end.
    InitiateDone {
        /// The IKE SA that tried.
        ike: IkeSaId,
        /// `children.<name>`.
        child: String,
        /// The Child SA, or why there is none.
        result: Result<ChildSaId, Reason>,
    },
}

/// How much a line of the log matters, the most first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum LogLevel {
    /// This gateway cannot do what it must do.
    Error,
    /// Something did not come about that was asked for, a tunnel as a rule, or is about to fail.
    Warning,
    /// SAs that come up, and what an operator has changed.
    Notice,
    /// The ordinary course.
    Info,
    /// What was offered, what was chosen, and why.
    Detail,
}

impl LogLevel {
    /// The level that charon gives such lines, by which clients of VICI ask for them. Failures
    /// stand among the first.
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
    /// No answer either, and this host is to blame.
    #[error(
        "no answer from {remote} after {transmissions} transmissions, the last of which could not be sent: {error}"
    )]
    Unsent {
        /// The peer that could not be reached.
        remote: SocketAddr,
        /// How often we tried to send the request.
        transmissions: u32,
        /// Why the last was not sent.
        error: String,
    },
    /// The peer answered with an error notify (RFC 7296 §3.10.1).
    #[error("the peer answered {0}")]
    Notify(String),
    /// What the peer sent cannot be accepted, or nothing could be sent; the text says why.
    #[error("{0}")]
    Refused(String),
    /// Another SA has taken its place.
    #[error("replaced by a new SA")]
    Rekeyed,
    /// An IKE SA that was set up from scratch has taken its place.
    #[error("reauthenticated: a new IKE_SA has taken its place")]
    Reauthenticated,
    /// It has lived as long as it may, and was not renewed.
    #[error("its lifetime is over")]
    Expired,
    /// The same peer set up a new IKE SA and said that it knows of no other (INITIAL_CONTACT).
    #[error("replaced: the peer began anew")]
    Replaced,
}

impl Reason {
    /// True if it ended for no good reason: an operator should know.
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
