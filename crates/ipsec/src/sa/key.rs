//! From KEYMAT to a cipher's key. Its schedule is made once the first packet has come: see
//! [`Event::KeyWanted`].
//!
//! [`Event::KeyWanted`]: crate::dataplane::Event::KeyWanted

use super::{EspAlgorithm, KeyMaterial, Mac};
use crate::error::Error;
use testudo_crypto::ccm::CcmKey;
use testudo_crypto::mac::MacKey;
use testudo_crypto::separate::SeparateKey;
use testudo_crypto::{AeadKey, Library, SALT_LEN, prefetch};

/// The key of an SA.
#[derive(Debug)]
pub(crate) enum SaKey {
    Aead(AeadKey),
    Separate(Box<SeparateKey>),
    Ccm(Box<CcmKey>),
    /// The key of AH.
    Mac(Box<MacKey>),
}

impl SaKey {
    /// Splits key from salt (RFC 4106 §8.1, RFC 4309 §7.1), or the cipher's key from the MAC's (RFC
    /// 7296 §2.17).
    pub(super) fn take(
        algorithm: EspAlgorithm,
        KeyMaterial(material): &KeyMaterial,
        library: Library,
    ) -> Result<Self, Error> {
        let (found, expected) = (material.len(), algorithm.key_len());
        if found != expected {
            return Err(Error::KeyMaterial { found, expected });
        }
        let salted = material.split_last_chunk::<SALT_LEN>();
        match (algorithm, algorithm.aead(), salted) {
            (EspAlgorithm::Separate(algorithm), ..) => {
                let (cipher, mac) =
                    material.split_at_checked(algorithm.cipher.key_len()).unwrap_or((material, &[]));
                let library = library.suited(algorithm);
                Ok(Self::Separate(Box::new(SeparateKey::unexpanded(library, algorithm, cipher, mac)?)))
            }
            (EspAlgorithm::Ccm(algorithm), ..) => {
                let (key, salt) =
                    material.split_last_chunk().ok_or(Error::KeyMaterial { found, expected })?;
                Ok(Self::Ccm(Box::new(CcmKey::unexpanded(library, algorithm, key, *salt)?)))
            }
            (EspAlgorithm::Ah(mac), ..) => Ok(Self::Mac(Box::new(MacKey::new(mac, material)?))),
            (_, Some(algorithm), Some((key, salt))) => {
                Ok(Self::Aead(AeadKey::unexpanded(library, algorithm, key, *salt)?))
            }
            _ => Err(Error::KeyMaterial { found, expected }),
        }
    }

    /// The algorithm of AH, if this is a key of AH.
    pub(super) fn mac(&self) -> Option<Mac> {
        match self {
            Self::Mac(key) => Some(key.mac()),
            Self::Aead(_) | Self::Separate(_) | Self::Ccm(_) => None,
        }
    }

    /// See [`AeadKey::copy`].
    pub(super) fn copy(&self) -> Self {
        match self {
            Self::Aead(key) => Self::Aead(key.copy()),
            Self::Separate(key) => Self::Separate(Box::new(key.copy())),
            Self::Ccm(key) => Self::Ccm(Box::new(key.copy())),
            Self::Mac(key) => Self::Mac(key.clone()),
        }
    }

    /// See [`AeadKey::expand`].
    pub(super) fn expand(&self) -> Result<(), Error> {
        match self {
            Self::Aead(key) => key.expand()?,
            Self::Separate(key) => key.expand()?,
            Self::Ccm(key) => key.expand()?,
            Self::Mac(_) => {}
        }
        Ok(())
    }

    /// See [`AeadKey::is_expanded`].
    #[inline]
    pub(crate) fn is_expanded(&self) -> bool {
        if let Self::Aead(key) = self { key.is_expanded() } else { self.is_other_expanded() }
    }

    #[cold]
    fn is_other_expanded(&self) -> bool {
        match self {
            Self::Aead(_) | Self::Mac(_) => true,
            Self::Separate(key) => key.is_expanded(),
            Self::Ccm(key) => key.is_expanded(),
        }
    }

    /// See [`AeadKey::prefetch`].
    #[inline]
    pub(super) fn prefetch(&self, len: usize) {
        if let Self::Aead(key) = self {
            key.prefetch(len);
        } else {
            self.prefetch_other();
        }
    }

    #[cold]
    fn prefetch_other(&self) {
        match self {
            Self::Aead(_) => {}
            Self::Separate(key) => key.prefetch(),
            Self::Ccm(key) => key.prefetch(),
            Self::Mac(key) => prefetch(&**key, size_of::<MacKey>()),
        }
    }
}
