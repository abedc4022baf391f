//! The filter and an AF_XDP port together: what is a worker's arrives there, and only while it
//! listens.

use crate::hosts::{
    GATEWAY, Hosts, INNER, OPEN, PATIENCE, PROTECTED, PROTECTED_PREFIX, PROTECTED6, PROTECTED6_PREFIX,
    SILENCE, eventually,
};
use std::net::UdpSocket;
use std::time::{Duration, Instant};
use testudo_base::spi::Shard;
use testudo_fastpath::fib::PortIndex;
use testudo_fastpath::filter::{
    self, Class, CounterSet, Filter, FilterPort, Instance, PrefixUse, PrefixUses, Reason, STAMP_LEN, Stamp,
};
use testudo_fastpath::frame::{ChunkSize, Frame, FramePool};
use testudo_fastpath::port::xdp::{XdpConfig, XdpPort};
use testudo_fastpath::port::{FrameBurst, Port};

const INDEX: PortIndex = PortIndex(9);

/// Sweeps what a failed test leaves.
struct Sweep(Instance);

impl Drop for Sweep {
    fn drop(&mut self) {
        let _ = filter::cleanup(&self.0);
    }
}

fn open(instance: &Instance, port: &XdpPort) -> Filter {
    let mut filter = Filter::open(instance).expect("filter");
    let protect = |p: &str| (p.parse().expect(p), PrefixUse::PROTECT);
    filter
        .set_prefixes(&PrefixUses::from([PROTECTED_PREFIX, PROTECTED6_PREFIX].map(protect)))
        .expect("prefixes");
    filter.set_addresses(&[GATEWAY.parse().expect(GATEWAY)].into()).expect("addresses");
    let info = port.info();
    let known = FilterPort {
        index: INDEX,
        name: info.name.clone(),
        ifindex: info.ifindex,
        mac: info.mac,
        cluster_mac: None,
        check_source: true,
        allow_generic: false,
    };
    filter.attach(&known).expect("attach");
    filter.set_socket(INDEX, 0, port.fd().expect("descriptor")).expect("socket");
    filter
}

/// The next frame, if one comes in time.
fn receive(port: &mut XdpPort, pool: &mut FramePool, patience: Duration) -> Option<Frame> {
    let end = Instant::now() + patience;
    while Instant::now() < end {
        let mut burst = FrameBurst::new();
        port.rx(&mut burst, pool);
        port.refill(pool);
        if let Some(frame) = burst.pop() {
            assert!(burst.is_empty(), "one frame was sent");
            return Some(frame);
        }
    }
    None
}

fn stamp(frame: &Frame) -> Option<Stamp> {
    let start = usize::from(frame.start());
    Stamp::read(frame.bytes()[start - STAMP_LEN..start].try_into().expect("four octets"))
}

#[test]
fn a_worker_receives_what_is_its_own() {
    let hosts = Hosts::new();
    let instance = Instance::new(&format!("ttbp-socket-{}", std::process::id())).expect("name");
    let _sweep = Sweep(instance.clone());
    let mut pool = FramePool::new(512, ChunkSize::K2).expect("frames");
    let (mut port, filter) = hosts.gateway.run(|| {
        let config = XdpConfig { rx_ring: 64, tx_ring: 64, ..XdpConfig::new(INDEX, INNER) };
        let port = XdpPort::open(&config, pool.memory()).expect("port");
        let filter = open(&instance, &port);
        (port, filter)
    });
    port.refill(&mut pool);
    let send = |to: &str, number: u16, payload: &[u8]| {
        hosts.client.run(|| {
            let any = if to.contains(':') { "[::]:0" } else { "0.0.0.0:0" };
            let socket = UdpSocket::bind(any).expect("socket");
            socket.send_to(payload, (to, number)).expect("send");
        });
    };
    for (to, number, payload, class) in [
        (PROTECTED, 7, &b"to protect"[..], Class::Protect),
        (PROTECTED6, 7, &b"to protect"[..], Class::Protect),
        (GATEWAY, 4500, &[0xab; 64][..], Class::EspInUdp),
    ] {
        send(to, number, payload);
        let frame = receive(&mut port, &mut pool, PATIENCE).expect("a frame");
        assert_eq!(stamp(&frame), Some(Stamp { class, port: INDEX, lane: Shard(0) }));
        assert!(frame.data().ends_with(payload));
        pool.give(frame);
    }
    send(GATEWAY, 4500, &[0xff]);
    assert!(hosts.arrives(&hosts.client, OPEN));
    assert!(receive(&mut port, &mut pool, SILENCE).is_none());
    let counters = || filter.counters(CounterSet::Port(INDEX)).expect("counters");
    assert_eq!(counters().get(Reason::WorkerProtect), 2);
    assert_eq!(counters().get(Reason::WorkerEspInUdp), 1);
    assert_eq!(counters().get(Reason::DropKeepalive), 1);
    port.close(&mut pool);
    send(PROTECTED, 7, b"nobody listens");
    eventually("it is dropped, and counted", || counters().get(Reason::DropNoSocket) == 1);
}
