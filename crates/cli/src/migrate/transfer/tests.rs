use super::*;
use crate::migrate::scripted;
use crate::migrate::watch::CancelOn;
use crate::migrate::watch::tests::{attack, calm};
use serde_json::Value;
use std::sync::mpsc;

#[test]
fn the_progress_line_tells_how_far_it_is_and_what_holds_it_up() {
    let mut answer = json!({
        "status": "active",
        "expected-downtime": 310,
        "ram": {
            "transferred": 123_456_789,
            "remaining": 45_600_000,
            "dirty-pages-rate": 5000,
            "page-size": 4096,
        },
    });
    let line =
        |answer: &serde_json::Value| describe(&Migration { phase: Phase::Active, answer: answer.clone() });
    assert_eq!(
        line(&answer),
        "migration: 123.5 MB sent, 45.6 MB left, 20.5 MB a second rewritten, 310 ms of pause expected"
    );
    // What QEMU counts may be anything.
    answer["ram"]["dirty-pages-rate"] = u64::MAX.into();
    assert!(line(&answer).contains(" left, 18.4 EB a second rewritten, "), "{}", line(&answer));
    // It does not tell these before the first round.
    let nothing = "migration: 0 B sent, 0 B left, 0 B a second rewritten, 0 ms of pause expected";
    assert_eq!(line(&json!({ "status": "setup" })), nothing);
}

/// Follows a migration whose source's testudod raises an alarm, to its end.
fn followed(source: &mut Vm, destination: &mut Vm) -> End {
    let (_dir, mut watch) = watched();
    Transfer {
        source,
        destination,
        watch: Some(&mut watch),
        hold: None,
        loads: &mut Loads::begin([]),
        interrupted: &AtomicBool::new(false),
        stall: 100 * scripted::LIMIT,
        pause: Duration::ZERO,
        fenced: false,
    }
    .follow(&Progress::new())
}

/// The alarm comes once, with the first look.
fn watched() -> (tempfile::TempDir, Watch) {
    let answers = [calm(), attack()].into_iter().chain(std::iter::repeat_with(calm).take(1000));
    let (dir, socket) = scripted::daemon("testudo-alarms", answers.map(Some).collect(), |_| ());
    let mut watch = Watch::new(CancelOn::Critical);
    watch.add(Side::Source, &socket).unwrap();
    (dir, watch)
}

/// What a source answers: it is under way until it is cancelled.
fn under_way(cancelled: bool) -> Option<Value> {
    Some(json!({ "status": if cancelled { "cancelled" } else { "active" }, "total-time": 1 }))
}

fn waiting(_: &str) -> Option<Value> {
    Some(json!({ "status": "inmigrate", "running": false }))
}

const ALARM: &str = "alarm at the source: forged-packets, ";

/// In the pause QEMU answers nothing, and obeys behind it.
#[test]
fn an_alarm_in_the_pause_is_the_reason_when_the_source_obeys_later() {
    let mut silent = 0;
    let (_one, mut source) = scripted::qemu(Side::Source, move |command| match (command, silent) {
        ("query-migrate", 0) => under_way(false),
        ("query-migrate", 4) => under_way(true),
        // It has been told, and further questions meet silence.
        _ => {
            silent += 1;
            None
        }
    });
    let (_other, mut destination) = scripted::qemu(Side::Destination, waiting);
    let end = followed(&mut source, &mut destination);
    assert_eq!(end.word(), "cancelled");
    let reason = end.reason().unwrap();
    assert!(reason.starts_with(ALARM), "{reason}");
}

/// The destination cannot be fenced at once.
#[test]
fn an_alarm_cancels_later_if_it_cannot_at_once() {
    let mut told = false;
    let (_one, mut source) = scripted::qemu(Side::Source, move |command| {
        told |= command == CANCEL;
        under_way(told)
    });
    let mut questions = 0;
    let (_other, mut destination) = scripted::qemu(Side::Destination, move |command| {
        questions += 1;
        if questions > 3 { waiting(command) } else { None }
    });
    let reason = followed(&mut source, &mut destination).reason().unwrap();
    assert!(reason.starts_with(ALARM), "{reason}");
}

#[test]
fn a_cancellation_by_somebody_else_is_told_as_such() {
    let (_one, mut source) = scripted::qemu(Side::Source, |_| under_way(true));
    let (_other, mut destination) = scripted::qemu(Side::Destination, waiting);
    let end = followed(&mut source, &mut destination);
    assert_eq!((end.word(), end.reason().unwrap().as_str()), ("cancelled", "somebody else has cancelled it"));
}

/// The source may begin after its time to answer.
#[test]
fn a_begin_that_has_failed_is_taken_back() {
    let (heard, commands) = mpsc::channel();
    let also = heard.clone();
    let (_one, mut source) = scripted::qemu(Side::Source, move |command| {
        heard.send(("source", command.to_owned())).unwrap();
        (command != "migrate").then(|| json!({}))
    });
    let (_other, mut destination) = scripted::qemu(Side::Destination, move |command| {
        if command != "query-status" {
            also.send(("destination", command.to_owned())).unwrap();
        }
        waiting(command)
    });
    let to = "192.0.2.2:49152".parse().unwrap();
    let failed = begin(&mut source, &mut destination, to).unwrap_err();
    assert!(matches!(failed, (Side::Source, Error::Timeout { .. })), "{failed:?}");
    assert!(withdraw(&mut source, &mut destination, &failed));
    let commands: Vec<_> = commands.try_iter().collect();
    let expected = [
        ("destination", "migrate-incoming"),
        ("source", "migrate"),
        ("destination", "stop"),
        ("source", CANCEL),
    ];
    assert_eq!(commands, expected.map(|(side, command)| (side, command.to_owned())));
}

/// Somebody else has moved it meanwhile. Who refuses is told nothing more.
#[test]
fn a_virtual_machine_that_runs_there_is_not_stopped() {
    let commands = |running: bool, error: Error| {
        let (heard, commands) = mpsc::channel();
        let also = heard.clone();
        let (_one, mut source) = scripted::qemu(Side::Source, move |command| {
            heard.send(command.to_owned()).unwrap();
            Some(json!({}))
        });
        let (_other, mut destination) = scripted::qemu(Side::Destination, move |command| {
            also.send(command.to_owned()).unwrap();
            Some(json!({ "status": if running { "running" } else { "inmigrate" }, "running": running }))
        });
        assert!(!withdraw(&mut source, &mut destination, &(Side::Destination, error)) || !running);
        commands.try_iter().filter(|command| command != "query-status").collect::<Vec<_>>()
    };
    let silent = || Error::Timeout { command: "migrate-incoming".to_owned(), limit: scripted::LIMIT };
    assert_eq!(commands(true, silent()), Vec::<String>::new());
    assert_eq!(commands(false, silent()), ["stop"], "the source was told nothing");
    let refused = Error::Refused {
        command: "migrate-incoming".to_owned(),
        class: "GenericError".to_owned(),
        desc: String::new(),
    };
    assert_eq!(commands(false, refused), Vec::<String>::new());
}
