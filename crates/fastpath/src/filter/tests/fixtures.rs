//! One frame of each kind, and what has to become of it.

use super::bench::{Bench, PORT, XDP_DROP, XDP_PASS, XDP_REDIRECT};
use super::frames::*;
use crate::filter::{Class, FilterAction, Reason, Stamp};
use testudo_base::spi::Shard;

pub(super) type Fixture = (&'static str, Vec<u8>, Reason);

/// Frames to our addresses.
pub(super) fn to_us() -> Vec<Fixture> {
    let natt = |payload: &[u8]| ipv4(PEER4, US4, UDP).frame(&udp(4500, 4500, payload));
    let natt6 = |payload: &[u8]| ipv6(PEER6, US6, UDP, &udp(4500, 4500, payload));
    vec![
        ("IKE", ipv4(PEER4, US4, UDP).frame(&udp(500, 500, &ike())), Reason::PassIke),
        ("IKE, IPv6", ipv6(PEER6, US6, UDP, &udp(500, 500, &ike())), Reason::PassIke),
        ("IKE from behind a NAT", ipv4(PEER4, US4, UDP).frame(&udp(61000, 500, &ike())), Reason::PassIke),
        ("IKE on 4500", natt(&marked_ike()), Reason::PassIke),
        ("IKE on 4500, IPv6", natt6(&marked_ike()), Reason::PassIke),
        ("ESP", ipv4(PEER4, US4, ESP).frame(&esp()), Reason::WorkerEsp),
        ("ESP, IPv6", ipv6(PEER6, US6, ESP, &esp()), Reason::WorkerEsp),
        ("AH", ipv4(PEER4, US4, AH).frame(&ah()), Reason::WorkerAh),
        ("AH, IPv6", ipv6(PEER6, US6, AH, &ah()), Reason::WorkerAh),
        ("AH behind options", ipv6(PEER6, US6, OPTIONS, &options(AH, 2, &ah())), Reason::WorkerAh),
        ("AH of 12 octets", ipv4(PEER4, US4, AH).frame(&[1; 12]), Reason::WorkerAh),
        ("AH of 11 octets", ipv4(PEER4, US4, AH).frame(&[1; 11]), Reason::DropAhShort),
        ("AH to a protected prefix", ipv4(CLIENT4, REMOTE4, AH).frame(&ah()), Reason::WorkerProtect),
        ("ESP in UDP", natt(&esp()), Reason::WorkerEspInUdp),
        ("ESP in UDP, IPv6", natt6(&esp()), Reason::WorkerEspInUdp),
        ("ESP of 8 octets", ipv4(PEER4, US4, ESP).frame(&[1; 8]), Reason::WorkerEsp),
        ("ESP of 7 octets", ipv4(PEER4, US4, ESP).frame(&[1; 7]), Reason::DropEspShort),
        ("ESP of no octets", ipv4(PEER4, US4, ESP).frame(&[]), Reason::DropEspShort),
        ("ESP of 7 octets, IPv6", ipv6(PEER6, US6, ESP, &[1; 7]), Reason::DropEspShort),
        ("ESP in UDP of 8 octets", natt(&[1; 8]), Reason::WorkerEspInUdp),
        ("keepalive", natt(&[0xff]), Reason::DropKeepalive),
        ("keepalive, IPv6", natt6(&[0xff]), Reason::DropKeepalive),
        ("no keepalive", natt(&[0xfe]), Reason::DropNattShort),
        ("two octets", natt(&[0xff, 0xff]), Reason::DropNattShort),
        ("seven octets", natt(&[0xff; 7]), Reason::DropNattShort),
        ("empty datagram to 4500", natt(&[]), Reason::DropNattShort),
        ("three zero octets", natt(&[0; 3]), Reason::DropNattShort),
        ("from 4500 to another port", ipv4(PEER4, US4, UDP).frame(&udp(4500, 53, &esp())), Reason::PassLocal),
        ("SSH to us", ipv4(CLIENT4, US4, TCP).frame(&[0; 20]), Reason::PassLocal),
        ("SSH to us, IPv6", ipv6(CLIENT6, US6, TCP, &[0; 20]), Reason::PassLocal),
        ("ping to us", ipv4(CLIENT4, US4, ICMP).frame(&[8, 0, 0, 0, 0, 1, 0, 1]), Reason::PassLocal),
        (
            "SSH to us from a protected prefix",
            ipv4(REMOTE4, US4, TCP).frame(&[0; 20]),
            Reason::DropClearInbound,
        ),
        ("the same, IPv6", ipv6(REMOTE6, US6, TCP, &[0; 20]), Reason::DropClearInbound),
        ("ESP from a protected prefix", ipv4(REMOTE4, US4, ESP).frame(&esp()), Reason::WorkerEsp),
        ("IKE from a protected prefix", ipv6(REMOTE6, US6, UDP, &udp(500, 500, &ike())), Reason::PassIke),
        (
            "fragmentation needed, from a protected prefix",
            ipv4(REMOTE4, US4, ICMP).frame(&[3, 4, 0, 0, 0, 0, 5, 0]),
            Reason::PassIcmpError,
        ),
        (
            "packet too big, from a protected prefix",
            ipv6(REMOTE6, US6, ICMPV6, &[2, 0, 0, 0, 0, 0, 5, 0]),
            Reason::PassIcmpError,
        ),
        (
            "ping from a protected prefix",
            ipv4(REMOTE4, US4, ICMP).frame(&[8, 0, 0, 0, 0, 1, 0, 1]),
            Reason::DropClearInbound,
        ),
        (
            "ICMPv6 in IPv4 from a protected prefix",
            ipv4(REMOTE4, US4, ICMPV6).frame(&[2, 0, 0, 0, 0, 0, 5, 0]),
            Reason::DropClearInbound,
        ),
        ("ICMP too short to be any", ipv4(PEER4, US4, ICMP).frame(&[3, 4, 0]), Reason::DropMalformed),
    ]
}

/// Frames between others.
pub(super) fn between_others() -> Vec<Fixture> {
    let to6 = |dst: &str| ipv6(CLIENT6, dst, TCP, &[0; 20]);
    let from6 = |src: &str| ipv6(src, CLIENT6, TCP, &[0; 20]);
    vec![
        ("to a protected prefix", ipv4(CLIENT4, REMOTE4, TCP).frame(&[0; 20]), Reason::WorkerProtect),
        ("to a protected prefix, IPv6", to6(REMOTE6), Reason::WorkerProtect),
        ("ESP to a protected prefix", ipv4(CLIENT4, REMOTE4, ESP).frame(&esp()), Reason::WorkerProtect),
        (
            "IKE to a protected prefix",
            ipv4(CLIENT4, REMOTE4, UDP).frame(&udp(500, 500, &ike())),
            Reason::WorkerProtect,
        ),
        (
            "a fragment to a protected prefix",
            Ipv4 { fragment: 0x2000, ..ipv4(CLIENT4, REMOTE4, UDP) }.frame(&[0; 8]),
            Reason::WorkerProtect,
        ),
        ("to an exception", ipv4(CLIENT4, EXEMPT4, TCP).frame(&[0; 20]), Reason::PassOther),
        ("to an exception, IPv6", to6(EXEMPT6), Reason::PassOther),
        ("to anywhere", ipv4(CLIENT4, PEER4, TCP).frame(&[0; 20]), Reason::PassOther),
        ("to anywhere, IPv6", to6(PEER6), Reason::PassOther),
        ("from a protected prefix", ipv4(REMOTE4, CLIENT4, TCP).frame(&[0; 20]), Reason::DropClearInbound),
        ("from a protected prefix, IPv6", from6(REMOTE6), Reason::DropClearInbound),
        ("from an exception", ipv4(EXEMPT4, CLIENT4, TCP).frame(&[0; 20]), Reason::PassOther),
        ("from an exception, IPv6", from6(EXEMPT6), Reason::PassOther),
        (
            "between protected prefixes",
            ipv4(REMOTE4, "10.2.7.7", TCP).frame(&[0; 20]),
            Reason::DropClearInbound,
        ),
        (
            "to a protected prefix, behind extension headers",
            ipv6(CLIENT6, REMOTE6, HOP_BY_HOP, &options(OPTIONS, 1, &options(UDP, 3, &udp(1, 2, &[0; 9])))),
            Reason::WorkerProtect,
        ),
        (
            "to a protected prefix, by a routing header",
            ipv6(CLIENT6, REMOTE6, ROUTING, &routing(TCP, 1, &[0; 20])),
            Reason::WorkerProtect,
        ),
        (
            "to a protected prefix, without payload",
            ipv6(CLIENT6, REMOTE6, NO_NEXT, &[]),
            Reason::WorkerProtect,
        ),
    ]
}

/// Frames that are the kernel's whatever the policy says.
fn the_kernels() -> Vec<Fixture> {
    let nd = |src: &str, dst: &str, hops| {
        ethernet(0x86dd, &ipv6_packet(src, dst, ICMPV6, hops, &[&[135, 0, 0, 0][..], &[0; 20]].concat()))
    };
    let tagged = |id: u16| {
        let packet = ipv4(CLIENT4, REMOTE4, TCP).packet(&[0; 20]);
        ethernet(0x8100, &[&id.to_be_bytes()[..], &[8, 0], &packet].concat())
    };
    vec![
        ("ARP", ethernet(0x0806, &[0; 46]), Reason::PassNotIp),
        ("LLDP", ethernet(0x88cc, &[0; 46]), Reason::PassNotIp),
        ("IEEE 802.3", ethernet(0x0026, &[0x42; 46]), Reason::PassNotIp),
        ("in a VLAN", tagged(7), Reason::PassVlan),
        ("multicast", ipv4(CLIENT4, "224.0.0.5", 89).frame(&[0; 20]), Reason::PassMulticast),
        ("limited broadcast", ipv4("0.0.0.0", "255.255.255.255", UDP).frame(&[0; 20]), Reason::PassMulticast),
        (
            "multicast from a protected prefix",
            ipv4(REMOTE4, "224.0.0.1", 2).frame(&[0; 8]),
            Reason::PassMulticast,
        ),
        ("multicast, IPv6", ipv6("fe80::9", "ff02::1", ICMPV6, &[130, 0, 0, 0]), Reason::PassMulticast),
        ("solicitation by unicast", nd(CLIENT6, US6, 255), Reason::PassNeighbourDiscovery),
        (
            "solicitation to a link-local address",
            nd("fe80::9", "fe80::1", 255),
            Reason::PassNeighbourDiscovery,
        ),
        ("solicitation to another host", nd(CLIENT6, PEER6, 255), Reason::PassNeighbourDiscovery),
        ("solicitation that crossed a router", nd(CLIENT6, US6, 254), Reason::PassLocal),
        ("solicitation to a protected prefix", nd(CLIENT6, REMOTE6, 255), Reason::WorkerProtect),
        ("to a link-local address", ipv6("fe80::9", "fe80::1", TCP, &[0; 20]), Reason::PassOther),
    ]
}

/// Frames to us with extension headers or options.
pub(super) fn behind_headers() -> Vec<Fixture> {
    let nested = |depth: u8, last: u8, payload: &[u8]| {
        let inner = options(last, 1, payload);
        (1..depth).fold(inner, |packet, _| options(OPTIONS, 1, &packet))
    };
    let natt = udp(4500, 4500, &esp());
    vec![
        (
            "ESP behind IPv4 options",
            Ipv4 { options: &[1; 40], ..ipv4(PEER4, US4, ESP) }.frame(&esp()),
            Reason::WorkerEsp,
        ),
        (
            "ESP in UDP behind IPv4 options",
            Ipv4 { options: &[1; 4], ..ipv4(PEER4, US4, UDP) }.frame(&natt),
            Reason::WorkerEspInUdp,
        ),
        ("ESP behind options", ipv6(PEER6, US6, OPTIONS, &options(ESP, 2, &esp())), Reason::WorkerEsp),
        (
            "ESP in UDP behind two headers",
            ipv6(PEER6, US6, HOP_BY_HOP, &options(OPTIONS, 1, &options(UDP, 31, &natt))),
            Reason::WorkerEspInUdp,
        ),
        (
            "ESP behind a routing header that is done",
            ipv6(PEER6, US6, ROUTING, &routing(ESP, 0, &esp())),
            Reason::WorkerEsp,
        ),
        (
            "ESP behind a routing header that is not",
            ipv6(PEER6, US6, ROUTING, &routing(ESP, 1, &esp())),
            Reason::DropRoutingHeader,
        ),
        ("ESP behind 8 headers", ipv6(PEER6, US6, OPTIONS, &nested(8, ESP, &esp())), Reason::WorkerEsp),
        (
            "ESP behind 9 headers",
            ipv6(PEER6, US6, OPTIONS, &nested(9, ESP, &esp())),
            Reason::DropExtensionHeaders,
        ),
        ("TCP behind options", ipv6(PEER6, US6, OPTIONS, &options(TCP, 1, &[0; 20])), Reason::PassLocal),
        ("no payload", ipv6(PEER6, US6, NO_NEXT, &[]), Reason::PassLocal),
        ("options that are cut", ipv6(PEER6, US6, OPTIONS, &[ESP, 0, 0]), Reason::DropMalformed),
        (
            "options longer than the packet",
            ipv6(PEER6, US6, OPTIONS, &[ESP, 9, 1, 4, 0, 0, 0, 0]),
            Reason::DropMalformed,
        ),
        (
            "a header of 2048 octets",
            ipv6(PEER6, US6, OPTIONS, &[&[ESP, 255][..], &[0; 2046], &esp()].concat()),
            Reason::WorkerEsp,
        ),
    ]
}

/// Frames whose lengths lie.
fn malformed() -> Vec<Fixture> {
    let broken = |at: usize, octets: &[u8]| {
        let mut frame = ipv4(CLIENT4, PEER4, TCP).frame(&[0; 20]);
        frame[14 + at..14 + at + octets.len()].copy_from_slice(octets);
        frame
    };
    let broken6 = |at: usize, octets: &[u8]| {
        let mut frame = ipv6(CLIENT6, PEER6, TCP, &[0; 20]);
        frame[14 + at..14 + at + octets.len()].copy_from_slice(octets);
        frame
    };
    let datagram = |length: u16| {
        let mut datagram = udp(4500, 4500, &esp());
        datagram[4..6].copy_from_slice(&length.to_be_bytes());
        ipv4(PEER4, US4, UDP).frame(&datagram)
    };
    vec![
        ("IPv4 of version 6", broken(0, &[0x65]), Reason::DropMalformed),
        ("IPv4 header of 16 octets", broken(0, &[0x44]), Reason::DropMalformed),
        ("IPv4 header longer than the packet", broken(0, &[0x4f]), Reason::DropMalformed),
        ("IPv4 shorter than its header", broken(2, &[0, 19]), Reason::DropMalformed),
        ("IPv4 longer than the frame", broken(2, &[0, 41]), Reason::DropMalformed),
        ("IPv6 of version 4", broken6(0, &[0x45]), Reason::DropMalformed),
        ("IPv6 longer than the frame", broken6(4, &[0, 21]), Reason::DropMalformed),
        ("UDP shorter than its header", datagram(7), Reason::DropMalformed),
        ("UDP longer than the packet", datagram(57), Reason::DropMalformed),
        ("UDP of length 0", datagram(0), Reason::DropMalformed),
        ("half a UDP header", ipv4(PEER4, US4, UDP).frame(&[0x11, 0x94, 0x11, 0x94]), Reason::DropMalformed),
    ]
}

fn all() -> Vec<Fixture> {
    [to_us(), between_others(), the_kernels(), behind_headers(), malformed()].concat()
}

fn class(reason: Reason) -> Class {
    match reason {
        Reason::WorkerEsp | Reason::WorkerAh => Class::Esp,
        Reason::WorkerEspInUdp => Class::EspInUdp,
        _ => Class::Protect,
    }
}

#[test]
fn each_frame_goes_where_it_belongs() {
    let bench = Bench::new().with_socket();
    for (name, frame, reason) in all() {
        let outcome = bench.run(&frame);
        assert_eq!(outcome.reason, reason, "{name}");
        let (action, stamp) = match reason.action() {
            FilterAction::Pass => (XDP_PASS, None),
            FilterAction::Drop => (XDP_DROP, None),
            FilterAction::Worker => {
                (XDP_REDIRECT, Some(Stamp { class: class(reason), port: PORT, lane: Shard(0) }))
            }
        };
        assert_eq!((outcome.action, outcome.stamp), (action, stamp), "{name}");
        assert_eq!(outcome.frame, frame, "{name}: the frame itself stays as it is");
    }
}

#[test]
fn without_a_worker_its_frames_are_dropped_and_the_others_go_on() {
    let bench = Bench::new();
    for (name, frame, reason) in all() {
        let outcome = bench.run(&frame);
        match reason.action() {
            FilterAction::Worker => {
                assert_eq!((outcome.action, outcome.reason), (XDP_DROP, Reason::DropNoSocket), "{name}");
                assert_eq!(outcome.stamp.map(|s| s.class), Some(class(reason)), "{name}");
            }
            _ => assert_eq!(outcome.reason, reason, "{name}"),
        }
    }
}

#[test]
fn padding_of_the_frame_is_no_payload() {
    let bench = Bench::new().with_socket();
    let keepalive = ipv4(PEER4, US4, UDP).frame(&udp(4500, 4500, &[0xff]));
    let short = ipv4(PEER4, US4, ESP).frame(&[1; 7]);
    for (mut frame, reason) in [(keepalive, Reason::DropKeepalive), (short, Reason::DropEspShort)] {
        frame.resize(60, 0);
        assert_eq!(bench.run(&frame).reason, reason);
    }
}
