//! strongSwan to strongSwan: what the lab does without Testudo, and what its instruments see.

use std::time::Duration;
use testudo_lab::capture::Capture;
use testudo_lab::count::Counters;
use testudo_lab::download::Download;
use testudo_lab::inject::Injector;
use testudo_lab::iperf::Direction;
use testudo_lab::nginx::Nginx;
use testudo_lab::ping::Ping;
use testudo_lab::streams::Streams;
use testudo_lab::strongswan::Strongswan;
use testudo_lab::swanctl_conf::Connection;
use testudo_lab::topology::{Family, Options, Side};
use testudo_lab::{Lab, Topology};

const UP_LIMIT: Duration = Duration::from_secs(60);
/// Data of echo requests, looked for in captures.
const MARK: [u8; 8] = *b"in clear";
const MIB: u64 = 1 << 20;

fn topology(name: &str) -> Topology {
    Topology::build(&Lab::large(name, 2).unwrap(), &Options::default()).unwrap()
}

/// Two charons with a connection loaded, not yet up.
fn charons(topology: &Topology, outer: Family) -> [Strongswan; 2] {
    [Side::One, Side::Two].map(|side| {
        let charon = Strongswan::start(topology.gateway(side)).unwrap();
        charon.swanctl().load(&Connection::of(side, outer).to_string()).unwrap();
        charon
    })
}

/// The instruments: without a tunnel they must *see* clear packets.
#[test]
fn without_a_tunnel_capture_and_counters_see_clear_packets() {
    let t = topology("control");
    let counters = Counters::start(&t.wire).unwrap();
    let capture = Capture::clear_text(&t.wire).unwrap();
    for family in [Family::V4, Family::V6] {
        let pong = Ping::new(Side::Two.host(family)).count(5).pattern(MARK).run(&t.client).unwrap();
        assert_eq!((pong.sent, pong.received), (5, 5), "{family:?}");
    }
    let captured = capture.stop().unwrap();
    assert!(captured.contains(&MARK).unwrap());
    assert_eq!((captured.packets, captured.lost), (20, 0), "{}", captured.show(50).unwrap());
    assert!(captured.show(1).unwrap().contains("10.1.0.2 > 10.2.0.2: ICMP echo request"));
    assert_eq!(counters.sent(Side::One).unwrap().clear.packets, 10);
    assert_eq!(counters.sent(Side::Two).unwrap().clear.packets, 10);
    assert_eq!(counters.esp_packets().unwrap(), 0);
}

/// The gateways' own clear traffic counts like that of others.
#[test]
fn between_the_gateways_only_ike_and_esp_are_allowed() {
    let t = topology("strict");
    let counters = Counters::start(&t.wire).unwrap();
    let capture = Capture::clear_text(&t.wire).unwrap();
    for family in [Family::V4, Family::V6] {
        let pong = Ping::new(Side::Two.outer(family)).count(2).run(&t.gw1).unwrap();
        assert_eq!(pong.received, 2, "{family:?}");
    }
    let captured = capture.stop().unwrap();
    assert_eq!(captured.packets, 8, "{}", captured.show(50).unwrap());
    assert_eq!(counters.clear_packets().unwrap(), 8);
}

/// Packets that imitate others are counted as what they are.
#[test]
fn injected_frames_are_told_apart() {
    let t = topology("inject");
    let counters = Counters::start(&t.wire).unwrap();
    let injector = Injector::open(&t.gw1, "outer0").unwrap();
    assert_eq!(injector.address(), t.gw1.mac("outer0").unwrap());
    let (gw1, gw2, client) = ([192, 0, 2, 1], [192, 0, 2, 2], [10, 1, 0, 2]);
    let to = t.gw2.mac("outer0").unwrap();
    let frame = |source: [u8; 4], protocol: u8, payload: &[u8]| {
        let mut frame = [&to[..], &injector.address(), &[8, 0]].concat();
        let length = 20 + u8::try_from(payload.len()).unwrap();
        frame.extend([0x45, 0, 0, length, 0, 0, 0x40, 0, 64, protocol, 0, 0]);
        frame.extend([source, gw2].concat());
        frame.extend(payload);
        frame
    };
    let udp_esp = [0x11, 0x94, 0x11, 0x94, 0, 24, 0, 0, 1, 2, 3, 4, 0, 0, 0, 1, 9, 9, 9, 9, 9, 9, 9, 9];
    let udp_ike = [0x11, 0x94, 0x11, 0x94, 0, 24, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 9, 9, 9, 9, 9, 9, 9, 9];
    let keepalive = [0x11, 0x94, 0x11, 0x94, 0, 9, 0, 0, 0xff];
    for frame in [
        frame(gw1, 50, &[1; 32]),
        frame(gw1, 17, &udp_esp),
        frame(gw1, 17, &udp_ike),
        frame(gw1, 17, &keepalive),
        frame(client, 50, &[1; 32]),
        frame(client, 17, &udp_esp),
        frame(gw1, 6, &[1; 32]),
    ] {
        injector.send(&frame).unwrap();
    }
    let sent = counters.sent(Side::One).unwrap();
    assert_eq!((sent.esp.packets, sent.ike.packets, sent.clear.packets), (2, 2, 3), "{sent:?}");
}

