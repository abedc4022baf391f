//! Packets that enter at A leave at B, changed only as by a router.

use crate::harness::{Gateway, PATH_MTU, POLICY, SPI_B, Tunnel, forwarded, pair};
use crate::packets::{datagram, one_hop_on, sized, v4, v6};
use proptest::prelude::*;
use std::net::IpAddr;
use std::sync::Arc;
use testudo_crypto::Library;
use testudo_ipsec::dataplane::{Command, Event};
use testudo_ipsec::number::SequenceBlock;
use testudo_ipsec::sa::{ChildSaParams, EspAlgorithm, InboundSa};
use testudo_wire::checksum::Sum;
use testudo_wire::ip::Protocol;
use testudo_wire::ipv4::Ipv4;
use testudo_wire::ipv6::Ipv6;
use testudo_wire::udp::Udp;

fn two_hops_on(packet: &[u8]) -> Vec<u8> {
    one_hop_on(&one_hop_on(packet))
}

#[test]
fn every_size_in_every_tunnel() {
    for tunnel in Tunnel::all() {
        let (mut a, mut b) = pair(&tunnel);
        for is_v6 in [false, true] {
            let smallest = if is_v6 { 48 } else { 28 };
            let mtu = usize::from(a.outbound.inner_mtu());
            for sizes in (smallest..=mtu).collect::<Vec<_>>().chunks(64) {
                let packets: Vec<_> = sizes.iter().map(|size| sized(is_v6, *size)).collect();
                let outer = forwarded(a.outbound(&packets));
                assert!(outer.iter().all(|packet| packet.len() <= usize::from(PATH_MTU)));
                let expected: Vec<_> = packets.iter().map(|packet| two_hops_on(packet)).collect();
                assert_eq!(forwarded(b.inbound(&outer)), expected, "{tunnel:?}");
            }
        }
    }
}

#[test]
fn libraries_agree_across_the_tunnel() {
    for algorithm in EspAlgorithm::all() {
        for sender in Library::ALL.into_iter().filter(|library| library.available().is_ok()) {
            for receiver in Library::ALL.into_iter().filter(|library| library.available().is_ok()) {
                let params = Tunnel { algorithm, ..Tunnel::default() }.params();
                let mut a = Gateway::new(&params, sender);
                let mut b = Gateway::new(&params.mirrored(), receiver);
                let packets = vec![sized(false, 100), sized(true, 1000)];
                let outer = forwarded(a.outbound(&packets));
                let expected: Vec<_> = packets.iter().map(|packet| two_hops_on(packet)).collect();
                assert_eq!(forwarded(b.inbound(&outer)), expected);
            }
        }
    }
}

#[test]
fn numbers_go_on_across_two_to_the_32() {
    for next in [(1 << 32) - 10, (7 << 32) - 3] {
        let params = Tunnel::default().params();
        let library = Library::detect();
        let numbers = SequenceBlock { next, end: u64::MAX >> 1 };
        let mut a = Gateway::with_numbers(&params, library, numbers);
        let mut b = Gateway::new(&params.mirrored(), library);
        // B learns where A is by a snapshot, as a node does that takes an SA over.
        let mut snapshot = b.inbound.snapshot();
        snapshot.window.high_water_mark = next - 1;
        let restored = InboundSa::restore(&params.mirrored(), POLICY, PATH_MTU, &snapshot, library);
        b.inbound = Arc::new(restored.unwrap());
        b.plane.apply(Command::AddInbound(b.inbound.clone()));
        let packets = vec![sized(false, 100); 40];
        let outer = forwarded(a.outbound(&packets));
        assert_eq!(forwarded(b.inbound(&outer)).len(), 40);
        assert_eq!(b.inbound.window().high_water_mark(), next + 39);
    }
}

