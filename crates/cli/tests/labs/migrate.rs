//! `testudo migrate` between two hosts, with real QEMUs, daemons and faults. After each the virtual
//! machine runs at exactly one of them, and counts.

mod attacked;
mod hosts;

use hosts::{Hosts, LIMIT, NAME, SECRET, UID, ended, report};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use testudo_lab::capture::Capture;
use testudo_lab::guest::{Libvirt, Migrant};
use testudo_lab::process::Process;
use testudo_lab::topology::{Family, Side, WIRE_PORTS};
use testudo_lab::{Topology, wait_until};
use testudo_qmp::Client;

/// Octets a second of a migration that does not end while something happens to it.
const SLOW: u64 = 2_000_000;
/// More than the wire carries.
const FAST: u64 = 1 << 30;
/// Milliseconds that the virtual machine may pause for. QEMU before 9.0 does not mark the pages that
/// an emulated processor writes between two rounds, if it has written them before: the destination
/// gets old ones, and the guest crashes, without IPsec too. With this pause there is one round.
const PAUSE: &str = "100000";

const TCP: u8 = 6;
const ESP: u8 = 50;
const AH: u8 = 51;

/// The migration ends like that, and the virtual machine runs at the source.
fn at_the_source_after(result: &str, migration: Process) -> Value {
    let (report, succeeded) = ended(migration);
    assert!(!succeeded);
    let expected = (&json!(result), &json!("source"));
    assert_eq!((&report["result"], &report["runs_at"]), expected, "{report:#}");
    report
}

/// Somebody on the wire.
struct Spy {
    clear: Capture,
    all: Capture,
}

impl Spy {
    fn on(t: &Topology) -> Self {
        let clear = Capture::clear_text(&t.wire).unwrap();
        Self { clear, all: Capture::everything_fast(&t.wire).unwrap() }
    }

    /// Nothing went in clear but these, and the secret is in none of the packets.
    fn has_read_nothing_but(self, expected: fn(&[u8]) -> bool) {
        let (clear, all) = (self.clear.stop().unwrap(), self.all.stop().unwrap());
        assert_eq!((clear.lost, all.lost), (0, 0));
        let frames = clear.frames().unwrap();
        assert!(frames.iter().all(|frame| expected(frame)), "{}", clear.show(10).unwrap());
        assert!(!all.contains(SECRET.as_bytes()).unwrap());
    }
}

#[test]
fn a_virtual_machine_moves_and_nothing_of_it_can_be_read() {
    let hosts = Hosts::start("migrate");
    hosts.expect(Side::One, "gw1.lab.example");
    hosts.expect(Side::Two, "gw2.lab.example");
    let spy = Spy::on(&hosts.t);
    let done = hosts.command(&["--downtime", PAUSE]).run_any().unwrap();
    let report = report(&done);
    assert!(done.status.success(), "{report:#}");
    assert_eq!(report["result"], "completed");
    assert_eq!(report["runs_at"], "destination");
    assert_eq!(report["actions"], json!([]), "QEMU does it alone");
    let met = report["requirements"].as_array().unwrap().iter().map(|one| &one["ok"]);
    assert_eq!(met.collect::<Vec<_>>(), [true; 4]);
    let expected = "gw1.lab.example (192.0.2.1, as the policy expects) and gw2.lab.example \
                    (192.0.2.2, as the policy expects), child lab in transport mode";
    assert_eq!(report["requirements"][0]["found"], expected);
    let octets = report["figures"]["octets"].as_u64().unwrap();
    assert!(octets > 64 << 20, "{report:#}");
    // None is larger than the MTU.
    assert!(report["packets"]["outbound"].as_u64() > Some(octets / 1500), "{report:#}");
    // Nothing passes in clear.
    assert_eq!(report["path"]["unknown"], "no answer to echo requests of 1280 octets");
    // A packet that asks for a connection in clear is not answered.
    let protected = report["requirements"][2]["found"].as_str().unwrap();
    assert!(protected.ends_with(", and one in clear was dropped at the destination"), "{protected}");
    // Each testudod has one worker.
    assert_eq!(report["multifd"]["channels"], Value::Null, "{report:#}");
    let loads = report["loads"].as_array().unwrap();
    assert_eq!(loads.iter().map(|load| &load["side"]).collect::<Vec<_>>(), ["source", "destination"]);
    // Both are this machine, which emulates a processor and encrypts.
    assert!(loads.iter().all(|load| load["peak"].as_u64() > Some(0)), "{report:#}");
    assert!(done.stderr.contains("allowed migrate of \"web1\" to 192.0.2.2 by"), "{}", done.stderr);
    hosts.run_at_destination();
    spy.has_read_nothing_but(asks_for_the_connection);
    would_be_read_without_protection(&hosts);
}

