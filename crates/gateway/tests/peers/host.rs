//! Traffic of the gateways themselves: their own stacks talk through the tunnel.

use crate::common::{Pair, SOON, Scenario, Watch};
use std::net::UdpSocket;
use std::time::Duration;
use testudo_lab::gateway::Kind;
use testudo_lab::iperf::Direction;
use testudo_lab::nginx::Nginx;
use testudo_lab::ping::Ping;
use testudo_lab::streams::Streams;
use testudo_lab::topology::{Family, Side};
use testudo_lab::transfer::Transfer;

const FAMILIES: [Family; 2] = [Family::V4, Family::V6];
const LIMIT: Duration = Duration::from_secs(60);
const FILE: u64 = 64 << 20;

/// A large file from each gateway to the other, octet by octet the same.
fn files_arrive_whole(pair: &Pair) {
    for from in [Side::One, Side::Two] {
        let nginx = Nginx::start(pair.t.gateway(from)).unwrap();
        let sent = nginx.add_file("file", FILE, 7).unwrap();
        for family in FAMILIES {
            let transfer = Transfer::start(pair.t.gateway(from.other()), from.inner(family), "file").unwrap();
            let got = transfer.finish(LIMIT).unwrap();
            assert_eq!((got.bytes, &got.sha256), (FILE, &sent), "{family} from {from:?}");
        }
    }
}

fn streams_flow(pair: &Pair) {
    for family in FAMILIES {
        for (direction, count) in [(Direction::Up, 1), (Direction::Down, 1), (Direction::Up, 4)] {
            let to = Side::Two.inner(family);
            let streams = Streams { direction, count, octets: 1 << 20 };
            streams.carry(&pair.t.gw1, &pair.t.gw2, to).unwrap();
        }
    }
}

fn pings_of_all_sizes_are_answered(pair: &Pair) {
    for from in [Side::One, Side::Two] {
        for family in FAMILIES {
            for size in [1, 56, 1200, 1400, 1452, 4000, 20_000] {
                let to = from.other().inner(family);
                // The first of a size may be answered with what fits.
                Ping::new(to).size(size).count(3).run(pair.t.gateway(from)).unwrap();
                let pong = Ping::new(to).size(size).run(pair.t.gateway(from)).unwrap();
                let drops = pair.drops(Side::One);
                assert_eq!(pong.received, pong.sent, "{family}, {size} octets, from {from:?}: {drops:?}");
            }
        }
    }
}

/// Octet by octet the same, with the checksums that the kernel has left to us; the large ones in fragments.
fn datagrams_come_back_as_they_were(pair: &Pair) {
    for from in [Side::One, Side::Two] {
        for family in FAMILIES {
            let socket = |side: Side| {
                let bound = move || UdpSocket::bind((side.inner(family), 0));
                let socket = pair.t.gateway(side).enter(bound).unwrap().unwrap();
                socket.set_read_timeout(Some(SOON)).unwrap();
                socket
            };
            let (near, far) = (socket(from), socket(from.other()));
            near.connect(far.local_addr().unwrap()).unwrap();
            far.connect(near.local_addr().unwrap()).unwrap();
            for size in [1, 2, 57, 1200, 1391, 1472, 4001, 20_000] {
                let sent: Vec<u8> = (0..size).map(|at| (at * 7 % 251) as u8).collect();
                let mut got = vec![0; 1 << 16];
                near.send(&sent).unwrap();
                let came = far.recv(&mut got);
                assert_eq!(came.ok(), Some(size), "{family} from {from:?}: {:?}", pair.drops(from.other()));
                far.send(&got[..size]).unwrap();
                let came = near.recv(&mut got);
                assert_eq!(came.ok(), Some(size), "{family} to {from:?}: {:?}", pair.drops(from));
                assert!(got[..size] == sent, "{family}, {size} octets from {from:?}");
            }
        }
    }
}

fn talk(pair: &Pair) {
    let watch = Watch::start(&pair.t);
    pair.up(Side::One);
    pings_of_all_sizes_are_answered(pair);
    datagrams_come_back_as_they_were(pair);
    streams_flow(pair);
    files_arrive_whole(pair);
    watch.saw_nothing();
}

fn total(pair: &Pair, side: Side, name: &str) -> u64 {
    pair.status(side)["counters"]["totals"][name].as_u64().unwrap_or_else(|| panic!("no {name}"))
}

/// Large segments were cut and merged, and none was refused.
fn check(pair: &Pair, side: Side) {
    assert!(total(pair, side, "split") > 1000, "cut: {}", pair.status(side)["counters"]);
    assert!(total(pair, side, "merged") > 1000, "merged: {}", pair.status(side)["counters"]);
    let drops = pair.drops(side);
    assert_eq!((drops["bad_offload"], drops["tun_write_failed"]), (0, 0), "{drops:?}");
}

#[test]
fn hosts_talk_to_themselves() {
    let pair = Scenario::new("host", Kind::Testudo).start();
    talk(&pair);
    check(&pair, Side::One);
    check(&pair, Side::Two);
}

#[test]
fn hosts_talk_in_jumbo_frames() {
    let pair = Scenario::new("host", Kind::Testudo).inner_mtu(9000).outer_mtu(9000).start();
    talk(&pair);
    check(&pair, Side::One);
    check(&pair, Side::Two);
}

#[test]
fn hosts_talk_through_many_workers() {
    let settings = "\n[worker]\ncount = 2\n";
    let pair = Scenario::new("host", Kind::Testudo).queues([2, 2]).settings(settings).start();
    talk(&pair);
    check(&pair, Side::One);
}

#[test]
fn a_host_talks_to_strongswan() {
    let pair = Scenario::new("host", Kind::Strongswan).start();
    talk(&pair);
    check(&pair, Side::One);
}
