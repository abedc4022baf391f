//! Messages with any content, sealed with keys that are derived independently by RFC 7296 §2.14, so
//! that the fuzzer can choose every octet inside the protection.

use testudo_crypto::{AeadAlgorithm, AeadKey, Library};
use testudo_ike::config::IkeEncryption;
use testudo_ike::suite::{IkeSpis, IkeSuite, Nonces, Role, Secret};

/// What GCM adds: IV, pad length (the padding itself counts as content), ICV.
const OVERHEAD: usize = 8 + 1 + 16;
const GENERIC_HEADER: usize = 4;
const ENCRYPTED: u8 = 46;

/// The fields of a header that a sender can forge.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub(super) spis: IkeSpis,
    pub(super) exchange: u8,
    pub(super) flags: u8,
    pub(super) id: u32,
}

impl Head {
    fn to_bytes(self, first: u8, len: usize) -> Vec<u8> {
        [
            &self.spis.initiator.to_bytes()[..],
            &self.spis.responder.to_bytes(),
            &[first, 0x20, self.exchange, self.flags],
            &self.id.to_be_bytes(),
            &(len as u32).to_be_bytes(),
        ]
        .concat()
    }

    /// A message in clear.
    pub(super) fn clear(self, first: u8, payloads: &[u8]) -> Vec<u8> {
        [&self.to_bytes(first, 28 + payloads.len()), payloads].concat()
    }
}

/// SK_ei and SK_er with their salts.
#[derive(Clone, Debug)]
pub(super) struct MessageKeys {
    algorithm: AeadAlgorithm,
    initiator: Vec<u8>,
    responder: Vec<u8>,
}

impl MessageKeys {
    /// SK_d | SK_ei | SK_er | ... from prf+, with no SK_a, because the cipher is an AEAD (RFC 5282
    /// §7).
    pub(super) fn derive(suite: IkeSuite, shared: &Secret, nonces: &Nonces, spis: IkeSpis) -> Self {
        let (algorithm, len) = match suite.encryption {
            IkeEncryption::Aes128Gcm16 => (AeadAlgorithm::Aes128Gcm, 16 + 4),
            IkeEncryption::Aes256Gcm16 => (AeadAlgorithm::Aes256Gcm, 32 + 4),
            other => panic!("the connections offer AES-GCM alone, not {other:?}"),
        };
        let prf = suite.prf;
        let skip = prf.length();
        let key = [nonces.initiator.as_ref(), nonces.responder.as_ref()].concat();
        let skeyseed = prf.compute(&key, &[shared.expose()]).expect("SKEYSEED");
        let seed = [&key[..], &spis.initiator.to_bytes(), &spis.responder.to_bytes()].concat();
        let stream = prf.plus(skeyseed.expose(), &[&seed], skip + 2 * len).expect("prf+");
        let (initiator, responder) = stream.expose()[skip..].split_at(len);
        Self { algorithm, initiator: initiator.to_vec(), responder: responder.to_vec() }
    }

    /// A message of `sender` whose Encrypted payload holds `content`, padding included.
    pub(super) fn seal(&self, sender: Role, head: Head, first: u8, content: &[u8], pad_len: u8) -> Vec<u8> {
        let material = if sender == Role::Initiator { &self.initiator } else { &self.responder };
        let (key, salt) = material.split_last_chunk::<4>().expect("key and salt");
        let key = AeadKey::new(Library::AwsLc, self.algorithm, key, *salt).expect("a key");
        let sk_len = GENERIC_HEADER + OVERHEAD + content.len();
        let mut message = head.to_bytes(ENCRYPTED, 28 + sk_len);
        message.extend([first, 0]);
        message.extend((sk_len as u16).to_be_bytes());
        let mut text = [content, &[pad_len]].concat();
        // The IVs of this peer need not be secure; they must only differ for different content.
        let iv = [0x50, head.exchange, head.flags, first, 0, 0, head.id as u8, pad_len];
        let mut tag = [0; 16];
        key.seal(iv, &message, &mut text, &mut tag);
        [&message[..], &iv, &text, &tag].concat()
    }
}

/// A chain of payloads with correct generic headers; returns it with the type of the first.
pub(crate) fn chain(payloads: &[(u8, &[u8])]) -> (u8, Vec<u8>) {
    let mut octets = Vec::new();
    for (at, (_, body)) in payloads.iter().enumerate() {
        let next = payloads.get(at + 1).map_or(0, |(kind, _)| *kind);
        octets.extend([next, 0]);
        octets.extend(((GENERIC_HEADER + body.len()) as u16).to_be_bytes());
        octets.extend(*body);
    }
    (payloads.first().map_or(0, |(kind, _)| *kind), octets)
}
