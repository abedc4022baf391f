//! `swanctl.conf` as swanctl reads it: sections, keys, includes, references to templates; and what
//! the gateway would say to what swanctl makes of it, with file and line.
//!
//! strongSwan's own reader is in `src/libstrongswan/settings`, and what swanctl makes of the keys
//! in `src/swanctl/commands`.

mod check;
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

/// Where files come from: nothing but [`Disk`] reads any.
pub trait Files {
    /// The octets of a file.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;
    /// The names of what lies in a directory, in any order.
    fn list(&self, directory: &Path) -> io::Result<Vec<String>>;
    /// Whether the gateway would run that program, or why not: see [`crate::trust::check`].
    fn runs(&self, program: &Path) -> Result<(), Untrusted>;
}

/// A line of a file, by the file's number in [`Sources`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct At {
    file: usize,
    line: u32,
}

/// The files that were read, in order.
#[derive(Debug, Default)]
struct Sources(Vec<PathBuf>);

impl Sources {
    /// The number of a file that is read now.
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