/// It moves back between addresses that no policy has: then the secret is found.
fn would_be_read_without_protection(hosts: &Hosts) {
    let source = Migrant::expect(&hosts.t.gw1, NAME, SECRET).unwrap();
    let all = Capture::everything_fast(&hosts.t.wire).unwrap();
    let address = SocketAddr::new(Side::One.outer(Family::V6), hosts::PORT);
    let uri = json!({ "uri": format!("tcp:{address}") });
    let [mut from, mut to] =
        [&hosts.destination, &source].map(|migrant| Client::connect(migrant.monitor(), LIMIT).unwrap());
    to.execute("migrate-incoming", uri.clone()).unwrap();
    from.execute("migrate", uri).unwrap();
    wait_until("the migration in clear", LIMIT, || {
        let migration = from.execute("query-migrate", json!({})).unwrap();
        Ok(if migration["status"] == "completed" { Ok(()) } else { Err(migration.to_string()) })
    })
    .unwrap();
    assert!(all.stop().unwrap().contains(SECRET.as_bytes()).unwrap());
}

/// A TCP segment to the migration port with the flag SYN, without options and data.
fn asks_for_the_connection(frame: &[u8]) -> bool {
    let is = |at: usize, octets: &[u8]| frame.get(at..at + octets.len()) == Some(octets);
    let segment = if is(12, &[8, 0, 0x45]) && is(16, &[0, 40]) && is(23, &[TCP]) {
        34
    } else if is(12, &[0x86, 0xdd]) && is(18, &[0, 20, TCP]) {
        54
    } else {
        return false;
    };
    is(segment + 2, &hosts::PORT.to_be_bytes()) && is(segment + 12, &[0x50, 2])
}

/// libvirt drives the emulators, and has them use the addresses of the SAs.
#[test]
fn a_virtual_machine_of_libvirt_moves_and_nothing_of_it_can_be_read() {
    let t = hosts::build("migrate-libvirt");
    let [source, destination] = [&t.gw1, &t.gw2].map(|host| Libvirt::start(host).unwrap());
    source.boot(NAME, SECRET).unwrap();
    let _daemons = hosts::protect(&t, |side| hosts::connection(side, Family::V4));
    let spy = Spy::on(&t);
    let before = t.wire.statistic(WIRE_PORTS[0], "rx_bytes").unwrap();
    let address = SocketAddr::new(Side::Two.outer(Family::V4), hosts::PORT);
    source.migrate(NAME, &destination, address).unwrap();
    let octets = t.wire.statistic(WIRE_PORTS[0], "rx_bytes").unwrap() - before;
    assert!(octets > 64 << 20, "{octets}");
    assert_eq!([&source, &destination].map(|host| host.running().unwrap()), [vec![], vec![NAME.to_owned()]]);
    destination.await_counts().unwrap();
    hosts::goes_on(&source.counts().unwrap(), &destination.counts().unwrap());
    spy.has_read_nothing_but(|_| false);
}

