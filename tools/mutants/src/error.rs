//! Errors of the run itself; a mutant that lives is not an error.

use std::io;
use std::path::{Path, PathBuf};

/// The reason why the mutants could not be judged.
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
    /// A file is not Rust.
    #[error("{}:{line}: {why}", file.display())]
    Source {
        /// The file.
        file: PathBuf,
        /// The line.
        line: usize,
        /// The parser's reason.
        why: String,
    },
    /// A command failed.
    #[error("{command} failed: {said}")]
    Command {
        /// The command.
        command: String,
        /// The end of what it wrote.
        said: String,
    },
    /// The paths are not in the source of one crate.
    #[error("expected files of one crate of this workspace, found {}", path.display())]
    NoCrate {
        /// The first path that is not.
        path: PathBuf,
    },
    /// The compiler's errors name no mutant.
    #[error("{package} does not compile with mutants in it, and it cannot be said which are the reason")]
    DoesNotCompile {
        /// The package.
        package: String,
    },
}

pub(crate) type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// The parser's error about a file.
    pub(crate) fn source(file: &Path, error: &syn::Error) -> Self {
        Self::Source { file: file.to_owned(), line: error.span().start().line, why: error.to_string() }
    }

    /// Adds the action, for `map_err`.
    pub(crate) fn io(action: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { action: action.into(), source }
    }
}
