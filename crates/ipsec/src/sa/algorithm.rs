//! The algorithms of ESP, and what they add to a packet.

use serde::{Deserialize, Serialize};
use testudo_crypto::ccm::CCM_SALT_LEN;
pub use testudo_crypto::ccm::{AesKey, CcmAlgorithm, IcvLen};
use testudo_crypto::separate::HEADER_LEN;
pub use testudo_crypto::separate::{Cipher, Mac, SeparateAlgorithm};
use testudo_crypto::{AeadAlgorithm, IV_LEN, SALT_LEN, TAG_LEN};
use testudo_wire::{ah, esp};

/// ESP algorithms (RFC 8221); the name in comments is that of strongSwan's proposals. Stored and
/// sent by their place: new ones come last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum EspAlgorithm {
    /// `aes128gcm16` (RFC 4106): 16 octets of key, 4 of salt.
    Aes128Gcm16,
    /// `aes256gcm16` (RFC 4106): 32 octets of key, 4 of salt.
    Aes256Gcm16,
    /// One for encryption and one for integrity, such as `aes128-sha256` or `null-sha1` (RFC 4303
    /// §2.4).
    Separate(SeparateAlgorithm),
    /// No ESP but AH, which encrypts nothing (RFC 4302): `sha256` of `ah_proposals`.
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

    /// What protects integrity beside the cipher; none where that is an AEAD.
    pub fn integrity(self) -> Option<Mac> {
        match self {
            Self::Separate(SeparateAlgorithm { mac, .. }) | Self::Ah(mac) => Some(mac),
            _ => None,
        }
    }

    /// The cipher where it protects integrity too and its ICV has 16 octets, or GMAC, which has the
    /// same form.
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

    /// True if packets have AH in ESP's place.
    pub fn is_ah(self) -> bool {
        matches!(self, Self::Ah(_))
    }

    /// All of ESP.
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

    /// Between ends of that family.
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

/// Payload, padding and trailer end on a multiple of this, whatever the cipher asks for (RFC 4303
/// §2.4).
const ALIGN: usize = 4;

/// What an algorithm adds to a packet, in octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// ESP's header and the IV, or AH with its ICV.
    pub(crate) before_text: u8,
    /// The ICV behind the text.
    pub(crate) icv: u8,
    /// Payload, padding and trailer are a multiple of it: a power of two.
    pub(crate) align: u8,
    /// Everything behind the text but padding: ESP's trailer and the ICV.
    pub(crate) behind: u8,
}

/// What of it stands around the text of a packet that comes in: an SA has no room for more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Around {
    /// ESP's header and the IV.
    pub(crate) before_text: u8,
    /// The ICV behind the text.
    pub(crate) icv: u8,
}

impl Sizes {
    /// Without what the sender alone has to know.
    pub(crate) fn around(self) -> Around {
        Around { before_text: self.before_text, icv: self.icv }
    }

    /// What all AEADs add, but that AES-CCM's ICV may be shorter.
    pub(crate) const AEAD: Self = {
        assert!(esp::HEADER == HEADER_LEN);
        Self {
            before_text: (esp::HEADER + IV_LEN) as u8,
            icv: TAG_LEN as u8,
            align: ALIGN as u8,
            behind: (esp::TRAILER + TAG_LEN) as u8,
        }
    };

    /// True of AH, which alone aligns nothing.
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
        // Of AH, which has no trailer, nothing is aligned.
        esp::pad_len(inner, usize::from(self.align)) + usize::from(self.behind)
    }
}
