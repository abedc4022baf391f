//! The configured algorithms on the wire, and their key lengths.

use super::additional::next_additional;
use crate::config::{ADDITIONAL_KE, EspEncryption, IkeEncryption, Integrity, KeyExchange, Prf};
use crate::message::{KeMethod, Transform, TransformId, TransformType};
use serde::{Deserialize, Serialize};
use testudo_ipsec::sa::{CcmAlgorithm, Cipher, EspAlgorithm, IcvLen, Mac};

/// The role in the exchange that gives the keys. For the keys of an IKE SA: in IKE_SA_INIT, or in
/// the rekeying.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Role {
    /// The initiator.
    Initiator,
    /// The responder.
    Responder,
}

impl Role {
    /// The other role.
    #[must_use]
    pub fn peer(self) -> Self {
        match self {
            Self::Initiator => Self::Responder,
            Self::Responder => Self::Initiator,
        }
    }
}

/// The algorithms of an IKE SA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct IkeSuite {
    /// Encryption of the messages; an AEAD protects integrity too.
    pub encryption: IkeEncryption,
    /// Integrity of the messages; `None` exactly if the cipher is an AEAD.
    pub integrity: Option<Integrity>,
    /// Derivation of keys.
    pub prf: Prf,
    /// Key exchange.
    pub ke: KeyExchange,
    /// Additional key exchanges (RFC 9370).
    pub additional: [Option<KeyExchange>; ADDITIONAL_KE],
}

/// The algorithms of a Child SA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct EspSuite {
    /// Encryption and integrity of the packets.
    pub algorithm: EspAlgorithm,
    /// Extended sequence numbers.
    pub esn: bool,
    /// A key exchange of its own; always `None` from IKE_AUTH (RFC 7296 §1.2).
    pub ke: Option<KeyExchange>,
    /// Additional key exchanges (RFC 9370), only together with the first.
    pub additional: [Option<KeyExchange>; ADDITIONAL_KE],
}

/// Octets of salt after the key of AES-GCM and ChaCha20-Poly1305 (RFC 5282 §7.1, RFC 7634 §2).
const GCM_SALT: usize = 4;
/// Octets of salt after the key of AES-CCM (RFC 5282 §7.1).
const CCM_SALT: usize = 3;

/// An algorithm that a proposal can name.
pub(super) trait Wire: Copy {
    /// Its transform.
    fn transform(self) -> Transform;
}

impl Wire for IkeEncryption {
    fn transform(self) -> Transform {
        let id = match self {
            Self::Aes128Gcm16 | Self::Aes192Gcm16 | Self::Aes256Gcm16 => TransformId::ENCR_AES_GCM_16,
            Self::Aes128Ccm16 | Self::Aes192Ccm16 | Self::Aes256Ccm16 => TransformId::ENCR_AES_CCM_16,
            Self::Aes128Cbc | Self::Aes192Cbc | Self::Aes256Cbc => TransformId::ENCR_AES_CBC,
            // It has only one key length, which must not be given (RFC 7634 §4).
            Self::ChaCha20Poly1305 => {
                return Transform::new(TransformType::Encryption, TransformId::ENCR_CHACHA20_POLY1305);
            }
        };
        Transform::cipher(id, self.key_bits())
    }
}

impl Wire for Integrity {
    fn transform(self) -> Transform {
        let id = match self {
            Self::HmacSha1 => TransformId::AUTH_HMAC_SHA1_96,
            Self::HmacSha256 => TransformId::AUTH_HMAC_SHA2_256_128,
            Self::HmacSha384 => TransformId::AUTH_HMAC_SHA2_384_192,
            Self::HmacSha512 => TransformId::AUTH_HMAC_SHA2_512_256,
        };
        Transform::new(TransformType::Integrity, id)
    }
}

