//! The watch: an attacker on the path is noticed, whatever is tried, and told apart from ordinary
//! traffic.

use super::attacks::{self, Knowledge, Maker};
use super::{fire, spy};
use crate::common::{Pair, SOON, Scenario};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;
use testudo_lab::capture::Capture;
use testudo_lab::forgeries::{about_nothing, ike_sa_init, overlapping};
use testudo_lab::frames::{Random, Road, octets};
use testudo_lab::gateway::Kind;
use testudo_lab::inject::{ALL_NODES, Injector, OVERRIDE, advertisement, announcement};
use testudo_lab::ping::Ping;
use testudo_lab::topology::{Family, OUTER, Side, WIRE_PORTS};
use testudo_lab::wait_until;

/// Frames of an attack. The highest threshold is 32 in a second.
const FRAMES: usize = 64;
/// A busy machine divides the packets of a burst among many seconds.
const SENSITIVE: &str = "[alarms.reordering]\nthreshold = 16\n";
/// Between two parts of a recording that is played back without an end.
const BETWEEN_PARTS: Duration = Duration::from_millis(20);

/// The alarms of a kind, as `testudo alarms --json` has them.
pub(super) fn alarms(pair: &Pair, kind: &str) -> Vec<serde_json::Value> {
    let all = pair.one.alarms().unwrap();
    assert_eq!(all["watching"], true, "{all}");
    let of_kind = all["alarms"].as_array().unwrap().iter().filter(|alarm| alarm["kind"] == kind);
    of_kind.cloned().collect()
}

pub(super) fn await_alarm(pair: &Pair, kind: &str) -> serde_json::Value {
    wait_until(&format!("an alarm of the kind {kind}"), SOON, || {
        Ok(alarms(pair, kind).pop().ok_or_else(|| pair.one.alarms().unwrap().to_string()))
    })
    .unwrap()
}

struct Attacker<'a> {
    pair: &'a Pair,
    injector: Injector,
    road: Road,
    known: Knowledge,
    random: Random,
}

impl Attacker<'_> {
    fn shoot(&mut self, make: Maker) {
        let frames: Vec<_> = (0..FRAMES).map(|_| make(&mut self.random, self.road, &self.known)).collect();
        fire(&self.injector, &frames);
    }

    /// Its frames are noticed, as coming from the peer whose address it has forged.
    fn is_noticed(&mut self, make: Maker, kind: &str) -> serde_json::Value {
        self.shoot(make);
        let alarm = await_alarm(self.pair, kind);
        assert!(!alarm["evidence"].as_str().unwrap().is_empty(), "{alarm}");
        alarm
    }

    fn send(&self, frame: &[u8]) {
        self.injector.send(frame).unwrap();
    }
}

/// ARP replies that put the peer at the attacker's MAC address.
fn steal_the_peers_address(attacker: &Attacker<'_>, to_mac: [u8; 6]) {
    let thief = attacker.injector.address();
    let (us, peer) = (octets(Side::One.outer(Family::V4)), octets(Side::Two.outer(Family::V4)));
    let kinds = [0, 1, 8, 0, 6, 4, 0, 2];
    let frame = [&to_mac[..], &thief, &[8, 6], &kinds, &thief, &peer, &to_mac, &us].concat();
    wait_until("an alarm about the thief", SOON, || {
        attacker.send(&frame);
        let stolen = |alarm: &serde_json::Value| alarm["subject"] == Side::Two.outer(Family::V4).to_string();
        let found = alarms(attacker.pair, "address-spoofing").into_iter().find(stolen);
        Ok(found.map(drop).ok_or_else(|| attacker.pair.one.alarms().unwrap().to_string()))
    })
    .unwrap();
}

/// Says of our own addresses that they are the attacker's: ARP, and an advertisement to all nodes.
fn claim_our_addresses(attacker: &Attacker<'_>) {
    let thief = attacker.injector.address();
    let IpAddr::V4(us) = Side::One.outer(Family::V4) else { unreachable!("of that family") };
    attacker.send(&announcement(thief, us));
    let IpAddr::V6(us6) = Side::One.outer(Family::V6) else { unreachable!("of that family") };
    attacker.send(&advertisement(thief, us6, ([0x33, 0x33, 0, 0, 0, 1], ALL_NODES), OVERRIDE));
    let claimed = [Family::V4, Family::V6].map(|family| Side::One.outer(family).to_string());
    wait_until("alarms about our own addresses", SOON, || {
        let found = alarms(attacker.pair, "address-spoofing");
        let is_told = |address: &String| found.iter().any(|alarm| alarm["subject"] == address.as_str());
        Ok(if claimed.iter().all(is_told) { Ok(()) } else { Err(format!("{found:?}")) })
    })
    .unwrap();
}

/// The recordings of the peer's packets again and again, and nothing new beside them.
fn play_back_alone(attacker: &Attacker<'_>) {
    let Attacker { pair, injector, known, .. } = attacker;
    let over = AtomicBool::new(false);
    let found = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                known.captured.iter().for_each(|frame| injector.send(frame).unwrap());
                sleep(BETWEEN_PARTS);
            }
        });
        let found = wait_until("an alarm about old numbers", SOON, || {
            let found = alarms(pair, "counter-reversal").pop();
            Ok(found.ok_or_else(|| pair.one.alarms().unwrap().to_string()))
        });
        over.store(true, Ordering::Relaxed);
        found
    });
    found.unwrap();
}

