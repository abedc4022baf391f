//! AH: what it covers, what it leaves alone, and what it refuses. `scapy.rs` has the same packets
//! made by another implementation.

use crate::harness::{Gateway, HEADROOM, PATH_MTU, TAILROOM, Tunnel, Way, pair, run};
use crate::packets::{datagram, one_hop_on, sized};
use crate::transport::{self, own, send, with_options};
use proptest::prelude::*;
use std::slice::from_ref;
use testudo_crypto::Library;
use testudo_ipsec::Error;
use testudo_ipsec::dataplane::{Ingress, Verdict};
use testudo_ipsec::drops::DropReason;
use testudo_ipsec::sa::{EspAlgorithm, InboundSa, Mac, OutboundSa};
use testudo_wire::ah::Ah;
use testudo_wire::checksum::Sum;
use testudo_wire::ip::Protocol;
use testudo_wire::{ipv4, ipv6};

/// Every MAC, family and kind of sequence number.
fn all() -> impl Iterator<Item = Tunnel> {
    let tunnels = || Tunnel::all().filter(|tunnel| !tunnel.udp);
    Mac::ALL.into_iter().flat_map(move |mac| {
        tunnels().map(move |tunnel| Tunnel { algorithm: EspAlgorithm::Ah(mac), ..tunnel })
    })
}

fn some() -> Tunnel {
    Tunnel { algorithm: EspAlgorithm::Ah(Mac::HmacSha256_128), ..Tunnel::default() }
}

/// In transport mode.
fn hosts(tunnel: &Tunnel) -> (Gateway, Gateway) {
    let params = transport::params(tunnel);
    (Gateway::new(&params, tunnel.library), Gateway::new(&params.mirrored(), tunnel.library))
}

pub(crate) fn mend(packet: &mut [u8]) {
    if packet[0] >> 4 == 4 {
        let header = usize::from(packet[0] & 15) * 4;
        packet[10..12].fill(0);
        let checksum = Sum::new().bytes(&packet[..header]).finish();
        packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    }
}

/// Octets of AH between those ends (RFC 4302 §2.6).
fn own_len(tunnel: &Tunnel) -> usize {
    let icv = tunnel.algorithm.integrity().unwrap().icv_len();
    (12 + icv).next_multiple_of(if tunnel.outer_v6 { 8 } else { 4 })
}

fn one(results: Vec<(Verdict, Vec<u8>)>) -> (Verdict, Vec<u8>) {
    let [one] = results.try_into().unwrap();
    one
}

#[test]
fn through_a_tunnel_and_back() {
    for tunnel in all() {
        let (mut a, mut b) = pair(&tunnel);
        let header = if tunnel.outer_v6 { ipv6::HEADER } else { ipv4::HEADER };
        for (number, (v6, len)) in (1_u32..).zip([(false, 28), (true, 48), (false, 1000), (true, 1001)]) {
            let packet = sized(v6, len);
            let (verdict, sent) = one(a.outbound(from_ref(&packet)));
            assert_eq!(verdict, Verdict::Forward);
            assert_eq!(sent.len(), header + own_len(&tunnel) + len);
            assert_eq!(sent[if tunnel.outer_v6 { 6 } else { 9 }], 51);
            let ah = Ah::parse(&sent[header..]).unwrap();
            assert_eq!(ah.next, if v6 { Protocol::IPV6 } else { Protocol::IPV4 });
            assert_eq!((ah.spi, ah.sequence), (a.outbound.spi().0, number));
            let got = one(b.inbound(from_ref(&sent)));
            assert_eq!(got, (Verdict::Forward, one_hop_on(&one_hop_on(&packet))));
            assert_eq!(one(b.inbound(&[sent])).0, Verdict::Drop(DropReason::Replayed));
        }
        assert_eq!(b.dropped_inbound(DropReason::Replayed), (4, 4));
    }
}

