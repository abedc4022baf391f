//! Why control's requests are refused. Packets have no errors, only verdicts.

use crate::spd::PolicyId;
use testudo_crypto::CryptoError;

/// What cannot be built as asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Key material of the wrong length.
    #[error("key material of {found} octets, expected {expected} (key and salt)")]
    KeyMaterial {
        /// Octets given.
        found: usize,
        /// Octets that the algorithm takes.
        expected: usize,
    },
    /// The cipher library refused.
    #[error("the cipher cannot be set up: {0}")]
    Cipher(#[from] CryptoError),
    /// Local and remote outer address of different families.
    #[error("outer addresses of different families, expected both IPv4 or both IPv6")]
    OuterFamilies,
    /// AH covers the addresses, which a NAT changes (RFC 4302 §3.3.3.1.1.1).
    #[error("AH in UDP, expected AH right behind the IP header: it cannot cross a NAT")]
    AhInUdp,
    /// No traffic selector on one side.
    #[error("no traffic selector on the {side} side, expected at least one")]
    NoSelectors {
        /// "local" or "remote".
        side: &'static str,
    },
    /// A replay window outside the limits.
    #[error("replay window of {found} packets, expected 0 or at most {limit}", limit = crate::replay::MAX_WINDOW)]
    ReplayWindow {
        /// Packets asked for.
        found: u32,
    },
    /// A snapshot that does not belong to this SA.
    #[error("snapshot of a replay window of {found} words, expected {expected}")]
    Snapshot {
        /// Words in the snapshot.
        found: usize,
        /// Words of the window.
        expected: usize,
    },
    /// Sequence numbers that the SA cannot send.
    #[error("sequence numbers up to {found}, expected at most {limit}")]
    SequenceNumbers {
        /// End of the block asked for.
        found: u64,
        /// The last that the SA's numbers allow.
        limit: u64,
    },
    /// A path MTU that no inner packet fits.
    #[error("path MTU of {found} octets, expected at least {expected}")]
    PathMtu {
        /// Octets given.
        found: u16,
        /// Octets needed.
        expected: u16,
    },
    /// Two policies with the same number.
    #[error("policy number {} is there twice, expected it once", .0.0)]
    DuplicatePolicy(PolicyId),
    /// A policy number beyond the table.
    #[error("policy number {}, expected less than {limit}", .found.0, limit = PolicyId::LIMIT)]
    PolicyNumber {
        /// The number given.
        found: PolicyId,
    },
    /// More policies than an SPD holds.
    #[error("{found} policies, expected at most {limit}", limit = crate::spd::MAX_POLICIES)]
    TooManyPolicies {
        /// How many were given.
        found: usize,
    },
}
