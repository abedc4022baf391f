//! Packets that must not pass: forged, damaged, truncated, replayed, or authentic and wrong inside.

use crate::forge::{around, authentic, datagram, outer, padded, sealed};
use crate::harness::{Gateway, SPI_B, Tunnel, forwarded, pair};
use crate::packets::{A4, B4, sized, v4, v4_with, v6, v6_with};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use testudo_base::spi::Spi;
use testudo_ipsec::dataplane::Verdict;
use testudo_ipsec::drops::DropReason;
use testudo_ipsec::selector::TrafficSelector;
use testudo_wire::ip::Protocol;

/// Gives one packet to the gateway, which must drop it for this reason and count it once.
fn refused(gateway: &mut Gateway, packet: &[u8], reason: DropReason) {
    let before = gateway.plane.counters().dropped_inbound(reason);
    let found = gateway.inbound(&[packet.to_vec()]);
    assert_eq!(found[0].0, Verdict::Drop(reason));
    assert_eq!(gateway.plane.counters().dropped_inbound(reason), before + 1);
    assert!(gateway.plane.counters().totals().inbound.is_balanced());
}

#[test]
fn packets_that_are_not_esp_for_this_gateway() {
    for tunnel in Tunnel::all().filter(|tunnel| tunnel.udp) {
        let (_, mut b) = pair(&tunnel);
        let udp = |payload: &[u8]| outer(&tunnel, Protocol::UDP, &datagram(4500, 4500, payload));
        refused(&mut b, &udp(&[0xff]), DropReason::NatKeepalive);
        for len in [0, 1, 2, 3, 4, 7] {
            refused(&mut b, &udp(&vec![0; len]), DropReason::EspTooShort);
        }
        refused(&mut b, &udp(&[0xff; 8]), DropReason::EspTooShort);
        refused(&mut b, &udp(&[7; 23]), DropReason::EspTooShort);
        assert_eq!(b.inbound(&[udp(&[7; 24])])[0].0, Verdict::Early(Spi(0x0707_0707)));
        let other_port = outer(&tunnel, Protocol::UDP, &datagram(4500, 4501, &[7; 100]));
        refused(&mut b, &other_port, DropReason::NotEsp);
        let mut lies = datagram(4500, 4500, &[7; 100]);
        lies[5] += 1;
        refused(&mut b, &outer(&tunnel, Protocol::UDP, &lies), DropReason::MalformedUdp);
        refused(&mut b, &outer(&tunnel, Protocol::TCP, &[7; 100]), DropReason::NotEsp);
        refused(&mut b, &outer(&tunnel, Protocol::ESP, &[7; 23]), DropReason::EspTooShort);
        let ike = b.inbound(&[udp(&[0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8])]);
        assert_eq!(ike[0].0, Verdict::ToHost);
    }
}

#[test]
fn outer_packets_that_are_malformed_or_not_for_us() {
    for tunnel in Tunnel::all() {
        let (mut a, mut b) = pair(&tunnel);
        let good = forwarded(a.outbound(&[sized(false, 100)])).remove(0);
        refused(&mut a, &good, DropReason::NotLocal);
        refused(&mut b, &[], DropReason::Malformed);
        refused(&mut b, &[&[0x50], &good[1..]].concat(), DropReason::Malformed);
        for cut in 0..good.len() {
            refused(&mut b, &good[..cut], DropReason::Malformed);
        }
        assert_eq!(forwarded(b.inbound(&[good])).len(), 1, "the number was not used up");
    }
}

