//! Transport mode: the packet keeps its IP header, whatever it is, and comes out as it went in.

use crate::forge::{authentic, padded, sealed};
use crate::harness::{Gateway, HEADROOM, PATH_MTU, TAILROOM, Tunnel, Way, run};
use crate::packets::{datagram, v4_with, v6_with};
use proptest::prelude::*;
use std::net::IpAddr;
use std::slice::from_ref;
use testudo_ipsec::dataplane::{Ingress, Verdict};
use testudo_ipsec::drops::DropReason;
use testudo_ipsec::sa::{ChildSaParams, EspAlgorithm, Mode};
use testudo_ipsec::selector::{AddrRange, TrafficSelector};
use testudo_wire::checksum::Sum;
use testudo_wire::ip::Protocol;
use testudo_wire::ipv4::{self, Ipv4};
use testudo_wire::ipv6::{self, Ipv6};
use testudo_wire::tcp::Tcp;

/// A's view of an SA between the two outer addresses themselves.
pub(crate) fn params(tunnel: &Tunnel) -> ChildSaParams {
    let only = |addr: IpAddr| vec![TrafficSelector::all(AddrRange::new(addr, addr).unwrap())];
    ChildSaParams {
        mode: Mode::Transport,
        local_ts: only(tunnel.outer(1)),
        remote_ts: only(tunnel.outer(2)),
        ..tunnel.params()
    }
}

fn pair(tunnel: &Tunnel) -> (Gateway, Gateway) {
    let params = params(tunnel);
    (Gateway::new(&params, tunnel.library), Gateway::new(&params.mirrored(), tunnel.library))
}

/// From A itself to B itself.
pub(crate) fn own(tunnel: &Tunnel, next: Protocol, payload: &[u8]) -> Vec<u8> {
    match (tunnel.outer(1), tunnel.outer(2)) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            v4_with(|f| (f.src, f.dst, f.tos) = (src, dst, 0xb9), next, payload)
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            v6_with(|f| (f.src, f.dst, f.traffic_class) = (src, dst, 0xb9), next, payload)
        }
        _ => unreachable!("both ends of a tunnel are of one family"),
    }
}

pub(crate) fn send(a: &mut Gateway, packets: &[Vec<u8>]) -> Vec<(Verdict, Vec<u8>)> {
    run(&mut a.plane, Way::Outbound, Ingress::Host, packets)
}

/// IPv4 options that fill whole words, with the checksum mended.
pub(crate) fn with_options(packet: &[u8], options: &[u8]) -> Vec<u8> {
    let mut packet = [&packet[..ipv4::HEADER], options, &packet[ipv4::HEADER..]].concat();
    let header = ipv4::HEADER + options.len();
    packet[0] = 0x40 | (header / 4) as u8;
    let total = packet.len() as u16;
    packet[2..4].copy_from_slice(&total.to_be_bytes());
    packet[10..12].fill(0);
    let checksum = Sum::new().bytes(&packet[..header]).finish();
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    packet
}

/// The packet as the network has it is what the RFC says, octet by octet around the ciphertext.
fn check_on_the_wire(tunnel: &Tunnel, before: &[u8], after: &[u8], head: usize, named_at: usize) {
    let mut expected = before[..head].to_vec();
    let total = after.len() as u16;
    if tunnel.outer_v6 {
        expected[4..6].copy_from_slice(&(total - 40).to_be_bytes());
    } else {
        expected[2..4].copy_from_slice(&total.to_be_bytes());
    }
    expected[named_at] = if tunnel.udp { 17 } else { 50 };
    if !tunnel.outer_v6 {
        expected[10..12].fill(0);
        let checksum = Sum::new().bytes(&expected).finish();
        expected[10..12].copy_from_slice(&checksum.to_be_bytes());
    }
    assert_eq!(&after[..head], &expected[..]);
    let esp = if tunnel.udp {
        let udp = &after[head..];
        assert_eq!(&udp[..4], &[0x11, 0x94, 0x11, 0x94]);
        assert_eq!(usize::from(u16::from_be_bytes([udp[4], udp[5]])), udp.len());
        if let (IpAddr::V6(src), IpAddr::V6(dst)) = (tunnel.outer(1), tunnel.outer(2)) {
            assert!(Sum::new().pseudo_v6(src, dst, 17, udp.len() as u32).bytes(udp).is_valid());
        }
        &udp[8..]
    } else {
        &after[head..]
    };
    assert_eq!(&esp[..4], &params(tunnel).spi_out.0.to_be_bytes());
    let payload = before.len() - head;
    let (before_text, block, icv) = around(tunnel);
    assert_eq!(esp.len(), before_text + (payload + 2).next_multiple_of(block) + icv);
}

