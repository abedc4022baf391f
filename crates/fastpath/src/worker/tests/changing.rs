//! Ports that are closed and opened while their worker runs.

use super::*;
use crate::worker::{PortChange, PortChanges};

type Changes = Arc<PortChanges<FakePort>>;

fn changing(ports: Vec<FakePort>) -> (TestWorker, Changes) {
    let pool = FramePool::new(FRAMES, ChunkSize::K2).unwrap();
    let worker = Worker::new(WorkerConfig::new(0), ports, None, pool, full_fib(), Scripted::default());
    let changes = Changes::default();
    (worker.unwrap().changing(Arc::clone(&changes)), changes)
}

fn change(worker: &TestWorker, changes: &Changes, all: impl IntoIterator<Item = PortChange<FakePort>>) {
    all.into_iter().for_each(|change| changes.push(change).unwrap());
    worker.delivery.channel.commands.push(WorkerCommand::Ports).unwrap();
}

fn open(port: FakePort) -> PortChange<FakePort> {
    PortChange::Open { port, fills: false }
}

fn to_peer(worker: &mut TestWorker) {
    arrive(worker, LAN, &ipv4(CLIENT, PEER, 100, false), Class::Protect);
}

#[test]
fn packets_for_a_closed_port_are_dropped_and_others_continue() {
    let (mut worker, changes) = changing(vec![port(0), port(1)]);
    // Packets that have arrived and were not received are lost with the port.
    arrive(&mut worker, WAN, &ipv4(PEER, CLIENT, 100, false), Class::Protect);
    change(&worker, &changes, [PortChange::Close(PortIndex(1))]);
    to_peer(&mut worker);
    worker.turn(1);
    assert!(worker.port_mut(WAN).is_none());
    assert_eq!(dropped(&worker, WorkerDrop::PortDown), 1);
    let totals = worker.counters().totals();
    assert_eq!(totals.ports.iter().map(|port| port.rx_packets).collect::<Vec<_>>(), [1, 0]);
    // A second end of the same port is none, and time passes for it as for others.
    change(&worker, &changes, [PortChange::Close(PortIndex(1))]);
    to_peer(&mut worker);
    for now in 2..30 {
        worker.turn(now * 100);
    }
    assert_eq!(dropped(&worker, WorkerDrop::PortDown), 2);
    check_and_close(worker);
}

#[test]
fn a_port_that_is_opened_again_has_its_old_place_and_counters() {
    let (mut worker, changes) = changing(vec![port(0), port(1)]);
    to_peer(&mut worker);
    worker.turn(1);
    assert_eq!(sent(&mut worker, WAN).len(), 1);
    change(&worker, &changes, [PortChange::Close(PortIndex(1)), open(port(1))]);
    to_peer(&mut worker);
    worker.turn(2);
    assert_eq!(sent(&mut worker, WAN).len(), 1);
    arrive(&mut worker, WAN, &ipv4(PEER, CLIENT, 100, false), Class::Protect);
    worker.turn(3);
    assert_eq!(sent(&mut worker, LAN).len(), 1);
    let totals = worker.counters().totals();
    let counted: Vec<_> =
        totals.ports.iter().map(|port| (port.port.0, port.rx_packets, port.tx_packets)).collect();
    assert_eq!(counted, [(0, 2, 1), (1, 1, 2)]);
    assert_eq!(dropped(&worker, WorkerDrop::PortDown), 0);
    check_and_close(worker);
}

#[test]
fn a_port_that_comes_late_sends_by_its_first_queue_and_receives_by_all() {
    let (mut worker, changes) = changing(vec![port(0)]);
    to_peer(&mut worker);
    worker.turn(1);
    assert_eq!(dropped(&worker, WorkerDrop::NoPort), 1);
    change(&worker, &changes, [open(port(1)), open(port(1))]);
    worker.turn(2);
    to_peer(&mut worker);
    for place in [1, 2] {
        arrive(&mut worker, place, &ipv4(PEER, CLIENT, 100, false), Class::Protect);
    }
    worker.turn(3);
    let left: Vec<usize> = (0..3).map(|place| sent(&mut worker, place).len()).collect();
    assert_eq!(left, [2, 1, 0]);
    // With fewer queues it may come again: what is behind stays vacant.
    change(&worker, &changes, [PortChange::Close(PortIndex(1)), open(port(1))]);
    to_peer(&mut worker);
    worker.turn(4);
    assert!(worker.port_mut(2).is_none());
    assert_eq!(sent(&mut worker, 1).len(), 1);
    assert_eq!(worker.counters().totals().ports.len(), 3);
    check_and_close(worker);
}

#[test]
fn a_port_takes_no_longer_packets_than_it_was_opened_for() {
    let (mut worker, changes) = changing(vec![port(0), port(1)]);
    let short = PortInfo { limit: 600, ..port(1).info().clone() };
    let short = FakePort::new(short, 256);
    change(&worker, &changes, [PortChange::Close(PortIndex(1)), open(short)]);
    arrive(&mut worker, LAN, &ipv4(CLIENT, PEER, 1000, true), Class::Protect);
    worker.turn(1);
    assert_eq!(dropped(&worker, WorkerDrop::LinkTooBig), 1);
    check_and_close(worker);
}

/// It may have come back with another driver.
#[test]
fn whether_checksums_are_filled_in_is_said_with_the_port() {
    let (mut worker, changes) = changing(vec![port(0), port(1)]);
    let fills = |worker: &TestWorker| [LAN, WAN].map(|place| worker.rules(place).fills);
    assert_eq!(fills(&worker), [false, false]);
    for expected in [true, false] {
        let opened = PortChange::Open { port: port(1), fills: expected };
        change(&worker, &changes, [PortChange::Close(PortIndex(1)), opened]);
        worker.turn(1);
        assert_eq!(fills(&worker), [false, expected]);
    }
    check_and_close(worker);
}

#[test]
fn a_running_worker_takes_changes() {
    let (worker, changes) = changing(vec![port(0), port(1)]);
    let handle = WorkerHandle::spawn(worker).unwrap();
    for index in [1, 0] {
        changes.push(PortChange::Close(PortIndex(index))).unwrap();
        handle.send(WorkerCommand::Ports).unwrap();
        changes.push(open(port(index))).unwrap();
        handle.send(WorkerCommand::Ports).unwrap();
    }
    assert_eq!(handle.stop().unwrap(), 0, "frames leaked");
}
