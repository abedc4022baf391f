//! How much of a processor the daemon takes, for the other nodes to show.

use nix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};

/// Measured from one call to the next.
pub(crate) struct Load {
    since: Instant,
    used: Duration,
}

impl Load {
    /// Measures from now on.
    pub(crate) fn new() -> Self {
        Self { since: Instant::now(), used: used() }
    }

    /// In thousandths of one processor, since the last call.
    pub(crate) fn measure(&mut self) -> u16 {
        let before = std::mem::replace(self, Self::new());
        self.since_then(&before)
    }

    /// In thousandths of one processor, since an earlier reading.
    fn since_then(&self, before: &Self) -> u16 {
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
    fn load_is_processor_time_by_time() {
        let before = Load { since: Instant::now(), used: Duration::from_secs(7) };
        let after = |passed, used| {
            let at = |millis| Duration::from_millis(millis);
            Load { since: before.since + at(passed), used: before.used + at(used) }.since_then(&before)
        };
        assert_eq!([after(1000, 0), after(1000, 250), after(1000, 3000)], [0, 250, 3000]);
        assert_eq!([after(0, 0), after(1, 1000)], [0, u16::MAX]);
    }

    #[test]
    fn who_works_uses_processor_time() {
        let mut load = Load::new();
        let begun = (Instant::now(), load.used);
        // However little of the processor it gets.
        while used() - begun.1 < Duration::from_millis(20) {
            assert!(begun.0.elapsed() < Duration::from_secs(60), "no processor time is counted");
            std::hint::spin_loop();
        }
        load.measure();
        assert!(load.used - begun.1 >= Duration::from_millis(20));
    }
}
