//! SAs that are renewed all the time, under load, by several workers on real interfaces: no packet
//! is lost.
#![allow(clippy::print_stdout)]

use crate::support::gateway::{Gateway, Line, TUNNELS, server};
use crate::support::receive;
use crate::support::tunnel::CLIENT;
use std::collections::VecDeque;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use testudo_fastpath::worker::WorkerDrop;

/// Flows of each tunnel: enough for each queue to get some, however they are hashed.
const FLOWS: usize = 8;
/// Datagrams of a flow on their way, there and back. All of them together fit into the ring of one
/// queue, so that whatever is lost was lost by a worker.
const IN_FLIGHT: u64 = 8;
const SIZE: usize = 600;
/// A datagram that takes longer is lost.
const PATIENCE: Duration = Duration::from_secs(60);

/// SAs that are renewed, and how many a second are tried.
const RENEWALS: u32 = 6000;
const TRIED: u32 = 2000;
/// Rounds of a tunnel's conversation after which no packet of a replaced SA from before them is in
/// transit: the packets of one round may reach the workers before they check their commands, those
/// of the next find these executed.
const OVERLAP: u64 = 3;

/// Rounds that each tunnel's conversation has come through.
type Rounds = [AtomicU64; TUNNELS as usize];

/// Sends numbered datagrams on each flow and hears each of them come back, in order, round by
/// round.
fn converse(sockets: &[UdpSocket], rounds: &AtomicU64, over: &AtomicBool) {
    let mut next = vec![0u64; sockets.len()];
    while !over.load(Ordering::Relaxed) {
        for (socket, next) in sockets.iter().zip(&next) {
            for number in *next..*next + IN_FLIGHT {
                let datagram = [&number.to_be_bytes()[..], &[0x5a; SIZE - 8]].concat();
                socket.send(&datagram).expect("send");
            }
        }
        for (socket, next) in sockets.iter().zip(&mut next) {
            for _ in 0..IN_FLIGHT {
                let mut datagram = [0; SIZE + 1];
                let found = receive(socket, &mut datagram);
                let (len, _) = found.unwrap_or_else(|e| panic!("datagram {next}: {e}"));
                let number = u64::from_be_bytes(*datagram.first_chunk().unwrap());
                assert_eq!((len, number), (SIZE, *next), "lost, or out of order");
                *next += 1;
            }
        }
        rounds.fetch_add(1, Ordering::Release);
    }
}

/// Sends back what comes.
fn echo(socket: &UdpSocket, over: &AtomicBool) {
    let mut datagram = [0; 2000];
    while !over.load(Ordering::Relaxed) {
        if let Ok((len, from)) = socket.recv_from(&mut datagram) {
            socket.send_to(&datagram[..len], from).expect("send back");
        }
    }
}

/// Rekeys the SAs of all tunnels in turn, and continues until all replaced ones are gone and there
/// was a load. Ends early if a conversation does.
fn renew_all(line: &mut Line, rounds: &Rounds, has_ended: impl Fn() -> bool) {
    let (begun, mut old) = (Instant::now(), VecDeque::new());
    let round = |tunnel: u16| rounds[usize::from(tunnel)].load(Ordering::Acquire);
    let mut number = 0;
    while (number < RENEWALS || !old.is_empty() || heard(rounds) <= RENEWALS.into()) && !has_ended() {
        let due = begun + Duration::from_secs(1) * number / TRIED;
        std::thread::sleep(due.saturating_duration_since(Instant::now()).max(Duration::from_micros(100)));
        if number < RENEWALS {
            let tunnel = (number % u32::from(TUNNELS)) as u16;
            let former = line.renew(tunnel);
            old.push_back((round(tunnel) + OVERLAP, tunnel, former));
            number += 1;
        }
        while let Some((_, tunnel, former)) = old.pop_front_if(|(until, tunnel, _)| round(*tunnel) >= *until)
        {
            line.remove(tunnel, former);
        }
        line.left.attend();
        line.right.attend();
    }
}

