//! MACs of a block cipher: AES-XCBC (RFC 3566) and AES-CMAC (RFC 4493), which differ only in the
//! derivation of their keys. RustCrypto's AES is used, where octets are not contiguous or
//! intel-ipsec-mb is missing.

use crate::separate::Mac;
use aes::Aes128;
use aes::cipher::{BlockCipherEncrypt, KeyInit};
use zeroize::{Zeroize, ZeroizeOnDrop};

const BLOCK_LEN: usize = 16;
type Block = [u8; BLOCK_LEN];

/// An expanded key; `aes` overwrites its part of it.
#[derive(Clone)]
pub(crate) struct BlockMac {
    aes: Aes128,
    last: Last,
}

/// Blocks added to the last block.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
struct Last {
    /// If it is whole.
    whole: Block,
    /// If it was padded.
    filled: Block,
}

impl BlockMac {
    /// `None` if the MAC is another, or the key has another length.
    pub(crate) fn new(mac: Mac, key: &[u8]) -> Option<Self> {
        let root = Aes128::new_from_slice(key).ok()?;
        match mac {
            Mac::AesXcbc96 => {
                let [mut first, whole, filled] = [1, 2, 3].map(|octet| encrypted(&root, [octet; BLOCK_LEN]));
                let aes = Aes128::new(&first.into());
                first.zeroize();
                Some(Self { aes, last: Last { whole, filled } })
            }
            Mac::AesCmac96 => {
                let whole = doubled(encrypted(&root, [0; BLOCK_LEN]));
                Some(Self { aes: root, last: Last { whole, filled: doubled(whole) } })
            }
            _ => None,
        }
    }

    /// Begins a message.
    pub(crate) fn begin(&self) -> State<'_> {
        State { key: self, chain: [0; BLOCK_LEN], used: 0 }
    }
}

fn encrypted(aes: &Aes128, mut block: Block) -> Block {
    aes.encrypt_block((&mut block).into());
    block
}

/// Twice a number of GF(2^128), in the same time whatever it is (RFC 4493 §2.3).
fn doubled(block: Block) -> Block {
    let number = u128::from_be_bytes(block);
    ((number << 1) ^ (0x87 * (number >> 127))).to_be_bytes()
}

/// An unfinished message.
pub(crate) struct State<'k> {
    key: &'k BlockMac,
    /// The chain, with the octets of the next block added so far. A whole block waits until it is
    /// known not to be the last.
    chain: Block,
    used: usize,
}

impl State<'_> {
    /// Adds the next octets.
    pub(crate) fn push(&mut self, mut octets: &[u8]) {
        while !octets.is_empty() {
            if self.used == BLOCK_LEN {
                self.chain = encrypted(&self.key.aes, self.chain);
                self.used = 0;
            }
            let (now, later) = octets.split_at(octets.len().min(BLOCK_LEN - self.used));
            add(self.chain.get_mut(self.used..).unwrap_or_default(), now);
            self.used += now.len();
            octets = later;
        }
    }

    /// The MAC of all octets, before truncation.
    pub(crate) fn finish(mut self) -> Block {
        let last = &self.key.last;
        match self.chain.get_mut(self.used) {
            Some(octet) => {
                *octet ^= 0x80;
                add(&mut self.chain, &last.filled);
            }
            None => add(&mut self.chain, &last.whole),
        }
        encrypted(&self.key.aes, self.chain)
    }
}

fn add(to: &mut [u8], octets: &[u8]) {
    to.iter_mut().zip(octets).for_each(|(to, octet)| *to ^= octet);
}
