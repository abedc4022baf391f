//! The client by itself.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::thread;
use std::time::Duration;
use testudo_vici::client::Client;
use testudo_vici::codec::Packet;
use testudo_vici::message::Message;

/// A machine that is stopped for a moment, as a virtual one is while its state is written down:
/// reads with a timeout come back then with nothing done (signal(7)).
#[test]
fn a_client_stopped_while_waiting_continues_to_wait() {
    let (here, mut there) = UnixStream::pair().unwrap();
    let waiting = thread::spawn(move || {
        let mut client = Client::over(here);
        client.set_timeout(Some(Duration::from_secs(20))).unwrap();
        client.request("version", Message::new())
    });
    assert!(there.read(&mut [0; 64]).unwrap() > 0, "it has asked, and waits");
    thread::sleep(Duration::from_millis(50));
    let pid = std::process::id();
    let script = format!("kill -STOP {pid}; sleep 0.05; kill -CONT {pid}");
    assert!(Command::new("/bin/sh").args(["-c", &script]).status().unwrap().success());
    let mut answer = Vec::new();
    Packet::CmdResponse(Message::new()).encode(&mut answer).unwrap();
    there.write_all(&answer).unwrap();
    assert_eq!(waiting.join().unwrap().unwrap(), Message::new());
}
