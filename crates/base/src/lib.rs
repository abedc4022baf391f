//! Types that all crates share: identifiers with a layout, shards, the keyed hash that gives
//! packets a home, address prefixes, reasons of counters, and time.
#![forbid(unsafe_code)]
// Packets and operators reach all of this: a panic would be an outage.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

pub mod lane;
pub mod prefix;
pub mod reasons;
pub mod session;
pub mod shard;
pub mod siphash;
pub mod spi;
pub mod time;
pub mod turn;
