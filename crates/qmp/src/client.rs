//! The client: a greeting, commands with their answers, events in between.

use crate::Error;
use crate::lines::Lines;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

#[cfg(test)]
mod tests;

/// The most events kept; of more, the oldest are discarded.
pub const MAX_EVENTS: usize = 256;
/// The name of the greeting in errors.
pub(crate) const GREETING: &str = "the connection with its greeting";
/// The most characters of a line in an error.
const MAX_SHOWN: usize = 200;

/// An event: something that happened in the emulator.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Its name, such as `MIGRATION`.
    pub name: String,
    /// Its data; null if it has none.
    pub data: Value,
}

/// A connection to a monitor.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    lines: Lines,
    events: VecDeque<Event>,
    limit: Duration,
    /// Number of the latest command.
    command: u64,
}

impl Client {
    /// Connects to the monitor's socket. Each command, and this, may take that long.
    pub fn connect(socket: &Path, limit: Duration) -> Result<Self, Error> {
        Self::over(UnixStream::connect(socket).map_err(Error::Connect)?, limit)
    }

    /// Uses a stream that is already connected.
    pub fn over(stream: UnixStream, limit: Duration) -> Result<Self, Error> {
        stream.set_write_timeout(Some(limit))?;
        let mut client = Self { stream, lines: Lines::default(), events: VecDeque::new(), limit, command: 0 };
        let greeting = client.next_value(GREETING, Instant::now() + limit)?;
        if greeting.get("QMP").is_none() {
            return Err(protocol(&greeting.to_string(), "a greeting with the key QMP"));
        }
        client.execute("qmp_capabilities", json!({}))?;
        Ok(client)
    }

    /// Sends a command and returns what it returns.
    pub fn execute(&mut self, command: &str, arguments: Value) -> Result<Value, Error> {
        self.command += 1;
        let request = json!({ "execute": command, "arguments": arguments, "id": self.command });
        self.stream.write_all(format!("{request}\n").as_bytes())?;
        let deadline = Instant::now() + self.limit;
        loop {
            let mut answer = self.next_value(command, deadline)?;
            // Of a command whose time limit has passed.
            if answer.get("id").and_then(Value::as_u64).is_some_and(|id| id < self.command) {
                continue;
            }
            if let Some(value) = answer.get_mut("return") {
                return Ok(value.take());
            }
            return Err(refusal(command, &answer));
        }
    }

    /// The events so far, oldest first.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events).into()
    }

    /// The next line that is not an event.
    fn next_value(&mut self, command: &str, deadline: Instant) -> Result<Value, Error> {
        loop {
            let Some(line) = self.lines.next(&self.stream, deadline)? else {
                return Err(Error::Timeout { command: command.to_owned(), limit: self.limit });
            };
            let value: Value = serde_json::from_slice(&line)
                .map_err(|_| protocol(&String::from_utf8_lossy(&line), "a line of JSON"))?;
            match value.get("event").and_then(Value::as_str) {
                Some(name) => self.keep(name, &value),
                None => return Ok(value),
            }
        }
    }

    fn keep(&mut self, name: &str, event: &Value) {
        if self.events.len() == MAX_EVENTS {
            self.events.pop_front();
        }
        let data = event.get("data").cloned().unwrap_or_default();
        self.events.push_back(Event { name: name.to_owned(), data });
    }
}

fn refusal(command: &str, answer: &Value) -> Error {
    let text = |key: &str| answer.get("error")?.get(key)?.as_str().map(str::to_owned);
    match (text("class"), text("desc")) {
        (Some(class), Some(desc)) => Error::Refused { command: command.to_owned(), class, desc },
        _ => protocol(&answer.to_string(), "an answer with the key return, or error with class and desc"),
    }
}

fn protocol(found: &str, expected: &'static str) -> Error {
    Error::Protocol { found: found.chars().take(MAX_SHOWN).collect(), expected }
}
