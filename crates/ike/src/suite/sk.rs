//! The Encrypted payload (RFC 7296 §3.14, RFC 5282).
//!
//! IV of an AEAD: sender ID:16 | counter:48 (RFC 6054). Two members of a cluster have different sender IDs, so that not
//! even a split brain can make them use an IV twice under one key. The counter is part of the SA's state. The IV of
//! AES-CBC is random, as it must be (RFC 3602 §3): members draw from sources of their own.

use super::algorithm::IkeSuite;
use super::cbc;
use super::cipher::{COUNTER_IV, Iv, MessageKey};
use super::entropy::Entropy;
use super::error::SuiteError;
use super::secret::Secret;
use crate::message::{Encrypted, MessageBuilder, ParseError, PayloadType, Payloads};
use serde::{Deserialize, Serialize};
use std::fmt;
use testudo_ipsec::spi::SenderId;
use zeroize::Zeroizing;

/// IVs of one sender.
const COUNTER_END: u64 = 1 << 48;

/// Seals the messages of one side. A copy must never seal: it would use the same IVs again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkSealer {
    key: MessageKey,
    sender: SenderId,
    /// Counter of the next IV. Never set back, not even for a new sender ID.
    next: u64,
}

impl SkSealer {
    pub(super) fn new(suite: IkeSuite, material: Secret, integrity_key: Secret, sender: SenderId) -> Self {
        Self { key: MessageKey::new(suite, material, integrity_key), sender, next: 0 }
    }

    /// Seals from now on as another sender: another node, or another incarnation of this one.
    pub fn set_sender(&mut self, sender: SenderId) {
        self.sender = sender;
    }

    /// The message with its payloads encrypted. Uses up an IV, whatever comes of it.
    pub fn seal(
        &mut self,
        message: &MessageBuilder,
        entropy: &mut dyn Entropy,
    ) -> Result<Vec<u8>, SuiteError> {
        let iv = self.next_iv(entropy)?;
        let draft = message.draft_sized(|plaintext| self.key.sealed_len(plaintext))?;
        let body = self.key.seal(iv, &draft.aad, draft.plaintext)?;
        Ok([draft.aad, body].concat())
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

    /// Checks and decrypts. After `Ok` the message is authentic, whatever its content turns out to be.
    pub fn open(&self, encrypted: &Encrypted<'_>) -> Result<Opened, SuiteError> {
        let content = self.key.open(encrypted.aad, encrypted.body)?;
        Ok(Opened { first: encrypted.first, content })
    }
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
