//! When an alarm is raised, how serious it is, and what is done.

use crate::kind::{Kind, Severity};
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;
use testudo_base::prefix::Prefix;

/// How one kind is judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// How serious it is. `None`: the kind is not watched for.
    pub severity: Option<Severity>,
    /// Sightings in a second that raise an alarm where there is no noise. Noise adds to it.
    pub threshold: u64,
    /// The program to be run when an alarm is raised, and when it ends.
    pub run: Option<PathBuf>,
    /// For how long the packets of a source are dropped that has as many sightings by itself as raise
    /// an alarm. `None`: they are not. Only for kinds that [name sources](Kind::names_sources).
    pub drop_source: Option<Duration>,
}

/// The rules of all kinds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    kinds: [Rule; Kind::COUNT],
    /// Sources that are never dropped.
    pub never_drop: Vec<Prefix>,
}

impl Rules {
    /// The rule of a kind.
    pub fn of(&self, kind: Kind) -> &Rule {
        let [first, ..] = &self.kinds;
        self.kinds.get(kind as usize).unwrap_or(first)
    }

    /// The rule of a kind, to be changed.
    pub fn of_mut(&mut self, kind: Kind) -> Option<&mut Rule> {
        self.kinds.get_mut(kind as usize)
    }

    /// True if the packets of a source may be dropped.
    pub(crate) fn may_drop(&self, source: IpAddr) -> bool {
        !self.never_drop.iter().any(|prefix| prefix.contains(source))
    }
}

impl Default for Rules {
    fn default() -> Self {
        let kinds = Kind::ALL.map(|kind| {
            let (severity, threshold) = by_default(kind);
            Rule { severity: Some(severity), threshold, run: None, drop_source: None }
        });
        Self { kinds, never_drop: Vec::new() }
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
