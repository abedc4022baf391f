//! What can go wrong with the run itself; a test that fails is no error.

use std::io;
use std::path::PathBuf;

/// Why the tests could not be run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// A system call failed.
    #[error("cannot {action}: {source}")]
    Io {
        /// What was tried.
        action: String,
        /// What the system said.
        source: io::Error,
    },
    /// Cargo did not build the tests; it has said why.
    #[error("the tests do not build; the full text is in {log}")]
    Build {
        /// Where cargo's output is.
        log: PathBuf,
    },
    /// A program printed what this one does not understand.
    #[error("{program} printed {found:?}, expected {expected}")]
    Output {
        /// Which program.
        program: String,
        /// What it printed.
        found: String,
        /// What it should have.
        expected: &'static str,
    },
    /// No test fits.
    #[error("no test has {wanted:?} in its name; `testudo-suite list` names all tests")]
    NoTest {
        /// What was asked for.
        wanted: Vec<String>,
    },
}

pub(crate) type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// For `map_err`.
    pub(crate) fn io(action: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { action: action.into(), source }
    }
}