/// Octets of ESP's header and IV, what the text is a multiple of, and octets of the ICV.
fn around(tunnel: &Tunnel) -> (usize, usize, usize) {
    match tunnel.algorithm {
        EspAlgorithm::Separate(algorithm) => {
            (algorithm.before_text(), algorithm.cipher.block_len().max(4), algorithm.mac.icv_len())
        }
        EspAlgorithm::Ccm(algorithm) => (16, 4, algorithm.icv.octets()),
        _ => (16, 4, 16),
    }
}

fn with_every_algorithm() -> impl Iterator<Item = Tunnel> {
    EspAlgorithm::all().flat_map(|algorithm| Tunnel::all().map(move |tunnel| Tunnel { algorithm, ..tunnel }))
}

#[test]
fn every_size_in_every_way() {
    for tunnel in with_every_algorithm() {
        let (mut a, mut b) = pair(&tunnel);
        let header = if tunnel.outer_v6 { ipv6::HEADER } else { ipv4::HEADER };
        for len in (8..100).chain([500, usize::from(a.outbound.inner_mtu()) - header]) {
            let packet = own(&tunnel, Protocol::UDP, &datagram(len));
            let [(verdict, sent)] = send(&mut a, from_ref(&packet)).try_into().unwrap();
            assert_eq!(verdict, Verdict::Forward, "{tunnel:?}, {len}");
            let (head, named_at) = if tunnel.outer_v6 { (40, 6) } else { (20, 9) };
            check_on_the_wire(&tunnel, &packet, &sent, head, named_at);
            assert_eq!(b.inbound(&[sent]), [(Verdict::ToHost, packet)], "{tunnel:?}, {len}");
        }
        assert_eq!(b.plane.counters().totals().inbound.dropped, 0);
    }
}

#[test]
fn headers_that_routers_read_stay_in_front() {
    for tunnel in with_every_algorithm() {
        let (mut a, mut b) = pair(&tunnel);
        let inside = datagram(50);
        // Headers of 8 octets: next header, length, and options or segments of no effect.
        let header = |next: Protocol| [next.0, 0, 1, 4, 0, 0, 0, 0];
        let (packet, head, named_at) = if tunnel.outer_v6 {
            let (rtg, dst) = (Protocol::ROUTING, Protocol::DEST_OPTIONS);
            let chain = [header(rtg), header(dst), header(Protocol::UDP)].concat();
            let packet = own(&tunnel, Protocol::HOP_BY_HOP, &[&chain[..], &inside].concat());
            (packet, 40 + 16, 48)
        } else {
            (with_options(&own(&tunnel, Protocol::UDP, &inside), &[0x94, 4, 0, 0]), 24, 9)
        };
        let [(verdict, sent)] = send(&mut a, from_ref(&packet)).try_into().unwrap();
        assert_eq!(verdict, Verdict::Forward);
        check_on_the_wire(&tunnel, &packet, &sent, head, named_at);
        assert_eq!(b.inbound(&[sent]), [(Verdict::ToHost, packet)], "{tunnel:?}");
    }
}

#[test]
fn only_packets_of_this_host_use_transport_mode() {
    for tunnel in Tunnel::all() {
        let (mut a, _) = pair(&tunnel);
        let packet = own(&tunnel, Protocol::UDP, &datagram(50));
        let refused = run(&mut a.plane, Way::Outbound, Ingress::Port, &[packet]);
        assert_eq!(refused[0].0, Verdict::Drop(DropReason::NotFromHost));
        assert_eq!(a.outbound.counters().dropped(DropReason::NotFromHost), 1);
    }
}

/// RFC 4303 §3.1.1: ESP is applied to whole packets only.
#[test]
fn fragments_are_put_together_first() {
    let tunnel = Tunnel::default();
    let (mut a, mut b) = pair(&tunnel);
    let whole = own(&tunnel, Protocol::UDP, &datagram(800));
    let mut pieces = ipv4::fragment(&whole, 500).unwrap();
    let mut out = [0; 500];
    while let Some(len) = pieces.write_next(&mut out).unwrap() {
        assert_eq!(send(&mut a, &[out[..len].to_vec()])[0].0, Verdict::Reassemble);
    }
    assert_eq!(a.plane.counters().totals().outbound.to_join, 2);
    // A decrypted packet may be larger than the path MTU: it is fragmented outside.
    let whole = own(&tunnel, Protocol::UDP, &datagram(3000));
    let refused = send(&mut a, from_ref(&whole));
    assert_eq!(refused[0].0, Verdict::Forward, "without DF the network makes the pieces");

    let tunnel = Tunnel { outer_v6: true, ..tunnel };
    let (mut a6, mut b6) = pair(&tunnel);
    let whole6 = own(&tunnel, Protocol::UDP, &datagram(3000));
    assert_eq!(send(&mut a6, from_ref(&whole6))[0].0, Verdict::Reply, "its sender makes it smaller");
    let joined = run(&mut a6.plane, Way::Outbound, Ingress::HostJoined, from_ref(&whole6));
    assert_eq!(joined[0].0, Verdict::ForwardInPieces { mtu: PATH_MTU }, "which it has done already");
    assert_eq!(b6.inbound(&[joined[0].1.clone()]), [(Verdict::ToHost, whole6)]);
    assert_eq!(b.inbound(&[refused[0].1.clone()]), [(Verdict::ToHost, whole)]);
}