/// The network between the hosts drops what is larger than 1400 octets, or a VLAN tag more, without
/// a word.
#[test]
fn the_path_takes_less_than_the_interface_and_does_not_tell() {
    let hosts = Hosts::start_with_clear("migrate-narrow");
    // Nobody listens there, and the answer that says so comes in clear.
    let ssh = SocketAddr::new(Side::Two.outer(Family::V4), 22);
    let refused = hosts.t.gw1.enter(|| TcpStream::connect_timeout(&ssh, LIMIT).unwrap_err()).unwrap();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    WIRE_PORTS.iter().for_each(|port| hosts.t.wire.up(port, 1400).unwrap());
    let done = hosts.command(&["--downtime", PAUSE, "--stall", "10"]).run_any().unwrap();
    let report = report(&done);
    assert!(done.status.success(), "{report:#}");
    let path = &report["path"];
    assert_eq!((&path["expected_mtu"], &path["told"]), (&json!(1500), &json!(["source", "destination"])));
    let mtu = path["mtu"].as_u64().unwrap();
    assert!((1400..=1404).contains(&mtu), "{report:#}");
    assert_eq!(path["restored"], json!(["source", "destination"]));
    hosts.forget_the_path(&mtu.to_string());
    hosts.run_at_destination();
}

#[test]
#[ignore = "make test-all: a combination of what others prove"]
fn a_virtual_machine_moves_by_several_connections() {
    let hosts = Hosts::start("migrate-multifd");
    let done = hosts.command(&["--multifd", "2", "--downtime", PAUSE]).run_any().unwrap();
    let report = report(&done);
    assert!(done.status.success(), "{report:#}");
    assert_eq!(report["multifd"], json!({ "channels": 2, "why": "--multifd 2" }));
    hosts.run_at_destination();
}

/// Nothing is lost, or in clear, between the old keys and the new ones.
#[test]
#[ignore = "make test-all: a combination of what others prove"]
fn a_virtual_machine_moves_while_its_sa_gets_new_keys() {
    let hosts = Hosts::start("migrate-rekeyed");
    hosts.slow("16mbit");
    let spy = Spy::on(&hosts.t);
    let migration = hosts.begin(FAST, &["--downtime", PAUSE]);
    hosts.rekey();
    hosts.hurry();
    let (report, succeeded) = ended(migration);
    assert!(succeeded, "{report:#}");
    // They are counted for one SA.
    let expected = (&json!("destination"), &Value::Null);
    assert_eq!((&report["runs_at"], &report["packets"]), expected, "{report:#}");
    hosts.run_at_destination();
    spy.has_read_nothing_but(asks_for_the_connection);
}

#[test]
#[ignore = "make test-all: the other family"]
fn a_virtual_machine_moves_over_ipv6() {
    let hosts = Hosts::start_over_ipv6("migrate-ipv6");
    let clear = Capture::clear_text(&hosts.t.wire).unwrap();
    moves(&hosts);
    let clear = clear.stop().unwrap();
    let probes = clear.frames().unwrap().iter().filter(|frame| asks_for_the_connection(frame)).count();
    assert!(probes > 0 && clear.packets == probes as u64, "{}", clear.show(10).unwrap());
}

/// The two SAs of [MIG].
#[test]
#[ignore = "make test-all: a combination of what others prove"]
fn a_virtual_machine_moves_through_ah_around_esp() {
    let hosts = Hosts::start_with_ah("migrate-ah");
    let all = Capture::everything_fast(&hosts.t.wire).unwrap();
    moves(&hosts);
    let all = all.stop().unwrap();
    assert_eq!(all.lost, 0);
    assert!(!all.contains(SECRET.as_bytes()).unwrap());
    let protocols: Vec<u8> = all.frames().unwrap().iter().filter_map(|frame| ipv4_protocol(frame)).collect();
    let of = |protocol: u8| protocols.iter().filter(|found| **found == protocol).count();
    // Nothing goes as ESP or TCP alone, but for the probe.
    let in_clear = all.frames().unwrap().iter().filter(|frame| asks_for_the_connection(frame)).count();
    assert!(of(AH) > 40_000 && of(ESP) == 0, "{} {}", of(AH), of(ESP));
    assert_eq!((of(TCP), in_clear > 0), (in_clear, true));
}

fn ipv4_protocol(frame: &[u8]) -> Option<u8> {
    (frame.get(12..14)? == [8, 0]).then(|| frame.get(23).copied())?
}

