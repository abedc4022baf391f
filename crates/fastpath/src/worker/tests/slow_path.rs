//! The TUN, ICMP errors, fragments: all that is not port to port.

use super::*;
use testudo_ipsec::dataplane::Ingress;

fn written(worker: &mut TestWorker) -> Vec<Vec<u8>> {
    std::mem::take(&mut worker.host_mut().unwrap().written)
}

#[test]
fn packets_for_this_machine_go_to_the_kernel() {
    let mut worker = worker(full_fib());
    let local = ipv4(PEER, "10.0.0.1", 80, true);
    let other_interface = ipv4(PEER, "172.16.0.1", 81, true);
    arrive(&mut worker, WAN, &local, Class::Esp);
    arrive(&mut worker, WAN, &other_interface, Class::Esp);
    worker.turn(1);
    worker.pipeline_mut().inbound = Some(|_| Verdict::ToHost);
    let by_verdict = ipv4(PEER, CLIENT, 82, true);
    arrive(&mut worker, WAN, &by_verdict, Class::Esp);
    worker.turn(2);
    assert_eq!(written(&mut worker), [local, other_interface, by_verdict]);
    assert_eq!(worker.counters().totals().to_tun, 3);
    check_and_close(worker);
}

#[test]
fn packets_from_the_kernel_are_protected_and_sent() {
    let mut worker = worker(full_fib());
    worker.pipeline_mut().outbound = Some(|item| {
        assert_eq!(item.ingress, Ingress::Host);
        assert!(item.buf.grow_front(20));
        item.buf.data_mut()[..20].copy_from_slice(&ipv4("192.0.2.1", PEER, 120, true)[..20]);
        Verdict::Forward
    });
    for _ in 0..100 {
        worker.host_mut().unwrap().to_read.push_back(ipv4("10.0.0.1", "203.0.113.1", 100, true));
    }
    worker.turn(1);
    assert_eq!(worker.counters().totals().from_tun, 64, "a burst at a time");
    worker.turn(2);
    assert_eq!(sent(&mut worker, WAN).len(), 100, "and the next without waiting");
    check_and_close(worker);
}

#[test]
fn an_idle_tun_is_looked_at_now_and_then() {
    let mut worker = worker(full_fib());
    let interval = WorkerConfig::new(0).tun_interval;
    let wait = |worker: &mut TestWorker| {
        worker.host_mut().unwrap().to_read.push_back(ipv4("10.0.0.1", PEER, 100, true));
        (0..).take_while(|_| !worker.turn(2)).count()
    };
    worker.turn(1);
    assert_eq!(wait(&mut worker), 1, "it may have more soon");
    (0..100 * interval).for_each(|_| {
        worker.turn(2);
    });
    assert!(wait(&mut worker) <= interval as usize);
    assert_eq!(wait(&mut worker), 0, "it had some just now");
    check_and_close(worker);
}

#[test]
fn an_unchanged_packet_is_not_returned_to_the_kernel() {
    let mut worker = worker(full_fib());
    worker.host_mut().unwrap().to_read.push_back(ipv4("10.0.0.1", "172.16.0.1", 100, true));
    worker.turn(1);
    assert_eq!(dropped(&worker, WorkerDrop::TunLoop), 1);
    // Encrypted, it is another packet, and the kernel may know its way.
    worker.pipeline_mut().outbound = Some(|item| {
        assert!(item.buf.grow_front(20));
        item.buf.data_mut()[..20].copy_from_slice(&ipv4("192.0.2.1", "172.16.0.9", 120, true)[..20]);
        Verdict::Forward
    });
    worker.host_mut().unwrap().to_read.push_back(ipv4("10.0.0.1", "172.16.0.1", 100, true));
    (0..20).for_each(|_| {
        worker.turn(2);
    });
    assert_eq!(written(&mut worker).len(), 1);
    check_and_close(worker);
}

