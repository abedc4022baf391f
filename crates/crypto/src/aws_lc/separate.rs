//! AES-CBC and MACs, one packet after the other.

use crate::error::CryptoError;
use crate::library::Library;
use crate::mac::{MacKey, Message};
use crate::separate::{Cipher, HEADER_LEN, SeparateAlgorithm, SeparateJob};
use aws_lc_rs::cipher::{
    AES_128, AES_192, AES_256, DecryptingKey, DecryptionContext, EncryptingKey, EncryptionContext,
    UnboundCipherKey,
};
use aws_lc_rs::iv::FixedLength;

const BLOCK: usize = 16;

/// Expanded keys; without those of a cipher it is NULL.
pub(crate) struct Schedule {
    cipher: Option<(EncryptingKey, DecryptingKey)>,
    mac: MacKey,
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
        Ok(Self { cipher, mac: MacKey::new(algorithm.mac, mac_key)? })
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
        self.message(message, job.high).seal(icv)
    }

    /// False if the ICV does not fit, and then nothing has been decrypted.
    pub(crate) fn open(&self, job: &mut SeparateJob<'_>, icv_at: usize) -> bool {
        let Some((message, icv)) = job.packet.split_at_mut_checked(icv_at) else { return false };
        let authentic = self.message(message, job.high).verify(icv);
        let Some((_, decrypting)) = &self.cipher else { return authentic };
        let Some((iv, blocks)) = message.get_mut(HEADER_LEN..).and_then(|rest| rest.split_first_chunk_mut())
        else {
            return false;
        };
        let iv = DecryptionContext::Iv128(FixedLength::<BLOCK>::from(*iv));
        authentic && decrypting.decrypt(blocks, iv).is_ok()
    }

    fn message(&self, octets: &[u8], high: Option<u32>) -> Message<'_> {
        let mut message = self.mac.begin();
        message.push(octets);
        if let Some(high) = high {
            message.push(&high.to_be_bytes());
        }
        message
    }
}
