//! What the scenarios shard: deterministic randomness, configurations, and a network in virtual time between endpoints.

pub(crate) mod allocator;
pub(crate) mod build;
pub(crate) mod network;
pub(crate) mod peer;
pub(crate) mod random;
pub(crate) mod responder;
pub(crate) mod seal;
pub(crate) mod tunnels;
pub(crate) mod wire;
pub(crate) mod world;

pub(crate) use build::{connection, secret};
pub(crate) use network::Weather;
pub(crate) use random::Random;
pub(crate) use world::World;
