//! Decrypted packets are not returned in clear on the path they came by, when the inner route is
//! lost.

use super::joining::pieces;
use super::*;
use testudo_ipsec::spd::PolicyId;

/// Behind the tunnel's near end: the route to it is lost.
const INSIDE: &str = "10.9.0.1";
const POLICY: PolicyId = PolicyId(3);

/// A default route out of that port, neighbours as usual, and this route besides.
fn fib_by_default(port: usize, gateway: &str, further: Option<(&str, Route)>) -> Arc<Fib> {
    let mut builder = Fib::builder()
        .port(link(0))
        .port(link(1))
        .route("0.0.0.0/0".parse().unwrap(), next_hop(port as u16, Some(gateway)))
        .route("10.0.0.0/24".parse().unwrap(), next_hop(0, None))
        .route("192.0.2.0/24".parse().unwrap(), next_hop(1, None))
        .neighbour(PortIndex(0), addr(CLIENT), mac(0x77))
        .neighbour(PortIndex(1), addr(ROUTER), mac(0xfe));
    if let Some((prefix, route)) = further {
        builder = builder.route(prefix.parse().unwrap(), route);
    }
    Arc::new(builder.build())
}

/// A worker whose tunnels have a certain local side, and this peer.
fn guarded(fib: Arc<Fib>, peer: Option<&str>) -> TestWorker {
    let mut worker = worker(fib);
    let pipeline = worker.pipeline_mut();
    pipeline.peer = peer.map(addr);
    pipeline.inbound = Some(|item| {
        item.inside = Some(POLICY);
        Verdict::Forward
    });
    worker
}

/// Lets a packet for that address come out of a tunnel, and says where it has left and how many
/// were held back so far.
fn decrypt(worker: &mut TestWorker, to: &str) -> ([usize; 2], u64) {
    arrive(worker, WAN, &ipv4("10.2.0.1", to, 60, true), Class::Esp);
    worker.turn(1);
    ([LAN, WAN].map(|place| sent(worker, place).len()), dropped(worker, WorkerDrop::InnerRouteLost))
}

#[test]
fn decrypted_packets_do_not_use_the_default_route_to_the_peer() {
    let mut worker = guarded(fib_by_default(WAN, ROUTER, None), Some("198.51.100.9"));
    assert_eq!(decrypt(&mut worker, CLIENT), ([1, 0], 0));
    assert_eq!(decrypt(&mut worker, INSIDE), ([0, 0], 1));
    assert_eq!(decrypt(&mut worker, INSIDE), ([0, 0], 2), "from the cache too");
    check_and_close(worker);
}

/// The peer's packets came by the one port, and its answers leave by the other.
#[test]
fn the_port_that_answers_leave_by_counts_as_well_as_the_one_that_packets_came_by() {
    let mut worker = guarded(fib_by_default(LAN, CLIENT, None), Some("10.0.0.200"));
    assert_eq!(decrypt(&mut worker, INSIDE), ([0, 0], 1));
    worker.pipeline_mut().peer = Some(addr(PEER));
    assert_eq!(decrypt(&mut worker, INSIDE), ([1, 0], 1), "reached by the other port");
    check_and_close(worker);
}

#[test]
fn a_peer_that_is_not_known_may_be_reached_by_any_port() {
    let mut worker = guarded(fib_by_default(LAN, CLIENT, None), None);
    assert_eq!(decrypt(&mut worker, INSIDE), ([0, 0], 1));
    check_and_close(worker);
}

/// A full tunnel's local side is everything: its users go out to the Internet here.
#[test]
fn a_full_tunnel_breaks_out_by_the_default_route() {
    let mut worker = guarded(fib_by_default(WAN, ROUTER, None), Some("198.51.100.9"));
    worker.pipeline_mut().inbound = Some(|_| Verdict::Forward);
    assert_eq!(decrypt(&mut worker, INSIDE), ([0, 1], 0));
    check_and_close(worker);
}

/// One port alone: what is decrypted leaves by the port that it came by, to a router that has a
/// route of its own.
#[test]
fn a_one_armed_gateway_needs_a_route_or_the_setting() {
    let route = ("10.9.0.0/16", next_hop(WAN as u16, Some(ROUTER)));
    let mut with_route = guarded(fib_by_default(WAN, ROUTER, Some(route)), Some("198.51.100.9"));
    assert_eq!(decrypt(&mut with_route, INSIDE), ([0, 1], 0));
    check_and_close(with_route);

    let mut with_setting = guarded(fib_by_default(WAN, ROUTER, None), Some("198.51.100.9"));
    with_setting.delivery.clear_by_default = [PortIndex(WAN as u16)].into_iter().collect();
    assert_eq!(decrypt(&mut with_setting, INSIDE), ([0, 1], 0));
    check_and_close(with_setting);
}

