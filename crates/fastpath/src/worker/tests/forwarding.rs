//! Packets from port to port.

use super::*;
use testudo_ipsec::dataplane::Ingress;

#[test]
fn a_packet_leaves_with_the_header_of_its_next_hop() {
    let mut worker = worker(full_fib());
    let packet = ipv4(CLIENT, PEER, 100, true);
    arrive(&mut worker, LAN, &packet, Class::Protect);
    assert!(worker.turn(1));
    let expected = [2, 0, 0, 0, 0, 0x99, 2, 0, 0, 0, 0, 1, 8, 0];
    assert_eq!(sent(&mut worker, WAN), [(expected, packet)]);
    assert!(sent(&mut worker, LAN).is_empty());
    assert!(!worker.turn(2), "nothing is left to do");
    check_and_close(worker);
}

#[test]
fn a_gateway_is_the_neighbour_of_what_lies_behind_it() {
    let mut worker = worker(full_fib());
    for last in 1..40 {
        arrive(&mut worker, LAN, &ipv4(CLIENT, &format!("203.0.113.{last}"), 60, true), Class::Protect);
    }
    worker.turn(1);
    let frames = sent(&mut worker, WAN);
    assert_eq!(frames.len(), 39);
    assert!(frames.iter().all(|(header, _)| header[..6] == [2, 0, 0, 0, 0, 0xfe]));
    let order: Vec<u8> = frames.iter().map(|(_, packet)| packet[19]).collect();
    assert_eq!(order, (1..40).collect::<Vec<u8>>(), "order is kept");
    check_and_close(worker);
}

#[test]
fn each_class_goes_its_way_through_the_pipeline() {
    let mut worker = worker(full_fib());
    worker.pipeline_mut().outbound = Some(|item| {
        let flooded = item.buf.len() == 61;
        assert_eq!(item.ingress, if flooded { Ingress::Flooded } else { Ingress::Port });
        item.buf.data_mut()[8] = if flooded { 12 } else { 11 };
        Verdict::Forward
    });
    worker.pipeline_mut().inbound = Some(|item| {
        item.buf.data_mut()[8] = 22;
        Verdict::Forward
    });
    arrive(&mut worker, LAN, &ipv4(CLIENT, PEER, 60, true), Class::Protect);
    arrive(&mut worker, LAN, &ipv4(CLIENT, PEER, 61, true), Class::ProtectFlooded);
    arrive(&mut worker, WAN, &ipv4(PEER, CLIENT, 60, true), Class::Esp);
    arrive(&mut worker, WAN, &ipv4(PEER, CLIENT, 60, true), Class::EspInUdp);
    worker.turn(1);
    assert_eq!(sent(&mut worker, WAN).iter().map(|(_, p)| p[8]).collect::<Vec<_>>(), [11, 12]);
    assert_eq!(sent(&mut worker, LAN).iter().map(|(_, p)| p[8]).collect::<Vec<_>>(), [22, 22]);
    check_and_close(worker);
}

/// The pipeline finds the lane before the packet.
#[test]
fn a_packet_in_turn_takes_its_lane_along() {
    let mut worker = worker(full_fib());
    worker.pipeline_mut().outbound = Some(|item| {
        assert_eq!(item.ingress, Ingress::InTurn);
        item.buf.data_mut()[8] = item.buf.octet_before().unwrap();
        Verdict::Forward
    });
    for lane in [7, 0, 255] {
        let mut frame = stamped(worker.pool_mut(), &ipv4(CLIENT, PEER, 60, true), Class::ProtectInTurn as u8);
        let start = usize::from(frame.start());
        frame.bytes_mut()[start - 1] = lane;
        worker.port_mut(LAN).unwrap().deliver(frame).unwrap();
    }
    worker.turn(1);
    assert_eq!(sent(&mut worker, WAN).iter().map(|(_, p)| p[8]).collect::<Vec<_>>(), [7, 0, 255]);
    check_and_close(worker);
}

/// Clear packets are judged; those that may pass go to the kernel or are routed on, and fragments
/// wait for the others.
#[test]
fn clear_packets_go_where_the_pipeline_says() {
    let mut worker = worker(full_fib());
    worker.pipeline_mut().inbound = Some(|_| panic!("not protected"));
    worker.pipeline_mut().outbound = Some(|_| panic!("not to be protected"));
    worker.pipeline_mut().judged = Some(|item| match item.buf.len() {
        60 => Verdict::ToHost,
        61 => Verdict::Forward,
        _ => Verdict::Drop(DropReason::ClearButProtected),
    });
    for len in [60, 61, 62, 60] {
        // From where no route leads back to: this is asked of what is to be protected alone.
        arrive(&mut worker, WAN, &ipv4("10.0.0.8", CLIENT, len, true), Class::Clear);
    }
    worker.turn(1);
    assert_eq!(worker.host_mut().unwrap().written.len(), 2);
    assert_eq!(sent(&mut worker, LAN).iter().map(|(_, packet)| packet.len()).collect::<Vec<_>>(), [61]);
    assert_eq!(worker.counters().totals().dropped_by_pipeline, 1);
    check_and_close(worker);
}