#[test]
fn outer_fragments() {
    let tunnel = Tunnel::default();
    let (mut a, mut b) = pair(&tunnel);
    let good = forwarded(a.outbound(&[sized(false, 1000)])).remove(0);
    let mut whole = good.clone();
    whole[6] &= !0x40;
    let mut pieces = testudo_wire::ipv4::fragment(&whole, 576).unwrap();
    let mut out = [0; 576];
    let mut count = 0;
    while let Some(len) = pieces.write_next(&mut out).unwrap() {
        assert_eq!(b.inbound(&[out[..len].to_vec()])[0].0, Verdict::Reassemble);
        count += 1;
    }
    assert!(count > 1);

    let tunnel = Tunnel { outer_v6: true, ..tunnel };
    let (_, mut b) = pair(&tunnel);
    let esp = sealed(&tunnel.params(), 1, &padded(&sized(false, 100), Protocol::IPV4));
    let fragment = |place: u16| {
        let [p0, p1] = place.to_be_bytes();
        outer(&tunnel, Protocol::FRAGMENT, &[&[Protocol::ESP.0, 0, p0, p1, 0, 0, 0, 1], &esp[..]].concat())
    };
    for place in [1, 8] {
        assert_eq!(b.inbound(&[fragment(place)])[0].0, Verdict::Reassemble);
    }
    // Whole, although it has a fragment header (RFC 6946).
    assert_eq!(forwarded(b.inbound(&[fragment(0)])).len(), 1);
}

/// In UDP or not, a peer may change its mind at any time (RFC 7296 §2.23). Only where a NAT was
/// found is the newest source worth telling.
#[test]
fn either_encapsulation_is_accepted() {
    for tunnel in Tunnel::all() {
        let (_, mut b) = pair(&tunnel);
        let other = Tunnel { udp: !tunnel.udp, ..tunnel };
        let esp = |sequence| sealed(&tunnel.params(), sequence, &padded(&sized(false, 100), Protocol::IPV4));
        let outer = [around(&other, &esp(1)), around(&tunnel, &esp(2)), around(&other, &esp(3))];
        assert_eq!(forwarded(b.inbound(&outer)).len(), 3);
        refused(&mut b, &around(&other, &esp(2)), DropReason::Replayed);
        assert_eq!(b.plane.drain_events().count(), 0);
    }
}

#[test]
fn replays() {
    for tunnel in Tunnel::all() {
        let (mut a, mut b) = pair(&tunnel);
        let outer = forwarded(a.outbound(&vec![sized(false, 100); 70]));
        // Twice in one burst, and again later.
        let twice = b.inbound(&[outer[5].clone(), outer[5].clone()]);
        assert_eq!((twice[0].0, twice[1].0), (Verdict::Forward, Verdict::Drop(DropReason::Replayed)));
        refused(&mut b, &outer[5], DropReason::Replayed);
        assert_eq!(forwarded(b.inbound(&outer[69..])).len(), 1);
        refused(&mut b, &outer[4], DropReason::ReplayTooOld);
        refused(&mut b, &outer[5], DropReason::ReplayTooOld);
        assert_eq!(forwarded(b.inbound(&outer[6..7])).len(), 1, "the last inside the window");
        assert_eq!(b.dropped_inbound(DropReason::Replayed), (2, 2));
        assert_eq!(b.dropped_inbound(DropReason::ReplayTooOld), (2, 2));
    }
}

#[test]
fn sequence_number_zero() {
    for tunnel in Tunnel::all() {
        let (_, mut b) = pair(&tunnel);
        let packet = authentic(&tunnel, 0, &padded(&sized(false, 100), Protocol::IPV4));
        refused(&mut b, &packet, DropReason::SequenceInvalid);
    }
}

#[test]
fn a_forged_number_does_not_move_the_window() {
    let tunnel = Tunnel::default();
    let (mut a, mut b) = pair(&tunnel);
    let mut outer = forwarded(a.outbound(&vec![sized(false, 100); 2]));
    outer[0][24..28].copy_from_slice(&1_000_000u32.to_be_bytes());
    refused(&mut b, &outer[0], DropReason::AuthFailed);
    assert_eq!(b.inbound.window().high_water_mark(), 0);
    assert_eq!(forwarded(b.inbound(&outer[1..])).len(), 1);
}

