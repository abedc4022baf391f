//! Private keys, and signing.

use super::error::CertError;
use super::pem;
use super::public::{KeyKind, PublicKey, rsa_kind, sha1};
use super::scheme::{Hashes, Schemes, SignatureScheme};
use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{self, EcdsaKeyPair, Ed25519KeyPair, KeyPair, RsaKeyPair};
use der::asn1::UintRef;
use der::{Decode, Reader, SliceReader};
use std::fmt;
use std::sync::Arc;
use testudo_crypto::rsa_sha1;

/// A private key. The library wipes it when the last clone is dropped.
#[derive(Clone)]
pub struct PrivateKey {
    kind: KeyKind,
    key: Arc<Pair>,
}

enum Pair {
    Rsa(RsaKeyPair),
    Ecdsa(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
}

/// Labels of PEM blocks that hold a private key in clear.
const LABELS: [&str; 3] = ["PRIVATE KEY", "RSA PRIVATE KEY", "EC PRIVATE KEY"];

impl PrivateKey {
    /// Decodes DER or PEM: PKCS #1, SEC 1 or PKCS #8.
    pub fn parse(data: &[u8]) -> Result<Self, CertError> {
        let expected = "PRIVATE KEY, RSA PRIVATE KEY or EC PRIVATE KEY, not encrypted";
        let der = pem::decode(data, &LABELS, expected)?;
        rsa(&der).or_else(|| ecdsa(&der)).or_else(|| ed25519(&der)).ok_or(CertError::PrivateKey)
    }

    /// The kind of key.
    pub fn kind(&self) -> KeyKind {
        self.kind
    }

    fn public(&self) -> &[u8] {
        match &*self.key {
            Pair::Rsa(pair) => pair.public_key().as_ref(),
            Pair::Ecdsa(pair) => pair.public_key().as_ref(),
            Pair::Ed25519(pair) => pair.public_key().as_ref(),
        }
    }

    /// SHA-1 of its public key, by which VICI names it.
    pub fn key_id(&self) -> [u8; 20] {
        sha1(self.public())
    }

    /// True if it belongs to this public key.
    pub fn belongs_to(&self, public: &PublicKey) -> bool {
        public.is(self.kind, self.public())
    }

    /// The best scheme for this key that is allowed and whose hash the peer supports (RFC 7427 §4).
    /// The hash should be about as strong as the key; a larger key prefers a larger hash, as with
    /// charon.
    pub fn choose(&self, allowed: Schemes, peer: Hashes) -> Option<SignatureScheme> {
        use SignatureScheme::*;
        let preferred: &[SignatureScheme] = match self.kind {
            KeyKind::Rsa(..=3072) => {
                &[RsaPkcs1Sha256, RsaPkcs1Sha384, RsaPkcs1Sha512, RsaPssSha256, RsaPssSha384, RsaPssSha512]
            }
            KeyKind::Rsa(..=7680) => {
                &[RsaPkcs1Sha384, RsaPkcs1Sha512, RsaPkcs1Sha256, RsaPssSha384, RsaPssSha512, RsaPssSha256]
            }
            KeyKind::Rsa(_) => {
                &[RsaPkcs1Sha512, RsaPkcs1Sha384, RsaPkcs1Sha256, RsaPssSha512, RsaPssSha384, RsaPssSha256]
            }
            // One hash per curve, as in RFC 4754: the library signs with no other.
            KeyKind::P256 => &[EcdsaSha256],
            KeyKind::P384 => &[EcdsaSha384],
            KeyKind::P521 => &[EcdsaSha512],
            KeyKind::Ed25519 => &[Ed25519],
        };
        preferred.iter().copied().find(|scheme| allowed.contains(*scheme) && peer.contains(scheme.hash()))
    }

    /// Signs a message. It depends only on its arguments, so that any thread can do it. The library
    /// takes the random numbers of ECDSA and RSASSA-PSS from its own source.
    pub fn sign(&self, scheme: SignatureScheme, message: &[u8]) -> Result<Vec<u8>, CertError> {
        let failed = || CertError::Sign(scheme);
        let random = SystemRandom::new();
        match (&*self.key, scheme) {
            (Pair::Rsa(pair), _) => {
                let encoding = rsa_encoding(scheme).ok_or_else(failed)?;
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(encoding, &random, message, &mut signature).map_err(|_| failed())?;
                Ok(signature)
            }
            (Pair::Ecdsa(pair), _) if self.choose(Schemes::ALL, Hashes::ALL) == Some(scheme) => {
                pair.sign(&random, message).map(|signature| signature.as_ref().to_vec()).map_err(|_| failed())
            }
            (Pair::Ed25519(pair), SignatureScheme::Ed25519) => {
                pair.try_sign(message).map(|signature| signature.as_ref().to_vec()).map_err(|_| failed())
            }
            _ => Err(failed()),
        }
    }

