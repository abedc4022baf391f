//! A gateway with a tunnel under attack from the untrusted network: more than ten thousand
//! malformed, truncated, replayed and forged frames. None crashes it, none gets through, each is
//! counted under its reason, and the tunnel continues.

mod attacks;
mod dropped;
mod noticed;
mod watched;

use crate::common::{Arrivals, Pair, SOON, Scenario};
use attacks::{Attack, IKE, Knowledge};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use testudo_lab::capture::written;
use testudo_lab::gateway::Kind;
use testudo_lab::inject::Injector;
use testudo_lab::ping::Ping;
use testudo_lab::topology::{Family, HOST, OUTER, Side, WIRE_PORTS};
use testudo_lab::wait_until;

/// Of each kind in each family: 56 kinds.
const COUNT: usize = 200;
/// Frames between two rests, so that neither AF_XDP rings nor the sockets of IKE overflow.
const BURST: usize = 32;
const REST: Duration = Duration::from_millis(2);

/// Counters by name: all drops, and IKE's discards as one.
type Counted = BTreeMap<String, u64>;

fn counted(pair: &Pair) -> Counted {
    let status = pair.status(Side::One);
    let numbers = |section: &str| -> Counted {
        let section = status["counters"][section].as_object().expect(section);
        section.iter().map(|(name, n)| (name.clone(), n.as_u64().unwrap_or_default())).collect()
    };
    let discarded = numbers("ike").into_iter().filter(|(name, _)| name.starts_with("discarded_"));
    let discarded = discarded.map(|(_, n)| n).sum();
    let mut counted = numbers("drops");
    counted.insert(IKE.to_owned(), discarded);
    counted
}

/// The counters that have grown, and by how much.
fn growth(before: &Counted, after: &Counted) -> Counted {
    let grown =
        after.iter().map(|(name, n)| (name.clone(), n - before.get(name).copied().unwrap_or_default()));
    grown.filter(|(_, n)| *n > 0).collect()
}

/// Waits until all `sent` frames have been counted, and shows where.
fn await_count(pair: &Pair, before: &Counted, sent: usize) -> Counted {
    wait_until("all frames to be counted", SOON, || {
        let grown = growth(before, &counted(pair));
        let total: u64 = grown.values().sum();
        Ok(if total >= sent as u64 { Ok(grown) } else { Err(format!("{total} of {sent}: {grown:?}")) })
    })
    .unwrap()
}

fn fire(injector: &Injector, attacks: &[Attack]) {
    for burst in attacks.chunks(BURST) {
        burst.iter().for_each(|attack| injector.send(&attack.frame).unwrap());
        std::thread::sleep(REST);
    }
}

/// Looks at the tunnel as an attacker does: the SPIs in the headers, and real packets of the peer.
fn spy(pair: &Pair) -> Knowledge {
    let file = pair.t.wire.lab().dir().join("spied.pcap");
    let tap = pair.t.wire.cmd("tcpdump").args(["-i", WIRE_PORTS[1], "-Q", "in", "-U", "--immediate-mode"]);
    let tap = tap.args(["-Z", "root", "-c", "60", "-w"]).arg(&file).arg("esp");
    let mut tap = pair.t.wire.start("spy", tap).unwrap();
    tap.wait_log("listening on", SOON).unwrap();
    for family in [Family::V4, Family::V6] {
        let pong = Ping::new(Side::Two.host(family)).count(30).size(300).run(&pair.t.client).unwrap();
        assert_eq!(pong.received, 30);
    }
    tap.wait(SOON).unwrap();
    let octets = std::fs::read(&file).unwrap();
    let captured: Vec<Vec<u8>> = written(&octets).into_iter().map(<[u8]>::to_vec).collect();
    assert_eq!(captured.len(), 60);
    let sas = pair.sas(Side::One);
    let hex = |text: Option<&str>| u64::from_str_radix(text.unwrap_or_default(), 16).unwrap();
    Knowledge {
        spi: hex(sas[0].children[0].get("spi-in")) as u32,
        // Far beyond what the tunnel will reach here.
        fresh: 1 << 30,
        ike_spis: (hex(sas[0].get("initiator-spi")), hex(sas[0].get("responder-spi"))),
        captured,
    }
}

fn under_fire(outer: Family) {
    let pair = &mut Scenario::new("hostile", Kind::Testudo).outer(outer).start();
    pair.up(Side::One);
    let known = spy(pair);
    let to_mac = pair.t.gw1.mac(OUTER).unwrap();
    let injector = Injector::open(&pair.t.wire, WIRE_PORTS[0]).unwrap();
    each_frame_is_counted_and_none_arrives(pair, &injector, &attacks::all(1, COUNT, to_mac, &known));
    the_tunnel_goes_on(pair, &injector, &attacks::all(2, COUNT, to_mac, &known));
    pair.one.process().alive().unwrap();

    // Nothing was lost of what it takes to set up another tunnel.
    pair.swanctl(Side::One).terminate("lab").unwrap();
    pair.await_sas(Side::Two, 0, SOON);
    pair.up(Side::Two);
    pair.ping_both_ways();
    // A flood of datagrams must not become a flood of lines.
    let lines = pair.one.log().unwrap().lines().count();
    assert!(lines < 1000, "{lines} lines of log");
}

/// Without other traffic the counters must fit exactly.
fn each_frame_is_counted_and_none_arrives(pair: &Pair, injector: &Injector, attacks: &[Attack]) {
    assert!(attacks.len() >= 10_000);
    let mut expected = Counted::new();
    for attack in attacks {
        *expected.entry(attack.counter.to_owned()).or_default() += 1;
    }
    let arrivals = Arrivals::count(&pair.t.client, HOST, &[]);
    let (before, encrypted) = (counted(pair), encrypted(pair));
    fire(injector, attacks);
    let grown = await_count(pair, &before, attacks.len());
    assert_eq!(grown, expected);
    assert_eq!(arrivals.packets(), 0);
    assert_eq!(self::encrypted(pair), encrypted, "carried to the peer");
}

/// Packets that our side has sent through the tunnel so far.
fn encrypted(pair: &Pair) -> u64 {
    let sas = pair.sas(Side::One);
    sas[0].children[0].get("packets-out").and_then(|count| count.parse().ok()).expect("a counter")
}

/// With the tunnel in use the window moves on, and replays become too old: only the sum fits.
fn the_tunnel_goes_on(pair: &Pair, injector: &Injector, attacks: &[Attack]) {
    let before = counted(pair);
    let over = AtomicBool::new(false);
    let sent = std::thread::scope(|scope| {
        let gun = scope.spawn(|| {
            let mut rounds = 0;
            while !over.load(Ordering::Relaxed) {
                fire(injector, attacks);
                rounds += 1;
            }
            rounds * attacks.len()
        });
        pair.ping_both_ways();
        pair.tcp_both_ways(Family::V4);
        pair.ping_both_ways();
        over.store(true, Ordering::Relaxed);
        gun.join().unwrap()
    });
    assert!(sent >= attacks.len());
    let grown = await_count(pair, &before, sent);
    assert_eq!(grown.values().sum::<u64>(), sent as u64, "{grown:?}");
}

#[test]
fn a_tunnel_over_ipv4_under_fire() {
    under_fire(Family::V4);
}

#[test]
#[ignore = "make test-all: the other family"]
fn a_tunnel_over_ipv6_under_fire() {
    under_fire(Family::V6);
}