/// It waits for its neighbour inside when the route there is lost.
#[test]
fn a_waiting_decrypted_packet_is_routed_again_when_routes_change() {
    let before = fib(&[(1, ROUTER, 0xfe)]);
    let mut worker = guarded(before, Some("198.51.100.9"));
    assert_eq!(decrypt(&mut worker, CLIENT), ([0, 0], 0));
    let lost = Fib::builder()
        .port(link(0))
        .port(link(1))
        .route("0.0.0.0/0".parse().unwrap(), next_hop(1, Some(ROUTER)))
        .neighbour(PortIndex(0), addr(CLIENT), mac(0x77))
        .neighbour(PortIndex(1), addr(ROUTER), mac(0xfe));
    worker.delivery.channel.commands.push(WorkerCommand::Fib(Arc::new(lost.build()))).unwrap();
    worker.turn(2);
    assert_eq!(sent(&mut worker, WAN).len(), 0);
    assert_eq!(dropped(&worker, WorkerDrop::InnerRouteLost), 1);
    check_and_close(worker);
}

/// Larger than its SA may carry on in one piece.
#[test]
fn pieces_are_held_back_as_the_whole_is() {
    let mut worker = guarded(fib_by_default(WAN, ROUTER, None), Some("198.51.100.9"));
    worker.pipeline_mut().inbound = Some(|item| {
        item.inside = Some(POLICY);
        Verdict::ForwardInPieces { mtu: 600 }
    });
    arrive(&mut worker, WAN, &ipv4("10.2.0.1", INSIDE, 1000, false), Class::Esp);
    worker.turn(1);
    assert_eq!(sent(&mut worker, WAN).len(), 0);
    assert_eq!(dropped(&worker, WorkerDrop::InnerRouteLost), 2);
    check_and_close(worker);
}

/// A policy for certain ports beside one that lets pass: fragments go on to the outbound policies,
/// which see the whole packet and let it pass.
#[test]
fn what_passes_once_it_is_reassembled_is_held_back_as_others_are() {
    let onward: fn(&mut Item<'_>) -> Verdict = |item| {
        item.inside = Some(POLICY);
        Verdict::Onward
    };
    let outbound: fn(&mut Item<'_>) -> Verdict = |item| match Ipv4::parse_verified(item.buf.data()) {
        Ok(ip) if ip.is_fragment() => Verdict::Reassemble,
        _ => Verdict::Forward,
    };
    let arrive_in_pieces = |worker: &mut TestWorker, to: &str, now: u64| {
        for piece in pieces(&ipv4("10.2.0.1", to, 900, false), 576) {
            arrive(worker, WAN, &piece, Class::Esp);
        }
        worker.turn(now);
        ([LAN, WAN].map(|place| sent(worker, place).len()), dropped(worker, WorkerDrop::InnerRouteLost))
    };
    for peer in ["198.51.100.9", PEER] {
        let mut worker = guarded(fib_by_default(WAN, ROUTER, None), Some(peer));
        worker.pipeline_mut().inbound = Some(onward);
        worker.pipeline_mut().outbound = Some(outbound);
        assert_eq!(arrive_in_pieces(&mut worker, CLIENT, 1), ([1, 0], 0));
        assert_eq!(arrive_in_pieces(&mut worker, INSIDE, 2), ([0, 0], 1));
        // One that is protected after all leaves by the default route, to the other tunnel's peer.
        worker.pipeline_mut().outbound = Some(|item| {
            assert!(item.buf.grow_front(20));
            item.buf.data_mut()[..20].copy_from_slice(&ipv4("192.0.2.1", "203.0.113.7", 920, true)[..20]);
            Verdict::Forward
        });
        arrive(&mut worker, WAN, &ipv4("10.2.0.1", INSIDE, 900, true), Class::Esp);
        worker.turn(3);
        assert_eq!((sent(&mut worker, WAN).len(), dropped(&worker, WorkerDrop::InnerRouteLost)), (1, 1));
        check_and_close(worker);
    }
}
