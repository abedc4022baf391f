//! Fragments of clear packets where ports decide: their datagram is put together first (RFC 4301
//! §7.3, §7.4).

use crate::harness::{Gateway, POLICY, Tunnel, Way, forwarded, net, run, set_spd};
use crate::packets::{datagram, one_hop_on, sized, v4_with, v6};
use std::slice::from_ref;
use testudo_ipsec::dataplane::{Ingress, Verdict};
use testudo_ipsec::drops::DropReason;
use testudo_ipsec::sa::ChildSaParams;
use testudo_ipsec::selector::TrafficSelector;
use testudo_ipsec::spd::{Action, Policy};
use testudo_wire::checksum::Sum;
use testudo_wire::ip::Protocol;
use testudo_wire::ipv6::MIN_MTU;

/// The port that [`datagram`]s go to.
const PORT: u16 = 2000;

fn far() -> [TrafficSelector; 2] {
    [net("10.2.0.0", "10.2.255.255"), net("2001:db8:2::", "2001:db8:2:ffff::")]
}

fn policy(priority: u32, remote: impl Fn(TrafficSelector) -> TrafficSelector, action: Action) -> Policy {
    let local = vec![net("10.1.0.0", "10.1.255.255"), net("2001:db8:1::", "2001:db8:1:ffff::")];
    Policy { priority, local, remote: far().map(remote).into(), action }
}

fn only(port: u16) -> impl Fn(TrafficSelector) -> TrafficSelector {
    move |ts| TrafficSelector { protocol: 17, port_start: port, port_end: port, ..ts }
}

fn opaque(ts: TrafficSelector) -> TrafficSelector {
    TrafficSelector { protocol: 17, port_start: u16::MAX, port_end: 0, ..ts }
}

fn all(ts: TrafficSelector) -> TrafficSelector {
    ts
}

/// A gateway with an SA for that, and these policies.
fn gateway_with(policies: Vec<Policy>, remote: impl Fn(TrafficSelector) -> TrafficSelector) -> Gateway {
    let tunnel = Tunnel::default();
    let params = ChildSaParams { remote_ts: far().map(remote).into(), ..tunnel.params() };
    let mut gateway = Gateway::new(&params, tunnel.library);
    set_spd(&mut gateway.plane, policies);
    gateway
}

/// The same with an SA that takes everything.
fn gateway(policies: Vec<Policy>) -> Gateway {
    gateway_with(policies, all)
}

/// First and later fragment of a datagram of either family.
pub(crate) fn fragments(is_v6: bool) -> [Vec<u8>; 2] {
    let udp = datagram(800);
    let (first, rest) = udp.split_at(400);
    if is_v6 {
        let header = |offset: u16, more: u16| {
            [&[17, 0][..], &(offset | more).to_be_bytes(), &7u32.to_be_bytes()].concat()
        };
        return [(first, header(0, 1)), (rest, header(400, 0))]
            .map(|(part, header)| v6(Protocol(44), &[&header, part].concat()));
    }
    let fragment = |part: &[u8], place: u16| {
        let mut packet = v4_with(|_| (), Protocol::UDP, part);
        packet[6..8].copy_from_slice(&place.to_be_bytes());
        packet[10..12].fill(0);
        let checksum = Sum::new().bytes(&packet[..20]).finish();
        packet[10..12].copy_from_slice(&checksum.to_be_bytes());
        packet
    };
    [fragment(first, 0x2000), fragment(rest, 400 / 8)]
}

fn outbound(gateway: &mut Gateway, ingress: Ingress, packets: &[Vec<u8>]) -> Vec<(Verdict, Vec<u8>)> {
    let results = run(&mut gateway.plane, Way::Outbound, ingress, packets);
    assert!(gateway.plane.counters().totals().outbound.is_balanced());
    results
}

/// Both fragments wait for each other, and have kept all their octets.
fn wait(gateway: &mut Gateway, is_v6: bool) {
    let fragments = fragments(is_v6);
    // Together, and each by itself.
    let mut results = outbound(gateway, Ingress::Port, &fragments);
    results.extend(fragments.iter().flat_map(|one| outbound(gateway, Ingress::Port, from_ref(one))));
    for (result, fragment) in results.iter().zip(fragments.iter().chain(&fragments)) {
        assert_eq!(result, &(Verdict::Reassemble, fragment.clone()));
    }
}

