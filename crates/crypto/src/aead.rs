//! Keys and single calls. Bursts are in [`burst`](crate::burst).

use crate::aws_lc;
use crate::error::CryptoError;
#[cfg(ipsec_mb)]
use crate::ipsec_mb;
use crate::library::Library;
use std::fmt;
use zeroize::Zeroize;

/// Octets of the salt that precedes the IV in the nonce (RFC 4106 §4).
pub const SALT_LEN: usize = 4;
/// Octets of the IV that every packet carries (RFC 4106 §3.1).
pub const IV_LEN: usize = 8;
/// Octets of the nonce: salt, then IV.
pub const NONCE_LEN: usize = SALT_LEN + IV_LEN;
/// Octets of the integrity check value; the shorter ones of RFC 4106 §6 are not offered.
pub const TAG_LEN: usize = 16;
/// Octets that one nonce can encrypt (NIST SP 800-38D §5.2.1.1).
pub const MAX_TEXT_LEN: u64 = (1 << 36) - 32;

/// AEADs for ESP, all with a 16-octet tag and a 12-octet nonce of salt and IV.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AeadAlgorithm {
    /// AES-GCM with a 128-bit key (RFC 4106).
    Aes128Gcm,
    /// AES-GCM with a 256-bit key (RFC 4106).
    Aes256Gcm,
}

impl AeadAlgorithm {
    /// Octets of the key, salt not included.
    pub fn key_len(self) -> usize {
        match self {
            Self::Aes128Gcm => 16,
            Self::Aes256Gcm => 32,
        }
    }
}

/// An expanded key with its salt, bound to the library that expanded it. Used from any number of threads at once;
/// both libraries overwrite the schedule when it is dropped.
pub struct AeadKey {
    schedule: Schedule,
    salt: [u8; SALT_LEN],
    algorithm: AeadAlgorithm,
}

enum Schedule {
    #[cfg(ipsec_mb)]
    IpsecMb(ipsec_mb::Schedule),
    AwsLc(aws_lc::Schedule),
}

impl AeadKey {
    /// Expands `key` for `library`. The caller keeps, and overwrites, the bytes that it passed.
    pub fn new(
        library: Library,
        algorithm: AeadAlgorithm,
        key: &[u8],
        salt: [u8; SALT_LEN],
    ) -> Result<Self, CryptoError> {
        let expected = algorithm.key_len();
        if key.len() != expected {
            return Err(CryptoError::KeyLength { found: key.len(), expected });
        }
        let schedule = match library {
            #[cfg(ipsec_mb)]
            Library::IpsecMb => Schedule::IpsecMb(ipsec_mb::Schedule::new(algorithm, key)?),
            #[cfg(not(ipsec_mb))]
            Library::IpsecMb => return library.available().and(Err(CryptoError::KeyRefused { library })),
            Library::AwsLc => Schedule::AwsLc(aws_lc::Schedule::new(algorithm, key)?),
        };
        Ok(Self { schedule, salt, algorithm })
    }

    /// The algorithm that the key is for.
    pub fn algorithm(&self) -> AeadAlgorithm {
        self.algorithm
    }

    /// The library that works with the key.
    pub fn library(&self) -> Library {
        match self.schedule {
            #[cfg(ipsec_mb)]
            Schedule::IpsecMb(_) => Library::IpsecMb,
            Schedule::AwsLc(_) => Library::AwsLc,
        }
    }

    /// Encrypts `text` in place and writes the tag. The IV must never have been used with this key before.
    ///
    /// More than [`MAX_TEXT_LEN`] octets cannot be encrypted: text and tag are then overwritten with zeros, which no
    /// receiver accepts.
    #[inline]
    pub fn seal(&self, iv: [u8; IV_LEN], aad: &[u8], text: &mut [u8], tag: &mut [u8; TAG_LEN]) {
        let nonce = self.nonce(iv);
        let sealed = text.len() as u64 <= MAX_TEXT_LEN
            && match &self.schedule {
                #[cfg(ipsec_mb)]
                Schedule::IpsecMb(schedule) => schedule.seal(&nonce, aad, text, tag),
                Schedule::AwsLc(schedule) => schedule.seal(nonce, aad, text, tag),
            };
        if !sealed {
            text.zeroize();
            tag.zeroize();
        }
    }

    /// Decrypts `text` in place. False if the packet is not authentic, and then `text` is all zeros: no unauthentic
    /// plaintext can be used by mistake.
    #[inline]
    #[must_use]
    pub fn open(&self, iv: [u8; IV_LEN], aad: &[u8], text: &mut [u8], tag: &[u8; TAG_LEN]) -> bool {
        let nonce = self.nonce(iv);
        let authentic = text.len() as u64 <= MAX_TEXT_LEN
            && match &self.schedule {
                #[cfg(ipsec_mb)]
                Schedule::IpsecMb(schedule) => schedule.open(&nonce, aad, text, tag),
                Schedule::AwsLc(schedule) => schedule.open(nonce, aad, text, tag),
            };
        if !authentic {
            text.zeroize();
        }
        authentic
    }

    #[inline]
    fn nonce(&self, iv: [u8; IV_LEN]) -> [u8; NONCE_LEN] {
        let ([s0, s1, s2, s3], [i0, i1, i2, i3, i4, i5, i6, i7]) = (self.salt, iv);
        [s0, s1, s2, s3, i0, i1, i2, i3, i4, i5, i6, i7]
    }
}

impl Drop for AeadKey {
    fn drop(&mut self) {
        self.salt.zeroize();
    }
}

impl fmt::Debug for AeadKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AeadKey({:?}, {})", self.algorithm, self.library())
    }
}
