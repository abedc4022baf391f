//! The IPsec packet pipeline without I/O: SPD, SAD, ESP, anti-replay, numbers, path MTU.
//!
//! Bytes and counters in, bytes and verdicts out. No socket, clock, thread or random source lives here.
//!
//! A worker owns a [`dataplane::Dataplane`] and calls it with bursts. Control builds the immutable tables
//! ([`spd::Spd`]) and the SAs ([`sa::InboundSa`], [`sa::OutboundSa`]) and hands them over as commands; it may read their
//! counters, replay windows and numbers at any time, because each has one writer and no lock. [`replay`] and [`number`]
//! hold the two invariants on which all else rests: no number is accepted twice, and none is used twice.
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
pub mod pmtu;
pub mod replay;
pub mod sa;
pub mod sad;
pub mod selector;
pub mod share;
pub mod siphash;
pub mod spd;
pub mod spi;

pub use error::Error;
