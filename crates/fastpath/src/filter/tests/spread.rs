//! Spread tunnels: each packet goes by its lane, and every node counts and records all of them.

use super::bench::Bench;
use super::cluster::table;
use super::frames::*;
use crate::filter::layout::{CLUSTER_ON, CLUSTER_SPREAD, ClusterValue};
use crate::filter::{PrefixUse, Reason};
use testudo_base::lane::{self, Spread};
use testudo_base::shard::ShardSet;
use testudo_base::siphash::SipKey;
use testudo_base::spi::{Shard, Spi};

const SPREAD: Spi = Spi(0xc0de_0001);
/// An SA whose only home is the same shard as the home of the spread one.
const HOMED: Spi = Spi(0xc0de_0002);
const HOME: Shard = Shard(0xc0);
const NO_SHARD: [u64; 4] = [0; 4];
const BY_SESSION: PrefixUse =
    PrefixUse { home: Some(HOME), spread: Some(Spread::SessionHash), ..PrefixUse::PROTECT };
const BY_PACKET: PrefixUse = PrefixUse { spread: Some(Spread::PacketHash), ..BY_SESSION };

fn key() -> SipKey {
    SipKey::new(*b"0123456789abcdef")
}

fn only(shard: Shard) -> [u64; 4] {
    *[shard].into_iter().collect::<ShardSet>().words()
}

/// All shards but this one.
fn but(shard: Shard) -> [u64; 4] {
    *ShardSet::ALL.without([shard].into_iter().collect()).words()
}

/// A node in a cluster with spread SAs.
fn node(packets: [u64; 4]) -> ClusterValue {
    ClusterValue { packets, flags: CLUSTER_ON | CLUSTER_SPREAD, ..table() }
}

fn bench() -> Bench {
    let bench = Bench::clustered(&node(NO_SHARD)).with_socket();
    bench.track_spread(SPREAD.0, 0);
    bench.track(HOMED.0, 0);
    bench
}

fn framed(mac: [u8; 6], packet: &[u8]) -> Vec<u8> {
    ethernet_to(mac, if packet[0] >> 4 == 4 { 0x0800 } else { 0x86dd }, packet)
}

fn flooded(packet: &[u8]) -> Vec<u8> {
    framed(CLUSTER_MAC, packet)
}

fn esp_of(spi: Spi, number: u32) -> Vec<u8> {
    [&spi.0.to_be_bytes()[..], &number.to_be_bytes(), &[0xab; 40]].concat()
}

fn esp_to_us(spi: Spi, number: u32) -> Vec<u8> {
    ipv4(PEER4, US4, ESP).packet(&esp_of(spi, number))
}

/// The ways in which an SA's packet may come, and the reason of each.
fn ways(spi: Spi, number: u32) -> [(Vec<u8>, Reason); 6] {
    let esp = esp_of(spi, number);
    let ah = [&[UDP, 4, 0, 0][..], &esp].concat();
    [
        (ipv4(PEER4, US4, ESP).packet(&esp), Reason::WorkerEsp),
        (ipv6_packet(PEER6, US6, ESP, 64, &esp), Reason::WorkerEsp),
        (ipv6_packet(PEER6, US6, OPTIONS, 64, &options(ESP, 2, &esp)), Reason::WorkerEsp),
        (ipv4(PEER4, US4, UDP).packet(&udp(4500, 4500, &esp)), Reason::WorkerEspInUdp),
        (ipv4(PEER4, US4, AH).packet(&ah), Reason::WorkerAh),
        (ipv6_packet(PEER6, US6, AH, 64, &ah), Reason::WorkerAh),
    ]
}