/// A NAT has changed its mapping: the SA moves, and its numbers and counters go on.
#[test]
fn an_sa_that_moves_goes_on_counting() {
    let params = Tunnel { udp: true, ..Tunnel::default() }.params();
    let library = Library::detect();
    let (mut a, mut b) = (Gateway::new(&params, library), Gateway::new(&params.mirrored(), library));
    let packets = vec![sized(false, 100); 3];
    let before = forwarded(a.outbound(&packets));
    let mut remote = params.remote;
    remote.set_port(61_000);
    let sa = Arc::new(a.outbound.moved(params.local, remote, PATH_MTU).unwrap());
    a.plane.apply(Command::SetOutbound(POLICY, sa.clone()));
    let after = forwarded(a.outbound(&packets));
    assert_eq!(forwarded(b.inbound(&before)).len(), 3);
    assert_eq!(b.inbound.window().high_water_mark(), 3);
    // UDP destination port, behind the IPv4 header.
    assert!(after.iter().all(|packet| packet[22..24] == 61_000u16.to_be_bytes()));
    assert_eq!(sa.numbers().block().next, 7);
    assert_eq!(sa.counters().totals().packets, 6);
}

/// Until control has made the schedules of an SA's keys, every packet passes at the cost of one of
/// its own.
#[test]
fn packets_do_not_wait_for_the_schedules_of_keys() {
    for tunnel in Tunnel::all() {
        let params = tunnel.params();
        let unused = |params: &ChildSaParams| {
            Gateway::unused(params, tunnel.library, SequenceBlock::whole(params.esn))
        };
        let (mut a, mut b) = (unused(&params), unused(&params.mirrored()));
        let packets = vec![sized(false, 100); 5];
        let wanted = |gateway: &mut Gateway| -> Vec<Event> { gateway.plane.drain_events().collect() };
        for now in [1000, 1000, 1004] {
            a.plane.set_now(now);
            b.plane.set_now(now);
            let outer = forwarded(a.outbound(&packets));
            assert_eq!(
                forwarded(b.inbound(&outer)),
                packets.iter().map(|p| two_hops_on(p)).collect::<Vec<_>>()
            );
        }
        // Told again with the next tick, should it have been lost.
        assert_eq!(wanted(&mut a), [Event::KeyWanted { spi: a.inbound.spi() }; 2]);
        assert_eq!(wanted(&mut b), [Event::KeyWanted { spi: b.inbound.spi() }; 2]);
        for gateway in [&mut a, &mut b] {
            gateway.expand_keys();
            gateway.plane.set_now(1008);
        }
        let outer = forwarded(a.outbound(&packets));
        assert_eq!(forwarded(b.inbound(&outer)).len(), 5);
        assert_eq!((wanted(&mut a), wanted(&mut b)), (vec![], vec![]));
    }
}

#[test]
fn outer_headers_are_well_formed() {
    for tunnel in Tunnel::all() {
        let (mut a, _) = pair(&tunnel);
        let outer = forwarded(a.outbound(&[sized(false, 333), sized(true, 334)]));
        for packet in &outer {
            let (protocol, payload, src, dst): (_, _, IpAddr, IpAddr) = if tunnel.outer_v6 {
                let ip = Ipv6::parse(packet).unwrap();
                assert_eq!((ip.total_len(), ip.hop_limit()), (packet.len(), 64));
                (ip.next_header(), ip.payload(), ip.src().into(), ip.dst().into())
            } else {
                let ip = Ipv4::parse_verified(packet).unwrap();
                assert_eq!((ip.total_len(), ip.ttl()), (packet.len(), 64));
                (ip.protocol(), ip.payload(), ip.src().into(), ip.dst().into())
            };
            assert_eq!((src, dst), (tunnel.outer(1), tunnel.outer(2)));
            let esp = if tunnel.udp {
                assert_eq!(protocol, Protocol::UDP);
                let datagram = Udp::parse(payload).unwrap();
                assert_eq!((datagram.src_port, datagram.dst_port), (4500, 4500));
                assert_eq!(datagram.payload.len() + 8, payload.len());
                check_udp_checksum(&tunnel, packet, payload);
                datagram.payload
            } else {
                assert_eq!(protocol, Protocol::ESP);
                payload
            };
            assert_eq!(esp[..4], SPI_B.0.to_be_bytes());
            assert!((esp.len() - 16 - 16).is_multiple_of(4), "RFC 4303 §2.4");
        }
    }
}

