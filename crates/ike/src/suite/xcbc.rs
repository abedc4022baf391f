//! AES-XCBC-PRF-128 (RFC 4434): AES-XCBC-MAC (RFC 3566) for keys of any length, not truncated.

use super::secret::Secret;
use aes::Aes128;
use aes::cipher::{BlockCipherEncrypt, KeyInit};
use zeroize::Zeroizing;

const BLOCK: usize = 16;
type Block = Zeroizing<[u8; BLOCK]>;

/// The PRF of `message`. A short key is padded with zeros, a long one is first shortened by the PRF
/// itself (RFC 4434 §2).
pub(super) fn prf(key: &[u8], message: &[u8]) -> Secret {
    let mut fixed = Block::default();
    let shortened;
    let key = if key.len() > BLOCK {
        shortened = mac(&Block::default(), key);
        &*shortened
    } else {
        key
    };
    for (to, from) in fixed.iter_mut().zip(key) {
        *to = *from;
    }
    Secret::new(mac(&fixed, message).to_vec())
}

/// The MAC, not truncated (RFC 3566 §4).
fn mac(key: &Block, message: &[u8]) -> Block {
    let root = Aes128::new((&**key).into());
    let [k1, k2, k3] = [1, 2, 3].map(|octet| encrypt(&root, Zeroizing::new([octet; BLOCK])));
    let cipher = Aes128::new((&*k1).into());
    let whole = !message.is_empty() && message.len().is_multiple_of(BLOCK);
    let blocks = message.len().div_ceil(BLOCK).max(1);
    let mut state = Block::default();
    for (index, chunk) in message.chunks(BLOCK).chain(message.is_empty().then_some(&[][..])).enumerate() {
        xor(&mut state, chunk);
        if index.saturating_add(1) == blocks {
            if !whole && let Some(octet) = state.get_mut(chunk.len()) {
                *octet ^= 0x80;
            }
            xor(&mut state, if whole { &*k2 } else { &*k3 });
        }
        state = encrypt(&cipher, state);
    }
    state
}

fn xor(state: &mut Block, with: &[u8]) {
    for (to, from) in state.iter_mut().zip(with) {
        *to ^= from;
    }
}

fn encrypt(cipher: &Aes128, mut block: Block) -> Block {
    cipher.encrypt_block((&mut *block).into());
    block
}
