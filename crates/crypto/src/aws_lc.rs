//! AWS-LC through aws-lc-rs. AWS-LC cleanses all memory that it frees, the key schedule included.

pub(crate) mod separate;
mod triple_des;

use crate::aead::{AeadAlgorithm, NONCE_LEN, SALT_LEN, TAG_LEN};
use crate::error::CryptoError;
use crate::library::Library;
use aws_lc_rs::aead::{
    AES_128_GCM, AES_192_GCM, AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey,
};
use std::cell::RefCell;

/// An expanded key, and whether texts are encrypted.
pub(crate) struct Schedule(LessSafeKey, bool);

thread_local! {
    /// GMAC's input in one piece; as large as this thread's largest so far.
    static GMAC_INPUT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Passes GMAC's data (RFC 4543 §3.3) to `work`: the octets before the IV, IV and text.
fn with_whole(nonce: &[u8; NONCE_LEN], aad: &[u8], text: &[u8], work: impl FnOnce(&[u8]) -> bool) -> bool {
    let (_, iv) = nonce.split_at(SALT_LEN);
    let whole = |whole: &RefCell<Vec<u8>>| {
        let mut whole = whole.borrow_mut();
        whole.clear();
        [aad, iv, text].into_iter().for_each(|part| whole.extend_from_slice(part));
        work(&whole)
    };
    // On a thread that is ending no packet is good.
    GMAC_INPUT.try_with(whole).unwrap_or(false)
}

impl Schedule {
    pub(crate) fn new(algorithm: AeadAlgorithm, key: &[u8]) -> Result<Self, CryptoError> {
        let encrypts = algorithm.encrypts();
        let algorithm = match algorithm {
            AeadAlgorithm::Aes128Gcm | AeadAlgorithm::Aes128Gmac => &AES_128_GCM,
            AeadAlgorithm::Aes192Gcm | AeadAlgorithm::Aes192Gmac => &AES_192_GCM,
            AeadAlgorithm::Aes256Gcm | AeadAlgorithm::Aes256Gmac => &AES_256_GCM,
            AeadAlgorithm::ChaCha20Poly1305 => &CHACHA20_POLY1305,
        };
        let key = UnboundKey::new(algorithm, key)
            .map_err(|_| CryptoError::KeyRefused { library: Library::AwsLc })?;
        Ok(Self(LessSafeKey::new(key), encrypts))
    }

    /// Returns false, with `text` and `tag` in an unknown state, if the library refuses.
    #[inline]
    pub(crate) fn seal(
        &self,
        nonce: [u8; NONCE_LEN],
        aad: &[u8],
        text: &mut [u8],
        tag: &mut [u8; TAG_LEN],
    ) -> bool {
        if !self.1 {
            return self.sign(nonce, aad, text, tag);
        }
        let nonce = Nonce::assume_unique_for_key(nonce);
        self.0.seal_in_place_scatter(nonce, Aad::from(aad), text, &[], tag).is_ok()
    }

    /// Returns false, with `text` in an unknown state, if the tag does not verify. The library
    /// compares in constant time.
    #[inline]
    pub(crate) fn open(
        &self,
        nonce: [u8; NONCE_LEN],
        aad: &[u8],
        text: &mut [u8],
        tag: &[u8; TAG_LEN],
    ) -> bool {
        if !self.1 {
            return self.verify(nonce, aad, text, tag);
        }
        let nonce = Nonce::assume_unique_for_key(nonce);
        self.0.open_in_place_separate_tag(nonce, Aad::from(aad), tag, text).is_ok()
    }

    /// Seals with GMAC.
    #[cold]
    fn sign(&self, nonce: [u8; NONCE_LEN], aad: &[u8], text: &[u8], tag: &mut [u8; TAG_LEN]) -> bool {
        let unique = Nonce::assume_unique_for_key(nonce);
        with_whole(&nonce, aad, text, |whole| {
            self.0.seal_in_place_scatter(unique, Aad::from(whole), &mut [], &[], tag).is_ok()
        })
    }

    /// Opens with GMAC.
    #[cold]
    fn verify(&self, nonce: [u8; NONCE_LEN], aad: &[u8], text: &[u8], tag: &[u8; TAG_LEN]) -> bool {
        let unique = Nonce::assume_unique_for_key(nonce);
        with_whole(&nonce, aad, text, |whole| {
            self.0.open_in_place_separate_tag(unique, Aad::from(whole), tag, &mut []).is_ok()
        })
    }
}
