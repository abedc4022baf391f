//! When an alarm is raised, how serious it is, and what is done.

use crate::kind::{Kind, Severity};
use std::path::PathBuf;

/// How one kind is judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// How serious it is. `None`: the kind is not watched for.
    pub severity: Option<Severity>,
    /// Sightings in a second that raise an alarm where there is no noise. Noise adds to it.
    pub threshold: u64,
    /// The program to be run when an alarm is raised, and when it ends.
    pub run: Option<PathBuf>,
}

/// The rules of all kinds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules([Rule; Kind::COUNT]);

impl Rules {
    /// The rule of a kind.
    pub fn of(&self, kind: Kind) -> &Rule {
        let [first, ..] = &self.0;
        self.0.get(kind as usize).unwrap_or(first)
    }

    /// The rule of a kind, to be changed.
    pub fn of_mut(&mut self, kind: Kind) -> Option<&mut Rule> {
        self.0.get_mut(kind as usize)
    }
}

impl Default for Rules {
    fn default() -> Self {
        Self(Kind::ALL.map(|kind| {
            let (severity, threshold) = by_default(kind);
            Rule { severity: Some(severity), threshold, run: None }
        }))
    }
}

/// The reasons for the thresholds are in `docs/how-to/alarms.md`.
fn by_default(kind: Kind) -> (Severity, u64) {
    match kind {
        Kind::ReplayBurst => (Severity::Warning, 16),
        Kind::ForgedPackets => (Severity::Warning, 8),
        Kind::SpiScan => (Severity::Warning, 16),
        Kind::ClearText => (Severity::Critical, 4),
        Kind::IkeBruteForce => (Severity::Warning, 5),
        Kind::HalfOpenFlood => (Severity::Warning, 32),
        Kind::FragmentOverlap => (Severity::Warning, 4),
        Kind::AddressSpoofing => (Severity::Critical, 1),
        Kind::PathMtu => (Severity::Warning, 4),
        Kind::Certificate => (Severity::Warning, 1),
        Kind::CounterReversal => (Severity::Warning, 16),
        Kind::Reordering => (Severity::Notice, 256),
    }
}
