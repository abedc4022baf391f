//! The algorithms of ESP, and the octets that they add to a packet.

use serde::{Deserialize, Serialize};
use testudo_crypto::ccm::CCM_SALT_LEN;
pub use testudo_crypto::ccm::{AesKey, CcmAlgorithm, IcvLen};
use testudo_crypto::separate::HEADER_LEN;
pub use testudo_crypto::separate::{Cipher, Mac, SeparateAlgorithm};
use testudo_crypto::{AeadAlgorithm, IV_LEN, SALT_LEN, TAG_LEN};
use testudo_wire::{ah, esp};

/// ESP algorithms (RFC 8221), with the names of strongSwan's proposals in the comments. Stored and
/// sent by their number: new ones come last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum EspAlgorithm {
    /// `aes128gcm16` (RFC 4106): 16 octets of key, 4 of salt.
    Aes128Gcm16,
    /// `aes256gcm16` (RFC 4106): 32 octets of key, 4 of salt.
    Aes256Gcm16,
    /// An encryption and an integrity algorithm, such as `aes128-sha256` or `null-sha1` (RFC 4303
    /// §2.4).
    Separate(SeparateAlgorithm),
    /// AH instead of ESP, which encrypts nothing (RFC 4302): `sha256` of `ah_proposals`.
    Ah(Mac),
    /// `aes192gcm16` (RFC 4106): 24 octets of key, 4 of salt.
    Aes192Gcm16,
    /// `chacha20poly1305` (RFC 7634): 32 octets of key, 4 of salt.
    ChaCha20Poly1305,
    /// `aes128gmac` (RFC 4543), which encrypts nothing: 16 octets of key, 4 of salt.
    Aes128Gmac,
    /// `aes192gmac` (RFC 4543), which encrypts nothing: 24 octets of key, 4 of salt.
    Aes192Gmac,
    /// `aes256gmac` (RFC 4543), which encrypts nothing: 32 octets of key, 4 of salt.
    Aes256Gmac,
    /// AES-CCM such as `aes128ccm8` (RFC 4309): the key, 3 octets of salt, and an ICV of 8, 12 or
    /// 16 octets.
    Ccm(CcmAlgorithm),
}

impl EspAlgorithm {
    /// A cipher with a MAC.
    pub const fn separate(cipher: Cipher, mac: Mac) -> Self {
        Self::Separate(SeparateAlgorithm { cipher, mac })
    }

    /// The integrity algorithm beside the cipher; none with an AEAD.
    pub fn integrity(self) -> Option<Mac> {
        match self {
            Self::Separate(SeparateAlgorithm { mac, .. }) | Self::Ah(mac) => Some(mac),
            _ => None,
        }
    }

    /// The AEAD, or GMAC, which has the same form, if the ICV has 16 octets.
    pub fn aead(self) -> Option<AeadAlgorithm> {
        match self {
            Self::Aes128Gcm16 => Some(AeadAlgorithm::Aes128Gcm),
            Self::Aes192Gcm16 => Some(AeadAlgorithm::Aes192Gcm),
            Self::Aes256Gcm16 => Some(AeadAlgorithm::Aes256Gcm),
            Self::ChaCha20Poly1305 => Some(AeadAlgorithm::ChaCha20Poly1305),
            Self::Aes128Gmac => Some(AeadAlgorithm::Aes128Gmac),
            Self::Aes192Gmac => Some(AeadAlgorithm::Aes192Gmac),
            Self::Aes256Gmac => Some(AeadAlgorithm::Aes256Gmac),
            Self::Separate(_) | Self::Ah(_) | Self::Ccm(_) => None,
        }
    }

    /// True if packets have AH instead of ESP.
    pub fn is_ah(self) -> bool {
        matches!(self, Self::Ah(_))
    }

