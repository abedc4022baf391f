//! Several nodes as one IPsec gateway: ownership of shards, replication of their state, and
//! takeover.
//!
//! Sans-IO like the protocol crates: engine events, datagrams and `now` in; messages, deadlines and
//! ownership out. Membership, total order and quorum come from an [`engine::Engine`]; this crate
//! has no protocol of its own for them.
#![forbid(unsafe_code)]
// The other nodes and operators reach all of this: a panic would be an outage.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

mod alloc;
#[cfg(feature = "corosync")]
pub mod corosync;
pub mod dispatch;
pub mod engine;
pub mod group;
mod hkdf;
pub mod member;
pub mod node;
pub mod shard;
mod update;
