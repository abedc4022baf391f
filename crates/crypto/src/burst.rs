//! Many packets in one call, each with its own key.

use crate::aead::{AeadKey, IV_LEN, TAG_LEN};
use crate::error::CryptoError;

/// Additional authenticated data of one packet, by value, so that it need not be part of the
/// packet: ESN's upper half is not (RFC 4303 §2.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aad {
    octets: [u8; Self::MAX],
    len: u8,
}

impl Aad {
    /// Bound on its octets: ESP needs 12. More would push a job beyond one cache line.
    pub const MAX: usize = 20;

    /// SPI and 32-bit sequence number (RFC 4106 §5).
    #[inline]
    pub fn esp(spi: u32, sequence: u32) -> Self {
        let mut octets = [0; Self::MAX];
        octets[..4].copy_from_slice(&spi.to_be_bytes());
        octets[4..8].copy_from_slice(&sequence.to_be_bytes());
        Self { octets, len: 8 }
    }

    /// SPI and 64-bit extended sequence number (RFC 4106 §5).
    #[inline]
    pub fn esp_esn(spi: u32, sequence: u64) -> Self {
        let mut octets = [0; Self::MAX];
        octets[..4].copy_from_slice(&spi.to_be_bytes());
        octets[4..12].copy_from_slice(&sequence.to_be_bytes());
        Self { octets, len: 12 }
    }

    /// With or without extended sequence numbers.
    #[inline]
    pub fn of_esp(spi: u32, sequence: u64, esn: bool) -> Self {
        if esn { Self::esp_esn(spi, sequence) } else { Self::esp(spi, sequence as u32) }
    }

    /// Any octets, at most [`Self::MAX`].
    pub fn new(data: &[u8]) -> Result<Self, CryptoError> {
        let mut octets = [0; Self::MAX];
        let refused = CryptoError::AadLength { found: data.len(), limit: Self::MAX };
        octets.get_mut(..data.len()).ok_or(refused)?.copy_from_slice(data);
        Ok(Self { octets, len: data.len() as u8 })
    }

    /// The octets.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        self.octets.get(..usize::from(self.len)).unwrap_or(&self.octets)
    }
}

/// A packet to encrypt.
#[derive(Debug)]
pub struct SealJob<'a> {
    /// The key.
    pub key: &'a AeadKey,
    /// Never used before with this key.
    pub iv: [u8; IV_LEN],
    /// Authenticated, not encrypted.
    pub aad: Aad,
    /// Plaintext; afterwards ciphertext.
    pub text: &'a mut [u8],
    /// The place of the tag.
    pub tag: &'a mut [u8; TAG_LEN],
}

/// A packet to verify and decrypt.
#[derive(Debug)]
pub struct OpenJob<'a> {
    /// The key.
    pub key: &'a AeadKey,
    /// As received.
    pub iv: [u8; IV_LEN],
    /// Authenticated, not encrypted.
    pub aad: Aad,
    /// Ciphertext; afterwards plaintext, or zeros if the packet is not authentic.
    pub text: &'a mut [u8],
    /// As received.
    pub tag: &'a [u8; TAG_LEN],
    /// The result: whether the packet is authentic. False until the burst has been opened.
    pub ok: bool,
}

/// Encrypts every job of the burst, as [`AeadKey::seal`] does.
#[inline(always)]
pub fn seal_burst(jobs: &mut [SealJob<'_>]) {
    for job in jobs {
        job.key.seal(job.iv, job.aad.as_bytes(), job.text, job.tag);
    }
}

/// Verifies and decrypts every job of the burst, as [`AeadKey::open`] does, and sets its `ok`.
#[inline(always)]
pub fn open_burst(jobs: &mut [OpenJob<'_>]) {
    for job in jobs {
        job.ok = job.key.open(job.iv, job.aad.as_bytes(), job.text, job.tag);
    }
}
