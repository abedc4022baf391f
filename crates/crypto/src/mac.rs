//! A MAC over octets that are not contiguous, like AH's over a packet with some fields read as zero
//! (RFC 4302 §3.3.3).

mod block;

use crate::error::CryptoError;
use crate::separate::Mac;
use ::hmac::{Hmac, KeyInit, Mac as _};
use aws_lc_rs::hmac;
use block::BlockMac;
use md5::Md5;
use std::fmt;
use subtle::ConstantTimeEq;

/// The key of a MAC. Any number of threads may use it at once; the libraries overwrite it when it
/// is dropped. AWS-LC processes it, or RustCrypto's AES and MD5, whatever library other keys have.
#[derive(Clone)]
pub struct MacKey {
    key: Expanded,
    mac: Mac,
}

#[derive(Clone)]
#[expect(clippy::large_enum_variant, reason = "the larger one is the usual one")]
enum Expanded {
    Hmac(hmac::Key),
    Block(BlockMac),
    Md5(Hmac<Md5>),
}

impl MacKey {
    /// Expands the key. The caller keeps, and overwrites, the bytes that it passed.
    pub fn new(mac: Mac, key: &[u8]) -> Result<Self, CryptoError> {
        let (found, expected) = (key.len(), mac.key_len());
        let wrong = CryptoError::KeyLength { found, expected };
        if found != expected {
            return Err(wrong);
        }
        let hmac = |hash| Expanded::Hmac(hmac::Key::new(hash, key));
        let key = match mac {
            Mac::HmacSha1_96 => hmac(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY),
            Mac::HmacSha256_128 => hmac(hmac::HMAC_SHA256),
            Mac::HmacSha384_192 => hmac(hmac::HMAC_SHA384),
            Mac::HmacSha512_256 => hmac(hmac::HMAC_SHA512),
            Mac::HmacMd5_96 => Expanded::Md5(Hmac::new_from_slice(key).map_err(|_| wrong)?),
            Mac::AesXcbc96 | Mac::AesCmac96 => Expanded::Block(BlockMac::new(mac, key).ok_or(wrong)?),
        };
        Ok(Self { key, mac })
    }

    /// The algorithm of the key.
    #[inline]
    pub fn mac(&self) -> Mac {
        self.mac
    }

    /// Begins a message.
    pub fn begin(&self) -> Message<'_> {
        let state = match &self.key {
            Expanded::Hmac(key) => State::Hmac(hmac::Context::with_key(key)),
            Expanded::Block(key) => State::Block(key.begin()),
            Expanded::Md5(key) => State::Md5(key.clone()),
        };
        Message { state, icv_len: self.mac.icv_len() }
    }
}

impl fmt::Debug for MacKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MacKey({:?})", self.mac)
    }
}

/// An unfinished message.
pub struct Message<'k> {
    state: State<'k>,
    icv_len: usize,
}

#[expect(clippy::large_enum_variant, reason = "it lies on the stack")]
enum State<'k> {
    Hmac(hmac::Context),
    Block(block::State<'k>),
    Md5(Hmac<Md5>),
}

impl Message<'_> {
    /// Adds the next octets.
    #[inline]
    pub fn push(&mut self, octets: &[u8]) {
        match &mut self.state {
            State::Hmac(context) => context.update(octets),
            State::Block(state) => state.push(octets),
            State::Md5(state) => state.update(octets),
        }
    }

    /// Writes the ICV of all octets. Returns false, and writes nothing, if `icv` has another
    /// length.
    #[must_use]
    pub fn seal(self, icv: &mut [u8]) -> bool {
        self.finish(|found| {
            let fits = icv.len() == found.len();
            if fits {
                icv.copy_from_slice(found);
            }
            fits
        })
    }

    /// True if this is the ICV of all octets. Takes the same time wherever it differs.
    #[must_use]
    pub fn verify(self, icv: &[u8]) -> bool {
        self.finish(|expected| bool::from(expected.ct_eq(icv)))
    }

    fn finish(self, work: impl FnOnce(&[u8]) -> bool) -> bool {
        match self.state {
            State::Hmac(context) => context.sign().as_ref().get(..self.icv_len).is_some_and(work),
            State::Block(state) => state.finish().get(..self.icv_len).is_some_and(work),
            State::Md5(state) => state.finalize().into_bytes().get(..self.icv_len).is_some_and(work),
        }
    }
}

impl fmt::Debug for Message<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Message(ICV of {} octets)", self.icv_len)
    }
}
