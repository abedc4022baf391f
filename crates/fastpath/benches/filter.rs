//! The filter's time per frame, as measured by the kernel: without a cluster, and on a node that
//! carries no shard, and all of them. The last rows are those of a cluster with spread tunnels.
#![allow(clippy::print_stdout)]

#[path = "../src/filter/tests/frames.rs"]
#[allow(dead_code)]
mod frames;

use frames::*;
use std::collections::BTreeSet;
use testudo_base::lane::Spread;
use testudo_base::spi::Shard;
use testudo_fastpath::fib::PortIndex;
use testudo_fastpath::filter::{self, ClusterFilter, Filter, FilterPort, Instance, KeptShards, PrefixUse};
use testudo_fastpath::mac::MacAddr;

/// A test run comes from the loopback interface.
const LOOPBACK: u32 = 1;
const HOMED: PrefixUse = PrefixUse { home: Some(Shard(42)), ..PrefixUse::PROTECT };
const RUNS: u32 = 100_000;
/// The best of many runs is printed. Short ones, so that some are not interrupted.
const REPEATS: u32 = 50;
/// Of [`esp`].
const SPI: u32 = 0xc000_0001;
/// Of an SA that is spread.
const SPREAD: u32 = 0xc000_0002;

fn main() {
    let instances = ["bench-alone", "bench-others", "bench-mine"].map(|n| Instance::new(n).expect(n));
    {
        let [alone, others, mine] = instances.each_ref().map(open);
        let mut filters = [alone, in_cluster(others, [0; 4]), in_cluster(mine, [u64::MAX; 4])];
        println!("{:28} {:>8} {:>8} {:>8}  ns", "", "alone", "other's", "mine");
        measure(&filters, &of_one_home());
        filters.iter_mut().for_each(|filter| filter.track_spread(SPREAD, 1).expect("a spread SA"));
        measure(&filters, &of_all_nodes());
    }
    for instance in &instances {
        filter::cleanup(instance).expect("remove the pins");
    }
}

/// A gateway with two addresses, a protected prefix of each family, and an exception inside each.
fn open(instance: &Instance) -> Filter {
    let mut filter = Filter::open(instance).expect("load the filter");
    filter
        .set_port(&FilterPort {
            index: PortIndex(5),
            name: "lo".to_owned(),
            ifindex: LOOPBACK,
            mac: MacAddr(PORT_MAC),
            cluster_mac: Some(MacAddr(CLUSTER_MAC)),
            check_source: true,
            allow_generic: false,
        })
        .expect("the port");
    filter.set_addresses(&addresses()).expect("addresses");
    let prefixes = [
        ("10.2.0.0/16", PrefixUse::PROTECT),
        ("10.2.9.0/24", PrefixUse::PASS),
        ("2001:db8:2::/48", PrefixUse::PROTECT),
        ("2001:db8:2:9::/64", PrefixUse::PASS),
        ("10.3.0.0/16", HOMED),
        ("2001:db8:3::/48", HOMED),
        ("10.4.0.0/16", PrefixUse { spread: Some(Spread::SessionHash), ..HOMED }),
        ("10.5.0.0/16", PrefixUse { spread: Some(Spread::PacketHash), ..HOMED }),
        ("2001:db8:5::/48", PrefixUse { spread: Some(Spread::PacketHash), ..HOMED }),
    ];
    let prefixes = prefixes.map(|(prefix, to)| (prefix.parse().expect(prefix), to)).into();
    filter.set_prefixes(&prefixes).expect("prefixes");
    filter
}

fn addresses() -> BTreeSet<std::net::IpAddr> {
    [US4, US6].iter().map(|addr| addr.parse().expect(addr)).collect()
}

/// The two addresses are the cluster's, and the node keeps those shards.
fn in_cluster(mut filter: Filter, shards: [u64; 4]) -> Filter {
    let cluster = ClusterFilter { vips: addresses(), key: [1, 2], routed: false };
    filter.set_cluster(Some(&cluster)).expect("a cluster");
    filter
        .set_shards(KeptShards {
            packets: shards,
            ike: shards,
            default_host: shards != [0; 4],
            ..KeptShards::default()
        })
        .expect("shares");
    filter.set_fence(u64::MAX).expect("a fence");
    filter.track(SPI, 1).expect("an SA");
    filter
}

type Row = (&'static str, Vec<u8>);

fn of_one_home() -> Vec<Row> {
    let marked = udp(4500, 4500, &esp());
    vec![
        ("neither", ethernet(0x88cc, &[0; 46])),
        ("ESP", ipv4(PEER4, US4, ESP).frame(&esp())),
        ("ESP, IPv6", ipv6(PEER6, US6, ESP, &esp())),
        ("ESP in UDP", ipv4(PEER4, US4, UDP).frame(&marked)),
        ("IKE_SA_INIT", ipv4(PEER4, US4, UDP).frame(&udp(500, 500, &ike()))),
        ("to protect", ipv4(CLIENT4, REMOTE4, TCP).frame(&[0; 20])),
        ("to protect, IPv6", ipv6(CLIENT6, REMOTE6, TCP, &[0; 20])),
        ("bypassed", ipv4(CLIENT4, PEER4, TCP).frame(&[0; 20])),
        ("bypassed, IPv6", ipv6(CLIENT6, PEER6, TCP, &[0; 20])),
        ("to one home", ipv4(CLIENT4, "10.3.3.4", TCP).frame(&[0; 20])),
        ("to one home, IPv6", ipv6(CLIENT6, "2001:db8:3::4", TCP, &[0; 20])),
    ]
}

fn of_all_nodes() -> Vec<Row> {
    let spread = [&SPREAD.to_be_bytes()[..], &esp()[4..]].concat();
    vec![
        ("ESP, another SA is spread", ipv4(PEER4, US4, ESP).frame(&esp())),
        ("ESP, spread", ipv4(PEER4, US4, ESP).frame(&spread)),
        ("ESP, spread, IPv6", ipv6(PEER6, US6, ESP, &spread)),
        ("to one home", ipv4(CLIENT4, "10.3.3.4", TCP).frame(&[0; 20])),
        ("spread by session", ipv4(CLIENT4, "10.4.3.4", TCP).frame(&[0; 20])),
        ("spread by packet", ipv4(CLIENT4, "10.5.3.4", TCP).frame(&[0; 20])),
        ("spread by packet, IPv6", ipv6(CLIENT6, "2001:db8:5::4", TCP, &[0; 20])),
    ]
}

/// The kernel's own part of a test run is in all of them. "mine" goes on as a frame to the port,
/// where it goes up.
fn measure(filters: &[Filter; 3], rows: &[Row]) {
    for (name, frame) in rows {
        let mut flooded = frame.clone();
        flooded[..6].copy_from_slice(&CLUSTER_MAC);
        let [alone, others, mine] = filters;
        let [a, o, m] = [(alone, frame), (others, &flooded), (mine, &flooded)].map(|(filter, frame)| {
            let runs = (0..REPEATS).map(|_| filter.cost(frame, RUNS).expect("a test run"));
            runs.min().unwrap_or_default().as_nanos()
        });
        println!("{name:28} {a:8} {o:8} {m:8}");
    }
}
