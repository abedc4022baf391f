//! The roll: detects processes that stand still while their daemon keeps them in the group, in the
//! total order.
//!
//! Every process states that it is alive a few times a second, as long as its host serves it, and
//! never before its last statement has been delivered. A process that states nothing while another
//! has stated it several times is *put out*: the others go on without it. No clock is involved, so
//! all nodes agree on it at every position in the order; and an order that rests while rings are
//! formed puts nobody out. The next change of members or ring starts the roll anew, because a
//! joining process knows nothing of the time before.

use super::wire::Process;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Interval between two statements of a process.
pub(super) const ROLL_INTERVAL: Duration = Duration::from_millis(200);
/// Bound on the statements of one other process since a process's last one.
const MAX_MISSED: u32 = 5;

/// The roll since the last change.
#[derive(Debug, Default)]
pub(super) struct Roll {
    /// For each process, how many statements each other one has made since its last one.
    missed: BTreeMap<Process, BTreeMap<Process, u32>>,
    out: BTreeSet<Process>,
}

impl Roll {
    /// Members or ring have changed.
    pub(super) fn begin(&mut self) {
        *self = Self::default();
    }

    /// A member has stated that it is alive. Returns true if that puts others out.
    pub(super) fn alive(&mut self, process: Process, members: &[Process]) -> bool {
        self.missed.remove(&process);
        let before = self.out.len();
        for other in members.iter().filter(|other| **other != process) {
            let missed = self.missed.entry(*other).or_default().entry(process).or_default();
            *missed = missed.saturating_add(1);
            if *missed >= MAX_MISSED {
                self.out.insert(*other);
            }
        }
        self.out.len() > before
    }

    /// True if the process has been put out.
    pub(super) fn is_out(&self, process: Process) -> bool {
        self.out.contains(&process)
    }

    /// True if no process has been put out.
    pub(super) fn is_complete(&self) -> bool {
        self.out.is_empty()
    }
}
