//! Commands of operators, except `--initiate`: Debian's swanctl and a running gateway.

use crate::common::{Pair, SOON, Scenario};
use nix::sys::signal::Signal;
use std::time::Instant;
use testudo_lab::command::Finished;
use testudo_lab::gateway::Kind;
use testudo_lab::process::Process;
use testudo_lab::swanctl::{ChildSa, IkeSa};
use testudo_lab::swanctl_conf::Connection;
use testudo_lab::topology::{Family, Side, WIRE_PORTS};
use testudo_lab::wait_until;

/// Starts swanctl in the background. It writes what it has seen when it ends.
fn follow(pair: &Pair, args: &[&str]) -> Process {
    let process = pair.t.gw1.start("follow", pair.one.swanctl().cmd(args.iter().copied())).unwrap();
    // swanctl prints nothing before its first event. When it has registered, it waits for a signal.
    let place = format!("/proc/{}/wchan", process.pid());
    wait_until("swanctl to have registered", SOON, || {
        let place = std::fs::read_to_string(&place).unwrap_or_default();
        Ok(if place.contains("sigtimedwait") { Ok(()) } else { Err(place) })
    })
    .unwrap();
    process
}

/// The output of such a swanctl, ended as by Ctrl-C.
fn seen(mut process: Process) -> String {
    process.signal(Signal::SIGINT).unwrap();
    process.wait(SOON).unwrap();
    process.log().unwrap()
}

fn said(done: &Finished) -> String {
    format!("{}{}", done.stdout, done.stderr)
}

/// The output of swanctl for a command that must fail.
fn refused(pair: &Pair, args: &[&str]) -> String {
    let done = pair.one.swanctl().cmd(args.iter().copied()).run_any().unwrap();
    assert!(!done.status.success(), "{}", said(&done));
    said(&done)
}

fn only(pair: &Pair) -> IkeSa {
    let mut sas = pair.sas(Side::One);
    assert_eq!(sas.len(), 1, "{sas:?}");
    sas.remove(0)
}

fn id(value: Option<&str>) -> String {
    value.expect("a number").to_owned()
}

/// `--list-sas`: what the daemon tells the lab without swanctl, strongSwan as well as we.
#[test]
fn list_sas_shows_what_the_daemon_says() {
    let pair = Scenario::new("list-sas", Kind::Strongswan).start();
    pair.up(Side::One);
    for side in [Side::One, Side::Two] {
        let [asked, shown] = [pair.sas(side), pair.swanctl(side).list_sas_raw().unwrap()];
        let [asked, shown] = [asked, shown].map(|sas| sas.iter().map(outline).collect::<Vec<_>>());
        assert_eq!(asked, shown, "at side {side:?}");
        assert_eq!(asked.len(), 1);
    }
}

/// What does not change while nothing happens.
fn outline(sa: &IkeSa) -> (String, String, Vec<String>) {
    let text = |value: Option<&str>| value.unwrap_or_default().to_owned();
    let of_child = |child: &ChildSa| {
        let values = ["spi-in", "spi-out", "encr-alg", "local-ts", "remote-ts", "packets-in"];
        let values = values.map(|key| text(child.get(key)));
        format!("{} {} {}", child.name, child.state, values.join(" "))
    };
    let values = ["initiator-spi", "remote-id", "encr-alg"].map(|key| text(sa.get(key)));
    (
        sa.name.clone(),
        format!("{} {}", sa.state, values.join(" ")),
        sa.children.iter().map(of_child).collect(),
    )
}

/// `--monitor-sa`: every SA that comes and goes, in order.
#[test]
fn monitor_sa_shows_what_comes_and_goes() {
    let pair = Scenario::new("monitor", Kind::Strongswan).start();
    let monitor = follow(&pair, &["--monitor-sa", "--raw"]);
    pair.up(Side::One);
    pair.swanctl(Side::One).terminate("lab").unwrap();
    pair.await_sas(Side::Two, 0, SOON);
    let shown = seen(monitor);
    let mut rest = shown.as_str();
    for event in
        ["ike-updown event {up=yes", "child-updown event {up=yes", "child-updown event", "ike-updown event"]
    {
        let at = rest.find(event).unwrap_or_else(|| panic!("no {event}: {shown}"));
        rest = &rest[at + event.len()..];
    }
    assert_eq!(shown.matches("up=yes").count(), 2, "{shown}");
    assert!(shown.contains("remote-id=gw2.lab.example"), "{shown}");
}

