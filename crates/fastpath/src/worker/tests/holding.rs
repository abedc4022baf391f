//! Packets that wait for a neighbour.

use super::super::hold::{HELD_FRACTION, MAX_DISPLACED_PER_TICK, MAX_NEIGHBOURS};
use super::*;

fn events(worker: &TestWorker) -> Vec<WorkerEvent> {
    std::iter::from_fn(|| worker.delivery.channel.events.pop()).map(|(_, event)| event).collect()
}

fn missing(port: u16, address: &str) -> WorkerEvent {
    WorkerEvent::NeighbourMissing { port: PortIndex(port), addr: addr(address) }
}

#[test]
fn a_packet_waits_and_leaves_when_the_neighbour_is_known() {
    let mut worker = worker(fib(&[]));
    for length in 60..63 {
        arrive(&mut worker, WAN, &ipv4(PEER, CLIENT, length, true), Class::Esp);
    }
    worker.turn(1);
    assert!(sent(&mut worker, LAN).is_empty());
    assert_eq!(events(&worker), [missing(0, CLIENT)], "asked for once");
    assert_eq!(worker.counters().totals().held, 3);

    // A table that does not have it changes nothing.
    worker.delivery.channel.commands.push(WorkerCommand::Fib(fib(&[(0, "10.0.0.8", 1)]))).unwrap();
    worker.turn(2);
    assert_eq!(worker.counters().totals().held, 3);

    worker.delivery.channel.commands.push(WorkerCommand::Fib(full_fib())).unwrap();
    worker.turn(3);
    let lengths: Vec<usize> = sent(&mut worker, LAN).iter().map(|(_, packet)| packet.len()).collect();
    assert_eq!(lengths, [60, 61, 62], "in order, once");
    assert_eq!(worker.counters().totals().held, 0);
    check_and_close(worker);
}

/// The neighbour turns out to be behind a link that the packet is too large for.
#[test]
fn a_packet_that_waited_is_still_known_for_what_it_is() {
    let full = full_fib();
    let narrow = Route::Forward(NextHop { out: Out::Port(PortIndex(0)), gateway: None, mtu: 1000 });
    let mut builder = Fib::builder().route("10.0.0.0/24".parse().unwrap(), narrow);
    builder = builder.route("192.0.2.0/24".parse().unwrap(), next_hop(1, None));
    for link in full.ports() {
        builder = builder.port(link.clone());
    }
    let narrow =
        builder.neighbour(PortIndex(0), addr(CLIENT), mac(0x77)).neighbour(PortIndex(1), addr(PEER), mac(9));
    let mut worker = worker(fib(&[]));
    arrive(&mut worker, WAN, &ipv4(PEER, CLIENT, 1400, true), Class::Esp);
    worker.turn(1);
    assert_eq!(worker.counters().totals().held, 1);
    worker.delivery.channel.commands.push(WorkerCommand::Fib(Arc::new(narrow.build()))).unwrap();
    worker.turn(2);
    assert_eq!(dropped(&worker, WorkerDrop::LinkTooBig), 1);
    assert_eq!(events(&worker), [missing(0, CLIENT)], "it was decrypted: no path of an SA is too narrow");
    let error = sent(&mut worker, WAN).pop().expect("an ICMP error, through the tunnel").1;
    assert_eq!(
        (Ipv4::parse(&error).unwrap().dst(), error[20..22].to_vec()),
        (PEER.parse().unwrap(), vec![3, 4])
    );
    check_and_close(worker);
}

#[test]
fn the_gateway_is_asked_for_not_what_lies_behind() {
    let mut worker = worker(fib(&[]));
    arrive(&mut worker, LAN, &ipv4(CLIENT, "203.0.113.1", 60, true), Class::Protect);
    arrive(&mut worker, LAN, &ipv4(CLIENT, "203.0.113.2", 60, true), Class::Protect);
    worker.turn(1);
    assert_eq!(events(&worker), [missing(1, ROUTER)]);
    check_and_close(worker);
}

#[test]
fn a_neighbour_that_stays_silent_is_given_up_after_three_seconds() {
    let mut worker = worker(fib(&[]));
    arrive(&mut worker, WAN, &ipv4(PEER, CLIENT, 60, true), Class::Esp);
    worker.turn(5000);
    worker.turn(7999);
    assert_eq!((dropped(&worker, WorkerDrop::NeighbourTimeout), worker.counters().totals().held), (0, 1));
    worker.turn(8100);
    assert_eq!((dropped(&worker, WorkerDrop::NeighbourTimeout), worker.counters().totals().held), (1, 0));

    events(&worker);
    arrive(&mut worker, WAN, &ipv4(PEER, CLIENT, 60, true), Class::Esp);
    worker.turn(8101);
    assert_eq!(events(&worker), [missing(0, CLIENT)], "asked for again");
    check_and_close(worker);
}

#[test]
fn a_neighbours_latest_packets_are_kept() {
    const PACKETS: usize = FRAMES / HELD_FRACTION;
    let mut worker = worker(fib(&[]));
    for length in 60..120 {
        arrive(&mut worker, WAN, &ipv4(PEER, CLIENT, length, true), Class::Esp);
    }
    worker.turn(1);
    assert_eq!(worker.counters().totals().held, PACKETS as u64);
    assert_eq!(dropped(&worker, WorkerDrop::NeighbourQueueFull), 60 - PACKETS as u64);
    worker.delivery.channel.commands.push(WorkerCommand::Fib(full_fib())).unwrap();
    worker.turn(2);
    let lengths: Vec<usize> = sent(&mut worker, LAN).iter().map(|(_, packet)| packet.len()).collect();
    assert_eq!(lengths, (120 - PACKETS..120).collect::<Vec<_>>());
    check_and_close(worker);
}

