//! Why the authentication of a peer fails. The peer learns only that it does (RFC 7296 §2.21.2);
//! the texts are for the log and for the operator who initiates.

use crate::cert::{CertError, ChainError, DistinguishedName, RawKey, SignatureScheme};
use crate::config::Identity;
use crate::exchange::auth::rounds::Announced;
use crate::exchange::auth::shown;
use crate::exchange::auth::verify::MAX_CERTIFICATES;
use crate::exchange::refusal::Refusal;
use crate::message::{AuthMethodId, CertEncoding, IdType, ParseError};
use crate::suite::SuiteError;

/// Why a peer is not authenticated.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum AuthError {
    // The message.
    /// The response cannot be decoded.
    #[error("malformed IKE_AUTH response: {0}")]
    Malformed(ParseError),
    /// The response does not say who the responder is, or does not prove it.
    #[error("the peer's IKE_AUTH response has no IDr or no AUTH")]
    NoProof,

    // What is missing on this side.
    /// An operator has unloaded the connection.
    #[error("the connection was unloaded meanwhile")]
    Unloaded,
    /// IKE_SA_INIT has left no keys.
    #[error("the IKE SA has no keys")]
    NoKeys,
    /// This side has not sent an identity.
    #[error("we have not said who we are")]
    NoLocalIdentity,

    // The identity.
    /// There is no form for it in the configuration.
    #[error("the peer's identity is a {0}, which is not supported")]
    IdentityType(IdType),
    /// The connection is for another peer.
    #[error("the peer is {found}, expected {expected}")]
    OtherPeer {
        /// The identity of the peer.
        found: Identity,
        /// The identity, or pattern, of the connection.
        expected: Identity,
    },
    /// No connection has both identities.
    #[error("no connection is configured for {}...{remote}", shown(asked.as_ref()))]
    NoConnection {
        /// The identity that the initiator expects of us.
        asked: Option<Identity>,
        /// The identity of the initiator.
        remote: Identity,
    },

    // The rounds (RFC 4739).
    /// The connections with these identities have another number of rounds.
    #[error("{remote} {}", announced.misfit())]
    Misfit {
        /// The identity of the initiator.
        remote: Identity,
        /// Its announcements.
        announced: Announced,
    },
    /// No connection continues with such a round.
    #[error(
        "no connection asks {identity} for this authentication and {}",
        if *follows { "another" } else { "no other" }
    )]
    NoRound {
        /// The identity of the initiator.
        identity: Identity,
        /// True if it has announced another round.
        follows: bool,
    },
    /// The responder begins a round without having announced it.
    #[error("the peer begins an authentication that it has not announced")]
    Unannounced,
    /// The responder has more rounds than the connection.
    #[error("{0} announces another authentication, which the connection does not ask for")]
    SurplusRound(Identity),
    /// The responder has fewer rounds than the connection.
    #[error("{0} announces no other authentication, which the connection asks for")]
    MissingRound(Identity),
    /// The connection demands no proof in this round.
    #[error("nothing more is demanded of {0}")]
    NothingDemanded(Identity),

    // The proof.
    /// It proves itself by a signature, and the connection demands a shared key.
    #[error("{identity} authenticates by {method}, expected psk")]
    NotByPsk {
        /// The peer.
        identity: Identity,
        /// Its method.
        method: AuthMethodId,
    },
    /// No key is loaded for these two.
    #[error("no shared key is loaded for {local} and {remote}")]
    NoSharedKey {
        /// Our identity.
        local: Identity,
        /// The identity of the peer.
        remote: Identity,
    },
    /// AUTH was made with another key.
    #[error("{0} does not hold our shared key")]
    OtherSharedKey(Identity),
    /// The signature does not count.
    #[error(transparent)]
    Signature(#[from] SignatureError),
    /// The PPK prevents it (RFC 8784).
    #[error(transparent)]
    Ppk(#[from] PpkError),
    /// The computation is not possible.
    #[error(transparent)]
    Suite(#[from] SuiteError),
}

impl From<AuthError> for Refusal {
    fn from(error: AuthError) -> Self {
        Self::authentication(error.to_string())
    }
}

/// Why a signature does not authenticate a peer.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum SignatureError {
    // AUTH.
    /// It proves itself by a shared key, and the connection demands a signature.
    #[error("{identity} authenticates by {method}, expected a signature")]
    OtherMethod {
        /// The peer.
        identity: Identity,
        /// Its method.
        method: AuthMethodId,
    },
    /// A digital signature does not name its algorithm (RFC 7427 §3).
    #[error("AUTH of {0} is too short")]
    TooShort(Identity),
    /// We do not support the algorithm.
    #[error("AUTH of {identity} is not acceptable: {source}")]
    Scheme {
        /// The peer.
        identity: Identity,
        /// What is wrong with the algorithm.
        source: CertError,
    },
    /// The connection does not allow the algorithm.
    #[error("{identity} signs by {scheme}, which is not allowed here")]
    SchemeNotAllowed {
        /// The peer.
        identity: Identity,
        /// Its algorithm.
        scheme: SignatureScheme,
    },
    /// Only the configuration can allow SHA-1.
    #[error(
        "{0} authenticates by RSA with SHA-1, which is too weak; expected a digital signature \
         (RFC 7427), or, where no hash is named in auth, legacy = true in testudo.toml"
    )]
    Sha1(Identity),

    // Certificates.
    /// The message has more than any honest one.
    #[error("the peer has sent {0} certificates, at most {MAX_CERTIFICATES} are read")]
    TooManyCertificates(usize),
    /// It sends a certificate of another kind.
    #[error("the peer has sent a certificate as {0}, expected X.509")]
    CertificateEncoding(CertEncoding),
    /// A certificate cannot be decoded.
    #[error("certificate {number} of the peer: {source}")]
    Certificate {
        /// Its place in the message, counted from 1.
        number: usize,
        /// What is wrong with it.
        source: CertError,
    },
    /// There is no certificate by which to verify.
    #[error("{0} has sent no certificate, and no certificate of that peer is loaded")]
    NoCertificate(Identity),
    /// The peer does not hold the key of the certificate that it has sent.
    #[error("AUTH of {identity} was not made with the key of '{subject}'")]
    NotByCertificate {
        /// The peer.
        identity: Identity,
        /// The certificate.
        subject: DistinguishedName,
    },
    /// The peer does not hold the key of a certificate that is loaded.
    #[error("AUTH of {0} was not made with a key of its loaded certificates")]
    NotByLoadedCertificate(Identity),
    /// The certificate belongs to somebody else.
    #[error("certificate '{subject}' does not confirm that its owner is {identity}")]
    OtherOwner {
        /// The certificate.
        subject: DistinguishedName,
        /// The peer.
        identity: Identity,
    },
    /// The connection names other certificates.
    #[error("certificate '{0}' is not allowed by the connection")]
    CertificateNotAllowed(DistinguishedName),
    /// The certificate leads to no trusted CA.
    #[error(transparent)]
    Chain(#[from] ChainError),

    // Public keys without certificates (RFC 7670).
    /// It sends more than one.
    #[error("the peer has sent several public keys, expected one")]
    SeveralKeys,
    /// The public key cannot be decoded.
    #[error("public key of the peer: {0}")]
    PublicKey(CertError),
    /// The connection names other keys.
    #[error("{identity} has sent public key {key}, which is not allowed by the connection")]
    KeyNotAllowed {
        /// The peer.
        identity: Identity,
        /// The key.
        key: RawKey,
    },
    /// Neither the connection nor a key names the peer.
    #[error(
        "no public key allowed by the connection has the name {0}; expected remote.id, or the KEY_ID \
         of a key"
    )]
    NoKeyOfName(Identity),
    /// The peer holds none of the keys that the connection names.
    #[error("AUTH of {0} was not made with a public key allowed by the connection")]
    NotByKey(Identity),
}

/// Why the PPK of a connection, or its absence, prevents the authentication.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum PpkError {
    /// IKE_SA_INIT did not agree on PPKs, and the connection requires one.
    #[error("a PPK is required, but none was negotiated")]
    NotNegotiated,
    /// IKE_SA_INIT agreed on PPKs, and the initiator names none.
    #[error("the peer has a PPK, but names none")]
    Unnamed,
    /// PPK_IDENTITY is not of the type PPK_ID_FIXED (RFC 8784 §5.1).
    #[error("the peer names a PPK by an identity of unknown type")]
    IdentityType,
    /// The named PPK is not usable, and the connection requires one.
    #[error("no PPK for '{0}' is loaded and allowed, and one is required")]
    Required(Identity),
    /// The named PPK is not usable, and the initiator has no proof without it.
    #[error("no PPK for '{0}' is loaded and allowed, and the peer requires one")]
    RequiredByPeer(Identity),
    /// The responder goes without the PPK, and the connection requires it.
    #[error("{0} does not use our PPK, which is required")]
    Unused(Identity),
}
