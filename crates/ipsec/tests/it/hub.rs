//! A hub between spokes: what comes out of one tunnel and belongs into another never leaves in
//! clear (RFC 4301 §5.1).

use crate::clear_fragments::fragments;
use crate::harness::{Gateway, PATH_MTU, POLICY, Tunnel, Way, forwarded, net, run, set_spd};
use crate::packets::{sized, v4_with};
use std::net::Ipv4Addr;
use std::sync::Arc;
use testudo_base::spi::Spi;
use testudo_crypto::Library;
use testudo_ipsec::dataplane::{Command, Ingress, PolicyBlock, Verdict};
use testudo_ipsec::drops::DropReason;
use testudo_ipsec::number::SequenceBlock;
use testudo_ipsec::sa::{ChildSaParams, OutboundSa};
use testudo_ipsec::selector::TrafficSelector;
use testudo_ipsec::spd::{Action, Policy, PolicyId, Spd};
use testudo_wire::checksum::Sum;
use testudo_wire::ip::Protocol;

const OTHER: PolicyId = PolicyId(POLICY.0 + 1);

fn everything() -> TrafficSelector {
    net("0.0.0.0", "255.255.255.255")
}

/// From the spoke's network to another address.
fn to(dst: Ipv4Addr) -> Vec<u8> {
    v4_with(|fields| fields.dst = dst, Protocol(253), &[0; 64])
}

/// A spoke whose tunnel takes everything, and the hub at its other end with further policies.
fn spoke_and_hub(further: Vec<Policy>) -> (Gateway, Gateway) {
    let tunnel = Tunnel::default();
    let params = ChildSaParams { remote_ts: vec![everything()], ..tunnel.params() };
    let spoke = Gateway::new(&params, tunnel.library);
    let mut hub = Gateway::new(&params.mirrored(), Library::detect());
    let own = Policy {
        priority: 1,
        local: vec![everything()],
        remote: params.local_ts.clone(),
        action: Action::Protect(POLICY),
    };
    set_spd(&mut hub.plane, [vec![own], further].concat());
    (spoke, hub)
}

fn policy(action: Action) -> Policy {
    Policy { priority: 0, local: vec![everything()], remote: vec![net("10.3.0.0", "10.3.255.255")], action }
}

const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(10, 3, 0, 2);

#[test]
fn decrypted_packets_for_another_tunnel_use_the_outbound_policy() {
    let (mut spoke, mut hub) = spoke_and_hub(vec![policy(Action::Protect(OTHER))]);
    let outer = forwarded(spoke.outbound(&[to(ELSEWHERE)]));
    let results = hub.inbound(&outer);
    assert_eq!(results[0].0, Verdict::Onward);
    // That tunnel is down: the packet stays here.
    let again = run(&mut hub.plane, Way::Outbound, Ingress::Host, &[results[0].1.clone()]);
    assert_eq!(again[0].0, Verdict::Drop(DropReason::NoSa));
    let totals = hub.plane.counters().totals();
    assert!(totals.inbound.is_balanced() && totals.outbound.is_balanced(), "{totals:?}");
}

#[test]
fn a_discard_policy_applies_to_decrypted_packets() {
    let (mut spoke, mut hub) = spoke_and_hub(vec![policy(Action::Discard)]);
    let outer = forwarded(spoke.outbound(&[to(ELSEWHERE)]));
    let results = hub.inbound(&outer);
    assert_eq!(results[0].0, Verdict::Onward);
    let again = run(&mut hub.plane, Way::Outbound, Ingress::Host, &[results[0].1.clone()]);
    assert_eq!(again[0].0, Verdict::Drop(DropReason::PolicyDiscard));
}

#[test]
fn bypassed_and_unknown_destinations_are_forwarded() {
    for further in [vec![], vec![policy(Action::Bypass)]] {
        let (mut spoke, mut hub) = spoke_and_hub(further);
        let outer = forwarded(spoke.outbound(&[to(ELSEWHERE), to(Ipv4Addr::new(203, 0, 113, 9))]));
        assert_eq!(forwarded(hub.inbound(&outer)).len(), 2);
    }
}

/// The other tunnel takes only what comes from the hub's own network: what another spoke sends
/// there is nobody's, and must not be routed on in clear.
#[test]
fn packets_that_another_tunnel_protects_are_not_forwarded() {
    let own_network =
        Policy { local: vec![net("10.9.0.0", "10.9.255.255")], ..policy(Action::Protect(OTHER)) };
    let (mut spoke, mut hub) = spoke_and_hub(vec![own_network]);
    let outer = forwarded(spoke.outbound(&[to(ELSEWHERE)]));
    let results = hub.inbound(&outer);
    assert_eq!(results[0].0, Verdict::Onward);
    let again = run(&mut hub.plane, Way::Outbound, Ingress::Host, &[results[0].1.clone()]);
    assert_eq!(again[0].0, Verdict::Drop(DropReason::NoPolicy));
}

