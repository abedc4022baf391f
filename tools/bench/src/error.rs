//! Errors of a benchmark.

use crate::esp::{node, rig::Fault};
use crate::pin::PinError;
use std::io;
use std::path::PathBuf;
use testudo_crypto::CryptoError;

/// A time that is given as an argument is out of bounds, or no number.
#[derive(Debug, thiserror::Error)]
#[error("expected {unit}, above 0 and at most {most}")]
pub(crate) struct TimeError {
    unit: &'static str,
    most: f64,
}

impl TimeError {
    /// Parses a time in that unit.
    pub(crate) fn check(text: &str, unit: &'static str, most: f64) -> Result<f64, Self> {
        let time = text.parse().ok().filter(|time| *time > 0.0 && *time <= most);
        time.ok_or(Self { unit, most })
    }
}

/// The reason why a benchmark could not finish.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BenchError {
    /// A host of the lab or one of its daemons failed.
    #[error(transparent)]
    Lab(#[from] testudo_lab::Error),
    /// The filter could not be loaded or run.
    #[error("the XDP filter: {0}; it needs root")]
    Filter(#[from] testudo_fastpath::filter::FilterError),
    /// The cipher library cannot be used.
    #[error(transparent)]
    Library(#[from] CryptoError),
    /// The thread could not be bound to a CPU.
    #[error(transparent)]
    Pin(#[from] PinError),
    /// The gateways of the pipeline could not be set up.
    #[error(transparent)]
    Gateways(#[from] node::SetupError),
    /// A packet was lost or damaged: the figures would be wrong.
    #[error(transparent)]
    Pipeline(#[from] Fault),
    /// The bare cipher did not decrypt its own output.
    #[error("the cipher refused its own packets")]
    Cipher,
    /// The cryptography of the limit failed.
    #[error("the bare cryptography failed")]
    Limit,
    /// A daemon's answer is wrong.
    #[error("VICI: {0}")]
    Vici(#[from] testudo_vici::Error),
    /// The swarm's socket failed.
    #[error("the swarm's socket: {source}")]
    Socket {
        /// The reason.
        source: io::Error,
    },
    /// The swarm's configuration is wrong.
    #[error("the swarm's connection: {0}")]
    Template(String),
    /// A handshake failed.
    #[error("a handshake of the swarm failed: {reason}")]
    Refused {
        /// The initiator's reason.
        reason: String,
    },
    /// The responder does not answer.
    #[error("the responder has answered none of {waiting} handshakes for a minute")]
    Silent {
        /// The number of waiting handshakes.
        waiting: usize,
    },
    /// The daemon lacks SAs that the swarm has set up.
    #[error("found {found} {what}, expected {expected}")]
    Lost {
        /// The kind of SA.
        what: &'static str,
        /// The number it has.
        found: u64,
        /// The number it should have.
        expected: u32,
    },
    /// The daemon's usage cannot be read.
    #[error("cannot read the daemon's {what}: {source}")]
    Usage {
        /// The kind of usage.
        what: &'static str,
        /// The reason.
        source: io::Error,
    },
    /// The report could not be written.
    #[error("cannot write {}: {source}", .path.display())]
    Write {
        /// The path.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
}
