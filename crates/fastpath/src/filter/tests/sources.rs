//! Sources that an alarm has shut out.

use super::bench::{Bench, XDP_DROP, XDP_PASS};
use super::cluster::table;
use super::frames::*;
use crate::filter::Reason;
use crate::filter::layout::{CLUSTER_DROPS_SOURCES, ClusterValue};
use nix::sched::{CpuSet, sched_getcpu, sched_setaffinity};
use nix::unistd::Pid;

const FOR_EVER: u64 = u64::MAX;

fn dropping() -> ClusterValue {
    ClusterValue { flags: CLUSTER_DROPS_SOURCES, ..ClusterValue::default() }
}

fn from_peers() -> [Vec<u8>; 4] {
    [
        ipv4(PEER4, US4, ESP).frame(&esp()),
        ipv4(PEER4, CLIENT4, TCP).frame(&[0; 20]),
        ipv6(PEER6, US6, UDP, &udp(500, 500, &ike())),
        ipv6(PEER6, REMOTE6, TCP, &[0; 20]),
    ]
}

#[test]
fn all_packets_of_a_dropped_source_are_dropped_and_nobody_elses() {
    let bench = Bench::new();
    bench.set_cluster(&dropping());
    bench.drop_source(PEER4, FOR_EVER);
    bench.drop_source(PEER6, FOR_EVER);
    for frame in from_peers() {
        let outcome = bench.run(&frame);
        assert_eq!((outcome.action, outcome.reason), (XDP_DROP, Reason::DropSource));
    }
    for frame in [ipv4(CLIENT4, US4, ICMP).frame(&[8; 8]), ipv6(CLIENT6, US6, ICMPV6, &[128; 8])] {
        let outcome = bench.run(&frame);
        assert_eq!((outcome.action, outcome.reason), (XDP_PASS, Reason::PassLocal));
    }
    // To the source, and what has no source or only the beginning of one.
    assert_eq!(bench.run(&ipv4(US4, PEER4, TCP).frame(&[0; 20])).reason, Reason::PassOther);
    assert_eq!(bench.run(&ethernet(0x0806, &[0; 28])).reason, Reason::PassNotIp);
    assert_eq!(bench.run(&ethernet(0x0800, &[0x45; 12])).reason, Reason::DropMalformed);
    assert_eq!(bench.run(&ethernet(0x86dd, &[0x60; 30])).reason, Reason::DropMalformed);
}

/// The daemon sets the flag: without it no packet pays for a search.
#[test]
fn sources_are_dropped_while_the_flag_says_so_and_until_their_time_is_over() {
    let bench = Bench::new();
    bench.drop_source(PEER4, FOR_EVER);
    bench.drop_source(PEER6, 1);
    for frame in from_peers() {
        assert_ne!(bench.run(&frame).reason, Reason::DropSource);
    }
    bench.set_cluster(&dropping());
    let reasons = from_peers().map(|frame| bench.run(&frame).reason == Reason::DropSource);
    assert_eq!(reasons, [true, true, false, false]);
}

#[test]
fn an_ipv6_address_is_not_taken_for_an_ipv4_address() {
    let bench = Bench::new();
    bench.set_cluster(&dropping());
    bench.drop_source(PEER4, FOR_EVER);
    // 198.51.100.9 at either end of the octets, and mapped.
    for source in ["c633:6409::", "::c633:6409", "::ffff:c633:6409"] {
        let outcome = bench.run(&ipv6(source, US6, ICMPV6, &[128; 8]));
        assert_eq!(outcome.reason, Reason::PassLocal, "{source}");
    }
}

#[test]
fn a_node_of_a_cluster_drops_sources_too_whatever_else_it_keeps() {
    let bench = Bench::clustered(&table());
    bench.drop_source(PEER4, FOR_EVER);
    let frame = ethernet_to(CLUSTER_MAC, 0x0800, &ipv4(PEER4, US4, ESP).packet(&esp()));
    assert_eq!(bench.run(&frame).reason, Reason::DropOtherNode);
    bench.set_cluster(&ClusterValue { flags: table().flags | CLUSTER_DROPS_SOURCES, ..table() });
    assert_eq!(bench.run(&frame).reason, Reason::DropSource);
    let other = ethernet_to(CLUSTER_MAC, 0x0800, &ipv4(CLIENT4, US4, ESP).packet(&esp()));
    assert_eq!(bench.run(&other).reason, Reason::DropOtherNode);
}

/// Its numbers count at a takeover, whoever drops its packets.
#[test]
fn the_number_of_a_dropped_packet_is_recorded_all_the_same() {
    const SPI: u32 = 0xc000_0001;
    let bench = Bench::clustered(&ClusterValue { flags: table().flags | CLUSTER_DROPS_SOURCES, ..table() });
    bench.track(SPI, 0);
    bench.drop_source(PEER4, FOR_EVER);
    let packet = [&SPI.to_be_bytes()[..], &9_u32.to_be_bytes(), &[0xab; 40]].concat();
    let frame = ethernet_to(CLUSTER_MAC, 0x0800, &ipv4(PEER4, US4, ESP).packet(&packet));
    assert_eq!(bench.run(&frame).reason, Reason::DropSource);
    assert_eq!(bench.seen(SPI), Some(9));
}

/// The first one stays until it is taken, whatever comes behind it.
#[test]
fn the_first_clear_packet_that_is_dropped_is_kept_as_evidence() {
    // Each processor keeps its first.
    let mut here = CpuSet::new();
    here.set(sched_getcpu().unwrap()).unwrap();
    sched_setaffinity(Pid::from_raw(0), &here).unwrap();
    let bench = Bench::new();
    assert_eq!(bench.take_clear(), []);
    let short = ipv4(REMOTE4, CLIENT4, UDP).packet(&udp(7, 9, &[]));
    let long = ipv6_packet(REMOTE6, CLIENT6, TCP, 64, &[0x55; 1000]);
    bench.run(&ethernet(0x0800, &short));
    bench.run(&ethernet(0x86dd, &long));
    let taken = bench.take_clear();
    assert_eq!(taken.len(), 1);
    assert_eq!((usize::from(taken[0].len), taken[0].head()), (short.len(), &short[..]));
    assert_eq!(bench.take_clear(), []);
    bench.run(&ethernet(0x86dd, &long));
    bench.run(&ipv4(CLIENT4, PEER4, TCP).frame(&[0; 20]));
    let taken = bench.take_clear();
    assert_eq!(taken.len(), 1);
    assert_eq!((usize::from(taken[0].len), taken[0].head()), (long.len(), &long[..64]));
}
