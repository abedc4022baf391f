//! The IPsec packet pipeline without I/O: SPD, SAD, ESP, AH, anti-replay, numbers, path MTU.
//!
//! Octets and counters in, octets and verdicts out. There is no socket, clock, thread or random
//! source here.
//!
//! A worker owns a [`dataplane::Dataplane`] and calls it with bursts. Control builds the immutable
//! tables ([`spd::Spd`]) and the SAs ([`sa::InboundSa`], [`sa::OutboundSa`]) and hands them over as
//! commands. It may read their counters, replay windows and numbers at any time: they are atomics
//! that any number of workers share without a lock. [`replay`] and [`number`] hold the two
//! invariants on which everything else rests: no number is accepted twice, and none is used twice.
#![forbid(unsafe_code)]
// The wire and control reach all of this: a panic would be an outage.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

/// The atomics of the state that workers share. `tests/loom` replaces them with loom's, and tries
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