#[test]
fn between_hosts() {
    for tunnel in all() {
        let (mut a, mut b) = hosts(&tunnel);
        for next in [Protocol::UDP, Protocol(47), Protocol::NO_NEXT] {
            let packet = own(&tunnel, next, &datagram(100));
            let (verdict, sent) = one(send(&mut a, from_ref(&packet)));
            assert_eq!((verdict, sent.len()), (Verdict::Forward, packet.len() + own_len(&tunnel)));
            assert_eq!(one(b.inbound(&[sent])), (Verdict::ToHost, packet));
        }
        let other =
            run(&mut a.plane, Way::Outbound, Ingress::Port, &[own(&tunnel, Protocol::UDP, &datagram(9))]);
        assert_eq!(one(other).0, Verdict::Drop(DropReason::NotFromHost));
    }
}

/// RFC 4302 §3.3.3.1: what routers change may change, and no other bit of the packet.
#[test]
fn every_bit_is_covered_but_those_that_routers_change() {
    for tunnel in all() {
        let (mut a, mut b) = hosts(&tunnel);
        let sent = one(send(&mut a, &[own(&tunnel, Protocol::UDP, &datagram(40))])).1;
        // Of IPv4: TOS, flags and offset, TTL, checksum. Of IPv6: traffic class, flow label, hop
        // limit.
        let changes: &[u8] = if tunnel.outer_v6 {
            &[0x0f, 0xff, 0xff, 0xff, 0, 0, 0, 0xff]
        } else {
            &[0, 0xff, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0, 0xff, 0xff]
        };
        for bit in 0..8 * sent.len() {
            let mask = 0x80 >> (bit % 8);
            let mut damaged = sent.clone();
            damaged[bit / 8] ^= mask;
            mend(&mut damaged);
            let may_change = changes.get(bit / 8).is_some_and(|changes| changes & mask != 0);
            let fragment = !tunnel.outer_v6 && (50..64).contains(&bit);
            let mut fresh = Gateway::new(&transport::params(&tunnel).mirrored(), tunnel.library);
            let verdict = one(fresh.inbound(from_ref(&damaged))).0;
            match verdict {
                Verdict::ToHost => assert!(may_change, "{tunnel:?}: bit {bit}"),
                Verdict::Reassemble => assert!(fragment, "{tunnel:?}: bit {bit}"),
                Verdict::Drop(_) | Verdict::Early(_) => {
                    assert!(!may_change, "{tunnel:?}: bit {bit}, {verdict:?}");
                }
                _ => panic!("{verdict:?}"),
            }
        }
        assert_eq!(one(b.inbound(&[sent])).0, Verdict::ToHost);
    }
}

#[test]
fn the_inside_is_covered() {
    for tunnel in all() {
        let (mut a, mut b) = pair(&tunnel);
        let sent = one(a.outbound(&[sized(false, 60)])).1;
        let start = sent.len() - 60;
        for at in start..sent.len() {
            let mut damaged = sent.clone();
            damaged[at] ^= 1;
            assert_eq!(one(b.inbound(&[damaged])).0, Verdict::Drop(DropReason::AuthFailed));
        }
        assert_eq!(b.dropped_inbound(DropReason::AuthFailed), (60, 60));
        assert_eq!(one(b.inbound(&[sent])).0, Verdict::Forward, "forgeries did not move the window");
    }
}

