//! Sources of attacks are dropped at the port, if the configuration says so, and nobody else.

use crate::common::{Pair, SOON, Scenario};
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use testudo_lab::frames::{ESP, Random, Road, esp, octets};
use testudo_lab::gateway::Kind;
use testudo_lab::inject::Injector;
use testudo_lab::topology::{Family, OUTER, Side, WIRE_PORTS};
use testudo_lab::{Result, wait_until};

/// Behind `run`, in the section of all alarms.
const SETTINGS: &str = "never_drop = [\"203.0.113.0/24\"]\n[alarms.spi-scan]\ndrop_source = 600\n";
const STRANGER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(198, 51, 100, 77));
const OTHER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(198, 51, 100, 78));
/// In `never_drop`.
const SPARED: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(203, 0, 113, 9));
/// Packets of a burst. The threshold is 16.
const PACKETS: u64 = 64;

/// A program for alarms, which writes down what it is told.
struct Pager {
    program: PathBuf,
    dir: tempfile::TempDir,
}

impl Pager {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("page");
        // What a run is told appears at once.
        let body = format!(
            "#!/bin/sh\ncd {}\nenv | sort >new.$$\nmv new.$$ $TESTUDO_ALARM.$TESTUDO_ALARM_STATE\n",
            dir.path().display()
        );
        std::fs::write(&program, body).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        Self { program, dir }
    }

    /// Waits until it is told of an alarm, and expects these variables among what it is told.
    fn await_told(&self, number: u32, state: &str, expected: &[String]) {
        let told = wait_until(&format!("the program to be told of alarm {number}"), SOON, || {
            let told = std::fs::read_to_string(self.dir.path().join(format!("{number}.{state}")));
            Ok(told.map_err(|error| error.to_string()))
        })
        .unwrap();
        for line in expected {
            assert!(told.lines().any(|found| found == line), "{line}: {told}");
        }
    }
}

struct Scanner<'a> {
    pair: &'a Pair,
    injector: Injector,
    road: Road,
    random: Random,
}

impl Scanner<'_> {
    /// Sends ESP with SPIs that no SA has, as if from this source, again and again until something is
    /// so: a look of the watch sees a few packets of each, and names who has tried many SPIs.
    fn scan(&mut self, source: IpAddr, what: &str, is_so: impl Fn(&Self) -> bool) {
        wait_until(what, SOON, || {
            self.burst(source)?;
            Ok(if is_so(self) { Ok(()) } else { Err(self.alarms().to_string()) })
        })
        .unwrap();
    }

    /// One burst, until all of it is counted.
    fn burst(&mut self, source: IpAddr) -> Result<()> {
        let counted = |pair: &Pair| pair.dropped("unknown_spi") + pair.dropped("filter_drop_source");
        let before = counted(self.pair);
        let us = octets(Side::One.outer(Family::V4));
        for _ in 0..PACKETS {
            let packet = esp(self.random.draw() as u32 | 0x100, 1, &[0x55; 40]);
            self.injector.send(&self.road.between(&octets(source), &us, ESP, &packet))?;
        }
        wait_until(&format!("{source}'s packets"), SOON, || {
            let counted = counted(self.pair) - before;
            Ok(if counted >= PACKETS { Ok(()) } else { Err(format!("{counted}")) })
        })
    }

    fn alarms(&self) -> serde_json::Value {
        self.pair.one.alarms().unwrap()
    }

    fn drops(&self, sources: &[IpAddr]) -> bool {
        let all = self.alarms();
        let of = |entry: &serde_json::Value| entry["source"].as_str().unwrap().parse().unwrap();
        all["dropped"].as_array().unwrap().iter().map(of).collect::<Vec<IpAddr>>() == sources
    }

    /// An alarm names the source, with more sightings than could have raised one in each of two
    /// seconds.
    fn names(&self, source: IpAddr) -> bool {
        let all = self.alarms();
        let counts = |alarm: &serde_json::Value| alarm["sources"][source.to_string()].as_u64();
        all["alarms"].as_array().unwrap().iter().filter_map(counts).any(|count| count > 4 * PACKETS)
    }

    fn says(&self, line: &str) -> bool {
        self.pair.one.log().unwrap().contains(line)
    }
}

#[test]
fn who_scans_is_dropped_at_the_port_unless_it_is_a_peer_or_is_to_be_spared() {
    let pager = Pager::new();
    let settings = format!("[alarms]\nrun = \"{}\"\n{SETTINGS}", pager.program.display());
    let pair = &Scenario::new("dropped", Kind::Testudo).settings(settings.leak()).start();
    pair.up(Side::One);
    pair.ping_both_ways();
    let peer = Side::Two.outer(Family::V4);
    let injector = Injector::open(&pair.t.wire, WIRE_PORTS[0]).unwrap();
    let road = Road::to(Side::One, Family::V4, pair.t.gw1.mac(OUTER).unwrap());
    let mut scanner = Scanner { pair, injector, road, random: Random::new(7) };
    scanner.scan(STRANGER, "the stranger to be dropped", |scanner| scanner.drops(&[STRANGER]));
    let passed = pair.dropped("unknown_spi");
    scanner.burst(STRANGER).unwrap();
    assert_eq!(pair.dropped("unknown_spi"), passed);
    let about = ["KIND=spi-scan", "SEVERITY=warning"].map(|variable| format!("TESTUDO_ALARM_{variable}"));
    pager.await_told(1, "raised", &about);

    scanner.scan(peer, "the peer to be spared", |scanner| {
        scanner.says(&format!("packets from {peer} are not dropped because of alarm "))
            && scanner.says(": a peer has it")
    });
    scanner.scan(SPARED, "an alarm about the spared one", |scanner| scanner.names(SPARED));
    scanner.scan(OTHER, "the other one to be dropped", |scanner| scanner.drops(&[STRANGER, OTHER]));
    pair.ping_both_ways();

    assert_eq!(pair.one.accept(STRANGER).unwrap()["accepted"], STRANGER.to_string());
    assert!(scanner.drops(&[OTHER]));
    let refused = pair.one.accept(STRANGER).unwrap_err().to_string();
    assert!(refused.contains("are not dropped"), "{refused}");
    wait_until("the end of the alarm", SOON, || {
        let lasts =
            scanner.alarms()["alarms"].as_array().unwrap().iter().any(|alarm| alarm["ended"].is_null());
        Ok(if lasts { Err(scanner.alarms().to_string()) } else { Ok(()) })
    })
    .unwrap();
    pager.await_told(1, "ended", &about);
    // Whom an operator has let in is not dropped again, not even by another alarm.
    scanner
        .scan(STRANGER, "the stranger to be spared", |scanner| scanner.says(": an operator has let them in"));
    assert!(scanner.drops(&[OTHER]));
    for line in [
        format!("packets from {STRANGER} are dropped for 600 s because of alarm 1 (spi-scan)"),
        format!("packets from {STRANGER} are let in again, as "),
    ] {
        assert!(scanner.says(&line), "{line}");
    }
}
