//! AES-CBC, 3DES-CBC and MACs, one packet after the other.

use super::triple_des::TripleDes;
use crate::error::CryptoError;
use crate::library::Library;
use crate::mac::{MacKey, Message};
use crate::separate::{Cipher, HEADER_LEN, SeparateAlgorithm, SeparateJob};
use aws_lc_rs::cipher::{
    AES_128, AES_192, AES_256, Algorithm, DecryptingKey, DecryptionContext, EncryptingKey, EncryptionContext,
    UnboundCipherKey,
};
use aws_lc_rs::iv::FixedLength;

const BLOCK_LEN: usize = 16;

/// Expanded keys.
pub(crate) struct Schedule {
    cipher: Expanded,
    mac: MacKey,
}

enum Expanded {
    Null,
    Aes(Box<(EncryptingKey, DecryptingKey)>),
    TripleDes(Box<TripleDes>),
}

impl Schedule {
    pub(crate) fn new(
        algorithm: SeparateAlgorithm,
        cipher_key: &[u8],
        mac_key: &[u8],
    ) -> Result<Self, CryptoError> {
        let refused = CryptoError::KeyRefused { library: Library::AwsLc };
        let cipher = match algorithm.cipher {
            Cipher::Null => Some(Expanded::Null),
            Cipher::Aes128Cbc => aes(&AES_128, cipher_key),
            Cipher::Aes192Cbc => aes(&AES_192, cipher_key),
            Cipher::Aes256Cbc => aes(&AES_256, cipher_key),
            Cipher::TripleDesCbc => TripleDes::new(cipher_key).map(Box::new).map(Expanded::TripleDes),
        };
        let cipher = cipher.ok_or(refused)?;
        Ok(Self { cipher, mac: MacKey::new(algorithm.mac, mac_key)? })
    }

    /// Returns false, with the packet in an unknown state, if the library refuses.
    pub(crate) fn seal(&self, job: &mut SeparateJob<'_>, icv_at: usize) -> bool {
        let Some((message, icv)) = job.packet.split_at_mut_checked(icv_at) else { return false };
        // The nonce in the IV's place is the first block.
        let Some(blocks) = message.get_mut(HEADER_LEN..) else { return false };
        match &self.cipher {
            Expanded::Null => {}
            Expanded::Aes(keys) => {
                let zero = EncryptionContext::Iv128(FixedLength::from([0; BLOCK_LEN]));
                if keys.0.less_safe_encrypt(blocks, zero).is_err() {
                    return false;
                }
            }
            Expanded::TripleDes(key) => key.encrypt(blocks),
        }
        self.message(message, job.high).seal(icv)
    }

    /// Returns false if the ICV does not verify, and then nothing has been decrypted.
    pub(crate) fn open(&self, job: &mut SeparateJob<'_>, icv_at: usize) -> bool {
        let Some((message, icv)) = job.packet.split_at_mut_checked(icv_at) else { return false };
        self.message(message, job.high).verify(icv)
            && message.get_mut(HEADER_LEN..).is_some_and(|blocks| self.decrypt(blocks))
    }

    /// Decrypts the part behind the IV.
    fn decrypt(&self, blocks: &mut [u8]) -> bool {
        match &self.cipher {
            Expanded::Null => true,
            Expanded::Aes(keys) => {
                let Some((iv, text)) = blocks.split_first_chunk_mut::<BLOCK_LEN>() else { return false };
                let iv = DecryptionContext::Iv128(FixedLength::from(*iv));
                keys.1.decrypt(text, iv).is_ok()
            }
            Expanded::TripleDes(key) => {
                let Some((iv, text)) = blocks.split_first_chunk_mut() else { return false };
                key.decrypt(text, *iv);
                true
            }
        }
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

/// `None` if the library refuses the key.
fn aes(algorithm: &'static Algorithm, key: &[u8]) -> Option<Expanded> {
    let key = || UnboundCipherKey::new(algorithm, key).ok();
    let keys = (EncryptingKey::cbc(key()?).ok()?, DecryptingKey::cbc(key()?).ok()?);
    Some(Expanded::Aes(Box::new(keys)))
}
