//! AWS-LC through aws-lc-rs. AWS-LC cleanses all memory that it frees, the key schedule included.

pub(crate) mod separate;

use crate::aead::{AeadAlgorithm, NONCE_LEN, TAG_LEN};
use crate::error::CryptoError;
use crate::library::Library;
use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};

/// An expanded key.
pub(crate) struct Schedule(LessSafeKey);

impl Schedule {
    pub(crate) fn new(algorithm: AeadAlgorithm, key: &[u8]) -> Result<Self, CryptoError> {
        let algorithm = match algorithm {
            AeadAlgorithm::Aes128Gcm => &AES_128_GCM,
            AeadAlgorithm::Aes256Gcm => &AES_256_GCM,
        };
        let key = UnboundKey::new(algorithm, key)
            .map_err(|_| CryptoError::KeyRefused { library: Library::AwsLc })?;
        Ok(Self(LessSafeKey::new(key)))
    }

    /// False, with `text` and `tag` in an unknown state, if the library refuses.
    #[inline]
    pub(crate) fn seal(
        &self,
        nonce: [u8; NONCE_LEN],
        aad: &[u8],
        text: &mut [u8],
        tag: &mut [u8; TAG_LEN],
    ) -> bool {
        let nonce = Nonce::assume_unique_for_key(nonce);
        self.0.seal_in_place_scatter(nonce, Aad::from(aad), text, &[], tag).is_ok()
    }

    /// False, with `text` in an unknown state, if the tag does not fit. The library compares in constant time.
    #[inline]
    pub(crate) fn open(
        &self,
        nonce: [u8; NONCE_LEN],
        aad: &[u8],
        text: &mut [u8],
        tag: &[u8; TAG_LEN],
    ) -> bool {
        let nonce = Nonce::assume_unique_for_key(nonce);
        self.0.open_in_place_separate_tag(nonce, Aad::from(aad), tag, text).is_ok()
    }
}
