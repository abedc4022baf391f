//! Separate algorithms for encryption and integrity (RFC 4303 §2.4): keys, and the layout of their
//! packets. Bursts are processed in `burst.rs`.

pub(crate) mod burst;

use crate::aws_lc;
use crate::error::CryptoError;
#[cfg(ipsec_mb)]
use crate::ipsec_mb::multi;
use crate::library::Library;
use crate::prefetch::prefetch;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::OnceLock;
use zeroize::Zeroize;

pub use burst::{SeparateJob, open_separate_burst, seal_separate_burst};

/// Octets before the IV: ESP's header, authenticated and not encrypted.
pub const HEADER_LEN: usize = 8;
/// The longest key of a cipher.
const MAX_CIPHER_KEY_LEN: usize = 32;
/// The longest key of a MAC.
const MAX_MAC_KEY_LEN: usize = 64;

/// A cipher without integrity protection. Stored and sent by its number: new ones come last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Cipher {
    /// No encryption (RFC 2410).
    Null,
    /// AES-CBC with a 128-bit key (RFC 3602).
    Aes128Cbc,
    /// AES-CBC with a 192-bit key (RFC 3602).
    Aes192Cbc,
    /// AES-CBC with a 256-bit key (RFC 3602).
    Aes256Cbc,
    /// 3DES-CBC (RFC 2451), whose blocks have 64 bits: too few for more than some gigabytes under
    /// one key (Sweet32).
    TripleDesCbc,
}

impl Cipher {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Null, Self::Aes128Cbc, Self::Aes192Cbc, Self::Aes256Cbc, Self::TripleDesCbc];

    /// Octets of the key.
    pub const fn key_len(self) -> usize {
        match self {
            Self::Null => 0,
            Self::Aes128Cbc => 16,
            Self::Aes192Cbc | Self::TripleDesCbc => 24,
            Self::Aes256Cbc => 32,
        }
    }

    /// Octets of the IV that every packet carries.
    pub const fn iv_len(self) -> usize {
        match self {
            Self::Null => 0,
            Self::TripleDesCbc => 8,
            Self::Aes128Cbc | Self::Aes192Cbc | Self::Aes256Cbc => 16,
        }
    }

    /// The text is a multiple of this many octets, and not empty if it is more than one.
    pub const fn block_len(self) -> usize {
        match self {
            Self::Null => 1,
            Self::TripleDesCbc => 8,
            Self::Aes128Cbc | Self::Aes192Cbc | Self::Aes256Cbc => 16,
        }
    }
}

/// A MAC: a keyed hash or cipher, truncated to the octets that are sent. Stored and sent by its
/// number: new ones come last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Mac {
    /// HMAC-SHA1-96 (RFC 2404).
    HmacSha1_96,
    /// HMAC-SHA-256-128 (RFC 4868).
    HmacSha256_128,
    /// HMAC-SHA-384-192 (RFC 4868).
    HmacSha384_192,
    /// HMAC-SHA-512-256 (RFC 4868).
    HmacSha512_256,
    /// AES-XCBC-MAC-96 (RFC 3566).
    AesXcbc96,
    /// AES-CMAC-96 (RFC 4494).
    AesCmac96,
    /// HMAC-MD5-96 (RFC 2403), which must not be used any more (RFC 8221 §6).
    HmacMd5_96,
}

impl Mac {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::HmacSha1_96,
        Self::HmacSha256_128,
        Self::HmacSha384_192,
        Self::HmacSha512_256,
        Self::AesXcbc96,
        Self::AesCmac96,
        Self::HmacMd5_96,
    ];

    /// Octets of the key: as many as the hash has (RFC 2403 §3, RFC 2404 §3, RFC 4868 §2.1.1), or a
    /// key of AES-128.
    pub const fn key_len(self) -> usize {
        match self {
            Self::HmacSha1_96 => 20,
            Self::HmacSha256_128 => 32,
            Self::HmacSha384_192 => 48,
            Self::HmacSha512_256 => 64,
            Self::AesXcbc96 | Self::AesCmac96 | Self::HmacMd5_96 => 16,
        }
    }

    /// Octets of the integrity check value.
    pub const fn icv_len(self) -> usize {
        match self {
            Self::HmacSha1_96 | Self::AesXcbc96 | Self::AesCmac96 | Self::HmacMd5_96 => 12,
            Self::HmacSha256_128 => 16,
            Self::HmacSha384_192 => 24,
            Self::HmacSha512_256 => 32,
        }
    }
}

/// A cipher and a MAC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SeparateAlgorithm {
    /// The cipher.
    pub cipher: Cipher,
    /// The MAC over the ciphertext.
    pub mac: Mac,
}

impl SeparateAlgorithm {
    /// Octets before the text: header and IV.
    pub const fn before_text(self) -> usize {
        HEADER_LEN + self.cipher.iv_len()
    }

    /// True if a packet can have this length: it has a text of whole blocks.
    #[inline]
    pub fn fits(self, packet: usize) -> bool {
        self.icv_at(packet).is_some()
    }

    /// Offset of the ICV in a packet of `len` octets. `None` if no text that the cipher encrypts
    /// fits before it.
    #[inline]
    fn icv_at(self, len: usize) -> Option<usize> {
        let icv_at = len.checked_sub(self.mac.icv_len())?;
        let text = icv_at.checked_sub(self.before_text())?;
        let block = self.cipher.block_len();
        (text.is_multiple_of(block) && text + 1 >= block).then_some(icv_at)
    }
}