/// `--log`: the lines of the daemon's log.
#[test]
fn log_shows_what_the_daemon_says() {
    let pair = Scenario::new("log", Kind::Strongswan).start();
    let log = follow(&pair, &["--log"]);
    pair.up(Side::One);
    let shown = seen(log);
    for line in ["initiating IKE_SA lab[1] to 192.0.2.2", "CHILD_SA lab{1} established with SPIs"] {
        assert!(shown.contains(line), "no {line}: {shown}");
    }
    assert!(!shown.contains("a key that only the lab knows"));
}

/// By number, of a Child SA and of an IKE SA; a missing one is reported.
#[test]
fn terminate_takes_numbers() {
    let pair = Scenario::new("numbers", Kind::Strongswan).start();
    pair.up(Side::One);
    let sa = only(&pair);
    let terminate = |what: &str, number: &str| {
        pair.swanctl(Side::One).run(["--terminate", what, number, "--timeout", "10"]).unwrap()
    };
    terminate("--child-id", &id(sa.children[0].get("uniqueid")));
    let left = only(&pair);
    assert_eq!((left.get("uniqueid"), left.children.len()), (sa.get("uniqueid"), 0));
    let why = refused(&pair, &["--terminate", "--child-id", &id(sa.children[0].get("uniqueid"))]);
    assert!(why.contains("no matching SAs to terminate found"), "{why}");
    terminate("--ike-id", &id(sa.get("uniqueid")));
    for side in [Side::One, Side::Two] {
        pair.await_sas(side, 0, SOON);
    }
    let why = refused(&pair, &["--terminate", "--ike-id", &id(sa.get("uniqueid"))]);
    assert!(why.contains("no matching SAs to terminate found"), "{why}");
}

/// `--force` does not wait for a peer that is gone.
#[test]
fn terminate_with_force_waits_for_nobody() {
    let pair = Scenario::new("force", Kind::Strongswan).start();
    pair.up(Side::One);
    pair.t.wire.ip(&format!("link set {} down", WIRE_PORTS[1])).unwrap();
    let begun = Instant::now();
    pair.swanctl(Side::One).run(["--terminate", "--ike", "lab", "--force", "--timeout", "20"]).unwrap();
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    assert_eq!(pair.sas(Side::One), []);
}

/// `--list-pols --drop`: the children with that mode, and no others.
#[test]
fn list_pols_shows_what_is_dropped() {
    let pair = Scenario::new("droplist", Kind::Strongswan).start_empty();
    let more =
        "bad {\n local_ts = 10.1.0.0/24\n remote_ts = 10.66.0.0/16\n mode = drop\n start_action = trap\n }";
    let text = Connection::of(Side::One, Family::V4).to_string();
    pair.one.swanctl().load(&text.replacen("children {\n", &format!("children {{\n{more}\n"), 1)).unwrap();
    let listed = |args: &[&str]| pair.one.swanctl().run(args.iter().copied()).unwrap().stdout;
    let dropped = listed(&["--list-pols", "--drop"]);
    assert!(dropped.contains("bad, DROP") && dropped.contains("10.66.0.0/16"), "{dropped}");
    assert!(!dropped.contains("10.2.0.0/24"), "{dropped}");
    let trapped = listed(&["--list-pols", "--trap"]);
    assert!(!trapped.contains("10.66.0.0/16"), "{trapped}");
}

/// Unsupported commands are refused with an error, and change nothing.
#[test]
fn what_is_not_supported_is_refused_by_name() {
    let pair = Scenario::new("unsupported", Kind::Strongswan).start();
    pair.up(Side::One);
    let why = refused(&pair, &["--redirect", "--ike", "lab", "--gateway", "192.0.2.9"]);
    assert!(why.contains("redirecting is not supported yet"), "{why}");
    let text = Connection::of(Side::One, Family::V4).to_string();
    let token = "token-card {\n handle = 0102\n pin = 1234\n }";
    pair.one
        .swanctl()
        .write_conf(&text.replacen("secrets {\n", &format!("secrets {{\n{token}\n"), 1))
        .unwrap();
    // swanctl tells it, and counts it as no failure of its own.
    let loaded = said(&pair.one.swanctl().run(["--load-creds", "--noprompt"]).unwrap());
    assert!(loaded.contains("loading 'token-card' failed: tokens are not supported yet"), "{loaded}");
    pair.ping_both_ways();
}
