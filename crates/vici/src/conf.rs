//! `swanctl.conf` as swanctl reads it: sections, keys, includes, references to templates; and the
//! gateway's answer to the resulting commands, with file and line.
//!
//! strongSwan's own parser is in `src/libstrongswan/settings`; the translation of keys to commands
//! is in `src/swanctl/commands`.

mod check;
mod directories;
mod disk;
mod include;
mod messages;
mod parse;
mod tree;

pub use check::{Check, Finding, Report, Severity};
pub use disk::Disk;

use crate::trust::Untrusted;
use std::io;
use std::path::{Path, PathBuf};

/// Access to files. Only [`Disk`] reads real ones.
pub trait Files {
    /// The octets of a file.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;
    /// The names of the entries of a directory, in any order.
    fn list(&self, directory: &Path) -> io::Result<Vec<String>>;
    /// Whether the gateway would run that program, or the reason against it: see
    /// [`crate::trust::check`].
    fn runs(&self, program: &Path) -> Result<(), Untrusted>;
}

/// A line of a file; the file is an index into [`Sources`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct At {
    file: usize,
    line: u32,
}

/// The files read, in order.
#[derive(Debug, Default)]
struct Sources(Vec<PathBuf>);

impl Sources {
    /// Adds a file and returns its index.
    fn add(&mut self, path: PathBuf) -> usize {
        self.0.push(path);
        self.0.len().saturating_sub(1)
    }

    fn path(&self, at: At) -> PathBuf {
        self.0.get(at.file).cloned().unwrap_or_default()
    }

    /// `FILE:LINE`.
    fn show(&self, at: At) -> String {
        format!("{}:{}", self.path(at).display(), at.line)
    }
}
