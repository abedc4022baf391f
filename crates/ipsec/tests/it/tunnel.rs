//! Fields copied between inner and outer header, and fields that a hop changes.

use crate::forge::{authentic, outer, padded, sealed};
use crate::harness::{Gateway, Tunnel, Way, forwarded, pair, run};
use crate::packets::{sized, v4, v4_with, v6, v6_with};
use testudo_ipsec::dataplane::{Ingress, Verdict};
use testudo_ipsec::drops::DropReason;
use testudo_ipsec::sa::HeaderCopy;
use testudo_wire::checksum::Sum;
use testudo_wire::ip::Protocol;
use testudo_wire::ipv4::{self, Ipv4};
use testudo_wire::ipv6::{self, Ipv6};
use testudo_wire::tcp::Tcp;

const NONE: HeaderCopy = HeaderCopy { dscp_out: false, dscp_in: false, ecn: false, df: false };
const ALL: HeaderCopy = HeaderCopy { dscp_out: true, dscp_in: true, ecn: true, df: true };

fn class_of(packet: &[u8]) -> u8 {
    match packet[0] >> 4 {
        4 => Ipv4::parse_verified(packet).unwrap().tos(),
        _ => Ipv6::parse(packet).unwrap().traffic_class(),
    }
}

fn with_class(is_v6: bool, class: u8) -> Vec<u8> {
    if is_v6 {
        v6_with(|f| f.traffic_class = class, Protocol(99), b"payload")
    } else {
        v4_with(|f| f.tos = class, Protocol(99), b"payload")
    }
}

fn set_class(packet: &mut [u8], class: u8) {
    match packet[0] >> 4 {
        4 => ipv4::Ipv4Mut::new(packet).unwrap().set_tos(class),
        _ => ipv6::Ipv6Mut::new(packet).unwrap().set_traffic_class(class),
    }
}

#[test]
fn dscp_and_ecn_through_the_tunnel() {
    for tunnel in Tunnel::all() {
        for is_v6 in [false, true] {
            let (mut a, mut b) = pair(&Tunnel { copy: ALL, ..tunnel });
            let outer = forwarded(a.outbound(&[with_class(is_v6, 0xb8 | 2)]));
            assert_eq!(class_of(&outer[0]), 0xb8 | 2);
            // The network remarks, and marks congestion.
            let mut marked = outer[0].clone();
            set_class(&mut marked, 0x28 | 3);
            assert_eq!(class_of(&forwarded(b.inbound(&[marked]))[0]), 0x28 | 3);

            let (mut a, mut b) = pair(&Tunnel { copy: NONE, ..tunnel });
            let outer = forwarded(a.outbound(&[with_class(is_v6, 0xb8 | 2)]));
            assert_eq!(class_of(&outer[0]), 0);
            let mut marked = outer[0].clone();
            set_class(&mut marked, 0x28);
            assert_eq!(class_of(&forwarded(b.inbound(&[marked]))[0]), 0xb8 | 2);
        }
    }
}

#[test]
fn congestion_that_cannot_be_told_on_drops_the_packet() {
    for is_v6 in [false, true] {
        let (mut a, mut b) = pair(&Tunnel::default());
        let mut outer = forwarded(a.outbound(&[with_class(is_v6, 0xb8)]));
        set_class(&mut outer[0], 3);
        assert_eq!(b.inbound(&outer)[0].0, Verdict::Drop(DropReason::EcnNotCapable));
        assert_eq!(b.dropped_inbound(DropReason::EcnNotCapable), (1, 1));
    }
}

#[test]
fn the_outer_df() {
    let df_of = |copy: HeaderCopy, packet: Vec<u8>| {
        let (mut a, _) = pair(&Tunnel { copy, ..Tunnel::default() });
        Ipv4::parse_verified(&forwarded(a.outbound(&[packet]))[0]).unwrap().df()
    };
    let (df, no_df) = (v4_with(|f| f.df = true, Protocol(99), b""), v4(Protocol(99), b""));
    assert!(df_of(ALL, df.clone()));
    assert!(!df_of(ALL, no_df.clone()));
    assert!(df_of(ALL, sized(true, 100)), "an IPv6 packet is not fragmented on its way");
    assert!(!df_of(NONE, df));
    assert!(!df_of(NONE, no_df));
    assert!(!df_of(NONE, sized(true, 100)));
}

#[test]
fn identifications_of_consecutive_outer_packets_differ() {
    let (mut a, _) = pair(&Tunnel::default());
    let outer = forwarded(a.outbound(&vec![sized(false, 100); 64]));
    let ids: Vec<u16> = outer.iter().map(|packet| Ipv4::parse(packet).unwrap().id()).collect();
    assert!(ids.windows(2).all(|pair| pair[1] == pair[0].wrapping_add(1)));
}

fn with_ttl(is_v6: bool, ttl: u8) -> Vec<u8> {
    if is_v6 {
        v6_with(|f| f.hop_limit = ttl, Protocol::UDP, &[7; 20])
    } else {
        v4_with(|f| f.ttl = ttl, Protocol::UDP, &[7; 20])
    }
}

fn ttl_of(packet: &[u8]) -> u8 {
    packet[if packet[0] >> 4 == 4 { 8 } else { 7 }]
}

#[test]
fn a_hop_is_counted_once_on_each_side() {
    for is_v6 in [false, true] {
        let (mut a, mut b) = pair(&Tunnel::default());
        let outer = forwarded(a.outbound(&[with_ttl(is_v6, 3)]));
        assert_eq!(ttl_of(&forwarded(b.inbound(&outer))[0]), 1);
        // Packets of our own host have made no hop yet.
        let outer = forwarded(run(&mut a.plane, Way::Outbound, Ingress::Host, &[with_ttl(is_v6, 1)]));
        let (verdict, reply) = b.inbound(&outer).remove(0);
        assert_eq!(verdict, Verdict::Reply, "B has to count it");
        assert_eq!(reply[0] >> 4, if is_v6 { 6 } else { 4 });
    }
}

