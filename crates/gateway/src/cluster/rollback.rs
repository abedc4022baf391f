//! Whether this machine has been set back to an earlier state: its hypervisor tells, or its clock
//! has jumped.
//!
//! A virtual machine that goes on from a snapshot has numbers, IVs and a sender ID that it has used
//! already. Workers look at the generation once a burst; here it is found out what to do about it.
//! Where no generation can be read, only the clock is left: it is set right some time after a
//! snapshot was restored, when harm may have been done. A clock may be set for other reasons, on
//! all nodes at once, so a jump costs a node only its sender ID.

use crate::config::ClusterSettings;
use crate::error::{Error, Result};
use std::path::Path;
use std::time::Duration;
use testudo_fastpath::generation;

/// Where Linux shows what the hypervisor tells.
const VMCLOCK: &str = "/dev/vmclock0";
/// The least jump that counts. As a rule the time of day is set in small steps.
const MIN_JUMP: Duration = Duration::from_secs(10);
/// In the first minutes after the start of the machine the time of day is set for the first time.
const BOOT_PERIOD: Duration = Duration::from_secs(300);

/// The sign of a machine that has been set back.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Sign {
    /// The hypervisor's word: the generations before and now.
    Generation(u64, u64),
    /// The time of day has jumped ahead.
    Clock(Duration),
}

/// What the last look has found.
pub(crate) struct Rollback {
    generation: u64,
    /// The time of day when the machine started.
    origin: Option<Duration>,
}

/// Begins to watch the generation, where the configuration or this machine offers one.
pub(crate) fn watch(settings: &ClusterSettings) -> Result<()> {
    let named = settings.generation.as_deref();
    let Some(path) = named.or_else(|| Some(Path::new(VMCLOCK)).filter(|path| path.exists())) else {
        tracing::info!(
            "nothing tells the generation of this machine ({VMCLOCK} is not there): never continue it from a snapshot"
        );
        return Ok(());
    };
    match generation::watch(path) {
        Ok(()) => Ok(()),
        Err(source) if named.is_some() => Err(Error::NoGeneration { path: path.to_owned(), source }),
        // A kernel or a hypervisor without a generation must not keep the daemon from starting.
        Err(error) => {
            tracing::warn!("{}: cannot watch the generation of this machine: {error}", path.display());
            Ok(())
        }
    }
}

impl Rollback {
    /// As the machine is now.
    pub(crate) fn new() -> Self {
        Self { generation: generation::current(), origin: None }
    }

    /// The sign that the machine has been set back since the last look, if there is one.
    pub(crate) fn look(&mut self, boottime: Duration, since_1970: Duration) -> Option<Sign> {
        self.look_at(generation::current(), boottime, since_1970)
    }

    fn look_at(&mut self, generation: u64, boottime: Duration, since_1970: Duration) -> Option<Sign> {
        let before = std::mem::replace(&mut self.generation, generation);
        let origin = since_1970.saturating_sub(boottime);
        let jumped = self.origin.replace(origin).and_then(|before| origin.checked_sub(before));
        if before != generation {
            return Some(Sign::Generation(before, generation));
        }
        jumped.filter(|jump| *jump >= MIN_JUMP && boottime >= BOOT_PERIOD).map(Sign::Clock)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn another_generation_tells_and_so_does_a_clock_that_jumps_ahead() {
        let mut rollback = Rollback { generation: 1, origin: None };
        let day = 1_700_000_000;
        assert_eq!(rollback.look_at(1, s(1000), s(day)), None);
        assert_eq!(rollback.look_at(1, s(1100), s(day + 105)), None, "a step of five seconds");
        assert_eq!(rollback.look_at(1, s(1200), s(day + 100)), None, "back");
        assert_eq!(rollback.look_at(2, s(1300), s(day + 200)), Some(Sign::Generation(1, 2)));
        assert_eq!(rollback.look_at(2, s(1301), s(day + 201)), None, "told once");
        assert_eq!(rollback.look_at(2, s(1302), s(day + 3802)), Some(Sign::Clock(s(3600))));
        let mut fresh = Rollback { generation: 0, origin: None };
        assert_eq!(fresh.look_at(0, s(5), s(0)), None);
        assert_eq!(fresh.look_at(0, s(60), s(day)), None, "set for the first time");
    }
}
