//! What is wrong with a certificate, a list of revoked ones, or a key. The texts are for logs and
//! for who loads them.

/// Why something cannot be read or loaded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CertError {
    /// Not the structure that it should be.
    #[error("{what} is malformed: {why}")]
    Malformed {
        /// What was read.
        what: &'static str,
        /// What the decoder says.
        why: String,
    },
    /// A PEM block of another kind.
    #[error("found a PEM block of {found}, expected {expected}")]
    Label {
        /// Its label.
        found: String,
        /// The label, or labels, that would do.
        expected: &'static str,
    },
    /// More octets than any honest one has.
    #[error("{what} has {found} octets, at most {limit} are read")]
    TooLarge {
        /// What was to be read.
        what: &'static str,
        /// Its octets.
        found: usize,
        /// The most that are read.
        limit: usize,
    },
    /// More of something than any honest one has.
    #[error("found {found} {what}, at most {limit} are read")]
    TooMany {
        /// What was to be read.
        what: &'static str,
        /// How many there are.
        found: usize,
        /// The most that are read.
        limit: usize,
    },
    /// A key that we cannot use.
    #[error(
        "public key is {0}; expected RSA of 2048 to 8192 bits, ECDSA on P-256, P-384 or P-521, or Ed25519"
    )]
    Key(String),
    /// A signature algorithm that we do not have, or do not trust.
    #[error("{0}; expected RSA, ECDSA or Ed25519 with SHA-256, SHA-384 or SHA-512")]
    Algorithm(String),
    /// The certificate is no CA's.
    #[error("certificate '{0}' lacks the CA basic constraint")]
    NoCa(String),
    /// Neither PKCS #1, nor SEC 1, nor PKCS #8, or a key that is damaged.
    #[error(
        "no usable private key: expected RSA of 2048 to 8192 bits, ECDSA on P-256, P-384 or P-521, or Ed25519, in PKCS #1, SEC 1 or PKCS #8, not encrypted"
    )]
    PrivateKey,
    /// The library did not make a signature.
    #[error("the library could not sign by {0}")]
    Sign(super::SignatureScheme),
    /// Nor one with SHA-1.
    #[error("the library could not sign by RSA with SHA-1")]
    SignSha1,
}

impl CertError {
    pub(super) fn malformed(what: &'static str, why: impl ToString) -> Self {
        Self::Malformed { what, why: why.to_string() }
    }
}
