//! Configured proposals, and transforms by their numbers.

use testudo_ike::config::{EspEncryption, EspProposal, IkeEncryption, IkeProposal, KeyExchange, Prf};
use testudo_ike::message::{Transform, TransformId, TransformType};

/// `aes128gcm16-aes256gcm16-prfsha256-prfsha384-x25519-ecp256`.
pub(crate) fn ike_all() -> IkeProposal {
    IkeProposal {
        encryption: vec![IkeEncryption::Aes128Gcm16, IkeEncryption::Aes256Gcm16],
        prf: vec![Prf::HmacSha256, Prf::HmacSha384],
        ke: vec![KeyExchange::X25519, KeyExchange::Ecp256],
        ..IkeProposal::default()
    }
}

/// `aes256gcm16-prfsha384-ecp256`.
pub(crate) fn ike_large() -> IkeProposal {
    IkeProposal {
        encryption: vec![IkeEncryption::Aes256Gcm16],
        prf: vec![Prf::HmacSha384],
        ke: vec![KeyExchange::Ecp256],
        ..IkeProposal::default()
    }
}

/// `aes128gcm16-aes256gcm16-x25519-esn-noesn`.
pub(crate) fn esp_all() -> EspProposal {
    EspProposal {
        encryption: vec![EspEncryption::Aes128Gcm16, EspEncryption::Aes256Gcm16],
        ke: vec![KeyExchange::X25519],
        esn: vec![true, false],
        ..EspProposal::default()
    }
}

/// `aes256gcm16-noesn`.
pub(crate) fn esp_large() -> EspProposal {
    EspProposal { encryption: vec![EspEncryption::Aes256Gcm16], esn: vec![false], ..EspProposal::default() }
}

/// AES-GCM with a key of `bits`.
pub(crate) fn gcm(bits: u16) -> Transform {
    Transform::cipher(TransformId(20), bits)
}

/// Any other transform.
pub(crate) fn transform(kind: u8, id: u16) -> Transform {
    Transform::new(TransformType::from(kind), TransformId(id))
}