impl Wire for EspEncryption {
    fn transform(self) -> Transform {
        match self {
            Self::Aes128Gcm16 => Transform::cipher(TransformId::ENCR_AES_GCM_16, 128),
            Self::Aes192Gcm16 => Transform::cipher(TransformId::ENCR_AES_GCM_16, 192),
            Self::Aes256Gcm16 => Transform::cipher(TransformId::ENCR_AES_GCM_16, 256),
            // It has only one key length, which must not be given (RFC 7634 §4).
            Self::ChaCha20Poly1305 => {
                Transform::new(TransformType::Encryption, TransformId::ENCR_CHACHA20_POLY1305)
            }
            Self::Aes128Gmac => Transform::cipher(TransformId::ENCR_NULL_AUTH_AES_GMAC, 128),
            Self::Aes192Gmac => Transform::cipher(TransformId::ENCR_NULL_AUTH_AES_GMAC, 192),
            Self::Aes256Gmac => Transform::cipher(TransformId::ENCR_NULL_AUTH_AES_GMAC, 256),
            Self::Ccm(CcmAlgorithm { key, icv }) => {
                let id = match icv {
                    IcvLen::Eight => TransformId::ENCR_AES_CCM_8,
                    IcvLen::Twelve => TransformId::ENCR_AES_CCM_12,
                    IcvLen::Sixteen => TransformId::ENCR_AES_CCM_16,
                };
                Transform::cipher(id, 8 * key.octets() as u16)
            }
            Self::Separate(Cipher::Null) => Transform::new(TransformType::Encryption, TransformId::ENCR_NULL),
            Self::Separate(Cipher::TripleDesCbc) => {
                Transform::new(TransformType::Encryption, TransformId::ENCR_3DES)
            }
            Self::Separate(Cipher::Aes128Cbc) => Transform::cipher(TransformId::ENCR_AES_CBC, 128),
            Self::Separate(Cipher::Aes192Cbc) => Transform::cipher(TransformId::ENCR_AES_CBC, 192),
            Self::Separate(Cipher::Aes256Cbc) => Transform::cipher(TransformId::ENCR_AES_CBC, 256),
        }
    }
}

impl Wire for Mac {
    fn transform(self) -> Transform {
        let id = match self {
            Self::HmacSha1_96 => TransformId::AUTH_HMAC_SHA1_96,
            Self::HmacSha256_128 => TransformId::AUTH_HMAC_SHA2_256_128,
            Self::HmacSha384_192 => TransformId::AUTH_HMAC_SHA2_384_192,
            Self::HmacSha512_256 => TransformId::AUTH_HMAC_SHA2_512_256,
            Self::HmacMd5_96 => TransformId::AUTH_HMAC_MD5_96,
            Self::AesXcbc96 => TransformId::AUTH_AES_XCBC_96,
            Self::AesCmac96 => TransformId::AUTH_AES_CMAC_96,
        };
        Transform::new(TransformType::Integrity, id)
    }
}

impl Wire for Prf {
    fn transform(self) -> Transform {
        let id = match self {
            Self::HmacSha1 => TransformId::PRF_HMAC_SHA1,
            Self::HmacSha256 => TransformId::PRF_HMAC_SHA2_256,
            Self::HmacSha384 => TransformId::PRF_HMAC_SHA2_384,
            Self::HmacSha512 => TransformId::PRF_HMAC_SHA2_512,
            Self::AesXcbc => TransformId::PRF_AES128_XCBC,
        };
        Transform::new(TransformType::Prf, id)
    }
}

impl Wire for KeyExchange {
    fn transform(self) -> Transform {
        Transform::new(TransformType::KeyExchange, KeMethod::from(self).into())
    }
}

/// Whether extended sequence numbers are wanted.
impl Wire for bool {
    fn transform(self) -> Transform {
        Transform::new(TransformType::Esn, if self { TransformId::ESN } else { TransformId::NO_ESN })
    }
}