#[test]
fn every_attack_raises_its_alarm_and_ordinary_traffic_raises_none() {
    let pair = &Scenario::new("watched", Kind::Testudo).start();
    pair.up(Side::Two);
    let known = spy(pair);
    pair.ping_both_ways();
    pair.tcp_both_ways(Family::V4);
    assert_eq!(pair.one.alarms().unwrap()["alarms"], serde_json::json!([]));

    let to_mac = pair.t.gw1.mac(OUTER).unwrap();
    let injector = Injector::open(&pair.t.wire, WIRE_PORTS[0]).unwrap();
    let road = Road::to(Side::One, Family::V4, to_mac);
    let mut attacker = Attacker { pair, injector, road, known, random: Random::new(7) };
    let child = format!("CHILD_SA #{}", pair.sas(Side::One)[0].children[0].get("uniqueid").unwrap());
    let peer = Side::Two.outer(Family::V4).to_string();

    let replays = attacker.is_noticed(attacks::replayed, "replay-burst");
    assert_eq!((&replays["subject"], &replays["severity"]), (&child.as_str().into(), &"warning".into()));
    assert!(replays["evidence"].as_str().unwrap().contains("sequence number"), "{replays}");
    let forged = attacker.is_noticed(attacks::forged, "forged-packets");
    assert_eq!(forged["subject"], child.as_str());
    assert!(forged["sources"][&peer].as_u64() > Some(0), "{forged}");
    attacker.is_noticed(attacks::unknown_spi, "spi-scan");
    let clear = attacker.is_noticed(attacks::clear_from_inside, "clear-text");
    assert_eq!(clear["severity"], "critical");
    let inside = Side::Two.host(Family::V4).to_string();
    assert!(clear["sources"][&inside].as_u64() > Some(0), "{clear}");
    assert!(clear["evidence"].as_str().unwrap().starts_with(&format!("{inside} > ")), "{clear}");
    let guesses = attacker.is_noticed(attacks::guessed, "ike-brute-force");
    assert!(guesses["sources"][&peer].as_u64() > Some(0), "{guesses}");
    (1..=8).flat_map(|id| overlapping(&road, attacker.known.spi, id)).for_each(|part| attacker.send(&part));
    let overlaps = await_alarm(pair, "fragment-overlap");
    assert!(overlaps["sources"][&peer].as_u64() > Some(0), "{overlaps}");
    assert!(overlaps["evidence"].as_str().unwrap().contains("fragment of "), "{overlaps}");
    (0..16).for_each(|number| attacker.send(&about_nothing(&road, number)));
    await_alarm(pair, "path-mtu");
    for _ in 0..4 * FRAMES {
        let request = ike_sa_init(&mut attacker.random);
        attacker.send(&road.datagram(500, &request));
    }
    await_alarm(pair, "half-open-flood");

    play_back_alone(&attacker);
    // Nothing of this has disturbed the tunnel. The last attack does, if nobody acts.
    claim_our_addresses(&attacker);
    pair.ping_both_ways();
    steal_the_peers_address(&attacker, to_mac);

    let all = pair.one.alarms().unwrap();
    let kinds: BTreeSet<&str> =
        all["alarms"].as_array().unwrap().iter().filter_map(|alarm| alarm["kind"].as_str()).collect();
    let expected = [
        "address-spoofing",
        "clear-text",
        "counter-reversal",
        "forged-packets",
        "fragment-overlap",
        "half-open-flood",
        "ike-brute-force",
        "path-mtu",
        "replay-burst",
        "spi-scan",
    ];
    assert_eq!(kinds, BTreeSet::from(expected), "{all}");
    let counters = &pair.one.status().unwrap()["counters"]["alarms"];
    assert!(expected.iter().all(|kind| counters[kind].as_u64() > Some(0)), "{counters}");
    pair.await_said("(critical, clear-text)");
}

/// The peer's packets are kept on their way, and arrive each eight in the opposite order: all are
/// accepted, and that is noticed.
#[test]
fn packets_behind_later_ones_raise_their_alarm() {
    const PACKETS: u16 = 640;
    let pair = &Scenario::new("reordered", Kind::Testudo).settings(SENSITIVE).start();
    pair.up(Side::One);
    pair.ping_both_ways();
    let [ours, theirs] = WIRE_PORTS;
    // The peer does not notice that nobody answers.
    let mac = pair.t.gw1.mac(OUTER).unwrap().map(|octet| format!("{octet:02x}")).join(":");
    let address = Side::One.outer(Family::V4);
    let lasting = format!("neighbour replace {address} lladdr {mac} dev {OUTER} nud permanent");
    pair.t.gw2.ip(&lasting).unwrap();
    pair.t.wire.ip(&format!("link set {ours} nomaster")).unwrap();
    let kept = Capture::esp(&pair.t.wire, theirs, PACKETS.into()).unwrap();
    let quick = Duration::from_millis(1);
    let to = Side::One.host(Family::V4);
    // A busy host sends fewer in that time.
    let ping = Ping { interval: quick, patience: quick, ..Ping::new(to).count(2 * PACKETS) };
    wait_until("the peer's packets", SOON, || {
        assert_eq!(ping.run(&pair.t.server)?.received, 0);
        let enough = kept.await_packets(PACKETS.into(), Duration::from_secs(1));
        Ok(enough.map_err(|error| error.to_string()))
    })
    .unwrap();
    let frames = kept.stop().unwrap().frames().unwrap();

    let injector = Injector::open(&pair.t.wire, ours).unwrap();
    // Far more than the threshold, wherever a second ends, and also if they take many.
    for eight in frames.chunks(8) {
        eight.iter().rev().for_each(|frame| injector.send(frame).unwrap());
        sleep(Duration::from_micros(500));
    }
    let alarm = await_alarm(pair, "reordering");
    assert_eq!(alarm["severity"], "notice");
    assert!(alarm["evidence"].as_str().unwrap().contains("came behind later ones"), "{alarm}");
    assert_eq!(pair.dropped("replayed") + pair.dropped("replay_too_old"), 0);
}
