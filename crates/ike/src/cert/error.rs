//! What is wrong with a certificate, a list of revoked ones, a key or a chain. The texts are for
//! logs and for who loads them.

use super::chain::{MAX_LENGTH, MAX_SIGNATURES};
use super::dn::DistinguishedName;
use super::scheme::SignatureScheme;
use crate::config::Identity;
use crate::output::UnixTime;

/// Why something cannot be decoded or loaded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CertError {
    /// The structure is not valid.
    #[error("{what} is malformed: {why}")]
    Malformed {
        /// The kind of structure.
        what: &'static str,
        /// The decoder's message.
        why: String,
    },
    /// The PEM block is of another kind.
    #[error("found a PEM block of {found}, expected {expected}")]
    Label {
        /// Its label.
        found: String,
        /// The label, or labels, expected.
        expected: &'static str,
    },
    /// It has more octets than any honest one.
    #[error("{what} has {found} octets, at most {limit} are read")]
    TooLarge {
        /// The kind of structure.
        what: &'static str,
        /// Its octets.
        found: usize,
        /// The bound.
        limit: usize,
    },
    /// There are more of these than in any honest structure.
    #[error("found {found} {what}, at most {limit} are read")]
    TooMany {
        /// The kind of element.
        what: &'static str,
        /// Their number.
        found: usize,
        /// The bound.
        limit: usize,
    },
    /// The key is of a kind that is not supported.
    #[error(
        "public key is {0}; expected RSA of 2048 to 8192 bits, ECDSA on P-256, P-384 or P-521, or Ed25519"
    )]
    Key(String),
    /// The signature algorithm is not supported, or not trusted.
    #[error("{0}; expected RSA, ECDSA or Ed25519 with SHA-256, SHA-384 or SHA-512")]
    Algorithm(String),
    /// The certificate is not a CA's.
    #[error("certificate '{0}' lacks the CA basic constraint")]
    NoCa(String),
    /// The key is neither PKCS #1, nor SEC 1, nor PKCS #8, or is damaged.
    #[error(
        "no usable private key: expected RSA of 2048 to 8192 bits, ECDSA on P-256, P-384 or P-521, or Ed25519, in PKCS #1, SEC 1 or PKCS #8, not encrypted"
    )]
    PrivateKey,
    /// The library could not sign.
    #[error("the library could not sign by {0}")]
    Sign(SignatureScheme),
    /// The library could not sign with SHA-1.
    #[error("the library could not sign by RSA with SHA-1")]
    SignSha1,
}

impl CertError {
    pub(super) fn malformed(what: &'static str, why: impl ToString) -> Self {
        Self::Malformed { what, why: why.to_string() }
    }
}

/// Why a certificate does not count at the time by which it is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OutOfDate {
    /// Its time has not come.
    #[error("not valid before {from}, now it is {now}")]
    Early {
        /// When it begins to count.
        from: UnixTime,
        /// The time by which it is judged.
        now: UnixTime,
    },
    /// Its time is over.
    #[error("expired at {until}, now it is {now}")]
    Late {
        /// The last time at which it counted.
        until: UnixTime,
        /// The time by which it is judged.
        now: UnixTime,
    },
}

