//! How often a table is published.

use std::time::{Duration, Instant};

/// Changes within this time make one table.
const COALESCE_TIME: Duration = Duration::from_millis(5);
/// Publishing takes at most one part in this many of the time.
const WORKING_FRACTION: u32 = 5;

/// When the next table is due. Each publication postpones the next by what it has cost, so that a
/// kernel that never stops changing does not keep the thread busy.
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

    /// Notes a publication that took this much processor time.
    pub(super) fn published(&mut self, now: Instant, cost: Duration) {
        *self = Self { due: None, earliest: now + cost * (WORKING_FRACTION - 1) };
    }

    /// Notes that publishing failed: it is tried again after `delay`.
    pub(super) fn failed(&mut self, now: Instant, delay: Duration) {
        *self = Self { due: None, earliest: now + delay };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COST: Duration = Duration::from_millis(100);

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
    fn publishing_takes_a_fifth_of_the_time() {
        let begun = Instant::now();
        let mut pace = Pace::new(begun);
        pace.published(begun, COST);
        pace.changed(begun);
        assert_eq!(pace.due(), Some(begun + 4 * COST));
        pace.failed(begun, 7 * COST);
        pace.changed(begun);
        assert_eq!(pace.due(), Some(begun + 7 * COST));
    }
}
