//! A daemon for tests, which answers by a script.

use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::thread;
use testudo_vici::codec::{Deframer, Packet};
use testudo_vici::message::Message;

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
