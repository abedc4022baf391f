//! What can go wrong in a lab, told so that a failed test explains itself.

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
        /// What was tried.
        action: String,
        /// What the system said.
        source: io::Error,
    },
    /// A program is not there.
    #[error("{program} is not installed (scripts/install-packages.sh installs what the lab needs)")]
    Missing {
        /// Name or path of the program.
        program: String,
    },
    /// A command ended with something else than success.
    #[error("`{command}` ended with {status}{}", said(.output))]
    Command {
        /// The command line, with its namespace.
        command: String,
        /// Exit code or signal.
        status: String,
        /// What it wrote, standard error first.
        output: String,
    },
    /// A command did not end in time and was killed.
    #[error("`{command}` had not ended after {after:?} and was killed{}", said(.output))]
    CommandTimeout {
        /// The command line, with its namespace.
        command: String,
        /// The limit.
        after: Duration,
        /// What it had written until then.
        output: String,
    },
    /// A long-running process ended by itself.
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
    /// Something that was waited for did not come.
    #[error("waited {after:?} in vain for {what}{}", said(.last))]
    Timeout {
        /// What was waited for.
        what: String,
        /// The limit.
        after: Duration,
        /// What was seen last.
        last: String,
    },
    /// A program's output is not what it should be.
    #[error("{what}: expected {expected}, found {found}")]
    Unexpected {
        /// What was read.
        what: String,
        /// What should have been there.
        expected: String,
        /// What was there.
        found: String,
    },
    /// Somebody wants the program to stop.
    #[error("interrupted by a signal")]
    Interrupted,
}

impl Error {
    /// Wraps a system error with what was tried.
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
