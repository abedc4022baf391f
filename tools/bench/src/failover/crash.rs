//! The failures of a node, and its recovery.

use std::fmt;
use testudo_lab::Result;
use testudo_lab::bed::{Bed, Failure};
use testudo_lab::cluster::Cut;

/// A failure of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Crash {
    /// SIGKILL of testudod and corosync.
    Killed,
    /// Its daemons run, but none of their packets arrives anywhere.
    CutOff,
}

impl Crash {
    fn failures(self) -> &'static [Failure] {
        match self {
            Self::Killed => &[Failure::Testudod, Failure::Corosync],
            Self::CutOff => &[Failure::AllLinks(Cut::Silent)],
        }
    }

    /// Causes the failure.
    pub(crate) fn strike(self, bed: &mut Bed, node: u8) -> Result<()> {
        self.failures().iter().try_for_each(|failure| bed.strike(node, *failure))
    }

    /// Repairs it, and waits until the node is synchronized with the others.
    pub(crate) fn mend(self, bed: &mut Bed, node: u8) -> Result<()> {
        // The membership engine first: other repairs need it.
        self.failures().iter().rev().try_for_each(|failure| bed.mend(node, *failure))?;
        bed.await_all()
    }
}

impl fmt::Display for Crash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Killed => "node killed",
            Self::CutOff => "all links cut",
        })
    }
}
