//! `testudo` against a daemon that answers from a script, and programs for it to run.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use testudo_vici::codec::{Deframer, Packet};

/// Runs a command of `testudo`; the answers to its packets are these.
pub(crate) fn answered(
    command: &mut Command,
    answer: impl FnMut(Packet) -> Vec<Packet> + Send + 'static,
) -> Output {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("vici.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let daemon = std::thread::spawn(move || serve(listener.accept().unwrap().0, answer));
    let output = command.arg("--socket").arg(&socket).output().unwrap();
    daemon.join().unwrap();
    output
}

fn serve(mut stream: UnixStream, mut answer: impl FnMut(Packet) -> Vec<Packet>) {
    let mut deframer = Deframer::default();
    let mut chunk = [0; 4096];
    while let Ok(len @ 1..) = stream.read(&mut chunk) {
        deframer.push(&chunk[..len]).unwrap();
        while let Some(bytes) = deframer.next_packet().unwrap() {
            let mut out = Vec::new();
            for packet in answer(Packet::parse(&bytes).unwrap()) {
                packet.encode(&mut out).unwrap();
            }
            stream.write_all(&out).unwrap();
        }
    }
}

/// The output of a command, which must have succeeded.
pub(crate) fn printed(output: Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Puts a program there. Another process writes it: the kernel runs no file that is open for
/// writing, and what this process has open its forks have too, until they are other programs.
pub(crate) fn install(program: &[u8], path: &Path) {
    let mut install = Command::new("install");
    install.args(["-D", "--mode=755", "/dev/stdin"]).arg(path).stdin(Stdio::piped());
    let mut install = install.spawn().unwrap();
    install.stdin.take().unwrap().write_all(program).unwrap();
    assert!(install.wait().unwrap().success());
}
