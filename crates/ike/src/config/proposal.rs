//! Algorithms, and proposals of them.

use serde::{Deserialize, Serialize};
use testudo_ipsec::sa::{CcmAlgorithm, Cipher, EspAlgorithm, Mac};

/// Encryption transforms of IKE (RFC 7296 §3.3.2, RFC 5282, RFC 7634).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum IkeEncryption {
    /// `aes128gcm16`.
    Aes128Gcm16,
    /// `aes192gcm16`.
    Aes192Gcm16,
    /// `aes256gcm16`.
    Aes256Gcm16,
    /// `aes128ccm16`.
    Aes128Ccm16,
    /// `aes192ccm16`.
    Aes192Ccm16,
    /// `aes256ccm16`.
    Aes256Ccm16,
    /// `chacha20poly1305`.
    ChaCha20Poly1305,
    /// `aes128`: AES-CBC, which needs an [`Integrity`] beside it.
    Aes128Cbc,
    /// `aes192`: AES-CBC, which needs an [`Integrity`] beside it.
    Aes192Cbc,
    /// `aes256`: AES-CBC, which needs an [`Integrity`] beside it.
    Aes256Cbc,
}

impl IkeEncryption {
    /// True for a cipher that protects integrity too, so that no [`Integrity`] is needed (RFC 5282
    /// §8).
    pub fn is_aead(self) -> bool {
        !matches!(self, Self::Aes128Cbc | Self::Aes192Cbc | Self::Aes256Cbc)
    }
}

/// Integrity algorithms of IKE, for ciphers that are not AEADs (RFC 4868).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Integrity {
    /// `sha1`: HMAC-SHA1-96 (RFC 2404), a legacy algorithm.
    HmacSha1,
    /// `sha256`: HMAC-SHA2-256-128.
    HmacSha256,
    /// `sha384`: HMAC-SHA2-384-192.
    HmacSha384,
    /// `sha512`: HMAC-SHA2-512-256.
    HmacSha512,
}

/// Pseudo-random functions of IKE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Prf {
    /// `prfsha1`, a legacy algorithm.
    HmacSha1,
    /// `prfsha256`.
    HmacSha256,
    /// `prfsha384`.
    HmacSha384,
    /// `prfsha512`.
    HmacSha512,
    /// `prfaesxcbc` (RFC 4434).
    AesXcbc,
}

/// Key exchange methods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum KeyExchange {
    /// `x25519` (group 31).
    X25519,
    /// `ecp256` (group 19).
    Ecp256,
    /// `ecp384` (group 20).
    Ecp384,
    /// `ecp521` (group 21).
    Ecp521,
    /// `modp1024` (group 2), a legacy algorithm.
    Modp1024,
    /// `modp1536` (group 5), a legacy algorithm.
    Modp1536,
    /// `modp2048` (group 14).
    Modp2048,
    /// `modp3072` (group 15).
    Modp3072,
    /// `modp4096` (group 16).
    Modp4096,
    /// `mlkem512` (method 35).
    MlKem512,
    /// `mlkem768` (method 36).
    MlKem768,
    /// `mlkem1024` (method 37).
    MlKem1024,
}

/// Bound on the additional key exchanges (RFC 9370 §2.2.1).
pub const ADDITIONAL_KE: usize = 7;

/// One IKE proposal: any combination of its transforms is acceptable, and earlier ones are
/// preferred.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IkeProposal {
    /// Encryption: AEADs only, or none of them.
    pub encryption: Vec<IkeEncryption>,
    /// Integrity algorithms; empty exactly if the ciphers are AEADs.
    pub integrity: Vec<Integrity>,
    /// Pseudo-random functions.
    pub prf: Vec<Prf>,
    /// Key exchange methods.
    pub ke: Vec<KeyExchange>,
    /// `ke1_` to `ke7_`: methods of the additional key exchanges (RFC 9370). `None` (`ke1_none`):
    /// the exchange may be left out. An empty list: there is no such exchange.
    pub additional: [Vec<Option<KeyExchange>>; ADDITIONAL_KE],
}

/// Encryption transforms of ESP (RFC 8221 §5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum EspEncryption {
    /// `aes128gcm16`.
    Aes128Gcm16,
    /// `aes256gcm16`.
    Aes256Gcm16,
    /// `null`, AES-CBC as in `aes128`, or the legacy `3des`, which need a [`Mac`] beside them.
    Separate(Cipher),
    /// `aes192gcm16`.
    Aes192Gcm16,
    /// `chacha20poly1305`.
    ChaCha20Poly1305,
    /// `aes128gmac`, which protects integrity only.
    Aes128Gmac,
    /// `aes192gmac`, which protects integrity only.
    Aes192Gmac,
    /// `aes256gmac`, which protects integrity only.
    Aes256Gmac,
    /// AES-CCM, such as `aes128ccm8`.
    Ccm(CcmAlgorithm),
}

impl EspEncryption {
    /// True for a cipher that protects integrity too, so that no [`Mac`] is needed (RFC 8221 §6).
    pub fn is_aead(self) -> bool {
        !matches!(self, Self::Separate(_))
    }

    /// The algorithm of cipher and MAC; `None` if they do not fit together.
    pub fn with(self, integrity: Option<Mac>) -> Option<EspAlgorithm> {
        match (self, integrity) {
            (Self::Aes128Gcm16, None) => Some(EspAlgorithm::Aes128Gcm16),
            (Self::Aes192Gcm16, None) => Some(EspAlgorithm::Aes192Gcm16),
            (Self::Aes256Gcm16, None) => Some(EspAlgorithm::Aes256Gcm16),
            (Self::ChaCha20Poly1305, None) => Some(EspAlgorithm::ChaCha20Poly1305),
            (Self::Aes128Gmac, None) => Some(EspAlgorithm::Aes128Gmac),
            (Self::Aes192Gmac, None) => Some(EspAlgorithm::Aes192Gmac),
            (Self::Aes256Gmac, None) => Some(EspAlgorithm::Aes256Gmac),
            (Self::Ccm(algorithm), None) => Some(EspAlgorithm::Ccm(algorithm)),
            (Self::Separate(cipher), Some(mac)) => Some(EspAlgorithm::separate(cipher, mac)),
            _ => None,
        }
    }
}

/// One proposal of ESP or AH: any combination of its transforms is acceptable, and earlier ones are
/// preferred.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EspProposal {
    /// Encryption: AEADs only, or none of them. Empty for AH, which encrypts nothing.
    pub encryption: Vec<EspEncryption>,
    /// Integrity algorithms; empty exactly if the ciphers are AEADs.
    pub integrity: Vec<Mac>,
    /// Key exchange methods of CREATE_CHILD_SA, for perfect forward secrecy; not sent in IKE_AUTH
    /// (RFC 7296 §1.2).
    pub ke: Vec<KeyExchange>,
    /// `ke1_` to `ke7_`: as in [`IkeProposal`], beside a method in `ke` (RFC 9370 §2.2.4).
    pub additional: [Vec<Option<KeyExchange>>; ADDITIONAL_KE],
    /// Extended sequence numbers, in order of preference; `[true, false]` offers both, ESN
    /// preferred.
    pub esn: Vec<bool>,
}

impl EspProposal {
    /// True for AH (RFC 4302).
    pub fn is_ah(&self) -> bool {
        self.encryption.is_empty()
    }
}