#[test]
fn esp_of_a_spread_sa_is_kept_by_the_carrier_of_its_lane() {
    let bench = bench();
    for number in [1, 2, 3, 255, 256, 257, 1 << 31, u32::MAX] {
        let lane = lane::of_number(SPREAD, number);
        for (packet, reason) in ways(SPREAD, number) {
            for frame in [CLUSTER_MAC, PORT_MAC].map(|mac| framed(mac, &packet)) {
                for (packets, expected) in [
                    (only(lane), reason),
                    (but(lane), Reason::DropOtherNode),
                    (NO_SHARD, Reason::DropOtherNode),
                ] {
                    bench.set_cluster(&node(packets));
                    assert_eq!(bench.run(&frame).reason, expected, "number {number}, lane {lane:?}");
                }
                // The worker holds back what comes for a lane before this node carries it.
                bench.set_cluster(&ClusterValue { held: only(lane), ..node(NO_SHARD) });
                assert_eq!(bench.run(&frame).reason, reason);
            }
        }
    }
}

#[test]
fn every_node_records_the_numbers_of_a_spread_sa_also_those_that_it_carries() {
    let bench = bench();
    let mut highest = 0;
    for packets in [NO_SHARD, [u64::MAX; 4]] {
        bench.set_cluster(&node(packets));
        for (packet, _) in ways(SPREAD, highest + 10) {
            bench.run(&flooded(&packet));
            assert_eq!(bench.seen(SPREAD.0), Some(u64::from(highest + 10)));
        }
        highest += 10;
        bench.run(&flooded(&esp_to_us(SPREAD, highest - 1)));
        assert_eq!(bench.seen(SPREAD.0), Some(highest.into()), "a late one");
        bench.run(&ethernet_to([2, 0, 0, 0, 0, 7], 0x0800, &esp_to_us(SPREAD, highest + 1)));
        assert_eq!(bench.seen(SPREAD.0), Some(highest.into()), "a frame for another host");
    }
}

/// No fragment shows to every node whether the packet is for that node.
#[test]
fn fragments_of_a_spread_sa_go_to_all_nodes_and_are_recorded() {
    let bench = bench();
    let first = |number| Ipv4 { fragment: 0x2000, ..ipv4(PEER4, US4, ESP) }.packet(&esp_of(SPREAD, number));
    for (number, packets) in [(7, NO_SHARD), (8, [u64::MAX; 4])] {
        bench.set_cluster(&node(packets));
        assert_eq!(bench.run(&flooded(&first(number))).reason, Reason::WorkerFragment);
        assert_eq!(bench.seen(SPREAD.0), Some(number.into()));
        let later = Ipv4 { fragment: 6, ..ipv4(PEER4, US4, ESP) }.packet(&esp_of(SPREAD, number + 100));
        assert_eq!(bench.run(&flooded(&later)).reason, Reason::WorkerFragment);
        assert_eq!(bench.seen(SPREAD.0), Some(number.into()), "a later one has no number");
    }
}

#[test]
fn homed_sas_keep_their_home_beside_spread_ones() {
    let bench = bench();
    for number in 1..50 {
        bench.set_cluster(&node(only(HOME)));
        for (packet, reason) in ways(HOMED, number * 2) {
            assert_eq!(bench.run(&flooded(&packet)).reason, reason);
        }
        assert_eq!(
            bench.seen(HOMED.0),
            Some(u64::from((number - 1) * 2 + u32::from(number > 1))),
            "it has its window"
        );
        bench.set_cluster(&node(but(HOME)));
        for (packet, _) in ways(HOMED, number * 2 + 1) {
            assert_eq!(bench.run(&flooded(&packet)).reason, Reason::DropOtherNode);
        }
        assert_eq!(bench.seen(HOMED.0), Some(u64::from(number * 2 + 1)));
    }
    // An SPI that nobody knows goes by its shard too.
    bench.set_cluster(&node(only(HOME)));
    assert_eq!(bench.run(&flooded(&esp_to_us(Spi(0xc0de_0003), 1))).reason, Reason::WorkerEsp);
}

/// Where no SA is spread, ESP of a carried shard is not looked up.
#[test]
fn without_the_flag_no_sa_of_a_carried_shard_is_looked_up() {
    let bench = bench();
    bench.set_cluster(&ClusterValue { packets: only(HOME), ..table() });
    let number = (1..).find(|number| lane::of_number(SPREAD, *number) != HOME).unwrap();
    assert_eq!(bench.run(&flooded(&esp_to_us(SPREAD, number))).reason, Reason::WorkerEsp);
    assert_eq!(bench.seen(SPREAD.0), Some(0));
}