#[test]
fn packets_leave_with_the_headers_of_the_pipeline() {
    let mut worker = worker(full_fib());
    worker.pipeline_mut().outbound = Some(|item| {
        assert!(item.buf.grow_front(20));
        item.buf.data_mut()[..20].copy_from_slice(&ipv4("192.0.2.1", PEER, 120, true)[..20]);
        Verdict::Forward
    });
    worker.pipeline_mut().inbound = Some(|item| {
        assert!(item.buf.shrink_front(20) && item.buf.shrink_back(3));
        Verdict::Forward
    });
    let inner = ipv4(CLIENT, "203.0.113.1", 100, true);
    arrive(&mut worker, LAN, &inner, Class::Protect);
    worker.turn(1);
    let (_, outer) = sent(&mut worker, WAN).pop().unwrap();
    assert_eq!(outer.len(), 120);
    assert_eq!(outer[20..], inner);

    let inner = ipv4(PEER, CLIENT, 77, true);
    let outer = [&ipv4(PEER, "192.0.2.1", 100, true)[..20], &inner, &[1, 2, 3]].concat();
    arrive(&mut worker, WAN, &outer, Class::Esp);
    worker.turn(2);
    assert_eq!(sent(&mut worker, LAN).pop().unwrap().1, inner);
    check_and_close(worker);
}

#[test]
fn ipv6_is_routed_with_its_own_ethertype() {
    let mut worker = worker(full_fib());
    arrive(&mut worker, WAN, &ipv6("2001:db8::7", 90), Class::Esp);
    worker.turn(1);
    let (header, _) = sent(&mut worker, LAN).pop().unwrap();
    assert_eq!(header, [2, 0, 0, 0, 0, 0x76, 2, 0, 0, 0, 0, 0, 0x86, 0xdd]);
    check_and_close(worker);
}

#[test]
fn addresses_of_the_two_families_do_not_meet_in_the_cache() {
    let mut worker = worker(full_fib());
    // The same bits as 10.0.0.7 in both halves that could be mistaken for it.
    for destination in ["::a00:7", "::ffff:a00:7", "0:0:0:a00::7", "0:0:a00:7::"] {
        arrive(&mut worker, WAN, &ipv4(PEER, CLIENT, 60, true), Class::Esp);
        arrive(&mut worker, WAN, &ipv6(destination, 60), Class::Esp);
        worker.turn(1);
        assert_eq!(sent(&mut worker, LAN).len(), 1, "{destination}");
    }
    assert_eq!(dropped(&worker, WorkerDrop::NoRoute) + worker.counters().totals().to_tun, 4);
    check_and_close(worker);
}

#[test]
fn a_new_table_takes_effect_at_once() {
    let mut worker = worker(full_fib());
    arrive(&mut worker, LAN, &ipv4(CLIENT, PEER, 60, true), Class::Protect);
    worker.turn(1);
    assert_eq!(sent(&mut worker, WAN)[0].0[5], 0x99);

    let moved = fib(&[(1, PEER, 0x42)]);
    worker.delivery.channel.commands.push(WorkerCommand::Fib(moved)).unwrap();
    arrive(&mut worker, LAN, &ipv4(CLIENT, PEER, 60, true), Class::Protect);
    worker.turn(2);
    assert_eq!(sent(&mut worker, WAN)[0].0[5], 0x42, "the cached header is out of date");
    let garbage = worker.delivery.channel.garbage.pop();
    assert!(matches!(garbage, Some(WorkerGarbage::Fib(_))), "the former table goes back to control");
    check_and_close(worker);
}

#[test]
fn the_table_hears_every_second_that_a_neighbour_is_in_use() {
    let fib = full_fib();
    let neighbour = Arc::new(crate::fib::Neighbour::new(mac(0x99)));
    let shared = Fib::builder()
        .port(fib.ports()[1].clone())
        .route("10.0.0.0/24".parse().unwrap(), next_hop(0, None))
        .route("192.0.2.0/24".parse().unwrap(), next_hop(1, None))
        .shared_neighbour(PortIndex(1), addr(PEER), Arc::clone(&neighbour))
        .build();
    let mut worker = worker(Arc::new(shared));
    for second in 1..4u64 {
        assert!(!neighbour.take_used());
        for turn in 0..5 {
            arrive(&mut worker, LAN, &ipv4(CLIENT, PEER, 60, true), Class::Protect);
            worker.turn(second * 1000 + turn);
            sent(&mut worker, WAN);
        }
        assert!(neighbour.take_used(), "second {second}");
    }
    check_and_close(worker);
}

