//! Packets that are too big, or have come too far: ICMP errors, fragments.

use crate::harness::{Gateway, HEADROOM, PATH_MTU, TAILROOM, Tunnel, Way, forwarded, pair, run, run_at};
use crate::packets::{A4, B4, one_hop_on, sized, v4_with, v6_with};
use testudo_ipsec::dataplane::{Ingress, Item, Sources, Verdict};
use testudo_ipsec::drops::DropReason;
use testudo_ipsec::selector::TrafficSelector;
use testudo_wire::ip::Protocol;
use testudo_wire::ipv4::{Ipv4, fragment};
use testudo_wire::ipv6::Ipv6;
use testudo_wire::packet::PacketBuf;

fn big(df: bool, len: usize) -> Vec<u8> {
    v4_with(|f| (f.df, f.ttl) = (df, 9), Protocol::UDP, &vec![7; len - 20])
}

/// Type, code and MTU of an ICMP error, and the packet that it quotes.
fn read_error(packet: &[u8]) -> (u8, u8, u16, Vec<u8>) {
    let icmp = match packet[0] >> 4 {
        4 => Ipv4::parse_verified(packet).unwrap().payload(),
        _ => Ipv6::parse(packet).unwrap().payload(),
    };
    (icmp[0], icmp[1], u16::from_be_bytes([icmp[6], icmp[7]]), icmp[8..].to_vec())
}

#[test]
fn df_and_one_octet_too_many() {
    for tunnel in Tunnel::all() {
        let (mut a, _) = pair(&tunnel);
        let mtu = a.outbound.inner_mtu();
        assert_eq!(forwarded(a.outbound(&[big(true, mtu.into())])).len(), 1);
        let too_big = big(true, usize::from(mtu) + 1);
        let (verdict, reply) = a.outbound(std::slice::from_ref(&too_big)).remove(0);
        assert_eq!(verdict, Verdict::Reply);
        let (kind, code, told, quoted) = read_error(&reply);
        assert_eq!((kind, code, told), (3, 4, mtu));
        assert_eq!(quoted, too_big[..quoted.len()], "as it came, its TTL untouched");
        let ip = Ipv4::parse_verified(&reply).unwrap();
        assert_eq!((ip.src(), ip.dst()), (B4, A4));
        assert_eq!(a.outbound.counters().dropped(DropReason::TooBig), 1);
        assert!(a.plane.counters().totals().outbound.is_balanced());
    }
}

#[test]
fn ipv6_and_one_octet_too_many() {
    for tunnel in Tunnel::all() {
        let (mut a, _) = pair(&tunnel);
        let mtu = a.outbound.inner_mtu();
        let (verdict, reply) = a.outbound(&[sized(true, usize::from(mtu) + 1)]).remove(0);
        assert_eq!(verdict, Verdict::Reply);
        assert_eq!(read_error(&reply).0, 2);
        assert_eq!(read_error(&reply).2, mtu);
    }
}

/// No IPv6 host can send less than 1280 octets at a time (RFC 8200 §5), however narrow the path is.
#[test]
fn ipv6_packets_of_the_minimum_size_always_pass() {
    let (mut a, mut b) = pair(&Tunnel::default());
    a.outbound.set_path_mtu(1280).unwrap();
    assert!(a.outbound.inner_mtu() < 1280);
    let outer = forwarded(a.outbound(&[sized(true, 1280)]));
    assert!(!Ipv4::parse(&outer[0]).unwrap().df(), "routers may help");
    assert_eq!(forwarded(b.inbound(&outer)).len(), 1);
    let (verdict, reply) = a.outbound(&[sized(true, 1281)]).remove(0);
    assert_eq!(verdict, Verdict::Reply);
    assert_eq!(read_error(&reply).2, 1280);
}

