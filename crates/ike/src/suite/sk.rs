//! The Encrypted payload (RFC 7296 §3.14, RFC 5282).
//!
//! IV of an AEAD: sender ID:16 | counter:48 (RFC 6054). Two members of a cluster have different
//! sender IDs, so that not even a split brain can make them use an IV twice under one key. The
//! counter is part of the SA's state. The IV of AES-CBC must be random (RFC 3602 §3): members draw
//! from sources of their own. Each fragment of a message (RFC 7383) is sealed separately, with an
//! IV of its own.

use super::algorithm::{IkeSuite, Role};
use super::cbc;
use super::cipher::{COUNTER_IV, Iv, MessageKey};
use super::entropy::Entropy;
use super::error::SuiteError;
use super::keys::IkeKeys;
use super::secret::Secret;
use crate::message::{Encrypted, Fragment, Header, MessageBuilder, ParseError, PayloadType, Payloads};
use serde::{Deserialize, Serialize};
use std::fmt;
use testudo_base::spi::SenderId;
use zeroize::Zeroizing;

/// Octets of the IKE header and the generic header of the Encrypted payload.
const WHOLE_HEADERS: usize = Header::LENGTH + 4;
/// The same with the place of a fragment.
const FRAGMENT_HEADERS: usize = WHOLE_HEADERS + 4;
/// IVs of one sender.
const COUNTER_END: u64 = 1 << 48;

/// Seals the messages of one side. A copy must never seal: it would reuse IVs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkSealer {
    key: MessageKey,
    sender: SenderId,
    /// Counter of the next IV. Never reset, not even for a new sender ID.
    next: u64,
}

impl SkSealer {
    pub(super) fn new(suite: IkeSuite, material: Secret, integrity_key: Secret, sender: SenderId) -> Self {
        Self { key: MessageKey::new(suite, material, integrity_key), sender, next: 0 }
    }

    /// A sealer with other keys. The IVs count on, so that one IKE SA uses none twice, whatever its
    /// keys.
    #[must_use]
    pub fn with_keys(&self, keys: &IkeKeys, role: Role) -> Self {
        Self { next: self.next, ..keys.sealer(role, self.sender) }
    }

    /// Seals as another sender from now on: another node, or another incarnation of this one.
    pub fn set_sender(&mut self, sender: SenderId) {
        self.sender = sender;
    }

    /// The message with its payloads encrypted. Uses an IV even if it fails.
    pub fn seal(
        &mut self,
        message: &MessageBuilder,
        entropy: &mut dyn Entropy,
    ) -> Result<Vec<u8>, SuiteError> {
        let iv = self.next_iv(entropy)?;
        let plaintext = message.plaintext()?;
        let aad = message.aad(self.key.sealed_len(plaintext.len()))?;
        let body = self.key.seal(iv, &aad, plaintext)?;
        Ok([aad, body].concat())
    }

    /// The message in fragments of at most `limit` octets (RFC 7383 §2.5); whole if that fits, or
    /// if the limit leaves no room for content.
    pub fn seal_fragments(
        &mut self,
        message: &MessageBuilder,
        limit: usize,
        entropy: &mut dyn Entropy,
    ) -> Result<Vec<Vec<u8>>, SuiteError> {
        let plaintext = Zeroizing::new(message.plaintext()?);
        let whole = WHOLE_HEADERS.saturating_add(self.key.sealed_len(plaintext.len()));
        let chunk = self.key.plaintext_within(limit.saturating_sub(FRAGMENT_HEADERS));
        let (Some(chunk), true) = (chunk, whole > limit) else {
            return Ok(vec![self.seal(message, entropy)?]);
        };
        let chunks = plaintext.chunks(chunk);
        let total = u16::try_from(chunks.len()).map_err(|_| SuiteError::Seal)?;
        let mut fragments = Vec::with_capacity(chunks.len());
        for (number, chunk) in (1..=total).zip(chunks) {
            let iv = self.next_iv(entropy)?;
            let place = Fragment { number, total };
            let aad = message.fragment_aad(place, self.key.sealed_len(chunk.len()))?;
            let body = self.key.seal(iv, &aad, chunk.to_vec())?;
            fragments.push([aad, body].concat());
        }
        Ok(fragments)
    }

    fn next_iv(&mut self, entropy: &mut dyn Entropy) -> Result<Iv, SuiteError> {
        if !self.key.encryption().is_aead() {
            let mut iv = [0; cbc::BLOCK];
            entropy.fill(&mut iv);
            return Ok(Iv::Random(iv));
        }
        if self.next >= COUNTER_END {
            return Err(SuiteError::IvExhausted);
        }
        let iv: [u8; COUNTER_IV] = (u64::from(self.sender.0) << 48 | self.next).to_be_bytes();
        self.next = self.next.saturating_add(1);
        Ok(Iv::Counter(iv))
    }
}

/// Opens the messages of one side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkOpener {
    key: MessageKey,
}

impl SkOpener {
    pub(super) fn new(suite: IkeSuite, material: Secret, integrity_key: Secret) -> Self {
        Self { key: MessageKey::new(suite, material, integrity_key) }
    }

    /// Verifies and decrypts. After `Ok` the message is authentic, whatever its content.
    pub fn open(&self, encrypted: &Encrypted<'_>) -> Result<Opened, SuiteError> {
        let content = self.key.open(encrypted.aad, encrypted.body)?;
        Ok(Opened { first: encrypted.first, content })
    }
}

/// The content of an Encrypted payload: authentic, but not decoded yet.
#[derive(Clone, PartialEq, Eq)]
pub struct Opened {
    first: PayloadType,
    content: Zeroizing<Vec<u8>>,
}

impl Opened {
    /// Content that came in several parts, in order (RFC 7383 §2.6).
    pub(crate) fn joined<'a>(first: PayloadType, parts: impl Iterator<Item = &'a Secret> + Clone) -> Self {
        // With its final capacity at once, so that no copy stays behind in freed memory.
        let length = parts.clone().fold(0, |sum, part| part.len().saturating_add(sum));
        let mut content = Zeroizing::new(Vec::with_capacity(length));
        parts.for_each(|part| content.extend_from_slice(part.expose()));
        Self { first, content }
    }

    /// The type of the first payload, and the octets.
    pub(crate) fn into_parts(mut self) -> (PayloadType, Secret) {
        (self.first, Secret::new(std::mem::take(&mut *self.content)))
    }

    /// The octets.
    pub(super) fn content(&self) -> &[u8] {
        &self.content
    }

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