#[test]
fn every_bit_of_esp_counts() {
    for tunnel in Tunnel::all() {
        let (mut a, mut b) = pair(&tunnel);
        let good = forwarded(a.outbound(&[sized(true, 60)])).remove(0);
        let esp = good.len() - 8 - 8 - 60 - 4 - 16;
        for at in esp..good.len() {
            for bit in 0..8 {
                let mut bad = good.clone();
                bad[at] ^= 1 << bit;
                let found = b.inbound(&[bad]);
                // The first four are the SPI, which is nobody's then.
                let refused = match found[0].0 {
                    Verdict::Early(_) => at < esp + 4,
                    Verdict::Drop(_) => at >= esp + 4,
                    _ => false,
                };
                assert!(refused, "octet {at} bit {bit}: {:?}", found[0].0);
            }
        }
        assert_eq!(forwarded(b.inbound(&[good])).len(), 1);
    }
}

#[test]
fn authentic_packets_that_are_wrong_inside() {
    let tunnel = Tunnel::default();
    let (_, mut b) = pair(&tunnel);
    let good4 = sized(false, 100);
    let good6 = sized(true, 100);
    let mut bad_sum = good4.clone();
    bad_sum[8] += 1;
    // Says that it is longer than what arrived.
    let long = v4_with(|f| f.total_len += 4, Protocol::UDP, &good4[20..]);
    let cases = [
        (padded(b"", Protocol::NO_NEXT), DropReason::Dummy),
        (padded(&[0xaa; 99], Protocol::NO_NEXT), DropReason::Dummy),
        (padded(&good4, Protocol::UDP), DropReason::BadNextHeader),
        (padded(&good4, Protocol::HOP_BY_HOP), DropReason::BadNextHeader),
        (padded(&good4, Protocol::IPV6), DropReason::MalformedInner),
        (padded(&good6, Protocol::IPV4), DropReason::MalformedInner),
        (padded(&good4[..99], Protocol::IPV4), DropReason::MalformedInner),
        (padded(&good6[..99], Protocol::IPV6), DropReason::MalformedInner),
        (padded(b"", Protocol::IPV4), DropReason::MalformedInner),
        (padded(&bad_sum, Protocol::IPV4), DropReason::MalformedInner),
        (padded(&long, Protocol::IPV4), DropReason::MalformedInner),
        (padded(&v4(Protocol::UDP, &[1, 2, 3]), Protocol::IPV4), DropReason::MalformedInner),
        (padded(&v6(Protocol::DEST_OPTIONS, &[1; 7]), Protocol::IPV6), DropReason::MalformedInner),
        // One octet of padding too many for the packet; padding that does not count 1, 2, 3.
        (vec![1, 1, 9, 4], DropReason::BadPadding),
        ([&good4[..], &[1, 3, 2, 4]].concat(), DropReason::BadPadding),
        ([&good4[..], &[0, 0, 2, 4]].concat(), DropReason::BadPadding),
    ];
    for (sequence, (plaintext, reason)) in (1..).zip(&cases) {
        refused(&mut b, &authentic(&tunnel, sequence, plaintext), *reason);
        let again = authentic(&tunnel, sequence, plaintext);
        refused(&mut b, &again, DropReason::Replayed);
    }
    let counted: u64 = DropReason::ALL.iter().map(|reason| b.inbound.counters().dropped(*reason)).sum();
    assert_eq!(counted, 2 * cases.len() as u64);
}

#[test]
fn traffic_flow_confidentiality_padding_is_cut_off() {
    let tunnel = Tunnel::default();
    let (_, mut b) = pair(&tunnel);
    for (sequence, packet, next) in
        [(1, sized(false, 100), Protocol::IPV4), (2, sized(true, 100), Protocol::IPV6)]
    {
        let text = padded(&[&packet[..], &[0x77; 300]].concat(), next);
        let found = forwarded(b.inbound(&[authentic(&tunnel, sequence, &text)]));
        assert_eq!(found, [crate::packets::one_hop_on(&packet)]);
    }
}