#[test]
fn a_broken_or_missing_tun_is_counted() {
    let mut worker = worker(full_fib());
    worker.host_mut().unwrap().broken = true;
    arrive(&mut worker, WAN, &ipv4(PEER, "10.0.0.1", 80, true), Class::Esp);
    worker.turn(1);
    assert_eq!(dropped(&worker, WorkerDrop::TunWriteFailed), 1);
    worker.delivery.host = None;
    arrive(&mut worker, WAN, &ipv4(PEER, "10.0.0.1", 80, true), Class::Esp);
    worker.turn(2);
    assert_eq!(dropped(&worker, WorkerDrop::NoTun), 1);
    check_and_close(worker);
}

/// Stands for an ICMP error: addressed to the client, whatever the packet was.
fn answer(item: &mut Item<'_>) -> Verdict {
    let error = ipv4("10.0.0.1", CLIENT, 56, true);
    assert!(item.buf.shrink_back(item.buf.len() - 56));
    item.buf.data_mut().copy_from_slice(&error);
    Verdict::Reply
}

#[test]
fn an_answer_goes_back_out_of_the_port() {
    let mut worker = worker(full_fib());
    worker.pipeline_mut().outbound = Some(answer);
    arrive(&mut worker, LAN, &ipv4(CLIENT, "203.0.113.1", 100, true), Class::Protect);
    worker.turn(1);
    assert_eq!(sent(&mut worker, LAN)[0].1, ipv4("10.0.0.1", CLIENT, 56, true));
    let totals = worker.counters().totals();
    assert_eq!((totals.generated, totals.dropped_by_pipeline), (1, 1));
    check_and_close(worker);
}

/// The source addresses for ICMP errors that the pipeline was given, burst by burst.
fn sources(worker: &mut TestWorker) -> Vec<Option<IpAddr>> {
    worker.pipeline_mut().sources.drain(..).map(|sources| sources.v4.map(IpAddr::from)).collect()
}

#[test]
fn an_answer_out_of_the_port_comes_from_the_ports_address() {
    let mut worker = worker(full_fib());
    arrive(&mut worker, LAN, &ipv4(CLIENT, "203.0.113.1", 100, true), Class::Protect);
    arrive(&mut worker, WAN, &ipv4("203.0.113.1", CLIENT, 100, true), Class::Protect);
    worker.turn(1);
    assert_eq!(sources(&mut worker), [Some(addr("10.0.0.1")), Some(addr("192.0.2.1"))]);

    // For packets into a tunnel, or to the kernel, it is the offending packet's destination.
    worker.pipeline_mut().inbound = Some(|_| Verdict::Onward);
    arrive(&mut worker, WAN, &ipv4(PEER, CLIENT, 100, true), Class::Esp);
    worker.turn(2);
    worker.pipeline_mut().inbound = Some(answer);
    arrive(&mut worker, WAN, &ipv4(PEER, CLIENT, 100, true), Class::Esp);
    worker.turn(3);
    worker.host_mut().unwrap().to_read.push_back(ipv4("10.0.0.1", "203.0.113.1", 100, true));
    (0..20).for_each(|_| {
        worker.turn(4);
    });
    assert_eq!(sources(&mut worker), [None; 3]);

    let moved =
        Fib::builder().port(PortLink { addresses: vec![addr("10.0.0.9")], ..full_fib().ports()[0].clone() });
    let moved = moved.route("10.0.0.0/24".parse().unwrap(), next_hop(0, None)).build();
    worker.delivery.channel.commands.push(WorkerCommand::Fib(Arc::new(moved))).unwrap();
    arrive(&mut worker, LAN, &ipv4(CLIENT, "203.0.113.1", 100, true), Class::Protect);
    worker.turn(5);
    assert_eq!(sources(&mut worker), [Some(addr("10.0.0.9"))]);
    check_and_close(worker);
}

/// Bypassed, and too large for its link: the worker's own errors.
#[test]
fn an_answer_of_the_worker_comes_from_the_ports_address_too() {
    let mut worker = worker(narrow_lan());
    arrive(&mut worker, LAN, &ipv4(CLIENT, "10.0.0.8", 1400, true), Class::Protect);
    arrive(&mut worker, LAN, &ipv4(CLIENT, CLIENT, 1400, true), Class::Protect);
    worker.turn(1);
    let (_, error) = sent(&mut worker, LAN).pop().unwrap();
    let error = Ipv4::parse_verified(&error).unwrap();
    assert_eq!((error.src(), error.payload()[..2].to_vec()), ("10.0.0.1".parse().unwrap(), vec![3, 4]));
    check_and_close(worker);
}

