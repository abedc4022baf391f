//! Packets that come before their SA.

use super::super::early::{EARLY_TIMEOUT_MS, MAX_EARLY_PACKETS};
use super::*;
use std::net::SocketAddr;
use testudo_base::spi::Spi;
use testudo_crypto::Library;
use testudo_ipsec::sa::{
    ChildSaParams, Encapsulation, EspAlgorithm, HeaderCopy, InboundSa, KeyMaterial, Mode,
};
use testudo_ipsec::selector::{AddrRange, TrafficSelector};
use testudo_ipsec::spd::PolicyId;

const SPI: Spi = Spi(0xb200_0802);
const OTHER: Spi = Spi(0xb200_0c03);

/// The SA with that SPI comes, and from now on the pipeline takes packets in.
fn install(worker: &mut TestWorker, spi: Spi) {
    let any = AddrRange::new(addr("0.0.0.0"), addr("255.255.255.255")).unwrap();
    let everything = vec![TrafficSelector::all(any)];
    let params = ChildSaParams {
        spi_in: spi,
        spi_out: Spi(0xa100_0401),
        algorithm: EspAlgorithm::Aes128Gcm16,
        key_in: KeyMaterial(vec![1; 20]),
        key_out: KeyMaterial(vec![2; 20]),
        esn: true,
        replay_window: 64,
        local_ts: everything.clone(),
        remote_ts: everything,
        local: SocketAddr::new(addr("192.0.2.1"), 0),
        remote: SocketAddr::new(addr(PEER), 0),
        encapsulation: Encapsulation::Plain,
        mode: Mode::Tunnel,
        copy: HeaderCopy::default(),
    };
    let sa = Arc::new(InboundSa::new(&params, PolicyId(0), 1500, Library::detect()).unwrap());
    tell(worker, Command::AddInbound(sa));
    worker.pipeline_mut().inbound = None;
}

/// A worker whose pipeline knows no SA, and uses a packet's TTL as its SPI.
fn without_sa() -> TestWorker {
    let mut worker = worker(full_fib());
    worker.pipeline_mut().inbound = Some(early);
    worker
}

fn early(item: &mut Item<'_>) -> Verdict {
    Verdict::Early(if item.buf.data()[8] == 64 { SPI } else { OTHER })
}

fn packet(length: usize) -> Vec<u8> {
    ipv4(PEER, CLIENT, length, true)
}

fn of_other(length: usize) -> Vec<u8> {
    let mut packet = packet(length);
    packet[8] = 63;
    packet[10..12].fill(0);
    let checksum = Sum::new().bytes(&packet[..20]).finish();
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    packet
}

fn lengths(worker: &mut TestWorker) -> Vec<usize> {
    sent(worker, LAN).iter().map(|(_, packet)| packet.len()).collect()
}

fn counted(worker: &mut TestWorker) -> (u64, u64, u64) {
    let totals = worker.counters().totals();
    (totals.held, totals.dropped_by_pipeline, worker.pipeline_mut().given_up)
}

#[test]
fn a_packet_waits_for_its_sa_and_comes_before_later_ones() {
    let mut worker = without_sa();
    for length in 60..63 {
        arrive(&mut worker, WAN, &packet(length), Class::Esp);
    }
    arrive(&mut worker, WAN, &of_other(63), Class::Esp);
    worker.turn(1);
    assert_eq!(counted(&mut worker), (4, 0, 0));

    arrive(&mut worker, WAN, &packet(70), Class::Esp);
    install(&mut worker, SPI);
    worker.turn(2);
    assert_eq!(lengths(&mut worker), [60, 61, 62, 70]);
    assert_eq!(counted(&mut worker), (1, 0, 0), "the other one waits still");

    install(&mut worker, OTHER);
    worker.turn(3);
    assert_eq!(lengths(&mut worker), [63]);
    assert_eq!(counted(&mut worker), (0, 0, 0));
    check_and_close(worker);
}

