//! Keys and single calls. Bursts are in [`burst`](crate::burst).

use crate::aws_lc;
use crate::error::CryptoError;
#[cfg(ipsec_mb)]
use crate::ipsec_mb;
use crate::library::Library;
use crate::prefetch::prefetch;
use std::fmt;
use std::sync::OnceLock;
use zeroize::Zeroize;

/// Octets of the salt that precedes the IV in the nonce (RFC 4106 §4).
pub const SALT_LEN: usize = 4;
/// Octets of the IV that every packet carries (RFC 4106 §3.1).
pub const IV_LEN: usize = 8;
/// Octets of the nonce: salt, then IV.
pub const NONCE_LEN: usize = SALT_LEN + IV_LEN;
/// Octets of the integrity check value; the shorter ones of RFC 4106 §6 are not offered.
pub const TAG_LEN: usize = 16;
/// Octets that one nonce can encrypt with AES-GCM (NIST SP 800-38D §5.2.1.1); ChaCha20 takes more
/// (RFC 8439 §2.8).
pub const MAX_TEXT_LEN: u64 = (1 << 36) - 32;

/// AEADs for ESP, all with a 16-octet tag and a 12-octet nonce of salt and IV.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AeadAlgorithm {
    /// AES-GCM with a 128-bit key (RFC 4106).
    Aes128Gcm,
    /// AES-GCM with a 256-bit key (RFC 4106).
    Aes256Gcm,
    /// AES-GCM with a 192-bit key (RFC 4106).
    Aes192Gcm,
    /// ChaCha20-Poly1305 (RFC 7634).
    ChaCha20Poly1305,
    /// AES-GMAC with a 128-bit key (RFC 4543): the text is authenticated behind data and IV, and
    /// not encrypted.
    Aes128Gmac,
    /// AES-GMAC with a 192-bit key (RFC 4543).
    Aes192Gmac,
    /// AES-GMAC with a 256-bit key (RFC 4543).
    Aes256Gmac,
}

impl AeadAlgorithm {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Aes128Gcm,
        Self::Aes256Gcm,
        Self::Aes192Gcm,
        Self::ChaCha20Poly1305,
        Self::Aes128Gmac,
        Self::Aes192Gmac,
        Self::Aes256Gmac,
    ];

    /// Octets of the key, salt not included.
    pub fn key_len(self) -> usize {
        match self {
            Self::Aes128Gcm | Self::Aes128Gmac => 16,
            Self::Aes192Gcm | Self::Aes192Gmac => 24,
            Self::Aes256Gcm | Self::Aes256Gmac | Self::ChaCha20Poly1305 => 32,
        }
    }

    /// False if it only authenticates.
    pub fn encrypts(self) -> bool {
        !matches!(self, Self::Aes128Gmac | Self::Aes192Gmac | Self::Aes256Gmac)
    }
}

/// The longest key.
const MAX_KEY_LEN: usize = 32;

/// A key with its salt, bound to the library that uses it. Any number of threads may use it at
/// once; key and schedule are overwritten when it is dropped.
///
/// The schedule takes a kilobyte, which an unused key need not have: until [`AeadKey::expand`]
/// every call makes one on the stack, which costs about as much as a short packet, and allocates
/// nothing.
pub struct AeadKey {
    schedule: OnceLock<Schedule>,
    key: [u8; MAX_KEY_LEN],
    salt: [u8; SALT_LEN],
    algorithm: AeadAlgorithm,
    library: Library,
}

enum Schedule {
    #[cfg(ipsec_mb)]
    IpsecMb(ipsec_mb::Schedule),
    AwsLc(Box<aws_lc::Schedule>),
}

impl AeadKey {
    /// Expands `key` for `library`. The caller keeps, and overwrites, the bytes that it passed.
    pub fn new(
        library: Library,
        algorithm: AeadAlgorithm,
        key: &[u8],
        salt: [u8; SALT_LEN],
    ) -> Result<Self, CryptoError> {
        let key = Self::unexpanded(library, algorithm, key, salt)?;
        key.expand()?;
        Ok(key)
    }

