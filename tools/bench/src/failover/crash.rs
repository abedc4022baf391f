//! How a node dies, and how it comes back.

use std::fmt;
use testudo_lab::Result;
use testudo_lab::bed::{Bed, Failure};
use testudo_lab::cluster::Cut;

/// What happens to the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Crash {
    /// SIGKILL of testudod and corosync.
    Killed,
    /// Its daemons live, but nothing of theirs reaches anybody.
    CutOff,
}

impl Crash {
    fn failures(self) -> &'static [Failure] {
        match self {
            Self::Killed => &[Failure::Testudod, Failure::Corosync],
            Self::CutOff => &[Failure::AllLinks(Cut::Silent)],
        }
    }

    /// Lets it happen.
    pub(super) fn strike(self, bed: &mut Bed, node: u8) -> Result<()> {
        self.failures().iter().try_for_each(|failure| bed.strike(node, *failure))
    }

    /// Puts it right again, and waits until the node is one of the others again, with all that they
    /// know.
    pub(super) fn mend(self, bed: &mut Bed, node: u8) -> Result<()> {
        // The engine first, for who needs it.
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