/// RFC 4302 §3.1.1: behind what is read on the way, and before what the destination alone reads.
#[test]
fn behind_the_headers_of_the_way() {
    for tunnel in all() {
        let (mut a, mut b) = hosts(&tunnel);
        let inside = datagram(50);
        let (packet, at, changes) = if tunnel.outer_v6 {
            // An option that routers change, one that they leave alone; then a routing header that
            // has been used up.
            let hop = [Protocol::ROUTING.0, 1, 0x3e, 4, 1, 2, 3, 4, 0x1e, 4, 1, 2, 3, 4, 1, 0];
            let routing = [Protocol::DEST_OPTIONS.0, 0, 0, 0, 0, 0, 0, 0];
            let options = [Protocol::UDP.0, 0, 1, 4, 0, 0, 0, 0];
            let chain = [&hop[..], &routing, &options, &inside].concat();
            (own(&tunnel, Protocol::HOP_BY_HOP, &chain), 40 + 24, 44)
        } else {
            // Router alert, and a record of the route, which routers fill in.
            let options = [0x94, 4, 0, 0, 7, 7, 4, 0, 0, 0, 0, 1];
            (with_options(&own(&tunnel, Protocol::UDP, &inside), &options), 32, 29)
        };
        let (verdict, sent) = one(send(&mut a, from_ref(&packet)));
        assert_eq!(verdict, Verdict::Forward, "{tunnel:?}");
        assert!(Ah::parse(&sent[at..]).is_ok());
        let mut damaged = sent.clone();
        damaged[if tunnel.outer_v6 { 50 } else { 22 }] ^= 1;
        mend(&mut damaged);
        assert_eq!(one(b.inbound(&[damaged])).0, Verdict::Drop(DropReason::AuthFailed));
        let mut routed = sent;
        routed[changes] ^= 0xff;
        mend(&mut routed);
        let mut expected = packet;
        expected[changes] ^= 0xff;
        mend(&mut expected);
        assert_eq!(one(b.inbound(&[routed])), (Verdict::ToHost, expected), "{tunnel:?}");
    }
}

/// A source route that has not ended, an unknown routing header, a fragment header before AH:
/// nobody can tell what arrives.
#[test]
fn packets_that_ah_cannot_cover_are_refused_by_name() {
    for (tunnel, packet) in all().map(|tunnel| {
        let inside = datagram(50);
        let packet = if tunnel.outer_v6 {
            let routing = [Protocol::UDP.0, 0, 4, 1, 0, 0, 0, 0];
            own(&tunnel, Protocol::ROUTING, &[&routing[..], &inside].concat())
        } else {
            with_options(&own(&tunnel, Protocol::UDP, &inside), &[131, 7, 4, 192, 0, 2, 9, 0])
        };
        (tunnel, packet)
    }) {
        let (mut a, mut b) = hosts(&tunnel);
        let refused = one(send(&mut a, from_ref(&packet))).0;
        assert_eq!(refused, Verdict::Drop(DropReason::AhNotCovered));
        assert_eq!(a.plane.counters().dropped_outbound(DropReason::AhNotCovered), 1);
        assert_eq!(a.outbound.counters().dropped(DropReason::AhNotCovered), 1);
        // And on arrival: AH of whatever content behind such headers.
        let head = packet.len() - 50;
        let mut ah = vec![0; own_len(&tunnel)];
        assert!(testudo_wire::ah::write(&mut ah, Protocol::UDP, a.outbound.spi().0, 1));
        let mut arrived = [&packet[..head], &ah, &packet[head..]].concat();
        if tunnel.outer_v6 {
            arrived[40] = 51;
            let len = arrived.len() as u16 - 40;
            arrived[4..6].copy_from_slice(&len.to_be_bytes());
        } else {
            arrived[9] = 51;
            let len = arrived.len() as u16;
            arrived[2..4].copy_from_slice(&len.to_be_bytes());
            mend(&mut arrived);
        }
        assert_eq!(one(b.inbound(&[arrived])).0, Verdict::Drop(DropReason::AhNotCovered));
        assert_eq!(b.dropped_inbound(DropReason::AhNotCovered), (1, 1));
    }
}

/// The SAD is asked by SPI alone, which is ours to choose; but AH is AH and ESP is ESP (RFC 4301
/// §4.1).
#[test]
fn one_protocol_does_not_pass_for_the_other() {
    for tunnel in all() {
        let esp = Tunnel { algorithm: EspAlgorithm::Aes128Gcm16, ..tunnel };
        let ((mut ah_a, mut ah_b), (mut esp_a, mut esp_b)) = (pair(&tunnel), pair(&esp));
        let with_ah = one(ah_a.outbound(&[sized(false, 100)])).1;
        let with_esp = one(esp_a.outbound(&[sized(false, 100)])).1;
        let refused = Verdict::Drop(DropReason::OtherProtocol);
        assert_eq!(one(ah_b.inbound(from_ref(&with_esp))).0, refused);
        let mixed = esp_b.inbound(&[with_ah.clone(), with_esp, with_ah]);
        assert_eq!(mixed.map_verdicts(), [refused, Verdict::Forward, refused]);
        assert_eq!(ah_b.dropped_inbound(DropReason::OtherProtocol), (1, 1));
        assert_eq!(esp_b.plane.counters().dropped_inbound(DropReason::OtherProtocol), 2);
        assert!(esp_b.plane.counters().totals().inbound.is_balanced());
    }
}

