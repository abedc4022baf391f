//! AES-CCM (RFC 4309): keys. Bursts are processed in `burst.rs`.
//!
//! Half of it is a chain of blocks, so intel-ipsec-mb processes many packets side by side, as it
//! does with separate algorithms. It has no keys of 192 bits, and AWS-LC has no CCM with this
//! nonce: there RustCrypto processes one packet after the other.

mod burst;
mod rust_crypto;

use crate::aead::IV_LEN;
use crate::error::CryptoError;
#[cfg(ipsec_mb)]
use crate::ipsec_mb::ccm;
use crate::library::Library;
use crate::prefetch::prefetch;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::OnceLock;
use zeroize::Zeroize;

pub use burst::{CcmJob, open_ccm_burst, seal_ccm_burst};

/// Octets of the salt before the IV in the nonce (RFC 4309 §4).
pub const CCM_SALT_LEN: usize = 3;
/// Octets of the nonce: salt, then IV.
pub(crate) const CCM_NONCE_LEN: usize = CCM_SALT_LEN + IV_LEN;
/// The longest ICV.
#[cfg(ipsec_mb)]
pub(crate) const MAX_ICV_LEN: usize = IcvLen::Sixteen.octets();
/// Bound on the octets that can be encrypted at once: intel-ipsec-mb counts them in 16 bits, and no
/// packet has more.
const MAX_TEXT_LEN: usize = 0xff00;
/// The longest key.
const MAX_KEY_LEN: usize = 32;

/// The length of an AES key. Stored and sent by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum AesKey {
    /// Of 128 bits.
    Aes128,
    /// Of 192 bits.
    Aes192,
    /// Of 256 bits.
    Aes256,
}

impl AesKey {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Aes128, Self::Aes192, Self::Aes256];

    /// Octets of the key.
    pub const fn octets(self) -> usize {
        match self {
            Self::Aes128 => 16,
            Self::Aes192 => 24,
            Self::Aes256 => 32,
        }
    }
}

/// The length of an ICV (RFC 4309 §3.3). Stored and sent by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum IcvLen {
    /// 64 bits.
    Eight,
    /// 96 bits.
    Twelve,
    /// 128 bits.
    Sixteen,
}

impl IcvLen {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Eight, Self::Twelve, Self::Sixteen];

    /// Octets of the ICV.
    pub const fn octets(self) -> usize {
        match self {
            Self::Eight => 8,
            Self::Twelve => 12,
            Self::Sixteen => 16,
        }
    }
}

/// AES-CCM with these lengths of key and ICV.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CcmAlgorithm {
    /// The key.
    pub key: AesKey,
    /// The ICV. It is not a truncated longer one: its length is authenticated too.
    pub icv: IcvLen,
}

impl CcmAlgorithm {
    /// Each key with each ICV.
    pub fn all() -> impl Iterator<Item = Self> {
        AesKey::ALL.into_iter().flat_map(|key| IcvLen::ALL.map(|icv| Self { key, icv }))
    }
}

/// A key with its salt, bound to the chosen library. Any number of threads may use it at once; key
/// and schedule are overwritten when it is dropped.
///
/// As with an [`AeadKey`](crate::AeadKey), [`CcmKey::expand`] makes the schedule; until then one is
/// made for each packet.
pub struct CcmKey {
    schedule: OnceLock<Box<Schedule>>,
    key: [u8; MAX_KEY_LEN],
    salt: [u8; CCM_SALT_LEN],
    algorithm: CcmAlgorithm,
    library: Library,
}

enum Schedule {
    #[cfg(ipsec_mb)]
    IpsecMb(ccm::Schedule),
    RustCrypto(rust_crypto::Schedule),
}

impl Schedule {
    fn new(library: Library, algorithm: CcmAlgorithm, key: &[u8]) -> Result<Self, CryptoError> {
        match (library, algorithm.key) {
            #[cfg(ipsec_mb)]
            (Library::IpsecMb, AesKey::Aes128 | AesKey::Aes256) => {
                ccm::Schedule::new(algorithm.key, key).map(Self::IpsecMb)
            }
            _ => match rust_crypto::Schedule::new(algorithm, key) {
                Some(schedule) => Ok(Self::RustCrypto(schedule)),
                None => Err(CryptoError::KeyRefused { library }),
            },
        }
    }

    /// True if the library processes packets side by side.
    fn is_multi(&self) -> bool {
        !matches!(self, Self::RustCrypto(_))
    }
}

impl CcmKey {
    /// Expands `key` for `library`. The caller keeps, and overwrites, the bytes that it passed.
    pub fn new(
        library: Library,
        algorithm: CcmAlgorithm,
        key: &[u8],
        salt: [u8; CCM_SALT_LEN],
    ) -> Result<Self, CryptoError> {
        let key = Self::unexpanded(library, algorithm, key, salt)?;
        key.expand()?;
        Ok(key)
    }

    /// A key without a schedule.
    pub fn unexpanded(
        library: Library,
        algorithm: CcmAlgorithm,
        key: &[u8],
        salt: [u8; CCM_SALT_LEN],
    ) -> Result<Self, CryptoError> {
        let (found, expected) = (key.len(), algorithm.key.octets());
        if found != expected {
            return Err(CryptoError::KeyLength { found, expected });
        }
        library.available()?;
        let mut this = Self { schedule: OnceLock::new(), key: [0; MAX_KEY_LEN], salt, algorithm, library };
        this.key.iter_mut().zip(key).for_each(|(to, from)| *to = *from);
        Ok(this)
    }

    /// A copy of the key without a schedule. The caller must not use an IV with both.
    pub fn copy(&self) -> Self {
        let Self { schedule: _, key, salt, algorithm, library } = *self;
        Self { schedule: OnceLock::new(), key, salt, algorithm, library }
    }

    /// Makes the schedule, unless it exists. Allocates.
    pub fn expand(&self) -> Result<(), CryptoError> {
        if !self.is_expanded() {
            // If another thread was faster, its schedule is as good.
            let _ = self.schedule.set(Box::new(self.schedule()?));
        }
        Ok(())
    }

    /// True if there is a schedule.
    #[inline]
    pub fn is_expanded(&self) -> bool {
        self.schedule.get().is_some()
    }

    /// Prefetches the schedule, which the next call needs.
    #[inline]
    pub fn prefetch(&self) {
        if let Some(schedule) = self.schedule.get() {
            prefetch(&**schedule, size_of::<Schedule>());
        }
    }

    /// The algorithm of the key.
    #[inline]
    pub fn algorithm(&self) -> CcmAlgorithm {
        self.algorithm
    }

    /// The library chosen for the key.
    pub fn library(&self) -> Library {
        self.library
    }

    fn schedule(&self) -> Result<Schedule, CryptoError> {
        let key = self.key.get(..self.algorithm.key.octets()).unwrap_or(&self.key);
        Schedule::new(self.library, self.algorithm, key)
    }

    fn nonce(&self, iv: [u8; IV_LEN]) -> [u8; CCM_NONCE_LEN] {
        let ([s0, s1, s2], [i0, i1, i2, i3, i4, i5, i6, i7]) = (self.salt, iv);
        [s0, s1, s2, i0, i1, i2, i3, i4, i5, i6, i7]
    }
}

impl Drop for CcmKey {
    fn drop(&mut self) {
        self.salt.zeroize();
        self.key.zeroize();
    }
}

impl fmt::Debug for CcmKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CcmAlgorithm { key, icv } = self.algorithm;
        write!(f, "CcmKey({key:?}, ICV of {} octets, {})", icv.octets(), self.library)
    }
}
