//! Who is still there, called over in the total order: a process may stand still while its daemon
//! keeps it in the group.
//!
//! Every process says that it is alive a few times a second, as long as its host serves it, and
//! never again before what it said last has come to its place. Whoever says nothing while another
//! has said it several times is *put out*: the others go on without it. No clock has a say in that,
//! so all agree on it at every place in the order; and an order that stands still while rings are
//! formed puts nobody out. With the next change of members or ring the roll is called anew: who
//! comes knows nothing of before.

use super::wire::Process;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// From one word to the next.
pub(super) const ROLL_INTERVAL: Duration = Duration::from_millis(200);
/// So often may one other process have spoken since.
const MAX_MISSED: u32 = 5;

/// The roll since the last change.
#[derive(Debug, Default)]
pub(super) struct Roll {
    /// How often others have spoken since a process has, each by itself.
    missed: BTreeMap<Process, BTreeMap<Process, u32>>,
    out: BTreeSet<Process>,
}

impl Roll {
    /// Members or ring have changed.
    pub(super) fn begin(&mut self) {
        *self = Self::default();
    }

    /// A member is alive. True if that puts others out.
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

    /// The others go on without it.
    pub(super) fn is_out(&self, process: Process) -> bool {
        self.out.contains(&process)
    }

    /// True if nobody is out.
    pub(super) fn is_complete(&self) -> bool {
        self.out.is_empty()
    }
}