/// The other tunnel's connection was unloaded, and what it protected stays shut.
#[test]
fn what_stays_shut_is_not_forwarded() {
    let (mut spoke, mut hub) = spoke_and_hub(Vec::new());
    let mut spd = Spd::empty();
    spd.hold_back(&net("10.3.0.0", "10.3.255.255").addrs);
    hub.plane.apply(Command::SetSpd(Arc::new(spd)));
    let outer = forwarded(spoke.outbound(&[to(ELSEWHERE)]));
    let results = hub.inbound(&outer);
    assert_eq!(results[0].0, Verdict::Onward);
    let again = run(&mut hub.plane, Way::Outbound, Ingress::Host, &[results[0].1.clone()]);
    assert_eq!(again[0].0, Verdict::Drop(DropReason::NoPolicy));
}

/// Where the held range and the SA's own side are as wide, the SA's own side is meant.
#[test]
fn a_range_that_another_tunnel_holds_back_must_be_nearer_than_the_sas_own() {
    for (held, expected) in [
        (net("10.3.0.0", "10.3.255.255"), Verdict::Forward),
        (net("10.2.0.0", "10.3.255.255"), Verdict::Forward),
        (net("10.3.0.0", "10.3.127.255"), Verdict::Onward),
    ] {
        let tunnel = Tunnel::default();
        let remote_ts = vec![net("10.3.0.0", "10.3.255.255")];
        let params = ChildSaParams { remote_ts, ..tunnel.params() };
        let mut spoke = Gateway::new(&params, tunnel.library);
        let mut hub = Gateway::new(&params.mirrored(), tunnel.library);
        let mirrored = params.mirrored();
        let own = Policy {
            priority: 1,
            local: mirrored.local_ts,
            remote: mirrored.remote_ts,
            action: Action::Protect(POLICY),
        };
        let local = vec![net("10.9.0.0", "10.9.255.255")];
        let other = Policy { local, remote: vec![held], ..policy(Action::Protect(OTHER)) };
        set_spd(&mut hub.plane, vec![own, other]);
        let outer = forwarded(spoke.outbound(&[to(ELSEWHERE)]));
        assert_eq!(hub.inbound(&outer)[0].0, expected, "{held:?}");
    }
}

/// While a connection is replaced there are two policies for what the peer has, and packets come by
/// the SAs of both. What came by the SA of the former has arrived all the same.
#[test]
fn a_packet_does_not_go_back_into_a_tunnel_like_its_own() {
    let tunnel = Tunnel::default();
    let all = vec![everything(), net("::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")];
    let params = ChildSaParams { local_ts: all.clone(), remote_ts: all.clone(), ..tunnel.params() };
    let far = params.mirrored();
    for (remote_ts, expected) in
        [(all.clone(), Verdict::Forward), (vec![net("10.0.0.0", "10.255.255.255")], Verdict::Onward)]
    {
        let mut a = Gateway::new(&params, tunnel.library);
        let mut b = Gateway::new(&far, tunnel.library);
        let other = ChildSaParams { spi_out: Spi(0x7777_0000), remote_ts: remote_ts.clone(), ..far.clone() };
        let numbers = SequenceBlock::whole(true);
        let sa = OutboundSa::new(&other, OTHER, numbers, PATH_MTU, tunnel.library).unwrap();
        let (local, action) = (all.clone(), Action::Protect(OTHER));
        b.plane.apply(Command::AddPolicies(Box::new(PolicyBlock::of(OTHER))));
        set_spd(&mut b.plane, vec![Policy { priority: 0, local, remote: remote_ts, action }]);
        b.plane.apply(Command::SetOutbound(OTHER, Arc::new(sa)));
        let outer = forwarded(a.outbound(&[sized(false, 100)]));
        assert_eq!(b.inbound(&outer)[0].0, expected);
    }
}

/// From one host of a spoke to another address of the same spoke: it goes back where it came from,
/// protected.
#[test]
fn packets_for_the_spoke_itself_return_through_its_tunnel() {
    for wide in [net("10.0.0.0", "10.255.255.255"), everything()] {
        let tunnel = Tunnel::default();
        let params = ChildSaParams { remote_ts: vec![wide], ..tunnel.params() };
        let mut spoke = Gateway::new(&params, tunnel.library);
        let mut hub = Gateway::new(&params.mirrored(), tunnel.library);
        let unused = to(Ipv4Addr::new(10, 1, 9, 9));
        let outer = forwarded(spoke.outbound(std::slice::from_ref(&unused)));
        let results = hub.inbound(&outer);
        assert_eq!(results[0].0, Verdict::Onward);
        let outer = forwarded(run(&mut hub.plane, Way::Outbound, Ingress::Host, &[results[0].1.clone()]));
        assert_ne!(outer[0][16..20], unused[16..20], "encrypted again");
        // It has arrived there, so that it does not go round in circles.
        assert_eq!(spoke.inbound(&outer)[0].0, Verdict::Forward);
    }
}

