//! Ports, tags, and what else stands before the IP header.

use super::bench::{Bench, PORT, XDP_DROP, XDP_PASS, XDP_REDIRECT};
use super::frames::*;
use crate::filter::layout::{ADDRESS, UNSELECTED};
use crate::filter::{Class, CounterSet, PrefixUse, Reason, Stamp};
use testudo_base::spi::Shard;

fn protected_packet() -> Vec<u8> {
    ipv4(CLIENT4, REMOTE4, TCP).packet(&[0x5a; 20])
}

/// A tag with this control information.
fn tagged(kind: u16, control: u16, packet: &[u8]) -> Vec<u8> {
    ethernet(kind, &[&control.to_be_bytes()[..], &[8, 0], packet].concat())
}

#[test]
fn a_priority_tag_hides_nothing() {
    let bench = Bench::new().with_socket();
    for kind in [0x8100, 0x88a8] {
        let outcome = bench.run(&tagged(kind, 0xe000, &protected_packet()));
        assert_eq!((outcome.action, outcome.reason), (XDP_REDIRECT, Reason::WorkerProtect));
        let forged = ipv4(REMOTE4, US4, TCP).packet(&[0; 20]);
        assert_eq!(bench.run(&tagged(kind, 0, &forged)).reason, Reason::DropClearInbound);
    }
}

#[test]
fn a_priority_tag_is_removed() {
    let bench = Bench::new();
    let packet = ipv4(CLIENT4, PEER4, TCP).packet(&[0x5a; 20]);
    let outcome = bench.run(&tagged(0x8100, 0xa000, &packet));
    assert_eq!((outcome.action, outcome.reason), (XDP_PASS, Reason::PassOther));
    assert_eq!(outcome.frame, ethernet(0x0800, &packet));
}

/// The kernel would look through the second as through the first, and find what should have been
/// protected.
#[test]
fn a_second_priority_tag_is_dropped() {
    let bench = Bench::new().with_socket();
    let packet = protected_packet();
    for kinds in [[0x8100u16, 0x8100], [0x8100, 0x88a8], [0x88a8, 0x8100], [0x88a8, 0x88a8]] {
        let twice = |control: u16| {
            let [outer, inner] = kinds;
            let second = [&inner.to_be_bytes()[..], &control.to_be_bytes(), &[8, 0], &packet].concat();
            ethernet(outer, &[&[0xe0, 0][..], &second].concat())
        };
        for control in [0, 0xe000] {
            let outcome = bench.run(&twice(control));
            assert_eq!((outcome.action, outcome.reason), (XDP_DROP, Reason::DropMalformed), "{kinds:x?}");
        }
        // A tag that its frame's end cuts could be anything.
        let cut = bench.run(&twice(0)[..14 + 4 + 3]);
        assert_eq!((cut.action, cut.reason), (XDP_DROP, Reason::DropMalformed), "{kinds:x?}");
        let vlan = bench.run(&twice(7));
        assert_eq!((vlan.action, vlan.reason), (XDP_PASS, Reason::PassVlan), "{kinds:x?}");
    }
}

#[test]
fn a_vlan_is_another_interface() {
    let bench = Bench::new().with_socket();
    for control in [1, 0x0fff, 0xe001] {
        let frame = tagged(0x8100, control, &protected_packet());
        let outcome = bench.run(&frame);
        assert_eq!((outcome.action, outcome.reason), (XDP_PASS, Reason::PassVlan));
        assert_eq!(outcome.frame, frame);
    }
}

#[test]
fn a_frame_for_another_host_is_not_forwarded() {
    let bench = Bench::new().with_socket();
    for mac in [[2, 0, 0, 0, 0, 9], [0xff; 6], [1, 0, 0x5e, 0, 0, 1]] {
        let outcome = bench.run(&ethernet_to(mac, 0x0800, &protected_packet()));
        assert_eq!((outcome.action, outcome.reason), (XDP_DROP, Reason::DropOtherHost));
        let esp = ethernet_to(mac, 0x0800, &ipv4(PEER4, US4, ESP).packet(&esp()));
        assert_eq!(bench.run(&esp).reason, Reason::DropOtherHost);
        let ordinary = ethernet_to(mac, 0x0800, &ipv4(CLIENT4, PEER4, TCP).packet(&[0; 20]));
        assert_eq!(bench.run(&ordinary).reason, Reason::PassOther);
    }
}

