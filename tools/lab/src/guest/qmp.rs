//! The emulator's monitor (QMP), for saving its state.

use crate::process::Process;
use crate::{Error, Result, wait_until};
use serde_json::json;
use std::path::Path;
use std::time::Duration;
use testudo_qmp::Client;

const COMMAND_LIMIT: Duration = Duration::from_secs(60);
const END_LIMIT: Duration = Duration::from_secs(30);
/// Environment variable for the emulator's helper: a path with any characters.
pub(super) const STATE: &str = "GUEST_STATE";
const SAVE_LIMIT: Duration = Duration::from_secs(120);

/// A connection to it.
pub(super) struct Monitor(Client);

impl Monitor {
    pub(super) fn connect(socket: &Path) -> Result<Self> {
        Client::connect(socket, COMMAND_LIMIT).map(Self).map_err(failed("connect to the emulator's monitor"))
    }

    /// Stops the guest.
    pub(super) fn stop(&mut self) -> Result<()> {
        self.0.execute("stop", json!({})).map(drop).map_err(failed("stop"))
    }

    /// Waits until a guest that was stopped when it was saved is restored, and lets it go on.
    pub(super) fn go_on(&mut self) -> Result<()> {
        let Self(client) = self;
        wait_until("the restored guest", SAVE_LIMIT, || {
            let status = client.execute("query-status", json!({})).map_err(failed("query-status"))?;
            Ok(if status["status"] == "paused" { Ok(()) } else { Err(status.to_string()) })
        })?;
        client.execute("cont", json!({})).map(drop).map_err(failed("cont"))
    }

    /// Writes the guest's state into a shell command, and waits until it has received everything.
    /// The guest stays stopped.
    fn save_to(&mut self, command: &str) -> Result<()> {
        let Self(client) = self;
        // Without a limit; the default is for slow networks.
        let fast = json!({ "max-bandwidth": 1_u64 << 40 });
        client.execute("migrate-set-parameters", fast).map_err(failed("migrate-set-parameters"))?;
        let uri = json!({ "uri": format!("exec:{command}") });
        client.execute("migrate", uri).map_err(failed("migrate"))?;
        wait_until("the guest's saved state", SAVE_LIMIT, || {
            let progress = client.execute("query-migrate", json!({})).map_err(failed("query-migrate"))?;
            match progress["status"].as_str() {
                Some("completed") => Ok(Ok(())),
                Some("failed") => Err(Error::unexpected("migrate", "a saved state", progress.to_string())),
                _ => Ok(Err(progress.to_string())),
            }
        })
    }

    /// Ends the emulator, which may not answer.
    fn quit(mut self) -> Result<()> {
        match self.0.execute("quit", json!({})) {
            Err(error) if !error.is_gone() => Err(failed("quit")(error)),
            _ => Ok(()),
        }
    }
}

/// Has an emulator write its guest's state, and waits for its end.
pub(super) fn save(mut process: Process, mut monitor: Monitor) -> Result<()> {
    monitor.save_to(&format!("cat >\"${STATE}\""))?;
    monitor.quit()?;
    let status = process.wait(END_LIMIT)?;
    if status.success() {
        return Ok(());
    }
    Err(Error::unexpected("the emulator that saved its state", "success", status.to_string()))
}

/// QEMU's `-incoming` for a state that was saved so.
pub(super) fn saved() -> String {
    format!("exec:cat \"${STATE}\"")
}

fn failed(what: &'static str) -> impl FnOnce(testudo_qmp::Error) -> Error {
    move |error| Error::unexpected(what, "success", error.to_string())
}
