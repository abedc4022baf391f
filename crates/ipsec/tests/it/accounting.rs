//! Every packet is accounted for, and none costs an allocation.

use crate::forge::{around, authentic, datagram, outer, padded};
use crate::harness::{HEADROOM, POLICY, TAILROOM, Tunnel, Way, net, pair, run, set_spd};
use crate::packets::{sized, v4_with, v6_with};
use proptest::prelude::*;
use testudo_ipsec::dataplane::{BURST, DirectionTotals, Ingress, Item, Sources, Verdict};
use testudo_ipsec::drops::DropReason;
use testudo_ipsec::spd::{Action, Policy};
use testudo_wire::ip::Protocol;
use testudo_wire::packet::PacketBuf;

/// Clear packets of every fate.
fn clear() -> impl Strategy<Value = Vec<u8>> {
    let v4 = |remote: [u8; 4], ttl: u8, df: bool, len: usize| {
        v4_with(|f| (f.dst, f.ttl, f.df) = (remote.into(), ttl, df), Protocol(99), &vec![7; len])
    };
    let remote =
        prop::sample::select(vec![[10, 2, 0, 2], [10, 3, 0, 2], [10, 4, 0, 2], [10, 5, 0, 2], [10, 6, 0, 2]]);
    prop_oneof![
        4 => (remote, 0u8..4, any::<bool>(), 0usize..1600).prop_map(move |(r, t, d, l)| v4(r, t, d, l)),
        2 => (0u8..4, 0usize..1600).prop_map(|(ttl, len)| {
            v6_with(|f| f.hop_limit = ttl, Protocol(99), &vec![7; len])
        }),
        1 => prop::collection::vec(any::<u8>(), 0..60),
    ]
}

/// Packets to the gateway of every fate.
fn protected(tunnel: Tunnel) -> impl Strategy<Value = Vec<u8>> {
    let inside = clear()
        .prop_map(|packet| padded(&packet, Protocol(if packet.first() == Some(&0x60) { 41 } else { 4 })));
    prop_oneof![
        4 => (0u64..200, inside).prop_map(move |(sequence, text)| authentic(&tunnel, sequence, &text)),
        1 => prop::collection::vec(any::<u8>(), 0..60).prop_map(move |esp| around(&tunnel, &esp)),
        1 => prop::collection::vec(any::<u8>(), 0..60),
        1 => prop::sample::select(vec![vec![0xff], vec![0; 40], vec![1]])
            .prop_map(move |payload| outer(&tunnel, Protocol::UDP, &datagram(4500, 4500, &payload))),
    ]
}

/// The totals as the verdicts tell them.
fn told(results: &[(Verdict, Vec<u8>)], bytes: usize) -> DirectionTotals {
    let count =
        |wanted: fn(&Verdict) -> bool| results.iter().filter(|(verdict, _)| wanted(verdict)).count() as u64;
    let forwarded = results.iter().filter(|(verdict, _)| *verdict == Verdict::Forward);
    let replies = count(|verdict| *verdict == Verdict::Reply);
    DirectionTotals {
        received: results.len() as u64,
        received_bytes: bytes as u64,
        // Each reply stands in the place of a packet that was dropped.
        generated: replies,
        replies,
        forwarded: count(|verdict| *verdict == Verdict::Forward),
        forwarded_bytes: forwarded.map(|(_, packet)| packet.len() as u64).sum(),
        to_host: count(|verdict| *verdict == Verdict::ToHost),
        to_split: count(|verdict| matches!(verdict, Verdict::Fragment { .. } | Verdict::Behind)),
        to_wait: count(|verdict| *verdict == Verdict::Held),
        to_join: count(|verdict| *verdict == Verdict::Reassemble),
        onward: count(|verdict| *verdict == Verdict::Onward),
        early: count(|verdict| matches!(verdict, Verdict::Early(_))),
        relayed: 0,
        relayed_in: count(|verdict| matches!(verdict, Verdict::Relayed { .. })),
        dropped: count(|verdict| matches!(verdict, Verdict::Drop(_))) + replies,
    }
}

