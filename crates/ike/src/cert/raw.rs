//! Public keys without a certificate (RFC 7670): trusted because the configuration names them.

use super::error::CertError;
use super::pem;
use super::public::PublicKey;
use crate::config::Identity;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// Bound on the octets of a SubjectPublicKeyInfo: one of RSA with 8192 bits has about 1060.
pub const MAX_RAW_KEY: usize = 2048;

/// A public key as a SubjectPublicKeyInfo, cheap to clone.
#[derive(Clone, Serialize, Deserialize)]
#[serde(try_from = "Vec<u8>", into = "Vec<u8>")]
pub struct RawKey(Arc<ParsedKey>);

struct ParsedKey {
    der: Vec<u8>,
    key: PublicKey,
}

impl RawKey {
    /// Decodes the DER of a SubjectPublicKeyInfo, as in a CERT payload (RFC 7670 §3).
    pub fn from_der(der: &[u8]) -> Result<Self, CertError> {
        if der.len() > MAX_RAW_KEY {
            return Err(CertError::TooLarge { what: "public key", found: der.len(), limit: MAX_RAW_KEY });
        }
        let key = PublicKey::from_spki(der)?;
        key.check()?;
        Ok(Self(Arc::new(ParsedKey { der: der.to_vec(), key })))
    }

    /// Decodes DER or PEM, as in a file.
    pub fn parse(data: &[u8]) -> Result<Self, CertError> {
        Self::from_der(&pem::decode(data, &["PUBLIC KEY"], "PUBLIC KEY")?)
    }

    /// The key as DER.
    pub fn to_der(&self) -> &[u8] {
        &self.0.der
    }

    /// The key.
    pub fn key(&self) -> &PublicKey {
        &self.0.key
    }

    /// The default identity of a key, as with charon: a KEY_ID with the SHA-1 hash of its
    /// SubjectPublicKeyInfo.
    pub fn identity(&self) -> Identity {
        Identity::KeyId(self.0.key.info_id().to_vec())
    }

    /// True if the identity is derived from the key: a KEY_ID with the SHA-1 hash of its
    /// SubjectPublicKeyInfo or of the key in it.
    pub fn confirms(&self, identity: &Identity) -> bool {
        let key = &self.0.key;
        matches!(identity, Identity::KeyId(id) if *id == key.info_id() || *id == key.key_id())
    }
}

/// A key with another form of its SubjectPublicKeyInfo is not equal: see [`PublicKey::is_key_of`].
impl PartialEq for RawKey {
    fn eq(&self, other: &Self) -> bool {
        self.0.der == other.0.der
    }
}

impl Eq for RawKey {}

/// For the log: the kind of the key, and the number by which VICI names its private key.
impl fmt::Display for RawKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.0.key.kind())?;
        self.0.key.key_id().iter().try_for_each(|octet| write!(f, "{octet:02x}"))
    }
}

impl fmt::Debug for RawKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "public key {self}")
    }
}

impl TryFrom<Vec<u8>> for RawKey {
    type Error = CertError;

    fn try_from(der: Vec<u8>) -> Result<Self, CertError> {
        Self::from_der(&der)
    }
}

impl From<RawKey> for Vec<u8> {
    fn from(key: RawKey) -> Self {
        key.0.der.clone()
    }
}
