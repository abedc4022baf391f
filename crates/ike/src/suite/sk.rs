//! The Encrypted payload with AES-GCM (RFC 7296 §3.14, RFC 5282).
//!
//! IV: sender ID:16 | counter:48 (RFC 6054). Two members of a cluster have different sender IDs, so that not
//! even a split brain can make them use an IV twice under one key. The counter is part of the SA's state.

use super::error::SuiteError;
use super::secret::Secret;
use crate::config::IkeEncryption;
use crate::message::{Encrypted, MessageBuilder, ParseError, PayloadType, Payloads};
use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Aad, Algorithm, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use serde::{Deserialize, Serialize};
use std::fmt;
use testudo_ipsec::spi::SenderId;
use zeroize::Zeroizing;

const IV: usize = 8;
const ICV: usize = 16;
/// We do not pad: AES-GCM needs none, and the length of our messages tells nobody anything new.
const PAD_LENGTH: [u8; 1] = [0];
const OVERHEAD: usize = IV + PAD_LENGTH.len() + ICV;
/// IVs of one sender.
const COUNTER_END: u64 = 1 << 48;

/// A key and its salt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct AeadKey {
    encryption: IkeEncryption,
    material: Secret,
}

impl AeadKey {
    /// The cipher, and the nonce of an IV.
    fn unpack(&self, iv: [u8; IV]) -> Result<(LessSafeKey, Nonce), SuiteError> {
        let algorithm: &'static Algorithm = match self.encryption {
            IkeEncryption::Aes128Gcm16 => &AES_128_GCM,
            IkeEncryption::Aes256Gcm16 => &AES_256_GCM,
        };
        let wrong =
            SuiteError::KeyLength { found: self.material.len(), expected: self.encryption.material() };
        let (key, salt) =
            self.material.expose().split_at_checked(algorithm.key_len()).ok_or(wrong.clone())?;
        let nonce = Zeroizing::new([salt, &iv].concat());
        let nonce: [u8; NONCE_LEN] = nonce.as_slice().try_into().map_err(|_| wrong.clone())?;
        let key = UnboundKey::new(algorithm, key).map_err(|_| wrong)?;
        Ok((LessSafeKey::new(key), Nonce::assume_unique_for_key(nonce)))
    }
}

/// Seals the messages of one side. A copy must never seal: it would use the same IVs again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkSealer {
    key: AeadKey,
    sender: SenderId,
    /// Counter of the next IV. Never set back, not even for a new sender ID.
    next: u64,
}

impl SkSealer {
    pub(super) fn new(encryption: IkeEncryption, material: Secret, sender: SenderId) -> Self {
        Self { key: AeadKey { encryption, material }, sender, next: 0 }
    }

    /// Seals from now on as another sender: another node, or another incarnation of this one.
    pub fn set_sender(&mut self, sender: SenderId) {
        self.sender = sender;
    }

    /// The message with its payloads encrypted. Uses up an IV, whatever comes of it.
    pub fn seal(&mut self, message: &MessageBuilder) -> Result<Vec<u8>, SuiteError> {
        let iv = self.next_iv()?;
        let draft = message.draft(OVERHEAD)?;
        let (key, nonce) = self.key.unpack(iv)?;
        let mut content = draft.plaintext;
        content.extend_from_slice(&PAD_LENGTH);
        key.seal_in_place_append_tag(nonce, Aad::from(&draft.aad), &mut content)
            .map_err(|_| SuiteError::Seal)?;
        Ok([draft.aad.as_slice(), &iv, &content].concat())
    }

    fn next_iv(&mut self) -> Result<[u8; IV], SuiteError> {
        if self.next >= COUNTER_END {
            return Err(SuiteError::IvExhausted);
        }
        let iv = u64::from(self.sender.0) << 48 | self.next;
        self.next = self.next.saturating_add(1);
        Ok(iv.to_be_bytes())
    }
}

/// Opens the messages of one side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkOpener {
    key: AeadKey,
}

impl SkOpener {
    pub(super) fn new(encryption: IkeEncryption, material: Secret) -> Self {
        Self { key: AeadKey { encryption, material } }
    }

    /// Checks and decrypts. After `Ok` the message is authentic, whatever its content turns out to be.
    pub fn open(&self, encrypted: &Encrypted<'_>) -> Result<Opened, SuiteError> {
        let short = SuiteError::Short { found: encrypted.body.len(), needed: OVERHEAD };
        let (iv, sealed) = encrypted.body.split_first_chunk::<IV>().ok_or(short.clone())?;
        if encrypted.body.len() < OVERHEAD {
            return Err(short);
        }
        let (key, nonce) = self.key.unpack(*iv)?;
        let mut content = Zeroizing::new(sealed.to_vec());
        let length = key
            .open_in_place(nonce, Aad::from(encrypted.aad), &mut content)
            .map_err(|_| SuiteError::Integrity)?
            .len();
        content.truncate(length);
        strip_padding(&mut content)?;
        Ok(Opened { first: encrypted.first, content })
    }
}

fn strip_padding(content: &mut Vec<u8>) -> Result<(), SuiteError> {
    let found = usize::from(content.pop().unwrap_or_default());
    let available = content.len();
    let length = available.checked_sub(found).ok_or(SuiteError::Padding { found, available })?;
    content.truncate(length);
    Ok(())
}

/// The content of an Encrypted payload: authentic, but not yet read.
#[derive(Clone, PartialEq, Eq)]
pub struct Opened {
    first: PayloadType,
    content: Zeroizing<Vec<u8>>,
}

impl Opened {
    /// The payloads inside.
    pub fn payloads(&self) -> Result<Payloads, ParseError> {
        Payloads::parse(self.first, &self.content)
    }
}

impl fmt::Debug for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Opened({} octets)", self.content.len())
    }
}
