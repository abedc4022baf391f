//! AES-CBC and HMAC, one packet after the other.

use crate::error::CryptoError;
use crate::library::Library;
use crate::separate::{Cipher, HEADER_LEN, Mac, SeparateAlgorithm, SeparateJob};
use aws_lc_rs::cipher::{
    AES_128, AES_192, AES_256, DecryptingKey, DecryptionContext, EncryptingKey, EncryptionContext,
    UnboundCipherKey,
};
use aws_lc_rs::hmac;
use aws_lc_rs::iv::FixedLength;
use subtle::ConstantTimeEq;

const BLOCK: usize = 16;

/// Expanded keys; without those of a cipher it is NULL.
pub(crate) struct Schedule {
    cipher: Option<(EncryptingKey, DecryptingKey)>,
    mac: hmac::Key,
}

impl Schedule {
    pub(crate) fn new(
        algorithm: SeparateAlgorithm,
        cipher_key: &[u8],
        mac_key: &[u8],
    ) -> Result<Self, CryptoError> {
        let aes = match algorithm.cipher {
            Cipher::Null => None,
            Cipher::Aes128Cbc => Some(&AES_128),
            Cipher::Aes192Cbc => Some(&AES_192),
            Cipher::Aes256Cbc => Some(&AES_256),
        };
        let refused = |_| CryptoError::KeyRefused { library: Library::AwsLc };
        let key = |aes| UnboundCipherKey::new(aes, cipher_key).map_err(refused);
        let cipher = match aes {
            None => None,
            Some(aes) => Some((
                EncryptingKey::cbc(key(aes)?).map_err(refused)?,
                DecryptingKey::cbc(key(aes)?).map_err(refused)?,
            )),
        };
        Ok(Self { cipher, mac: hmac::Key::new(hash(algorithm.mac), mac_key) })
    }

    /// False, with the packet in an unknown state, if the library refuses.
    pub(crate) fn seal(&self, job: &mut SeparateJob<'_>, icv_at: usize) -> bool {
        let Some((message, icv)) = job.packet.split_at_mut_checked(icv_at) else { return false };
        if let Some((encrypting, _)) = &self.cipher {
            // The nonce in the IV's place is the first block.
            let Some(blocks) = message.get_mut(HEADER_LEN..) else { return false };
            let zero = EncryptionContext::Iv128(FixedLength::from([0; BLOCK]));
            if encrypting.less_safe_encrypt(blocks, zero).is_err() {
                return false;
            }
        }
        let expected = self.icv(message, job.high);
        icv.iter_mut().zip(expected.as_ref()).for_each(|(to, from)| *to = *from);
        true
    }

    /// False if the ICV does not fit, and then nothing has been decrypted.
    pub(crate) fn open(&self, job: &mut SeparateJob<'_>, icv_at: usize) -> bool {
        let Some((message, icv)) = job.packet.split_at_mut_checked(icv_at) else { return false };
        let expected = self.icv(message, job.high);
        let authentic =
            expected.as_ref().get(..icv.len()).is_some_and(|expected| bool::from(expected.ct_eq(icv)));
        let Some((_, decrypting)) = &self.cipher else { return authentic };
        let Some((iv, blocks)) = message.get_mut(HEADER_LEN..).and_then(|rest| rest.split_first_chunk_mut())
        else {
            return false;
        };
        let iv = DecryptionContext::Iv128(FixedLength::<BLOCK>::from(*iv));
        authentic && decrypting.decrypt(blocks, iv).is_ok()
    }

    fn icv(&self, message: &[u8], high: Option<u32>) -> hmac::Tag {
        let mut context = hmac::Context::with_key(&self.mac);
        context.update(message);
        if let Some(high) = high {
            context.update(&high.to_be_bytes());
        }
        context.sign()
    }
}

/// What AWS-LC calls the MAC, before it is cut.
pub(crate) fn hash(mac: Mac) -> hmac::Algorithm {
    match mac {
        Mac::HmacSha1_96 => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
        Mac::HmacSha256_128 => hmac::HMAC_SHA256,
        Mac::HmacSha384_192 => hmac::HMAC_SHA384,
        Mac::HmacSha512_256 => hmac::HMAC_SHA512,
    }
}