#[test]
fn an_answer_to_the_kernel_goes_to_the_kernel() {
    let mut worker = worker(full_fib());
    worker.pipeline_mut().outbound = Some(answer);
    worker.host_mut().unwrap().to_read.push_back(ipv4("10.0.0.1", "203.0.113.1", 100, true));
    worker.turn(1);
    assert_eq!(written(&mut worker), [ipv4("10.0.0.1", CLIENT, 56, true)]);
    check_and_close(worker);
}

#[test]
fn an_answer_to_what_was_decrypted_goes_back_through_the_tunnel() {
    let mut worker = worker(full_fib());
    worker.pipeline_mut().inbound = Some(answer);
    worker.pipeline_mut().outbound = Some(|item| {
        assert_eq!(item.ingress, Ingress::Piece, "made here: the TTL is left alone");
        assert_eq!(item.buf.data(), ipv4("10.0.0.1", CLIENT, 56, true));
        assert!(item.buf.grow_front(20));
        item.buf.data_mut()[..20].copy_from_slice(&ipv4("192.0.2.1", PEER, 76, true)[..20]);
        Verdict::Forward
    });
    arrive(&mut worker, WAN, &ipv4(PEER, CLIENT, 100, true), Class::Esp);
    worker.turn(1);
    assert_eq!(sent(&mut worker, WAN)[0].1.len(), 76);
    check_and_close(worker);
}

#[test]
fn packets_from_one_tunnel_to_another_are_protected_again() {
    let mut worker = worker(full_fib());
    worker.pipeline_mut().inbound = Some(|_| Verdict::Onward);
    worker.pipeline_mut().outbound = Some(|item| {
        assert_eq!(item.ingress, Ingress::Host, "the TTL was taken care of on the way in");
        assert!(item.buf.grow_front(20));
        item.buf.data_mut()[..20].copy_from_slice(&ipv4("192.0.2.1", PEER, 100, true)[..20]);
        Verdict::Forward
    });
    for _ in 0..100 {
        arrive(&mut worker, WAN, &ipv4(PEER, CLIENT, 80, true), Class::Esp);
    }
    worker.turn(1);
    worker.turn(2);
    assert!(sent(&mut worker, LAN).is_empty(), "not one in clear");
    assert_eq!(sent(&mut worker, WAN).len(), 100);
    check_and_close(worker);
}

#[test]
fn answers_to_answers_end() {
    let mut worker = worker(full_fib());
    worker.pipeline_mut().inbound = Some(answer);
    worker.pipeline_mut().outbound = Some(answer);
    arrive(&mut worker, WAN, &ipv4(PEER, CLIENT, 100, true), Class::Esp);
    worker.turn(1);
    assert_eq!(dropped(&worker, WorkerDrop::Resubmitted), 1);
    check_and_close(worker);
}

#[test]
fn a_packet_too_big_to_protect_goes_through_in_pieces() {
    let mut worker = worker(full_fib());
    worker.pipeline_mut().outbound = Some(|item| {
        if item.buf.len() > 600 {
            return Verdict::Fragment { mtu: 600 };
        }
        assert_eq!(item.ingress, Ingress::Piece, "the TTL has been taken care of");
        Verdict::Forward
    });
    arrive(&mut worker, LAN, &ipv4(CLIENT, PEER, 1500, false), Class::Protect);
    worker.turn(1);
    let pieces = sent(&mut worker, WAN);
    assert_eq!(pieces.iter().map(|(_, piece)| piece.len()).collect::<Vec<_>>(), [596, 596, 348]);
    let offsets: Vec<usize> =
        pieces.iter().map(|(_, p)| Ipv4::parse_verified(p).unwrap().fragment_offset()).collect();
    assert_eq!(offsets, [0, 576, 1152]);
    assert_eq!(worker.counters().totals().split, 2);

    // A pipeline that wants even pieces smaller gets no second chance.
    worker.pipeline_mut().outbound = Some(|_| Verdict::Fragment { mtu: 600 });
    arrive(&mut worker, LAN, &ipv4(CLIENT, PEER, 1500, false), Class::Protect);
    worker.turn(2);
    assert_eq!(dropped(&worker, WorkerDrop::Resubmitted), 3);
    check_and_close(worker);
}

