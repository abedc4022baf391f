//! The instruments that measure a failover, on a path without a tunnel: what they must see, and
//! what they must not.

use std::net::IpAddr;
use std::thread::sleep;
use std::time::{Duration, Instant};
use testudo_lab::nginx::Nginx;
use testudo_lab::probe::{INTERVAL, Probe, Summary, Trace};
use testudo_lab::topology::{Family, Options, Side};
use testudo_lab::transfer::Transfer;
use testudo_lab::{Lab, Namespace, Topology};

const MIB: u64 = 1 << 20;
/// Allowance for late arrivals, and for the time that the cutting command itself takes.
const SLACK: Duration = Duration::from_millis(5);
const LIMIT: Duration = Duration::from_secs(60);

fn topology(name: &str) -> Topology {
    let t = Topology::build(&Lab::large(name, 2).unwrap(), &Options::default()).unwrap();
    // Neighbours' addresses are resolved before anything is measured.
    for family in [Family::V4, Family::V6] {
        let pong = testudo_lab::ping::Ping::new(Side::Two.host(family)).run(&t.client).unwrap();
        assert_eq!(pong.received, pong.sent);
    }
    t
}

fn probe(t: &Topology, family: Family) -> Probe {
    Probe::start(&t.client, &t.server, Side::Two.host(family), INTERVAL).unwrap()
}

fn nft(ns: &Namespace, rules: &str) {
    ns.run("nft", [rules]).unwrap();
}

/// Cuts the untrusted network for that long; returns bounds of the real time.
fn cut(t: &Topology, length: Duration) -> (Duration, Duration) {
    nft(&t.wire, "add table netdev cut");
    nft(
        &t.wire,
        "add chain netdev cut both { type filter hook ingress devices = { port1, port2 } priority -10; }",
    );
    let before = Instant::now();
    nft(&t.wire, "add rule netdev cut both drop");
    let begun = Instant::now();
    sleep(length);
    let least = begun.elapsed();
    nft(&t.wire, "delete table netdev cut");
    (least, before.elapsed())
}

/// The longest delay of an arrival: on a busy machine, outages seem longer or shorter by as much.
fn latest(trace: &Trace) -> Duration {
    trace.delays().filter_map(|(_, delay)| delay).max().unwrap_or_default()
}

fn assert_all_arrived(trace: &Trace, at_least: u64) -> Summary {
    let summary = trace.summary();
    assert!(summary.sent >= at_least, "{summary:?}");
    assert_eq!((summary.lost, summary.duplicates, summary.reordered), (0, 0, 0), "{summary:?}");
    assert_eq!(summary.received, summary.sent);
    summary
}

#[test]
fn a_path_that_is_left_alone_loses_and_doubles_nothing() {
    let t = topology("probe-quiet");
    let up = probe(&t, Family::V4);
    let down = Probe::start(&t.server, &t.client, Side::One.host(Family::V6), INTERVAL).unwrap();
    for probe in [&up, &down] {
        probe.await_sent(1000, LIMIT).unwrap();
    }
    for trace in [up.stop().unwrap(), down.stop().unwrap()] {
        let summary = assert_all_arrived(&trace, 1000);
        assert!(summary.outage.length < latest(&trace) + Duration::from_millis(50), "{summary:?}");
        assert!(trace.delays().all(|(_, delay)| delay.is_some()));
    }
}

#[test]
fn a_cut_of_200_ms_is_an_outage_of_200_ms() {
    let t = topology("probe-cut");
    let probe = probe(&t, Family::V4);
    probe.await_sent(300, LIMIT).unwrap();
    let (least, most) = cut(&t, Duration::from_millis(200));
    probe.await_sent(300, LIMIT).unwrap();
    let trace = probe.stop().unwrap();
    let summary = trace.summary();
    let (outage, slack) = (summary.outage, SLACK + latest(&trace));
    assert!(
        outage.length + outage.silence + slack >= least && outage.length <= most + slack,
        "{least:?}..{most:?}: {outage:?}"
    );
    // At 1 kHz a lost datagram is a millisecond, except for those that the sender itself did not
    // send.
    assert_eq!((outage.lost, summary.lost), (summary.lost, summary.sent - summary.received));
    assert!(summary.lost <= outage.length.as_millis() as u64 + 1, "{summary:?}");
    if trace.sender_pause() < Duration::from_millis(5) {
        assert!(summary.lost + 10 >= least.as_millis() as u64, "{least:?}: {summary:?}");
    }
    let lost = trace.lost();
    assert!(matches!(lost.as_slice(), [range] if range.end - range.start == summary.lost), "{lost:?}");
    let over_time = trace.received_over_time(Duration::from_millis(100)).unwrap();
    assert!(over_time.amounts().contains(&0), "{over_time:?}");
    assert_eq!(over_time.amounts().iter().sum::<u64>(), summary.received);
    assert_eq!((summary.duplicates, summary.reordered), (0, 0));
}

#[test]
fn every_tenth_datagram_sent_twice_is_seen() {
    let t = topology("probe-twice");
    nft(&t.wire, "add table netdev twice");
    nft(&t.wire, "add chain netdev twice port1 { type filter hook ingress device port1 priority -10; }");
    nft(&t.wire, "add rule netdev twice port1 meta l4proto udp numgen inc mod 10 == 0 dup to port2");
    let probe = probe(&t, Family::V4);
    probe.await_sent(500, LIMIT).unwrap();
    let summary = probe.stop().unwrap().summary();
    assert_eq!((summary.lost, summary.duplicates), (0, summary.sent.div_ceil(10)), "{summary:?}");
}

#[test]
fn a_download_stands_still_while_the_path_is_cut() {
    let t = topology("transfer-cut");
    let nginx = Nginx::start(&t.server).unwrap();
    let expected = nginx.add_file("file", 64 * MIB, 1).unwrap();
    // Slow enough to be cut in the middle.
    t.gw2
        .run(
            "tc",
            [
                "qdisc", "add", "dev", "outer0", "root", "tbf", "rate", "400mbit", "burst", "64k", "latency",
                "20ms",
            ],
        )
        .unwrap();
    let server: IpAddr = Side::Two.host(Family::V4);
    let begun = Instant::now();
    let transfer = Transfer::start(&t.client, server, "file").unwrap();
    transfer.await_received(8 * MIB, LIMIT).unwrap();
    let (least, _) = cut(&t, Duration::from_millis(400));
    let done = transfer.finish(Duration::from_secs(60)).unwrap();
    assert_eq!((done.bytes, &done.sha256), (64 * MIB, &expected));
    assert!(done.elapsed <= begun.elapsed() && done.gbps() < 0.4, "{:?}", done.elapsed);
    let amounts = done.over_time.amounts();
    assert_eq!(amounts.iter().sum::<u64>(), 64 * MIB);
    let still = amounts.split(|amount| *amount > 0).map(<[_]>::len).max().unwrap_or_default();
    // Except for the slots at both ends, which are not empty.
    assert!(still as u128 + 2 >= least.as_millis() / 50, "{amounts:?}");
}
