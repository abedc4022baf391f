//! Packets that follow each other and are alike are read once: a burst must come out as if each
//! packet had come alone.

use crate::harness::{Gateway, Tunnel, Way, forwarded, pair, run};
use crate::packets::{datagram, v4_with, v6_with};
use proptest::prelude::*;
use std::net::Ipv4Addr;
use testudo_ipsec::dataplane::{Ingress, Totals, Verdict};
use testudo_ipsec::drops::DropReason;
use testudo_wire::checksum::Sum;
use testudo_wire::ip::Protocol;
use testudo_wire::{ipv4, ipv6, tcp, udp};

/// Another host than `v4_with` lets send.
const OTHER: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 3);

/// Differences between one packet and the next.
#[derive(Clone, Debug)]
struct Sketch {
    kind: u8,
    ttl: u8,
    tos: u8,
    len: usize,
    df: bool,
    /// An octet near the front is changed by so much, and the checksum mended or not.
    damage: Option<(usize, u8, bool)>,
    /// Octets of the link behind the packet.
    behind: usize,
}

fn sketches() -> impl Strategy<Value = Vec<Sketch>> {
    let damage = prop_oneof![8 => Just(None), 1 => (0..28_usize, 1..=u8::MAX, any::<bool>()).prop_map(Some)];
    let rare = |usual: u8, other: Vec<u8>| prop_oneof![8 => Just(usual), 1 => prop::sample::select(other)];
    let one = (rare(0, vec![1, 2, 3, 4, 5]), rare(64, vec![0, 1, 2, 65]), rare(0, vec![1, 3, 0xb8]));
    let two = (prop_oneof![Just(60_usize), 20..200_usize, Just(1480)], any::<bool>(), damage, 0..3_usize);
    let sketch = (one, two).prop_map(|((kind, ttl, tos), (len, df, damage, behind))| Sketch {
        kind,
        ttl,
        tos,
        len,
        df: df && len < 1000,
        damage,
        behind: behind * 3,
    });
    // In runs, as packets come.
    let run = (sketch.clone(), prop::collection::vec(sketch, 0..3), 1..8_usize);
    let runs = run.prop_map(|(first, others, times)| {
        let mut all = vec![first; times];
        all.extend(others);
        all
    });
    prop::collection::vec(runs, 1..6).prop_map(|runs| runs.concat().into_iter().take(60).collect())
}

fn packet(sketch: &Sketch, number: usize) -> Vec<u8> {
    let Sketch { kind, ttl, tos, len, df, .. } = *sketch;
    let change = |fields: &mut ipv4::Fields| {
        (fields.ttl, fields.tos, fields.df, fields.id) = (ttl, tos, df, number as u16);
    };
    let other = |fields: &mut ipv4::Fields| {
        change(fields);
        fields.src = OTHER;
    };
    let mut packet = match kind {
        0 => v4_with(change, Protocol::UDP, &datagram(len)),
        1 => v4_with(other, Protocol::UDP, &datagram(len)),
        2 => v4_with(change, Protocol::TCP, &syn(len)),
        3 => v4_with(change, Protocol::ICMP, &vec![8; len]),
        4 => v6_with(|fields| fields.hop_limit = ttl, Protocol::UDP, &datagram(len)),
        _ => v4_with(change, Protocol(99), &vec![7; len % 6]),
    };
    if let Some((at, by, mend)) = sketch.damage
        && let Some(octet) = packet.get_mut(at)
    {
        *octet ^= by;
        if mend && packet.len() >= ipv4::HEADER && packet[0] == 0x45 {
            packet[10..12].fill(0);
            let sum = Sum::new().bytes(&packet[..ipv4::HEADER]).finish();
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
        }
    }
    packet.extend(vec![0xee; sketch.behind]);
    packet
}

/// A segment that opens a connection with the largest MSS.
fn syn(len: usize) -> Vec<u8> {
    let mut segment = vec![0; len.max(tcp::HEADER + 4)];
    segment[12] = 6 << 4;
    segment[13] = 2;
    segment[20..24].copy_from_slice(&[2, 4, 0xff, 0xff]);
    segment
}

type Found = Vec<(Verdict, Vec<u8>)>;

/// All at once, and through another gateway one by one. What lies in the buffer of a dropped packet
/// is nobody's business: a double is found out before it is decrypted, or behind.
fn both_ways(gateways: &mut [Gateway; 2], way: Way, packets: &[Vec<u8>]) -> [Found; 2] {
    let [together, alone] = gateways;
    let go = |packets: &[Vec<u8>], gateway: &mut Gateway| -> Found {
        let mut found = run(&mut gateway.plane, way, Ingress::Port, packets);
        go_on_behind(gateway, &mut found);
        let dropped = found.iter_mut().filter(|(verdict, _)| matches!(verdict, Verdict::Drop(_)));
        dropped.for_each(|(_, left)| left.clear());
        found
    };
    [go(packets, together), packets.iter().flat_map(|one| go(std::slice::from_ref(one), alone)).collect()]
}