#[test]
fn packets_after_a_split_packet_keep_their_order() {
    let mut worker = worker(full_fib());
    worker.pipeline_mut().outbound = Some(|item| match (item.ingress, item.buf.len()) {
        (Ingress::Piece, _) => Verdict::Forward,
        (_, 601..) => Verdict::Fragment { mtu: 600 },
        (_, 200..) => Verdict::Behind,
        _ => Verdict::Forward,
    });
    for len in [100, 1100, 300, 1000, 400] {
        arrive(&mut worker, LAN, &ipv4(CLIENT, PEER, len, false), Class::Protect);
    }
    worker.turn(1);
    let lens: Vec<usize> = sent(&mut worker, WAN).iter().map(|(_, packet)| packet.len()).collect();
    assert_eq!(lens, [100, 596, 524, 300, 596, 424, 400]);

    // Behind for ever is nowhere.
    worker.pipeline_mut().outbound = Some(|_| Verdict::Behind);
    arrive(&mut worker, LAN, &ipv4(CLIENT, PEER, 300, false), Class::Protect);
    worker.turn(2);
    assert_eq!(dropped(&worker, WorkerDrop::Resubmitted), 1);
    check_and_close(worker);
}

#[test]
fn a_packet_that_cannot_be_split_is_dropped() {
    let mut worker = worker(full_fib());
    worker.pipeline_mut().outbound = Some(|_| Verdict::Fragment { mtu: 28 });
    arrive(&mut worker, LAN, &ipv4(CLIENT, PEER, 1500, false), Class::Protect);
    arrive(&mut worker, LAN, &ipv4(CLIENT, PEER, 1500, true), Class::Protect);
    worker.turn(1);
    assert_eq!(dropped(&worker, WorkerDrop::NotSplit), 2, "too many pieces, and DF");

    worker.pipeline_mut().outbound = Some(|_| Verdict::Fragment { mtu: 600 });
    arrive(&mut worker, LAN, &ipv4(CLIENT, PEER, 1500, false), Class::Protect);
    let taken: Vec<Frame> = std::iter::from_fn(|| worker.pool_mut().take()).collect();
    worker.turn(2);
    assert_eq!(dropped(&worker, WorkerDrop::NoFrame), 1);
    taken.into_iter().for_each(|frame| worker.pool_mut().give(frame));
    check_and_close(worker);
}

/// A table in which the LAN takes no more than 1000 octets.
fn narrow_lan() -> Arc<Fib> {
    let full = full_fib();
    let route = Route::Forward(NextHop { out: Out::Port(PortIndex(0)), gateway: None, mtu: 1000 });
    let mut builder = Fib::builder().route("10.0.0.0/24".parse().unwrap(), route);
    for link in full.ports() {
        builder = builder.port(link.clone());
    }
    Arc::new(
        builder
            .route("192.0.2.0/24".parse().unwrap(), next_hop(1, None))
            .neighbour(PortIndex(0), addr(CLIENT), mac(0x77))
            .neighbour(PortIndex(1), addr(PEER), mac(0x99))
            .build(),
    )
}

#[test]
fn a_decrypted_packet_too_big_for_its_link_is_split_if_it_may_be() {
    let mut worker = worker(narrow_lan());
    arrive(&mut worker, WAN, &ipv4(PEER, CLIENT, 1400, false), Class::Esp);
    worker.turn(1);
    assert_eq!(sent(&mut worker, LAN).iter().map(|(_, p)| p.len()).collect::<Vec<_>>(), [996, 424]);
    check_and_close(worker);
}