/// A switch floods what a fellow node has just decrypted, and nobody attacks. A frame to all hosts is
/// for this one too.
#[test]
fn clear_text_that_was_flooded_on_its_way_to_another_host_is_not_suspicious() {
    let bench = Bench::new();
    for (mac, reason) in [
        ([2, 0, 0, 0, 0, 9], Reason::DropOtherHost),
        ([0xff; 6], Reason::DropClearInbound),
        ([1, 0, 0x5e, 0, 0, 1], Reason::DropClearInbound),
    ] {
        let clear = ethernet_to(mac, 0x0800, &ipv4(REMOTE4, CLIENT4, TCP).packet(&[0; 20]));
        let outcome = bench.run(&clear);
        assert_eq!((outcome.action, outcome.reason), (XDP_DROP, reason));
    }
}

#[test]
fn an_unknown_interface_gives_a_worker_nothing() {
    let bench = Bench::new().with_socket();
    bench.remove_port();
    let before = bench.counters(CounterSet::Unknown);
    let outcome = bench.run(&ethernet(0x0800, &protected_packet()));
    assert_eq!((outcome.action, outcome.reason), (XDP_DROP, Reason::DropUnknownPort));
    let forged = ipv4(REMOTE4, CLIENT4, TCP).frame(&[0; 20]);
    assert_eq!(bench.run(&forged).reason, Reason::DropClearInbound);
    assert_eq!(bench.run(&ethernet(0x0806, &[0; 46])).reason, Reason::PassNotIp);
    assert_eq!(bench.counters(CounterSet::Unknown).since(&before).total(), 3);
    assert_eq!(bench.counters(CounterSet::Port(PORT)).total(), 0);
}

#[test]
fn the_source_check_can_be_turned_off() {
    let bench = Bench::new();
    bench.set_port(false);
    assert_eq!(bench.run(&ipv4(REMOTE4, CLIENT4, TCP).frame(&[0; 20])).reason, Reason::PassOther);
    assert_eq!(bench.run(&ipv6(REMOTE6, US6, TCP, &[0; 20])).reason, Reason::PassLocal);
}

#[test]
fn each_direction_of_a_prefix_is_its_own() {
    let bench = Bench::new();
    let only_to = PrefixUse { protect_to: true, ..PrefixUse::default() };
    bench.set_prefix("10.2.3.0/24", only_to);
    assert_eq!(bench.run(&ipv4(REMOTE4, CLIENT4, TCP).frame(&[0; 20])).reason, Reason::PassOther);
    assert_eq!(bench.run(&ipv4(CLIENT4, REMOTE4, TCP).frame(&[0; 20])).reason, Reason::DropNoSocket);
    let only_from = PrefixUse { refuse_from: true, ..PrefixUse::default() };
    bench.set_prefix("10.2.3.0/24", only_from);
    assert_eq!(bench.run(&ipv4(REMOTE4, CLIENT4, TCP).frame(&[0; 20])).reason, Reason::DropClearInbound);
    assert_eq!(bench.run(&ipv4(CLIENT4, REMOTE4, TCP).frame(&[0; 20])).reason, Reason::PassOther);
}

