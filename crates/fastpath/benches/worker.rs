//! The worker's own cost per packet: in-memory ports, and a pipeline that forwards everything
//! unchanged. Frames circulate, so that little but the worker is measured.
#![allow(clippy::print_stdout)]

mod wire;

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Instant;
use testudo_fastpath::fib::{Fib, NextHop, Out, PortIndex, PortLink, Route};
use testudo_fastpath::filter::{Class, STAMP_LEN, STAMP_MAGIC};
use testudo_fastpath::frame::{ChunkSize, Frame, FramePool};
use testudo_fastpath::mac::MacAddr;
use testudo_fastpath::port::fake::FakePort;
use testudo_fastpath::port::{BURST, PortInfo};
use testudo_fastpath::tun::Tun;
use testudo_fastpath::worker::{Worker, WorkerConfig};
use wire::Wire;

/// Frames that go round: two bursts, which stay in the first-level cache, and as many as do not.
const SETS: [usize; 2] = [2 * BURST, 64 * BURST];

fn main() {
    let mut arguments = std::env::args().skip_while(|argument| argument != "--rounds");
    let rounds: u32 = arguments.nth(1).map_or(7, |text| text.parse().expect("a number"));
    for frames in SETS {
        let mut nanoseconds: Vec<f64> = (0..rounds).map(|_| measure(frames)).collect();
        nanoseconds.sort_by(f64::total_cmp);
        println!(
            "{frames:>5} frames: {:>6.1} ns/packet (best {:.1})",
            nanoseconds[nanoseconds.len() / 2],
            nanoseconds[0]
        );
    }
}

fn measure(frames: usize) -> f64 {
    const PACKETS: usize = 4_000_000;
    let mut pool = FramePool::new(frames, ChunkSize::K2).unwrap();
    let filled: Vec<Frame> = std::iter::from_fn(|| pool.take()).map(packet).collect();
    let ports = vec![port(0, frames), port(1, frames)];
    let config = WorkerConfig::new(0);
    let mut worker = Worker::new(config, ports, None::<Tun>, pool, Arc::new(fib()), Wire).unwrap();
    for frame in filled {
        worker.port_mut(0).unwrap().deliver(frame).unwrap();
    }
    let begun = Instant::now();
    for _ in 0..PACKETS / BURST {
        worker.turn(1);
        while let Some(frame) = worker.port_mut(1).unwrap().sent() {
            worker.port_mut(0).unwrap().deliver(frame).unwrap();
        }
    }
    let elapsed = begun.elapsed();
    let totals = worker.counters().totals();
    assert_eq!(totals.ports[1].tx_packets, (PACKETS / BURST * BURST) as u64, "{totals:?}");
    assert_eq!(worker.close(), 0);
    elapsed.as_nanos() as f64 / PACKETS as f64
}

/// A 64-octet IP packet as the filter and the kernel leave it.
fn packet(mut frame: Frame) -> Frame {
    let mut bytes = [0; 78];
    bytes[12] = 8;
    bytes[14..26].copy_from_slice(&[0x45, 0, 0, 64, 0, 0, 0x40, 0, 64, 17, 0, 0]);
    bytes[26..30].copy_from_slice(&Ipv4Addr::new(10, 0, 0, 1).octets());
    bytes[30..34].copy_from_slice(&Ipv4Addr::new(192, 0, 2, 9).octets());
    assert!(frame.fill(&bytes));
    let start = usize::from(frame.start());
    let stamp: [u8; STAMP_LEN] = [STAMP_MAGIC, Class::Protect as u8, 0, 0];
    frame.bytes_mut()[start - STAMP_LEN..start].copy_from_slice(&stamp);
    frame
}

fn port(index: u16, depth: usize) -> FakePort {
    let PortLink { index, name, ifindex, mac, mtu, .. } = link(index);
    FakePort::new(PortInfo { index, name, ifindex, mac, mtu, limit: mtu }, depth)
}

fn link(index: u16) -> PortLink {
    PortLink {
        index: PortIndex(index),
        name: format!("fake{index}"),
        ifindex: 1 + u32::from(index),
        mac: MacAddr([2, 0, 0, 0, 0, index as u8]),
        mtu: 1500,
        up: true,
        addresses: Vec::new(),
    }
}

fn fib() -> Fib {
    let hop = NextHop { out: Out::Port(PortIndex(1)), gateway: None, mtu: 1500 };
    Fib::builder()
        .port(link(0))
        .port(link(1))
        .route("192.0.2.0/24".parse().unwrap(), Route::Forward(hop))
        .route(
            "10.0.0.0/24".parse().unwrap(),
            Route::Forward(NextHop { out: Out::Port(PortIndex(0)), ..hop }),
        )
        .neighbour(PortIndex(1), "192.0.2.9".parse().unwrap(), MacAddr([2, 0, 0, 0, 0, 9]))
        .build()
}
