//! The packet pipeline: a gateway with policies and SAs that receives any packets from either side.

pub mod ah;
mod fate;
mod forge;
mod gateway;
pub mod inbound;
pub mod outbound;
pub mod reassembly;
mod replay;
mod routers;
mod shape;
pub mod transport;