#[test]
fn packets_outside_the_selectors() {
    let tunnel = Tunnel::default();
    let (_, mut b) = pair(&tunnel);
    let strays = [
        v4_with(|f| f.src = [10, 9, 0, 1].into(), Protocol::UDP, &[7; 20]),
        v4_with(|f| f.dst = [10, 9, 0, 1].into(), Protocol::UDP, &[7; 20]),
        v4_with(|f| (f.src, f.dst) = (B4, A4), Protocol::UDP, &[7; 20]),
    ];
    for (sequence, packet) in (1..).zip(&strays) {
        let packet = authentic(&tunnel, sequence, &padded(packet, Protocol::IPV4));
        refused(&mut b, &packet, DropReason::SelectorMismatch);
    }
    let stray = v6_with(|f| f.src = "2001:db8:9::1".parse().unwrap(), Protocol::UDP, &[7; 20]);
    refused(&mut b, &authentic(&tunnel, 9, &padded(&stray, Protocol::IPV6)), DropReason::SelectorMismatch);
    assert_eq!(b.dropped_inbound(DropReason::SelectorMismatch), (4, 4));
}

#[test]
fn ports_and_protocols_outside_the_selectors() {
    let tunnel = Tunnel::default();
    let mut params = tunnel.params().mirrored();
    for ts in params.local_ts.iter_mut() {
        *ts = TrafficSelector { protocol: 17, port_start: 2000, port_end: 2009, ..*ts };
    }
    let mut b = Gateway::new(&params, tunnel.library);
    let mut sequence = 0;
    let mut arrive = |packet: &[u8]| {
        sequence += 1;
        b.inbound(&[authentic(&tunnel, sequence, &padded(packet, Protocol::IPV4))])[0].0
    };
    let to_port = |protocol: Protocol, port: u16| {
        let [p0, p1] = port.to_be_bytes();
        v4(protocol, &[0, 1, p0, p1, 0, 8, 0, 0, 0, 0, 0, 0, 0x50, 0, 0, 0, 0, 0, 0, 0])
    };
    let mismatch = Verdict::Drop(DropReason::SelectorMismatch);
    assert_eq!(arrive(&to_port(Protocol::UDP, 2000)), Verdict::Forward);
    assert_eq!(arrive(&to_port(Protocol::UDP, 2009)), Verdict::Forward);
    assert_eq!(arrive(&to_port(Protocol::UDP, 1999)), mismatch);
    assert_eq!(arrive(&to_port(Protocol::UDP, 2010)), mismatch);
    assert_eq!(arrive(&to_port(Protocol::TCP, 2000)), mismatch);
    assert_eq!(arrive(&v4(Protocol::ICMP, &[8, 0, 0, 0])), mismatch);
    // A later fragment has no port to look at, and the selector wants one (RFC 4301 §4.4.1.1).
    let mut later = to_port(Protocol::UDP, 2000);
    later[7] = 1;
    later[10..12].fill(0);
    let checksum = testudo_wire::checksum::Sum::new().bytes(&later[..20]).finish();
    later[10..12].copy_from_slice(&checksum.to_be_bytes());
    assert_eq!(arrive(&later), mismatch);
}

/// Changes of an attacker to good packets.
#[derive(Clone, Debug)]
enum Attack {
    Noise(Vec<u8>),
    Around(Vec<u8>),
    UnderTheSpi(u32, Vec<u8>),
    Mutate(Vec<(prop::sample::Index, u8)>),
    Truncate(prop::sample::Index),
    Extend(Vec<u8>),
    Replay,
}

