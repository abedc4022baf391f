//! Key exchange: X25519 (RFC 8031) and ECP-256 (RFC 5903).

use super::entropy::Entropy;
use super::error::SuiteError;
use super::secret::Secret;
use crate::config::KeyExchange;
use crate::message::{KeMethod, KePayload};
use aws_lc_rs::agreement::{self, PrivateKey, UnparsedPublicKey};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

/// Our half of a key exchange that is under way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KePrivate {
    method: KeyExchange,
    private: Secret,
    public: Vec<u8>,
}

/// Octets of a private key, for both methods.
const PRIVATE_LENGTH: usize = 32;
/// Draws of ECP-256 fail with probability 2^-32; a source that fails this often is broken.
const DRAWS: usize = 16;
/// What SEC 1 puts before an uncompressed point, and RFC 5903 §7 does not.
const UNCOMPRESSED: u8 = 4;

impl KePrivate {
    /// Makes a new private key.
    pub fn generate(method: KeyExchange, entropy: &mut dyn Entropy) -> Result<Self, SuiteError> {
        for _ in 0..DRAWS {
            let mut octets = Zeroizing::new(vec![0; PRIVATE_LENGTH]);
            entropy.fill(&mut octets);
            let private = Secret::new(std::mem::take(&mut *octets));
            // For ECP-256 zero and what is not below the order are no keys. To draw again keeps the rest
            // uniform.
            if let Ok(key) = load(method, &private) {
                return Ok(Self { method, public: public_value(method, &key)?, private });
            }
        }
        Err(SuiteError::Entropy(method))
    }

    /// The method.
    pub fn method(&self) -> KeyExchange {
        self.method
    }

    /// The KE payload to send.
    pub fn payload(&self) -> KePayload {
        KePayload { method: self.method.into(), data: self.public.clone() }
    }

    /// The shared secret g^ir. Refuses public values that are not valid, and the all-zero secret.
    pub fn agree(&self, peer: &KePayload) -> Result<Secret, SuiteError> {
        let method = KeMethod::from(self.method);
        if peer.method != method {
            return Err(SuiteError::KeMethod { found: peer.method, expected: method });
        }
        let (expected, prefix) = shape(self.method);
        if peer.data.len() != expected {
            return Err(SuiteError::KeLength { method, found: peer.data.len(), expected });
        }
        let public = [prefix, &peer.data].concat();
        let key = load(self.method, &self.private)?;
        let invalid = SuiteError::KePublic(method);
        // The library checks that the point is on the curve and not at infinity, and that X25519 gives not
        // zero.
        agreement::agree(&key, UnparsedPublicKey::new(algorithm(self.method), public), invalid, |shared| {
            Ok(Secret::new(shared.to_vec()))
        })
    }
}

fn algorithm(method: KeyExchange) -> &'static agreement::Algorithm {
    match method {
        KeyExchange::X25519 => &agreement::X25519,
        KeyExchange::Ecp256 => &agreement::ECDH_P256,
    }
}

/// Octets of a public value in the KE payload, and what the library wants before them.
fn shape(method: KeyExchange) -> (usize, &'static [u8]) {
    match method {
        KeyExchange::X25519 => (32, &[]),
        KeyExchange::Ecp256 => (64, &[UNCOMPRESSED]),
    }
}

fn load(method: KeyExchange, private: &Secret) -> Result<PrivateKey, SuiteError> {
    PrivateKey::from_private_key(algorithm(method), private.expose())
        .map_err(|_| SuiteError::KePrivate(method.into()))
}

fn public_value(method: KeyExchange, key: &PrivateKey) -> Result<Vec<u8>, SuiteError> {
    let public = key.compute_public_key().map_err(|_| SuiteError::KePrivate(method.into()))?;
    let (_, prefix) = shape(method);
    let value = public.as_ref().strip_prefix(prefix).ok_or(SuiteError::KePrivate(method.into()))?;
    Ok(value.to_vec())
}