/// The same over IPv6, where only the source of the outer packet may fragment (RFC 8200 §5).
#[test]
fn packets_that_must_pass_whole_leave_over_ipv6_in_fragments() {
    for udp in [false, true] {
        let tunnel = Tunnel { outer_v6: true, udp, ..Tunnel::default() };
        let mut params = tunnel.params();
        params.remote_ts[0] =
            TrafficSelector { protocol: 17, port_start: 2000, port_end: 2000, ..params.remote_ts[0] };
        let mut a = Gateway::new(&params, tunnel.library);
        let mut b = Gateway::new(&params.mirrored(), tunnel.library);
        for (path_mtu, packet) in
            [(1500, sized(false, 1480)), (1280, sized(true, 1280)), (1000, sized(true, 1280))]
        {
            a.outbound.set_path_mtu(path_mtu).unwrap();
            let fits = sized(true, a.outbound.inner_mtu().into());
            assert_eq!(forwarded(a.outbound(&[fits])).len(), 1);
            let (verdict, outer) = a.outbound(std::slice::from_ref(&packet)).remove(0);
            assert_eq!(verdict, Verdict::ForwardInPieces { mtu: path_mtu.max(1280) });
            assert!(outer.len() > path_mtu.into());
            assert_eq!(forwarded(b.inbound(&[outer]))[0].len(), packet.len());
        }
        // Larger than the path is said to be, and smaller than any IPv6 link's MTU.
        let smaller = forwarded(a.outbound(&[sized(true, 1100)]));
        assert!(smaller[0].len() <= 1280);
        let totals = a.plane.counters().totals().outbound;
        assert_eq!((totals.received, totals.forwarded), (7, 7));
        assert!(totals.is_balanced());
    }
}

#[test]
fn without_df_the_packet_is_split_and_its_pieces_arrive() {
    for tunnel in Tunnel::all() {
        let (mut a, mut b) = pair(&tunnel);
        let packet = big(false, 4000);
        let (verdict, whole) = a.outbound(std::slice::from_ref(&packet)).remove(0);
        let Verdict::Fragment { mtu } = verdict else { panic!("{verdict:?}") };
        assert_eq!(mtu, a.outbound.inner_mtu());
        assert_eq!(whole, one_hop_on(&packet));
        let mut fragments = fragment(&whole, mtu).unwrap();
        let mut pieces = Vec::new();
        let mut out = vec![0; 1500];
        while let Some(len) = fragments.write_next(&mut out).unwrap() {
            pieces.push(out[..len].to_vec());
        }
        assert_eq!(pieces.len(), 3);
        let outer = forwarded(run(&mut a.plane, Way::Outbound, Ingress::Host, &pieces));
        let arrived = forwarded(b.inbound(&outer));
        let payload: Vec<u8> =
            arrived.iter().flat_map(|piece| Ipv4::parse(piece).unwrap().payload().to_vec()).collect();
        assert_eq!(payload, packet[20..]);
        assert!(arrived.iter().all(|piece| Ipv4::parse(piece).unwrap().ttl() == 7));
        let totals = a.plane.counters().totals().outbound;
        assert_eq!((totals.received, totals.to_split, totals.forwarded), (4, 1, 3));
        assert!(totals.is_balanced());
    }
}

/// A packet that came in fragments keeps its place in the burst: given back, it would return
/// without its origin, and its sender would be asked for smaller packets.
#[test]
fn a_reassembled_packet_does_not_wait_behind_pieces() {
    let (mut a, _) = pair(&Tunnel::default());
    let small = sized(false, 100);
    let big = [(Ingress::Port, big(false, 4000), Verdict::Fragment { mtu: a.outbound.inner_mtu() })];
    let behind = [
        (Ingress::Port, Verdict::Behind),
        (Ingress::PortJoined, Verdict::Forward),
        (Ingress::Host, Verdict::Behind),
        (Ingress::HostJoined, Verdict::Forward),
    ];
    // One packet of each, and trains.
    for count in [1, 5] {
        let behind = behind
            .iter()
            .flat_map(|(ingress, verdict)| std::iter::repeat_n((*ingress, small.clone(), *verdict), count));
        let burst: Vec<_> = big.iter().cloned().chain(behind).collect();
        let mut frames: Vec<_> = burst
            .iter()
            .map(|(_, packet, _)| [&[0; HEADROOM][..], packet, &[0; TAILROOM]].concat())
            .collect();
        let mut items: Vec<_> = frames
            .iter_mut()
            .zip(&burst)
            .map(|(frame, (ingress, packet, _))| {
                Item::new(PacketBuf::new(frame, HEADROOM, packet.len()).unwrap(), *ingress)
            })
            .collect();
        a.plane.outbound(&mut items, &Sources::default());
        let found: Vec<_> = items.iter().map(|item| item.verdict).collect();
        assert_eq!(found, burst.iter().map(|(.., verdict)| *verdict).collect::<Vec<_>>());
        assert!(a.plane.counters().totals().outbound.is_balanced());
    }
}

