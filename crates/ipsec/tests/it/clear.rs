//! Packets that come in clear from where a peer's come protected (RFC 4301 §5.2), and what the
//! gateway itself sends beside a tunnel for everything.

use crate::clear_fragments::fragments;
use crate::harness::{Gateway, POLICY, Tunnel, Way, net, run, set_spd};
use crate::packets::{datagram, one_hop_on, sized, v4_with, v6_with};
use std::net::Ipv4Addr;
use std::sync::Arc;
use testudo_ipsec::dataplane::{Command, Ingress, Verdict};
use testudo_ipsec::drops::DropReason;
use testudo_ipsec::selector::TrafficSelector;
use testudo_ipsec::spd::{Action, Policy, Spd};
use testudo_wire::ip::Protocol;
use testudo_wire::ipv6::MIN_MTU;

/// A's own addresses: of the outer link, and of the network inside.
const OUTER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const INNER: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 1);
/// A host behind A, one that no policy knows, and one far away.
const HOST: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 2);
const OTHER: Ipv4Addr = Ipv4Addr::new(10, 50, 0, 2);
const FAR: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);

fn everything() -> TrafficSelector {
    net("0.0.0.0", "255.255.255.255")
}

fn policy(priority: u32, remote: TrafficSelector, action: Action) -> Policy {
    Policy { priority, local: vec![net("10.1.0.0", "10.1.255.255")], remote: vec![remote], action }
}

/// A with these policies.
fn gateway(policies: Vec<Policy>) -> Gateway {
    let tunnel = Tunnel::default();
    let mut gateway = Gateway::new(&tunnel.params(), tunnel.library);
    set_spd(&mut gateway.plane, policies);
    gateway
}

/// A datagram to port 2000.
fn from_to(src: Ipv4Addr, dst: Ipv4Addr) -> Vec<u8> {
    v4_with(|fields| (fields.src, fields.dst) = (src, dst), Protocol::UDP, &datagram(60))
}

fn judged(gateway: &mut Gateway, packet: Vec<u8>) -> (Verdict, Vec<u8>) {
    let result = run(&mut gateway.plane, Way::Clear, Ingress::Port, &[packet]).remove(0);
    let totals = gateway.plane.counters().totals();
    assert!(totals.inbound.is_balanced(), "{totals:?}");
    result
}

fn refused(reason: DropReason) -> Verdict {
    Verdict::Drop(reason)
}

#[test]
fn clear_packets_that_should_be_protected_are_dropped_and_counted() {
    let mut gateway = gateway(vec![policy(1, everything(), Action::Protect(POLICY))]);
    for dst in [HOST, INNER] {
        let (verdict, _) = judged(&mut gateway, from_to(FAR, dst));
        assert_eq!(verdict, refused(DropReason::ClearButProtected), "{dst}");
    }
    assert_eq!(gateway.plane.counters().dropped_inbound(DropReason::ClearButProtected), 2);
    let (verdict, _) = judged(&mut gateway, from_to(FAR, HOST)[..30].to_vec());
    assert_eq!(verdict, refused(DropReason::Malformed));
    assert_eq!(gateway.plane.counters().dropped_inbound(DropReason::Malformed), 1);
}

#[test]
fn clear_packets_that_policies_pass_are_forwarded_or_delivered() {
    let far = || net("198.51.100.0", "198.51.100.255");
    let mut gateway = gateway(vec![
        policy(1, far(), Action::Bypass),
        policy(2, net("203.0.113.0", "203.0.113.255"), Action::Discard),
        policy(3, everything(), Action::Protect(POLICY)),
    ]);
    let packet = from_to(FAR, HOST);
    assert_eq!(judged(&mut gateway, packet.clone()), (Verdict::Forward, one_hop_on(&packet)));
    let packet = from_to(FAR, INNER);
    assert_eq!(judged(&mut gateway, packet.clone()), (Verdict::ToHost, packet));
    let (verdict, _) = judged(&mut gateway, from_to(Ipv4Addr::new(203, 0, 113, 9), HOST));
    assert_eq!(verdict, refused(DropReason::PolicyDiscard));
    let last = v4_with(|f| (f.src, f.dst, f.ttl) = (FAR, HOST, 1), Protocol::UDP, &datagram(60));
    assert_eq!(judged(&mut gateway, last).0, Verdict::Reply);
}

