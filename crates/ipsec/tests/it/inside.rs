//! Which decrypted packets must not go back towards their peer in clear: those of an SA whose local
//! side is not everything.

use crate::clear_fragments::fragments;
use crate::harness::{Gateway, HEADROOM, POLICY, TAILROOM, Tunnel, forwarded, net, pair, set_spd};
use crate::packets::sized;
use testudo_ipsec::dataplane::{Ingress, Item, Verdict};
use testudo_ipsec::sa::ChildSaParams;
use testudo_ipsec::selector::{SelectorPair, TrafficSelector};
use testudo_ipsec::spd::{Action, Policy, PolicyId};
use testudo_wire::packet::PacketBuf;

/// The far gateway's verdict on packets from the near one's network, for its side of the SA and
/// that of the child for which the SA was set up.
fn inside_of(
    local_ts: Vec<TrafficSelector>,
    configured: &[TrafficSelector],
    packets: &[Vec<u8>],
) -> Vec<Option<PolicyId>> {
    let tunnel = Tunnel::default();
    let params = ChildSaParams { remote_ts: local_ts, ..tunnel.params() };
    let mut near = Gateway::new(&params, tunnel.library);
    let child = SelectorPair::new(configured, &params.local_ts);
    let mut far = Gateway::configured(&params.mirrored(), tunnel.library, &child);
    let found = decrypted(&mut near, &mut far, packets).into_iter();
    found
        .map(|(verdict, inside)| (verdict == Verdict::Forward).then_some(inside).expect("forwarded"))
        .collect()
}

/// The verdicts of the far gateway on packets through the tunnel, and their policies.
fn decrypted(near: &mut Gateway, far: &mut Gateway, packets: &[Vec<u8>]) -> Vec<(Verdict, Option<PolicyId>)> {
    let outer = forwarded(near.outbound(packets));
    let mut frames: Vec<Vec<u8>> =
        outer.iter().map(|packet| [&[0; HEADROOM][..], packet, &[0; TAILROOM]].concat()).collect();
    let frames = frames.iter_mut().zip(&outer);
    let buffers = frames.map(|(frame, packet)| PacketBuf::new(frame, HEADROOM, packet.len()).unwrap());
    let mut items: Vec<Item<'_>> = buffers.map(|buf| Item::new(buf, Ingress::Port)).collect();
    far.plane.inbound(&mut items);
    items.iter().map(|item| (item.verdict, item.inside)).collect()
}

#[test]
fn packets_for_a_certain_local_side_are_told_from_those_for_everything() {
    // In a train each, of which the pipeline reads all but the first packets by comparing them.
    let train = |v6: bool| vec![sized(v6, 100), sized(v6, 100), sized(v6, 100), sized(v6, 120)];
    let certain = vec![Some(POLICY); 4];
    let v4 = net("0.0.0.0", "255.255.255.255");
    let v6 = net("::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff");
    let halves = vec![net("128.0.0.0", "255.255.255.255"), net("0.0.0.0", "127.255.255.255")];
    let with_gap = vec![net("0.0.0.0", "127.255.255.255"), net("128.0.0.1", "255.255.255.255")];
    let without_last = vec![net("0.0.0.0", "255.255.255.254")];
    for (local_ts, is_v6, expected) in [
        (Tunnel::default().params().remote_ts, false, certain.clone()),
        (Tunnel::default().params().remote_ts, true, certain.clone()),
        (vec![v4, v6], false, vec![None; 4]),
        (vec![v4, v6], true, vec![None; 4]),
        (vec![v4, net("2001:db8:2::", "2001:db8:2:ffff::")], false, vec![None; 4]),
        (vec![v4, net("2001:db8:2::", "2001:db8:2:ffff::")], true, certain.clone()),
        (halves, false, vec![None; 4]),
        (with_gap, false, certain.clone()),
        (without_last, false, certain.clone()),
    ] {
        let inside = inside_of(local_ts.clone(), &[], &train(is_v6));
        assert_eq!(inside, expected, "{local_ts:?}, IPv6: {is_v6}");
    }
}

/// A peer may ask a full tunnel for less than everything: what that brings goes out here all the
/// same.
#[test]
fn the_configured_side_counts_where_a_peer_has_narrowed_it() {
    let narrowed = Tunnel::default().params().remote_ts;
    let v4 = net("0.0.0.0", "255.255.255.255");
    let v6 = net("::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff");
    for (configured, expected) in [
        (vec![v4], [None, Some(POLICY)]),
        (vec![v6], [Some(POLICY), None]),
        (vec![v4, v6], [None, None]),
        (narrowed.clone(), [Some(POLICY), Some(POLICY)]),
    ] {
        let inside =
            [false, true].map(|is_v6| inside_of(narrowed.clone(), &configured, &[sized(is_v6, 100)]));
        assert_eq!(inside, expected.map(|one| vec![one]), "{configured:?}");
    }
}

/// The outbound policies see the whole datagram, and may let it pass in clear.
#[test]
fn fragments_that_ports_might_hold_back_are_told_too() {
    let v4 = net("0.0.0.0", "255.255.255.255");
    for (own, expected) in [(Tunnel::default().params().remote_ts, Some(POLICY)), (vec![v4], None)] {
        let tunnel = Tunnel::default();
        let params = ChildSaParams { remote_ts: own, ..tunnel.params() };
        let mut near = Gateway::new(&params, tunnel.library);
        let mut far = Gateway::new(&params.mirrored(), tunnel.library);
        let to =
            |remote, priority, action| Policy { priority, local: vec![v4], remote: vec![remote], action };
        let by_port = TrafficSelector { protocol: 17, port_start: 2000, port_end: 2000, ..v4 };
        let other = PolicyId(POLICY.0 + 1);
        set_spd(&mut far.plane, vec![to(by_port, 0, Action::Protect(other)), to(v4, 1, Action::Bypass)]);
        let found = decrypted(&mut near, &mut far, &fragments(false));
        assert_eq!(found, [(Verdict::Onward, expected); 2]);
    }
}

#[test]
fn the_peer_of_a_policy_is_where_its_packets_go() {
    let tunnel = Tunnel::default();
    let (near, far) = pair(&tunnel);
    assert_eq!(
        (near.plane.peer(POLICY), far.plane.peer(POLICY)),
        (Some(tunnel.outer(2)), Some(tunnel.outer(1)))
    );
    assert_eq!(near.plane.peer(PolicyId(POLICY.0 + 1)), None);
}
