//! What connections lack, or will soon: an operator is warned when one is loaded, and then again
//! and again.

use super::Gateway;
use std::time::{Duration, Instant};
use testudo_ike::output::LogLevel;

/// How often an operator is reminded of what connections lack.
const INTERVAL: Duration = Duration::from_secs(24 * 60 * 60);

/// When all connections are next checked for what they lack.
pub(crate) struct Reminder {
    next: Instant,
}

impl Reminder {
    pub(crate) fn new(now: Instant) -> Self {
        Self { next: now + INTERVAL }
    }

    /// True once an interval is over; the next one begins then.
    fn is_due(&mut self, now: Instant) -> bool {
        let due = self.next <= now;
        if due {
            self.next = now + INTERVAL;
        }
        due
    }
}

impl Gateway {
    /// Warns of what a connection lacks, or will soon.
    pub(crate) fn warn_of_lacks(&mut self, connection: &str) {
        for lack in self.endpoint.lacks(self.now, connection) {
            self.log(None, Some(connection.to_owned()), LogLevel::Warning, lack);
        }
    }

    /// Does so for all connections once a day: a certificate expires although nobody loads
    /// anything.
    pub(crate) fn remind_of_lacks(&mut self) {
        if self.reminder.is_due(Instant::now()) {
            let names: Vec<String> = self.endpoint.connections().map(|c| c.name.clone()).collect();
            for name in names {
                if self.ending.is_called_for() {
                    return;
                }
                self.warn_of_lacks(&name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// At the start the connections are loaded, which warns. A look that comes late puts the next
    /// one off, so that two never come close together.
    #[test]
    fn a_reminder_comes_every_day() {
        let start = Instant::now();
        let mut reminder = Reminder::new(start);
        let mut hours = |range: std::ops::Range<u64>| -> Vec<u64> {
            range.filter(|hour| reminder.is_due(start + Duration::from_secs(hour * 60 * 60))).collect()
        };
        assert_eq!(hours(0..80), [24, 48, 72]);
        assert_eq!(hours(100..130), [100, 124]);
    }
}
