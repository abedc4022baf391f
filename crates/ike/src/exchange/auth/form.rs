//! The form of a signature in AUTH: that of RFC 7427, or an older one.

use crate::cert::{CertError, Hashes, PrivateKey, Schemes, SignatureScheme};
use crate::message::{AuthMethodId, AuthPayload};
use std::fmt;

/// A form of AUTH with its signature algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Method 14: the signature names its algorithm (RFC 7427).
    Digital(SignatureScheme),
    /// Methods 9 to 11: ECDSA, whose curve and hash the method names (RFC 4754).
    Fixed(SignatureScheme),
    /// Method 1: RSA, with SHA-1 (RFC 7296 §3.8).
    RsaSha1,
}

/// The signatures that we may make.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allowed {
    /// Allowed by the connection.
    pub(super) schemes: Schemes,
    /// Hash algorithms of the peer; none if it does not support RFC 7427.
    pub(super) hashes: Hashes,
    /// True if SHA-1 is allowed, if there is nothing better.
    pub(super) sha1: bool,
}

impl Form {
    /// The best form that the key, the connection and the peer allow, or why there is none.
    pub(super) fn choose(key: &PrivateKey, allowed: Allowed) -> Result<Self, &'static str> {
        let Allowed { schemes, hashes, sha1 } = allowed;
        if !hashes.is_empty() {
            let scheme = key.choose(schemes, hashes).map(Self::Digital);
            return scheme.ok_or("the peer supports no hash algorithm that is allowed here");
        }
        if key.kind().is_rsa() {
            return match (schemes.is_rsa_with_any_hash(), sha1) {
                (true, true) => Ok(Self::RsaSha1),
                (true, false) => {
                    Err("the peer does not support digital signatures (RFC 7427), and RSA with SHA-1 needs \
                                      legacy = true in testudo.toml")
                }
                (false, _) => Err(
                    "the peer does not support digital signatures (RFC 7427), and auth does not allow RSA with SHA-1",
                ),
            };
        }
        match key.choose(schemes, Hashes::ALL) {
            Some(scheme) if method(scheme).is_some() => Ok(Self::Fixed(scheme)),
            Some(_) => Err(
                "the peer does not support digital signatures (RFC 7427), and this key has no older method",
            ),
            None => Err("auth does not allow the hash algorithm of this key"),
        }
    }

    /// Signs.
    pub(super) fn sign(self, key: &PrivateKey, octets: &[u8]) -> Result<AuthPayload, CertError> {
        match self {
            Self::Digital(scheme) => {
                let (algorithm, signature) = (scheme.algorithm_identifier()?, key.sign(scheme, octets)?);
                AuthPayload::signature(&algorithm, &signature).ok_or(CertError::Sign(scheme))
            }
            Self::Fixed(scheme) => {
                let method = method(scheme).ok_or(CertError::Sign(scheme))?;
                Ok(AuthPayload { method, data: key.sign_fixed(scheme, octets)? })
            }
            Self::RsaSha1 => {
                let data = key.sign_sha1(octets).ok_or(CertError::SignSha1)?;
                Ok(AuthPayload { method: AuthMethodId::RsaSignature, data })
            }
        }
    }
}

/// The RFC 4754 method of a scheme.
fn method(scheme: SignatureScheme) -> Option<AuthMethodId> {
    match scheme {
        SignatureScheme::EcdsaSha256 => Some(AuthMethodId::EcdsaSha256),
        SignatureScheme::EcdsaSha384 => Some(AuthMethodId::EcdsaSha384),
        SignatureScheme::EcdsaSha512 => Some(AuthMethodId::EcdsaSha512),
        _ => None,
    }
}

/// strongSwan's notation, with a warning for operators where needed.
impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Digital(scheme) => scheme.fmt(f),
            Self::Fixed(SignatureScheme::EcdsaSha256) => f.write_str("ECDSA-256 signature"),
            Self::Fixed(SignatureScheme::EcdsaSha384) => f.write_str("ECDSA-384 signature"),
            Self::Fixed(SignatureScheme::EcdsaSha512) => f.write_str("ECDSA-521 signature"),
            Self::Fixed(scheme) => scheme.fmt(f),
            Self::RsaSha1 => f.write_str("RSA_EMSA_PKCS1_SHA1 (weak, allowed by legacy = true)"),
        }
    }
}
