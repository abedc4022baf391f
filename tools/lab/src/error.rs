//! Errors of a lab, with enough context to explain a failed test.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// The result of lab operations.
pub type Result<T> = std::result::Result<T, Error>;

/// A failure in the lab.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A system call failed.
    #[error("{action}: {source}")]
    Io {
        /// The action.
        action: String,
        /// The system's error.
        source: io::Error,
    },
    /// A program is not installed.
    #[error("{program} is not installed (scripts/install-packages.sh installs what the lab needs)")]
    Missing {
        /// Name or path of the program.
        program: String,
    },
    /// A command failed.
    #[error("`{command}` ended with {status}{}", said(.output))]
    Command {
        /// The command line, with its namespace.
        command: String,
        /// Exit code or signal.
        status: String,
        /// Its output, standard error first.
        output: String,
    },
    /// A command did not end in time and was killed.
    #[error("`{command}` had not ended after {after:?} and was killed{}", said(.output))]
    CommandTimeout {
        /// The command line, with its namespace.
        command: String,
        /// The limit.
        after: Duration,
        /// Its output until then.
        output: String,
    },
    /// A long-running process ended unexpectedly.
    #[error("{name} ended with {status} while it was needed; end of its log {}:\n{tail}", .log.display())]
    Died {
        /// Name of the process.
        name: String,
        /// Exit code or signal.
        status: String,
        /// Its log file.
        log: PathBuf,
        /// The last lines of the log.
        tail: String,
    },
    /// A daemon did not answer as it should.
    #[error("ask {}: {error}", .socket.display())]
    Vici {
        /// Its VICI socket.
        socket: PathBuf,
        /// What went wrong.
        error: testudo_vici::Error,
    },
    /// A condition was not met in time.
    #[error("waited {after:?} in vain for {what}{}", said(.last))]
    Timeout {
        /// The condition.
        what: String,
        /// The limit.
        after: Duration,
        /// The last observation.
        last: String,
    },
    /// A program's output is wrong.
    #[error("{what}: expected {expected}, found {found}")]
    Unexpected {
        /// What was read.
        what: String,
        /// The expected value.
        expected: String,
        /// The value found.
        found: String,
    },
    /// A signal asks the program to stop.
    #[error("interrupted by a signal")]
    Interrupted,
}

impl Error {
    /// Adds the action to a system error.
    pub fn io(action: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let action = action.into();
        move |source| Self::Io { action, source }
    }

    /// An output that cannot be understood.
    pub fn unexpected(
        what: impl Into<String>,
        expected: impl Into<String>,
        found: impl Into<String>,
    ) -> Self {
        Self::Unexpected { what: what.into(), expected: expected.into(), found: found.into() }
    }
}

fn said(output: &str) -> String {
    let output = output.trim();
    if output.is_empty() { String::new() } else { format!(": {output}") }
}