fn attack() -> impl Strategy<Value = Attack> {
    let bytes = |max: usize| prop::collection::vec(any::<u8>(), 0..max);
    prop_oneof![
        bytes(200).prop_map(Attack::Noise),
        bytes(200).prop_map(Attack::Around),
        (any::<u32>(), bytes(200)).prop_map(|(sequence, rest)| Attack::UnderTheSpi(sequence, rest)),
        prop::collection::vec((any::<prop::sample::Index>(), 1u8..), 1..4).prop_map(Attack::Mutate),
        any::<prop::sample::Index>().prop_map(Attack::Truncate),
        bytes(40).prop_map(Attack::Extend),
        Just(Attack::Replay),
    ]
}

impl Attack {
    /// The hostile packet. `seen` has been accepted before, `fresh` is under way.
    fn make(&self, tunnel: &Tunnel, seen: &[u8], fresh: &[u8]) -> Vec<u8> {
        let mut packet = fresh.to_vec();
        match self {
            Self::Noise(noise) => return noise.clone(),
            Self::Around(payload) => return around(tunnel, payload),
            Self::UnderTheSpi(sequence, rest) => {
                let head = [SPI_B.0.to_be_bytes(), sequence.to_be_bytes()].concat();
                return around(tunnel, &[&head[..], rest].concat());
            }
            Self::Replay => return seen.to_vec(),
            Self::Mutate(changes) => {
                for (index, flip) in changes {
                    packet[index.index(fresh.len())] ^= flip;
                }
            }
            Self::Truncate(index) => packet.truncate(index.index(fresh.len())),
            Self::Extend(more) => packet.extend(more),
        }
        packet
    }
}

/// More than ten thousand hostile packets between good ones: no panic, nothing passes that was not
/// sent, each is counted, and every good packet arrives.
#[test]
fn a_tunnel_under_fire_keeps_forwarding() {
    const BURSTS: usize = 48;
    const ATTACKS_A_BURST: usize = 30;
    let mut runner =
        TestRunner::new_with_rng(Config::default(), TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]));
    let mut hostile = 0;
    for tunnel in Tunnel::all() {
        let (mut a, mut b) = pair(&Tunnel { window: 1024, ..tunnel });
        let mut seen = forwarded(a.outbound(&[sized(false, 100)])).remove(0);
        assert_eq!(forwarded(b.inbound(std::slice::from_ref(&seen))).len(), 1);
        for burst in 0..BURSTS {
            let inner = [sized(false, 40 + burst), sized(true, 1300 - burst)];
            let fresh = forwarded(a.outbound(&inner));
            let mut packets = Vec::new();
            for number in 0..ATTACKS_A_BURST {
                let attack = attack().new_tree(&mut runner).unwrap().current();
                packets.push(attack.make(&tunnel, &seen, &fresh[number % 2]));
            }
            let received = packets.len();
            let good_before = b.plane.counters().totals().inbound;
            let verdicts = b.inbound(&packets);
            let passed: Vec<_> =
                verdicts.iter().filter(|(verdict, _)| *verdict == Verdict::Forward).map(|(_, p)| p).collect();
            // Only a packet whose ESP is untouched (changed outer TTL, octets behind the end) can
            // have passed, once.
            let expected: Vec<_> =
                inner.iter().map(|p| crate::packets::one_hop_on(&crate::packets::one_hop_on(p))).collect();
            assert!(passed.iter().all(|packet| expected.contains(packet)), "{tunnel:?}");
            assert!(passed.len() <= 2);
            let after = b.plane.counters().totals().inbound;
            assert!(after.is_balanced());
            assert_eq!(after.received - good_before.received, received as u64);
            hostile += received - passed.len();
            // The sender's own packets, which the attack has replaced, arrive now.
            let delivered = forwarded_now(&mut b, &fresh);
            assert_eq!(delivered + passed.len(), 2, "{tunnel:?}");
            seen = fresh[0].clone();
        }
    }
    assert!(hostile >= 10_000, "{hostile}");
}

fn forwarded_now(gateway: &mut Gateway, packets: &[Vec<u8>]) -> usize {
    gateway.inbound(packets).iter().filter(|(verdict, _)| *verdict == Verdict::Forward).count()
}