#[test]
fn bad_frames_are_dropped_by_name() {
    let mut worker = worker(full_fib());
    let packet = ipv4(CLIENT, PEER, 60, true);
    let mut deliver = |packet: &[u8], class: u8, change: fn(&mut Frame)| {
        let mut frame = stamped(worker.pool_mut(), packet, class);
        change(&mut frame);
        worker.port_mut(LAN).unwrap().deliver(frame).unwrap();
        worker.turn(1);
        WorkerDrop::ALL.map(|reason| worker.counters().dropped(reason))
    };
    let at = |counts: [u64; WorkerDrop::COUNT], reason| counts[reason as usize];
    assert_eq!(at(deliver(&packet, 0, |_| ()), WorkerDrop::NoStamp), 1);
    assert_eq!(at(deliver(&packet, 7, |_| ()), WorkerDrop::NoStamp), 2);
    let unstamped = deliver(&packet, 1, |frame| {
        let start = usize::from(frame.start());
        frame.bytes_mut()[start - 4] = 0;
    });
    assert_eq!(at(unstamped, WorkerDrop::NoStamp), 3);
    let arp = deliver(&packet, 1, |frame| frame.data_mut()[13] = 6);
    assert_eq!(at(arp, WorkerDrop::BadEthernet), 1);
    let short = deliver(&packet, 1, |frame| {
        let start = usize::from(frame.start());
        assert!(frame.set_extent(start, 13));
    });
    assert_eq!(at(short, WorkerDrop::BadEthernet), 2);
    assert_eq!(short.iter().sum::<u64>(), 5);
    check_and_close(worker);
}

/// Packets that arrive by a port to which the route to their source does not lead (RFC 3704 §2.2).
#[test]
fn packets_with_a_spoofed_source_are_not_protected() {
    let mut worker = worker(full_fib());
    worker.pipeline_mut().outbound = Some(|_| panic!("not for the pipeline"));
    let sources = [
        (WAN, CLIENT),         // of the other port
        (LAN, "8.8.8.8"),      // of nobody
        (LAN, "10.0.0.1"),     // our own
        (LAN, "198.51.102.1"), // of nobody who may be answered
        (WAN, "172.16.0.1"),   // of an interface that is no port
    ];
    for (place, source) in sources {
        arrive(&mut worker, place, &ipv4(source, "203.0.113.1", 60, true), Class::Protect);
    }
    arrive(&mut worker, WAN, &ipv6("2001:db8::7", 60), Class::Protect);
    worker.turn(1);
    assert_eq!(dropped(&worker, WorkerDrop::SpoofedSource), sources.len() as u64 + 1);

    // Authentic packets need no such check.
    arrive(&mut worker, WAN, &ipv4("8.8.8.8", CLIENT, 60, true), Class::Esp);
    worker.turn(2);
    assert_eq!(sent(&mut worker, LAN).len(), 1);
    check_and_close(worker);
}

#[test]
fn a_source_is_known_behind_its_port_alone_and_until_routes_change() {
    let mut worker = worker(full_fib());
    let packet = ipv4(CLIENT, "203.0.113.1", 60, true);
    let counts = |worker: &mut TestWorker, now| {
        arrive(worker, LAN, &packet, Class::Protect);
        arrive(worker, WAN, &packet, Class::Protect);
        worker.turn(now);
        (sent(worker, WAN).len(), dropped(worker, WorkerDrop::SpoofedSource))
    };
    assert_eq!(counts(&mut worker, 1), (1, 1));
    assert_eq!(counts(&mut worker, 2), (1, 2), "remembered for the one, not for the other");
    let base = full_fib();
    let both = Fib::builder().port(base.ports()[0].clone()).port(base.ports()[1].clone());
    let both = both
        .multipath("10.0.0.0/24".parse().unwrap(), next_hop(0, None), [PortIndex(1)])
        .route("203.0.113.0/24".parse().unwrap(), next_hop(1, Some(ROUTER)))
        .neighbour(PortIndex(1), addr(ROUTER), mac(0xfe));
    worker.delivery.channel.commands.push(WorkerCommand::Fib(Arc::new(both.build()))).unwrap();
    assert_eq!(counts(&mut worker, 3), (2, 2), "behind both");
    worker.delivery.channel.commands.push(WorkerCommand::Fib(fib(&[(1, ROUTER, 0xfe)]))).unwrap();
    assert_eq!(counts(&mut worker, 4), (1, 3), "no longer");
    check_and_close(worker);
}