    /// Signs by ECDSA in the form of RFC 4754: the curve determines the hash, and r and s are
    /// concatenated.
    pub fn sign_fixed(&self, scheme: SignatureScheme, message: &[u8]) -> Result<Vec<u8>, CertError> {
        let length = match self.kind {
            KeyKind::P256 => 32,
            KeyKind::P384 => 48,
            KeyKind::P521 => 66,
            KeyKind::Rsa(_) | KeyKind::Ed25519 => return Err(CertError::Sign(scheme)),
        };
        r_and_s(&self.sign(scheme, message)?, length).map_err(|_| CertError::Sign(scheme))
    }

    /// Signs by RSASSA-PKCS1-v1_5 with SHA-1, for peers without RFC 7427 (RFC 7296 §3.8). `None` if
    /// it is no RSA key, or the library could not sign.
    pub fn sign_sha1(&self, message: &[u8]) -> Option<Vec<u8>> {
        let Pair::Rsa(pair) = &*self.key else { return None };
        let pkcs8: Pkcs8V1Der<'_> = pair.as_der().ok()?;
        rsa_sha1::sign(pkcs8.as_ref(), message)
    }
}

/// The numbers of an ECDSA signature in DER, each in `length` octets.
fn r_and_s(der: &[u8], length: usize) -> der::Result<Vec<u8>> {
    let mut reader = SliceReader::new(der)?;
    let both = reader.sequence(|reader| {
        let mut both = Vec::with_capacity(2 * length);
        for _ in 0..2 {
            let number = UintRef::decode(reader)?;
            let padding = length.checked_sub(number.as_bytes().len()).ok_or(der::ErrorKind::Overlength)?;
            both.resize(both.len() + padding, 0);
            both.extend_from_slice(number.as_bytes());
        }
        Ok::<_, der::Error>(both)
    })?;
    reader.finish()?;
    Ok(both)
}

fn rsa(der: &[u8]) -> Option<PrivateKey> {
    let pair = RsaKeyPair::from_pkcs8(der).or_else(|_| RsaKeyPair::from_der(der)).ok()?;
    let kind = rsa_kind(pair.public_key().as_ref()).ok()?;
    Some(PrivateKey { kind, key: Arc::new(Pair::Rsa(pair)) })
}

fn ecdsa(der: &[u8]) -> Option<PrivateKey> {
    let curves = [
        (KeyKind::P256, &signature::ECDSA_P256_SHA256_ASN1_SIGNING),
        (KeyKind::P384, &signature::ECDSA_P384_SHA384_ASN1_SIGNING),
        (KeyKind::P521, &signature::ECDSA_P521_SHA512_ASN1_SIGNING),
    ];
    curves.into_iter().find_map(|(kind, algorithm)| {
        let pair = EcdsaKeyPair::from_private_key_der(algorithm, der).ok()?;
        Some(PrivateKey { kind, key: Arc::new(Pair::Ecdsa(pair)) })
    })
}

fn ed25519(der: &[u8]) -> Option<PrivateKey> {
    let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(der).ok()?;
    Some(PrivateKey { kind: KeyKind::Ed25519, key: Arc::new(Pair::Ed25519(pair)) })
}

fn rsa_encoding(scheme: SignatureScheme) -> Option<&'static signature::RsaSignatureEncoding> {
    use SignatureScheme::*;
    Some(match scheme {
        RsaPkcs1Sha256 => &signature::RSA_PKCS1_SHA256,
        RsaPkcs1Sha384 => &signature::RSA_PKCS1_SHA384,
        RsaPkcs1Sha512 => &signature::RSA_PKCS1_SHA512,
        RsaPssSha256 => &signature::RSA_PSS_SHA256,
        RsaPssSha384 => &signature::RSA_PSS_SHA384,
        RsaPssSha512 => &signature::RSA_PSS_SHA512,
        EcdsaSha256 | EcdsaSha384 | EcdsaSha512 | Ed25519 => return None,
    })
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "private key, {}", self.kind)
    }
}
