//! One run of a script: whether it may run, how long, and its output.

use super::ScriptLine;
use crate::program;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io::{self, PipeReader, Read};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use testudo_ike::config::UpdownScript;
use testudo_ike::output::LogLevel;
use testudo_vici::trust::Untrusted;

/// Octets of a run's output that go to the log.
const MAX_OUTPUT_OCTETS: usize = 8192;
/// How often a script is checked that has closed its output, or whose children keep it open.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Something to run.
#[derive(Clone, Debug)]
pub(super) struct Task {
    pub(super) connection: String,
    pub(super) child: String,
    pub(super) script: UpdownScript,
    /// PLUTO_VERB.
    pub(super) verb: String,
    /// All other variables.
    pub(super) variables: Vec<(String, String)>,
}

/// The result of a run.
#[derive(Debug)]
pub(super) struct Outcome {
    connection: String,
    /// Its output, standard error included.
    output: Vec<u8>,
    /// True if it wrote more.
    cut: bool,
    /// What went wrong.
    failure: Option<String>,
}

impl Outcome {
    /// For the log.
    pub(super) fn into_lines(self) -> Vec<ScriptLine> {
        let Self { connection, output, cut, failure } = self;
        let output = String::from_utf8_lossy(&output);
        let said = output.lines().map(|line| (LogLevel::Info, format!("updown: {line}")));
        let cut = cut.then(|| {
            (LogLevel::Warning, format!("updown: output beyond {MAX_OUTPUT_OCTETS} octets is left out"))
        });
        let failed = failure.map(|failure| (LogLevel::Warning, failure));
        let line = |(level, text)| ScriptLine { connection: connection.clone(), level, text };
        said.chain(cut).chain(failed).map(line).collect()
    }
}

/// Why a run has no status.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Untrusted(#[from] Untrusted),
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("it ran for more than {} seconds and was killed", .0.as_secs())]
    TooLong(Duration),
    #[error("it was killed because testudod ends")]
    Ending,
}

/// Runs the script, for `limit` at most, or until `ending`.
pub(super) fn run(task: &Task, limit: Duration, ending: &AtomicBool) -> Outcome {
    let mut output = Output::default();
    let failure = match attempt(task, limit, ending, &mut output) {
        Ok(status) if status.success() => None,
        Ok(status) => Some(status.to_string()),
        Err(failure) => Some(failure.to_string()),
    };
    let Task { connection, child, script, verb, .. } = task;
    let named = |why| format!("updown script {} {verb} of child {child} failed: {why}", script.program);
    let connection = connection.clone();
    Outcome { connection, output: output.octets, cut: output.cut, failure: failure.map(named) }
}

fn attempt(
    task: &Task,
    limit: Duration,
    ending: &AtomicBool,
    output: &mut Output,
) -> Result<ExitStatus, Failure> {
    // A script that would be killed at once is not started.
    if ending.load(Ordering::Relaxed) {
        return Err(Failure::Ending);
    }
    let mut command = program::command(Path::new(&task.script.program))?;
    let (mut reader, writer) = io::pipe()?;
    fcntl(&reader, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).map_err(io::Error::from)?;
    command
        .args(&task.script.arguments)
        .env("PLUTO_VERB", &task.verb)
        .envs(task.variables.iter().map(|(name, value)| (name, value)))
        .stdout(writer.try_clone()?)
        .stderr(writer);
    let mut child = command.spawn()?;
    // Closes our end of the pipe, which would never end otherwise.
    drop(command);
    let ended = wait(&mut child, &mut reader, output, limit, ending);
    if ended.is_err() {
        program::kill(&child);
        let _ = child.wait();
    }
    ended
}

/// Reads the script's output until it has ended. Processes that it leaves behind may keep the
/// output open: they are not waited for.
fn wait(
    child: &mut Child,
    reader: &mut PipeReader,
    output: &mut Output,
    limit: Duration,
    ending: &AtomicBool,
) -> Result<ExitStatus, Failure> {
    let until = Instant::now() + limit;
    let mut pause = Duration::from_millis(1);
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let open = output.read(reader, left.min(POLL_INTERVAL))?;
        if let Some(status) = child.try_wait()? {
            output.read(reader, Duration::ZERO)?;
            return Ok(status);
        }
        if left.is_zero() {
            return Err(Failure::TooLong(limit));
        }
        if ending.load(Ordering::Relaxed) {
            return Err(Failure::Ending);
        }
        if !open {
            // As a rule a script ends as soon as its output does.
            thread::sleep(pause.min(left));
            pause = (pause * 2).min(POLL_INTERVAL);
        }
    }
}

#[derive(Default)]
struct Output {
    octets: Vec<u8>,
    cut: bool,
}

impl Output {
    /// Reads what there is, and waits for more for at most `wait`. False at the end of the output.
    fn read(&mut self, reader: &mut PipeReader, wait: Duration) -> io::Result<bool> {
        let timeout = PollTimeout::try_from(wait).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(reader.as_fd(), PollFlags::POLLIN)], timeout) {
            Ok(0) | Err(nix::errno::Errno::EINTR) => return Ok(true),
            result => result.map_err(io::Error::from)?,
        };
        let mut buffer = [0; 4096];
        // A script that never stops talking is looked at in between.
        for _ in 0..16 {
            match reader.read(&mut buffer) {
                Ok(0) => return Ok(false),
                Ok(len) => self.keep(buffer.get(..len).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    fn keep(&mut self, octets: &[u8]) {
        let room = MAX_OUTPUT_OCTETS.saturating_sub(self.octets.len()).min(octets.len());
        self.octets.extend_from_slice(octets.get(..room).unwrap_or_default());
        self.cut |= room < octets.len();
    }
}

#[cfg(test)]
pub(super) mod tests;
