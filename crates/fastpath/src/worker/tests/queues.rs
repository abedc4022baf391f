//! Several queues of one interface, or none at all.

use super::threads::wait_for;
use super::*;

fn with_ports(ports: Vec<FakePort>) -> crate::error::Result<TestWorker> {
    let pool = FramePool::new(FRAMES, ChunkSize::K2).unwrap();
    Worker::new(WorkerConfig::new(3), ports, None, pool, full_fib(), Scripted::default())
}

#[test]
fn all_queues_of_a_port_are_received_and_the_first_sends() {
    let mut worker = with_ports(vec![port(1), port(0), port(0), port(1)]).unwrap();
    for (place, destination) in [(0, CLIENT), (1, PEER), (2, PEER), (3, CLIENT)] {
        // From where the route to its source leads out of the port.
        let source = if place % 3 == 0 { PEER } else { CLIENT };
        arrive(&mut worker, place, &ipv4(source, destination, 100, false), Class::Protect);
    }
    worker.turn(1);
    let sent: Vec<usize> = (0..4).map(|place| sent(&mut worker, place).len()).collect();
    assert_eq!(sent, [2, 2, 0, 0]);
    let totals = worker.counters().totals();
    let received: Vec<(u16, u64)> = totals.ports.iter().map(|port| (port.port.0, port.rx_packets)).collect();
    assert_eq!(received, [(1, 1), (0, 1), (0, 1), (1, 1)]);
    check_and_close(worker);
}

#[test]
fn a_worker_without_ports_follows_commands_and_stops() {
    let handle = WorkerHandle::spawn(with_ports(Vec::new()).unwrap()).unwrap();
    for _ in 0..100 {
        handle.send(WorkerCommand::Fib(full_fib())).unwrap();
    }
    let mut seen = 0;
    wait_for(&handle, "garbage", || {
        seen += handle.collect().count();
        seen >= 100
    });
    assert_eq!((seen, handle.stop().unwrap()), (100, 0));
}

#[test]
fn more_ports_than_have_a_number_are_refused() {
    with_ports((0..256).map(|_| port(0)).collect()).unwrap();
    let error = with_ports((0..257).map(|_| port(0)).collect()).map(drop).unwrap_err().to_string();
    assert_eq!(
        error,
        "worker 3: 257 queues of ports, expected at most 256: have more workers, or fewer queues"
    );
}
