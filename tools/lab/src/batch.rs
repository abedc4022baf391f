//! `ip` processes that wait for their input, so that several of them can act at the same time.

use crate::{Error, Namespace, Result, wait_until};
use std::fs;
use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const START_LIMIT: Duration = Duration::from_secs(60);

/// A running `ip -batch` in a namespace.
#[derive(Debug)]
pub(crate) struct Batch {
    child: Child,
    what: String,
}

impl Batch {
    /// Starts it, and waits until it reads its input.
    pub(crate) fn start(namespace: &Namespace) -> Result<Self> {
        let what = format!("ip -batch in {}", namespace.name());
        let mut command = Command::new("ip");
        command.args(["-n", namespace.name(), "-batch", "-"]).stdin(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().map_err(Error::io(format!("start {what}")))?;
        let place = format!("/proc/{}/wchan", child.id());
        let batch = Self { child, what };
        wait_until(&format!("{} to read", batch.what), START_LIMIT, || {
            let place = fs::read_to_string(&place).unwrap_or_default();
            Ok(if place.contains("pipe_read") { Ok(()) } else { Err(place) })
        })?;
        Ok(batch)
    }

    /// Sends it its lines.
    pub(crate) fn tell(mut self, lines: &str) -> Result<Self> {
        if let Some(mut input) = self.child.stdin.take() {
            input.write_all(format!("{lines}\n").as_bytes()).map_err(Error::io(&self.what))?;
        }
        Ok(self)
    }

    /// Waits for its end.
    pub(crate) fn finish(self) -> Result<()> {
        let done = self.child.wait_with_output().map_err(Error::io(&self.what))?;
        if done.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        Err(Error::unexpected(self.what, "an end without error", said))
    }
}
