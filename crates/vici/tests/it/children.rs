//! `testudo-children`: the configured children as the gateway tells of them.

use crate::support::{TestServer, message};
use testudo_ike::config::Connection;
use testudo_vici::children::{ChildError, ChildReport, ChildState};
use testudo_vici::client::Client;
use testudo_vici::codec::MAX_PACKET;
use testudo_vici::message::Message;
use testudo_vici::schema::{self, Policy};

fn connection(name: &str) -> Connection {
    let psk = || message(&[("auth", "psk")]);
    let content = Message::new().with_section("local", psk()).with_section("remote", psk());
    schema::connection(&Message::new().with_section(name, content), Policy::Modern).unwrap()
}

/// Every field has a value of its own, and what may be missing is once there and once not.
fn reports() -> Vec<ChildReport> {
    let waiting = ChildReport {
        connection: "gw".to_owned(),
        name: "net".to_owned(),
        state: ChildState::Waiting,
        expected: true,
        since: Some(90),
        last_error: Some(ChildError { reason: "no answer from 192.0.2.2:500".to_owned(), ago: 12 }),
        next_try: Some(18),
        silent: Some(7),
        sas: 3,
        node: Some(2),
    };
    let bare =
        ChildReport { connection: "gw".to_owned(), name: "other".to_owned(), ..ChildReport::default() };
    vec![waiting, bare]
}

#[test]
fn a_report_survives_encoding_and_decoding() {
    for state in ChildState::ALL {
        let told: Vec<ChildReport> =
            reports().into_iter().map(|report| ChildReport { state, ..report }).collect();
        assert_eq!(ChildReport::read_all(&ChildReport::events("gw", &told)).unwrap(), told);
    }
}

#[test]
fn children_that_are_to_be_up_and_are_not_are_missed() {
    for (state, expected, missed) in [
        (ChildState::Up, true, false),
        (ChildState::Down, true, true),
        (ChildState::Establishing, true, true),
        (ChildState::Passive, false, false),
    ] {
        assert_eq!(ChildReport { state, expected, ..ChildReport::default() }.is_missed(), missed);
    }
}

/// A peer can make a reason long and strange.
#[test]
fn a_reason_is_short_and_printable() {
    let reason = format!("RFC 7296 §2.8: {}", "ä".repeat(70_000));
    let told = ChildReport { last_error: Some(ChildError { reason, ago: 1 }), ..reports().swap_remove(0) };
    let read = ChildReport::read_all(&ChildReport::events("gw", &[told])).unwrap().swap_remove(0);
    let reason = read.last_error.unwrap().reason;
    assert!(reason.starts_with("RFC 7296 section 2.8: ??") && reason.len() == 500, "{reason}");
}

#[test]
fn a_wrong_report_is_refused_with_its_key() {
    let event = |child: Message| {
        let children = Message::new().with_section("net", child);
        ChildReport::read_all(&[Message::new().with_section("gw", children)])
    };
    for (pairs, complaint) in [
        (&[("expected", "yes"), ("sas", "0")][..], "state"),
        (&[("state", "asleep"), ("expected", "yes"), ("sas", "0")], "asleep"),
        (&[("state", "up"), ("sas", "0")], "expected"),
        (&[("state", "up"), ("expected", "yes")], "sas"),
        (&[("state", "up"), ("expected", "yes"), ("sas", "0"), ("silent", "x")], "silent"),
        (&[("state", "up"), ("expected", "yes"), ("sas", "0"), ("error", "x")], "error-ago"),
    ] {
        let error = event(message(pairs)).expect_err(complaint).to_string();
        assert!(error.contains(complaint), "{error}, expected {complaint}");
    }
}

#[test]
fn the_server_tells_of_every_connection() {
    let server = TestServer::start();
    let other = ChildReport { connection: "other".to_owned(), ..reports().swap_remove(0) };
    {
        let mut gateway = server.gateway.lock().unwrap();
        gateway.connections = ["gw", "bare", "other"].map(connection).into();
        gateway.children = reports();
        gateway.children.push(other.clone());
    }
    let mut client = Client::connect(&server.socket()).unwrap();
    let events = client.stream("testudo-children", "testudo-child", Message::new()).unwrap();
    assert_eq!(events.len(), 2, "one without children has no event");
    let expected: Vec<ChildReport> = reports().into_iter().chain([other]).collect();
    assert_eq!(ChildReport::read_all(&events).unwrap(), expected);
}

#[test]
fn more_children_than_fit_come_in_several_events() {
    let many: Vec<ChildReport> = (0..10_000)
        .map(|number| ChildReport { name: number.to_string(), ..reports().swap_remove(0) })
        .collect();
    let events = ChildReport::events("gw", &many);
    assert!(events.len() > 1);
    assert!(events.iter().all(|event| testudo_vici::codec::encoded_len(event) < MAX_PACKET));
    assert_eq!(ChildReport::read_all(&events).unwrap(), many);
}

/// `per_cpu_sas`, as strongSwan 6 shows it.
#[test]
fn the_sa_of_a_worker_shows_its_number() {
    let sa = crate::support::net_sa(1);
    let events = testudo_vici::render::list_sa(&sa, None, testudo_ike::output::Time::default(), &|_| {
        Default::default()
    });
    let child = events[0].section("gw").unwrap().section("child-sas").unwrap().section("net-1").unwrap();
    assert_eq!((child.text("per-cpu-sas"), child.text("cpu")), (Some("yes"), Some("3")));
}
