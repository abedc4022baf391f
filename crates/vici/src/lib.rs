//! strongSwan's control protocol (VICI), so that `swanctl` and the `vici` Python package work
//! unchanged.
//!
//! [`server::Server`] keeps the clients' [`session::Session`]s, decodes requests strictly, calls
//! the gateway through [`control::Control`], and encodes the answers. It uses no socket, clock or
//! thread: octets and `now` in, octets and deadlines out. [`client::Client`] is a small blocking
//! client for tools and tests; [`trust`] checks the permissions of files.
//!
//! This crate must not decide anything about IKE or packets, nor ignore a part of the
//! configuration.
#![forbid(unsafe_code)]
// Clients and operators reach most of this code: a panic would be an outage.
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

pub mod alarms;
pub mod answer;
pub mod children;
pub mod client;
pub mod cluster;
pub mod codec;
pub mod conf;
mod configuration;
pub mod control;
pub mod counters;
mod error;
pub mod mark;
pub mod message;
pub mod overlap;
pub mod processors;
pub mod render;
pub mod schema;
mod selection;
pub mod server;
pub mod session;
pub mod shut;
pub mod trust;
pub mod view;

pub use error::{CommandError, Error};
