//! Why there are no figures.

use crate::esp::{node, rig::Fault};
use crate::pin::PinError;
use std::io;
use std::path::PathBuf;
use testudo_crypto::CryptoError;

/// What has kept a benchmark from its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BenchError {
    /// The hosts of the lab, or a daemon on them.
    #[error(transparent)]
    Lab(#[from] testudo_lab::Error),
    /// The cipher library cannot be used.
    #[error(transparent)]
    Library(#[from] CryptoError),
    /// The thread has no CPU of its own.
    #[error(transparent)]
    Pin(#[from] PinError),
    /// The gateways of the pipeline could not be set up.
    #[error(transparent)]
    Gateways(#[from] node::SetupError),
    /// A packet was lost or damaged: the figures would be of something else.
    #[error(transparent)]
    Pipeline(#[from] Fault),
    /// The bare cipher did not decrypt what it had encrypted.
    #[error("the cipher refused its own packets")]
    Cipher,
    /// The cryptography of the limit failed.
    #[error("the bare cryptography failed")]
    Limit,
    /// A daemon does not answer as it should.
    #[error("VICI: {0}")]
    Vici(#[from] testudo_vici::Error),
    /// The swarm's socket failed.
    #[error("the swarm's socket: {source}")]
    Socket {
        /// Why.
        source: io::Error,
    },
    /// The swarm's configuration is wrong.
    #[error("the swarm's connection: {0}")]
    Template(String),
    /// A handshake failed.
    #[error("a handshake of the swarm failed: {reason}")]
    Refused {
        /// What the initiator says.
        reason: String,
    },
    /// The responder does not answer.
    #[error("the responder has answered none of {waiting} handshakes for a minute")]
    Silent {
        /// How many wait.
        waiting: usize,
    },
    /// The daemon has not what the swarm has set up.
    #[error("found {found} {what}, expected {expected}")]
    Lost {
        /// Of what.
        what: &'static str,
        /// What it has.
        found: u64,
        /// What it should have.
        expected: u32,
    },
    /// The daemon's usage cannot be read.
    #[error("cannot read the daemon's {what}: {source}")]
    Usage {
        /// Of what.
        what: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// The report could not be written.
    #[error("cannot write {}: {source}", .path.display())]
    Write {
        /// Where to.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}
