//! Long-running processes with a log file; killed when dropped.

use crate::command::{describe, kill_group, wait_child};
use crate::cpu::{self, CpuTime};
use crate::{Error, Result, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::time::Duration;

const TAIL_LINES: usize = 40;

/// A process in the background.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    pub(crate) fn new(name: &str, child: Child, log: &Path) -> Self {
        Self { name: name.to_owned(), child, log: log.to_owned() }
    }

    /// Its process id. Wrappers replace themselves, so it is that of the program itself.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its output so far.
    pub fn log(&self) -> Result<String> {
        read_log(&self.log)
    }

    /// Fails, with the end of its log, if it has ended.
    pub fn alive(&mut self) -> Result<()> {
        match self.child.try_wait().map_err(Error::io(format!("look after {}", self.name)))? {
            None => Ok(()),
            Some(status) => Err(Error::Died {
                name: self.name.clone(),
                status: describe(status),
                log: self.log.clone(),
                tail: tail(&self.log().unwrap_or_default()),
            }),
        }
    }

    /// Waits until `ready` holds. Fails at once if the process ends first.
    pub fn wait_ready(
        &mut self,
        limit: Duration,
        mut ready: impl FnMut() -> Result<std::result::Result<(), String>>,
    ) -> Result<()> {
        let what = format!("{} to be ready", self.name);
        let outcome = wait_until(&what, limit, || {
            let seen = ready()?;
            if seen.is_err() {
                self.alive()?;
            }
            Ok(seen)
        });
        outcome.map_err(|error| match error {
            Error::Timeout { what, after, last } => {
                let log = tail(&self.log().unwrap_or_default());
                Error::Timeout { what, after, last: format!("{last}; end of its log:\n{log}") }
            }
            other => other,
        })
    }

    /// Waits until a line of its log contains `text`.
    pub fn wait_log(&mut self, text: &str, limit: Duration) -> Result<()> {
        self.wait_log_times(text, 1, limit)
    }

    /// Waits until that many lines of its log contain `text`.
    pub fn wait_log_times(&mut self, text: &str, times: usize, limit: Duration) -> Result<()> {
        let log = self.log.clone();
        self.wait_ready(limit, || {
            let found = read_log(&log)?.lines().filter(|line| line.contains(text)).count();
            Ok(if found >= times { Ok(()) } else { Err(format!("\"{text}\" {found} times in the log")) })
        })
    }

    /// Sends a signal.
    pub fn signal(&mut self, signal: Signal) -> Result<()> {
        self.alive()?;
        kill(Pid::from_raw(self.child.id().cast_signed()), signal)
            .map_err(|e| Error::io(format!("send {signal} to {}", self.name))(e.into()))
    }

    /// Waits for its end.
    pub fn wait(&mut self, limit: Duration) -> Result<ExitStatus> {
        wait_child(&mut self.child, limit)?.ok_or_else(|| Error::Timeout {
            what: format!("the end of {}", self.name),
            after: limit,
            last: tail(&self.log().unwrap_or_default()),
        })
    }

    /// Sends SIGTERM and waits for its end.
    pub fn stop(&mut self, limit: Duration) -> Result<ExitStatus> {
        if self.alive().is_ok() {
            self.signal(Signal::SIGTERM)?;
        }
        self.wait(limit)
    }

    /// Kills it with SIGKILL, and its process group with it.
    pub fn kill(&mut self) {
        kill_group(&mut self.child);
    }

    /// CPU time that it, its threads and its children have used.
    pub fn cpu(&self) -> Result<CpuTime> {
        cpu::of_tree(self.pid())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

fn read_log(path: &Path) -> Result<String> {
    let bytes = fs::read(path).map_err(Error::io(format!("read {}", path.display())))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The last lines of a log.
pub(crate) fn tail(log: &str) -> String {
    let lines: Vec<_> = log.lines().collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Cmd;
    use std::time::Instant;

    #[test]
    fn the_log_is_seen_and_drop_kills() {
        let dir = tempfile::tempdir().unwrap();
        let cmd = Cmd::new("sh").args(["-c", "echo up; exec sleep 60"]);
        let mut sleeper = cmd.start("sleeper", &dir.path().join("sleeper.log")).unwrap();
        sleeper.wait_log("up", Duration::from_secs(30)).unwrap();
        let error = sleeper.wait_log_times("up", 2, Duration::ZERO).unwrap_err().to_string();
        assert!(error.contains("\"up\" 1 times in the log"), "{error}");
        let proc = PathBuf::from(format!("/proc/{}", sleeper.pid()));
        assert!(proc.exists());
        drop(sleeper);
        assert!(!proc.exists());
    }

    #[test]
    fn an_early_end_is_told_at_once_with_the_log() {
        let dir = tempfile::tempdir().unwrap();
        let cmd = Cmd::new("sh").args(["-c", "echo cannot bind; exit 7"]);
        let mut short = cmd.start("short", &dir.path().join("short.log")).unwrap();
        let start = Instant::now();
        let error = short.wait_log("never", Duration::from_secs(600)).unwrap_err().to_string();
        assert!(error.contains("short ended with exit code 7") && error.contains("cannot bind"), "{error}");
        assert!(start.elapsed() < Duration::from_secs(60));
    }
}
