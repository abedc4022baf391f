//! Fragments that are put together before the pipeline looks at them.

use super::*;

/// A worker that has jumbo frames too, and whose pipeline accepts whole packets only.
fn joining() -> TestWorker {
    let pool = FramePool::for_mtu(1500, FRAMES, 0).unwrap();
    let ports = vec![port(0), port(1)];
    let tun = Some(FakeTun::default());
    let mut worker =
        Worker::new(WorkerConfig::new(0), ports, tun, pool, full_fib(), Scripted::default()).unwrap();
    worker.pipeline_mut().inbound = Some(|item| match Ipv4::parse_verified(item.buf.data()) {
        Ok(ip) if ip.is_fragment() => Verdict::Reassemble,
        Ok(_) => Verdict::Forward,
        Err(_) => Verdict::Drop(DropReason::Malformed),
    });
    worker
}

pub(super) fn pieces(packet: &[u8], mtu: u16) -> Vec<Vec<u8>> {
    let mut out = [0; 1500];
    let mut pieces = Vec::new();
    let mut fragments = testudo_wire::ipv4::fragment(packet, mtu).unwrap();
    while let Some(len) = fragments.write_next(&mut out).unwrap() {
        pieces.push(out[..len].to_vec());
    }
    pieces
}

#[test]
fn a_packet_goes_on_when_its_last_fragment_has_come() {
    let mut worker = joining();
    let packet = ipv4(PEER, CLIENT, 1400, false);
    let pieces = pieces(&packet, 576);
    let (last, first) = pieces.split_last().unwrap();
    for piece in first {
        arrive(&mut worker, WAN, piece, Class::Esp);
    }
    worker.turn(1);
    assert!(sent(&mut worker, LAN).is_empty());
    assert_eq!(worker.counters().totals().held, first.len() as u64);
    arrive(&mut worker, WAN, last, Class::Esp);
    worker.turn(2);
    let found: Vec<Vec<u8>> = sent(&mut worker, LAN).into_iter().map(|(_, packet)| packet).collect();
    assert_eq!(found, [packet]);
    let totals = worker.counters().totals();
    assert_eq!((totals.held, totals.joined), (0, first.len() as u64));
    check_and_close(worker);
}

/// It is put together in a larger frame, and leaves in frames of the link's size.
#[test]
fn a_packet_may_be_larger_than_a_frame() {
    let mut worker = joining();
    let packet = ipv4(PEER, CLIENT, 5000, false);
    for piece in pieces(&packet, 1400) {
        arrive(&mut worker, WAN, &piece, Class::Esp);
    }
    worker.turn(1);
    let found = sent(&mut worker, LAN);
    let octets: usize = found.iter().map(|(_, piece)| piece.len() - 20).sum();
    assert_eq!((found.len(), octets), (4, 4980));
    check_and_close(worker);
}

#[test]
fn incomplete_datagrams_expire_and_are_counted() {
    let mut worker = joining();
    let pieces = pieces(&ipv4(PEER, CLIENT, 1400, false), 576);
    arrive(&mut worker, WAN, &pieces[1], Class::Esp);
    worker.turn(1000);
    worker.turn(2999);
    assert_eq!(worker.counters().totals().held, 1);
    worker.turn(3200);
    assert_eq!((worker.counters().totals().held, dropped(&worker, WorkerDrop::FragmentTimeout)), (0, 1));
    arrive(&mut worker, WAN, &pieces[0], Class::Esp);
    worker.turn(3201);
    // Frames that still wait at the end are returned too.
    check_and_close(worker);
}

#[test]
fn overlaps_and_a_want_of_frames_lose_all_fragments_with_a_name() {
    let packet = ipv4(PEER, CLIENT, 1400, false);
    let mut worker = joining();
    arrive(&mut worker, WAN, &pieces(&packet, 576)[0], Class::Esp);
    arrive(&mut worker, WAN, &pieces(&packet, 400)[1], Class::Esp);
    worker.turn(1);
    assert_eq!(dropped(&worker, WorkerDrop::FragmentOverlap), 2);
    let heads: Vec<Vec<u8>> =
        worker.counters().take_overlaps().map(|sample| sample.head().to_vec()).collect();
    assert_eq!(heads.len(), 2);
    assert!(heads.iter().all(|head| packet[12..20] == head[12..20]), "the addresses of the packet");
    let hoard: Vec<Frame> = std::iter::from_fn(|| worker.pool_mut().take_jumbo()).collect();
    let large = pieces(&ipv4(PEER, CLIENT, 5001, false), 1400);
    for piece in &large {
        let mut piece = piece.clone();
        piece[5] = 9;
        piece[10..12].fill(0);
        let checksum = Sum::new().bytes(&piece[..20]).finish();
        piece[10..12].copy_from_slice(&checksum.to_be_bytes());
        arrive(&mut worker, WAN, &piece, Class::Esp);
    }
    worker.turn(2);
    assert_eq!(dropped(&worker, WorkerDrop::NoFrame), large.len() as u64);
    hoard.into_iter().for_each(|frame| worker.pool_mut().give(frame));
    check_and_close(worker);
}
