//! A worker behind a fence: nothing leaves once the deadline has passed, wherever it was stopped.

use super::*;
use std::sync::LazyLock;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(1000);

fn fenced() -> (TestWorker, Arc<Fence>) {
    let fence = Arc::new(Fence::shut());
    (worker(full_fib()).behind(Arc::clone(&fence)), fence)
}

/// A packet to each of client, peer and kernel.
fn offer(worker: &mut TestWorker) {
    arrive(worker, LAN, &ipv4(CLIENT, PEER, 100, false), Class::Protect);
    arrive(worker, WAN, &ipv4(PEER, CLIENT, 100, false), Class::Esp);
    arrive(worker, WAN, &ipv4(PEER, "10.0.0.1", 100, false), Class::Esp);
    let packet = ipv4(CLIENT, PEER, 100, false);
    worker.host_mut().unwrap().to_read.push_back(packet);
}

/// Packets sent to each destination since the last call: LAN, WAN, kernel.
fn left(worker: &mut TestWorker) -> [usize; 3] {
    let written = worker.host_mut().unwrap().written.drain(..).count();
    [sent(worker, LAN).len(), sent(worker, WAN).len(), written]
}

#[test]
fn packets_that_wait_behind_a_shut_fence_are_dropped() {
    let (mut worker, fence) = fenced();
    offer(&mut worker);
    worker.turn(1);
    assert_eq!(left(&mut worker), [0, 0, 0]);
    assert_eq!(worker.counters().totals().dropped_by_pipeline, 4);
    fence.extend(boottime() + LONG);
    offer(&mut worker);
    // The TUN is looked at now and then.
    (2..20).for_each(|now| _ = worker.turn(now));
    assert_eq!(left(&mut worker), [1, 2, 1]);
    fence.extend(Duration::ZERO);
    offer(&mut worker);
    (20..40).for_each(|now| _ = worker.turn(now));
    assert_eq!(left(&mut worker), [0, 0, 0]);
    assert_eq!(dropped(&worker, WorkerDrop::FencedLate), 0);
    check_and_close(worker);
}

#[test]
fn packets_in_progress_do_not_leave_after_the_deadline() {
    static FENCE: LazyLock<Arc<Fence>> = LazyLock::new(|| Arc::new(Fence::shut()));
    let pass: fn(&mut Item<'_>) -> Verdict = |_| {
        // The deadline passes after the packet was worked on and before it is sent.
        FENCE.extend(Duration::ZERO);
        Verdict::Forward
    };
    let mut worker = worker(full_fib()).behind(Arc::clone(&FENCE));
    worker.pipeline_mut().outbound = Some(pass);
    worker.pipeline_mut().inbound = Some(pass);
    FENCE.extend(boottime() + LONG);
    offer(&mut worker);
    worker.turn(1);
    assert_eq!(left(&mut worker), [0, 0, 0]);
    assert_eq!(dropped(&worker, WorkerDrop::FencedLate), 4);
    let totals = worker.counters().totals();
    assert_eq!(totals.ports.iter().map(|port| port.tx_packets + port.tx_bytes).sum::<u64>(), 0);
    // Open again, there is nothing of it left.
    FENCE.extend(boottime() + LONG);
    worker.turn(2);
    assert_eq!(left(&mut worker), [0, 0, 0]);
    check_and_close(worker);
}

#[test]
fn a_whole_burst_that_is_handed_over_before_the_end_of_the_turn_is_held_back_too() {
    static FENCE: LazyLock<Arc<Fence>> = LazyLock::new(|| Arc::new(Fence::shut()));
    let mut worker = worker(full_fib()).behind(Arc::clone(&FENCE));
    worker.pipeline_mut().inbound = Some(|_| {
        FENCE.extend(Duration::ZERO);
        Verdict::Forward
    });
    FENCE.extend(boottime() + LONG);
    for _ in 0..BURST {
        arrive(&mut worker, LAN, &ipv4(CLIENT, PEER, 100, false), Class::Protect);
        arrive(&mut worker, WAN, &ipv4(PEER, PEER, 100, false), Class::Esp);
    }
    worker.turn(1);
    assert_eq!(left(&mut worker), [0, 0, 0]);
    assert_eq!(dropped(&worker, WorkerDrop::FencedLate), 2 * BURST as u64);
    check_and_close(worker);
}

#[test]
fn a_packet_that_waited_for_its_neighbour_stays_behind_the_fence() {
    let fence = Arc::new(Fence::shut());
    let mut worker = worker(fib(&[])).behind(Arc::clone(&fence));
    fence.extend(boottime() + LONG);
    arrive(&mut worker, LAN, &ipv4(CLIENT, PEER, 100, false), Class::Protect);
    worker.turn(1);
    assert_eq!(worker.counters().totals().held, 1);
    fence.extend(Duration::ZERO);
    worker.delivery.channel.commands.push(WorkerCommand::Fib(full_fib())).unwrap();
    worker.turn(2);
    assert_eq!(left(&mut worker), [0, 0, 0]);
    assert_eq!(dropped(&worker, WorkerDrop::FencedLate), 1);
    check_and_close(worker);
}
