//! 3DES-CBC from RustCrypto, because AWS-LC does not export its own.

use des::TdesEde3;
use des::cipher::{BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};

const BLOCK_LEN: usize = 8;
type Block = [u8; BLOCK_LEN];

/// An expanded key; `des` overwrites it when it is dropped.
pub(super) struct TripleDes(TdesEde3);

impl TripleDes {
    /// `None` for a key of another length.
    pub(super) fn new(key: &[u8]) -> Option<Self> {
        TdesEde3::new_from_slice(key).ok().map(Self)
    }

    /// Encrypts whole blocks, with an IV of zeros.
    pub(super) fn encrypt(&self, text: &mut [u8]) {
        let mut chain = [0; BLOCK_LEN];
        for block in text.as_chunks_mut().0 {
            add(block, &chain);
            self.0.encrypt_block(block.into());
            chain = *block;
        }
    }

    /// Decrypts whole blocks.
    pub(super) fn decrypt(&self, text: &mut [u8], iv: Block) {
        let mut chain = iv;
        for block in text.as_chunks_mut().0 {
            let next = *block;
            self.0.decrypt_block(block.into());
            add(block, &chain);
            chain = next;
        }
    }
}

fn add(block: &mut Block, chain: &Block) {
    *block = (u64::from_ne_bytes(*block) ^ u64::from_ne_bytes(*chain)).to_ne_bytes();
}
