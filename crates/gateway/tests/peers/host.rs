//! Traffic of the gateways themselves: their own stacks talk through the tunnel.

use crate::common::{Pair, SOON, Scenario, UP_LIMIT, Watch, at_once};
use nix::sys::signal::Signal;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;
use testudo_lab::gateway::Kind;
use testudo_lab::iperf::Direction;
use testudo_lab::nginx::Nginx;
use testudo_lab::ping::Ping;
use testudo_lab::streams::Streams;
use testudo_lab::topology::{Family, HOST, INNER, Side};
use testudo_lab::transfer::Transfer;
use testudo_lab::wait_until;

const FAMILIES: [Family; 2] = [Family::V4, Family::V6];
const LIMIT: Duration = Duration::from_secs(60);
const FILE: u64 = 16 << 20;

/// The daemon stands still, and its host sends more than the queues of the TUN hold.
#[test]
fn what_finds_the_tun_full_is_counted() {
    const PACKETS: u64 = 3000;
    let mut pair = Scenario::new("tun-full", Kind::Testudo).start();
    pair.up(Side::One);
    let before = pair.t.gw1.tun_overflows().unwrap();
    assert_eq!(pair.dropped("tun_overflow"), 0);
    pair.one.process().signal(Signal::SIGSTOP).unwrap();
    let to = SocketAddr::new(Side::Two.inner(Family::V4), 9);
    let send = || {
        let socket = UdpSocket::bind((Side::One.inner(Family::V4), 0)).unwrap();
        // The kernel may say that a packet found no room.
        (0..PACKETS).for_each(|_| drop(socket.send_to(b"one of many", to)));
    };
    pair.t.gw1.enter(send).unwrap();
    pair.one.process().signal(Signal::SIGCONT).unwrap();
    let lost = pair.t.gw1.tun_overflows().unwrap() - before;
    assert!((PACKETS / 2..PACKETS).contains(&lost), "{lost} of {PACKETS} found the TUN full");
    pair.await_dropped("tun_overflow", lost);
    pair.ping_from(Side::One, Family::V4, 56);
}

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

/// Does something from each side in each family, all at once.
fn each_way(work: impl Fn(Side, Family) + Copy + Send) {
    let ways = [Side::One, Side::Two].into_iter().flat_map(|from| FAMILIES.map(|family| (from, family)));
    at_once(ways.map(|(from, family)| move || work(from, family)));
}

fn pings_of_all_sizes_are_answered(pair: &Pair) {
    each_way(|from, family| {
        for size in [1, 56, 1200, 1400, 1452, 4000, 20_000] {
            let to = from.other().inner(family);
            // The first of a size may be answered with what fits.
            Ping::new(to).size(size).count(3).brief().run(pair.t.gateway(from)).unwrap();
            let pong = Ping::new(to).size(size).run(pair.t.gateway(from)).unwrap();
            let drops = || pair.drops(Side::One);
            assert_eq!(pong.received, pong.sent, "{family}, {size} octets, from {from:?}: {:?}", drops());
        }
    });
}

/// Octet by octet the same, with the checksums that the kernel has left to us; the large ones in
/// fragments.
fn datagrams_come_back_as_they_were(pair: &Pair) {
    each_way(|from, family| {
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
    });
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
#[ignore = "make test-all: a combination of what others prove"]
fn hosts_talk_in_jumbo_frames() {
    let pair = Scenario::new("host", Kind::Testudo).inner_mtu(9000).outer_mtu(9000).start();
    talk(&pair);
    check(&pair, Side::One);
    check(&pair, Side::Two);
}

#[test]
#[ignore = "make test-all: a combination of what others prove"]
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

/// The networks of the second child on that side.
fn further_networks(side: Side) -> [String; 2] {
    let number = 11 + side.index();
    [format!("10.{number}.0.0/24"), format!("fd00:{number}::/64")]
}

/// An address in one of these networks.
fn further(network: &str, host: u8) -> String {
    let (start, _) = network.split_once('/').unwrap();
    if start.contains(':') { format!("{start}{host}") } else { start.replace(".0.0", &format!(".0.{host}")) }
}

/// Waits until what the gateway itself sends to that network has that source.
fn await_source(pair: &Pair, network: &str, source: &str) {
    let family = if network.contains(':') { "-6" } else { "-4" };
    let expected = format!("src {source} ");
    wait_until(&format!("{network} from {source}"), SOON, || {
        let routes = pair.t.gw1.ip(&format!("{family} route show table 220 {network}"))?.stdout;
        let fits = routes.lines().any(|route| format!("{route} ").contains(&expected));
        Ok(if fits { Ok(()) } else { Err(routes) })
    })
    .unwrap();
}

/// Pings from the gateway itself, with the source that its kernel chooses, to the hosts of both
/// children's networks.
fn both_networks_answer(pair: &Pair) {
    let hosts: [IpAddr; 2] = further_networks(Side::Two).map(|network| further(&network, 2).parse().unwrap());
    for to in FAMILIES.map(|family| Side::Two.host(family)).into_iter().chain(hosts) {
        let pong = Ping::new(to).run(&pair.t.gw1).unwrap();
        assert_eq!(pong.received, pong.sent, "{to}: {:?}", pair.drops(Side::One));
    }
}

/// Two children between networks of their own: what the gateway itself sends to either has a source
/// that this one carries, and follows the addresses as they come and go.
#[test]
fn a_host_sends_from_an_address_that_the_child_carries() {
    let mut pair = Scenario::new("sources", Kind::Strongswan).start_with(|side, connection| {
        let [local, remote] = [side, side.other()].map(|side| further_networks(side).join(","));
        let lines = [
            format!("local_ts = {local}"),
            format!("remote_ts = {remote}"),
            format!("esp_proposals = {}", connection.esp_proposals),
        ];
        connection.children = vec![("second".into(), lines.into())];
    });
    let watch = Watch::start(&pair.t);
    for (network, other) in further_networks(Side::Two).iter().zip(further_networks(Side::One)) {
        let length = network.split_once('/').unwrap().1;
        let family = if network.contains(':') { Family::V6 } else { Family::V4 };
        let address = |host| format!("{}/{length}", further(network, host));
        pair.t.gw2.address(INNER, &address(1)).unwrap();
        // Until charon knows it, it installs no route with it, and refuses the Child SA.
        let known = format!("{} appeared on {INNER}", further(network, 1));
        pair.two.process().wait_log(&known, LIMIT).unwrap();
        pair.t.server.address(HOST, &address(2)).unwrap();
        // Without the tunnel these packets would cross the untrusted network in clear.
        pair.t.gw1.route(network, &Side::Two.outer(family).to_string()).unwrap();
        pair.t.gw2.route(&other, &Side::One.outer(family).to_string()).unwrap();
    }
    pair.up(Side::One);
    pair.swanctl(Side::One).initiate("second", UP_LIMIT).unwrap();
    for (host, before) in [(1, None), (7, Some(1))] {
        for (network, remote) in further_networks(Side::One).iter().zip(further_networks(Side::Two)) {
            let (_, length) = network.split_once('/').unwrap();
            let address = |host| format!("{}/{length}", further(network, host));
            if let Some(before) = before {
                pair.t.gw1.ip(&format!("address del {} dev {INNER}", address(before))).unwrap();
            }
            pair.t.gw1.address(INNER, &address(host)).unwrap();
            await_source(&pair, &remote, &further(network, host));
        }
        for family in FAMILIES {
            let own = Side::One.inner(family).to_string();
            await_source(&pair, &Side::Two.network(family), &own);
        }
        both_networks_answer(&pair);
    }
    watch.saw_nothing();
}
