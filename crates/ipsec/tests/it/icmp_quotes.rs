//! ICMP errors of routers whose addresses no selector holds: they pass by the packet that they
//! quote (RFC 4301 §6.2), if their child asks for that.

use crate::clear_fragments::fragments;
use crate::harness::{Gateway, PATH_MTU, POLICY, Tunnel, Way, forwarded, net, pair, run, set_spd};
use crate::packets::{A4, A6, B4, B6, one_hop_on, sized, v4_with, v6_with};
use proptest::prelude::*;
use std::net::IpAddr;
use std::sync::Arc;
use testudo_base::shard::ShardSet;
use testudo_ipsec::dataplane::{Command, Ingress, Verdict};
use testudo_ipsec::drops::DropReason;
use testudo_ipsec::sa::ChildSaParams;
use testudo_ipsec::selector::{SelectorPair, TrafficSelector};
use testudo_ipsec::spd::{Action, Policy, PolicyId};
use testudo_wire::checksum::Sum;
use testudo_wire::ip::Protocol;

const NO_POLICY: Verdict = Verdict::Drop(DropReason::NoPolicy);
const MISMATCH: Verdict = Verdict::Drop(DropReason::SelectorMismatch);

/// Behind B, beyond the selectors.
const ROUTER: [&str; 2] = ["10.9.0.1", "2001:db8:9::1"];
/// In nobody's network.
const STRANGER: [&str; 2] = ["10.3.0.2", "2001:db8:3::2"];
/// Another host of A's network.
const OTHER_HOST: [&str; 2] = ["10.1.0.3", "2001:db8:1::3"];

fn addr(of: [&str; 2], is_v6: bool) -> IpAddr {
    of[usize::from(is_v6)].parse().unwrap()
}

/// Hosts behind A and B.
fn hosts(is_v6: bool) -> (IpAddr, IpAddr) {
    if is_v6 { (A6.into(), B6.into()) } else { (A4.into(), B4.into()) }
}

/// A packet between any addresses of one family.
fn packet(src: IpAddr, dst: IpAddr, protocol: Protocol, payload: &[u8]) -> Vec<u8> {
    match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => v4_with(|f| (f.src, f.dst) = (src, dst), protocol, payload),
        (IpAddr::V6(src), IpAddr::V6(dst)) => v6_with(|f| (f.src, f.dst) = (src, dst), protocol, payload),
        _ => panic!("{src} and {dst} are of different families"),
    }
}

/// An ICMP message of this type with a packet in it.
fn message(kind: u8, src: IpAddr, dst: IpAddr, quote: &[u8]) -> Vec<u8> {
    let protocol = if src.is_ipv6() { Protocol::ICMPV6 } else { Protocol::ICMP };
    packet(src, dst, protocol, &[&[kind, 0, 0, 0, 0, 0, 0, 0], quote].concat())
}

/// The router's "time exceeded" about a packet from A's host.
fn time_exceeded(is_v6: bool, quote: &[u8]) -> Vec<u8> {
    message(if is_v6 { 3 } else { 11 }, addr(ROUTER, is_v6), hosts(is_v6).0, quote)
}

/// Ports of the UDP packets.
const PORTS: [u8; 8] = [0x03, 0xe8, 0x07, 0xd0, 0, 8, 0, 0];

fn udp(src: IpAddr, dst: IpAddr) -> Vec<u8> {
    packet(src, dst, Protocol::UDP, &PORTS)
}

fn set(gateway: &Gateway, icmp: bool) {
    gateway.inbound.set_icmp(icmp);
    gateway.outbound.set_icmp(icmp);
}

fn everything() -> Vec<TrafficSelector> {
    vec![net("0.0.0.0", "255.255.255.255"), net("::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")]
}

/// A, and a peer that sends through the SA whatever comes to it.
fn before_a_careless_peer(params: &ChildSaParams) -> (Gateway, Gateway) {
    let library = Tunnel::default().library;
    let a = Gateway::new(params, library);
    let peer = ChildSaParams { local_ts: everything(), remote_ts: everything(), ..params.mirrored() };
    (a, Gateway::new(&peer, library))
}

