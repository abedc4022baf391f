//! A virtual machine at one of the two hosts: its QEMU, by its monitor.

use serde::Serialize;
use serde_json::{Value, json};
use std::fmt::{self, Display, Formatter};
use std::path::PathBuf;
use std::time::Duration;
use testudo_qmp::{Client, Error};

/// How long QEMU may take to answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// One of the two hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Side {
    Source,
    Destination,
}

impl Display for Side {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Source => "source",
            Self::Destination => "destination",
        })
    }
}

/// What the virtual machine does at one host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    Running,
    /// QEMU waits for a migration, or receives one.
    Incoming,
    /// With QEMU's word for it, such as `postmigrate`.
    Stopped(String),
    /// QEMU has ended.
    Gone,
    /// QEMU does not answer.
    Unknown(String),
}

impl Display for State {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Running => f.write_str("running"),
            Self::Incoming => f.write_str("waiting for a migration"),
            Self::Stopped(status) => write!(f, "stopped ({status})"),
            Self::Gone => f.write_str("gone: its QEMU has ended"),
            Self::Unknown(error) => write!(f, "unknown: {error}"),
        }
    }
}

/// How far QEMU says that its migration is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// There has been no migration, or QEMU cannot be asked.
    None,
    Active,
    Completed,
    Failed,
    Cancelled,
}

/// The answer to `query-migrate`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Migration {
    pub(super) phase: Phase,
    pub(super) answer: Value,
}

impl Migration {
    fn read(side: Side, answer: Value) -> Self {
        // Only a migration by which a virtual machine leaves has a time.
        let came = answer.get("total-time").is_none();
        let phase = match answer.get("status").and_then(Value::as_str) {
            None | Some("none") => Phase::None,
            // The one by which it has come to the source is another one.
            Some("completed") if came && side == Side::Source => Phase::None,
            Some("completed") => Phase::Completed,
            Some("failed") => Phase::Failed,
            Some("cancelled") => Phase::Cancelled,
            Some(_) => Phase::Active,
        };
        Self { phase, answer }
    }

    /// A number of the answer, by its path (RFC 6901).
    pub(super) fn number(&self, path: &str) -> u64 {
        self.answer.pointer(path).and_then(Value::as_u64).unwrap_or_default()
    }

    /// Why it has failed.
    pub(super) fn error(&self) -> Option<&str> {
        self.answer.get("error-desc").and_then(Value::as_str)
    }
}

/// A QEMU.
#[derive(Debug)]
pub(super) struct Vm {
    side: Side,
    socket: PathBuf,
    /// None after the connection has ended.
    client: Option<Client>,
    /// For each answer.
    limit: Duration,
}

impl Vm {
    pub(super) fn new(side: Side, socket: PathBuf) -> Self {
        Self { side, socket, client: None, limit: ANSWER_LIMIT }
    }

    #[cfg(test)]
    pub(super) fn patient_for(self, limit: Duration) -> Self {
        Self { limit, ..self }
    }

    pub(super) fn side(&self) -> Side {
        self.side
    }

    /// Executes a command. A connection that has ended is made again once: only then it is known
    /// whether QEMU itself has ended.
    pub(super) fn execute(&mut self, command: &str, arguments: Value) -> Result<Value, Error> {
        if let Some(client) = &mut self.client {
            match client.execute(command, arguments.clone()) {
                Err(error) if error.is_gone() => self.client = None,
                answer => return answer,
            }
        }
        let client = self.client.insert(Client::connect(&self.socket, self.limit)?);
        client.execute(command, arguments)
    }

    /// Its name, of QEMU's option `-name`.
    pub(super) fn name(&mut self) -> Result<String, Error> {
        let answer = self.execute("query-name", json!({}))?;
        Ok(answer.get("name").and_then(Value::as_str).unwrap_or_default().to_owned())
    }

    /// Its UUID, of QEMU's option `-uuid`.
    pub(super) fn uuid(&mut self) -> Result<String, Error> {
        let answer = self.execute("query-uuid", json!({}))?;
        Ok(answer.get("UUID").and_then(Value::as_str).unwrap_or_default().to_owned())
    }

    pub(super) fn state(&mut self) -> State {
        let answer = match self.execute("query-status", json!({})) {
            Ok(answer) => answer,
            Err(error) if error.is_gone() => return State::Gone,
            Err(error) => return State::Unknown(error.to_string()),
        };
        let running = answer.get("running").and_then(Value::as_bool) == Some(true);
        match answer.get("status").and_then(Value::as_str) {
            _ if running => State::Running,
            Some("inmigrate") => State::Incoming,
            Some(status) => State::Stopped(status.to_owned()),
            None => State::Unknown(format!("answer without a status: {answer}")),
        }
    }

    pub(super) fn migration(&mut self) -> Result<Migration, Error> {
        Ok(Migration::read(self.side, self.execute("query-migrate", json!({}))?))
    }

    /// As [`Self::migration`]; none if QEMU cannot be asked.
    pub(super) fn phase(&mut self) -> Phase {
        self.migration().map_or(Phase::None, |migration| migration.phase)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_of_qemu_has_a_phase() {
        for (status, phase) in [
            (json!({}), Phase::None),
            (json!({ "status": "none" }), Phase::None),
            (json!({ "status": "setup" }), Phase::Active),
            (json!({ "status": "cancelling" }), Phase::Active),
            (json!({ "status": "device" }), Phase::Active),
            (json!({ "status": "completed" }), Phase::None),
            (json!({ "status": "completed", "total-time": 0 }), Phase::Completed),
            (json!({ "status": "failed" }), Phase::Failed),
            (json!({ "status": "cancelled" }), Phase::Cancelled),
        ] {
            assert_eq!(Migration::read(Side::Source, status.clone()).phase, phase, "{status}");
        }
        let received = Migration::read(Side::Destination, json!({ "status": "completed" }));
        assert_eq!(received.phase, Phase::Completed);
        let answer = json!({ "ram": { "transferred": 7 }, "error-desc": "no route" });
        let migration = Migration::read(Side::Source, answer);
        assert_eq!((migration.number("/ram/transferred"), migration.number("/downtime")), (7, 0));
        assert_eq!(migration.error(), Some("no route"));
    }
}
