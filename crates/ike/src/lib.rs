//! IKEv2 (RFC 7296) without I/O.
//!
//! Octets and `now` in; octets, deadlines and events out. There is no socket, clock, thread or
//! random source here: entropy, SPIs and cookie secrets come from injected allocators, and all SA
//! state is plain, versioned, serialisable data.
#![forbid(unsafe_code)]
// The wire reaches all of this: a panic would be an outage.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

pub mod alloc;
pub mod cert;
pub mod config;
pub mod delta;
pub mod endpoint;
mod environment;
mod exchange;
pub mod message;
pub mod output;
mod sa;
pub mod suite;
