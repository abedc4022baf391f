//! Strict conversion of messages to typed configuration: every key is taken, or refused by its full
//! path.
//!
//! One table (`keys`) lists the keys of `swanctl.conf` that are accepted;
//! `docs/reference/swanctl.md` explains them to operators. No key is silently ignored: a key that
//! strongSwan has and this gateway lacks is accepted only with a value that asks for what the
//! gateway does anyway.

mod addr;
mod algorithm;
mod auth;
mod child;
mod connection;
mod credential;
mod fields;
mod identity;
mod keys;
mod lifetime;
mod pool;
mod proposal;
mod refusal;
mod secret;
mod selector;
#[cfg(test)]
mod tests;
mod updown;
pub(crate) mod value;

pub(crate) use addr::prefix;
pub use algorithm::Policy;
pub use connection::{connection, scripts_not_run, without_effect};
pub use credential::{Loaded, load_authority, load_cert, load_key, not_fetched};
pub(crate) use credential::{distinguished_name, key_id};
pub(crate) use fields::Fields;
pub use pool::pool;
pub use refusal::Refusal;
pub use secret::shared_secret;
pub(crate) use selector::protocol_name;
