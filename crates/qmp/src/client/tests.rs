use super::*;
use std::io::{BufRead, BufReader};
use std::thread::{self, JoinHandle};

const LIMIT: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(50);
const HELLO: &str = r#"{"QMP": {"version": {}, "capabilities": ["oob"]}}"#;

/// A monitor that greets, and answers each command by a function of its name and number.
fn monitor(
    mut answer: impl FnMut(&str, u64) -> String + Send + 'static,
) -> (UnixStream, JoinHandle<Vec<String>>) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let thread = thread::spawn(move || {
        let mut commands = Vec::new();
        let mut reader = BufReader::new(theirs.try_clone().unwrap());
        writeln!(&theirs, "{HELLO}").unwrap();
        let mut line = String::new();
        while reader.read_line(&mut line).unwrap_or(0) > 0 {
            let request: Value = serde_json::from_str(&line).unwrap();
            let (name, id) = (request["execute"].as_str().unwrap(), request["id"].as_u64().unwrap());
            commands.push(format!("{name} {}", request["arguments"]));
            let said = match name {
                "qmp_capabilities" => format!(r#"{{"return": {{}}, "id": {id}}}"#),
                name => answer(name, id),
            };
            // The client may have ended the connection.
            let _ = writeln!(&theirs, "{said}");
            line.clear();
        }
        commands
    });
    (ours, thread)
}

#[test]
fn a_command_gets_its_answer_and_events_are_kept() {
    let (stream, thread) = monitor(|_, id| {
        format!(
            "{{\"event\": \"STOP\", \"timestamp\": {{}}}}\r\n\
             {{\"event\": \"MIGRATION\", \"data\": {{\"status\": \"active\"}}}}\r\n\
             {{\"return\": {{\"running\": true}}, \"id\": {id}}}\r"
        )
    });
    let mut client = Client::over(stream, LIMIT).unwrap();
    assert_eq!(client.execute("query-status", json!({ "a": 1 })).unwrap(), json!({ "running": true }));
    let events = [("STOP", Value::Null), ("MIGRATION", json!({ "status": "active" }))];
    let events = events.map(|(name, data)| Event { name: name.to_owned(), data });
    assert_eq!(client.take_events(), events);
    assert_eq!(client.take_events(), []);
    drop(client);
    assert_eq!(thread.join().unwrap(), ["qmp_capabilities {}", "query-status {\"a\":1}"]);
}

#[test]
fn a_refusal_has_its_class_and_reason() {
    let (stream, _thread) = monitor(|name, id| match name {
        "migrate" => {
            format!(r#"{{"error": {{"class": "GenericError", "desc": "no such host"}}, "id": {id}}}"#)
        }
        _ => format!(r#"{{"error": {{}}, "id": {id}}}"#),
    });
    let mut client = Client::over(stream, LIMIT).unwrap();
    let error = client.execute("migrate", json!({})).unwrap_err();
    assert_eq!(error.to_string(), "migrate refused (GenericError): no such host");
    assert!(!error.is_gone());
    let error = client.execute("other", json!({})).unwrap_err();
    assert!(matches!(error, Error::Protocol { .. }), "{error}");
}

/// Of the two answers to the second command the first is that of the command before.
#[test]
fn a_late_answer_is_not_taken_for_another() {
    let (stream, _thread) = monitor(|name, id| match name {
        "slow" => r#"{"event": "RESUME"}"#.to_owned(),
        _ => format!("{{\"return\": \"late\", \"id\": {}}}\n{{\"return\": \"right\", \"id\": {id}}}", id - 1),
    });
    let mut client = Client::over(stream, LIMIT).unwrap();
    client.limit = SHORT;
    let error = client.execute("slow", json!({})).unwrap_err();
    assert!(matches!(&error, Error::Timeout { command, limit } if command == "slow" && *limit == SHORT));
    client.limit = LIMIT;
    assert_eq!(client.execute("quick", json!({})).unwrap(), json!("right"));
}

#[test]
fn of_too_many_events_the_newest_are_kept() {
    let (stream, _thread) = monitor(|_, id| {
        let events: String = (0..MAX_EVENTS + 10)
            .map(|n| format!("{{\"event\": \"E\", \"data\": {{\"n\": {n}}}}}\n"))
            .collect();
        format!("{events}{{\"return\": {{}}, \"id\": {id}}}")
    });
    let mut client = Client::over(stream, LIMIT).unwrap();
    client.execute("any", json!({})).unwrap();
    let events = client.take_events();
    assert_eq!(events.len(), MAX_EVENTS);
    assert_eq!(events[0].data, json!({ "n": 10 }));
}

#[test]
fn a_line_without_end_is_refused() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let writer = thread::spawn(move || {
        let chunk = [b' '; 65536];
        // Ends when the client has closed its end.
        while (&theirs).write_all(&chunk).is_ok() {}
    });
    assert!(matches!(Client::over(ours, LIMIT).unwrap_err(), Error::LineTooLong));
    writer.join().unwrap();
}

#[test]
fn whoever_is_no_monitor_is_refused() {
    for (said, complaint) in [
        ("{\"return\": {}}\n", "a greeting with the key QMP expected, found {\"return\":{}}"),
        ("SSH-2.0-OpenSSH\n", "a line of JSON expected, found SSH-2.0-OpenSSH"),
        ("", "QEMU closed the connection"),
    ] {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (&theirs).write_all(said.as_bytes()).unwrap();
        drop(theirs);
        assert_eq!(Client::over(ours, LIMIT).unwrap_err().to_string(), complaint);
    }
}

#[test]
fn a_busy_monitor_is_told_from_one_that_is_gone() {
    let (ours, _theirs) = UnixStream::pair().unwrap();
    let busy = Client::over(ours, SHORT).unwrap_err();
    assert!(busy.to_string().contains("another client may be connected"), "{busy}");
    assert!(!busy.is_gone());
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("qmp");
    assert!(Client::connect(&socket, SHORT).unwrap_err().is_gone(), "no socket");
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    assert!(Client::connect(&socket, SHORT).unwrap_err().is_gone(), "nobody listens");
    let (stream, _thread) = monitor(|_, _| String::new());
    let mut client = Client::over(stream, LIMIT).unwrap();
    client.stream.shutdown(std::net::Shutdown::Both).unwrap();
    assert!(client.execute("any", json!({})).unwrap_err().is_gone());
}