    /// All algorithms of ESP.
    pub fn all() -> impl Iterator<Item = Self> {
        let separate =
            Cipher::ALL.into_iter().flat_map(|cipher| Mac::ALL.map(|mac| Self::separate(cipher, mac)));
        let aeads = [
            Self::Aes128Gcm16,
            Self::Aes256Gcm16,
            Self::Aes192Gcm16,
            Self::ChaCha20Poly1305,
            Self::Aes128Gmac,
            Self::Aes192Gmac,
            Self::Aes256Gmac,
        ];
        aeads.into_iter().chain(separate).chain(CcmAlgorithm::all().map(Self::Ccm))
    }

    /// Octets of [`KeyMaterial`](super::KeyMaterial).
    pub fn key_len(self) -> usize {
        match self {
            Self::Separate(SeparateAlgorithm { cipher, mac }) => cipher.key_len() + mac.key_len(),
            Self::Ah(mac) => mac.key_len(),
            Self::Ccm(algorithm) => algorithm.key.octets() + CCM_SALT_LEN,
            aead => aead.aead().map_or(0, AeadAlgorithm::key_len) + SALT_LEN,
        }
    }

    /// The sizes between ends of this family.
    pub(crate) fn sizes(self, v6: bool) -> Sizes {
        match self {
            Self::Separate(algorithm) => Sizes {
                before_text: algorithm.before_text() as u8,
                icv: algorithm.mac.icv_len() as u8,
                align: algorithm.cipher.block_len().max(ALIGN) as u8,
                behind: (esp::TRAILER + algorithm.mac.icv_len()) as u8,
            },
            Self::Ah(mac) => {
                Sizes { before_text: ah::header_len(mac.icv_len(), v6) as u8, icv: 0, align: 1, behind: 0 }
            }
            Self::Ccm(algorithm) => Sizes {
                icv: algorithm.icv.octets() as u8,
                behind: (esp::TRAILER + algorithm.icv.octets()) as u8,
                ..Sizes::AEAD
            },
            _ => Sizes::AEAD,
        }
    }
}

/// Payload, padding and trailer end on a multiple of this, whatever the cipher needs (RFC 4303
/// §2.4).
const ALIGN: usize = 4;

/// What an algorithm adds to a packet, in octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// ESP's header and IV, or AH with its ICV.
    pub(crate) before_text: u8,
    /// The ICV behind the text.
    pub(crate) icv: u8,
    /// Payload, padding and trailer are a multiple of it: a power of two.
    pub(crate) align: u8,
    /// Everything behind the text except padding: ESP's trailer and the ICV.
    pub(crate) behind: u8,
}

/// The sizes around the text of an inbound packet: an SA has no room for more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Around {
    /// ESP's header and IV.
    pub(crate) before_text: u8,
    /// The ICV behind the text.
    pub(crate) icv: u8,
}

impl Sizes {
    /// The sizes for the receiver.
    pub(crate) fn around(self) -> Around {
        Around { before_text: self.before_text, icv: self.icv }
    }

    /// The sizes of all AEADs, except that AES-CCM's ICV may be shorter.
    pub(crate) const AEAD: Self = {
        assert!(esp::HEADER == HEADER_LEN);
        Self {
            before_text: (esp::HEADER + IV_LEN) as u8,
            icv: TAG_LEN as u8,
            align: ALIGN as u8,
            behind: (esp::TRAILER + TAG_LEN) as u8,
        }
    };

    /// True for AH, which alone aligns nothing.
    pub(crate) fn is_ah(self) -> bool {
        self.align == 1
    }

    /// Octets of ESP's padding and trailer behind an inner packet, ICV not included.
    #[inline(always)]
    pub(crate) fn trailer_len(self, inner: usize) -> usize {
        esp::pad_len(inner, usize::from(self.align)) + esp::TRAILER
    }

    /// Octets of everything behind an inner packet.
    #[inline(always)]
    pub(crate) fn behind(&self, inner: usize) -> usize {
        // AH has no trailer, and aligns nothing.
        esp::pad_len(inner, usize::from(self.align)) + usize::from(self.behind)
    }
}