fn moves(hosts: &Hosts) {
    let done = hosts.command(&["--downtime", PAUSE]).run_any().unwrap();
    let report = report(&done);
    assert!(done.status.success(), "{report:#}");
    hosts.run_at_destination();
}

/// Neither a permission nor the SA may be missing, and a refusal changes nothing.
#[test]
fn what_is_not_allowed_or_not_protected_is_refused() {
    let hosts = Hosts::start("migrate-refused");
    let refused = |number: usize, found: &str| {
        let done = hosts.command(&[]).run_any().unwrap();
        let report = report(&done);
        assert!(!done.status.success());
        assert_eq!(report["result"], "refused");
        let requirement = &report["requirements"][number - 1];
        assert_eq!(requirement["ok"], false, "{report:#}");
        assert!(requirement["found"].as_str().unwrap().contains(found), "{report:#}");
        for migrant in [&hosts.source, &hosts.destination] {
            let mut monitor = Client::connect(migrant.monitor(), LIMIT).unwrap();
            // A restored state has come by a migration, which is over and has no time.
            let answer = monitor.execute("query-migrate", json!({})).unwrap();
            assert_eq!(answer.get("total-time"), None, "{answer}");
        }
        hosts.run_at_source();
        done
    };
    hosts.allow("1001");
    let done = refused(2, "no rule of");
    assert!(done.stderr.contains("refused migrate of \"web1\" to 192.0.2.2 by"), "{}", done.stderr);
    hosts.allow("1000");
    hosts.expect(Side::Two, "gw3.lab.example");
    refused(1, "192.0.2.2 has authenticated as \"gw2.lab.example\", ");
    hosts.allow("1000");
    hosts.daemons[0].swanctl().terminate("lab").unwrap();
    refused(1, "no installed Child SA in transport mode");
}

#[test]
fn the_source_goes_on_if_the_destination_dies() {
    let mut hosts = Hosts::start("migrate-killed");
    let migration = hosts.begin(SLOW, &[]);
    hosts.destination.process().kill();
    at_the_source_after("failed", migration);
    hosts.run_at_source();
}

/// Nobody can say any more whether somebody attacks.
#[test]
fn the_source_goes_on_if_testudod_dies() {
    let mut hosts = Hosts::start("migrate-daemon");
    let migration = hosts.begin(SLOW, &[]);
    hosts.daemons[1].process().kill();
    let report = at_the_source_after("cancelled", migration);
    let reason = report["reason"].as_str().unwrap();
    assert!(reason.starts_with("the destination's testudod cannot be asked for alarms: "), "{reason}");
    hosts.run_at_source();
}

/// The virtual machine is lost then, and nothing is started in its place: what the destination has
/// received is not all of it.
#[test]
fn nothing_runs_if_the_source_dies() {
    let mut hosts = Hosts::start("migrate-lost");
    let migration = hosts.begin(SLOW, &[]);
    hosts.source.process().kill();
    let (report, succeeded) = ended(migration);
    assert!(!succeeded);
    assert_eq!((&report["result"], &report["runs_at"]), (&json!("source-gone"), &Value::Null), "{report:#}");
    assert_eq!(report["actions"], json!([]), "{report:#}");
    let unsettled = report["unsettled"].as_str().unwrap();
    let expected = "the source is gone, and the destination has not received its whole state";
    assert!(unsettled.starts_with(expected), "{unsettled}");
    assert_ne!(hosts.status()[1], "running");
    assert_eq!(hosts.destination.counts().unwrap(), Vec::<u64>::new());
}

