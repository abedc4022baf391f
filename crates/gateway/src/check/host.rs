//! The machine that is checked: the real one, or one that a test makes up.

use crate::cluster::corosync_libraries;
use crate::error::Result;
use std::io;
use std::path::Path;
use testudo_fastpath::port::{Facts, facts_of};
use testudo_vici::conf::{Disk, Files};

/// What the check asks of a machine.
pub(super) trait Host {
    /// The text of a file below /proc or /sys. `None`: it is missing or empty.
    fn read(&self, path: &str) -> Option<String>;

    /// The facts about an interface. `None`: there is none of that name.
    fn interface(&self, name: &str) -> Result<Option<Facts>>;

    /// The files of a swanctl.conf.
    fn files(&self) -> &dyn Files;

    /// Whether a file can be opened.
    fn open(&self, path: &Path) -> io::Result<()>;

    /// Loads corosync's libraries.
    fn corosync(&self) -> Result<()>;
}

/// This machine.
pub(super) struct System;

impl Host for System {
    fn read(&self, path: &str) -> Option<String> {
        std::fs::read_to_string(path).ok()
    }

    fn interface(&self, name: &str) -> Result<Option<Facts>> {
        Ok(facts_of(name)?)
    }

    fn files(&self) -> &dyn Files {
        &Disk
    }

    fn open(&self, path: &Path) -> io::Result<()> {
        std::fs::File::open(path).map(drop)
    }

    fn corosync(&self) -> Result<()> {
        corosync_libraries().map(drop)
    }
}