#[test]
fn packets_for_the_gateway_itself_go_to_the_host_whatever_their_ttl() {
    let tunnel = Tunnel::default();
    let mut gateway = Gateway::new(&tunnel.params(), tunnel.library);
    let peer = tunnel.params().mirrored();
    let to_us = |esp: Vec<u8>| {
        // From B to A, this time.
        let mut packet = outer(&tunnel, Protocol::ESP, &esp);
        let (src, dst) = (packet[12..16].to_vec(), packet[16..20].to_vec());
        packet[12..16].copy_from_slice(&dst);
        packet[16..20].copy_from_slice(&src);
        packet
    };
    let v4 = v4_with(
        |f| (f.src, f.dst, f.ttl) = ([10, 2, 0, 2].into(), [10, 1, 0, 1].into(), 1),
        Protocol::UDP,
        &[7; 20],
    );
    let (src, dst) = ("2001:db8:2::2".parse().unwrap(), "2001:db8:1::1".parse().unwrap());
    let v6 = v6_with(|f| (f.src, f.dst, f.hop_limit) = (src, dst, 1), Protocol::UDP, &[7; 20]);
    let packets = [
        to_us(sealed(&peer, 1, &padded(&v4, Protocol::IPV4))),
        to_us(sealed(&peer, 2, &padded(&v6, Protocol::IPV6))),
    ];
    assert_eq!(gateway.inbound(&packets), [(Verdict::ToHost, v4), (Verdict::ToHost, v6)]);
    assert_eq!(gateway.plane.counters().totals().inbound.to_host, 2);
}

/// A SYN with an MSS, and a checksum over its pseudo-header.
pub(crate) fn syn(is_v6: bool, flags: u8, mss: u16) -> Vec<u8> {
    let [m0, m1] = mss.to_be_bytes();
    let mut segment =
        vec![0, 80, 0, 81, 0, 0, 0, 1, 0, 0, 0, 0, 0x60, flags, 0xff, 0xff, 0, 0, 0, 0, 2, 4, m0, m1];
    let packet = if is_v6 { v6(Protocol::TCP, &segment) } else { v4(Protocol::TCP, &segment) };
    let checksum = pseudo_sum(&packet).bytes(&segment).finish();
    segment[16..18].copy_from_slice(&checksum.to_be_bytes());
    if is_v6 { v6(Protocol::TCP, &segment) } else { v4(Protocol::TCP, &segment) }
}

fn pseudo_sum(packet: &[u8]) -> Sum {
    if packet[0] >> 4 == 6 {
        let ip = Ipv6::parse(packet).unwrap();
        Sum::new().pseudo_v6(ip.src(), ip.dst(), 6, ip.payload().len() as u32)
    } else {
        let ip = Ipv4::parse(packet).unwrap();
        Sum::new().pseudo_v4(ip.src(), ip.dst(), 6, ip.payload().len() as u16)
    }
}

pub(crate) fn mss_of(packet: &[u8]) -> u16 {
    let payload = match packet[0] >> 4 {
        4 => Ipv4::parse(packet).unwrap().payload(),
        _ => Ipv6::parse(packet).unwrap().payload(),
    };
    assert!(pseudo_sum(packet).bytes(payload).is_valid());
    Tcp::parse(payload).unwrap().mss().unwrap()
}

#[test]
fn mss_is_clamped_in_both_directions() {
    for tunnel in Tunnel::all() {
        for (is_v6, headers) in [(false, 40), (true, 60)] {
            for (flags, from, clamped) in
                [(0x02, 9000, true), (0x12, 1460, true), (0x02, 500, false), (0x10, 9000, false)]
            {
                let (mut a, mut b) = pair(&tunnel);
                let mtu = a.outbound.inner_mtu();
                let expected = if clamped { mtu - headers } else { from };
                // Clamped by A: B sees what A left.
                let outer = forwarded(a.outbound(&[syn(is_v6, flags, from)]));
                assert_eq!(a.plane.counters().totals().mss_clamped, u64::from(clamped));
                assert_eq!(mss_of(&forwarded(b.inbound(&outer))[0]), expected);
                // Not clamped by a peer that does not care: B does it, for the way back.
                let next = if is_v6 { Protocol::IPV6 } else { Protocol::IPV4 };
                let raw = authentic(&tunnel, 7, &padded(&syn(is_v6, flags, from), next));
                assert_eq!(mss_of(&forwarded(b.inbound(&[raw]))[0]), expected);
                assert_eq!(b.plane.counters().totals().mss_clamped, u64::from(clamped));
            }
        }
    }
}

#[test]
fn mss_follows_the_path_mtu() {
    let (mut a, _) = pair(&Tunnel::default());
    a.outbound.set_path_mtu(1300).unwrap();
    a.inbound.set_path_mtu(1300).unwrap();
    assert_eq!(a.outbound.inner_mtu(), a.inbound.inner_mtu());
    assert!(a.outbound.inner_mtu() < 1300);
    assert!(a.outbound.set_path_mtu(500).is_err());
    assert_eq!(a.outbound.path_mtu(), 1300);
    assert_eq!(forwarded(a.outbound(&[syn(false, 2, 1460)])).len(), 1);
    assert_eq!(a.plane.counters().totals().mss_clamped, 1);
}