#[test]
fn a_scan_of_the_network_does_not_take_all_frames() {
    let mut worker = worker(fib(&[]));
    for last in 2..=255 {
        arrive(&mut worker, WAN, &ipv4(PEER, &format!("10.0.0.{last}"), 60, true), Class::Esp);
        worker.turn(1);
    }
    assert_eq!(worker.counters().totals().held, MAX_NEIGHBOURS as u64);
    assert_eq!(dropped(&worker, WorkerDrop::NeighbourTableFull), 254 - MAX_NEIGHBOURS as u64);
    assert_eq!(
        events(&worker).len(),
        MAX_NEIGHBOURS + MAX_DISPLACED_PER_TICK as usize,
        "nor all of the kernel's time"
    );
    assert_eq!(worker.pool_mut().available(), FRAMES - MAX_NEIGHBOURS);
    check_and_close(worker);
}

/// The one that has been waited for longest makes room, and those that stay keep their order.
#[test]
fn a_scan_of_the_network_does_not_hide_a_new_neighbour() {
    let mut worker = worker(fib(&[]));
    for last in 100..100 + MAX_NEIGHBOURS {
        arrive(&mut worker, WAN, &ipv4(PEER, &format!("10.0.0.{last}"), 60, true), Class::Esp);
        worker.turn(1);
    }
    events(&worker);
    arrive(&mut worker, WAN, &ipv4(PEER, CLIENT, 61, true), Class::Esp);
    worker.turn(2);
    assert_eq!(events(&worker), [missing(0, CLIENT)]);
    assert_eq!(dropped(&worker, WorkerDrop::NeighbourTableFull), 1);
    let known = [(0, CLIENT, 0x77), (0, "10.0.0.100", 1), (0, "10.0.0.101", 2)];
    worker.delivery.channel.commands.push(WorkerCommand::Fib(fib(&known))).unwrap();
    worker.turn(3);
    let last: Vec<u8> = sent(&mut worker, LAN).iter().map(|(_, packet)| packet[19]).collect();
    assert_eq!(last, [101, 7], "the first had to go");
    check_and_close(worker);
}

/// As many as the pace allows, and with the next tick as many more.
#[test]
fn room_for_new_neighbours_comes_back_with_time() {
    let mut worker = worker(fib(&[]));
    let mut scan = |now| {
        for last in 2..200 {
            arrive(&mut worker, WAN, &ipv4(PEER, &format!("10.0.0.{last}"), 60, true), Class::Esp);
            worker.turn(now);
        }
        events(&worker).len()
    };
    let all = [scan(1), scan(50), scan(150)];
    assert_eq!(all[0], MAX_NEIGHBOURS + MAX_DISPLACED_PER_TICK as usize);
    assert_eq!(all[1], 0);
    assert_eq!(all[2], MAX_DISPLACED_PER_TICK as usize);
    check_and_close(worker);
}

#[test]
fn neighbours_of_different_ports_and_addresses_do_not_mix() {
    let mut worker = worker(fib(&[]));
    arrive(&mut worker, WAN, &ipv4(PEER, CLIENT, 60, true), Class::Esp);
    arrive(&mut worker, LAN, &ipv4(CLIENT, PEER, 61, true), Class::Protect);
    arrive(&mut worker, WAN, &ipv6("2001:db8::7", 62), Class::Esp);
    worker.turn(1);
    assert_eq!(worker.counters().totals().held, 3);
    worker.delivery.channel.commands.push(WorkerCommand::Fib(fib(&[(1, PEER, 9)]))).unwrap();
    worker.turn(2);
    assert_eq!(sent(&mut worker, WAN)[0].1.len(), 61);
    assert!(sent(&mut worker, LAN).is_empty());
    assert_eq!(worker.counters().totals().held, 2);
    check_and_close(worker);
}

/// Others need jumbo frames too: packets in fragments, and TCP from the kernel.
#[test]
fn large_packets_that_wait_take_a_quarter_of_the_jumbo_frames() {
    let mut pool = FramePool::with_jumbo(FRAMES, 32, ChunkSize::K2).unwrap();
    let client = |number: u8| format!("10.0.0.{}", 100 + number / 2);
    let mut large = |number| {
        let mut frame = pool.take_jumbo().unwrap();
        let small = stamped(&mut pool, &ipv4(PEER, &client(number), 1400, true), Class::Esp as u8);
        let end = usize::from(small.start() + small.len());
        assert!(frame.set_extent(small.start().into(), small.len().into()));
        frame.bytes_mut()[..end].copy_from_slice(&small.bytes()[..end]);
        pool.give(small);
        frame
    };
    let large: Vec<Frame> = (0..20).map(&mut large).collect();
    let (config, ports) = (WorkerConfig::new(0), vec![port(0), port(1)]);
    let pipeline = Scripted::default();
    let mut worker = Worker::new(config, ports, Some(FakeTun::default()), pool, fib(&[]), pipeline).unwrap();
    for frame in large {
        worker.port_mut(WAN).unwrap().deliver(frame).unwrap();
    }
    worker.turn(1);
    assert_eq!(worker.counters().totals().held, 8);
    assert_eq!(dropped(&worker, WorkerDrop::NeighbourQueueFull), 12);
    let asked: Vec<WorkerEvent> = (0..10).map(|number| missing(0, &client(2 * number))).collect();
    assert_eq!(events(&worker), asked, "each is asked for");
    check_and_close(worker);
}