#[test]
fn a_decrypted_packet_too_large_for_the_link_is_answered_through_the_tunnel() {
    let mut worker = worker(narrow_lan());
    worker.pipeline_mut().outbound = Some(|item| {
        assert_eq!(
            item.buf.data()[20..28],
            [3, 4, item.buf.data()[22], item.buf.data()[23], 0, 0, 0x03, 0xe8]
        );
        Verdict::Forward
    });
    arrive(&mut worker, WAN, &ipv4(PEER, CLIENT, 1400, true), Class::Esp);
    worker.turn(1);
    assert_eq!(dropped(&worker, WorkerDrop::LinkTooBig), 1);
    let (_, error) = sent(&mut worker, WAN).pop().unwrap();
    let error = Ipv4::parse_verified(&error).unwrap();
    assert_eq!((error.src().to_string(), error.dst().to_string()), (CLIENT.to_owned(), PEER.to_owned()));
    assert!(sent(&mut worker, LAN).is_empty());

    // Not without end: a hundred between two ticks; one was before the tick.
    worker.turn(500);
    for _ in 0..300 {
        arrive(&mut worker, WAN, &ipv4(PEER, CLIENT, 1400, true), Class::Esp);
        worker.turn(501);
        sent(&mut worker, WAN);
    }
    assert_eq!(worker.counters().totals().generated, 101);
    check_and_close(worker);
}

/// The addresses of an outer packet; the client stands for the peer.
const OUTER: &str = "2001:db8::7";

/// Stands for encryption: something before the packet and something behind.
fn encapsulate(item: &mut Item<'_>) -> usize {
    assert!(item.buf.grow_front(56) && item.buf.grow_back(20));
    let len = item.buf.len();
    item.buf.data_mut()[..40].copy_from_slice(&ipv6(OUTER, len)[..40]);
    item.buf.data_mut()[6] = 50;
    len
}

/// Puts the fragments of one IPv6 packet together.
fn join(pieces: &[([u8; 14], Vec<u8>)]) -> Vec<u8> {
    let mut payload = Vec::new();
    for (number, (_, piece)) in pieces.iter().enumerate() {
        let upper = testudo_wire::ipv6::Ipv6::parse(piece).unwrap().upper().unwrap();
        let found = upper.fragment.unwrap();
        assert_eq!((found.offset, found.more), (payload.len(), number + 1 < pieces.len()));
        assert_eq!(upper.protocol.0, 50);
        payload.extend(upper.payload);
    }
    payload
}

/// An inner packet of 1280 octets must pass whole (RFC 8200 §5), through an outer path that takes
/// no more itself.
#[test]
fn an_outer_ipv6_packet_too_big_for_its_path_leaves_in_fragments() {
    let mut worker = worker(full_fib());
    worker.pipeline_mut().outbound = Some(|item| {
        assert_eq!(encapsulate(item), 1356);
        Verdict::ForwardInPieces { mtu: 1280 }
    });
    let inner = ipv4(CLIENT, "203.0.113.1", 1280, false);
    arrive(&mut worker, LAN, &inner, Class::Protect);
    worker.turn(1);
    let pieces = sent(&mut worker, LAN);
    assert_eq!(pieces.iter().map(|(_, piece)| piece.len()).collect::<Vec<_>>(), [1280, 48 + 1316 - 1232]);
    assert_eq!(join(&pieces)[16..16 + 1280], inner);
    assert_eq!(worker.counters().totals().split, 1);
    assert!(worker.delivery.channel.events.is_empty(), "nobody has learnt anything");
    check_and_close(worker);
}

