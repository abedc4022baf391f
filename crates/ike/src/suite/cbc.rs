//! AES-CBC with HMAC-SHA2, encrypt-then-MAC (RFC 7296 §3.14, RFC 3602, RFC 4868).

use super::error::SuiteError;
use crate::config::{IkeEncryption, Integrity};
use aws_lc_rs::cipher::{
    AES_128, AES_192, AES_256, Algorithm, DecryptingKey, DecryptionContext, EncryptingKey, EncryptionContext,
    UnboundCipherKey,
};
use aws_lc_rs::hmac;
use aws_lc_rs::iv::FixedLength;
use subtle::ConstantTimeEq;

/// Octets of a block, and so of the IV.
pub(super) const BLOCK: usize = 16;

/// Encrypts whole blocks.
pub(super) fn encrypt(
    encryption: IkeEncryption,
    key: &[u8],
    iv: [u8; BLOCK],
    text: &mut [u8],
) -> Result<(), SuiteError> {
    let key = EncryptingKey::cbc(unbound(encryption, key)?).map_err(|_| SuiteError::Seal)?;
    let context = EncryptionContext::Iv128(FixedLength::from(iv));
    key.less_safe_encrypt(text, context).map(drop).map_err(|_| SuiteError::Seal)
}

/// Decrypts whole blocks. To be called only for authentic ones.
pub(super) fn decrypt(
    encryption: IkeEncryption,
    key: &[u8],
    iv: [u8; BLOCK],
    text: &mut [u8],
) -> Result<(), SuiteError> {
    let found = text.len();
    let key = DecryptingKey::cbc(unbound(encryption, key)?).map_err(|_| SuiteError::Blocks(found))?;
    let context = DecryptionContext::Iv128(FixedLength::from(iv));
    key.decrypt(text, context).map(drop).map_err(|_| SuiteError::Blocks(found))
}

fn unbound(encryption: IkeEncryption, key: &[u8]) -> Result<UnboundCipherKey, SuiteError> {
    let algorithm: &'static Algorithm = match encryption.key_bits() {
        128 => &AES_128,
        192 => &AES_192,
        _ => &AES_256,
    };
    let expected = usize::from(encryption.key_bits()) / 8;
    UnboundCipherKey::new(algorithm, key).map_err(|_| SuiteError::KeyLength { found: key.len(), expected })
}

/// The integrity check value of a message: over everything before it, including the header.
pub(super) fn icv(integrity: Integrity, key: &[u8], message: &[&[u8]]) -> Result<Vec<u8>, SuiteError> {
    let expected = integrity.key();
    if key.len() != expected {
        return Err(SuiteError::KeyLength { found: key.len(), expected });
    }
    let algorithm = match integrity {
        Integrity::HmacSha1 => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
        Integrity::HmacSha256 => hmac::HMAC_SHA256,
        Integrity::HmacSha384 => hmac::HMAC_SHA384,
        Integrity::HmacSha512 => hmac::HMAC_SHA512,
    };
    let mut context = hmac::Context::with_key(&hmac::Key::new(algorithm, key));
    for part in message {
        context.update(part);
    }
    let mut icv = context.sign().as_ref().to_vec();
    icv.truncate(integrity.icv());
    Ok(icv)
}

/// Compares in constant time.
pub(super) fn verify(
    integrity: Integrity,
    key: &[u8],
    message: &[&[u8]],
    found: &[u8],
) -> Result<(), SuiteError> {
    let expected = icv(integrity, key, message)?;
    if bool::from(expected.ct_eq(found)) { Ok(()) } else { Err(SuiteError::Integrity) }
}