/// Packets behind one that is to be split go in once more, and come out protected.
fn go_on_behind(gateway: &mut Gateway, found: &mut Found) {
    let mut splits = false;
    let mut behind = Vec::new();
    for (at, (verdict, packet)) in found.iter().enumerate() {
        splits |= matches!(verdict, Verdict::Fragment { .. });
        assert!(!splits || *verdict != Verdict::Forward, "leaves before the pieces");
        if *verdict == Verdict::Behind {
            assert!(splits, "behind nothing");
            behind.push((at, packet.clone()));
        }
    }
    let packets: Vec<_> = behind.iter().map(|(_, packet)| packet.clone()).collect();
    let done = run(&mut gateway.plane, Way::Outbound, Ingress::Piece, &packets);
    for ((at, _), (verdict, packet)) in behind.into_iter().zip(done) {
        assert_eq!(verdict, Verdict::Forward);
        found[at] = (verdict, packet);
    }
}

/// The totals without what came twice: only in a burst packets are behind others.
fn once(gateway: &Gateway) -> Totals {
    let mut totals = gateway.plane.counters().totals();
    let outbound = &mut totals.outbound;
    outbound.received -= outbound.to_split;
    (outbound.to_split, outbound.received_bytes) = (0, 0);
    totals
}

/// What crosses: some packets twice, some changed in their outer header or behind it. No change
/// turns a number into that of another packet of the burst:
/// [`a_forged_number_of_the_same_burst_takes_nothing`].
fn across(tunnel: &Tunnel, found: &Found, changes: &[(u8, usize, u8)]) -> Vec<Vec<u8>> {
    let mut crossing = Vec::new();
    let sent = found.iter().filter(|(verdict, _)| *verdict == Verdict::Forward);
    for ((_, packet), (what, at, by)) in sent.zip(changes.iter().cycle()) {
        let mut packet = packet.clone();
        match what {
            0 => crossing.push(packet.clone()),
            1 if at % 60 == number_at(tunnel) => packet[at % 60] ^= by | 0x80,
            1 => packet[at % 60] ^= by,
            _ => {}
        }
        crossing.push(packet);
    }
    crossing.truncate(60);
    crossing
}

/// Where the last octet of the sequence number is.
fn number_at(tunnel: &Tunnel) -> usize {
    let header = if tunnel.outer_v6 { ipv6::HEADER } else { ipv4::HEADER };
    header + if tunnel.udp { udp::HEADER } else { 0 } + 7
}

/// A number is taken by the packet that verifies. Whether a forged packet is dropped as a double or
/// for its ICV depends on whether the true packet came in the same burst, and on nothing else.
#[test]
fn a_forged_number_of_the_same_burst_takes_nothing() {
    for tunnel in Tunnel::all() {
        let (mut a, mut together) = pair(&tunnel);
        let mut alone = pair(&tunnel).1;
        let sketch = Sketch { kind: 0, ttl: 64, tos: 0, len: 60, df: false, damage: None, behind: 0 };
        let packets: Vec<_> = (0..4).map(|number| packet(&sketch, number)).collect();
        let mut crossing = forwarded(a.outbound(&packets));
        // Beside its own packet, which is missing: one after, one before the true one.
        let number = |packet: &Vec<u8>| packet[number_at(&tunnel)];
        let (second, fourth) = (number(&crossing[1]), number(&crossing[3]));
        crossing[2][number_at(&tunnel)] = second;
        crossing[0][number_at(&tunnel)] = fourth;
        let of = |gateway: &mut Gateway, packets: &[Vec<u8>]| -> Vec<Verdict> {
            gateway.inbound(packets).into_iter().map(|(verdict, _)| verdict).collect()
        };
        let [forward, forged] = [Verdict::Forward, Verdict::Drop(DropReason::AuthFailed)];
        assert_eq!(of(&mut together, &crossing), [forged, forward, forged, forward]);
        let found: Vec<_> =
            crossing.iter().flat_map(|one| of(&mut alone, std::slice::from_ref(one))).collect();
        assert_eq!(found, [forged, forward, Verdict::Drop(DropReason::Replayed), forward]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_burst_comes_out_as_its_packets_would_alone(
        sketches in sketches(),
        changes in prop::collection::vec((0..12_u8, 0..60_usize, 1..=u8::MAX), 1..20),
        (outer_v6, udp, esn) in any::<(bool, bool, bool)>(),
    ) {
        let tunnel = Tunnel { outer_v6, udp, esn, ..Tunnel::default() };
        let ((a, b), (c, d)) = (pair(&tunnel), pair(&tunnel));
        let (mut near, mut far) = ([a, c], [b, d]);
        let packets: Vec<_> = sketches.iter().enumerate().map(|(number, sketch)| packet(sketch, number)).collect();
        let [together, alone] = both_ways(&mut near, Way::Outbound, &packets);
        prop_assert_eq!(&together, &alone);
        let [together, alone] = both_ways(&mut far, Way::Inbound, &across(&tunnel, &together, &changes));
        prop_assert_eq!(together, alone);
        for [together, alone] in [&near, &far] {
            let totals = together.plane.counters().totals();
            prop_assert_eq!(once(together), once(alone));
            prop_assert!(totals.outbound.is_balanced() && totals.inbound.is_balanced());
        }
    }
}