#[test]
fn a_default_route_into_the_tunnel_leaves_the_link_working() {
    let bench = Bench::new().with_socket();
    bench.set_prefix("0.0.0.0/0", PrefixUse::PROTECT);
    bench.set_prefix("::/0", PrefixUse::PROTECT);
    bench.set_prefix("2001:db8:a::/64", PrefixUse::PASS);
    let solicitation = [&[135, 0, 0, 0][..], &[0; 20]].concat();
    let nd = |src, dst| ethernet(0x86dd, &ipv6_packet(src, dst, ICMPV6, 255, &solicitation));
    for (name, frame, reason) in [
        ("IKE", ipv4(PEER4, US4, UDP).frame(&udp(500, 500, &ike())), Reason::PassIke),
        ("ESP", ipv4(PEER4, US4, ESP).frame(&esp()), Reason::WorkerEsp),
        ("DHCP", ipv4("0.0.0.0", "255.255.255.255", UDP).frame(&udp(68, 67, &[0; 9])), Reason::PassMulticast),
        ("OSPF", ipv4(PEER4, "224.0.0.5", 89).frame(&[0; 20]), Reason::PassMulticast),
        ("solicitation for us", nd(PEER6, US6), Reason::PassNeighbourDiscovery),
        ("solicitation for a neighbour", nd(PEER6, CLIENT6), Reason::PassNeighbourDiscovery),
        ("solicitation for a link-local address", nd("fe80::9", "fe80::1"), Reason::PassNeighbourDiscovery),
        ("between link-local addresses", ipv6("fe80::9", "fe80::1", TCP, &[0; 20]), Reason::PassOther),
        ("from a link-local address to us", ipv6("fe80::9", US6, TCP, &[0; 20]), Reason::PassLocal),
        ("from a link-local address", ipv6("fe80::9", REMOTE6, TCP, &[0; 20]), Reason::WorkerProtect),
        ("from a client", ipv6(CLIENT6, PEER6, TCP, &[0; 20]), Reason::WorkerProtect),
        ("in clear from anywhere", ipv6(PEER6, CLIENT6, TCP, &[0; 20]), Reason::DropClearInbound),
    ] {
        assert_eq!(bench.run(&frame).reason, reason, "{name}");
    }
}

/// Where prefixes do not say enough a worker asks the policies.
#[test]
fn clear_packets_from_a_prefix_that_is_judged_go_to_a_worker() {
    let bench = Bench::new().with_socket();
    let judged = PrefixUse { judge_from: true, ..PrefixUse::PROTECT };
    let in_part = PrefixUse { refuse_from: false, ..judged };
    bench.set_prefix("0.0.0.0/0", judged);
    bench.set_prefix("::/0", judged);
    bench.set_prefix("10.7.0.0/16", in_part);
    bench.set_prefix("10.1.0.0/16", PrefixUse::PASS);
    bench.set_prefix("2001:db8:1::/48", PrefixUse::PASS);
    let far6 = "2001:db8:99::7";
    for (name, frame, reason) in [
        ("SSH to us", ipv4("198.51.100.7", US4, TCP).frame(&[0; 20]), Reason::WorkerClear),
        ("SSH to us, IPv6", ipv6(far6, US6, TCP, &[0; 20]), Reason::WorkerClear),
        ("IKE", ipv4("198.51.100.7", US4, UDP).frame(&udp(500, 500, &ike())), Reason::PassIke),
        ("ESP", ipv4("198.51.100.7", US4, ESP).frame(&esp()), Reason::WorkerEsp),
        ("to a host", ipv4("198.51.100.7", "10.1.0.9", TCP).frame(&[0; 20]), Reason::WorkerClear),
        ("to a host, IPv6", ipv6(far6, "2001:db8:1::9", TCP, &[0; 20]), Reason::WorkerClear),
        ("to what is protected", ipv4("198.51.100.7", REMOTE4, TCP).frame(&[0; 20]), Reason::WorkerClear),
        ("from a network that is named", ipv4(REMOTE4, US4, TCP).frame(&[0; 20]), Reason::DropClearInbound),
        ("passed in part", ipv4("10.7.0.1", US4, TCP).frame(&[0; 20]), Reason::WorkerClear),
        ("passed in part, to a host", ipv4("10.7.0.1", "10.1.0.9", TCP).frame(&[0; 20]), Reason::WorkerClear),
        ("perhaps into a tunnel", ipv4("10.7.0.1", REMOTE4, TCP).frame(&[0; 20]), Reason::WorkerProtect),
        ("from a connected network", ipv4("10.1.0.9", US4, TCP).frame(&[0; 20]), Reason::PassLocal),
    ] {
        let outcome = bench.run(&frame);
        assert_eq!(outcome.reason, reason, "{name}");
        let class = (reason == Reason::WorkerClear).then_some(Class::Clear);
        assert_eq!(outcome.stamp.map(|stamp| stamp.class).filter(|class| *class == Class::Clear), class);
    }
    // Without a daemon there is no judge.
    let alone = Bench::new();
    alone.set_prefix("0.0.0.0/0", judged);
    let outcome = alone.run(&ipv4("198.51.100.7", US4, TCP).frame(&[0; 20]));
    assert_eq!((outcome.action, outcome.reason), (XDP_DROP, Reason::DropNoSocket));
    alone.set_port(false);
    let outcome = alone.run(&ipv4("198.51.100.7", US4, TCP).frame(&[0; 20]));
    assert_eq!(outcome.reason, Reason::PassLocal);
}

