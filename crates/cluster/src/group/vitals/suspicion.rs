//! When a silent node becomes a suspect: an accrual detector over the measured jitter.

use crate::group::config::SuspicionConfig;
use std::time::Duration;
use testudo_ike::output::Time;

/// The number of heartbeats after which a suspect is trusted again.
const HEARTBEATS_TO_TRUST: u32 = 2;

/// How another node is heard, over all links taken together.
#[derive(Clone, Debug)]
pub(in crate::group) struct Listener {
    /// When it was last heard, or was given a new period.
    since: Time,
    /// The time since then is no sample: part of it is this node's own fault.
    skip: bool,
    mean: Duration,
    /// The mean deviation. It rises fast and falls slowly, so that a host that is noisy now and
    /// then does not flap.
    deviation: Duration,
    suspected: bool,
    /// The number of heartbeats heard since it became a suspect.
    heard: u32,
}

impl Listener {
    /// Begins to listen. Only how often the node should be heard is known of it.
    pub(in crate::group) fn new(now: Time, heartbeat: Duration) -> Self {
        Self { since: now, skip: true, mean: heartbeat, deviation: heartbeat / 2, suspected: false, heard: 0 }
    }

    /// A new heartbeat has come. True if the node is trusted again.
    pub(in crate::group) fn heard(&mut self, now: Time, config: &SuspicionConfig) -> bool {
        let interval = now.since(self.since);
        self.since = now;
        // After the ceiling a node is a suspect whatever its jitter is. If it was away or cut off
        // for longer, that is no jitter: its next failure must be noticed as soon as this one.
        let tells = interval <= config.ceiling;
        if !std::mem::replace(&mut self.skip, false) && tells {
            let difference = interval.abs_diff(self.mean);
            self.mean = (self.mean * 15 + interval) / 16;
            self.deviation = match difference > self.deviation {
                true => (self.deviation * 3 + difference) / 4,
                false => (self.deviation * 255 + difference) / 256,
            };
        }
        self.heard += 1;
        let trusted = self.suspected && self.heard >= HEARTBEATS_TO_TRUST;
        self.suspected &= !trusted;
        trusted
    }

    /// Silence counts from now on: this node itself was late, or the other is new in the view.
    pub(in crate::group) fn grant(&mut self, now: Time) {
        (self.since, self.skip) = (now, true);
    }

    /// The node begins anew in a view. True if it was a suspect.
    pub(in crate::group) fn clear(&mut self) -> bool {
        std::mem::take(&mut self.suspected)
    }

    /// How much silence makes it a suspect.
    pub(in crate::group) fn threshold(&self, config: &SuspicionConfig) -> Duration {
        let accrued = self.mean.saturating_add(self.deviation.saturating_mul(config.factor));
        accrued.max(config.floor).min(config.ceiling)
    }

    /// When it becomes a suspect, unless it is heard before. `None` if it is a suspect.
    pub(in crate::group) fn due(&self, config: &SuspicionConfig) -> Option<Time> {
        (!self.suspected).then(|| self.since.plus(self.threshold(config)))
    }

    /// True if the node becomes a suspect now.
    pub(in crate::group) fn suspect(&mut self, now: Time, config: &SuspicionConfig) -> bool {
        let due = self.due(config).is_some_and(|due| due <= now);
        if due {
            (self.suspected, self.heard) = (true, 0);
        }
        due
    }

    pub(in crate::group) fn suspected(&self) -> bool {
        self.suspected
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HEARTBEAT: Duration = Duration::from_millis(10);

    fn micros(micros: u64) -> Time {
        Time(Duration::from_secs(1) + Duration::from_micros(micros))
    }

    /// How often heartbeats with these gaps, in microseconds, make the node a suspect.
    fn suspicions(gaps: impl Iterator<Item = u64>) -> usize {
        let config = SuspicionConfig::default();
        let (mut now, mut count) = (0, 0);
        let mut listener = Listener::new(micros(0), HEARTBEAT);
        for gap in gaps {
            now += gap;
            count += usize::from(listener.suspect(micros(now), &config));
            listener.heard(micros(now), &config);
        }
        count
    }

    #[test]
    fn a_steady_node_is_suspected_after_the_floor_and_any_after_the_ceiling() {
        let config = SuspicionConfig::default();
        let mut listener = Listener::new(micros(0), HEARTBEAT);
        assert!(listener.threshold(&config) <= Duration::from_millis(50));
        (1..2000).for_each(|n| assert!(!listener.heard(micros(n * 10_000), &config)));
        assert_eq!(listener.threshold(&config), config.floor);
        let last = 1999 * 10_000;
        assert!(!listener.suspect(micros(last + 24_999), &config));
        assert!(listener.suspect(micros(last + 25_000), &config));
        assert!(!listener.suspect(micros(last + 26_000), &config), "once");
        assert!(!listener.heard(micros(last + 30_000), &config));
        assert!(listener.heard(micros(last + 40_000), &config), "two heartbeats make it trusted");
        let mut noisy = Listener::new(micros(0), HEARTBEAT);
        (1..9).for_each(|n| assert!(!noisy.heard(micros(n * 150_000), &config)));
        assert_eq!(noisy.threshold(&config), config.ceiling);
    }

    /// It begins with 5 ms. What takes longer than the ceiling is no jitter.
    #[test]
    fn the_deviation_rises_fast_and_falls_slowly() {
        let config = SuspicionConfig::default();
        let after = |gap| {
            let mut listener = Listener::new(micros(0), HEARTBEAT);
            [0, gap].into_iter().for_each(|at| assert!(!listener.heard(micros(at), &config)));
            listener.deviation.as_micros()
        };
        assert_eq!([10_000, 15_000, 30_000].map(after), [4980, 5000, 8750]);
        assert_eq!([200_000, 200_001].map(after), [51_250, 5000]);
    }

    #[test]
    fn a_noisy_host_does_not_flap() {
        // Every 200 ms it is held up for 60 ms. That makes it a suspect at most a few times, and
        // then no more.
        let gaps = || (0..20_000_u64).map(|n| if n % 20 == 19 { 60_000 } else { 10_000 });
        assert!(suspicions(gaps()) <= 3, "{}", suspicions(gaps()));
    }

    #[test]
    fn who_was_cut_off_is_suspected_as_soon_as_before() {
        let config = SuspicionConfig::default();
        let mut listener = Listener::new(micros(0), HEARTBEAT);
        (1..2000).for_each(|n| assert!(!listener.heard(micros(n * 10_000), &config)));
        let back = 1999 * 10_000 + 2_000_000;
        assert!(listener.suspect(micros(back), &config));
        assert!([0, 10_000].map(|later| listener.heard(micros(back + later), &config))[1], "two heartbeats");
        assert!(!listener.suspected());
        assert_eq!(listener.threshold(&config), config.floor);
    }

    #[test]
    fn own_lateness_is_nobodys_fault() {
        let config = SuspicionConfig::default();
        let mut listener = Listener::new(micros(0), HEARTBEAT);
        (1..2000).for_each(|n| assert!(!listener.heard(micros(n * 10_000), &config)));
        let late = 1999 * 10_000 + 2_000_000;
        listener.grant(micros(late));
        assert!(!listener.suspect(micros(late), &config));
        listener.heard(micros(late + 1), &config);
        assert_eq!(listener.threshold(&config), config.floor, "and is not measured");
    }

    proptest! {
        #[test]
        fn jitter_of_up_to_a_heartbeat_makes_no_suspect(gaps in prop::collection::vec(5_000_u64..15_000, 1..500)) {
            prop_assert_eq!(suspicions(gaps.into_iter()), 0);
        }
    }
}
