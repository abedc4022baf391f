//! How often a table is published.

use std::time::{Duration, Instant};

/// Changes within this time make one table.
const COALESCE_TIME: Duration = Duration::from_millis(5);
/// Publishing takes at most one part in this many of a processor's time.
const WORKING_FRACTION: u32 = 5;

/// What a publication has taken.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cost {
    /// Processor time.
    pub(super) work: Duration,
    /// Time of the clock, during which the thread did nothing else.
    pub(super) time: Duration,
}

/// When the next table is due. Each publication postpones the next by what it has cost, so that a
/// kernel that never stops changing does not keep the thread busy, and the thread has half of the
/// time for its other work.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    due: Option<Instant>,
    earliest: Instant,
}

impl Pace {
    /// Nothing is due.
    pub(super) fn new(now: Instant) -> Self {
        Self { due: None, earliest: now }
    }

    /// Notes that something has changed.
    pub(super) fn changed(&mut self, now: Instant) {
        self.due.get_or_insert((now + COALESCE_TIME).max(self.earliest));
    }

    /// The time of the next publication, if something has changed.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// True if it is time to publish.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.due.is_some_and(|due| now >= due)
    }

    /// Notes a publication.
    pub(super) fn published(&mut self, now: Instant, cost: Cost) {
        *self = Self { due: None, earliest: now + cost.time.max(cost.work * (WORKING_FRACTION - 1)) };
    }

    /// Notes that publishing failed: it is due again after `delay`.
    pub(super) fn failed(&mut self, now: Instant, delay: Duration) {
        *self = Self { due: Some(now + delay), earliest: now + delay };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn changes_at_a_time_make_one_table() {
        let begun = Instant::now();
        let mut pace = Pace::new(begun);
        assert_eq!((pace.due(), pace.is_due(begun)), (None, false));
        pace.changed(begun);
        pace.changed(begun + COALESCE_TIME / 2);
        assert_eq!(pace.due(), Some(begun + COALESCE_TIME));
        assert!(!pace.is_due(begun) && pace.is_due(begun + COALESCE_TIME));
    }

    #[test]
    fn publishing_takes_a_fifth_of_a_processor_and_half_of_the_time() {
        let begun = Instant::now();
        for (work, time, pause) in [(100, 120, 400), (100, 900, 900), (0, 0, 5)] {
            let mut pace = Pace::new(begun);
            pace.published(begun, Cost { work: work * MS, time: time * MS });
            assert_eq!(pace.due(), None);
            pace.changed(begun);
            assert_eq!(pace.due(), Some(begun + pause * MS));
        }
    }

    #[test]
    fn what_has_failed_is_due_again_without_another_change() {
        let begun = Instant::now();
        let mut pace = Pace::new(begun);
        pace.failed(begun, 700 * MS);
        assert_eq!(pace.due(), Some(begun + 700 * MS));
        pace.changed(begun);
        assert_eq!(pace.due(), Some(begun + 700 * MS));
    }
}
