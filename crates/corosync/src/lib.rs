//! The part of corosync's client libraries that a cluster uses: closed process groups (CPG), quorum,
//! the votes that make it, and the nodes that corosync is configured with.
//!
//! [`Libraries::load`] loads them. A program that never calls it runs where they are not installed:
//! nothing is linked, and nothing of corosync is needed to build this crate. A connection needs
//! [`Libraries`], so no function can be called before it is there.
//!
//! # How this is safe
//!
//! All `unsafe` that a cluster needs stands here, in three kinds:
//!
//! - A function's address is given its type. `ffi/tests.rs` has the C compiler compare the types,
//!   the layouts and the constants with corosync's headers.
//! - A call. The libraries look each handle up, and answer `CS_ERR_BAD_HANDLE` to one that is none.
//! - A callback reads what a library points to. It copies that for the caller of `dispatch`, and
//!   does nothing else, because no panic may unwind into C.
//!
//! A connection stays on the thread that opened it.
#![deny(unsafe_code)]
// A cluster's engine is built on this: a panic would be an outage.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

#[allow(unsafe_code, reason = "calls libcpg, and reads what it calls back with")]
mod cpg;
mod error;
mod ffi;
#[allow(unsafe_code, reason = "loads the libraries, and gives their functions types")]
mod library;
#[allow(unsafe_code, reason = "calls libcmap")]
mod map;
#[allow(unsafe_code, reason = "calls libquorum, which calls back")]
mod quorum;
#[allow(unsafe_code, reason = "calls libvotequorum")]
mod votes;

pub use cpg::{Address, Cpg, CpgEvent};
pub use error::{Error, Status};
pub use ffi::RingId;
pub use library::Libraries;
pub use map::Map;
pub use quorum::{Quorum, QuorumEvent};
pub use votes::{VoteInfo, VoteOptions, Votes};
