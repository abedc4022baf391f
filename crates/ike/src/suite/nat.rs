//! NAT detection (RFC 7296 §2.23).

use super::keys::IkeSpis;
use aws_lc_rs::digest;
use std::net::{IpAddr, SocketAddr};

/// The data of NAT_DETECTION_SOURCE_IP and NAT_DETECTION_DESTINATION_IP. The RFC requires SHA-1;
/// nothing secret depends on it. `spis` as in the header of the carrying message, so with a zero
/// SPIr in the first request.
pub fn nat_detection_hash(spis: IkeSpis, addr: SocketAddr) -> Vec<u8> {
    let mut context = digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY);
    context.update(&spis.initiator.to_bytes());
    context.update(&spis.responder.to_bytes());
    match addr.ip() {
        IpAddr::V4(ip) => context.update(&ip.octets()),
        IpAddr::V6(ip) => context.update(&ip.octets()),
    }
    context.update(&addr.port().to_be_bytes());
    context.finish().as_ref().to_vec()
}