/// Later pieces show no port, and neither end would take them (RFC 4301 §7).
#[test]
fn where_selectors_ask_for_ports_the_packet_is_encrypted_whole() {
    let tunnel = Tunnel::default();
    let mut params = tunnel.params();
    for ts in params.remote_ts.iter_mut() {
        *ts = TrafficSelector { protocol: 17, port_start: 2000, port_end: 2000, ..*ts };
    }
    let mut a = Gateway::new(&params, tunnel.library);
    let mut b = Gateway::new(&params.mirrored(), tunnel.library);
    let packet = sized(false, 1600);
    let outer = forwarded(a.outbound(std::slice::from_ref(&packet)));
    assert!(!Ipv4::parse(&outer[0]).unwrap().df(), "to be fragmented outside");
    assert_eq!(forwarded(b.inbound(&outer)), [one_hop_on(&one_hop_on(&packet))]);
}

#[test]
fn time_exceeded_before_the_tunnel_and_behind_it() {
    for is_v6 in [false, true] {
        let (mut a, mut b) = pair(&Tunnel::default());
        let with_ttl = |ttl| {
            if is_v6 {
                v6_with(|f| f.hop_limit = ttl, Protocol::UDP, &[7; 20])
            } else {
                v4_with(|f| f.ttl = ttl, Protocol::UDP, &[7; 20])
            }
        };
        let kind = if is_v6 { 3 } else { 11 };
        for ttl in [0, 1] {
            let (verdict, reply) = a.outbound(&[with_ttl(ttl)]).remove(0);
            assert_eq!((verdict, read_error(&reply).0), (Verdict::Reply, kind));
            assert_eq!(read_error(&reply).3, with_ttl(ttl));
        }
        assert_eq!(a.plane.counters().dropped_outbound(DropReason::TtlExceeded), 2);
        let outer = forwarded(a.outbound(&[with_ttl(2)]));
        let (verdict, reply) = b.inbound(&outer).remove(0);
        assert_eq!((verdict, read_error(&reply).0), (Verdict::Reply, kind));
        assert_eq!(b.dropped_inbound(DropReason::TtlExceeded), (1, 1));
        // The answer fits B's policy and finds its way back to A's host.
        let back = forwarded(run(&mut b.plane, Way::Outbound, Ingress::Host, &[reply]));
        let arrived = forwarded(a.inbound(&back));
        assert_eq!(read_error(&arrived[0]).0, kind);
        assert!(b.plane.counters().totals().inbound.is_balanced());
    }
}

#[test]
fn errors_come_from_the_interface_that_the_packets_came_in_by() {
    let (mut a, _) = pair(&Tunnel::default());
    let sources = Sources { v4: Some([10, 1, 0, 1].into()), v6: Some("2001:db8:1::1".parse().unwrap()) };
    let packets = [big(true, 1500), sized(true, 1500)];
    let replies = run_at(&mut a.plane, Way::Outbound, Ingress::Port, &sources, &packets);
    assert_eq!(Some(Ipv4::parse(&replies[0].1).unwrap().src()), sources.v4);
    assert_eq!(Some(Ipv6::parse(&replies[1].1).unwrap().src()), sources.v6);
}

#[test]
fn errors_are_not_answered_with_errors() {
    let (mut a, _) = pair(&Tunnel::default());
    let unreachable = v4_with(|f| f.ttl = 1, Protocol::ICMP, &[3, 1, 0, 0, 0, 0, 0, 0]);
    assert_eq!(a.outbound(&[unreachable])[0].0, Verdict::Drop(DropReason::TtlExceeded));
    assert_eq!(a.plane.counters().totals().icmp_suppressed, 1);
    assert!(a.plane.counters().totals().outbound.is_balanced());
}

