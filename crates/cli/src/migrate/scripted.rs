//! A daemon and a QEMU for tests, which answer by a script.

use super::vm::{Side, Vm};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;
use testudo_vici::codec::{Deframer, Packet};
use testudo_vici::message::Message;

/// How long a scripted QEMU is waited for. Nothing depends on it but how long a test takes.
pub(super) const LIMIT: Duration = Duration::from_secs(2);

/// A QEMU whose monitor returns this to each command; `None`: it does not answer.
pub(super) fn qemu(
    side: Side,
    mut answer: impl FnMut(&str) -> Option<Value> + Send + 'static,
) -> (tempfile::TempDir, Vm) {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("qmp");
    let listener = UnixListener::bind(&socket).unwrap();
    thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        writeln!(stream, "{}", json!({ "QMP": {} })).unwrap();
        for line in BufReader::new(stream.try_clone().unwrap()).lines() {
            let request: Value = serde_json::from_str(&line.unwrap()).unwrap();
            let command = request["execute"].as_str().unwrap();
            let returned = if command == "qmp_capabilities" { Some(json!({})) } else { answer(command) };
            if let Some(returned) = returned {
                // The test may be over.
                let _ = writeln!(stream, "{}", json!({ "return": returned, "id": request["id"] }));
            }
        }
    });
    (dir, Vm::new(side, socket).patient_for(LIMIT))
}

/// A daemon with these answers to one command, one after the other; `None`: it does not know the
/// command. `check` looks at the arguments.
pub(super) fn daemon(
    command: &'static str,
    answers: Vec<Option<Message>>,
    check: fn(&Message),
) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("vici.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        let (mut deframer, mut chunk) = (Deframer::default(), [0; 4096]);
        for answer in answers {
            let request = loop {
                if let Some(packet) = deframer.next_packet().unwrap() {
                    break Packet::parse(&packet).unwrap();
                }
                let len = stream.read(&mut chunk).unwrap();
                if len == 0 {
                    return;
                }
                deframer.push(&chunk[..len]).unwrap();
            };
            let Packet::CmdRequest(name, arguments) = request else { panic!("a command") };
            assert_eq!(name, command);
            check(&arguments);
            let mut out = Vec::new();
            answer.map_or(Packet::CmdUnknown, Packet::CmdResponse).encode(&mut out).unwrap();
            stream.write_all(&out).unwrap();
        }
    });
    (dir, socket)
}