/// Two keys, bound to the library that uses them. Any number of threads may use them at once; keys
/// and schedules are overwritten when this is dropped.
///
/// As with an [`AeadKey`](crate::AeadKey), [`SeparateKey::expand`] makes the schedules; until then
/// they are made for each packet.
pub struct SeparateKey {
    schedule: OnceLock<Schedule>,
    cipher_key: [u8; MAX_CIPHER_KEY_LEN],
    mac_key: [u8; MAX_MAC_KEY_LEN],
    algorithm: SeparateAlgorithm,
    library: Library,
}

enum Schedule {
    #[cfg(ipsec_mb)]
    IpsecMb(Box<multi::Schedule>),
    AwsLc(Box<aws_lc::separate::Schedule>),
}

impl SeparateKey {
    /// Expands the keys for `library`. The caller keeps, and overwrites, the bytes that it passed.
    pub fn new(
        library: Library,
        algorithm: SeparateAlgorithm,
        cipher_key: &[u8],
        mac_key: &[u8],
    ) -> Result<Self, CryptoError> {
        let key = Self::unexpanded(library, algorithm, cipher_key, mac_key)?;
        key.expand()?;
        Ok(key)
    }

    /// Keys without schedules.
    pub fn unexpanded(
        library: Library,
        algorithm: SeparateAlgorithm,
        cipher_key: &[u8],
        mac_key: &[u8],
    ) -> Result<Self, CryptoError> {
        let lens = [(cipher_key, algorithm.cipher.key_len()), (mac_key, algorithm.mac.key_len())];
        for (key, expected) in lens {
            if key.len() != expected {
                return Err(CryptoError::KeyLength { found: key.len(), expected });
            }
        }
        library.available()?;
        let mut this = Self {
            schedule: OnceLock::new(),
            cipher_key: [0; MAX_CIPHER_KEY_LEN],
            mac_key: [0; MAX_MAC_KEY_LEN],
            algorithm,
            library,
        };
        this.cipher_key.iter_mut().zip(cipher_key).for_each(|(to, from)| *to = *from);
        this.mac_key.iter_mut().zip(mac_key).for_each(|(to, from)| *to = *from);
        Ok(this)
    }

    /// A copy of the keys without schedules. The caller must not use a nonce with both.
    pub fn copy(&self) -> Self {
        let Self { schedule: _, cipher_key, mac_key, algorithm, library } = *self;
        Self { schedule: OnceLock::new(), cipher_key, mac_key, algorithm, library }
    }

    /// Makes the schedules, unless they exist. Allocates.
    pub fn expand(&self) -> Result<(), CryptoError> {
        if self.is_expanded() {
            return Ok(());
        }
        let (cipher_key, mac_key) = self.octets();
        let schedule = match self.library {
            #[cfg(ipsec_mb)]
            Library::IpsecMb => {
                Schedule::IpsecMb(Box::new(multi::Schedule::new(self.algorithm, cipher_key, mac_key)?))
            }
            #[cfg(not(ipsec_mb))]
            Library::IpsecMb => return Err(CryptoError::KeyRefused { library: self.library }),
            Library::AwsLc => Schedule::AwsLc(Box::new(aws_lc::separate::Schedule::new(
                self.algorithm,
                cipher_key,
                mac_key,
            )?)),
        };
        // If another thread was faster, its schedules are as good.
        let _ = self.schedule.set(schedule);
        Ok(())
    }

    /// True if there are schedules.
    #[inline]
    pub fn is_expanded(&self) -> bool {
        self.schedule.get().is_some()
    }

    /// Prefetches the schedules, which the next call needs.
    #[inline]
    pub fn prefetch(&self) {
        match self.schedule.get() {
            #[cfg(ipsec_mb)]
            Some(Schedule::IpsecMb(schedule)) => prefetch(&**schedule, size_of::<multi::Schedule>()),
            Some(Schedule::AwsLc(schedule)) => {
                prefetch(&**schedule, size_of::<aws_lc::separate::Schedule>());
            }
            None => {}
        }
    }

    /// The algorithm of the keys.
    #[inline]
    pub fn algorithm(&self) -> SeparateAlgorithm {
        self.algorithm
    }

    /// The library that uses the keys.
    pub fn library(&self) -> Library {
        self.library
    }

    #[cfg(ipsec_mb)]
    #[inline]
    pub(crate) fn multi(&self) -> Option<&multi::Schedule> {
        match self.schedule.get() {
            Some(Schedule::IpsecMb(schedule)) => Some(schedule),
            _ => None,
        }
    }

    fn octets(&self) -> (&[u8], &[u8]) {
        let SeparateAlgorithm { cipher, mac } = self.algorithm;
        let cipher_key = self.cipher_key.get(..cipher.key_len()).unwrap_or(&self.cipher_key);
        (cipher_key, self.mac_key.get(..mac.key_len()).unwrap_or(&self.mac_key))
    }
}

impl Drop for SeparateKey {
    fn drop(&mut self) {
        self.cipher_key.zeroize();
        self.mac_key.zeroize();
    }
}

impl fmt::Debug for SeparateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SeparateAlgorithm { cipher, mac } = self.algorithm;
        write!(f, "SeparateKey({cipher:?}, {mac:?}, {})", self.library)
    }
}
