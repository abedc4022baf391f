//! A process and its output.

use crate::cargo;
use crate::error::{Error, Result};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A process that prints nothing for this long hangs. The longest test takes two minutes on an idle
/// machine; a lab that waits for its turn reports so each minute.
const SILENCE_LIMIT: Duration = Duration::from_secs(20 * 60);
/// Maximum run time of a process, whatever it prints.
const LIMIT: Duration = Duration::from_secs(60 * 60);
const POLL: Duration = Duration::from_millis(20);

/// A process whose output goes to a file, which is read as it grows. A pipe would stay open as long
/// as a daemon that outlives its test.
pub(crate) struct Output {
    child: Child,
    file: File,
    log: PathBuf,
    text: Vec<u8>,
    seen: usize,
}

impl Output {
    /// Starts it; its output goes to the log.
    pub(crate) fn start(mut command: Command, log: &Path) -> Result<Self> {
        let written = cargo::create(log)?;
        let again = written.try_clone().map_err(Error::io("share a log"))?;
        let file = File::open(log).map_err(Error::io(format!("read {}", log.display())))?;
        let child = command.stdin(Stdio::null()).stdout(written).stderr(again).spawn();
        let child = child.map_err(Error::io(format!("run {command:?}")))?;
        Ok(Self { child, file, log: log.to_owned(), text: Vec::new(), seen: 0 })
    }

    /// Calls `line` with each whole line until the process has ended, or hangs and is killed.
    pub(crate) fn lines(&mut self, line: &mut dyn FnMut(&str)) -> Result<ExitStatus> {
        let begun = Instant::now();
        let mut heard = begun;
        loop {
            let end = self.child.try_wait().map_err(Error::io("wait for a test"))?;
            let before = self.text.len();
            self.file
                .read_to_end(&mut self.text)
                .map_err(Error::io(format!("read {}", self.log.display())))?;
            if self.text.len() > before {
                heard = Instant::now();
            }
            while let Some(length) = self.text[self.seen..].iter().position(|octet| *octet == b'\n') {
                let text = String::from_utf8_lossy(&self.text[self.seen..self.seen + length]).into_owned();
                self.seen += length + 1;
                line(&text);
            }
            if let Some(end) = end {
                return Ok(end);
            }
            if heard.elapsed() > SILENCE_LIMIT || begun.elapsed() > LIMIT {
                self.child.kill().map_err(Error::io("kill a test that hangs"))?;
            }
            sleep(POLL);
        }
    }

    /// All its output.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.text).into_owned()
    }
}

/// The last lines.
pub(crate) fn tail(text: &str) -> String {
    const LINES: usize = 30;
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LINES)..].join("\n")
}
