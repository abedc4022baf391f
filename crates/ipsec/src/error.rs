//! Errors of control's requests. Packets have no errors, only verdicts.

use crate::spd::PolicyId;
use testudo_crypto::CryptoError;

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The key material has the wrong length.
    #[error("key material of {found} octets, expected {expected} (key and salt)")]
    KeyMaterial {
        /// Octets given.
        found: usize,
        /// Octets that the algorithm takes.
        expected: usize,
    },
    /// The cipher library refused the key.
    #[error("the cipher cannot be set up: {0}")]
    Cipher(#[from] CryptoError),
    /// Local and remote outer address are of different families.
    #[error("outer addresses of different families, expected both IPv4 or both IPv6")]
    OuterFamilies,
    /// AH in UDP: AH covers the addresses, which a NAT changes (RFC 4302 §3.3.3.1.1.1).
    #[error("AH in UDP, expected AH right behind the IP header: it cannot cross a NAT")]
    AhInUdp,
    /// One side has no traffic selector.
    #[error("no traffic selector on the {side} side, expected at least one")]
    NoSelectors {
        /// "local" or "remote".
        side: &'static str,
    },
    /// The size of the replay window is out of range.
    #[error("replay window of {found} packets, expected 0 or at most {limit}", limit = crate::replay::MAX_WINDOW)]
    ReplayWindow {
        /// Packets asked for.
        found: u32,
    },
    /// The snapshot does not belong to this SA.
    #[error("snapshot of a replay window of {found} words, expected {expected}")]
    Snapshot {
        /// Words in the snapshot.
        found: usize,
        /// Words of the window.
        expected: usize,
    },
    /// The block has sequence numbers that the SA cannot use.
    #[error("sequence numbers up to {found}, expected at most {limit}")]
    SequenceNumbers {
        /// End of the block asked for.
        found: u64,
        /// The last number that the SA may use.
        limit: u64,
    },
    /// The stripe has no such class.
    #[error("class {class} of a stripe with {classes} classes, expected a lower one")]
    StripeClass {
        /// The class asked for.
        class: u8,
        /// Classes of the stripe.
        classes: u8,
    },
    /// The stripe has rows that cannot be counted.
    #[error("stripe of {rows} rows from row {first_row} on, expected its end below 2^64")]
    StripeRows {
        /// First row of the stripe.
        first_row: u64,
        /// Rows of the stripe.
        rows: u64,
    },
    /// The stripe has numbers of an earlier stripe, which would be used twice.
    #[error("stripe from number {start} on, expected {expected} or more, behind the stripe before it")]
    StripeOverlap {
        /// First number of the stripe.
        start: u64,
        /// End of the stripe before it.
        expected: u64,
    },
    /// The path MTU leaves no room for an inner packet.
    #[error("path MTU of {found} octets, expected at least {expected}")]
    PathMtu {
        /// Octets given.
        found: u16,
        /// Octets needed.
        expected: u16,
    },
    /// Two policies have the same number.
    #[error("policy number {} appears twice, expected once", .0.0)]
    DuplicatePolicy(PolicyId),
    /// The number of a policy is beyond the table.
    #[error("policy number {}, expected less than {limit}", .found.0, limit = PolicyId::LIMIT)]
    PolicyNumber {
        /// The number given.
        found: PolicyId,
    },
    /// There are more policies than an SPD holds.
    #[error("{found} policies, expected at most {limit}", limit = crate::spd::MAX_POLICIES)]
    TooManyPolicies {
        /// How many were given.
        found: usize,
    },
}
