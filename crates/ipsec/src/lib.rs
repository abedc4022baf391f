//! The IPsec packet pipeline without I/O: SPD, SAD, ESP, AH, anti-replay, numbers, path MTU.
//!
//! Bytes and counters in, bytes and verdicts out. No socket, clock, thread or random source lives
//! here.
//!
//! A worker owns a [`dataplane::Dataplane`] and calls it with bursts. Control builds the immutable
//! tables ([`spd::Spd`]) and the SAs ([`sa::InboundSa`], [`sa::OutboundSa`]) and hands them over as
//! commands; it may read their counters, replay windows and numbers at any time: they are atomics
//! that any number of workers share without a lock. [`replay`] and [`number`] hold the two
//! invariants on which all else rests: no number is accepted twice, and none is used twice.
#![forbid(unsafe_code)]
// The wire and control reach all of this: a panic would be an outage.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

/// What the state that workers share is made of. `tests/loom` puts loom's in their place, and tries
/// every order of events.
mod atomics {
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
}
mod ah;
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
pub mod reassembly;
pub mod replay;
pub mod sa;
pub mod sad;
pub mod selector;
pub mod spd;

pub use error::Error;
