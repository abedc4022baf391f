//! How often something is seen, and how often it usually is.

use std::time::Duration;

/// Parts of the second that the window slides by.
const SLOTS: u64 = 4;
const SLOT: Duration = Duration::from_millis(1000 / SLOTS);
/// A second has this much influence on what counts as usual: about a minute shapes it.
const SHARE_OF_A_SECOND: f64 = 1.0 / 64.0;
/// How far above the usual a second has to be. The counts of independent events vary by the root of
/// their mean, so that from 8 on this is more than 20 standard deviations.
const FACTOR_ABOVE_NOISE: f64 = 8.0;
/// What is seen less often than that is no noise.
const NEGLIGIBLE_PER_SECOND: f64 = 0.001;

/// Sightings of one kind and subject.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rate {
    /// Counts of the latest parts of seconds.
    slots: [u64; SLOTS as usize],
    /// Number of the latest part, from the start of the clock.
    latest: u64,
    /// Sightings a second in times without an alarm.
    noise: f64,
    /// The second in progress, and its count so far.
    second: (u64, u64),
}

impl Rate {
    pub(crate) fn new(now: Duration) -> Self {
        Self { latest: slot_of(now), second: (now.as_secs(), 0), ..Self::default() }
    }

    /// Adds sightings of now. To be called after [`Self::advance`].
    pub(crate) fn add(&mut self, count: u64) {
        let at = (self.latest % SLOTS) as usize;
        if let Some(slot) = self.slots.get_mut(at) {
            *slot = slot.saturating_add(count);
        }
        self.second.1 = self.second.1.saturating_add(count);
    }

    /// Lets time pass. What was seen in a second that is over counts as noise, if `calm`.
    pub(crate) fn advance(&mut self, now: Duration, calm: bool) {
        let latest = slot_of(now);
        for passed in (self.latest.saturating_add(1)..=latest).take(SLOTS as usize) {
            if let Some(slot) = self.slots.get_mut((passed % SLOTS) as usize) {
                *slot = 0;
            }
        }
        self.latest = self.latest.max(latest);
        let (second, count) = self.second;
        let passed = now.as_secs().saturating_sub(second);
        if passed == 0 {
            return;
        }
        if calm {
            self.noise += (count as f64 - self.noise) * SHARE_OF_A_SECOND;
            // The seconds after it were empty.
            let empty = i32::try_from(passed - 1).unwrap_or(i32::MAX);
            self.noise *= (1.0 - SHARE_OF_A_SECOND).powi(empty);
        }
        self.second = (now.as_secs(), 0);
    }

    /// Sightings in the last second, or a little less.
    pub(crate) fn of_last_second(&self) -> u64 {
        self.slots.iter().fold(0, |sum, slot| sum.saturating_add(*slot))
    }

    /// True if the last second has far more sightings than usual.
    pub(crate) fn is_above(&self, threshold: u64) -> bool {
        self.of_last_second() as f64 >= threshold as f64 + FACTOR_ABOVE_NOISE * self.noise
    }

    /// True if nothing is known that a new one would not know.
    pub(crate) fn is_blank(&self) -> bool {
        self.of_last_second() == 0 && self.second.1 == 0 && self.noise < NEGLIGIBLE_PER_SECOND
    }
}

fn slot_of(now: Duration) -> u64 {
    u64::try_from(now.as_millis() / SLOT.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    impl Rate {
        fn add_at(&mut self, now: Duration, count: u64) {
            self.advance(now, true);
            self.add(count);
        }
    }

    #[test]
    fn a_second_is_counted_and_forgotten() {
        let mut rate = Rate::new(at(0));
        rate.add_at(at(100), 3);
        rate.add_at(at(900), 4);
        assert_eq!(rate.of_last_second(), 7);
        rate.advance(at(1000), true);
        assert_eq!(rate.of_last_second(), 4);
        rate.advance(at(5000), true);
        assert_eq!(rate.of_last_second(), 0);
    }

    #[test]
    fn a_threshold_holds_where_there_is_no_noise() {
        let mut rate = Rate::new(at(0));
        rate.add_at(at(10), 15);
        assert!(!rate.is_above(16));
        rate.add_at(at(20), 1);
        assert!(rate.is_above(16));
    }

    #[test]
    fn noise_raises_the_threshold_and_falls_when_it_ends() {
        let mut rate = Rate::new(at(0));
        for second in 0..600 {
            rate.add_at(at(second * 1000 + 500), 10);
            assert!(!rate.is_above(16), "in second {second}");
        }
        assert!((9.9..10.0).contains(&rate.noise), "{}", rate.noise);
        rate.add_at(at(600_100), 80);
        assert!(!rate.is_above(16));
        rate.add_at(at(600_200), 20);
        assert!(rate.is_above(16));
        rate.advance(at(660_000), true);
        assert!((1.0..6.0).contains(&rate.noise), "{}", rate.noise);
        rate.advance(at(6_000_000), true);
        assert!(rate.is_blank());
    }

    #[test]
    fn an_alarm_is_no_noise() {
        let mut rate = Rate::new(at(0));
        for second in 0..600 {
            rate.advance(at(second * 1000), false);
            rate.add(1000);
        }
        rate.advance(at(601_000), false);
        assert!(rate.noise < 1000.0 * SHARE_OF_A_SECOND + 1.0, "{}", rate.noise);
    }

    #[test]
    fn a_clock_that_stands_still_or_jumps_does_no_harm() {
        let mut rate = Rate::new(at(5000));
        rate.add_at(at(4000), 1);
        rate.add_at(at(u64::MAX), u64::MAX);
        rate.add_at(at(u64::MAX), u64::MAX);
        assert_eq!(rate.of_last_second(), u64::MAX);
    }
}
