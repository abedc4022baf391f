//! The log on stderr.
//!
//! Only the thread that writes the log waits for its reader. A reader that stalls (a full pipe, a
//! stopped journald) costs lines, which are counted, and never holds up control.
//!
//! A handshake logs several lines, and each write wakes the reader. So the control thread's lines
//! wait for the end of its turn, and are written together. Errors and warnings do not wait, nor do
//! lines of other threads. Lines keep their order.

mod format;
mod queue;

pub(crate) use format::LogFormat;

use format::Style;
use queue::Queue;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::cell::Cell;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::panic::PanicHookInfo;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

/// Octets that may wait for a slow reader: some 10 000 lines.
const MAX_QUEUE_OCTETS: usize = 1 << 20;
/// Octets of lines that wait for the end of a turn. With more, all are written at once.
const MAX_BATCH_OCTETS: usize = 64 << 10;
static QUEUE: Queue = Queue::new(MAX_QUEUE_OCTETS, MAX_BATCH_OCTETS);

/// Whether the writer runs.
static STARTED: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Whether this thread's lines wait.
    static HOLDS: Cell<bool> = const { Cell::new(false) };
}

/// What testudo.toml says of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogSettings {
    /// Most verbose level that is logged.
    pub(crate) level: Level,
    pub(crate) format: LogFormat,
}

/// Starts the log, and the thread that writes it.
pub(crate) fn start(settings: LogSettings) -> io::Result<()> {
    // Not `std::io::Stderr`: its lock would be held for as long as the reader stalls.
    let mut stderr = File::from(io::stderr().as_fd().try_clone_to_owned()?);
    let style = Style {
        format: settings.format,
        journal: is_journal(&stderr, std::env::var("JOURNAL_STREAM").ok().as_deref()),
        colour: stderr.is_terminal(),
    };
    std::thread::Builder::new()
        .name("log".into())
        .spawn(move || QUEUE.write_to(&mut stderr, |lost| style.loss(lost)))?;
    STARTED.store(true, Ordering::Relaxed);
    tracing_subscriber::fmt().event_format(style).with_max_level(settings.level).with_writer(Stderr).init();
    Ok(())
}

/// True if stderr is the journal's stream, of which systemd names device and inode
/// (systemd.exec(5)). It may have been redirected since.
fn is_journal(stderr: &impl AsFd, stream: Option<&str>) -> bool {
    let Some((device, inode)) = stream.and_then(|stream| stream.split_once(':')) else { return false };
    let found = nix::sys::stat::fstat(stderr);
    found.is_ok_and(|found| {
        device.parse::<u64>().ok() == Some(found.st_dev) && inode.parse::<u64>().ok() == Some(found.st_ino)
    })
}

/// From now on this thread's lines wait for [`flush`], for as long as the value lives.
pub(crate) fn hold() -> Holding {
    HOLDS.set(true);
    Holding
}

/// See [`hold`].
pub(crate) struct Holding;

impl Drop for Holding {
    fn drop(&mut self) {
        HOLDS.set(false);
        flush();
    }
}

/// Has the lines that wait written.
pub(crate) fn flush() {
    QUEUE.flush();
}

/// At the end: waits until the reader has all lines, at most for `patience`.
pub(crate) fn finish(patience: Duration) {
    if STARTED.load(Ordering::Relaxed) {
        QUEUE.finish(patience);
    }
}

/// Writes a text to stderr that is no line of the log: an operator sits at the terminal.
pub(crate) fn say(text: &str) {
    if STARTED.load(Ordering::Relaxed) {
        QUEUE.push(text.as_bytes(), true);
    } else {
        // Nothing is left to be done if even stderr is gone.
        let _ = io::stderr().write_all(text.as_bytes());
    }
}

/// Logs a panic. The standard library would write it to stderr and wait for the reader.
pub(crate) fn panicked(panic: &PanicHookInfo<'_>) {
    let thread = std::thread::current();
    tracing::error!("thread '{}' {panic}", thread.name().unwrap_or("?"));
    let trace = Backtrace::capture();
    if trace.status() == BacktraceStatus::Captured {
        say(&format!("{trace}\n"));
    }
}

/// Takes lines, each in one piece.
struct Stderr;

/// A line on its way.
struct QueuedLine {
    queue: &'static Queue,
    urgent: bool,
}

impl<'a> MakeWriter<'a> for Stderr {
    type Writer = QueuedLine;

    fn make_writer(&'a self) -> QueuedLine {
        QueuedLine { queue: &QUEUE, urgent: true }
    }

    fn make_writer_for(&'a self, meta: &Metadata<'_>) -> QueuedLine {
        QueuedLine { queue: &QUEUE, urgent: *meta.level() < Level::INFO || !HOLDS.get() }
    }
}

impl Write for QueuedLine {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.queue.push(line, self.urgent);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_wait_only_while_they_are_held_and_only_those_of_that_thread() {
        assert!(!HOLDS.get());
        let holding = hold();
        assert!(HOLDS.get());
        assert!(!std::thread::spawn(|| HOLDS.get()).join().unwrap());
        drop(holding);
        assert!(!HOLDS.get());
    }

    #[test]
    fn the_journal_is_known_by_device_and_inode() {
        let (_, stderr) = io::pipe().unwrap();
        let found = nix::sys::stat::fstat(&stderr).unwrap();
        let stream = format!("{}:{}", found.st_dev, found.st_ino);
        assert!(is_journal(&stderr, Some(&stream)));
        // systemd's variable is inherited by what redirects stderr elsewhere.
        let elsewhere = format!("{}:{}", found.st_dev, found.st_ino + 1);
        for other in [Some(elsewhere.as_str()), Some("journal"), Some(""), None] {
            assert!(!is_journal(&stderr, other), "{other:?}");
        }
    }
}
