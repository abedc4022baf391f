//! The emulator's monitor (QMP): lines of JSON.

use crate::{Error, Namespace, Result, wait_until};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::time::Duration;

/// In the namespace of the emulator, which nothing else uses.
pub(super) const ADDRESS: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 4444);
const COMMAND_LIMIT: Duration = Duration::from_secs(60);
const SAVE_LIMIT: Duration = Duration::from_secs(120);

/// A connection to it.
pub(super) struct Monitor {
    stream: BufReader<TcpStream>,
}

impl Monitor {
    pub(super) fn connect(namespace: &Namespace) -> Result<Self> {
        let connect = || -> std::io::Result<TcpStream> {
            let stream = TcpStream::connect(ADDRESS)?;
            stream.set_read_timeout(Some(COMMAND_LIMIT))?;
            Ok(stream)
        };
        let stream = namespace.enter(connect)?.map_err(Error::io("connect to the emulator's monitor"))?;
        let mut monitor = Self { stream: BufReader::new(stream) };
        // It sends a greeting first.
        monitor.read()?;
        monitor.execute("qmp_capabilities", &json!({}))?;
        Ok(monitor)
    }

    /// Writes the guest's state into a shell command, and waits until it has received everything.
    /// The guest stays stopped.
    pub(super) fn save_to(&mut self, command: &str) -> Result<()> {
        // Without a limit; the default is for slow networks.
        self.execute("migrate-set-parameters", &json!({ "max-bandwidth": 1_u64 << 40 }))?;
        self.execute("migrate", &json!({ "uri": format!("exec:{command}") }))?;
        wait_until("the guest's saved state", SAVE_LIMIT, || {
            let progress = self.execute("query-migrate", &json!({}))?;
            match progress["status"].as_str() {
                Some("completed") => Ok(Ok(())),
                Some("failed") => Err(Error::unexpected("migrate", "a saved state", progress.to_string())),
                _ => Ok(Err(progress.to_string())),
            }
        })
    }

    /// Ends the emulator, which may not answer.
    pub(super) fn quit(mut self) -> Result<()> {
        self.send("quit", &json!({}))
    }

    fn send(&mut self, command: &str, arguments: &Value) -> Result<()> {
        let line = format!("{}\n", json!({ "execute": command, "arguments": arguments }));
        let sent = self.stream.get_mut().write_all(line.as_bytes());
        sent.map_err(Error::io(format!("tell the emulator's monitor {command}")))
    }

    fn execute(&mut self, command: &str, arguments: &Value) -> Result<Value> {
        self.send(command, arguments)?;
        loop {
            let mut answer = self.read()?;
            if let Some(error) = answer.get("error") {
                return Err(Error::unexpected(command, "success", error.to_string()));
            }
            // Events may come first.
            if let Some(value) = answer.get_mut("return") {
                return Ok(value.take());
            }
        }
    }

    fn read(&mut self) -> Result<Value> {
        let mut line = String::new();
        self.stream.read_line(&mut line).map_err(Error::io("read from the emulator's monitor"))?;
        serde_json::from_str(&line)
            .map_err(|e| Error::unexpected("the emulator's monitor", "JSON", format!("{e} in \"{line}\"")))
    }
}