#[test]
fn fragments_protected_by_port_do_not_leave_in_clear() {
    let protected = policy(1, only(PORT), Action::Protect(POLICY));
    for rest in [Some(Action::Bypass), Some(Action::Discard), None] {
        let rest = rest.map(|action| policy(2, all, action));
        let policies = [protected.clone()].into_iter().chain(rest).collect();
        let mut gateway = gateway_with(policies, only(PORT));
        for is_v6 in [false, true] {
            wait(&mut gateway, is_v6);
            // The whole is protected, however large: its sender cannot make it smaller.
            for len in [800, 1500] {
                let whole = sized(is_v6, len);
                let sent = forwarded(outbound(&mut gateway, Ingress::PortJoined, from_ref(&whole)));
                assert!(sent[0].len() > len && sent[0][9] == 50, "{sent:x?}");
            }
        }
    }
}

#[test]
fn fragments_passed_by_port_do_not_enter_the_tunnel() {
    let passes = policy(1, only(PORT), Action::Bypass);
    let mut gateway = gateway(vec![passes, policy(2, all, Action::Protect(POLICY))]);
    for is_v6 in [false, true] {
        wait(&mut gateway, is_v6);
        let whole = sized(is_v6, 800);
        let passed = forwarded(outbound(&mut gateway, Ingress::PortJoined, from_ref(&whole)));
        assert_eq!(passed, [one_hop_on(&whole)]);
    }
    // No router on its path would fragment it again.
    let whole = sized(true, 1400);
    let (verdict, passed) = outbound(&mut gateway, Ingress::PortJoined, from_ref(&whole)).remove(0);
    assert_eq!((verdict, passed), (Verdict::ForwardInPieces { mtu: MIN_MTU }, one_hop_on(&whole)));
}

#[test]
fn where_ports_decide_nothing_fragments_go_as_they_are() {
    let others = ["another protocol", "another place", "too late", "nobody"];
    for what in others {
        let mut policies = vec![policy(2, all, Action::Protect(POLICY))];
        match what {
            "another protocol" => {
                let sctp = |ts| TrafficSelector { protocol: 132, ..only(PORT)(ts) };
                policies.push(policy(1, sctp, Action::Bypass));
            }
            "another place" => policies.push(Policy {
                remote: vec![only(PORT)(net("10.3.0.0", "10.3.255.255"))],
                ..policy(1, all, Action::Bypass)
            }),
            "too late" => policies.push(policy(3, only(PORT), Action::Bypass)),
            _ => {}
        }
        let mut gateway = gateway(policies);
        for is_v6 in [false, true] {
            let sent = forwarded(outbound(&mut gateway, Ingress::Port, &fragments(is_v6)));
            assert!(sent.iter().all(|packet| packet[9] == 50), "{what}: {sent:x?}");
        }
    }
}

/// Policies may ask for later fragments by themselves (RFC 4301 §7.2).
#[test]
fn later_fragments_that_a_policy_asks_for_are_its() {
    let first = policy(1, only(PORT), Action::Bypass);
    let mut gateway = gateway(vec![first, policy(2, opaque, Action::Protect(POLICY))]);
    let [first, later] = fragments(false);
    let results = outbound(&mut gateway, Ingress::Port, &[first.clone(), later]);
    assert_eq!(results[0], (Verdict::Forward, one_hop_on(&first)));
    assert!(results[1].0 == Verdict::Forward && results[1].1[9] == 50);
}

/// A peer may have narrowed the selectors.
#[test]
fn an_sa_for_certain_ports_takes_whole_datagrams() {
    let mut gateway = gateway_with(vec![policy(1, all, Action::Protect(POLICY))], only(PORT));
    for is_v6 in [false, true] {
        wait(&mut gateway, is_v6);
        let sent = forwarded(outbound(&mut gateway, Ingress::PortJoined, &[sized(is_v6, 1500)]));
        assert_eq!(sent[0][9], 50);
    }
    assert_eq!(gateway.plane.counters().dropped_outbound(DropReason::OutsideSa), 0);
}

/// Pieces of a packet that was split here have been decided about, although a policy before asks
/// for ports.
#[test]
fn pieces_made_here_are_not_put_together_again() {
    let passes = policy(1, only(9), Action::Bypass);
    let mut gateway = gateway(vec![passes, policy(2, all, Action::Protect(POLICY))]);
    let (verdict, _) = outbound(&mut gateway, Ingress::Port, &[sized(false, 1500)]).remove(0);
    assert!(matches!(verdict, Verdict::Fragment { .. }), "{verdict:?}");
    let sent = forwarded(outbound(&mut gateway, Ingress::Piece, &fragments(false)));
    assert!(sent.iter().all(|packet| packet[9] == 50), "{sent:x?}");
}