/// Clear packets of all kinds for the two spread prefixes.
fn clear_packets() -> Vec<Vec<u8>> {
    let segment = [&[0x9c, 0x40, 0, 80, 1, 2, 3, 4][..], &[0; 12]].concat();
    let datagram = udp(40_000, 53, &[1, 2, 3, 4, 5, 6, 7, 8, 9]);
    // A frame in several buffers.
    let mut packets = vec![ipv4(CLIENT4, REMOTE4, TCP).packet(&[&segment[..], &[7; 6000]].concat())];
    let kinds = [(TCP, &segment), (UDP, &datagram), (SCTP, &segment), (ICMP, &segment), (ESP, &datagram)];
    for (proto, payload) in kinds {
        // At 8 and at 16 octets there is one more field that counts.
        for length in [0, 4, 7, 8, 15, 16, 17] {
            let payload = &payload[..length];
            let fragment = fragment6(proto, 3, true, 99, payload);
            packets.push(ipv4(CLIENT4, REMOTE4, proto).packet(payload));
            packets.push(Ipv4 { options: &[1; 40], ..ipv4(CLIENT4, REMOTE4, proto) }.packet(payload));
            for fragment in [0x4000, 0x8000, 0x2000, 5, 0x2100] {
                packets.push(Ipv4 { fragment, ..ipv4(CLIENT4, REMOTE4, proto) }.packet(payload));
            }
            packets.push(ipv6_packet(CLIENT6, REMOTE6, proto, 64, payload));
            packets.push(ipv6_packet(CLIENT6, REMOTE6, OPTIONS, 64, &options(proto, 1, payload)));
            packets.push(ipv6_packet(CLIENT6, REMOTE6, FRAGMENT, 64, &fragment));
            packets.push(ipv6_packet(CLIENT6, REMOTE6, FRAGMENT, 64, payload));
        }
    }
    packets
}

#[test]
fn clear_packets_are_kept_by_the_carrier_of_their_lane() {
    let bench = bench();
    for (used, spread) in [(BY_SESSION, Spread::SessionHash), (BY_PACKET, Spread::PacketHash)] {
        ["10.2.0.0/16", "2001:db8:2::/48"].iter().for_each(|prefix| bench.set_prefix(prefix, used));
        for packet in clear_packets() {
            let lane = lane::of_packet(key(), spread, &packet);
            // What fills a short frame up is no payload.
            let padded = [&flooded(&packet)[..], &[0x5a; 20]].concat();
            for frame in [flooded(&packet), padded] {
                bench.set_cluster(&node(only(lane)));
                assert_eq!(bench.run(&frame).reason, Reason::WorkerProtect, "{spread:?} {packet:02x?}");
                bench.set_cluster(&node(but(lane)));
                assert_eq!(bench.run(&frame).reason, Reason::DropOtherNode, "{spread:?} {packet:02x?}");
                bench.set_cluster(&ClusterValue { held: only(lane), ..node(NO_SHARD) });
                assert_eq!(bench.run(&frame).reason, Reason::WorkerProtect, "{spread:?} {packet:02x?}");
            }
        }
    }
}

/// All nodes see the same packets, so their clocks stay close together, whichever of them work.
#[test]
fn a_row_clock_counts_the_packets_of_all_nodes() {
    let bench = bench();
    let clocks = bench.clocks();
    let mut counted = 0;
    for used in [BY_SESSION, BY_PACKET] {
        ["10.2.0.0/16", "2001:db8:2::/48"].iter().for_each(|prefix| bench.set_prefix(prefix, used));
        for packets in [NO_SHARD, [u64::MAX; 4]] {
            bench.set_cluster(&node(packets));
            for packet in clear_packets() {
                bench.run(&flooded(&packet));
                counted += 1;
                assert_eq!(clocks.now(HOME), counted);
            }
        }
    }
    bench.run(&ethernet(0x0800, &ipv4(CLIENT4, REMOTE4, TCP).packet(&[0; 20])));
    assert_eq!(clocks.now(HOME), counted + 1, "to this node's own address");
    assert!((0..=255).map(Shard).all(|shard| shard == HOME || clocks.now(shard) == 0));
    bench.set_prefix("10.2.0.0/16", PrefixUse { home: Some(Shard(255)), ..BY_PACKET });
    bench.run(&flooded(&ipv4(CLIENT4, REMOTE4, TCP).packet(&[0; 20])));
    assert_eq!((clocks.now(Shard(255)), clocks.now(HOME)), (1, counted + 1));
}

