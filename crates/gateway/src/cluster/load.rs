//! How much of a processor the daemon takes, for the other nodes to show.

use nix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};

/// Measured from one call to the next.
pub(crate) struct Load {
    since: Instant,
    used: Duration,
}

impl Load {
    /// From now on.
    pub(crate) fn new() -> Self {
        Self { since: Instant::now(), used: used() }
    }

    /// In thousandths of one processor, since the last call.
    pub(crate) fn measure(&mut self) -> u16 {
        let before = std::mem::replace(self, Self::new());
        let passed = self.since.duration_since(before.since).as_micros().max(1);
        let load = self.used.saturating_sub(before.used).as_micros() * 1000 / passed;
        u16::try_from(load).unwrap_or(u16::MAX)
    }
}

/// Processor time of all threads.
fn used() -> Duration {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).map(Duration::from).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_works_takes_a_processor() {
        let mut load = Load::new();
        let end = Instant::now() + Duration::from_millis(200);
        while Instant::now() < end {
            std::hint::spin_loop();
        }
        // Other tests share processors and process.
        assert!(load.measure() > 100);
    }
}
