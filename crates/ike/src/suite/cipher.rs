//! Protecting the content of an Encrypted payload, with any algorithms.

use super::aead::{Aead, TAG};
use super::algorithm::IkeSuite;
use super::cbc;
use super::error::SuiteError;
use super::secret::Secret;
use crate::config::{IkeEncryption, Integrity};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

/// Octets of the IV of an AEAD.
pub(super) const COUNTER_IV: usize = 8;

/// The keys of the messages of one side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MessageKey {
    encryption: IkeEncryption,
    integrity: Option<Integrity>,
    /// SK_e, followed by the salt.
    material: Secret,
    /// SK_a; empty with an AEAD.
    integrity_key: Secret,
}

/// The IV of a message: a counter for an AEAD, unpredictable for CBC (RFC 3602 §3).
#[derive(Clone, Copy)]
pub(super) enum Iv {
    Counter([u8; COUNTER_IV]),
    Random([u8; cbc::BLOCK]),
}

impl Iv {
    fn octets(&self) -> &[u8] {
        match self {
            Self::Counter(iv) => iv,
            Self::Random(iv) => iv,
        }
    }
}

impl MessageKey {
    pub(super) fn new(suite: IkeSuite, material: Secret, integrity_key: Secret) -> Self {
        Self { encryption: suite.encryption, integrity: suite.integrity, material, integrity_key }
    }

    pub(super) fn encryption(&self) -> IkeEncryption {
        self.encryption
    }

    /// Octets of IV and integrity check value.
    fn around(&self) -> (usize, usize) {
        match self.integrity {
            None => (COUNTER_IV, TAG),
            Some(integrity) => (cbc::BLOCK, integrity.icv()),
        }
    }

    /// Octets of padding after this many octets of payloads, without the pad length. An AEAD needs
    /// none, and the length of our messages is no secret.
    fn padding(&self, plaintext: usize) -> usize {
        match self.integrity {
            None => 0,
            Some(_) => plaintext.wrapping_add(1).wrapping_neg() % cbc::BLOCK,
        }
    }

    /// Octets of the Encrypted payload's body for this many octets of payloads.
    pub(super) fn sealed_len(&self, plaintext: usize) -> usize {
        let (iv, icv) = self.around();
        [iv, plaintext, self.padding(plaintext), 1, icv].into_iter().fold(0, usize::saturating_add)
    }

    /// The most octets of payloads whose body has at most `body` octets; `None` if there is no room
    /// for any.
    pub(super) fn plaintext_within(&self, body: usize) -> Option<usize> {
        let (iv, icv) = self.around();
        let room = body.checked_sub(iv)?.checked_sub(icv)?;
        let whole = if self.integrity.is_some() { room - room % cbc::BLOCK } else { room };
        whole.checked_sub(1).filter(|length| *length > 0)
    }

    /// The body of an Encrypted payload: IV, ciphertext, integrity check value.
    pub(super) fn seal(&self, iv: Iv, aad: &[u8], plaintext: Vec<u8>) -> Result<Vec<u8>, SuiteError> {
        let padding = self.padding(plaintext.len());
        let mut content = Zeroizing::new(plaintext);
        let padded = content.len().saturating_add(padding);
        content.resize(padded, 0);
        content.push(u8::try_from(padding).unwrap_or(u8::MAX));
        let (key, salt) = self.key_and_salt()?;
        let mut icv = Vec::new();
        match (self.integrity, iv, Aead::new(self.encryption, key)?) {
            (None, Iv::Counter(counter), Some(aead)) => {
                aead.seal(&Zeroizing::new([salt, &counter].concat()), aad, &mut content)?;
            }
            (Some(integrity), Iv::Random(random), None) => {
                cbc::encrypt(self.encryption, key, random, &mut content)?;
                icv = cbc::icv(integrity, self.integrity_key.expose(), &[aad, &random, &content])?;
            }
            _ => return Err(SuiteError::Seal),
        }
        Ok([iv.octets(), &content, &icv].concat())
    }

    /// Verifies and decrypts the body of an Encrypted payload. Nothing is decrypted, and no padding
    /// read, before the integrity check has passed.
    pub(super) fn open(&self, aad: &[u8], body: &[u8]) -> Result<Zeroizing<Vec<u8>>, SuiteError> {
        let short = SuiteError::Short { found: body.len(), needed: self.sealed_len(0) };
        if body.len() < self.sealed_len(0) {
            return Err(short);
        }
        let (key, salt) = self.key_and_salt()?;
        let mut content;
        match (self.integrity, Aead::new(self.encryption, key)?) {
            (None, Some(aead)) => {
                let (iv, sealed) = body.split_first_chunk::<COUNTER_IV>().ok_or(short)?;
                content = Zeroizing::new(sealed.to_vec());
                aead.open(&Zeroizing::new([salt, iv].concat()), aad, &mut content)?;
            }
            (Some(integrity), None) => {
                let end = body.len().checked_sub(integrity.icv()).ok_or(short.clone())?;
                let (protected, icv) = body.split_at_checked(end).ok_or(short.clone())?;
                cbc::verify(integrity, self.integrity_key.expose(), &[aad, protected], icv)?;
                let (iv, text) = protected.split_first_chunk::<{ cbc::BLOCK }>().ok_or(short)?;
                content = Zeroizing::new(text.to_vec());
                cbc::decrypt(self.encryption, key, *iv, &mut content)?;
            }
            _ => return Err(SuiteError::Integrity),
        }
        strip_padding(&mut content)?;
        Ok(content)
    }

    fn key_and_salt(&self) -> Result<(&[u8], &[u8]), SuiteError> {
        let wrong =
            SuiteError::KeyLength { found: self.material.len(), expected: self.encryption.material() };
        if self.material.len() != self.encryption.material() {
            return Err(wrong);
        }
        let length = usize::from(self.encryption.key_bits()) / 8;
        self.material.expose().split_at_checked(length).ok_or(wrong)
    }
}

fn strip_padding(content: &mut Vec<u8>) -> Result<(), SuiteError> {
    let found = usize::from(content.pop().unwrap_or_default());
    let available = content.len();
    let length = available.checked_sub(found).ok_or(SuiteError::Padding { found, available })?;
    content.truncate(length);
    Ok(())
}