/// What A does with packets that come through the SA, all in one burst.
fn received(a: &mut Gateway, peer: &mut Gateway, packets: &[Vec<u8>]) -> Vec<Verdict> {
    let outer = forwarded(run(&mut peer.plane, Way::Outbound, Ingress::Host, packets));
    verdicts(a.inbound(&outer))
}

fn verdicts(results: Vec<(Verdict, Vec<u8>)>) -> Vec<Verdict> {
    results.into_iter().map(|(verdict, _)| verdict).collect()
}

fn assert_balanced(gateway: &Gateway) {
    let totals = gateway.plane.counters().totals();
    assert!(totals.inbound.is_balanced() && totals.outbound.is_balanced(), "{totals:?}");
}

#[test]
fn a_routers_error_passes_if_both_ends_ask_for_it() {
    for tunnel in Tunnel::all() {
        for is_v6 in [false, true] {
            let (mut a, mut b) = pair(&tunnel);
            let error = time_exceeded(is_v6, &sized(is_v6, 100));
            let send = |b: &mut Gateway| b.outbound(std::slice::from_ref(&error)).remove(0);
            assert_eq!(send(&mut b).0, NO_POLICY);
            b.outbound.set_icmp(true);
            let outer = send(&mut b);
            assert_eq!(outer.0, Verdict::Forward);
            assert_eq!(a.inbound(&[outer.1]).remove(0).0, MISMATCH);
            assert_eq!(a.dropped_inbound(DropReason::SelectorMismatch), (1, 1));
            a.inbound.set_icmp(true);
            let outer = forwarded(b.outbound(std::slice::from_ref(&error)));
            assert_eq!(forwarded(a.inbound(&outer)), [one_hop_on(&one_hop_on(&error))]);
            // And for as long as they do.
            b.outbound.set_icmp(false);
            assert_eq!(send(&mut b).0, NO_POLICY);
            assert_balanced(&a);
            assert_balanced(&b);
        }
    }
}

#[test]
fn an_error_for_the_gateway_itself_reaches_it() {
    let (mut a, mut peer) = before_a_careless_peer(&Tunnel::default().params());
    set(&a, true);
    let own = "10.1.0.1".parse().unwrap();
    let error = message(11, addr(ROUTER, false), own, &udp(own, B4.into()));
    assert_eq!(received(&mut a, &mut peer, &[error]), [Verdict::ToHost]);
}

/// Of an error, and of the packet that it quotes, all that matters.
#[derive(Clone, Debug)]
struct Case {
    is_v6: bool,
    kind: u8,
    /// Ends of the quoted packet.
    from: IpAddr,
    to: IpAddr,
    /// Destination of the error.
    dst: IpAddr,
    /// Octets of the quote.
    quoted: usize,
}

impl Case {
    fn error(&self) -> Vec<u8> {
        let mut quote = udp(self.from, self.to);
        quote.truncate(self.quoted);
        message(self.kind, addr(ROUTER, self.is_v6), self.dst, &quote)
    }

    /// True if the error answers a packet from `near` to `far`.
    fn answers(&self, near: IpAddr, far: IpAddr) -> bool {
        let kinds: &[u8] = if self.is_v6 { &[1, 2, 3, 4] } else { &[3, 11, 12] };
        let header = if self.is_v6 { 40 } else { 20 };
        kinds.contains(&self.kind)
            && (self.from, self.to, self.dst) == (near, far, near)
            && self.quoted >= header + 4
    }
}

fn case() -> impl Strategy<Value = Case> {
    any::<bool>().prop_flat_map(|is_v6| {
        let (a, b) = hosts(is_v6);
        let likely = move |addr: IpAddr| prop_oneof![3 => Just(addr), 1 => end(is_v6)];
        let kind = prop_oneof![3 => 0..14_u8, 1 => any::<u8>()];
        let ends = prop_oneof![Just((a, b)), Just((b, a))].prop_flat_map(move |(from, to)| {
            let dst = prop_oneof![3 => Just(from), 1 => Just(to), 1 => end(is_v6)];
            (likely(from), likely(to), dst)
        });
        let quoted = prop_oneof![1 => 0..48_usize, 3 => Just(48)];
        (kind, ends, quoted).prop_map(move |(kind, (from, to, dst), quoted)| Case {
            is_v6,
            kind,
            from,
            to,
            dst,
            quoted,
        })
    })
}

