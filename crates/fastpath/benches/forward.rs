//! Packets a second that one worker forwards between two veth ports without encrypting: what AF_XDP
//! and the kernel cost, below which no tunnel can be. The kernel makes the packets on another core,
//! and drops them at the far end. Needs root.
//!
//! `cargo bench -p testudo-fastpath --bench forward --
//! [--seconds N] [--rx N] [--tx N] [--idle TURNS]`
#![allow(clippy::print_stdout)]

#[path = "../tests/labs/support/mod.rs"]
mod support;
mod wire;

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use support::bpf::{self, CALL, EXIT, MOV_IMM, insn};
use support::redirect::Redirect;
use testudo_fastpath::fib::{Fib, NextHop, Out, PortIndex, PortLink, Route};
use testudo_fastpath::filter::{Class, STAMP_MAGIC};
use testudo_fastpath::frame::{ChunkSize, FramePool};
use testudo_fastpath::mac::MacAddr;
use testudo_fastpath::port::Port;
use testudo_fastpath::port::xdp::{XdpConfig, XdpPort};
use testudo_fastpath::tun::Tun;
use testudo_fastpath::worker::{Worker, WorkerConfig, WorkerHandle};
use wire::Wire;

fn number(name: &str, default: u64) -> u64 {
    let mut arguments = std::env::args().skip_while(|argument| argument != name);
    arguments.nth(1).map_or(default, |text| text.parse().expect("a number"))
}

fn main() {
    println!(
        "{:>6} {:>9} {:>8} {:>9} {:>9} {:>9}  lost below",
        "octets", "kpkt/s", "Gb/s", "cpu ns", "pkt/turn", "sleeps/s"
    );
    for length in [98, 512, 1434] {
        support::in_namespace(move || measure(length));
    }
}

fn measure(length: usize) {
    support::veth("src", "left");
    support::veth("right", "dst");
    let (rx, tx) = (number("--rx", 2048) as u32, number("--tx", 2048) as u32);
    let pool = FramePool::new(2 * (rx + tx) as usize + 1024, ChunkSize::K2).unwrap();
    let open = |place: u16, name: &str| {
        let config = XdpConfig { rx_ring: rx, tx_ring: tx, ..XdpConfig::new(PortIndex(place), name) };
        XdpPort::open(&config, pool.memory()).unwrap()
    };
    let (left, right) = (open(0, "left"), open(1, "right"));
    let redirect = Redirect::attach(left.info().ifindex, [STAMP_MAGIC, Class::Protect as u8, 0, 0]);
    redirect.set(0, left.fd().unwrap());
    let drop_all = bpf::load(&[insn(MOV_IMM, 0, 0, 0, bpf::XDP_DROP), insn(EXIT, 0, 0, 0, 0)]);
    let _sink = bpf::attach(&drop_all, index("dst"));
    // A frame redirected to a veth needs a program at the peer, which `left` has, and is sent by
    // `src`.
    let send = bpf::load(&[
        insn(MOV_IMM, 1, 0, 0, index("src") as i32),
        insn(MOV_IMM, 2, 0, 0, 0),
        insn(CALL, 0, 0, 0, 23), // bpf_redirect
        insn(EXIT, 0, 0, 0, 0),
    ]);
    let fib = Arc::new(fib(&right));
    // There is a route to where the packets go, and none to where they come from.
    let mut config = WorkerConfig { unchecked: [PortIndex(0)].into_iter().collect(), ..WorkerConfig::new(0) };
    config.idle_turns = number("--idle", config.idle_turns.into()) as u32;
    let worker = Worker::new(config, vec![left, right], None::<Tun>, pool, fib, Wire).unwrap();
    let worker = WorkerHandle::spawn(worker).unwrap();
    let (stop, frame) = (AtomicBool::new(false), frame(length));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                bpf::run_live(&send, &frame, 1 << 14);
            }
        });
        std::thread::sleep(Duration::from_millis(300));
        report(&worker, length, Duration::from_secs(number("--seconds", 3)));
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(worker.stop().unwrap(), 0, "frames leaked");
}

fn report(worker: &WorkerHandle, length: usize, duration: Duration) {
    let sample = || (Instant::now(), worker.cpu_time(), worker.counters().totals());
    let (begun, cpu_before, before) = sample();
    std::thread::sleep(duration);
    let (ended, cpu_after, after) = sample();
    let packets = (after.ports[1].tx_packets - before.ports[1].tx_packets) as f64;
    let seconds = (ended - begun).as_secs_f64();
    println!(
        "{length:>6} {:>9.0} {:>8.2} {:>9.0} {:>9.1} {:>9.0}  {:?}",
        packets / seconds / 1e3,
        packets * length as f64 * 8e-9 / seconds,
        (cpu_after - cpu_before).as_nanos() as f64 / packets,
        packets / (after.turns - before.turns) as f64,
        (after.sleeps - before.sleeps) as f64 / seconds,
        after.ports[0].below,
    );
}

fn index(name: &str) -> u32 {
    nix::net::if_::if_nametoindex(name).unwrap()
}

fn frame(length: usize) -> Vec<u8> {
    let mut frame = vec![0; length];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0]);
    frame[14..26].copy_from_slice(&[0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0]);
    frame[16..18].copy_from_slice(&((length - 14) as u16).to_be_bytes());
    frame[26..30].copy_from_slice(&Ipv4Addr::new(10, 0, 0, 1).octets());
    frame[30..34].copy_from_slice(&Ipv4Addr::new(192, 0, 2, 9).octets());
    frame
}

fn fib(right: &XdpPort) -> Fib {
    let info = right.info();
    let link = PortLink {
        index: info.index,
        name: info.name.clone(),
        ifindex: info.ifindex,
        mac: info.mac,
        mtu: info.mtu,
        up: true,
        addresses: Vec::new(),
    };
    let hop = NextHop { out: Out::Port(info.index), gateway: None, mtu: info.mtu };
    Fib::builder()
        .port(link)
        .route("192.0.2.0/24".parse().unwrap(), Route::Forward(hop))
        .neighbour(info.index, "192.0.2.9".parse().unwrap(), MacAddr([2, 0, 0, 0, 0, 9]))
        .build()
}
