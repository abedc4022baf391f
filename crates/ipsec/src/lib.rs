//! The IPsec packet pipeline without I/O: SPD, SAD, ESP, anti-replay, numbers, path MTU.
//!
//! Bytes and counters in, bytes and verdicts out. No socket, clock, thread or random source lives here.
#![forbid(unsafe_code)]

pub mod dataplane;
mod demux;
pub mod drops;
mod error;
mod esp;
mod flow;
mod inner;
pub mod number;
pub mod packet_selector;
pub mod replay;
pub mod sa;
pub mod sad;
pub mod selector;
pub mod spd;
pub mod spi;

pub use error::Error;
