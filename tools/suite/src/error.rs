//! Errors of the run itself; a failed test is not an error.

use std::io;
use std::path::PathBuf;

/// The reason why the tests could not be run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// A system call failed.
    #[error("cannot {action}: {source}")]
    Io {
        /// The action.
        action: String,
        /// The system's error.
        source: io::Error,
    },
    /// Cargo could not build the tests; it has printed the reason.
    #[error("the tests do not build; the full text is in {log}")]
    Build {
        /// The path of cargo's output.
        log: PathBuf,
    },
    /// A program's output was not understood.
    #[error("{program} printed {found:?}, expected {expected}")]
    Output {
        /// The program.
        program: String,
        /// Its output.
        found: String,
        /// The expected output.
        expected: &'static str,
    },
    /// No test matches.
    #[error("no test has {wanted:?} in its name; `testudo-suite list` names all tests")]
    NoTest {
        /// The names requested.
        wanted: Vec<String>,
    },
}

pub(crate) type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Adds the action, for `map_err`.
    pub(crate) fn io(action: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { action: action.into(), source }
    }
}
