//! Operators' commands for the whole cluster, given on any of its nodes.

use super::Secret;
use crate::node::NodeId;
use serde::{Deserialize, Serialize};
use testudo_base::spi::Spi;
use testudo_ike::message::IkeSpi;

/// The kinds of configuration pieces, in the order of loading: a piece may refer to pieces of an
/// earlier kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Class {
    /// Certificate authorities.
    Authority,
    /// Secrets, private keys, certificates.
    Credential,
    /// Pools of virtual addresses.
    Pool,
    /// Connections.
    Connection,
}

/// Name of a piece of configuration. A piece replaces another one of the same name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PieceName {
    /// Its kind.
    pub class: Class,
    /// The name as shown to operators, such as "connection gw".
    pub name: String,
}

/// The effect of a command on the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Effect {
    /// The piece exists from now on, as the command's octets say.
    Set(PieceName),
    /// The piece does not exist any more.
    Unset(PieceName),
    /// No credential exists any more.
    ClearCredentials,
    /// The piece is set if the command that has set it so far has this digest, and otherwise left
    /// as it is. The command derives from that other one, and must not undo a later one.
    Replace {
        /// The piece.
        name: PieceName,
        /// Digest of the command that is replaced.
        of: u64,
    },
}

/// A command that changes the configuration of all nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Configure {
    /// The job that waits for it on the sender; 0 for none.
    pub(crate) job: u64,
    pub(crate) effect: Effect,
    /// The command in the host's format.
    pub(crate) octets: Secret,
}

/// SAs of the cluster, by the SPIs that we chose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Sa {
    /// An IKE SA.
    Ike(IkeSpi),
    /// A Child SA.
    Child(Spi),
}

/// A task for the owner of an SA.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ask {
    /// Initiate a child.
    Initiate {
        /// `connections.<name>`.
        connection: String,
        /// `children.<name>`.
        child: String,
    },
    /// Terminate SAs.
    Terminate {
        /// The SAs.
        sas: Vec<Sa>,
        /// Do not wait for the peer's answer.
        force: bool,
    },
    /// Rekey SAs.
    Rekey {
        /// The SAs.
        sas: Vec<Sa>,
        /// Reauthenticate IKE SAs instead.
        reauth: bool,
    },
}

/// The result of a task, for the node that gave it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Answer {
    pub(crate) to: NodeId,
    pub(crate) job: u64,
    pub(crate) what: Answered,
}

/// See [`Answer`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Answered {
    /// A log line about the task.
    Line {
        connection: Option<String>,
        level: u8,
        message: String,
    },
    Initiated(InitiationOutcome),
}

/// The outcome of an initiation by another node. Its encoding is that of a `Result<(), String>`: an
/// owner of another version may have a reason that this node does not know, so its text is sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum InitiationOutcome {
    /// The Child SA is up, or the IKE SA, if it was asked for alone.
    Up,
    /// Neither was set up.
    Failed {
        /// The owner's reason.
        reason: String,
    },
}

/// An event of the sender's SAs, for listeners on other nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum RemoteEvent {
    IkeUp(IkeSpi),
    /// `renewed`: another IKE SA has taken its place.
    IkeDown {
        ike: IkeSpi,
        renewed: bool,
    },
    IkeRekeyed {
        old: IkeSpi,
        new: IkeSpi,
    },
    ChildUp {
        ike: IkeSpi,
        child: Spi,
    },
    ChildDown {
        ike: IkeSpi,
        child: Spi,
        renewed: bool,
    },
    ChildRekeyed {
        ike: IkeSpi,
        old: Spi,
        new: Spi,
    },
}

/// A node's configuration digests. All nodes publish theirs, so that a difference is found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    /// The digest of all pieces.
    pub(crate) whole: u64,
    /// Each piece with its digest. `None` until `whole` differs between nodes.
    pub(crate) pieces: Option<Vec<(PieceName, u64)>>,
}