/// Datagrams that have come back so far.
fn heard(rounds: &Rounds) -> u64 {
    rounds.iter().map(|rounds| rounds.load(Ordering::Acquire)).sum::<u64>() * FLOWS as u64 * IN_FLIGHT
}

fn lose_nothing(queues: u16) {
    let mut line = Line::new(queues);
    let clients: Vec<Vec<UdpSocket>> = line.client.run(|| {
        let connect = |tunnel: u16| {
            let socket = UdpSocket::bind((CLIENT, 0)).unwrap();
            socket.connect(SocketAddr::from((server(tunnel), 5000))).unwrap();
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            socket
        };
        (0..TUNNELS).map(|tunnel| (0..FLOWS).map(|_| connect(tunnel)).collect()).collect()
    });
    let servers: Vec<UdpSocket> = line.server.run(|| {
        let bind = |tunnel: u16| UdpSocket::bind((server(tunnel), 5000)).unwrap();
        (0..TUNNELS).map(bind).collect()
    });
    for socket in &servers {
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    }
    let (sent, all) = (AtomicBool::new(false), AtomicBool::new(false));
    let rounds = Rounds::default();
    let talked = std::thread::scope(|scope| {
        servers.iter().for_each(|socket| drop(scope.spawn(|| echo(socket, &all))));
        let each = clients.iter().zip(&rounds);
        let talks: Vec<_> =
            each.map(|(sockets, rounds)| scope.spawn(|| converse(sockets, rounds, &sent))).collect();
        renew_all(&mut line, &rounds, || talks.iter().any(|talk| talk.is_finished()));
        sent.store(true, Ordering::Relaxed);
        // All of them, before those end that echo: one that failed is no reason for the others to.
        let ended: Vec<_> = talks.into_iter().map(|talk| talk.join()).collect();
        all.store(true, Ordering::Relaxed);
        ended.into_iter().collect::<Result<(), _>>()
    });
    let Line { left, right, .. } = line;
    let states = [balance(left), balance(right)];
    talked.unwrap_or_else(|_| panic!("a conversation ended: {states:#?}"));
    println!(
        "{queues} workers: {} datagrams there and back while {RENEWALS} SAs were renewed",
        heard(&rounds)
    );
    for (drops, received) in states {
        assert!(drops.is_empty(), "{drops:?}");
        assert!(received.iter().all(|packets| *packets > 100), "a worker without work: {received:?}");
    }
}

/// Ends a gateway, whose counters must add up: what its workers have dropped, by reason, and
/// received, by worker.
fn balance(gateway: Gateway) -> (Vec<String>, Vec<u64>) {
    let (mut drops, mut received) = (Vec::new(), Vec::new());
    for (worker, pipeline) in gateway.workers.into_iter().zip(&gateway.pipelines) {
        let counters = std::sync::Arc::clone(worker.counters());
        assert_eq!(worker.stop().unwrap(), 0, "frames leaked");
        let totals = counters.totals();
        assert!(totals.is_balanced(), "{totals:?}");
        assert!(pipeline.totals().outbound.is_balanced() && pipeline.totals().inbound.is_balanced());
        received.push(totals.ports.iter().map(|port| port.rx_packets).sum());
        let own = WorkerDrop::ALL.into_iter().map(|reason| (reason.name(), counters.dropped(reason)));
        let of_pipeline = testudo_ipsec::drops::DropReason::ALL
            .into_iter()
            .map(|reason| (reason.name(), pipeline.dropped(reason)));
        let below = totals.ports.iter().flat_map(|port| {
            let below = &port.below;
            [("rx_ring_full", below.rx_ring_full), ("fill_ring_empty", below.fill_ring_empty)]
        });
        let dropped = own.chain(of_pipeline).chain(below).filter(|(_, count)| *count > 0);
        drops.extend(dropped.map(|(reason, count)| format!("{reason} {count}")));
    }
    (drops, received)
}

#[test]
fn workers_lose_nothing_while_sas_change() {
    // One after the other: each takes all processors.
    for queues in [2, 4] {
        lose_nothing(queues);
    }
}