/// Beside a tunnel for everything: no policy is about a packet to an address that none of them has
/// on our side.
#[test]
fn clear_packets_to_an_address_that_no_policy_selects_are_the_kernels() {
    // Without a daemon, too.
    for mut bench in [Bench::new().with_socket(), Bench::new()] {
        let judged = PrefixUse { judge_from: true, ..PrefixUse::PROTECT };
        let open = PrefixUse { open_to_host: true, ..judged };
        let in_part = PrefixUse { refuse_from: false, ..open };
        bench.set_prefix("0.0.0.0/0", open);
        bench.set_prefix("::/0", open);
        bench.set_prefix("10.7.0.0/16", in_part);
        bench.set_prefix("10.8.0.0/16", judged);
        let (ours4, ours6) = ("10.1.0.1", "2001:db8:1::2");
        [US4, US6].iter().for_each(|addr| bench.set_address(addr, ADDRESS | UNSELECTED));
        [ours4, ours6].iter().for_each(|addr| bench.set_address(addr, ADDRESS));
        let (far4, far6) = ("198.51.100.7", "2001:db8:99::7");
        let to4 = |src, dst| ipv4(src, dst, TCP).frame(&[0; 20]);
        let to6 = |src, dst| ipv6(src, dst, TCP, &[0; 20]);
        let later = Ipv4 { fragment: 0x0010, ..ipv4(far4, US4, UDP) }.frame(&[0; 8]);
        for (name, frame, passes) in [
            ("SSH to us", to4(far4, US4), true),
            ("SSH to us, IPv6", to6(far6, US6), true),
            ("ping", ipv4(far4, US4, ICMP).frame(&[8, 0, 0, 0, 0, 1, 0, 1]), true),
            ("an answer of DNS", ipv4(far4, US4, UDP).frame(&udp(53, 4000, &[0; 20])), true),
            ("a later fragment", later, true),
            ("from what is passed in part", to4("10.7.0.1", US4), true),
            ("from what another policy is about", to4("10.8.0.1", US4), false),
            ("from a network that is named", to4(REMOTE4, US4), false),
            ("from a network that is named, IPv6", to6(REMOTE6, US6), false),
            ("to an address that a policy selects", to4(far4, ours4), false),
            ("to such an address, IPv6", to6(far6, ours6), false),
            ("to a host", to4(far4, CLIENT4), false),
            ("to a host, IPv6", to6(far6, CLIENT6), false),
        ] {
            let outcome = bench.run(&frame);
            assert_eq!(outcome.action == XDP_PASS, passes, "{name}: {:?}", outcome.reason);
            assert_eq!(outcome.reason == Reason::PassLocal, passes, "{name}");
        }
        // Packets for a worker stay with it.
        for (name, frame, reason) in [
            ("ESP", ipv4(far4, US4, ESP).frame(&esp()), [Reason::WorkerEsp, Reason::DropNoSocket]),
            (
                "a keepalive",
                ipv4(far4, US4, UDP).frame(&udp(4500, 4500, &[0xff])),
                [Reason::DropKeepalive; 2],
            ),
        ] {
            assert!(reason.contains(&bench.run(&frame).reason), "{name}");
        }
    }
}

#[test]
fn a_frame_in_several_buffers_is_read_by_its_headers() {
    let bench = Bench::new().with_socket();
    let outcome = bench.run(&ipv4(CLIENT4, REMOTE4, UDP).frame(&[0x5a; 8900]));
    let stamp = Stamp { class: Class::Protect, port: PORT, lane: Shard(0) };
    assert_eq!((outcome.action, outcome.stamp), (XDP_REDIRECT, Some(stamp)));
    let outcome = bench.run(&ipv4(PEER4, US4, UDP).frame(&udp(4500, 4500, &[0x5a; 8900])));
    assert_eq!(outcome.reason, Reason::WorkerEspInUdp);
    assert_eq!(bench.run(&ipv4(CLIENT4, PEER4, UDP).frame(&[0x5a; 8900])).reason, Reason::PassOther);
}