fn policies() -> Vec<Policy> {
    let local = vec![net("0.0.0.0", "255.255.255.255"), net("::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff")];
    let rule = |number: u8, action| Policy {
        priority: 0,
        local: local.clone(),
        remote: vec![net(&format!("10.{number}.0.0"), &format!("10.{number}.255.255"))],
        action,
    };
    let mut protect = rule(2, Action::Protect(POLICY));
    protect.remote.push(net("2001:db8:2::", "2001:db8:2:ffff::"));
    let no_sa = Action::Protect(testudo_ipsec::spd::PolicyId(4));
    vec![protect, rule(3, Action::Bypass), rule(4, Action::Discard), rule(5, no_sa)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn outbound_packets_are_accounted_for(
        packets in prop::collection::vec(clear(), 0..200), bits in 0usize..8, host in any::<bool>()
    ) {
        let (mut a, _) = pair(&Tunnel::all().nth(bits).unwrap());
        set_spd(&mut a.plane, policies());
        let ingress = if host { Ingress::Host } else { Ingress::Port };
        let results = run(&mut a.plane, Way::Outbound, ingress, &packets);
        let counters = a.plane.counters();
        let totals = counters.totals().outbound;
        prop_assert_eq!(totals, told(&results, packets.iter().map(Vec::len).sum()));
        prop_assert!(totals.is_balanced());
        let by_reason: u64 = DropReason::ALL.iter().map(|reason| counters.dropped_outbound(*reason)).sum();
        prop_assert_eq!(by_reason, totals.dropped);
    }

    #[test]
    fn inbound_packets_are_accounted_for(
        (bits, packets) in (0usize..8).prop_flat_map(|bits| {
            let tunnel = Tunnel::all().nth(bits).unwrap();
            (Just(bits), prop::collection::vec(protected(tunnel), 0..200))
        })
    ) {
        let (_, mut b) = pair(&Tunnel::all().nth(bits).unwrap());
        let results = b.inbound(&packets);
        let counters = b.plane.counters();
        let totals = counters.totals().inbound;
        prop_assert_eq!(totals, told(&results, packets.iter().map(Vec::len).sum()));
        prop_assert!(totals.is_balanced());
        for reason in DropReason::ALL {
            let verdicts = results.iter().filter(|(verdict, _)| *verdict == Verdict::Drop(reason)).count() as u64;
            let replies = if reason == DropReason::TtlExceeded { totals.replies } else { 0 };
            prop_assert_eq!(counters.dropped(reason), verdicts + replies, "{:?}", reason);
        }
    }
}

/// Bursts through both directions, good packets, refused packets and ICMP errors among them.
#[test]
fn no_packet_costs_an_allocation() {
    for tunnel in Tunnel::all() {
        let (mut a, mut b) = pair(&tunnel);
        set_spd(&mut a.plane, policies());
        let mut packets: Vec<_> = (40..100).map(|len| sized(false, len)).collect();
        packets.push(v4_with(|f| f.df = true, Protocol(99), &[7; 1490]));
        packets.push(v4_with(|f| f.dst = [10, 5, 0, 1].into(), Protocol(99), &[7; 10]));
        packets.push(v4_with(|f| f.dst = [10, 9, 0, 1].into(), Protocol(99), &[7; 10]));
        packets.push(vec![0x45; 10]);
        assert_eq!(packets.len(), BURST);
        let mut frames: Vec<Vec<u8>> =
            packets.iter().map(|p| [&[0; HEADROOM][..], p, &[0; TAILROOM]].concat()).collect();
        let mut items: Vec<Item<'_>> = frames
            .iter_mut()
            .zip(&packets)
            .map(|(frame, p)| Item::new(PacketBuf::new(frame, HEADROOM, p.len()).unwrap(), Ingress::Port))
            .collect();
        let info = allocation_counter::measure(|| {
            a.plane.set_now(1);
            a.plane.outbound(&mut items, &Sources::default());
            b.plane.inbound(&mut items);
            a.plane.drain_events().for_each(drop);
            b.plane.drain_events().for_each(drop);
        });
        assert_eq!(info.count_total, 0, "{tunnel:?}");
        assert_eq!(a.plane.counters().totals().outbound.forwarded, 60);
        assert_eq!(b.plane.counters().totals().inbound.forwarded, 60);
    }
}