/// A packet of the size that the SA reports as fitting fits, and one that is an octet larger does
/// not.
#[test]
fn the_largest_packet_fills_the_path() {
    for tunnel in with_every_algorithm() {
        let (mut a, _) = pair(&tunnel);
        let header = if tunnel.outer_v6 { ipv6::HEADER } else { ipv4::HEADER };
        let mtu = usize::from(a.outbound.inner_mtu());
        let whole = |len: usize| own(&tunnel, Protocol::UDP, &datagram(len - header));
        let [(verdict, sent)] = send(&mut a, &[whole(mtu)]).try_into().unwrap();
        assert_eq!(verdict, Verdict::Forward);
        let (_, block, _) = around(&tunnel);
        assert!(usize::from(PATH_MTU) - sent.len() < block, "{tunnel:?}: {}", sent.len());
        let [(verdict, sent)] =
            run(&mut a.plane, Way::Outbound, Ingress::HostJoined, &[whole(mtu + 1)]).try_into().unwrap();
        assert!(sent.len() > PATH_MTU.into(), "{tunnel:?}");
        // Of IPv6 its source alone makes fragments.
        let pieces = Verdict::ForwardInPieces { mtu: PATH_MTU };
        assert_eq!(verdict, if tunnel.outer_v6 { pieces } else { Verdict::Forward }, "{tunnel:?}");
    }
}

#[test]
fn a_connection_learns_what_fits() {
    let tunnel = Tunnel::default();
    let (mut a, mut b) = pair(&tunnel);
    let mut segment = vec![0; 24];
    segment[12] = 0x60;
    segment[13] = 2;
    segment[20..24].copy_from_slice(&[2, 4, 0x05, 0xb4]);
    let syn = own(&tunnel, Protocol::TCP, &segment);
    let sent = send(&mut a, &[syn]);
    let got = b.inbound(&[sent[0].1.clone()]);
    let ip = Ipv4::parse_verified(&got[0].1).unwrap();
    let mss = Tcp::parse(ip.payload()).unwrap().mss();
    assert_eq!(mss, Some(a.outbound.inner_mtu() - 40));
}

/// A forged inside: authentic, and not what transport mode may carry.
#[test]
fn contents_refused_in_transport_mode() {
    for tunnel in Tunnel::all().filter(|tunnel| tunnel.outer_v6) {
        let (_, mut b) = pair(&tunnel);
        let fragment = [Protocol::UDP.0, 0, 0, 1, 0, 0, 0, 7];
        let piece = [&fragment[..], &datagram(50)].concat();
        let esp = [
            (padded(&piece, Protocol::FRAGMENT), DropReason::FragmentInside),
            (padded(&[0; 8], Protocol::HOP_BY_HOP), DropReason::MalformedInner),
            (padded(&[0; 3], Protocol::UDP), DropReason::MalformedInner),
            (padded(&[0; 8], Protocol::NO_NEXT), DropReason::Dummy),
            (vec![0; 8], DropReason::BadPadding),
        ];
        for (number, (text, reason)) in (1..).zip(esp) {
            let text = if reason == DropReason::BadPadding { vec![9; 8] } else { text };
            let before = b.dropped_inbound(reason);
            let packet = authentic(&tunnel, number, &text);
            assert_eq!(b.inbound(&[packet])[0].0, Verdict::Drop(reason), "{tunnel:?}");
            assert_eq!(b.dropped_inbound(reason), (before.0 + 1, before.1 + 1));
        }
    }
}

/// RFC 4301 §5.2: whoever has the key still speaks for its own address only.
#[test]
fn the_addresses_are_those_of_the_sa() {
    for tunnel in Tunnel::all() {
        let (_, mut b) = pair(&tunnel);
        let esp = sealed(&params(&tunnel), 1, &padded(&datagram(50), Protocol::UDP));
        let mut packet = crate::forge::around(&tunnel, &esp);
        if tunnel.outer_v6 {
            packet[23] = 99;
        } else {
            packet[15] = 99;
            packet[10..12].fill(0);
            let checksum = Sum::new().bytes(&packet[..20]).finish();
            packet[10..12].copy_from_slice(&checksum.to_be_bytes());
        }
        assert_eq!(b.inbound(&[packet])[0].0, Verdict::Drop(DropReason::SelectorMismatch));
    }
}