/// RFC 3948 §2.1 allows zero over IPv4, RFC 8200 §8.1 does not over IPv6.
fn check_udp_checksum(tunnel: &Tunnel, packet: &[u8], datagram: &[u8]) {
    if tunnel.outer_v6 {
        let ip = Ipv6::parse(packet).unwrap();
        let sum = Sum::new();
        assert!(sum.pseudo_v6(ip.src(), ip.dst(), 17, datagram.len() as u32).bytes(datagram).is_valid());
        assert_ne!(datagram[6..8], [0, 0]);
    } else {
        assert_eq!(datagram[6..8], [0, 0]);
    }
}

#[test]
fn sequence_numbers_and_ivs_count_up() {
    let has_number = |algorithm: &EspAlgorithm| !matches!(algorithm, EspAlgorithm::Separate(_));
    for algorithm in EspAlgorithm::all().filter(has_number) {
        numbers_count_up(algorithm);
    }
}

fn numbers_count_up(algorithm: EspAlgorithm) {
    let (mut a, _) = pair(&Tunnel { algorithm, ..Tunnel::default() });
    let outer = forwarded(a.outbound(&vec![sized(false, 100); 100]));
    for (packet, number) in outer.iter().zip(0u64..) {
        let sequence = u32::from_be_bytes(packet[24..28].try_into().unwrap());
        assert_eq!(u64::from(sequence), number + 1);
        let iv = u64::from_be_bytes(packet[28..36].try_into().unwrap());
        // Sender ID 1, worker 5, counter.
        assert_eq!((iv >> 48, iv >> 42 & 63, iv & ((1 << 42) - 1)), (1, 5, number));
    }
}

#[test]
fn octets_behind_the_packet_do_not_travel() {
    let (mut a, mut b) = pair(&Tunnel::default());
    for packet in [sized(false, 40), sized(true, 50)] {
        let padded = [&packet[..], &[0xdd; 20]].concat();
        let outer = forwarded(a.outbound(&[padded]));
        let plain = forwarded(a.outbound(std::slice::from_ref(&packet)));
        assert_eq!(outer[0].len(), plain[0].len());
        assert_eq!(forwarded(b.inbound(&outer)), [two_hops_on(&packet)]);
    }
}

#[test]
fn fragments_pass_where_any_port_may() {
    let (mut a, mut b) = pair(&Tunnel::default());
    let mut later = v4(Protocol::UDP, &[7; 64]);
    later[6..8].copy_from_slice(&100u16.to_be_bytes());
    later[10..12].fill(0);
    let checksum = Sum::new().bytes(&later[..20]).finish();
    later[10..12].copy_from_slice(&checksum.to_be_bytes());
    let fragment_header = [&[17, 0, 0x10, 0x01, 0, 0, 0, 9], &datagram(64)[..]].concat();
    let later_v6 = v6(Protocol::FRAGMENT, &fragment_header);
    let outer = forwarded(a.outbound(&[later.clone(), later_v6.clone()]));
    assert_eq!(forwarded(b.inbound(&outer)), [two_hops_on(&later), two_hops_on(&later_v6)]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_payload_any_tunnel_any_order(
        bits in 0usize..8,
        packets in prop::collection::vec((any::<bool>(), 0usize..1200, any::<u8>()), 1..130),
        order in any::<u64>(),
    ) {
        let tunnel = Tunnel { window: 256, ..Tunnel::all().nth(bits).unwrap() };
        let (mut a, mut b) = pair(&tunnel);
        let packets: Vec<_> = packets
            .into_iter()
            .map(|(is_v6, len, fill)| {
                let payload = vec![fill; len];
                if is_v6 { v6(Protocol(99), &payload) } else { v4(Protocol(99), &payload) }
            })
            .collect();
        let mut outer: Vec<_> = forwarded(a.outbound(&packets)).into_iter().zip(packets).collect();
        outer.sort_by_key(|(packet, _)| {
            let mix = |mix: u64, octet: &u8| (mix ^ u64::from(*octet)).wrapping_mul(0x100_0000_01b3);
            packet.iter().fold(order, mix)
        });
        let (outer, packets): (Vec<_>, Vec<_>) = outer.into_iter().unzip();
        let expected: Vec<_> = packets.iter().map(|packet| two_hops_on(packet)).collect();
        prop_assert_eq!(forwarded(b.inbound(&outer)), expected);
        prop_assert!(a.plane.counters().totals().outbound.is_balanced());
        prop_assert!(b.plane.counters().totals().inbound.is_balanced());
    }
}
