//! A daemon that watches: a real one, with a script's answers to `testudo-alarms`.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use testudo_vici::alarms::{AlarmPage, AlarmReport};
use testudo_vici::codec::{Deframer, Packet};
use testudo_vici::message::Message;

/// In front of a daemon's socket.
pub(crate) struct Watching {
    socket: PathBuf,
    alarmed: Arc<AtomicBool>,
}

impl Watching {
    /// Passes everything else on to the daemon.
    pub(crate) fn over(daemon: &Path) -> Self {
        let socket = daemon.with_file_name("watching.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let alarmed = Arc::new(AtomicBool::new(false));
        let (daemon, raised) = (daemon.to_owned(), alarmed.clone());
        // It ends with the test's process.
        thread::spawn(move || {
            for client in listener.incoming() {
                let (daemon, raised) = (daemon.clone(), raised.clone());
                thread::spawn(move || serve(client.unwrap(), &daemon, &raised));
            }
        });
        Self { socket, alarmed }
    }

    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// From now on there is a critical alarm.
    pub(crate) fn raise(&self) {
        self.alarmed.store(true, Ordering::Relaxed);
    }
}

fn serve(mut client: UnixStream, daemon: &Path, alarmed: &AtomicBool) {
    let mut daemon = UnixStream::connect(daemon).unwrap();
    let (mut requests, mut answers) = (Deframer::default(), Deframer::default());
    while let Some(request) = next(&mut client, &mut requests) {
        if matches!(&request, Packet::CmdRequest(name, _) if name == "testudo-alarms") {
            send(&mut client, &Packet::CmdResponse(page(alarmed.load(Ordering::Relaxed))));
            continue;
        }
        send(&mut daemon, &request);
        // Events come before the answer that they belong to.
        while let Some(packet) = next(&mut daemon, &mut answers) {
            send(&mut client, &packet);
            if !matches!(packet, Packet::Event(..)) {
                break;
            }
        }
    }
}

fn page(alarmed: bool) -> Message {
    let alarm = AlarmReport {
        number: 1,
        kind: "forged-packets".to_owned(),
        severity: "critical".to_owned(),
        subject: "child lab-1".to_owned(),
        evidence: "an attack by the test".to_owned(),
        ..AlarmReport::default()
    };
    let alarms: Vec<_> = alarmed.then_some(alarm).into_iter().collect();
    AlarmPage { watching: true, last: alarms.len() as u64, alarms, ..AlarmPage::default() }.to_message()
}

fn next(stream: &mut UnixStream, deframer: &mut Deframer) -> Option<Packet> {
    let mut chunk = [0; 4096];
    loop {
        if let Some(packet) = deframer.next_packet().unwrap() {
            return Some(Packet::parse(&packet).unwrap());
        }
        match stream.read(&mut chunk) {
            Ok(len @ 1..) => deframer.push(&chunk[..len]).unwrap(),
            _ => return None,
        }
    }
}

/// The other end may be gone: then the next read tells.
fn send(stream: &mut UnixStream, packet: &Packet) {
    let mut out = Vec::new();
    packet.encode(&mut out).unwrap();
    let _ = stream.write_all(&out);
}
