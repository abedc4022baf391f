//! Public keys, and verifying.

use super::error::CertError;
use super::scheme::SignatureScheme;
use aws_lc_rs::digest;
use aws_lc_rs::signature::{self, ParsedPublicKey, UnparsedPublicKey, VerificationAlgorithm};
use der::{Decode, Reader, SliceReader};
use std::fmt;
use x509_cert::spki::SubjectPublicKeyInfoOwned;

/// Kinds of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyKind {
    /// RSA, with the bits of its modulus.
    Rsa(u32),
    /// ECDSA on P-256.
    P256,
    /// ECDSA on P-384.
    P384,
    /// ECDSA on P-521.
    P521,
    /// Ed25519.
    Ed25519,
}

impl KeyKind {
    /// True for RSA of any size.
    pub fn is_rsa(self) -> bool {
        matches!(self, Self::Rsa(_))
    }
}

impl fmt::Display for KeyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rsa(bits) => write!(f, "RSA {bits}"),
            Self::P256 => f.write_str("ECDSA 256"),
            Self::P384 => f.write_str("ECDSA 384"),
            Self::P521 => f.write_str("ECDSA 521"),
            Self::Ed25519 => f.write_str("ED25519 256"),
        }
    }
}

/// A public key.
#[derive(Clone, PartialEq, Eq)]
pub struct PublicKey {
    kind: KeyKind,
    /// The content of `subjectPublicKey`: PKCS #1, a point, or 32 octets.
    key: Vec<u8>,
    /// SHA-1 of the SubjectPublicKeyInfo.
    info_id: [u8; 20],
}

const RSA: &str = "1.2.840.113549.1.1.1";
const EC: &str = "1.2.840.10045.2.1";
const ED25519: &str = "1.3.101.112";
/// Precedes both coordinates of a point (RFC 5480 §2.2).
const UNCOMPRESSED: u8 = 4;
const RSA_BITS: std::ops::RangeInclusive<u32> = 2048..=8192;

impl PublicKey {
    /// Decodes the DER of a SubjectPublicKeyInfo.
    pub(super) fn from_spki(der: &[u8]) -> Result<Self, CertError> {
        let info = SubjectPublicKeyInfoOwned::from_der(der)
            .map_err(|error| CertError::malformed("SubjectPublicKeyInfo", error))?;
        let key = info.subject_public_key.as_bytes().unwrap_or_default().to_vec();
        let curve = || info.algorithm.parameters.as_ref()?.decode_as::<der::asn1::ObjectIdentifier>().ok();
        let kind = match info.algorithm.oid.to_string().as_str() {
            RSA => rsa_kind(&key)?,
            EC => match curve().map(|oid| oid.to_string()).as_deref() {
                Some("1.2.840.10045.3.1.7") => KeyKind::P256,
                Some("1.3.132.0.34") => KeyKind::P384,
                Some("1.3.132.0.35") => KeyKind::P521,
                Some(other) => return Err(CertError::Key(format!("ECDSA on curve {other}"))),
                None => return Err(CertError::Key("ECDSA on a curve without a name".into())),
            },
            ED25519 if key.len() == 32 => KeyKind::Ed25519,
            other => return Err(CertError::Key(format!("of algorithm {other}"))),
        };
        Ok(Self { kind, key, info_id: sha1(der) })
    }

    /// The kind of key.
    pub fn kind(&self) -> KeyKind {
        self.kind
    }

    /// SHA-1 of the SubjectPublicKeyInfo, by which CERTREQ names a CA (RFC 7296 §3.7).
    pub fn info_id(&self) -> [u8; 20] {
        self.info_id
    }

    /// SHA-1 of the key alone, by which VICI names a private key.
    pub fn key_id(&self) -> [u8; 20] {
        sha1(&self.key)
    }

    /// Refuses a key with which nothing could be verified: a point that is not on its curve, an
    /// exponent out of range, and unexpected data beside the key. [`Self::from_spki`] leaves that
    /// to the first signature, because a certificate may be one among many.
    pub(super) fn check(&self) -> Result<(), CertError> {
        let scheme = match self.kind {
            KeyKind::Rsa(_) => SignatureScheme::RsaPkcs1Sha256,
            KeyKind::P256 => SignatureScheme::EcdsaSha256,
            KeyKind::P384 => SignatureScheme::EcdsaSha384,
            KeyKind::P521 => SignatureScheme::EcdsaSha512,
            KeyKind::Ed25519 => SignatureScheme::Ed25519,
        };
        let octets = match self.kind {
            KeyKind::P256 => Some(65),
            KeyKind::P384 => Some(97),
            KeyKind::P521 => Some(133),
            KeyKind::Rsa(_) | KeyKind::Ed25519 => None,
        };
        if octets.is_some_and(|octets| self.key.len() != octets || self.key.first() != Some(&UNCOMPRESSED)) {
            return Err(CertError::Key(format!("{} with a point that is not uncompressed", self.kind)));
        }
        let damaged = || CertError::Key(format!("damaged, {} by what it says", self.kind));
        let algorithm = algorithm(self.kind, scheme).ok_or_else(damaged)?;
        ParsedPublicKey::new(algorithm, &self.key).map(drop).map_err(|_| damaged())
    }

    /// True if a key of this kind can sign by the scheme.
    pub(crate) fn may_sign_by(&self, scheme: SignatureScheme) -> bool {
        algorithm(self.kind, scheme).is_some()
    }

