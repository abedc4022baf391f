//! Bulk ciphers by the burst: intel-ipsec-mb where x86-64 has it, aws-lc-rs everywhere else, chosen at start.

mod aead;
mod aws_lc;
pub mod burst;
mod error;
#[cfg(ipsec_mb)]
mod ipsec_mb;
mod library;

pub use aead::{AeadAlgorithm, AeadKey, IV_LEN, MAX_TEXT_LEN, NONCE_LEN, SALT_LEN, TAG_LEN};
pub use burst::{Aad, OpenJob, SealJob, open_burst, seal_burst};
pub use error::CryptoError;
pub use library::Library;