impl From<KeyExchange> for KeMethod {
    fn from(method: KeyExchange) -> Self {
        match method {
            KeyExchange::X25519 => Self::X25519,
            KeyExchange::Ecp256 => Self::Ecp256,
            KeyExchange::Ecp384 => Self::Ecp384,
            KeyExchange::Ecp521 => Self::Ecp521,
            KeyExchange::Modp1024 => Self::Modp1024,
            KeyExchange::Modp1536 => Self::Modp1536,
            KeyExchange::Modp2048 => Self::Modp2048,
            KeyExchange::Modp3072 => Self::Modp3072,
            KeyExchange::Modp4096 => Self::Modp4096,
            KeyExchange::MlKem512 => Self::MlKem512,
            KeyExchange::MlKem768 => Self::MlKem768,
            KeyExchange::MlKem1024 => Self::MlKem1024,
        }
    }
}

impl KeyExchange {
    /// Every method.
    pub const ALL: [Self; 12] = [
        Self::X25519,
        Self::Ecp256,
        Self::Ecp384,
        Self::Ecp521,
        Self::Modp1024,
        Self::Modp1536,
        Self::Modp2048,
        Self::Modp3072,
        Self::Modp4096,
        Self::MlKem512,
        Self::MlKem768,
        Self::MlKem1024,
    ];

    /// The method of this number, if it is supported.
    pub fn from_wire(method: KeMethod) -> Option<Self> {
        Self::ALL.into_iter().find(|ours| KeMethod::from(*ours) == method)
    }
}

impl IkeEncryption {
    /// Every cipher.
    pub const ALL: [Self; 10] = [
        Self::Aes128Gcm16,
        Self::Aes192Gcm16,
        Self::Aes256Gcm16,
        Self::Aes128Ccm16,
        Self::Aes192Ccm16,
        Self::Aes256Ccm16,
        Self::ChaCha20Poly1305,
        Self::Aes128Cbc,
        Self::Aes192Cbc,
        Self::Aes256Cbc,
    ];

    /// Bits of the key.
    pub fn key_bits(self) -> u16 {
        match self {
            Self::Aes128Gcm16 | Self::Aes128Ccm16 | Self::Aes128Cbc => 128,
            Self::Aes192Gcm16 | Self::Aes192Ccm16 | Self::Aes192Cbc => 192,
            Self::Aes256Gcm16 | Self::Aes256Ccm16 | Self::ChaCha20Poly1305 | Self::Aes256Cbc => 256,
        }
    }

    /// Octets of the salt behind the key.
    pub(super) fn salt(self) -> usize {
        match self {
            Self::Aes128Gcm16 | Self::Aes192Gcm16 | Self::Aes256Gcm16 | Self::ChaCha20Poly1305 => GCM_SALT,
            Self::Aes128Ccm16 | Self::Aes192Ccm16 | Self::Aes256Ccm16 => CCM_SALT,
            Self::Aes128Cbc | Self::Aes192Cbc | Self::Aes256Cbc => 0,
        }
    }

    /// Octets of key and salt together.
    pub(super) fn material(self) -> usize {
        usize::from(self.key_bits()) / 8 + self.salt()
    }
}

impl Integrity {
    /// Octets of the key, which is as long as the hash (RFC 4868 §2.1.1).
    pub(super) fn key(self) -> usize {
        match self {
            Self::HmacSha1 => 20,
            Self::HmacSha256 => 32,
            Self::HmacSha384 => 48,
            Self::HmacSha512 => 64,
        }
    }

    /// Octets of the integrity check value: half the hash, but 96 bits for SHA-1 (RFC 2404).
    pub(super) fn icv(self) -> usize {
        match self {
            Self::HmacSha1 => 12,
            Self::HmacSha256 | Self::HmacSha384 | Self::HmacSha512 => self.key() / 2,
        }
    }
}

impl IkeSuite {
    /// The first additional key exchange from number `from` on, counted from 0, with its number.
    pub(crate) fn next_additional(&self, from: usize) -> Option<(usize, KeyExchange)> {
        next_additional(&self.additional, from)
    }

    /// Octets of SK_ai and of SK_ar: none with an AEAD (RFC 5282 §7).
    pub(super) fn integrity_key(&self) -> usize {
        self.integrity.map_or(0, Integrity::key)
    }
}