    /// True if both are the same key, in whatever form their SubjectPublicKeyInfo is.
    pub fn is_key_of(&self, other: &Self) -> bool {
        self.is(other.kind, &other.key)
    }

    /// True if it is this key.
    pub(super) fn is(&self, kind: KeyKind, key: &[u8]) -> bool {
        self.kind == kind && self.key == key
    }

    /// True if the key has signed the message by this scheme. It depends only on its arguments, so
    /// that any thread can do it.
    pub fn verify(&self, scheme: SignatureScheme, message: &[u8], signature: &[u8]) -> bool {
        algorithm(self.kind, scheme)
            .is_some_and(|a| UnparsedPublicKey::new(a, &self.key).verify(message, signature).is_ok())
    }

    /// [`Self::verify`] for the methods of RFC 4754, in which the curve determines the hash, and r
    /// and s are concatenated.
    pub fn verify_fixed(&self, scheme: SignatureScheme, message: &[u8], signature: &[u8]) -> bool {
        let algorithm: &'static dyn VerificationAlgorithm = match (self.kind, scheme) {
            (KeyKind::P256, SignatureScheme::EcdsaSha256) => &signature::ECDSA_P256_SHA256_FIXED,
            (KeyKind::P384, SignatureScheme::EcdsaSha384) => &signature::ECDSA_P384_SHA384_FIXED,
            (KeyKind::P521, SignatureScheme::EcdsaSha512) => &signature::ECDSA_P521_SHA512_FIXED,
            _ => return false,
        };
        UnparsedPublicKey::new(algorithm, &self.key).verify(message, signature).is_ok()
    }

    /// [`Self::verify`] for RSASSA-PKCS1-v1_5 with SHA-1, which only peers without RFC 7427 may use
    /// (RFC 7296 §3.8).
    pub fn verify_sha1(&self, message: &[u8], signature: &[u8]) -> bool {
        let algorithm = &signature::RSA_PKCS1_2048_8192_SHA1_FOR_LEGACY_USE_ONLY;
        self.kind.is_rsa() && UnparsedPublicKey::new(algorithm, &self.key).verify(message, signature).is_ok()
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind)
    }
}

pub(super) fn sha1(data: &[u8]) -> [u8; 20] {
    let digest = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, data);
    <[u8; 20]>::try_from(digest.as_ref()).unwrap_or_default()
}

/// The kind of an `RSAPublicKey`, with the bits of its modulus.
pub(super) fn rsa_kind(key: &[u8]) -> Result<KeyKind, CertError> {
    let bits = modulus_bits(key).map_err(|error| CertError::malformed("RSA public key", error))?;
    if RSA_BITS.contains(&bits) {
        Ok(KeyKind::Rsa(bits))
    } else {
        Err(CertError::Key(format!("RSA of {bits} bits")))
    }
}

fn modulus_bits(key: &[u8]) -> der::Result<u32> {
    let mut reader = SliceReader::new(key)?;
    let bits = reader.sequence(|reader| {
        let modulus = der::asn1::UintRef::decode(reader)?;
        der::asn1::UintRef::decode(reader)?;
        let first = modulus.as_bytes().first().copied().unwrap_or_default();
        let bits = u32::try_from(modulus.as_bytes().len()).unwrap_or(u32::MAX).saturating_mul(8);
        Ok::<_, der::Error>(bits.saturating_sub(first.leading_zeros()))
    })?;
    reader.finish()?;
    Ok(bits)
}

fn algorithm(kind: KeyKind, scheme: SignatureScheme) -> Option<&'static dyn VerificationAlgorithm> {
    use SignatureScheme::*;
    Some(match (kind, scheme) {
        (KeyKind::Rsa(_), RsaPkcs1Sha256) => &signature::RSA_PKCS1_2048_8192_SHA256,
        (KeyKind::Rsa(_), RsaPkcs1Sha384) => &signature::RSA_PKCS1_2048_8192_SHA384,
        (KeyKind::Rsa(_), RsaPkcs1Sha512) => &signature::RSA_PKCS1_2048_8192_SHA512,
        (KeyKind::Rsa(_), RsaPssSha256) => &signature::RSA_PSS_2048_8192_SHA256,
        (KeyKind::Rsa(_), RsaPssSha384) => &signature::RSA_PSS_2048_8192_SHA384,
        (KeyKind::Rsa(_), RsaPssSha512) => &signature::RSA_PSS_2048_8192_SHA512,
        (KeyKind::P256, EcdsaSha256) => &signature::ECDSA_P256_SHA256_ASN1,
        (KeyKind::P256, EcdsaSha384) => &signature::ECDSA_P256_SHA384_ASN1,
        (KeyKind::P256, EcdsaSha512) => &signature::ECDSA_P256_SHA512_ASN1,
        (KeyKind::P384, EcdsaSha256) => &signature::ECDSA_P384_SHA256_ASN1,
        (KeyKind::P384, EcdsaSha384) => &signature::ECDSA_P384_SHA384_ASN1,
        (KeyKind::P384, EcdsaSha512) => &signature::ECDSA_P384_SHA512_ASN1,
        (KeyKind::P521, EcdsaSha256) => &signature::ECDSA_P521_SHA256_ASN1,
        (KeyKind::P521, EcdsaSha384) => &signature::ECDSA_P521_SHA384_ASN1,
        (KeyKind::P521, EcdsaSha512) => &signature::ECDSA_P521_SHA512_ASN1,
        (KeyKind::Ed25519, Ed25519) => &signature::ED25519,
        _ => return None,
    })
}
