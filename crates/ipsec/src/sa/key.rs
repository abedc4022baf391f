//! From KEYMAT to a cipher's key. Its schedule is made when the first packet has come: see [`Event::KeyWanted`].
//!
//! [`Event::KeyWanted`]: crate::dataplane::Event::KeyWanted

use super::{EspAlgorithm, KeyMaterial};
use crate::error::Error;
use testudo_crypto::{AeadAlgorithm, AeadKey, Library, SALT_LEN};

/// Splits key from salt (RFC 4106 §8.1).
pub(super) fn take(
    algorithm: EspAlgorithm,
    material: &KeyMaterial,
    library: Library,
) -> Result<AeadKey, Error> {
    let algorithm = match algorithm {
        EspAlgorithm::Aes128Gcm16 => AeadAlgorithm::Aes128Gcm,
        EspAlgorithm::Aes256Gcm16 => AeadAlgorithm::Aes256Gcm,
    };
    let (found, expected) = (material.0.len(), algorithm.key_len() + SALT_LEN);
    match material.0.split_last_chunk::<SALT_LEN>() {
        Some((key, salt)) if found == expected => Ok(AeadKey::unexpanded(library, algorithm, key, *salt)?),
        _ => Err(Error::KeyMaterial { found, expected }),
    }
}
