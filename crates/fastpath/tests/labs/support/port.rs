//! What tests do with an AF_XDP port.

use std::time::{Duration, Instant};
use testudo_fastpath::fib::PortLink;
use testudo_fastpath::frame::{Frame, FramePool};
use testudo_fastpath::port::xdp::XdpPort;
use testudo_fastpath::port::{FrameBurst, Port};

/// Receives `count` frames or panics.
pub fn receive(port: &mut XdpPort, pool: &mut FramePool, count: usize) -> Vec<Frame> {
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut frames = Vec::new();
    while frames.len() < count {
        assert!(Instant::now() < deadline, "{} of {count} frames: {:?}", frames.len(), port.statistics());
        let mut burst = FrameBurst::new();
        port.rx(&mut burst, pool);
        frames.extend(burst);
        port.refill(pool);
    }
    frames
}

/// The port as a FIB has it, its link up.
pub fn link(port: &XdpPort) -> PortLink {
    let info = port.info();
    PortLink {
        index: info.index,
        name: info.name.clone(),
        ifindex: info.ifindex,
        mac: info.mac,
        mtu: info.mtu,
        up: true,
        addresses: Vec::new(),
    }
}
