//! Amounts over time, in slots of equal length.

use std::time::{Duration, Instant};

/// The amount in each slot of time since `start`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Series {
    start: Instant,
    slot: Duration,
    amounts: Vec<u64>,
}

impl Series {
    /// A series without slots.
    ///
    /// # Panics
    /// If slots have no length.
    pub fn new(start: Instant, slot: Duration) -> Self {
        assert!(!slot.is_zero(), "a slot of time has a length");
        Self { start, slot, amounts: Vec::new() }
    }

    /// Adds an amount at a time; earlier than the start counts for the first slot.
    pub fn add(&mut self, at: Instant, amount: u64) {
        let slot = self.slot_of(at);
        self.extend(slot);
        self.amounts[slot] += amount;
    }

    /// Extends the slots to that time, so that silence at the end shows.
    pub fn reach(&mut self, at: Instant) {
        self.extend(self.slot_of(at));
    }

    /// The amounts, slot by slot.
    pub fn amounts(&self) -> &[u64] {
        &self.amounts
    }

    /// When the first slot begins.
    pub fn start(&self) -> Instant {
        self.start
    }

    /// The length of a slot.
    pub fn slot(&self) -> Duration {
        self.slot
    }

    /// The edges of a step plot: the beginning of each slot in seconds after `zero`, with its
    /// amount per second, and the end of the last slot.
    pub fn rates(&self, zero: Instant) -> Vec<(f64, f64)> {
        let (first, slot) = (seconds(zero, self.start), self.slot.as_secs_f64());
        let mut edges: Vec<_> = self
            .amounts
            .iter()
            .enumerate()
            .map(|(n, amount)| (first + n as f64 * slot, *amount as f64 / slot))
            .collect();
        if let Some((at, rate)) = edges.last().copied() {
            edges.push((at + slot, rate));
        }
        edges
    }

    fn slot_of(&self, at: Instant) -> usize {
        let slot = at.saturating_duration_since(self.start).as_nanos() / self.slot.as_nanos();
        usize::try_from(slot).unwrap_or(usize::MAX)
    }

    fn extend(&mut self, slot: usize) {
        if self.amounts.len() <= slot {
            self.amounts.resize(slot + 1, 0);
        }
    }
}

/// Seconds from `zero` to `at`; negative if it is earlier.
pub fn seconds(zero: Instant, at: Instant) -> f64 {
    let after = at.saturating_duration_since(zero).as_secs_f64();
    after - zero.saturating_duration_since(at).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOT: Duration = Duration::from_millis(50);

    #[test]
    fn amounts_fall_into_their_slots() {
        let start = Instant::now();
        let mut series = Series::new(start, SLOT);
        for (at, amount) in [(0, 1), (49, 2), (50, 4), (149, 8), (10, 16)] {
            series.add(start + Duration::from_millis(at), amount);
        }
        series.add(start - SLOT, 32);
        series.reach(start + Duration::from_millis(200));
        series.reach(start);
        assert_eq!(series.amounts(), [51, 4, 8, 0, 0]);
    }

    #[test]
    fn rates_are_per_second_and_relative() {
        let start = Instant::now();
        let mut series = Series::new(start, SLOT);
        series.add(start, 5);
        series.add(start + SLOT, 10);
        let rates = series.rates(start + SLOT);
        assert_eq!(rates, [(-0.05, 100.0), (0.0, 200.0), (0.05, 200.0)]);
        assert!(Series::new(start, SLOT).rates(start).is_empty());
    }
}
