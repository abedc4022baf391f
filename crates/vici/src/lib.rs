//! strongSwan's control protocol (VICI), so that `swanctl` and the `vici` Python package work
//! unchanged.
//!
//! [`server::Server`] keeps the clients' [`session::Session`]s, decodes what they ask for strictly,
//! calls the gateway through [`control::Control`], and encodes what comes back. It knows no socket,
//! clock or thread: bytes and `now` in, bytes and deadlines out. [`client::Client`] is the other
//! end, small and blocking, for tools and tests; [`trust`] looks at files.
//!
//! What this crate may not do: decide anything about IKE or packets, or ignore a word of the
//! configuration.
#![forbid(unsafe_code)]
// The wire and operators reach most of this: a panic would be an outage.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

mod answer;
pub mod children;
pub mod client;
pub mod cluster;
pub mod codec;
pub mod conf;
mod configuration;
pub mod control;
pub mod counters;
mod error;
pub mod message;
pub mod overlap;
pub mod render;
pub mod schema;
mod selection;
pub mod server;
pub mod session;
pub mod shut;
pub mod trust;
pub mod view;

pub use error::{CommandError, Error};
