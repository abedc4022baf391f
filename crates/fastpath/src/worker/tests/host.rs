//! Large TCP segments from the kernel and to it.

use super::*;
use testudo_wire::offload::{Look, look};

/// A TCP segment from this machine, or to it, with all checksums.
fn tcp(src: &str, dst: &str, seq: u32, payload: &[u8]) -> Vec<u8> {
    let mut tcp = vec![0x30, 0x39, 0x14, 0x51];
    tcp.extend(seq.to_be_bytes());
    tcp.extend([0, 0, 0, 9, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
    tcp.extend(payload);
    let mut packet = ipv4(src, dst, 20 + tcp.len(), true);
    packet[9] = 6;
    packet[10..12].fill(0);
    let checksum = Sum::new().bytes(&packet[..20]).finish();
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    let pseudo = Sum::new().pseudo_v4(src.parse().unwrap(), dst.parse().unwrap(), 6, tcp.len() as u16);
    let checksum = pseudo.bytes(&tcp).finish();
    tcp[16..18].copy_from_slice(&checksum.to_be_bytes());
    packet[20..].copy_from_slice(&tcp);
    packet
}

/// The kernel sends `payload` octets, to be cut into segments of `size`.
fn large(worker: &mut TestWorker, payload: usize, size: u16) -> Vec<u8> {
    let payload: Vec<u8> = (0..payload).map(|at| (at % 251) as u8).collect();
    let host = worker.host_mut().unwrap();
    host.to_read.push_back(tcp("10.0.0.1", PEER, 5, &payload));
    host.offloads.push_back(Offload::Tcp { v6: false, size, start: 20, headers: 40 });
    payload
}

/// Payload of what a port has sent, each packet valid.
fn payload(worker: &mut TestWorker, place: usize) -> (usize, Vec<u8>) {
    let packets = sent(worker, place);
    let valid = |packet: &Vec<u8>| matches!(look(packet), Look::Mergeable(..));
    assert!(packets.iter().all(|(_, packet)| valid(packet)));
    (packets.len(), packets.iter().flat_map(|(_, packet)| packet[40..].to_vec()).collect())
}

#[test]
fn a_large_segment_leaves_in_pieces() {
    let mut worker = worker(full_fib());
    let expected = large(&mut worker, 60_000, 1400);
    worker.turn(1);
    let (count, sent) = payload(&mut worker, WAN);
    assert_eq!((count, sent == expected), (43, true));
    let totals = worker.counters().totals();
    assert_eq!((totals.from_tun, totals.split), (1, 42));
    check_and_close(worker);
}

#[test]
fn more_segments_than_a_burst_take_several_turns() {
    let mut worker = worker(full_fib());
    let expected = large(&mut worker, 60_000, 500);
    let mut all = Vec::new();
    for (turn, count) in [(1, 64), (2, 56)] {
        worker.turn(turn);
        let (found, part) = payload(&mut worker, WAN);
        assert_eq!(found, count);
        all.extend(part);
    }
    assert!(all == expected);
    check_and_close(worker);
}

#[test]
fn a_packet_waits_for_frames() {
    let mut worker = worker(full_fib());
    let expected = large(&mut worker, 60_000, 1400);
    let available = worker.pool_mut().available();
    let mut away: Vec<_> = (10..available).map(|_| worker.pool_mut().take().unwrap()).collect();
    worker.turn(1);
    let (count, mut all) = payload(&mut worker, WAN);
    assert!(count > 0 && count <= 10 && worker.inbox.is_waiting(), "{count}");
    away.drain(..).for_each(|frame| worker.pool_mut().give(frame));
    worker.turn(2);
    all.extend(payload(&mut worker, WAN).1);
    assert!(all == expected);
    check_and_close(worker);
}

#[test]
fn impossible_offloads_of_the_kernel_are_counted() {
    let mut worker = worker(full_fib());
    let host = worker.host_mut().unwrap();
    for offload in [
        Offload::Checksum { start: 90, offset: 16 },
        Offload::Tcp { v6: false, size: 100, start: 20, headers: 40 },
    ] {
        // No TCP.
        host.to_read.push_back(ipv4("10.0.0.1", PEER, 100, true));
        host.offloads.push_back(offload);
    }
    worker.turn(1);
    assert_eq!((dropped(&worker, WorkerDrop::BadOffload), worker.counters().totals().from_tun), (2, 2));
    // No frame is as large as its segments.
    large(&mut worker, 60_000, 2000);
    (0..20).for_each(|_| {
        worker.turn(2);
    });
    assert_eq!(dropped(&worker, WorkerDrop::NoFrame), 1);
    check_and_close(worker);
}

#[test]
fn what_the_kernel_sends_without_a_source_ends_at_the_tun() {
    let mut worker = worker(full_fib());
    // An MLDv2 report (RFC 3810 §5.2.13), and a packet of an address.
    let mut report = vec![0x60, 0, 0, 0, 0, 0, 58, 1];
    report.extend([0; 16]);
    report.extend("ff02::16".parse::<std::net::Ipv6Addr>().unwrap().octets());
    let host = worker.host_mut().unwrap();
    host.to_read.extend([report, ipv4("0.0.0.0", PEER, 100, true), ipv4("10.0.0.1", PEER, 100, true)]);
    host.offloads.extend([Offload::None; 3]);
    worker.turn(1);
    assert_eq!((dropped(&worker, WorkerDrop::NoSource), worker.counters().totals().from_tun), (2, 3));
    assert_eq!(sent(&mut worker, WAN).len(), 1);
    // A flood of them takes turns with the ports.
    let host = worker.host_mut().unwrap();
    host.to_read.extend((0..2 * BURST).map(|_| ipv4("0.0.0.0", PEER, 100, true)));
    worker.turn(2);
    assert_eq!(worker.host_mut().unwrap().to_read.len(), BURST);
    check_and_close(worker);
}

#[test]
fn segments_of_a_flow_reach_the_kernel_as_one() {
    let mut worker = worker(full_fib());
    let other = ipv4(PEER, "10.0.0.1", 80, true);
    let mut expected = Vec::new();
    for at in 0..40u32 {
        let payload = vec![at as u8; 1000];
        arrive(&mut worker, WAN, &tcp(PEER, "10.0.0.1", 7 + at * 1000, &payload), Class::Esp);
        expected.extend(payload);
        if at == 20 {
            arrive(&mut worker, WAN, &other, Class::Esp);
        }
    }
    worker.turn(1);
    let host = worker.host_mut().unwrap();
    assert_eq!(host.left, [Offload::Tcp { v6: false, size: 1000, start: 20, headers: 40 }, Offload::None]);
    assert!(host.written[0][40..] == expected && host.written[1] == other);
    let totals = worker.counters().totals();
    assert_eq!((totals.to_tun, totals.merged), (2, 39));
    check_and_close(worker);
}

#[test]
fn a_wrong_segment_goes_as_it_came_and_where_it_came() {
    let mut worker = worker(full_fib());
    let mut packets: Vec<_> = (0..4u32).map(|at| tcp(PEER, "10.0.0.1", at * 100, &[at as u8; 100])).collect();
    packets[2][60] ^= 1;
    for packet in &packets {
        arrive(&mut worker, WAN, packet, Class::Esp);
    }
    worker.turn(1);
    let written = &worker.host_mut().unwrap().written;
    assert_eq!(written.len(), 3);
    assert_eq!((&written[1], &written[2]), (&packets[2], &packets[3]));
    check_and_close(worker);
}

#[test]
fn merged_packets_that_the_kernel_refuses_are_all_counted() {
    let mut worker = worker(full_fib());
    worker.host_mut().unwrap().broken = true;
    for at in 0..5u32 {
        arrive(&mut worker, WAN, &tcp(PEER, "10.0.0.1", at * 100, &[1; 100]), Class::Esp);
    }
    worker.turn(1);
    assert_eq!(dropped(&worker, WorkerDrop::TunWriteFailed), 5);
    check_and_close(worker);
}

#[test]
fn a_full_burst_to_the_kernel_makes_room_for_the_next() {
    let mut worker = worker(full_fib());
    for at in 0..150u32 {
        arrive(&mut worker, WAN, &tcp(PEER, "10.0.0.1", at * 100, &[1; 100]), Class::Esp);
        arrive(&mut worker, LAN, &ipv4(CLIENT, "172.16.0.1", 100, true), Class::Protect);
    }
    (1..9).for_each(|turn| {
        worker.turn(turn);
    });
    let totals = worker.counters().totals();
    assert_eq!(totals.to_tun + totals.merged, 300);
    check_and_close(worker);
}
