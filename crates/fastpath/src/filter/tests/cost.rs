//! What the filter costs for a frame: a measurement, not a test.

use super::bench::Bench;
use super::cluster::table;
use super::frames::*;
use crate::filter::layout::ClusterValue;
use std::io::Write;

/// `cargo test -p testudo-fastpath --lib -- --ignored cost_of_a_frame --nocapture`
#[test]
#[ignore = "prints times"]
fn cost_of_a_frame() {
    let alone = Bench::new();
    let none = Bench::clustered(&table());
    let all = Bench::clustered(&ClusterValue {
        packets: [u64::MAX; 4],
        ike: [u64::MAX; 4],
        ..table().with_default_host(true)
    });
    [&none, &all].iter().for_each(|bench| bench.track(0xc000_0001, 1));
    let marked = udp(4500, 4500, &esp());
    // The kernel's own part of a test run is in all of them; "mine" goes on as a frame to the port, where it goes up.
    let frames = [
        ("neither", ethernet(0x88cc, &[0; 46])),
        ("ESP", ipv4(PEER4, US4, ESP).frame(&esp())),
        ("ESP, IPv6", ipv6(PEER6, US6, ESP, &esp())),
        ("ESP in UDP", ipv4(PEER4, US4, UDP).frame(&marked)),
        ("IKE_SA_INIT", ipv4(PEER4, US4, UDP).frame(&udp(500, 500, &ike()))),
        ("to protect", ipv4(CLIENT4, REMOTE4, TCP).frame(&[0; 20])),
        ("to protect, IPv6", ipv6(CLIENT6, REMOTE6, TCP, &[0; 20])),
        ("bypassed", ipv4(CLIENT4, PEER4, TCP).frame(&[0; 20])),
        ("bypassed, IPv6", ipv6(CLIENT6, PEER6, TCP, &[0; 20])),
    ];
    let mut out = std::io::stdout();
    writeln!(out, "\n{:20} {:>8} {:>8} {:>8}  ns", "", "alone", "other's", "mine").unwrap();
    for (name, frame) in frames {
        let mut flooded = frame.clone();
        flooded[..6].copy_from_slice(&CLUSTER_MAC);
        let best = |bench: &Bench, frame: &[u8]| (0..5).map(|_| bench.cost(frame)).min().unwrap();
        let [a, n, m] = [best(&alone, &frame), best(&none, &flooded), best(&all, &flooded)];
        writeln!(out, "{name:20} {a:8} {n:8} {m:8}").unwrap();
    }
}
