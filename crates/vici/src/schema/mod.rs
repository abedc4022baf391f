//! From messages to typed configuration, strictly: every key is taken, or refused by its full path.
//!
//! Which keys of `swanctl.conf` are taken stands in one table (`keys`), explained for operators in
//! `docs/reference/swanctl.md`. No key is ignored in silence: a key that strongSwan knows and this
//! gateway does not is accepted only with a value that asks for what the gateway does anyway.

mod addr;
mod algorithm;
mod auth;
mod child;
mod connection;
mod credential;
mod fields;
mod identity;
mod keys;
#[cfg(test)]
mod keys_tests;
mod lifetime;
mod pool;
mod proposal;
mod refusal;
mod secret;
mod selector;
mod updown;
pub(crate) mod value;

pub(crate) use addr::prefix;
pub use algorithm::Policy;
pub use connection::{connection, scripts_not_run, without_effect};
pub use credential::{Loaded, load_authority, load_cert, load_key};
pub(crate) use credential::{distinguished_name, key_id};
pub(crate) use fields::Fields;
pub use pool::pool;
pub use refusal::Refusal;
pub use secret::shared_secret;
pub(crate) use selector::protocol_name;
