//! The cryptography of IKEv2, by aws-lc-rs; what it lacks, by RustCrypto: AES-CCM, AES-XCBC, MODP
//! groups, ML-KEM from a seed.
//!
//! Octets in, octets out: no random source (see [`Entropy`]), no clock, no decision about the
//! exchange. Keys are plain serialisable data, because a cluster replicates them; they are wiped
//! when dropped, compared in constant time and never shown by `Debug`.
//!
//! - [`offer`], [`select`] and [`accept`]: proposals (RFC 7296 §3.3) from the configuration, chosen
//!   by the responder, checked by the initiator.
//! - [`KePrivate`], [`respond`]: key exchange. [`IkeKeys`]: SKEYSEED and everything derived from
//!   it. [`SkSealer`], [`SkOpener`]: the Encrypted payload.
//! - [`nat_detection_hash`] and [`cookie`]: hashes before there are keys.

pub mod accept;
mod additional;
mod aead;
mod algorithm;
mod auth;
mod cbc;
mod cipher;
pub mod cookie;
mod entropy;
mod error;
mod int_auth;
mod ke;
mod keys;
mod mlkem;
mod modp;
mod nat;
pub mod offer;
mod prf;
mod secret;
pub mod select;
mod sk;
#[cfg(test)]
mod tests;
mod xcbc;

pub(crate) use additional::next_additional;
pub use additional::without_additional;
pub use algorithm::{EspSuite, IkeSuite, Role};
pub use auth::SignedOctets;
pub use entropy::Entropy;
pub use error::SuiteError;
pub use int_auth::IntAuth;
pub use ke::{KeDraw, KePrivate, respond};
pub use keys::{ChildKeys, IkeKeys, IkeSpis, Nonces};
pub use nat::nat_detection_hash;
pub use secret::Secret;
pub use select::{EspChoice, IkeChoice};
pub use sk::{Opened, SkOpener, SkSealer};
