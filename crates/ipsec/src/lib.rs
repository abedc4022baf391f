//! The IPsec packet pipeline without I/O: SPD, SAD, ESP, anti-replay, numbers, path MTU.
//!
//! Bytes and counters in, bytes and verdicts out. No socket, clock, thread or random source lives here.
#![forbid(unsafe_code)]

pub mod sa;
pub mod selector;
pub mod spi;