/// Where routers choose the node, it works on what comes, and tells the others which rows it uses.
#[test]
fn behind_routers_every_clear_packet_is_kept_and_none_is_counted() {
    let bench = bench();
    let clocks = bench.clocks();
    for used in [BY_SESSION, BY_PACKET] {
        ["10.2.0.0/16", "2001:db8:2::/48"].iter().for_each(|prefix| bench.set_prefix(prefix, used));
        for packet in clear_packets() {
            let frame = framed(PORT_MAC, &packet);
            bench.set_cluster(&node(NO_SHARD).with_routed(true));
            assert_eq!(bench.run(&frame).reason, Reason::WorkerProtect, "{packet:02x?}");
            assert_eq!(clocks.now(HOME), 0);
        }
    }
}

/// All nodes count it, because only the carrier of its lane looks at its source.
#[test]
fn a_row_clock_counts_what_its_carrier_drops() {
    let bench = bench();
    let clocks = bench.clocks();
    bench.set_prefix("10.2.0.0/16", BY_PACKET);
    let frame = flooded(&ipv4(REMOTE4, "10.2.7.7", TCP).packet(&[0; 20]));
    for (counted, packets, reason) in
        [(1, [u64::MAX; 4], Reason::DropClearInbound), (2, NO_SHARD, Reason::DropOtherNode)]
    {
        bench.set_cluster(&node(packets));
        assert_eq!((bench.run(&frame).reason, clocks.now(HOME)), (reason, counted));
    }
}

#[test]
fn a_row_clock_counts_nothing_else() {
    let bench = bench();
    let clocks = bench.clocks();
    bench.set_prefix("10.2.0.0/16", BY_PACKET);
    bench.set_cluster(&node([u64::MAX; 4]));
    let clear = |src, dst| ipv4(src, dst, TCP).packet(&[0; 20]);
    let to_us = esp_to_us(SPREAD, 1);
    for (frame, reason) in [
        (ethernet_to([2, 0, 0, 0, 0, 7], 0x0800, &clear(CLIENT4, REMOTE4)), Reason::DropOtherHost),
        (flooded(&clear(REMOTE4, EXEMPT4)), Reason::DropClearInbound),
        (flooded(&clear(CLIENT4, EXEMPT4)), Reason::DropFenced),
        (flooded(&to_us), Reason::WorkerEsp),
        (flooded(&ipv6_packet(CLIENT6, REMOTE6, TCP, 64, &[0; 20])), Reason::WorkerProtectFlooded),
    ] {
        bench.set_cluster(&ClusterValue { deadline: 0, ..node([u64::MAX; 4]) });
        assert_eq!(bench.run(&frame).reason, reason);
    }
    // One home, no row.
    bench.set_prefix("10.2.0.0/16", PrefixUse { spread: None, ..BY_PACKET });
    assert_eq!(bench.run(&flooded(&clear(CLIENT4, REMOTE4))).reason, Reason::WorkerProtect);
    // Without a home there is no clock.
    bench.set_prefix("10.2.0.0/16", PrefixUse { home: None, ..BY_PACKET });
    assert_eq!(bench.run(&flooded(&clear(CLIENT4, REMOTE4))).reason, Reason::WorkerProtectFlooded);
    // A gateway that stands alone needs none.
    bench.set_prefix("10.2.0.0/16", BY_PACKET);
    bench.set_cluster(&ClusterValue::default());
    assert_eq!(bench.run(&ethernet(0x0800, &clear(CLIENT4, REMOTE4))).reason, Reason::WorkerProtect);
    assert!((0..=255).all(|shard| clocks.now(Shard(shard)) == 0));
}
