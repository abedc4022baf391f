//! What operators want of the whole cluster, whichever of its nodes they tell.

use super::Secret;
use crate::node::NodeId;
use serde::{Deserialize, Serialize};
use testudo_base::spi::Spi;
use testudo_ike::message::IkeSpi;

/// What a piece of configuration is of, in the order in which they are loaded: each may name what
/// stands before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Class {
    /// Authorities by name.
    Authority,
    /// Secrets, private keys, certificates.
    Credential,
    /// Pools of virtual addresses.
    Pool,
    /// Connections.
    Connection,
}

/// Names a piece of configuration: another with the same name takes its place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PieceName {
    /// What it is of.
    pub class: Class,
    /// Its name, as it is shown to operators: "connection gw".
    pub name: String,
}

/// What a command does to the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Effect {
    /// The piece is there from now on, as the command's octets say.
    Set(PieceName),
    /// It is there no more.
    Unset(PieceName),
    /// No credential is there any more.
    ClearCredentials,
}

/// A command that changes the configuration of all nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Configure {
    /// Who waits for it on the node that says it; 0: nobody.
    pub(crate) job: u64,
    pub(crate) effect: Effect,
    /// The command as the host reads it.
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

/// What the owner of something is asked to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ask {
    /// Bring a child up.
    Initiate {
        /// `connections.<name>`.
        connection: String,
        /// `children.<name>`.
        child: String,
    },
    /// Take SAs down.
    Terminate {
        /// Which.
        sas: Vec<Sa>,
        /// Without waiting for the peer's answer.
        force: bool,
    },
    /// Renew SAs.
    Rekey {
        /// Which.
        sas: Vec<Sa>,
        /// IKE SAs with authentication.
        reauth: bool,
    },
}

/// What comes back to the node that has asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Answer {
    pub(crate) to: NodeId,
    pub(crate) job: u64,
    pub(crate) what: Answered,
}

/// See [`Answer`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Answered {
    /// A line of the log about it.
    Line { connection: Option<String>, level: u8, message: String },
    /// It is up, or cannot be brought up.
    Initiated(Result<(), String>),
}

/// Something has happened to SAs of the sender, for those who listen on other nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum RemoteEvent {
    IkeUp(IkeSpi),
    /// `renewed`: another has its place.
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

/// Which configuration a node has: told by all, so that a difference is found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    /// The digest of all of it.
    pub(crate) whole: u64,
    /// Each piece with its digest. None: what is behind it follows only where digests differ.
    pub(crate) pieces: Option<Vec<(PieceName, u64)>>,
}
