//! IKE: the codec, and the endpoint with a peer that is honest, careless or hostile.

pub mod cert;
mod certified;
mod config;
mod content;
pub mod conversation;
pub mod endpoint;
pub mod message;
mod node;
mod peer;
mod phase;
mod seal;

pub(crate) use phase::Phase;
pub(crate) use seal::chain;
