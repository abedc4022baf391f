//! Clocks of hosts, which differ in offset and rate.

use crate::engine::Nanos;
use crate::random::Random;
use std::time::Duration;
use testudo_ike::output::Time;

/// A clock: its offset, and how much too fast it runs.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    offset: Nanos,
    /// In millionths.
    rate: i64,
}

impl Clock {
    /// A clock that is wrong by at most one per cent.
    pub fn skewed(random: &mut Random) -> Self {
        let offset = random.below(1_000_000) * 1_000_000;
        let rate = if random.permille(500) { random.below(20_001) as i64 - 10_000 } else { 0 };
        Self { offset, rate }
    }

    /// An exact clock.
    pub fn right() -> Self {
        Self { offset: 0, rate: 0 }
    }

    /// The time that it shows.
    pub fn at(&self, now: Nanos) -> Time {
        let drift = i128::from(now) * i128::from(self.rate) / 1_000_000;
        let local = i128::from(self.offset) + i128::from(now) + drift;
        Time(Duration::from_nanos(u64::try_from(local).unwrap_or(0)))
    }

    /// The first moment, not before `now`, at which it shows at least that time.
    pub fn when(&self, local: Time, now: Nanos) -> Nanos {
        let past = local.0.as_nanos() as i128 - i128::from(self.offset);
        let guess = past * 1_000_000 / (1_000_000 + i128::from(self.rate));
        let mut at = u64::try_from(guess.saturating_sub(2)).unwrap_or(0);
        while self.at(at) < local {
            at += 1;
        }
        at.max(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_comes_when_the_clock_says_so_and_not_before() {
        let mut random = Random::new(1);
        for _ in 0..1000 {
            let clock = Clock::skewed(&mut random);
            let now = random.below(100_000_000_000);
            let local = clock.at(now).plus(Duration::from_nanos(random.below(10_000_000_000)));
            let at = clock.when(local, now);
            assert!(clock.at(at) >= local, "{clock:?}");
            assert!(at == now || clock.at(at - 1) < local, "{clock:?}");
        }
    }
}
