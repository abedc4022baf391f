//! The AEADs of IKE (RFC 5282, RFC 7634): AES-GCM and ChaCha20-Poly1305 of aws-lc-rs, AES-CCM of
//! RustCrypto.

use super::error::SuiteError;
use crate::config::IkeEncryption;
use aes::{Aes128, Aes192, Aes256};
use aws_lc_rs::aead::{
    AES_128_GCM, AES_192_GCM, AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, UnboundKey,
};
use ccm::aead::{AeadInOut, KeyInit};
use ccm::consts::{U11, U16};
use ccm::{Ccm, aead};

/// Octets of the integrity check value, for all of them.
pub(super) const TAG: usize = 16;

/// A cipher with its key.
pub(super) enum Aead {
    AwsLc(Box<LessSafeKey>),
    Ccm128(Box<Ccm<Aes128, U16, U11>>),
    Ccm192(Box<Ccm<Aes192, U16, U11>>),
    Ccm256(Box<Ccm<Aes256, U16, U11>>),
}

impl Aead {
    /// `None` for a cipher that is no AEAD; `Err` for a key of the wrong length.
    pub(super) fn new(encryption: IkeEncryption, key: &[u8]) -> Result<Option<Self>, SuiteError> {
        let algorithm = match encryption {
            IkeEncryption::Aes128Gcm16 => &AES_128_GCM,
            IkeEncryption::Aes192Gcm16 => &AES_192_GCM,
            IkeEncryption::Aes256Gcm16 => &AES_256_GCM,
            IkeEncryption::ChaCha20Poly1305 => &CHACHA20_POLY1305,
            IkeEncryption::Aes128Ccm16 => return ccm(key).map(|ccm| Some(Self::Ccm128(ccm))),
            IkeEncryption::Aes192Ccm16 => return ccm(key).map(|ccm| Some(Self::Ccm192(ccm))),
            IkeEncryption::Aes256Ccm16 => return ccm(key).map(|ccm| Some(Self::Ccm256(ccm))),
            IkeEncryption::Aes128Cbc | IkeEncryption::Aes192Cbc | IkeEncryption::Aes256Cbc => {
                return Ok(None);
            }
        };
        let expected = algorithm.key_len();
        let key = UnboundKey::new(algorithm, key)
            .map_err(|_| SuiteError::KeyLength { found: key.len(), expected })?;
        Ok(Some(Self::AwsLc(Box::new(LessSafeKey::new(key)))))
    }

    /// Encrypts `text` and appends the integrity check value.
    pub(super) fn seal(&self, nonce: &[u8], aad: &[u8], text: &mut Vec<u8>) -> Result<(), SuiteError> {
        match self {
            Self::AwsLc(key) => {
                let nonce =
                    aws_lc_rs::aead::Nonce::try_assume_unique_for_key(nonce).map_err(|_| SuiteError::Seal)?;
                key.seal_in_place_append_tag(nonce, Aad::from(aad), text).map_err(|_| SuiteError::Seal)
            }
            Self::Ccm128(ccm) => seal_ccm(&**ccm, nonce, aad, text),
            Self::Ccm192(ccm) => seal_ccm(&**ccm, nonce, aad, text),
            Self::Ccm256(ccm) => seal_ccm(&**ccm, nonce, aad, text),
        }
    }

    /// Verifies the integrity check value at the end of `sealed`, removes it and decrypts the rest.
    pub(super) fn open(&self, nonce: &[u8], aad: &[u8], sealed: &mut Vec<u8>) -> Result<(), SuiteError> {
        match self {
            Self::AwsLc(key) => {
                let nonce = aws_lc_rs::aead::Nonce::try_assume_unique_for_key(nonce)
                    .map_err(|_| SuiteError::Integrity)?;
                let length = key
                    .open_in_place(nonce, Aad::from(aad), sealed)
                    .map_err(|_| SuiteError::Integrity)?
                    .len();
                sealed.truncate(length);
                Ok(())
            }
            Self::Ccm128(ccm) => open_ccm(&**ccm, nonce, aad, sealed),
            Self::Ccm192(ccm) => open_ccm(&**ccm, nonce, aad, sealed),
            Self::Ccm256(ccm) => open_ccm(&**ccm, nonce, aad, sealed),
        }
    }
}

fn ccm<C: KeyInit>(key: &[u8]) -> Result<Box<C>, SuiteError> {
    let wrong = SuiteError::KeyLength { found: key.len(), expected: C::key_size() };
    C::new_from_slice(key).map(Box::new).map_err(|_| wrong)
}

fn seal_ccm<C: AeadInOut>(ccm: &C, nonce: &[u8], aad: &[u8], text: &mut Vec<u8>) -> Result<(), SuiteError> {
    let nonce = aead::Nonce::<C>::try_from(nonce).map_err(|_| SuiteError::Seal)?;
    let tag =
        ccm.encrypt_inout_detached(&nonce, aad, text.as_mut_slice().into()).map_err(|_| SuiteError::Seal)?;
    text.extend_from_slice(&tag);
    Ok(())
}

fn open_ccm<C: AeadInOut>(ccm: &C, nonce: &[u8], aad: &[u8], sealed: &mut Vec<u8>) -> Result<(), SuiteError> {
    let nonce = aead::Nonce::<C>::try_from(nonce).map_err(|_| SuiteError::Integrity)?;
    let length = sealed.len().checked_sub(TAG).ok_or(SuiteError::Integrity)?;
    let (text, tag) = sealed.split_at_mut_checked(length).ok_or(SuiteError::Integrity)?;
    let tag = aead::Tag::<C>::try_from(&*tag).map_err(|_| SuiteError::Integrity)?;
    ccm.decrypt_inout_detached(&nonce, aad, text.into(), &tag).map_err(|_| SuiteError::Integrity)?;
    sealed.truncate(length);
    Ok(())
}
