//! Errors before the first packet. Burst calls have no errors, only unauthentic packets.

use crate::library::Library;

/// Why a library, key or argument was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CryptoError {
    /// The key does not have the algorithm's length.
    #[error("key of {found} octets, expected {expected}")]
    KeyLength {
        /// Octets given.
        found: usize,
        /// Octets that the algorithm takes.
        expected: usize,
    },
    /// There is more additional authenticated data than a job holds.
    #[error("additional authenticated data of {found} octets, expected at most {limit}")]
    AadLength {
        /// Octets given.
        found: usize,
        /// Octets that a job holds.
        limit: usize,
    },
    /// The library cannot be used in this process.
    #[error("{library} cannot be used: {reason}")]
    Unavailable {
        /// The library.
        library: Library,
        /// The reason.
        reason: &'static str,
    },
    /// The name is not that of a library.
    #[error("unknown cipher library {found:?}, expected \"ipsec-mb\" or \"aws-lc\"")]
    UnknownLibrary {
        /// The name given.
        found: String,
    },
    /// The library refused a key of the right length.
    #[error("{library} refused the key")]
    KeyRefused {
        /// Which one.
        library: Library,
    },
}