/// QEMU goes on alone, and a later command finds what has come of it.
#[test]
fn a_killed_command_does_no_harm() {
    let hosts = Hosts::start_with_clear("migrate-orphan");
    WIRE_PORTS.iter().for_each(|port| hosts.t.wire.up(port, 1400).unwrap());
    let mut migration = hosts.begin(SLOW, &[]);
    migration.kill();
    assert!(hosts.destination.counts().unwrap().is_empty(), "in the middle");
    cannot_be_ended_without_permission(&hosts);
    let mut monitor = Client::connect(hosts.source.monitor(), LIMIT).unwrap();
    let pause: u64 = PAUSE.parse().unwrap();
    let fast = json!({ "downtime-limit": pause, "max-bandwidth": 1_u64 << 30 });
    monitor.execute("migrate-set-parameters", fast).unwrap();
    drop(monitor);
    let done = hosts.command(&["--verify"]).run_any().unwrap();
    let report = report(&done);
    assert!(done.status.success(), "{report:#}");
    assert_eq!(report["runs_at"], "destination", "{report:#}");
    // It has told both testudods what the path takes, and could not take that back.
    hosts.forget_the_path("14");
    hosts.run_at_destination();
}

/// Who may only begin a migration gets no `--verify`, which leaves a migration under way alone.
fn cannot_be_ended_without_permission(hosts: &Hosts) {
    hosts.allow_only(UID, &["migrate"]);
    let refused = hosts.command(&["--verify"]).run_any().unwrap();
    assert_eq!((refused.status.code(), refused.stdout.as_str()), (Some(1), ""), "{refused:?}");
    for said in [
        "refused terminate of \"web1\" to 192.0.2.2 by ",
        "[[allow]] there needs user, vm, to, and actions with \"terminate\"",
    ] {
        assert!(refused.stderr.contains(said), "{}", refused.stderr);
    }
    let mut monitor = Client::connect(hosts.source.monitor(), LIMIT).unwrap();
    let migration = monitor.execute("query-migrate", json!({})).unwrap();
    assert_eq!(migration["status"], "active");
    hosts.allow(UID);
}

/// QEMU does not answer while the virtual machine stands still, here for longer than the command
/// waits for an answer (10 s).
#[test]
fn a_long_pause_is_not_a_stall() {
    let hosts = Hosts::start("migrate-pause");
    hosts.slow("80mbit");
    let done = hosts.command(&["--downtime", PAUSE, "--stall", "1"]).run_any().unwrap();
    let report = report(&done);
    assert!(done.status.success(), "{report:#}");
    let paused = report["figures"]["downtime_ms"].as_u64();
    assert!(paused > Some(12_000), "{report:#}");
    hosts.run_at_destination();
}

/// What it has to say is lost, and nothing else.
#[test]
fn a_full_disk_does_no_harm() {
    let hosts = Hosts::start("migrate-full");
    let done = hosts.command_on_a_full_disk(&["--downtime", PAUSE]).run_any().unwrap();
    assert_eq!(done.status.code(), Some(1), "{done:?}");
    let report = report(&hosts.command(&["--verify"]).run_any().unwrap());
    assert_eq!(report["runs_at"], "destination", "{report:#}");
    hosts.run_at_destination();
}

#[test]
fn the_source_goes_on_if_the_command_is_ended() {
    let hosts = Hosts::start("migrate-ended");
    let mut migration = hosts.begin(SLOW, &[]);
    migration.signal(Signal::SIGTERM).unwrap();
    let report = at_the_source_after("cancelled", migration);
    assert_eq!(report["reason"], "interrupted");
    hosts.run_at_source();
}

#[test]
fn the_source_goes_on_if_the_link_is_cut() {
    let hosts = Hosts::start("migrate-cut");
    let migration = hosts.begin(SLOW, &["--stall", "3"]);
    hosts.t.wire.ip(&format!("link set {} down", WIRE_PORTS[1])).unwrap();
    let report = at_the_source_after("cancelled", migration);
    assert_eq!(report["reason"], "no progress for 3 seconds");
    hosts.run_at_source();
    // What the source's kernel has not sent may be delivered now: it starts nothing.
    hosts.t.wire.ip(&format!("link set {} up", WIRE_PORTS[1])).unwrap();
    wait_until("the link", LIMIT, || {
        let log = hosts.daemons[1].log()?;
        Ok(if log.contains("port outer0: link is up") { Ok(()) } else { Err(log) })
    })
    .unwrap();
    hosts.run_at_source();
}