/// A bypass for some ports: their answers come in clear, and nothing else does.
#[test]
fn ports_decide_about_clear_packets_too() {
    let port = |port| TrafficSelector { protocol: 17, port_start: port, port_end: port, ..everything() };
    // A datagram comes from port 1000.
    let passes = || policy(1, port(1000), Action::Bypass);
    let protects = || policy(2, everything(), Action::Protect(POLICY));
    let mut open = gateway(vec![passes(), protects()]);
    assert_eq!(judged(&mut open, from_to(FAR, HOST)).0, Verdict::Forward);
    let mut shut = gateway(vec![policy(1, port(1001), Action::Bypass), protects()]);
    assert_eq!(judged(&mut shut, from_to(FAR, HOST)).0, refused(DropReason::ClearButProtected));

    // And a tunnel for some ports alone.
    let mut other = gateway(vec![policy(1, port(1001), Action::Protect(POLICY))]);
    assert_eq!(judged(&mut other, from_to(FAR, HOST)).0, refused(DropReason::NoPolicy));
    let mut same = gateway(vec![policy(1, port(1000), Action::Protect(POLICY))]);
    assert_eq!(judged(&mut same, from_to(FAR, HOST)).0, refused(DropReason::ClearButProtected));
}

#[test]
fn fragments_that_ports_decide_about_are_put_together_first() {
    let port = TrafficSelector { protocol: 17, port_start: 1000, port_end: 1000, ..everything() };
    let mut gateway =
        gateway(vec![policy(1, port, Action::Bypass), policy(2, everything(), Action::Protect(POLICY))]);
    let fragment = |number: usize| {
        let mut packet = fragments(false)[number].clone();
        packet[12..16].copy_from_slice(&FAR.octets());
        packet[16..20].copy_from_slice(&HOST.octets());
        packet[10..12].fill(0);
        let sum = testudo_wire::checksum::Sum::new().bytes(&packet[..20]).finish();
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        packet
    };
    for number in [0, 1] {
        assert_eq!(judged(&mut gateway, fragment(number)).0, Verdict::Reassemble);
    }
    // Where no ports are asked for, each is judged as it is.
    set_spd(&mut gateway.plane, vec![policy(2, everything(), Action::Protect(POLICY))]);
    for number in [0, 1] {
        assert_eq!(judged(&mut gateway, fragment(number)).0, refused(DropReason::ClearButProtected));
    }
}

/// Packets of this host from an address that no policy selects are sent. Packets to it are not for
/// a worker: for the kernel they would look as if they came through the tunnel.
#[test]
fn beside_a_tunnel_for_everything_the_host_sends_in_clear_and_gets_nothing() {
    let mut gateway = gateway(vec![policy(1, everything(), Action::Protect(POLICY))]);
    assert_eq!(judged(&mut gateway, from_to(FAR, OUTER)).0, refused(DropReason::NoPolicy));
    assert_eq!(judged(&mut gateway, from_to(FAR, OTHER)).0, refused(DropReason::NoPolicy));

    let mut send = |ingress, src| {
        let packet = from_to(src, FAR);
        let (verdict, left) =
            run(&mut gateway.plane, Way::Outbound, ingress, std::slice::from_ref(&packet)).remove(0);
        (verdict, left == packet)
    };
    let no_policy = refused(DropReason::NoPolicy);
    assert_eq!(send(Ingress::Host, OUTER), (Verdict::Forward, true), "as the kernel has sent it");
    assert_eq!(send(Ingress::Host, OTHER).0, no_policy, "from a host that the kernel forwards for");
    assert_eq!(send(Ingress::Port, OUTER).0, no_policy, "forged");
    assert_eq!(send(Ingress::Host, INNER).0, refused(DropReason::OutsideSa), "selected by the policy");
    let totals = gateway.plane.counters().totals();
    assert!(totals.outbound.is_balanced(), "{totals:?}");
}