#[test]
fn errors_are_limited_to_a_rate() {
    let (mut a, _) = pair(&Tunnel::default());
    let mut burst = |now| {
        a.plane.set_now(now);
        let found = a.outbound(&vec![big(true, 1500); 1100]);
        found.iter().filter(|(verdict, _)| *verdict == Verdict::Reply).count()
    };
    assert_eq!(burst(0), 1000);
    assert_eq!(burst(100), 100);
    assert_eq!(burst(100), 0);
    let totals = a.plane.counters().totals();
    assert_eq!((totals.outbound.generated, totals.icmp_suppressed), (1100, 2200));
    assert!(totals.outbound.is_balanced());
}

#[test]
fn frames_without_room_are_dropped_and_counted() {
    for tunnel in Tunnel::all() {
        let (mut a, mut b) = pair(&tunnel);
        let packet = sized(false, 101);
        // One octet of padding, two of trailer, sixteen of ICV.
        let whole = forwarded(a.outbound(std::slice::from_ref(&packet)))[0].len();
        let prefix = whole - 101 - 19;
        for (head, tail, fits) in [(prefix, 19, true), (prefix - 1, TAILROOM, false), (prefix, 18, false)] {
            let mut frame = [&vec![0; head][..], &packet, &vec![0; tail]].concat();
            let mut items = [Item::new(PacketBuf::new(&mut frame, head, 101).unwrap(), Ingress::Port)];
            a.plane.outbound(&mut items, &Sources::default());
            if fits {
                let outer = items[0].buf.data().to_vec();
                assert_eq!(forwarded(b.inbound(&[outer])).len(), 1);
            } else {
                assert_eq!(items[0].verdict, Verdict::Drop(DropReason::NoRoom), "{head} {tail}");
            }
        }
        assert_eq!(a.outbound.counters().dropped(DropReason::NoRoom), 2);
    }
}

/// Packets of a train are looked up together, but each has room of its own. A packet that has too
/// little gets no number.
#[test]
fn frames_without_room_in_a_train_are_dropped_and_counted() {
    let (mut a, _) = pair(&Tunnel::default());
    let packet = sized(false, 101);
    let whole = forwarded(a.outbound(std::slice::from_ref(&packet)))[0].len();
    let prefix = whole - 101 - 19;
    for (head, tail) in [(prefix - 1, TAILROOM), (prefix, 18)] {
        let before = a.outbound.counters().dropped(DropReason::NoRoom);
        let mut frames = vec![[&vec![0; head][..], &packet, &vec![0; tail]].concat(); 4];
        let item = |frame| Item::new(PacketBuf::new(frame, head, 101).unwrap(), Ingress::Port);
        let mut items: Vec<_> = frames.iter_mut().map(|frame| item(frame)).collect();
        a.plane.outbound(&mut items, &Sources::default());
        assert!(items.iter().all(|item| item.verdict == Verdict::Drop(DropReason::NoRoom)), "{head} {tail}");
        assert_eq!(a.outbound.counters().dropped(DropReason::NoRoom), before + 4);
    }
    assert_eq!(a.outbound.numbers().block().next, 2, "no number is used up for nothing");
}

/// Only the source of an IPv6 packet fragments it (RFC 8200 §4.5): of one octet too many nobody
/// else would take care.
#[test]
fn packets_slightly_too_large_for_an_ipv6_path_are_fragmented() {
    for tunnel in Tunnel::all().filter(|tunnel| tunnel.outer_v6) {
        let (mut a, _) = pair(&tunnel);
        let mtu = usize::from(a.outbound.inner_mtu());
        let mut send = |len| run(&mut a.plane, Way::Outbound, Ingress::PortJoined, &[sized(true, len)])[0].0;
        assert_eq!(send(mtu), Verdict::Forward);
        assert_eq!(send(mtu + 1), Verdict::ForwardInPieces { mtu: PATH_MTU });
    }
}