#[test]
fn a_tunnel_over_ipv4_carries_everything_and_shows_nothing() {
    tunnel(Family::V4);
}

#[test]
fn a_tunnel_over_ipv6_carries_everything_and_shows_nothing() {
    tunnel(Family::V6);
}

fn tunnel(outer: Family) {
    let t = topology("baseline");
    let counters = Counters::start(&t.wire).unwrap();
    let [one, two] = charons(&t, outer);
    let clear = Capture::clear_text(&t.wire).unwrap();
    let setup = Capture::everything(&t.wire, 100).unwrap();

    one.swanctl().initiate("lab", UP_LIMIT).unwrap();
    for charon in [&one, &two] {
        let sas = charon.swanctl().list_sas().unwrap();
        assert!(matches!(sas.as_slice(), [sa] if sa.is_up()), "{sas:?}");
    }
    let sas = one.swanctl().list_sas().unwrap();
    assert_eq!(sas[0].get("remote-host"), Some(Side::Two.outer(outer).to_string().as_str()));
    pings(&t);
    let setup = setup.stop().unwrap();
    assert!(setup.show(20).unwrap().contains("isakmp: parent_sa ikev2_init[I]"));
    assert!(setup.packets > 40 && !setup.contains(&MARK).unwrap());
    let moved = transfers(&t);
    let esp = counters.esp_packets().unwrap();
    assert!(esp as f64 * 1400.0 * 8.0 / 1e9 > moved, "{esp} ESP packets cannot have carried {moved} Gbit");
    let sas = one.swanctl().list_sas().unwrap();
    assert!(sas[0].children[0].number("packets-out").unwrap() > 10);

    // Before the end of the tunnel: later packets pass in clear.
    let captured = clear.stop().unwrap();
    assert_eq!((captured.packets, captured.lost), (0, 0), "{}", captured.show(10).unwrap());
    assert_eq!(counters.clear_packets().unwrap(), 0);
    one.swanctl().terminate("lab").unwrap();
    assert_eq!(two.swanctl().list_sas().unwrap(), []);
}

fn pings(t: &Topology) {
    for family in [Family::V4, Family::V6] {
        for size in [56, 1200] {
            let pong = Ping::new(Side::Two.host(family)).size(size).pattern(MARK).run(&t.client).unwrap();
            assert_eq!((pong.sent, pong.received), (10, 10), "{family:?}, {size} octets");
        }
    }
}

/// Downloads and streams; returns how many gigabits they moved.
fn transfers(t: &Topology) -> f64 {
    let nginx = Nginx::start(&t.server).unwrap();
    let expected = nginx.add_file("file", 16 * MIB, 1).unwrap();
    let mut gigabits = 0.0;
    for family in [Family::V4, Family::V6] {
        let server = Side::Two.host(family);
        let download = Download::run(&t.client, server, "file", Duration::from_secs(60)).unwrap();
        assert_eq!((download.bytes, &download.sha256), (16 * MIB, &expected));
        gigabits += download.gigabits();
        for direction in [Direction::Up, Direction::Down] {
            Streams::one(direction, MIB).carry(&t.client, &t.server, server).unwrap();
            gigabits += MIB as f64 * 8.0 / 1e9;
        }
    }
    gigabits
}
