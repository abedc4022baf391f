//! Sealed messages with edited content, which our builder would not write.

use super::peer::{Peer, message};
use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use testudo_ike::message::{Header, Payload};

/// The payloads sealed as the peer's next message, the plaintext edited before.
pub(crate) fn sealed_with(
    peer: &mut Peer,
    header: Header,
    payloads: Vec<Payload>,
    edit: impl FnOnce(&mut Vec<u8>),
) -> Vec<u8> {
    // IV, pad length, ICV.
    let draft = message(header, payloads).draft(8 + 1 + 16).unwrap();
    let mut content = draft.plaintext;
    edit(&mut content);
    content.push(0);
    // The key is not to be had from the sealer but by its serialised form: encryption, integrity,
    // key and salt, sender, counter.
    let state = postcard::to_allocvec(&peer.sealer).unwrap();
    let (key, salt) = (&state[3..19], &state[19..23]);
    let iv = 0xfffe_0000_0000_0000_u64 | u64::from(peer.next);
    let nonce = [salt, &iv.to_be_bytes()].concat().try_into().unwrap();
    let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, key).unwrap());
    key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(&draft.aad), &mut content)
        .unwrap();
    [draft.aad.as_slice(), &iv.to_be_bytes(), &content].concat()
}
