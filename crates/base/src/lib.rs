//! What the other crates name alike: identifiers with a layout, shards, the keyed hash that gives
//! packets a home, address prefixes, reasons of counters, and time.
#![forbid(unsafe_code)]

pub mod prefix;
pub mod reasons;
pub mod shard;
pub mod siphash;
pub mod spi;
pub mod time;