#[test]
fn a_packet_that_carries_nothing_is_not_sent_as_a_dummy() {
    for tunnel in Tunnel::all() {
        let (mut a, _) = pair(&tunnel);
        let refused = send(&mut a, &[own(&tunnel, Protocol::NO_NEXT, b"")]);
        assert_eq!(refused[0].0, Verdict::Drop(DropReason::Dummy));
        assert_eq!(a.outbound.counters().dropped(DropReason::Dummy), 1);
    }
}

/// Congestion is marked on the header that the packet keeps.
#[test]
fn marks_of_the_network_stay() {
    let tunnel = Tunnel { outer_v6: true, ..Tunnel::default() };
    let (mut a, mut b) = pair(&tunnel);
    let mut sent = send(&mut a, &[own(&tunnel, Protocol::UDP, &datagram(50))]).remove(0).1;
    ipv6::Ipv6Mut::new(&mut sent).unwrap().set_traffic_class(0x2b);
    let got = b.inbound(&[sent]);
    assert_eq!(got[0].0, Verdict::ToHost);
    assert_eq!(Ipv6::parse(&got[0].1).unwrap().traffic_class(), 0x2b);
}

#[test]
fn without_room_it_is_dropped() {
    let tunnel = Tunnel::default();
    let (mut a, _) = pair(&tunnel);
    let packet = own(&tunnel, Protocol::UDP, &datagram(50));
    for (before, behind, fits) in
        [(16, TAILROOM, true), (15, TAILROOM, false), (HEADROOM, 20, true), (HEADROOM, 17, false)]
    {
        let mut frame = [&vec![0; before][..], &packet, &vec![0; behind]].concat();
        let buf = testudo_wire::packet::PacketBuf::new(&mut frame, before, packet.len()).unwrap();
        let mut items = [testudo_ipsec::dataplane::Item::new(buf, Ingress::Host)];
        a.plane.outbound(&mut items, &Default::default());
        let expected = if fits { Verdict::Forward } else { Verdict::Drop(DropReason::NoRoom) };
        assert_eq!(items[0].verdict, expected, "{before} before, {behind} behind");
    }
    assert_eq!(a.outbound.counters().dropped(DropReason::NoRoom), 2);
    assert_eq!(a.outbound.numbers().block().next, 3, "no number is used up for nothing");
}

proptest! {
    /// Whatever a host sends arrives as it was, or is refused; whatever the network makes of it is
    /// refused or whole.
    #[test]
    fn any_packet_comes_back(
        bits in 0u8..8, next: u8, payload in prop::collection::vec(any::<u8>(), 0..300),
        flip in any::<Option<(prop::sample::Index, u8)>>(),
    ) {
        let tunnel = Tunnel { outer_v6: bits & 1 != 0, udp: bits & 2 != 0, esn: bits & 4 != 0, ..Tunnel::default() };
        // Extension headers that stay before ESP are not protected.
        let stays = tunnel.outer_v6
            && [Protocol::HOP_BY_HOP, Protocol::ROUTING, Protocol::DEST_OPTIONS].contains(&Protocol(next));
        let flip = flip.filter(|_| !stays);
        let (mut a, mut b) = pair(&tunnel);
        let packet = own(&tunnel, Protocol(next), &payload);
        let [(verdict, mut sent)] = send(&mut a, from_ref(&packet)).try_into().unwrap();
        match verdict {
            Verdict::Forward => {
                if let Some((at, bit)) = flip {
                    let at = at.index(sent.len());
                    sent[at] ^= 1 << (bit % 8);
                }
                let [(verdict, got)] = b.inbound(&[sent]).try_into().unwrap();
                if flip.is_none() {
                    prop_assert_eq!(verdict, Verdict::ToHost);
                    prop_assert_eq!(got, packet);
                } else if verdict == Verdict::ToHost {
                    let header = if tunnel.outer_v6 { ipv6::HEADER } else { ipv4::HEADER };
                    prop_assert_eq!(&got[header..], &packet[header..], "what is protected did not change");
                }
            }
            Verdict::Drop(DropReason::Malformed) | Verdict::Reassemble => {}
            Verdict::Drop(DropReason::Dummy) => prop_assert_eq!(next, Protocol::NO_NEXT.0),
            other => prop_assert!(false, "{other:?}"),
        }
    }
}
