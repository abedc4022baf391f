//! The watch again: lies that are believed, and peers that fail to prove who they are.

use super::watched::{alarms, await_alarm};
use crate::common::{Pair, SOON, Scenario, at_once};
use std::net::IpAddr;
use testudo_lab::capture::Capture;
use testudo_lab::forgeries::too_big;
use testudo_lab::frames::ETHERNET;
use testudo_lab::gateway::Kind;
use testudo_lab::inject::{ANSWER, Injector, advertisement};
use testudo_lab::ping::Ping;
use testudo_lab::topology::{Family, OUTER, Side, WIRE_PORTS};
use testudo_lab::wait_until;

/// What a path may take.
const SMALL_MTU: u16 = 1300;
/// Less than any path of IPv6 takes.
const FALSE_MTU: u16 = 1000;
/// A busy machine needs long for an exchange.
const PATIENT: &str = "[alarms.ike-brute-force]\nthreshold = 2\n";
/// Connections that the peer sets up at the same time.
const TRIES: usize = 8;

/// A packet of ours of this length or more, as it crosses the untrusted network.
fn large_packet(pair: &Pair, least: usize) -> Vec<u8> {
    let seen = Capture::esp(&pair.t.wire, WIRE_PORTS[0], 10).unwrap();
    let ping = Ping::new(Side::Two.host(Family::V4)).size(1300);
    assert_eq!(ping.run(&pair.t.client).unwrap().received, 10);
    seen.await_packets(10, SOON).unwrap();
    let frames = seen.stop().unwrap().frames().unwrap();
    frames.into_iter().find(|frame| frame.len() >= least).unwrap()
}

/// One message is enough, and quotes a packet that was sent.
#[test]
fn a_path_that_is_said_to_take_less_than_any_raises_an_alarm() {
    let pair = &Scenario::new("liar", Kind::Testudo).start();
    pair.up(Side::One);
    let sent = large_packet(pair, ETHERNET + usize::from(SMALL_MTU) + 1);
    let injector = Injector::open(&pair.t.wire, WIRE_PORTS[0]).unwrap();
    injector.send(&too_big(&sent, SMALL_MTU).unwrap()).unwrap();
    let peer = Side::Two.outer(Family::V4);
    pair.await_said(&format!("the path to {peer} takes packets of {SMALL_MTU} octets"));
    assert_eq!(alarms(pair, "path-mtu"), Vec::<serde_json::Value>::new(), "that is plausible");
    injector.send(&too_big(&sent, FALSE_MTU).unwrap()).unwrap();
    let alarm = await_alarm(pair, "path-mtu");
    let expected = format!("the path to {peer} takes {FALSE_MTU} octets, less than any link of IPv6");
    assert!(alarm["evidence"].as_str().unwrap().ends_with(&expected), "{alarm}");
    assert_eq!((&alarm["count"], &alarm["subject"]), (&1.into(), &peer.to_string().into()));
    pair.await_said(&format!("the path to {peer} takes packets of {FALSE_MTU} octets"));
}

#[test]
fn a_peer_whose_place_another_takes_by_neighbour_discovery_raises_an_alarm() {
    let pair = &Scenario::new("thief", Kind::Testudo).outer(Family::V6).start();
    pair.up(Side::One);
    pair.ping_from(Side::One, Family::V4, 56);
    assert_eq!(alarms(pair, "address-spoofing"), Vec::<serde_json::Value>::new());
    let [IpAddr::V6(us), IpAddr::V6(peer)] = [Side::One, Side::Two].map(|side| side.outer(Family::V6)) else {
        unreachable!("of that family")
    };
    let injector = Injector::open(&pair.t.wire, WIRE_PORTS[0]).unwrap();
    let mac = pair.t.gw1.mac(OUTER).unwrap();
    let lie = advertisement(injector.address(), peer, (mac, us), ANSWER);
    let alarm = wait_until("an alarm about the thief", SOON, || {
        injector.send(&lie)?;
        Ok(alarms(pair, "address-spoofing").pop().ok_or_else(|| pair.one.alarms().unwrap().to_string()))
    });
    let alarm = alarm.unwrap();
    assert_eq!((&alarm["subject"], &alarm["severity"]), (&peer.to_string().into(), &"critical".into()));
}

/// The peer has another key, and does not give up.
#[test]
fn a_series_of_refused_authentications_raises_an_alarm() {
    let pair = &Scenario::new("guesser", Kind::Testudo).settings(PATIENT).start_with(|side, connection| {
        if side == Side::Two {
            connection.psk = "a guess".into();
        }
    });
    let peer = Side::Two.outer(Family::V4).to_string();
    let alarm = wait_until("an alarm about refused authentications", SOON, || {
        at_once((0..TRIES).map(|_| || pair.swanctl(Side::Two).initiate("lab", SOON).unwrap_err()));
        Ok(alarms(pair, "ike-brute-force").pop().ok_or_else(|| pair.one.alarms().unwrap().to_string()))
    });
    let alarm = alarm.unwrap();
    assert_eq!(alarm["evidence"], "IKE_AUTH was refused: the log says why");
    assert_eq!(alarm["subject"], peer.as_str());
    assert!(alarm["sources"][&peer].as_u64() > Some(1), "{alarm}");
    assert_eq!(pair.sas(Side::One).len(), 0);
}