fn end(is_v6: bool) -> impl Strategy<Value = IpAddr> {
    let (a, b) = hosts(is_v6);
    prop::sample::select(vec![a, b, addr(OTHER_HOST, is_v6), addr(STRANGER, is_v6), addr(ROUTER, is_v6)])
}

proptest! {
    #[test]
    fn inbound_it_must_quote_a_packet_that_went_out(case in case(), icmp in any::<bool>()) {
        let (mut a, mut peer) = before_a_careless_peer(&Tunnel::default().params());
        set(&a, icmp);
        let (near, far) = hosts(case.is_v6);
        let near = if case.from == addr(OTHER_HOST, case.is_v6) { case.from } else { near };
        let expected = if icmp && case.answers(near, far) { Verdict::Forward } else { MISMATCH };
        prop_assert_eq!(received(&mut a, &mut peer, &[case.error()]), [expected]);
        assert_balanced(&a);
    }

    #[test]
    fn outbound_it_must_quote_a_packet_that_came_in(case in case(), icmp in any::<bool>()) {
        let (mut a, _) = pair(&Tunnel::default());
        set(&a, icmp);
        let (near, far) = hosts(case.is_v6);
        let near = if case.to == addr(OTHER_HOST, case.is_v6) { case.to } else { near };
        let passes = icmp && case.answers(far, near);
        let expected = if passes { Verdict::Forward } else { NO_POLICY };
        prop_assert_eq!(verdicts(a.outbound(&[case.error()])), [expected]);
        prop_assert_eq!(a.outbound.numbers().block().next, 1 + u64::from(passes));
        assert_balanced(&a);
    }

    /// Whatever a quote holds, it is read as far as it goes.
    #[test]
    fn any_quote_is_safe(
        is_v6 in any::<bool>(),
        kind in 1..5_u8,
        mut quote in prop::collection::vec(any::<u8>(), 0..120),
        well_formed in any::<bool>(),
    ) {
        if let Some(first) = quote.first_mut().filter(|_| well_formed) {
            *first = if is_v6 { 0x60 } else { 0x45 };
        }
        let (mut a, mut peer) = before_a_careless_peer(&Tunnel::default().params());
        set(&a, true);
        let error = message(kind, addr(ROUTER, is_v6), hosts(is_v6).0, &quote);
        prop_assert_eq!(received(&mut a, &mut peer, &[error]), [MISMATCH]);
    }
}

/// All are of one flow, and alike but for what they quote.
#[test]
fn errors_of_one_flow_are_judged_one_by_one() {
    for is_v6 in [false, true] {
        let (near, far) = hosts(is_v6);
        let stranger = addr(STRANGER, is_v6);
        let (mut a, mut peer) = before_a_careless_peer(&Tunnel::default().params());
        set(&a, true);
        let about = |quote: &[u8]| time_exceeded(is_v6, quote);
        let (own, foreign) = (about(&udp(near, far)), about(&udp(near, stranger)));
        let ordinary = packet(far, near, Protocol::UDP, &PORTS);
        let both = [MISMATCH, Verdict::Forward];
        let sent = |wanted: &[&Vec<u8>]| -> Vec<Vec<u8>> { wanted.iter().map(|one| one.to_vec()).collect() };
        let mixed = sent(&[&ordinary, &ordinary, &own, &foreign, &own, &own, &foreign, &ordinary, &ordinary]);
        let expected = [1, 1, 1, 0, 1, 1, 0, 1, 1].map(|passes: usize| both[passes]);
        assert_eq!(received(&mut a, &mut peer, &mixed), expected);
        for _ in 0..2 {
            assert_eq!(received(&mut a, &mut peer, std::slice::from_ref(&own)), [Verdict::Forward]);
            assert_eq!(received(&mut a, &mut peer, std::slice::from_ref(&foreign)), [MISMATCH]);
        }
        let (_, mut b) = pair(&Tunnel::default());
        set(&b, true);
        let both = [NO_POLICY, Verdict::Forward];
        let burst = sent(&[&own, &own, &foreign, &own, &foreign, &foreign]);
        assert_eq!(verdicts(b.outbound(&burst)), [1, 1, 0, 1, 0, 0].map(|passes: usize| both[passes]));
        for _ in 0..2 {
            assert_eq!(verdicts(b.outbound(std::slice::from_ref(&foreign))), [NO_POLICY]);
            assert_eq!(verdicts(b.outbound(std::slice::from_ref(&own))), [Verdict::Forward]);
        }
    }
}

