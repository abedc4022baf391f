//! Bulk ciphers by the burst: intel-ipsec-mb where x86-64 has it, aws-lc-rs everywhere else, chosen
//! at start.
//!
//! This crate turns plaintext into ciphertext and back. It knows no packet format beyond ESP's
//! header, IV and ICV, draws no randomness and allots no IV: that no (key, IV) pair is used twice
//! is its caller's duty (RFC 6054 sender IDs).
//!
//! # Why two libraries
//!
//! intel-ipsec-mb is written for this very job and is two to three times as fast on short packets,
//! but it exists for x86-64 only and not in every distribution. AWS-LC is fast, runs on every
//! processor that Linux does, and IKE needs it anyway. Both implement the same standard, so both
//! are held to the same vectors, and the tests make each open what the other sealed.
//!
//! # How the choice is made
//!
//! The build script asks the C compiler for `intel-ipsec-mb.h` (1.0 or later) and for the library,
//! which it prefers to link statically, and sets the cfg `ipsec_mb`; `TESTUDO_IPSEC_MB=no` leaves
//! it out and `=yes` insists on it. At start [`Library::detect`] takes it if the processor has
//! AES-NI and PCLMULQDQ and the library's self-test passed, otherwise AWS-LC; configuration can
//! name either. A key is bound to the library that expanded it, so one burst may mix algorithms and
//! libraries.
//!
//! # Direct calls
//!
//! A burst of GCM is a loop over the library's direct calls. Its job and burst interfaces do not
//! interleave packets of GCM; they only add work. Measured with 1.3 (nanoseconds a packet, AES-128,
//! bursts of 64, Zen 4 with VAES and AVX-512):
//!
//! | octets | direct | burst | one job at a time |
//! | ------ | ------ | ----- | ----------------- |
//! | 64     | 30     | 34    | 42                |
//! | 512    | 58     | 62    | 69                |
//! | 1420   | 134    | 139   | 146               |
//!
//! # Many packets side by side
//!
//! AES-CBC, HMAC and the MACs of AES ([`separate`]) are chains: one packet alone leaves most of the
//! processor idle. Here the library's burst calls are worth their work: they encrypt and hash up to
//! sixteen packets side by side. Hashing and encrypting are two calls over the burst, so that on
//! receive only what is authentic is decrypted. AWS-LC works on one packet after the other.
//! Measured with 1.3 (nanoseconds a packet to seal, AES-128-CBC, by packets in the burst, Emerald
//! Rapids):
//!
//! | octets | ICV              | 1 packet | 8   | 64  | AWS-LC |
//! | ------ | ---------------- | -------- | --- | --- | ------ |
//! | 64     | HMAC-SHA1-96     | 700      | 210 | 117 | 550    |
//! | 64     | HMAC-SHA-256-128 | 1080     | 264 | 135 | 575    |
//! | 1424   | HMAC-SHA1-96     | 4750     | 733 | 370 | 2010   |
//! | 1424   | HMAC-SHA-256-128 | 7340     | 1060 | 528 | 2030   |
//!
//! AES-CCM ([`ccm`]) is half a chain, and goes the same way: 64 packets at once, by the library's
//! jobs. There AWS-LC has nothing, and RustCrypto's CCM is used, as it is for keys of 192 bits,
//! which intel-ipsec-mb has not. A packet of 1424 octets takes 230 ns with 128 bits and 280 with
//! 256 in bursts of 64, and 5400 with RustCrypto's; MACs of AES are a quarter faster than
//! HMAC-SHA1.
//!
//! # Threads
//!
//! Keys are only ever read after their making: any number of threads may use one at once. No call
//! allocates, locks or fails, but for a thread's first burst of [`separate`] algorithms or [`ccm`],
//! for which intel-ipsec-mb makes what it works in (`ipsec_mb/multi.rs`).
//!
//! # Known limits
//!
//! - Debian 12 has intel-ipsec-mb 1.3. Version 2.0 is faster on short packets and builds against
//!   the same glue.
//! - Distributions build the library with `SAFE_DATA`, so that it clears its registers and stack
//!   after each call; a build without it would leave key-dependent values there.
//! - The static library adds about 15 MB to a binary: its manager refers to every algorithm and
//!   processor.
//! - 3DES looks things up in tables, of both libraries, so its timing may tell of keys; it is there
//!   for old measurements.
//! - A packet of separate algorithms that comes alone takes two to four times as long with
//!   intel-ipsec-mb as with AWS-LC.
//! - Tags of AES-GCM are 16 octets; the 8 and 12 of RFC 4106 are not offered.
// Every packet reaches all of this: a panic would be an outage.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

mod aead;
mod aws_lc;
pub mod burst;
pub mod ccm;
pub mod cycles;
mod error;
#[cfg(ipsec_mb)]
mod ipsec_mb;
mod library;
pub mod mac;
mod prefetch;
pub mod rsa_sha1;
pub mod separate;

pub use aead::{AeadAlgorithm, AeadKey, IV_LEN, MAX_TEXT_LEN, NONCE_LEN, SALT_LEN, TAG_LEN};
pub use burst::{Aad, OpenJob, SealJob, open_burst, seal_burst};
pub use error::CryptoError;
pub use library::Library;
pub use prefetch::{prefetch, prefetch_slice};
