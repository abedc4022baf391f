//! The parts that the demos share: their frame, progress output and reliable cleanup.

mod guard;
mod progress;

pub use progress::{Done, Progress};

use std::error::Error;
use std::fmt::Display;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

/// A demo's `main`: the work is done in the process that the guard has started (`guarded`), and the
/// process that the user has started is the guard.
pub fn main(name: &str, guarded: bool, work: impl FnOnce() -> Result<ExitCode, Box<dyn Error>>) -> ExitCode {
    let done = if guarded { work() } else { guard::run(name) };
    done.unwrap_or_else(|error| {
        // Nothing can be done if stderr is closed too.
        let _ = writeln!(io::stderr(), "{name}: {error}");
        ExitCode::FAILURE
    })
}

/// Removes the figures of an earlier run: if this one fails, they must not remain.
pub fn discard(files: [&Path; 2]) {
    for old in files {
        let _absent = std::fs::remove_file(old);
    }
}

/// Says how long the demo took, where its figures are, and what has failed.
pub fn conclude(
    progress: &Progress,
    [report, plot]: [&Path; 2],
    problems: &[impl Display],
) -> io::Result<ExitCode> {
    let mut stdout = io::stdout();
    let (seconds, report, plot) = (progress.seconds(), report.display(), plot.display());
    writeln!(stdout, "{seconds} s in all; figures in {report}, plot in {plot}")?;
    for problem in problems {
        writeln!(stdout, "FAILED: {problem}")?;
    }
    Ok(if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