/// Why a certificate leads to no CA that is trusted here. Certificates go by their subjects.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChainError {
    // One certificate by itself.
    /// It does not count now.
    #[error("certificate '{certificate}' is {source}")]
    OutOfDate {
        /// The certificate.
        certificate: DistinguishedName,
        /// Why it does not.
        source: OutOfDate,
    },
    /// It has a critical extension that we do not know (RFC 5280 §4.2).
    #[error("certificate '{certificate}' has {extension}, which is not supported")]
    UnknownCritical {
        /// The certificate.
        certificate: DistinguishedName,
        /// The extension.
        extension: String,
    },
    /// Its key is not for signatures (RFC 4945 §5.1.3.2).
    #[error("key usage of '{0}' does not allow signatures")]
    NotForSignatures(DistinguishedName),
    /// Its key is not for IKE (RFC 4945 §5.1.3.12).
    #[error(
        "extended key usage of '{certificate}' is {found}, \
         expected id-kp-ipsecIKE (1.3.6.1.5.5.7.3.17) or anyExtendedKeyUsage"
    )]
    NotForIke {
        /// The certificate.
        certificate: DistinguishedName,
        /// What its key is for.
        found: String,
    },

    // The way from one certificate to its issuer.
    /// Nothing that is loaded may have signed it.
    #[error("no issuer certificate is loaded for '{certificate}', issued by '{issuer}'")]
    NoIssuer {
        /// The certificate.
        certificate: DistinguishedName,
        /// Who has signed it.
        issuer: DistinguishedName,
    },
    /// The issuer is no CA.
    #[error("issuer '{0}' is no CA")]
    NotCa(DistinguishedName),
    /// The issuer's key is not for certificates.
    #[error("key usage of CA '{0}' does not allow it to sign certificates")]
    NotForCertificates(DistinguishedName),
    /// Too many CAs lie below the issuer (RFC 5280 §4.2.1.9).
    #[error("path length of CA '{ca}' is exceeded: {found} CAs below it, expected at most {limit}")]
    PathLength {
        /// The CA.
        ca: DistinguishedName,
        /// CAs below it.
        found: usize,
        /// How many it allows.
        limit: u8,
    },
    /// We cannot check the signature.
    #[error("certificate '{certificate}': {source}")]
    Scheme {
        /// The certificate.
        certificate: DistinguishedName,
        /// What is wrong with the scheme.
        source: CertError,
    },
    /// The connection does not allow the scheme.
    #[error("certificate '{certificate}' is signed by {scheme}, which is not allowed here")]
    SchemeNotAllowed {
        /// The certificate.
        certificate: DistinguishedName,
        /// What it is signed by.
        scheme: SignatureScheme,
    },
    /// The signature does not verify.
    #[error("signature of certificate '{certificate}' by '{issuer}' is wrong")]
    WrongSignature {
        /// The certificate.
        certificate: DistinguishedName,
        /// Whose key was tried.
        issuer: DistinguishedName,
    },

    // The chain as a whole.
    /// It ends at a root that nobody has declared trusted.
    #[error("root CA '{0}' is not trusted here")]
    UntrustedRoot(DistinguishedName),
    /// A CA has signed one above itself.
    #[error("CA '{0}' is part of a loop")]
    Circle(DistinguishedName),
    /// It goes on for too long.
    #[error("the chain is longer than {MAX_LENGTH} certificates")]
    TooLong,
    /// The message has cost enough.
    #[error("more than {MAX_SIGNATURES} signatures on the way")]
    TooManySignatures,
    /// The CA that the connection demands is not on the way.
    #[error("no CA up to '{anchor}' has the identity {expected}")]
    OtherCa {
        /// The trusted CA that was found.
        anchor: DistinguishedName,
        /// The identity that one of the CAs must have.
        expected: Identity,
    },
    /// There is no way at all.
    #[error("no chain was found")]
    NoChain,

    // Revocation.
    /// Its issuer has revoked it.
    #[error("certificate '{certificate}' was revoked at {at}")]
    Revoked {
        /// The certificate.
        certificate: DistinguishedName,
        /// When.
        at: UnixTime,
    },
    /// The list of its issuer is too old, and the connection demands a newer one.
    #[error(
        "cannot tell whether certificate '{certificate}' is revoked: \
         the CRL of '{issuer}' was current until {until}"
    )]
    StaleCrl {
        /// The certificate.
        certificate: DistinguishedName,
        /// Whose list it is.
        issuer: DistinguishedName,
        /// The last time at which the list counted.
        until: UnixTime,
    },
    /// There is no list of its issuer, and the connection demands one.
    #[error("cannot tell whether certificate '{certificate}' is revoked: no CRL of '{issuer}' is loaded")]
    NoCrl {
        /// The certificate.
        certificate: DistinguishedName,
        /// Whose list is missing.
        issuer: DistinguishedName,
    },
}
