//! A small blocking client of QEMU's monitor protocol (QMP): lines of JSON over a Unix socket.
//!
//! Every wait ends: each command has a time limit. An answer that comes after its limit is
//! discarded, because it carries the number of its command. This crate knows nothing of the
//! meaning of a command.
#![forbid(unsafe_code)]
// A virtual machine's emulator reaches all of this: a panic would hide its state.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

mod client;
mod error;
mod lines;

pub use client::{Client, Event, MAX_EVENTS};
pub use error::Error;
pub use lines::MAX_LINE;