/// A spoke whose tunnel takes a range that its own network is a part of: what arrives for that
/// network has arrived.
#[test]
fn a_network_inside_the_peers_range_is_reached() {
    let tunnel = Tunnel::default();
    let wide = vec![net("10.0.0.0", "10.255.255.255")];
    let params = ChildSaParams { local_ts: wide, ..tunnel.params() };
    let mut hub = Gateway::new(&params, tunnel.library);
    let mut spoke = Gateway::new(&params.mirrored(), tunnel.library);
    let outer = forwarded(hub.outbound(&[sized(false, 100)]));
    assert_eq!(forwarded(spoke.inbound(&outer)).len(), 1);
}

/// A tunnel for everything beside a tunnel for one network: the more specific policy decides.
#[test]
fn a_tunnel_for_everything_does_not_hide_the_others() {
    let tunnel = Tunnel::default();
    let params =
        ChildSaParams { local_ts: vec![everything()], remote_ts: vec![everything()], ..tunnel.params() };
    let mut spoke = Gateway::new(&params, tunnel.library);
    let mut hub = Gateway::new(&params.mirrored(), tunnel.library);
    let own = Policy {
        priority: 1,
        local: vec![everything()],
        remote: vec![everything()],
        action: Action::Protect(POLICY),
    };
    set_spd(&mut hub.plane, vec![own, policy(Action::Protect(OTHER))]);
    let outer = forwarded(spoke.outbound(&[to(ELSEWHERE), to(Ipv4Addr::new(203, 0, 113, 9))]));
    let verdicts: Vec<Verdict> = hub.inbound(&outer).into_iter().map(|(verdict, _)| verdict).collect();
    assert_eq!(verdicts, [Verdict::Onward, Verdict::Forward]);
}

/// Selectors that are the same on both sides say nothing about where a packet belongs: it has
/// arrived.
#[test]
fn a_packet_does_not_go_back_into_its_own_tunnel() {
    let tunnel = Tunnel::default();
    let all = vec![everything(), net("::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")];
    let params = ChildSaParams { local_ts: all.clone(), remote_ts: all, ..tunnel.params() };
    let mut a = Gateway::new(&params, tunnel.library);
    let mut b = Gateway::new(&params.mirrored(), tunnel.library);
    let outer = forwarded(a.outbound(&[sized(false, 100), sized(true, 100)]));
    assert_eq!(forwarded(b.inbound(&outer)).len(), 2);
}

/// Both fragments of a datagram of the spoke.
fn in_fragments(dst: Ipv4Addr) -> [Vec<u8>; 2] {
    fragments(false).map(|mut packet| {
        packet[16..20].copy_from_slice(&dst.octets());
        packet[10..12].fill(0);
        let checksum = Sum::new().bytes(&packet[..20]).finish();
        packet[10..12].copy_from_slice(&checksum.to_be_bytes());
        packet
    })
}

/// A hub that lets all pass to another spoke but what goes to one port: that is protected.
#[test]
fn fragments_from_one_tunnel_that_another_may_want_are_put_together_first() {
    let mut protected = policy(Action::Protect(OTHER));
    let ts = protected.remote[0];
    protected.remote[0] = TrafficSelector { protocol: 17, port_start: 2000, port_end: 2000, ..ts };
    let passes = Policy { priority: 2, ..policy(Action::Bypass) };
    let (mut spoke, mut hub) = spoke_and_hub(vec![protected, passes]);
    for packet in in_fragments(ELSEWHERE) {
        let outer = forwarded(spoke.outbound(&[packet]));
        let results = hub.inbound(&outer);
        assert_eq!(results[0].0, Verdict::Onward);
        let again = run(&mut hub.plane, Way::Outbound, Ingress::Host, &[results[0].1.clone()]);
        assert_eq!(again[0].0, Verdict::Reassemble);
    }
    // A packet that no port could protect arrives unchanged.
    let port = TrafficSelector { protocol: 17, port_start: 53, port_end: 53, ..everything() };
    let dns = Policy { remote: vec![port], ..policy(Action::Bypass) };
    let (mut spoke, mut hub) = spoke_and_hub(vec![dns]);
    for packet in in_fragments(Ipv4Addr::new(10, 2, 0, 2)) {
        let outer = forwarded(spoke.outbound(&[packet]));
        assert_eq!(hub.inbound(&outer)[0].0, Verdict::Forward);
    }
}
