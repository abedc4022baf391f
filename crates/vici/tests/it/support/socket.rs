use super::Gateway;
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use testudo_ike::endpoint::IkeSaStatus;
use testudo_ike::output::{IkeSaId, Time};
use testudo_vici::CommandError;
use testudo_vici::server::{ClientId, LogLine, Server};

/// A server on a socket in a directory of its own, with a scripted gateway behind it.
///
/// Script: `initiate` brings `net` up with two lines of log; `dead` fails after one; `slow` never
/// ends. `terminate` ends all that match.
pub(crate) struct TestServer {
    pub(crate) gateway: Arc<Mutex<Gateway>>,
    dir: tempfile::TempDir,
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl TestServer {
    pub(crate) fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join("vici.sock")).unwrap();
        listener.set_nonblocking(true).unwrap();
        let gateway = Arc::new(Mutex::new(Gateway::default()));
        let stop = Arc::new(AtomicBool::new(false));
        let host = Host {
            listener,
            gateway: Arc::clone(&gateway),
            server: Server::new(),
            streams: BTreeMap::new(),
            start: Instant::now(),
        };
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || host.run(&stopped));
        Self { gateway, dir, stop, thread: Some(thread) }
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.path().join("vici.sock")
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let result = thread.join();
            assert!(result.is_ok() || std::thread::panicking(), "the server thread panicked");
        }
    }
}

struct Host {
    listener: UnixListener,
    gateway: Arc<Mutex<Gateway>>,
    server: Server,
    streams: BTreeMap<ClientId, UnixStream>,
    start: Instant,
}

impl Host {
    fn run(mut self, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            if let Ok((stream, _)) = self.listener.accept() {
                stream.set_nonblocking(true).unwrap();
                self.streams.insert(self.server.connect().unwrap(), stream);
            }
            for client in self.server.clients().collect::<Vec<_>>() {
                if !self.serve(client) {
                    self.server.disconnect(client);
                    self.streams.remove(&client);
                }
            }
            self.play();
            self.server.handle_deadline(self.now());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn now(&self) -> Time {
        Time(self.start.elapsed())
    }

    /// Moves octets both ways; false when the client is done for.
    fn serve(&mut self, client: ClientId) -> bool {
        let now = self.now();
        let Some(stream) = self.streams.get_mut(&client) else { return false };
        let mut gateway = self.gateway.lock().unwrap();
        let mut chunk = [0; 16384];
        if self.server.wants_input(client) {
            match stream.read(&mut chunk) {
                Ok(0) => return false,
                Ok(len) => {
                    if self.server.receive(client, &chunk[..len], now, &mut *gateway).is_err() {
                        return false;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return false,
            }
        }
        loop {
            let Ok(output) = self.server.poll_output(client, now, &mut *gateway) else { return false };
            let written = if output.is_empty() { Ok(0) } else { stream.write(output) };
            match written {
                Ok(len) => self.server.sent(client, len),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(_) => return false,
            }
            if matches!(written, Ok(0)) && !self.server.is_busy(client) {
                return true;
            }
        }
    }

    fn play(&mut self) {
        let mut gateway = self.gateway.lock().unwrap();
        fn line(level: u8, message: &str) -> LogLine<'_> {
            LogLine { level, ike: Some(IkeSaId(1)), connection: Some("gw"), message }
        }
        for (job, request) in std::mem::take(&mut gateway.initiations) {
            self.server.control_log(job, line(1, "initiating IKE_SA gw[1] to 192.0.2.2"));
            match request.child.as_deref() {
                Some("net") => {
                    self.server.control_log(job, line(1, "CHILD_SA net{1} established"));
                    self.server.control_log(job, line(2, "a detail"));
                    self.server.finish_initiate(job, Ok(()));
                }
                Some("dead") => {
                    let why = "no answer from 192.0.2.2:500 after 6 transmissions";
                    self.server.finish_initiate(job, Err(CommandError::new(why)));
                }
                _ => {}
            }
        }
        for (job, request) in std::mem::take(&mut gateway.terminations) {
            let goes = |sa: &mut IkeSaStatus| request.sas.takes_ike(sa.id, sa.connection.as_deref());
            let gone: Vec<_> = gateway.sas.extract_if(.., goes).map(|sa| sa.id.0).collect();
            for number in &gone {
                self.server.control_log(job, line(1, &format!("deleting IKE_SA gw[{number}]")));
            }
            self.server.finish_terminate(job, u32::try_from(gone.len()).unwrap());
        }
    }
}
