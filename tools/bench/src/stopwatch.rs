//! Time and cycles of many short stretches.

use std::time::{Duration, Instant};
use testudo_crypto::cycles;

/// Measures stretches of work and keeps each. A stretch is a few bursts: long enough that reading
/// the clocks (about 50 ns) does not matter, and short enough that a disturbance affects few of
/// them.
#[derive(Clone, Debug)]
pub(crate) struct Stopwatch {
    stretches: Vec<PerPacket>,
    time: Duration,
    packets: u64,
}

/// Nanoseconds and cycles of the time-stamp counter for one packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct PerPacket {
    pub(crate) ns: f64,
    pub(crate) cycles: Option<f64>,
}

impl Stopwatch {
    /// Without measurements.
    pub(crate) const fn new() -> Self {
        Self { stretches: Vec::new(), time: Duration::ZERO, packets: 0 }
    }

    /// Measures `work`, which handles `packets` packets.
    #[inline]
    pub(crate) fn measure(&mut self, packets: usize, work: impl FnOnce()) {
        let (start, cycles_before) = (Instant::now(), cycles::now());
        work();
        let cycles_after = cycles::now();
        let time = start.elapsed();
        self.time += time;
        self.packets += packets as u64;
        let packets = packets as f64;
        let cycles = cycles_before.zip(cycles_after).map(|(before, after)| after.saturating_sub(before));
        self.stretches.push(PerPacket {
            ns: time.as_nanos() as f64 / packets,
            cycles: cycles.map(|cycles| cycles as f64 / packets),
        });
    }

    /// Time of all stretches.
    pub(crate) fn time(&self) -> Duration {
        self.time
    }

    /// Packets of all stretches.
    pub(crate) fn packets(&self) -> u64 {
        self.packets
    }

    /// The median of the stretches, of each quantity separately; NaN if there are none.
    pub(crate) fn median(&self) -> PerPacket {
        let ns = median(self.stretches.iter().map(|stretch| stretch.ns)).unwrap_or(f64::NAN);
        let cycles = median(self.stretches.iter().filter_map(|stretch| stretch.cycles));
        PerPacket { ns, cycles }
    }

    /// Discards all stretches.
    pub(crate) fn reset(&mut self) {
        *self = Self::new();
    }
}

/// The middle value, or the mean of the two middle ones.
pub(crate) fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    let upper = *values.get(values.len() / 2)?;
    let lower = *values.get((values.len() - 1) / 2)?;
    Some((lower + upper) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_ignore_outliers_and_split_even_counts() {
        assert_eq!(median([5.0, 900.0, 3.0].into_iter()), Some(5.0));
        assert_eq!(median([4.0, 1.0, 2.0, 900.0].into_iter()), Some(3.0));
        assert_eq!(median([].into_iter()), None);
    }

    #[test]
    fn every_stretch_and_packet_is_counted() {
        let mut watch = Stopwatch::new();
        assert!(watch.median().ns.is_nan());
        for _ in 0..3 {
            watch.measure(10, || std::thread::sleep(Duration::from_millis(2)));
        }
        assert_eq!(watch.packets(), 30);
        assert!(watch.time() >= Duration::from_millis(6), "{watch:?}");
        let median = watch.median();
        assert!(median.ns >= 200_000.0, "{median:?}");
        assert_eq!(median.cycles.is_some(), cfg!(target_arch = "x86_64"));
        watch.reset();
        assert_eq!((watch.packets(), watch.time()), (0, Duration::ZERO));
    }
}
