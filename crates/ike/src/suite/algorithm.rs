//! What the configured algorithms are on the wire, and how much key they take.

use crate::config::{IkeEncryption, KeyExchange, Prf};
use crate::message::{KeMethod, Transform, TransformId, TransformType};
use serde::{Deserialize, Serialize};
use testudo_ipsec::sa::EspAlgorithm;

/// Who began the exchange that keys come from. For the keys of an IKE SA: who sent IKE_SA_INIT, or asked to
/// rekey.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Role {
    /// The initiator.
    Initiator,
    /// The responder.
    Responder,
}

impl Role {
    /// The other one.
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
    /// Encryption and integrity of the messages.
    pub encryption: IkeEncryption,
    /// Derivation of keys.
    pub prf: Prf,
    /// Key exchange.
    pub ke: KeyExchange,
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
}

/// Octets of salt that AES-GCM takes behind its key (RFC 4106 §8.1, RFC 5282 §7.1).
const GCM_SALT: usize = 4;

/// An algorithm that a proposal can name.
pub(super) trait Wire: Copy {
    /// Its transform.
    fn transform(self) -> Transform;
}

impl Wire for IkeEncryption {
    fn transform(self) -> Transform {
        Transform::cipher(TransformId::ENCR_AES_GCM_16, self.key_bits())
    }
}

impl Wire for EspAlgorithm {
    fn transform(self) -> Transform {
        Transform::cipher(TransformId::ENCR_AES_GCM_16, esp_key_bits(self))
    }
}

impl Wire for Prf {
    fn transform(self) -> Transform {
        let id = match self {
            Self::HmacSha256 => TransformId::PRF_HMAC_SHA2_256,
            Self::HmacSha384 => TransformId::PRF_HMAC_SHA2_384,
        };
        Transform::new(TransformType::Prf, id)
    }
}

impl Wire for KeyExchange {
    fn transform(self) -> Transform {
        Transform::new(TransformType::KeyExchange, KeMethod::from(self).into())
    }
}

/// Extended sequence numbers are wanted, or not.
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
        }
    }
}

impl KeyExchange {
    /// The method of that number, if it is one of ours.
    pub fn from_wire(method: KeMethod) -> Option<Self> {
        match method {
            KeMethod::X25519 => Some(Self::X25519),
            KeMethod::Ecp256 => Some(Self::Ecp256),
            _ => None,
        }
    }
}

impl IkeEncryption {
    fn key_bits(self) -> u16 {
        match self {
            Self::Aes128Gcm16 => 128,
            Self::Aes256Gcm16 => 256,
        }
    }

    /// Octets of key and salt together.
    pub(super) fn material(self) -> usize {
        usize::from(self.key_bits()) / 8 + GCM_SALT
    }
}

fn esp_key_bits(algorithm: EspAlgorithm) -> u16 {
    match algorithm {
        EspAlgorithm::Aes128Gcm16 => 128,
        EspAlgorithm::Aes256Gcm16 => 256,
    }
}

/// Octets of key and salt together.
pub(super) fn esp_material(algorithm: EspAlgorithm) -> usize {
    usize::from(esp_key_bits(algorithm)) / 8 + GCM_SALT
}
