//! Errors of the cryptography.

use crate::config::KeyExchange;
use crate::message::{EncodeError, KeMethod};

/// Why a computation has no result. No variant holds a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SuiteError {
    /// AH was negotiated, and a NAT changes what it covers.
    #[error("AH cannot cross a NAT, which changes the addresses that it covers")]
    AhBehindNat,
    /// The entropy source gave no usable private key, many times over.
    #[error("the entropy source gives no valid private key for {0:?}")]
    Entropy(KeyExchange),
    /// The KE payload is of another method than the negotiated one.
    #[error("KE payload is for method {found}, expected {expected}")]
    KeMethod {
        /// In the payload.
        found: KeMethod,
        /// The negotiated method.
        expected: KeMethod,
    },
    /// The public value does not have the method's length.
    #[error("public value for {method} has {found} octets, expected {expected}")]
    KeLength {
        /// The method.
        method: KeMethod,
        /// Octets in the payload.
        found: usize,
        /// Octets of the method.
        expected: usize,
    },
    /// The public value is not a point of the curve, is outside the group (RFC 6989 §2.1), or gives
    /// the all-zero secret (RFC 5903 §5, RFC 8031 §5).
    #[error("public value for {0} is not valid")]
    KePublic(KeMethod),
    /// A stored private key is invalid.
    #[error("stored private key for {0} is not valid")]
    KePrivate(KeMethod),
    /// prf+ ends after 255 rounds (RFC 7296 §2.13).
    #[error("prf+ was asked for {asked} octets, it gives at most {limit}")]
    PrfPlus {
        /// Octets requested.
        asked: usize,
        /// The bound.
        limit: usize,
    },
    /// HMAC or AES failed within the library.
    #[error("the library could not compute the PRF")]
    Prf,
    /// A key exchange is mandatory for a new IKE SA (RFC 7296 §2.18).
    #[error("an IKE SA cannot be renewed without a key exchange")]
    NoKeyExchange,
    /// A stored key does not have the length of its algorithm.
    #[error("key and salt have {found} octets, expected {expected}")]
    KeyLength {
        /// Octets stored.
        found: usize,
        /// Octets of the algorithm.
        expected: usize,
    },
    /// All IVs under this key are used: the IKE SA must be rekeyed.
    #[error("no IV is left for this key")]
    IvExhausted,
    /// The message does not fit the wire format.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// The cipher failed to seal within the library.
    #[error("the library could not seal the message")]
    Seal,
    /// The Encrypted payload is shorter than IV, pad length and ICV together.
    #[error("Encrypted payload has {found} octets, expected at least {needed}")]
    Short {
        /// Octets found.
        found: usize,
        /// The least length.
        needed: usize,
    },
    /// The integrity check failed: forged, damaged, or sealed with other keys.
    #[error("integrity check of the Encrypted payload failed")]
    Integrity,
    /// An authentic CBC ciphertext is not a whole number of blocks.
    #[error("ciphertext of {0} octets is no whole number of blocks")]
    Blocks(usize),
    /// The padding of an authentic payload is longer than the payload.
    #[error("padding of {found} octets in {available} octets of plaintext")]
    Padding {
        /// The pad length.
        found: usize,
        /// Octets of plaintext before it.
        available: usize,
    },
    /// The responder found no acceptable proposal.
    #[error("no acceptable proposal among {offered}")]
    NoProposal {
        /// Number of proposals.
        offered: usize,
    },
    /// The response is not a choice from our offer (RFC 7296 §3.3.6).
    #[error("the answer is not a choice from our offer: {0}")]
    NotOffered(&'static str),
}
