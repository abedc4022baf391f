//! What the scenarios share: deterministic randomness, configurations, and a network in virtual
//! time between endpoints.

pub(crate) mod allocator;
pub(crate) mod build;
pub(crate) mod host;
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

use std::net::{IpAddr, Ipv4Addr};
use testudo_ike::endpoint::PacketEnds;

/// The ends of a packet: any will do where the connection says who the peer is.
pub(crate) const PACKET: PacketEnds = PacketEnds {
    local: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
    remote: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2)),
};