#[test]
fn a_port_with_asymmetric_routes_takes_packets_from_anywhere() {
    let mut worker = worker(full_fib());
    worker.config.unchecked = [PortIndex(WAN as u16)].into_iter().collect();
    for place in [LAN, WAN] {
        arrive(&mut worker, place, &ipv4("8.8.8.8", "203.0.113.1", 60, true), Class::Protect);
    }
    worker.turn(1);
    assert_eq!(sent(&mut worker, WAN).len(), 1);
    assert_eq!(dropped(&worker, WorkerDrop::SpoofedSource), 1);
    check_and_close(worker);
}

#[test]
fn routes_that_lead_nowhere_have_their_reasons() {
    let mut worker = worker(full_fib());
    let cases = [
        ("8.8.8.8", WorkerDrop::NoRoute),
        ("198.51.100.1", WorkerDrop::Unreachable),
        ("198.51.101.1", WorkerDrop::Prohibited),
        ("198.51.102.1", WorkerDrop::Blackhole),
        ("172.17.0.1", WorkerDrop::NoPort),
    ];
    for (destination, reason) in cases {
        arrive(&mut worker, WAN, &ipv4(PEER, destination, 60, true), Class::Esp);
        worker.turn(1);
        assert_eq!(dropped(&worker, reason), 1, "{destination}");
    }
    check_and_close(worker);
}

/// An operator may raise an MTU at any time; the port sends what it was opened for.
#[test]
fn a_port_is_given_no_more_than_it_can_send_whatever_its_interface_takes() {
    let builder =
        Fib::builder().port(PortLink { mtu: 9000, ..link(0) }).port(PortLink { mtu: 9000, ..link(1) });
    let hop = NextHop { out: Out::Port(PortIndex(1)), gateway: None, mtu: 9000 };
    let builder = builder.route("192.0.2.0/24".parse().unwrap(), Route::Forward(hop));
    let builder = builder.route("10.0.0.0/24".parse().unwrap(), next_hop(0, None));
    let fib = builder.neighbour(PortIndex(1), addr(PEER), mac(0x99)).build();
    let mut worker = worker(Arc::new(fib));
    for (len, dont_fragment) in [(1500, true), (1501, true), (1501, false)] {
        arrive(&mut worker, LAN, &ipv4(CLIENT, PEER, len, dont_fragment), Class::Protect);
    }
    worker.turn(1);
    let lengths: Vec<usize> = sent(&mut worker, WAN).iter().map(|(_, packet)| packet.len()).collect();
    assert_eq!(lengths, [1500, 1500, 21]);
    assert_eq!(dropped(&worker, WorkerDrop::LinkTooBig), 1);
    check_and_close(worker);
}

#[test]
fn a_port_that_cannot_send_fast_enough_drops_the_rest() {
    let mut worker = worker(full_fib());
    for _ in 0..300 {
        // The fake port holds 256 frames until somebody fetches them.
        arrive(&mut worker, LAN, &ipv4(CLIENT, PEER, 60, true), Class::Protect);
        worker.turn(1);
    }
    assert_eq!(dropped(&worker, WorkerDrop::TxRingFull), 44);
    assert_eq!(worker.counters().totals().ports[WAN].tx_packets, 256);
    assert_eq!(worker.counters().totals().ports[WAN].tx_bytes, 256 * 74);
    assert_eq!(sent(&mut worker, WAN).len(), 256);
    check_and_close(worker);
}

#[test]
fn a_burst_larger_than_the_egress_stage_is_sent_whole() {
    let mut worker = worker(full_fib());
    for _ in 0..100 {
        arrive(&mut worker, LAN, &ipv4(CLIENT, PEER, 60, true), Class::Protect);
        arrive(&mut worker, WAN, &ipv4(CLIENT, PEER, 60, true), Class::Esp);
    }
    worker.turn(1);
    assert_eq!(sent(&mut worker, WAN).len(), 128, "a burst from each port");
    worker.turn(2);
    assert_eq!(sent(&mut worker, WAN).len(), 72);
    check_and_close(worker);
}

#[test]
fn packets_for_a_port_that_is_down_are_dropped() {
    let mut worker = worker(full_fib());
    let send = |worker: &mut TestWorker, now: u64| {
        arrive(worker, LAN, &ipv4(CLIENT, PEER, 60, true), Class::Protect);
        worker.turn(now);
        sent(worker, WAN).len()
    };
    assert_eq!(send(&mut worker, 1), 1);
    worker.port_mut(WAN).unwrap().set_down(true);
    assert_eq!(send(&mut worker, 2), 1, "the first finds out");
    assert_eq!(send(&mut worker, 3), 0);
    assert_eq!(dropped(&worker, WorkerDrop::PortDown), 1);
    worker.port_mut(WAN).unwrap().set_down(false);
    assert_eq!(send(&mut worker, 4), 0, "looked at again with the next tick");
    assert_eq!(send(&mut worker, 300), 0);
    assert_eq!(send(&mut worker, 301), 1);
    assert_eq!(dropped(&worker, WorkerDrop::PortDown), 3);
    check_and_close(worker);
}