trait Verdicts {
    fn map_verdicts(&self) -> Vec<Verdict>;
}

impl Verdicts for Vec<(Verdict, Vec<u8>)> {
    fn map_verdicts(&self) -> Vec<Verdict> {
        self.iter().map(|(verdict, _)| *verdict).collect()
    }
}

#[test]
fn too_short() {
    for tunnel in all() {
        let (mut a, mut b) = pair(&tunnel);
        let sent = one(a.outbound(&[sized(false, 60)])).1;
        let head = sent.len() - 60 - own_len(&tunnel);
        let cut = |len: usize, words: Option<u8>| {
            let mut packet = sent[..head + len].to_vec();
            let (at, value) = if tunnel.outer_v6 { (4, len) } else { (2, head + len) };
            packet[at..at + 2].copy_from_slice(&(value as u16).to_be_bytes());
            if let Some(words) = words {
                packet[head + 1] = words;
            }
            mend(&mut packet);
            packet
        };
        for len in 0..own_len(&tunnel) {
            assert_eq!(one(b.inbound(&[cut(len, None)])).0, Verdict::Drop(DropReason::AhTooShort));
        }
        // An ICV that is shorter than the SA's, or none.
        for words in 0..=1 {
            let verdict = one(b.inbound(&[cut(own_len(&tunnel) + 60, Some(words))])).0;
            assert_eq!(verdict, Verdict::Drop(DropReason::AhTooShort));
        }
    }
}

/// A packet of the size that the SA reports as fitting fits, and one that is an octet larger does
/// not.
#[test]
fn the_largest_packet_fills_the_path() {
    for tunnel in all() {
        let (mut a, _) = pair(&tunnel);
        let (mut host, _) = hosts(&tunnel);
        let mtu = usize::from(a.outbound.inner_mtu());
        let (verdict, sent) = one(a.outbound(&[sized(true, mtu)]));
        assert_eq!((verdict, sent.len()), (Verdict::Forward, PATH_MTU.into()));
        assert_eq!(one(a.outbound(&[sized(true, mtu + 1)])).0, Verdict::Reply);

        let header = if tunnel.outer_v6 { ipv6::HEADER } else { ipv4::HEADER };
        let whole = |len: usize| own(&tunnel, Protocol::UDP, &datagram(len - header));
        let mtu = usize::from(host.outbound.inner_mtu());
        let (verdict, sent) = one(send(&mut host, &[whole(mtu)]));
        assert_eq!((verdict, sent.len()), (Verdict::Forward, PATH_MTU.into()));
        let larger = run(&mut host.plane, Way::Outbound, Ingress::HostJoined, &[whole(mtu + 1)]);
        assert!(one(larger).1.len() > PATH_MTU.into(), "{tunnel:?}");
    }
}

/// RFC 4302 §3.3.4, §3.4.1: whole packets get AH, and whole packets lose it.
#[test]
fn fragments_are_put_together_first() {
    let tunnel = some();
    let (mut a, mut b) = hosts(&tunnel);
    let sent = one(send(&mut a, &[own(&tunnel, Protocol::UDP, &datagram(800))])).1;
    let pieces_of = |packet: &[u8]| {
        let (mut pieces, mut all, mut out) = (ipv4::fragment(packet, 500).unwrap(), Vec::new(), [0; 500]);
        while let Some(len) = pieces.write_next(&mut out).unwrap() {
            all.push(out[..len].to_vec());
        }
        all
    };
    for piece in pieces_of(&sent) {
        assert_eq!(one(b.inbound(&[piece])).0, Verdict::Reassemble);
    }
    for piece in pieces_of(&own(&tunnel, Protocol::UDP, &datagram(800))) {
        assert_eq!(one(send(&mut a, &[piece])).0, Verdict::Reassemble);
    }
}