/// A policy for a network protects it from clear traffic.
#[test]
fn the_gateway_itself_is_held_back_from_a_network_that_policies_name() {
    let network = net("198.51.0.0", "198.51.255.255");
    for policies in [
        vec![policy(1, network, Action::Protect(POLICY))],
        vec![policy(1, network, Action::Discard), policy(2, everything(), Action::Protect(POLICY))],
        vec![],
    ] {
        let mut gateway = gateway(policies);
        assert_eq!(judged(&mut gateway, from_to(FAR, OUTER)).0, refused(DropReason::NoPolicy));
        let packet = from_to(OUTER, FAR);
        let sent = run(&mut gateway.plane, Way::Outbound, Ingress::Host, &[packet]);
        assert_eq!(sent[0].0, refused(DropReason::NoPolicy));
    }
}

/// A network that no policy is about any more, and that stays shut.
#[test]
fn the_gateway_itself_is_held_back_from_what_stays_shut_beside_a_tunnel_for_everything() {
    let mut gateway = gateway(Vec::new());
    let mut spd = Spd::new(vec![policy(1, everything(), Action::Protect(POLICY))]).unwrap();
    let mut sent = |spd: &Spd, src| {
        gateway.plane.apply(Command::SetSpd(Arc::new(spd.clone())));
        run(&mut gateway.plane, Way::Outbound, Ingress::Host, &[from_to(src, FAR)]).remove(0).0
    };
    assert_eq!(sent(&spd, OUTER), Verdict::Forward);
    let network = net("198.51.0.0", "198.51.255.255").addrs;
    spd.hold_back(&network);
    assert_eq!(sent(&spd, OUTER), refused(DropReason::NoPolicy));
    assert_eq!(sent(&spd, INNER), refused(DropReason::OutsideSa), "the policy stands first");
    spd.let_go(&network);
    assert_eq!(sent(&spd, OUTER), Verdict::Forward);
}

#[test]
fn ipv6_is_judged_alike() {
    let whole = net("::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff");
    let local = vec![net("2001:db8:1::", "2001:db8:1:ffff::")];
    let own = "2001:db8:ff::1".parse().unwrap();
    let mut gateway =
        gateway(vec![Policy { priority: 1, local, remote: vec![whole], action: Action::Protect(POLICY) }]);
    gateway.plane.apply(Command::SetLocalAddrs(Arc::new([own].into_iter().collect())));
    let far = "2001:db8:99::7".parse().unwrap();
    let to =
        |dst: &str| v6_with(|f| (f.src, f.dst) = (far, dst.parse().unwrap()), Protocol::UDP, &datagram(60));
    assert_eq!(judged(&mut gateway, to("2001:db8:ff::1")).0, refused(DropReason::NoPolicy));
    assert_eq!(judged(&mut gateway, to("2001:db8:1::2")).0, refused(DropReason::ClearButProtected));
    assert_eq!(judged(&mut gateway, to("2001:db8:77::2")).0, refused(DropReason::NoPolicy));
}

/// Every link takes IPv6 packets of 1280 octets. A larger one that came in fragments leaves in
/// fragments of that size: its sender has found no larger ones to pass.
#[test]
fn a_large_ipv6_packet_that_came_in_fragments_goes_on_in_fragments() {
    let whole = || net("::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff");
    let (local, remote) = (vec![whole(), everything()], vec![whole(), everything()]);
    let mut gateway = gateway(vec![Policy { priority: 1, local, remote, action: Action::Bypass }]);
    let pieces = Verdict::ForwardInPieces { mtu: MIN_MTU };
    for (ingress, is_v6, len, expected) in [
        (Ingress::PortJoined, true, 1281, pieces),
        (Ingress::PortJoined, true, 1280, Verdict::Forward),
        (Ingress::PortJoined, true, 600, Verdict::Forward),
        (Ingress::Port, true, 1281, Verdict::Forward),
        (Ingress::PortJoined, false, 1281, Verdict::Forward),
    ] {
        let packet = sized(is_v6, len);
        for way in [Way::Clear, Way::Outbound] {
            let found = run(&mut gateway.plane, way, ingress, std::slice::from_ref(&packet)).remove(0);
            assert_eq!(found, (expected, one_hop_on(&packet)), "{way:?} {ingress:?} {is_v6} {len}");
        }
    }
}

#[test]
fn a_node_that_is_fenced_judges_nothing() {
    let mut gateway = gateway(vec![policy(1, everything(), Action::Bypass)]);
    gateway.plane.set_open(false);
    assert_eq!(judged(&mut gateway, from_to(FAR, INNER)).0, refused(DropReason::Fenced));
}
