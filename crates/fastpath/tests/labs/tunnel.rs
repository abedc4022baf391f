//! Two gateways with their workers, an SA pair between them, and real hosts on both sides.

use crate::hosts::{PATIENCE, eventually};
use crate::streams::{exchange, pattern};
use crate::support::receive;
use crate::support::tunnel::{CLIENT, Options, SERVER, Tunnel};
use std::net::UdpSocket;
use std::process::Command;
use std::time::{Duration, Instant};
use testudo_fastpath::worker::WorkerConfig;

#[test]
fn a_stream_crosses_the_tunnel_unharmed_both_ways() {
    const OCTETS: usize = 24 << 20;
    let tunnel = Tunnel::new(Options::default());
    exchange(&tunnel.client, &tunnel.server, OCTETS);
    for gateway in [&tunnel.left, &tunnel.right] {
        let totals = gateway.worker.counters().totals();
        let expected = (OCTETS / 1500) as u64;
        assert!(totals.ports.iter().all(|port| port.rx_packets > expected), "{totals:?}");
        assert_eq!(totals.dropped, 0, "{totals:?}");
        let pipeline = gateway.pipeline.totals();
        assert!(pipeline.outbound.is_balanced() && pipeline.inbound.is_balanced());
        assert!(pipeline.outbound.forwarded > expected && pipeline.inbound.forwarded > expected);
    }
    stop(tunnel);
}

#[test]
fn datagrams_too_big_for_the_tunnel_come_in_pieces() {
    let tunnel = Tunnel::new(Options::default());
    let (server, client) = (
        tunnel.server.run(|| UdpSocket::bind((SERVER, 5001)).unwrap()),
        tunnel.client.run(|| UdpSocket::bind((CLIENT, 5001)).unwrap()),
    );
    server.set_read_timeout(Some(PATIENCE)).unwrap();
    // Without "don't fragment", which UDP sockets set by default.
    let off = libc::IP_PMTUDISC_DONT;
    // SAFETY: reads a number.
    let result = unsafe {
        libc::setsockopt(
            std::os::fd::AsRawFd::as_raw_fd(&client),
            libc::IPPROTO_IP,
            libc::IP_MTU_DISCOVER,
            std::ptr::from_ref(&off).cast(),
            4,
        )
    };
    assert_eq!(result, 0);
    let datagram: Vec<u8> = (0..1472).map(pattern).collect();
    let mut received = [0; 2000];
    for _ in 0..20 {
        client.send_to(&datagram, (SERVER, 5001)).unwrap();
        let (len, _) = receive(&server, &mut received).unwrap();
        assert_eq!(&received[..len], datagram);
    }
    assert_eq!(tunnel.left.worker.counters().totals().split, 20);
    stop(tunnel);
}

#[test]
fn a_sender_learns_the_mtu_of_the_tunnel() {
    let tunnel = Tunnel::new(Options::default());
    let output = tunnel.client.run(|| {
        Command::new("ping")
            .args(["-M", "do", "-s", "1472", "-c", "1", "-W", "30", SERVER])
            .output()
            .expect("ping")
    });
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("Frag needed") || text.contains("message too long"), "{text}");
    let fits = tunnel.client.run(|| {
        Command::new("ping")
            .args(["-M", "do", "-s", "1400", "-c", "1", "-W", "30", SERVER])
            .output()
            .expect("ping")
    });
    assert!(fits.status.success());
    stop(tunnel);
}

/// How often each worker has gone to sleep so far.
fn sleeps(tunnel: &Tunnel) -> [u64; 2] {
    [&tunnel.left, &tunnel.right].map(|gateway| gateway.worker.counters().totals().sleeps)
}

/// Both workers go to sleep, once more at least.
fn await_rest(tunnel: &Tunnel, before: [u64; 2]) {
    eventually("both workers sleep", || sleeps(tunnel).iter().zip(before).all(|(now, before)| *now > before));
}

/// Workers that look for `busy_poll` before they sleep, and what sends one datagram from the client
/// to the server.
fn polling(busy_poll: Duration) -> (Tunnel, impl Fn()) {
    let usual = Options::default();
    let tunnel = Tunnel::new(Options { worker: WorkerConfig { busy_poll, ..usual.worker }, ..usual });
    let server = tunnel.server.run(|| UdpSocket::bind((SERVER, 5001)).unwrap());
    let client = tunnel.client.run(|| UdpSocket::bind((CLIENT, 5001)).unwrap());
    server.set_read_timeout(Some(PATIENCE)).unwrap();
    let carry = move || {
        client.send_to(b"are you awake?", (SERVER, 5001)).unwrap();
        receive(&server, &mut [0; 100]).unwrap();
    };
    (tunnel, carry)
}

/// Workers that poll do not sleep between packets, however long they have to wait for the next one.
#[test]
fn a_worker_that_polls_does_not_sleep_before_its_time_is_over() {
    let (tunnel, carry) = polling(Duration::from_secs(3600));
    for _ in 0..10 {
        carry();
        std::thread::sleep(Duration::from_millis(30));
    }
    assert_eq!(sleeps(&tunnel), [0, 0]);
    stop(tunnel);
}

#[test]
fn a_worker_that_polls_sleeps_when_its_time_is_over() {
    const POLL: Duration = Duration::from_millis(300);
    let (tunnel, carry) = polling(POLL);
    for _ in 0..3 {
        let begun = Instant::now();
        carry();
        await_rest(&tunnel, sleeps(&tunnel));
        assert!(begun.elapsed() >= POLL, "a worker sleeps too early: {:?}", begun.elapsed());
    }
    stop(tunnel);
}

#[test]
fn a_worker_that_does_not_poll_sleeps_between_packets() {
    let (tunnel, carry) = polling(Duration::ZERO);
    for _ in 0..10 {
        let before = sleeps(&tunnel);
        carry();
        await_rest(&tunnel, before);
    }
    stop(tunnel);
}

fn stop(tunnel: Tunnel) {
    let Tunnel { left, right, .. } = tunnel;
    for gateway in [left, right] {
        let counters = std::sync::Arc::clone(gateway.worker.counters());
        assert_eq!(gateway.worker.stop().unwrap(), 0, "frames leaked");
        let totals = counters.totals();
        assert!(totals.is_balanced(), "{totals:?}");
        assert!(totals.ports.iter().all(|port| port.below.stray == 0), "{totals:?}");
    }
}