/// They might belong together: the policy that a packet is judged by comes with the SA.
#[test]
fn early_packets_are_retried_after_all_commands() {
    let mut worker = worker(fib(&[]));
    worker.pipeline_mut().inbound = Some(early);
    arrive(&mut worker, WAN, &packet(60), Class::Esp);
    worker.turn(1);
    install(&mut worker, SPI);
    worker.delivery.channel.commands.push(WorkerCommand::Fib(full_fib())).unwrap();
    worker.turn(2);
    assert_eq!(lengths(&mut worker), [60]);
    assert!(worker.delivery.channel.events.is_empty(), "no neighbour is missing");
    check_and_close(worker);
}

#[test]
fn early_packets_expire_after_a_second() {
    let mut worker = without_sa();
    arrive(&mut worker, WAN, &packet(60), Class::Esp);
    worker.turn(5000);
    worker.turn(5000 + EARLY_TIMEOUT_MS - 1);
    assert_eq!(counted(&mut worker), (1, 0, 0));
    worker.turn(5000 + EARLY_TIMEOUT_MS + TICK_MS);
    assert_eq!(counted(&mut worker), (0, 1, 1));
    install(&mut worker, SPI);
    worker.turn(6200);
    assert!(lengths(&mut worker).is_empty());
    check_and_close(worker);
}

#[test]
fn a_flood_takes_few_frames_and_the_latest_stay() {
    let mut worker = without_sa();
    for length in 0..300 {
        arrive(&mut worker, WAN, &packet(60 + length), Class::Esp);
        worker.turn(1);
    }
    assert_eq!(
        counted(&mut worker),
        (MAX_EARLY_PACKETS as u64, 300 - MAX_EARLY_PACKETS as u64, 300 - MAX_EARLY_PACKETS as u64)
    );
    assert_eq!(worker.pool_mut().available(), FRAMES - MAX_EARLY_PACKETS);
    install(&mut worker, SPI);
    worker.turn(2);
    assert_eq!(lengths(&mut worker), (360 - MAX_EARLY_PACKETS..360).collect::<Vec<_>>());
    check_and_close(worker);
}

/// Others need jumbo frames too: packets in fragments, and TCP from the kernel.
#[test]
fn a_flood_of_large_packets_takes_a_quarter_of_the_jumbo_frames() {
    let mut pool = FramePool::with_jumbo(FRAMES, 32, ChunkSize::K2).unwrap();
    let large: Vec<Frame> = (0..20)
        .map(|number| {
            let mut frame = pool.take_jumbo().unwrap();
            let small = stamped(&mut pool, &packet(1500 - number), Class::Esp as u8);
            let end = usize::from(small.start() + small.len());
            assert!(frame.set_extent(small.start().into(), small.len().into()));
            frame.bytes_mut()[..end].copy_from_slice(&small.bytes()[..end]);
            pool.give(small);
            frame
        })
        .collect();
    let mut worker = Worker::new(
        WorkerConfig::new(0),
        vec![port(0), port(1)],
        Some(FakeTun::default()),
        pool,
        full_fib(),
        Scripted { inbound: Some(early), ..Scripted::default() },
    )
    .unwrap();
    arrive(&mut worker, WAN, &packet(60), Class::Esp);
    for frame in large {
        worker.port_mut(WAN).unwrap().deliver(frame).unwrap();
    }
    worker.turn(1);
    assert_eq!(counted(&mut worker), (9, 12, 12));
    install(&mut worker, SPI);
    worker.turn(2);
    let latest = (1500 - 19..=1500 - 12).rev();
    assert_eq!(lengths(&mut worker), std::iter::once(60).chain(latest).collect::<Vec<_>>());
    check_and_close(worker);
}

#[test]
fn an_sa_that_was_not_taken_leaves_them_waiting() {
    let mut worker = without_sa();
    arrive(&mut worker, WAN, &packet(60), Class::Esp);
    worker.turn(1);
    install(&mut worker, SPI);
    worker.pipeline_mut().inbound = Some(early);
    worker.turn(2);
    assert_eq!(counted(&mut worker), (1, 0, 0));
    // And what waits at the end is no frame lost.
    check_and_close(worker);
}
