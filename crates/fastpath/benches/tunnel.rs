//! One TCP stream through two gateways over veth pairs, hosts and workers all on this machine:
//! throughput, and what each worker costs. Needs root.
//!
//! `cargo bench -p testudo-fastpath --bench tunnel --
//! [--seconds N] [--rounds N] [--idle TURNS] [--rx N] [--tx N]`
#![allow(clippy::print_stdout)]

#[path = "../tests/labs/support/mod.rs"]
mod support;

use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use support::tunnel::{Gateway, Options, SERVER, Tunnel};
use testudo_fastpath::worker::WorkerTotals;

fn number(name: &str, default: u64) -> u64 {
    let mut arguments = std::env::args().skip_while(|argument| argument != name);
    arguments.nth(1).map_or(default, |text| text.parse().expect("a number"))
}

fn main() {
    let mut options = Options::default();
    options.worker.idle_turns = number("--idle", options.worker.idle_turns.into()) as u32;
    options.rx_ring = number("--rx", options.rx_ring.into()) as u32;
    options.tx_ring = number("--tx", options.tx_ring.into()) as u32;
    let duration = Duration::from_secs(number("--seconds", 5));
    println!(
        "{:>6} {:>8} | {:>9} {:>6} {:>9} {:>9} | {:>9} {:>6} {:>9} {:>9} | lost",
        "Gb/s",
        "kpkt/s",
        "cpu s/Gb",
        "cpu %",
        "pkt/turn",
        "sleeps/s",
        "cpu s/Gb",
        "cpu %",
        "pkt/turn",
        "sleeps/s"
    );
    for _ in 0..number("--rounds", 3) {
        round(options, duration);
    }
}

fn round(options: Options, duration: Duration) {
    let tunnel = Tunnel::new(options);
    let listener = tunnel.server.run(|| TcpListener::bind((SERVER, 5000)).unwrap());
    let address = (SERVER.parse::<IpAddr>().unwrap(), 5000).into();
    let patience = Duration::from_secs(10);
    let to = tunnel.client.run(|| TcpStream::connect_timeout(&address, patience).unwrap());
    let (from, _) = listener.accept().unwrap();
    let received = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let octets = vec![0x5a; 128 << 10];
            while (&to).write_all(&octets).is_ok() {}
        });
        scope.spawn(|| {
            let mut octets = vec![0; 128 << 10];
            while let Ok(count @ 1..) = (&from).read(&mut octets) {
                received.fetch_add(count as u64, Ordering::Relaxed);
            }
        });
        std::thread::sleep(Duration::from_millis(500));
        let before = Sample::take(&tunnel, &received);
        std::thread::sleep(duration);
        report(&before, &Sample::take(&tunnel, &received));
        // Ends both threads.
        let _ = to.shutdown(Shutdown::Both);
        let _ = from.shutdown(Shutdown::Both);
    });
}

struct Sample {
    at: Instant,
    octets: u64,
    cpu: [Duration; 2],
    totals: [WorkerTotals; 2],
}

impl Sample {
    fn take(tunnel: &Tunnel, received: &AtomicU64) -> Self {
        let gateways: [&Gateway; 2] = [&tunnel.left, &tunnel.right];
        Self {
            at: Instant::now(),
            octets: received.load(Ordering::Relaxed),
            cpu: gateways.map(|gateway| gateway.worker.cpu_time()),
            totals: gateways.map(|gateway| gateway.worker.counters().totals()),
        }
    }
}

fn packets(totals: &WorkerTotals) -> u64 {
    totals.ports.iter().map(|port| port.rx_packets).sum()
}

fn lost(totals: &WorkerTotals) -> u64 {
    let below = |port: &testudo_fastpath::worker::PortTotals| {
        port.below.rx_ring_full + port.below.fill_ring_empty + port.below.rx_dropped + port.below.tx_refused
    };
    totals.dropped + totals.dropped_by_pipeline + totals.ports.iter().map(below).sum::<u64>()
}

fn report(before: &Sample, after: &Sample) {
    let seconds = (after.at - before.at).as_secs_f64();
    let gigabits = (after.octets - before.octets) as f64 * 8e-9;
    let kpps = (packets(&after.totals[0]) - packets(&before.totals[0])) as f64 / seconds / 1e3;
    print!("{:>6.2} {kpps:>8.0}", gigabits / seconds);
    for side in 0..2 {
        let cpu = (after.cpu[side] - before.cpu[side]).as_secs_f64();
        let (was, is) = (&before.totals[side], &after.totals[side]);
        print!(
            " | {:>9.3} {:>6.0} {:>9.1} {:>9.0}",
            cpu / gigabits,
            100.0 * cpu / seconds,
            (packets(is) - packets(was)) as f64 / (is.turns - was.turns) as f64,
            (is.sleeps - was.sleeps) as f64 / seconds,
        );
    }
    println!(" | {} {}", lost(&after.totals[0]), lost(&after.totals[1]));
}