#[test]
fn a_quote_must_show_the_ports_that_the_selectors_ask_for() {
    let tunnel = Tunnel::default();
    for (port, whole) in [(2000, true), (2001, false)] {
        let mut params = tunnel.params();
        for ts in &mut params.remote_ts {
            *ts = TrafficSelector { protocol: 17, port_start: port, port_end: port, ..*ts };
        }
        let (mut a, mut peer) = before_a_careless_peer(&params);
        let mut b = Gateway::new(&params.mirrored(), tunnel.library);
        set(&a, true);
        set(&b, true);
        for is_v6 in [false, true] {
            let [first, later] = fragments(is_v6);
            for (quote, passes) in [(sized(is_v6, 100), whole), (first, whole), (later, false)] {
                let error = time_exceeded(is_v6, &quote);
                let expected = |refused| if passes { Verdict::Forward } else { refused };
                assert_eq!(verdicts(b.outbound(std::slice::from_ref(&error))), [expected(NO_POLICY)]);
                assert_eq!(received(&mut a, &mut peer, &[error]), [expected(MISMATCH)]);
            }
        }
    }
}

/// Where any port may pass, fragments may be quoted too.
#[test]
fn fragments_may_be_quoted() {
    let (mut a, mut peer) = before_a_careless_peer(&Tunnel::default().params());
    let (_, mut b) = pair(&Tunnel::default());
    set(&a, true);
    set(&b, true);
    for is_v6 in [false, true] {
        let errors = fragments(is_v6).map(|quote| time_exceeded(is_v6, &quote));
        assert_eq!(verdicts(b.outbound(&errors)), [Verdict::Forward; 2]);
        assert_eq!(received(&mut a, &mut peer, &errors), [Verdict::Forward; 2]);
    }
}

/// A policy for one port comes first: the port of a later fragment might be that one.
#[test]
fn a_quote_that_another_policy_may_be_about_does_not_pass() {
    let (mut a, _) = pair(&Tunnel::default());
    set(&a, true);
    let params = Tunnel::default().params();
    let rest = Policy {
        priority: 1,
        local: params.local_ts,
        remote: params.remote_ts,
        action: Action::Protect(POLICY),
    };
    let mut one_port = Policy { priority: 0, action: Action::Discard, ..rest.clone() };
    for ts in &mut one_port.local {
        *ts = TrafficSelector { protocol: 17, port_start: 5000, port_end: 5000, ..*ts };
    }
    set_spd(&mut a.plane, vec![one_port, rest]);
    let (near, far) = hosts(false);
    let [_, later] = fragments(false);
    let mut from_far = later.clone();
    from_far[12..16].copy_from_slice(&later[16..20]);
    from_far[16..20].copy_from_slice(&later[12..16]);
    for (quote, expected) in [(udp(far, near), Verdict::Forward), (from_far, NO_POLICY)] {
        let error = message(11, addr(ROUTER, false), far, &quote);
        assert_eq!(verdicts(a.outbound(&[error])), [expected]);
    }
}

/// Only the first fragment of an error shows what it quotes.
#[test]
fn fragments_of_errors_do_not_pass() {
    let (mut a, mut peer) = before_a_careless_peer(&Tunnel::default().params());
    set(&a, true);
    let mut error = time_exceeded(false, &sized(false, 100));
    error[6] = 0x20;
    error[10..12].fill(0);
    let checksum = Sum::new().bytes(&error[..20]).finish();
    error[10..12].copy_from_slice(&checksum.to_be_bytes());
    assert_eq!(received(&mut a, &mut peer, &[error]), [MISMATCH]);
}

/// A policy selects the router's address, and the peer has negotiated it away.
#[test]
fn an_error_that_is_outside_of_its_own_sa_passes_too() {
    let tunnel = Tunnel::default();
    let (mut a, mut b) = pair(&tunnel);
    let params = tunnel.params();
    let policy = Policy {
        priority: 0,
        local: vec![net("10.2.0.0", "10.9.255.255")],
        remote: params.local_ts.clone(),
        action: Action::Protect(POLICY),
    };
    set_spd(&mut b.plane, vec![policy]);
    let error = time_exceeded(false, &sized(false, 100));
    assert_eq!(b.outbound(std::slice::from_ref(&error))[0].0, Verdict::Drop(DropReason::OutsideSa));
    set(&a, true);
    set(&b, true);
    let outer = forwarded(b.outbound(std::slice::from_ref(&error)));
    assert_eq!(forwarded(a.inbound(&outer)).len(), 1);
}

