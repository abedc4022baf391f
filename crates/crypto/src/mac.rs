//! A MAC over octets that do not lie in one piece, as AH's is over a packet with some fields read as zero (RFC 4302 §3.3.3).

use crate::aws_lc;
use crate::error::CryptoError;
use crate::separate::Mac;
use aws_lc_rs::hmac;
use std::fmt;
use subtle::ConstantTimeEq;

/// The key of a MAC alone. Used from any number of threads at once; AWS-LC overwrites it when it is dropped, and works with it
/// whatever library the others have.
#[derive(Clone)]
pub struct MacKey {
    key: hmac::Key,
    mac: Mac,
}

impl MacKey {
    /// Expands the key. The caller keeps, and overwrites, the bytes that it passed.
    pub fn new(mac: Mac, key: &[u8]) -> Result<Self, CryptoError> {
        let (found, expected) = (key.len(), mac.key_len());
        if found != expected {
            return Err(CryptoError::KeyLength { found, expected });
        }
        Ok(Self { key: hmac::Key::new(aws_lc::separate::hash(mac), key), mac })
    }

    /// What the key is for.
    #[inline]
    pub fn mac(&self) -> Mac {
        self.mac
    }

    /// Begins a message.
    pub fn begin(&self) -> Message {
        Message { context: hmac::Context::with_key(&self.key), icv_len: self.mac.icv_len() }
    }
}

impl fmt::Debug for MacKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MacKey({:?})", self.mac)
    }
}

/// A message of which more is to come.
pub struct Message {
    context: hmac::Context,
    icv_len: usize,
}

impl Message {
    /// Its next octets.
    #[inline]
    pub fn push(&mut self, octets: &[u8]) {
        self.context.update(octets);
    }

    /// Writes the ICV of all that was pushed. False, and nothing written, if `icv` is not as long.
    #[must_use]
    pub fn seal(self, icv: &mut [u8]) -> bool {
        let tag = self.context.sign();
        match tag.as_ref().get(..self.icv_len) {
            Some(found) if icv.len() == found.len() => {
                icv.copy_from_slice(found);
                true
            }
            _ => false,
        }
    }

    /// True if that is the ICV of all that was pushed. Takes the same time wherever it differs.
    #[must_use]
    pub fn verify(self, icv: &[u8]) -> bool {
        let tag = self.context.sign();
        tag.as_ref().get(..self.icv_len).is_some_and(|expected| bool::from(expected.ct_eq(icv)))
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Message(ICV of {} octets)", self.icv_len)
    }
}