    /// A key without a schedule.
    pub fn unexpanded(
        library: Library,
        algorithm: AeadAlgorithm,
        key: &[u8],
        salt: [u8; SALT_LEN],
    ) -> Result<Self, CryptoError> {
        let expected = algorithm.key_len();
        if key.len() != expected {
            return Err(CryptoError::KeyLength { found: key.len(), expected });
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

    /// Makes the schedule, unless it exists: other users of the key find it with their next call.
    /// Allocates.
    pub fn expand(&self) -> Result<(), CryptoError> {
        if self.is_expanded() {
            return Ok(());
        }
        let key = self.octets();
        let schedule = match self.library {
            #[cfg(ipsec_mb)]
            Library::IpsecMb => Schedule::IpsecMb(ipsec_mb::Schedule::new(self.algorithm, key)?),
            #[cfg(not(ipsec_mb))]
            Library::IpsecMb => return Err(CryptoError::KeyRefused { library: self.library }),
            Library::AwsLc => Schedule::AwsLc(Box::new(aws_lc::Schedule::new(self.algorithm, key)?)),
        };
        // If another thread was faster, its schedule is as good.
        let _ = self.schedule.set(schedule);
        Ok(())
    }

    /// True if there is a schedule.
    #[inline]
    pub fn is_expanded(&self) -> bool {
        self.schedule.get().is_some()
    }

    /// Prefetches the part of the schedule that the next call needs for this many octets of text.
    #[inline]
    #[cfg_attr(not(ipsec_mb), expect(unused_variables))]
    pub fn prefetch(&self, len: usize) {
        match self.schedule.get() {
            #[cfg(ipsec_mb)]
            Some(Schedule::IpsecMb(schedule)) => schedule.prefetch(self.algorithm, len),
            Some(Schedule::AwsLc(schedule)) => prefetch(&**schedule, size_of::<aws_lc::Schedule>()),
            None => {}
        }
    }

    /// Octets of memory of a schedule of this library.
    pub fn schedule_len(library: Library) -> usize {
        match library {
            #[cfg(ipsec_mb)]
            Library::IpsecMb => ipsec_mb::functions().map_or(0, |functions| functions.schedule_len()),
            #[cfg(not(ipsec_mb))]
            Library::IpsecMb => 0,
            Library::AwsLc => size_of::<aws_lc::Schedule>(),
        }
    }

    fn octets(&self) -> &[u8] {
        self.key.get(..self.algorithm.key_len()).unwrap_or(&self.key)
    }

    /// The algorithm of the key.
    pub fn algorithm(&self) -> AeadAlgorithm {
        self.algorithm
    }

    /// The library that uses the key.
    pub fn library(&self) -> Library {
        self.library
    }

    /// Encrypts `text` in place and writes the tag. The IV must never have been used with this key
    /// before.
    ///
    /// More than [`MAX_TEXT_LEN`] octets cannot be encrypted: text and tag are then overwritten
    /// with zeros, which no receiver accepts.
    #[inline]
    pub fn seal(&self, iv: [u8; IV_LEN], aad: &[u8], text: &mut [u8], tag: &mut [u8; TAG_LEN]) {
        let nonce = self.nonce(iv);
        let sealed = text.len() as u64 <= MAX_TEXT_LEN
            && match self.schedule.get() {
                #[cfg(ipsec_mb)]
                Some(Schedule::IpsecMb(schedule)) => schedule.seal(&nonce, aad, text, tag),
                Some(Schedule::AwsLc(schedule)) => schedule.seal(nonce, aad, text, tag),
                None => self.seal_once(nonce, aad, text, tag),
            };
        if !sealed {
            text.zeroize();
            tag.zeroize();
        }
    }

    /// Decrypts `text` in place. Returns false if the packet is not authentic, and then `text` is
    /// all zeros, so that unauthentic plaintext cannot be used by mistake.
    #[inline]
    #[must_use]
    pub fn open(&self, iv: [u8; IV_LEN], aad: &[u8], text: &mut [u8], tag: &[u8; TAG_LEN]) -> bool {
        let nonce = self.nonce(iv);
        let authentic = text.len() as u64 <= MAX_TEXT_LEN
            && match self.schedule.get() {
                #[cfg(ipsec_mb)]
                Some(Schedule::IpsecMb(schedule)) => schedule.open(&nonce, aad, text, tag),
                Some(Schedule::AwsLc(schedule)) => schedule.open(nonce, aad, text, tag),
                None => self.open_once(nonce, aad, text, tag),
            };
        if !authentic {
            text.zeroize();
        }
        authentic
    }

    #[cold]
    fn seal_once(
        &self,
        nonce: [u8; NONCE_LEN],
        aad: &[u8],
        text: &mut [u8],
        tag: &mut [u8; TAG_LEN],
    ) -> bool {
        match self.library {
            #[cfg(ipsec_mb)]
            Library::IpsecMb => ipsec_mb::with_schedule(self.algorithm, self.octets(), |schedule, crypt| {
                crypt.seal(schedule, &nonce, aad, text, tag);
                true
            }),
            #[cfg(not(ipsec_mb))]
            Library::IpsecMb => false,
            Library::AwsLc => aws_lc::Schedule::new(self.algorithm, self.octets())
                .is_ok_and(|schedule| schedule.seal(nonce, aad, text, tag)),
        }
    }

    #[cold]
    fn open_once(&self, nonce: [u8; NONCE_LEN], aad: &[u8], text: &mut [u8], tag: &[u8; TAG_LEN]) -> bool {
        match self.library {
            #[cfg(ipsec_mb)]
            Library::IpsecMb => ipsec_mb::with_schedule(self.algorithm, self.octets(), |schedule, crypt| {
                crypt.open(schedule, &nonce, aad, text, tag)
            }),
            #[cfg(not(ipsec_mb))]
            Library::IpsecMb => false,
            Library::AwsLc => aws_lc::Schedule::new(self.algorithm, self.octets())
                .is_ok_and(|schedule| schedule.open(nonce, aad, text, tag)),
        }
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
        self.key.zeroize();
    }
}

impl fmt::Debug for AeadKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AeadKey({:?}, {})", self.algorithm, self.library())
    }
}