/// The tunnel goes to a hub, and the sender of the quoted packet is behind another spoke: the error
/// must not leave the hub in clear.
#[test]
fn at_a_hub_it_goes_the_way_of_an_answer() {
    let tunnel = Tunnel::default();
    let (mut hub, mut peer) = before_a_careless_peer(&tunnel.params());
    set(&hub, true);
    let params = tunnel.params();
    let spoke = SelectorPair::new(&params.remote_ts, &params.local_ts);
    let mut policies = vec![Policy {
        priority: 0,
        local: params.local_ts.clone(),
        remote: params.remote_ts.clone(),
        action: Action::Protect(POLICY),
    }];
    policies.push(Policy {
        priority: 0,
        local: spoke.local_selectors().collect(),
        remote: spoke.remote_selectors().collect(),
        action: Action::Protect(PolicyId(POLICY.0 + 1)),
    });
    set_spd(&mut hub.plane, policies);
    let error = time_exceeded(false, &sized(false, 100));
    assert_eq!(received(&mut hub, &mut peer, std::slice::from_ref(&error)), [Verdict::Onward]);
    // That tunnel is down.
    let again = run(&mut hub.plane, Way::Outbound, Ingress::Host, &[error]);
    assert_eq!(verdicts(again), [NO_POLICY]);
}

#[test]
fn a_moved_sa_keeps_it() {
    let tunnel = Tunnel { udp: true, ..Tunnel::default() };
    let (_, mut b) = pair(&tunnel);
    set(&b, true);
    let params = tunnel.params().mirrored();
    let moved = Arc::new(b.outbound.moved(params.local, params.remote, PATH_MTU).unwrap());
    b.plane.apply(Command::SetOutbound(POLICY, moved));
    assert_eq!(forwarded(b.outbound(&[time_exceeded(false, &sized(false, 100))])).len(), 1);
}

/// Where all nodes of a cluster have the error, the home of the SA sends it, and no other node.
#[test]
fn of_the_nodes_that_have_it_the_home_alone_sends_it() {
    let (_, b) = pair(&Tunnel::default());
    let home: ShardSet = [b.inbound.spi().shard()].into_iter().collect();
    for (carried, expected) in
        [(home, Verdict::Forward), (ShardSet::ALL.without(home), Verdict::Drop(DropReason::OtherNode))]
    {
        let (_, mut b) = pair(&Tunnel::default());
        set(&b, true);
        b.plane.apply(Command::SetShards(carried));
        let error = time_exceeded(false, &sized(false, 100));
        let results = run(&mut b.plane, Way::Outbound, Ingress::Flooded, &[error]);
        assert_eq!(verdicts(results), [expected]);
    }
}

/// What the SA is for is quoted, and ICMP is not what it is for.
#[test]
fn an_sa_for_one_protocol_carries_the_errors_about_it() {
    let tunnel = Tunnel::default();
    let mut params = tunnel.params();
    params.local_ts.iter_mut().chain(&mut params.remote_ts).for_each(|ts| ts.protocol = 17);
    let mut a = Gateway::new(&params, tunnel.library);
    let mut b = Gateway::new(&params.mirrored(), tunnel.library);
    let unreachable = |quote: &[u8]| message(3, B4.into(), A4.into(), quote);
    let about_udp = unreachable(&sized(false, 100));
    let about_other = unreachable(&packet(A4.into(), B4.into(), Protocol(253), &PORTS));
    assert_eq!(verdicts(b.outbound(std::slice::from_ref(&about_udp))), [NO_POLICY]);
    set(&a, true);
    set(&b, true);
    assert_eq!(verdicts(b.outbound(&[about_other])), [NO_POLICY]);
    let outer = forwarded(b.outbound(&[about_udp]));
    assert_eq!(forwarded(a.inbound(&outer)).len(), 1);
}