#[test]
fn never_in_udp() {
    let tunnel = Tunnel { udp: true, ..some() };
    let (params, library) = (tunnel.params(), Library::detect());
    let policy = crate::harness::POLICY;
    let numbers = testudo_ipsec::number::SequenceBlock::whole(true);
    assert_eq!(InboundSa::new(&params, policy, PATH_MTU, library).err(), Some(Error::AhInUdp));
    assert_eq!(OutboundSa::new(&params, policy, numbers, PATH_MTU, library).err(), Some(Error::AhInUdp));
}

/// RFC 4301 §5.2: the SA's selectors are asked of what was inside.
#[test]
fn the_inside_is_of_the_selectors() {
    for tunnel in all() {
        let wide = crate::harness::net("0.0.0.0", "255.255.255.255");
        let mut params = tunnel.params();
        params.local_ts.push(wide);
        let mut a = Gateway::new(&params, tunnel.library);
        let mut b = Gateway::new(&tunnel.params().mirrored(), tunnel.library);
        let stray = crate::packets::v4_with(|f| f.src = [172, 16, 0, 1].into(), Protocol::UDP, &datagram(30));
        let sent = one(a.outbound(&[stray])).1;
        assert_eq!(one(b.inbound(&[sent])).0, Verdict::Drop(DropReason::SelectorMismatch));
    }
}

#[test]
fn without_room_it_is_dropped() {
    let (mut a, _) = hosts(&some());
    let packet = own(&some(), Protocol::UDP, &datagram(50));
    for (before, fits) in [(28, true), (27, false)] {
        let mut frame = [&vec![0; before][..], &packet].concat();
        let buf = testudo_wire::packet::PacketBuf::new(&mut frame, before, packet.len()).unwrap();
        let mut items = [testudo_ipsec::dataplane::Item::new(buf, Ingress::Host)];
        a.plane.outbound(&mut items, &Default::default());
        let expected = if fits { Verdict::Forward } else { Verdict::Drop(DropReason::NoRoom) };
        assert_eq!(items[0].verdict, expected, "{before} before");
    }
    const { assert!(HEADROOM > 40 + 48 && TAILROOM > 0) };
}

proptest! {
    /// Whatever goes in comes out as it was, or is refused; whatever is changed on the way is
    /// refused, or of no account.
    #[test]
    fn any_packet_comes_back(
        bits in 0u8..16, next in any::<u8>().prop_filter("a bundle", |next| *next != Protocol::ESP.0), payload in prop::collection::vec(any::<u8>(), 0..300),
        flip in any::<Option<(prop::sample::Index, u8)>>(),
    ) {
        let mac = Mac::ALL[usize::from(bits >> 2)];
        let tunnel = Tunnel { outer_v6: bits & 1 != 0, esn: bits & 2 != 0, algorithm: EspAlgorithm::Ah(mac), ..Tunnel::default() };
        let (mut a, mut b) = hosts(&tunnel);
        let packet = own(&tunnel, Protocol(next), &payload);
        let (verdict, mut sent) = one(send(&mut a, from_ref(&packet)));
        if verdict == Verdict::Forward {
            if let Some((at, bit)) = flip {
                let at = at.index(sent.len());
                sent[at] ^= 1 << (bit % 8);
            }
            let (verdict, got) = one(b.inbound(&[sent]));
            if flip.is_none() {
                prop_assert_eq!((verdict, got), (Verdict::ToHost, packet));
            } else if verdict == Verdict::ToHost {
                let header = if tunnel.outer_v6 { ipv6::HEADER } else { ipv4::HEADER };
                prop_assert_eq!(&got[header..], &packet[header..]);
            }
        } else {
            let known = matches!(verdict, Verdict::Reassemble | Verdict::Drop(DropReason::Malformed | DropReason::AhNotCovered));
            prop_assert!(known, "{:?}", verdict);
        }
    }
}