/// The path was thought to be wider than the link is: the packet leaves all the same, and control
/// hears of it.
#[test]
fn an_outer_ipv6_packet_too_big_for_its_link_leaves_in_fragments() {
    let full = full_fib();
    let lan = Route::Forward(NextHop { out: Out::Port(PortIndex(0)), gateway: None, mtu: 1280 });
    let builder = Fib::builder().port(full.ports()[0].clone()).route("2001:db8::/64".parse().unwrap(), lan);
    let builder = builder.route("10.0.0.0/24".parse().unwrap(), next_hop(0, None));
    let fib = builder.neighbour(PortIndex(0), addr(OUTER), mac(0x76)).build();
    let mut worker = worker(Arc::new(fib));
    let scripts: [fn(&mut Item<'_>) -> Verdict; 2] = [
        |item| {
            encapsulate(item);
            Verdict::Forward
        },
        |item| {
            encapsulate(item);
            Verdict::ForwardInPieces { mtu: 1300 }
        },
    ];
    for (now, script) in [(1, scripts[0]), (200, scripts[1])] {
        worker.pipeline_mut().outbound = Some(script);
        arrive(&mut worker, LAN, &ipv4(CLIENT, "203.0.113.1", 1400, true), Class::Protect);
        worker.turn(now);
        let pieces = sent(&mut worker, LAN);
        assert_eq!(pieces.len(), 2);
        assert!(pieces.iter().all(|(_, piece)| piece.len() <= 1280));
        assert_eq!(join(&pieces).len(), 1436);
        let told = WorkerEvent::PathTooBig { remote: addr(OUTER), mtu: 1280 };
        assert_eq!(worker.delivery.channel.events.pop().map(|(_, event)| event), Some(told));
        worker.turn(now + 150);
    }
    // Packets of other hosts must be made smaller by their senders.
    arrive(&mut worker, LAN, &ipv6(OUTER, 1400), Class::Esp);
    worker.turn(400);
    assert_eq!(dropped(&worker, WorkerDrop::LinkTooBig), 1);
    check_and_close(worker);
}

#[test]
fn control_hears_of_protected_packets_that_are_too_big() {
    let mut worker = worker(narrow_lan());
    worker.pipeline_mut().outbound = Some(|item| {
        assert!(item.buf.grow_front(20));
        item.buf.data_mut()[..20].copy_from_slice(&ipv4("192.0.2.1", CLIENT, 1420, true)[..20]);
        Verdict::Forward
    });
    for _ in 0..3 {
        arrive(&mut worker, LAN, &ipv4(CLIENT, "203.0.113.1", 1400, true), Class::Protect);
    }
    worker.turn(1);
    assert_eq!(dropped(&worker, WorkerDrop::LinkTooBig), 3);
    let events = std::iter::from_fn(|| worker.delivery.channel.events.pop());
    let events: Vec<_> = events.map(|(_, event)| event).collect();
    assert_eq!(events, [WorkerEvent::PathTooBig { remote: addr(CLIENT), mtu: 1000 }], "once");
    check_and_close(worker);
}

/// Kept back until control says that the shard has come, in order; and for no longer than half a
/// second.
#[test]
fn packets_wait_for_their_shard() {
    use testudo_base::shard::ShardSet;
    use testudo_ipsec::dataplane::Command;
    let mut worker = worker(full_fib());
    worker.pipeline_mut().outbound = Some(|_| Verdict::Held);
    for length in 100..104 {
        arrive(&mut worker, LAN, &ipv4(CLIENT, PEER, length, false), Class::Protect);
    }
    worker.turn(1);
    assert_eq!((worker.counters().totals().held, sent(&mut worker, WAN).len()), (4, 0));
    // Other shards have moved: these continue to wait.
    tell(&mut worker, Command::SetShards(ShardSet::EMPTY));
    worker.turn(2);
    assert_eq!(worker.counters().totals().held, 4);
    worker.pipeline_mut().outbound = Some(|_| Verdict::Forward);
    worker.turn(3);
    assert_eq!(worker.counters().totals().held, 4, "nobody has said that anything has come");
    tell(&mut worker, Command::Hold(ShardSet::EMPTY));
    worker.turn(4);
    let lengths: Vec<usize> = sent(&mut worker, WAN).iter().map(|(_, packet)| packet.len()).collect();
    assert_eq!((worker.counters().totals().held, lengths), (0, vec![100, 101, 102, 103]));

    worker.pipeline_mut().outbound = Some(|_| Verdict::Held);
    for length in 0..200 {
        arrive(&mut worker, LAN, &ipv4(CLIENT, PEER, 100 + length, false), Class::Protect);
        worker.turn(5);
    }
    let most = FRAMES as u64 / 4;
    assert_eq!(worker.counters().totals().held, most, "a quarter of all frames");
    assert_eq!(dropped(&worker, WorkerDrop::TransitDisplaced), 200 - most);
    worker.turn(600);
    assert_eq!((worker.counters().totals().held, dropped(&worker, WorkerDrop::TransitTimeout)), (0, most));
    check_and_close(worker);
}
