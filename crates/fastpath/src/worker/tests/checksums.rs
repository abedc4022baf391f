//! Checksums that neighbours have left open.

use super::stealing::{member_with, numbered};
use super::*;

/// A UDP datagram with its checksum, or with the sum of the pseudo-header in the checksum's place.
fn udp(src: &str, dst: &str, open: bool) -> Vec<u8> {
    let mut packet = ipv4(src, dst, 60, true);
    packet[20..28].copy_from_slice(&[0x30, 0x39, 0, 9, 0, 40, 0, 0]);
    let pseudo = Sum::new().pseudo_v4(src.parse().unwrap(), dst.parse().unwrap(), 17, 40);
    let field = if open { !pseudo.finish() } else { pseudo.bytes(&packet[20..]).finish_udp() };
    packet[26..28].copy_from_slice(&field.to_be_bytes());
    packet
}

/// A worker whose pipeline forwards everything, and that completes checksums of packets from these
/// ports.
fn filling(ports: &[usize]) -> TestWorker {
    let mut worker = worker(full_fib());
    worker.config.fills = ports.iter().map(|port| PortIndex(*port as u16)).collect();
    worker
}

fn packets(worker: &mut TestWorker, place: usize) -> Vec<Vec<u8>> {
    sent(worker, place).into_iter().map(|(_, packet)| packet).collect()
}

fn filled(worker: &TestWorker) -> u64 {
    worker.counters().totals().checksum_filled
}

#[test]
fn checksums_are_completed_before_encryption() {
    for class in [Class::Protect, Class::ProtectFlooded] {
        let mut worker = filling(&[LAN]);
        for open in [true, false, true] {
            arrive(&mut worker, LAN, &udp(CLIENT, PEER, open), class);
        }
        worker.turn(1);
        assert_eq!(packets(&mut worker, WAN), vec![udp(CLIENT, PEER, false); 3]);
        assert_eq!(filled(&worker), 2);
        check_and_close(worker);
    }
}

#[test]
fn a_port_that_is_trusted_is_left_alone() {
    let mut worker = filling(&[WAN]);
    arrive(&mut worker, LAN, &udp(CLIENT, PEER, true), Class::Protect);
    worker.turn(1);
    assert_eq!(packets(&mut worker, WAN), [udp(CLIENT, PEER, true)]);
    assert_eq!(filled(&worker), 0);
    check_and_close(worker);
}

/// Also a packet that was to come protected, and is judged.
#[test]
fn packets_to_the_kernel_have_complete_checksums() {
    let mut worker = filling(&[LAN, WAN]);
    worker.pipeline_mut().outbound = Some(|_| Verdict::ToHost);
    arrive(&mut worker, LAN, &udp(CLIENT, PEER, true), Class::Protect);
    arrive(&mut worker, WAN, &udp(PEER, CLIENT, true), Class::Clear);
    worker.turn(1);
    let expected = [udp(CLIENT, PEER, false), udp(PEER, CLIENT, false)];
    assert_eq!(worker.host_mut().unwrap().written, expected);
    assert_eq!(filled(&worker), 2);
    check_and_close(worker);
}

#[test]
fn esp_and_forged_packets_are_not_looked_at() {
    let mut worker = filling(&[LAN, WAN]);
    arrive(&mut worker, WAN, &udp(PEER, CLIENT, true), Class::Esp);
    arrive(&mut worker, WAN, &udp(CLIENT, PEER, true), Class::Protect);
    worker.turn(1);
    assert_eq!(packets(&mut worker, LAN), [udp(PEER, CLIENT, true)]);
    assert_eq!((dropped(&worker, WorkerDrop::SpoofedSource), filled(&worker)), (1, 0));
    check_and_close(worker);
}

/// Its own ports have other numbers, or it has none.
#[test]
fn a_worker_that_helps_fills_in_what_the_owners_port_asks_for() {
    let pool = numbered(2);
    let mut owner = member_with(2 * FRAMES, 0, vec![deep(0), deep(1)], &pool);
    let mut helper = member_with(2 * FRAMES, 1, Vec::new(), &pool);
    owner.config.fills = [PortIndex(LAN as u16)].into_iter().collect();
    helper.turn(1);
    for _ in 0..BURST {
        let frame = stamped(owner.pool_mut(), &udp(CLIENT, PEER, true), Class::Protect as u8);
        owner.port_mut(LAN).unwrap().deliver(frame).unwrap();
    }
    owner.receive(LAN);
    assert!(owner.has_tasks() && helper.steal());
    owner.turn(1);
    let mut fields = Vec::new();
    while let Some(frame) = owner.port_mut(WAN).unwrap().sent() {
        fields.push(frame.data()[14..][26..28].to_vec());
        owner.pool_mut().give(frame);
    }
    assert_eq!(fields, vec![udp(CLIENT, PEER, false)[26..28].to_vec(); BURST]);
    let counted = [&owner, &helper].map(|worker| worker.counters().totals().checksum_filled);
    assert_eq!(counted, [0, BURST as u64]);
    assert_eq!((owner.close(), helper.close()), (0, 0));
}
