//! Axes: from numbers to positions, with ticks at round numbers.

use std::ops::RangeInclusive;

/// One axis of a plot.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    low: f64,
    high: f64,
    ends: Ends,
    step: f64,
}

/// The positions of an axis in the picture.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ends {
    /// The position of the lowest value.
    pub(super) low: f64,
    /// The position of the highest value.
    pub(super) high: f64,
}

impl Axis {
    /// An axis with exactly this range and about that many ticks.
    pub(super) fn exact(values: RangeInclusive<f64>, ends: Ends, ticks: u32) -> Self {
        let (low, mut high) = values.into_inner();
        // An empty range has no scale.
        if high.partial_cmp(&low) != Some(std::cmp::Ordering::Greater) {
            high = low + 1.0;
        }
        Self { low, high, ends, step: round_step((high - low) / f64::from(ticks)) }
    }

    /// An axis from zero to a round number not below `max`.
    pub(super) fn from_zero(max: f64, ends: Ends, ticks: u32) -> Self {
        let axis = Self::exact(0.0..=max, ends, ticks);
        let top = (axis.high / axis.step).ceil() * axis.step;
        Self { low: 0.0, high: top, ..axis }
    }

    /// The position of a value.
    pub(super) fn place(&self, value: f64) -> f64 {
        let part = (value - self.low) / (self.high - self.low);
        self.ends.low + part * (self.ends.high - self.ends.low)
    }

    /// Whether the axis contains the value.
    pub(super) fn shows(&self, value: f64) -> bool {
        value >= self.low && value <= self.high
    }

    /// The nearest value on the axis.
    pub(super) fn clamp(&self, value: f64) -> f64 {
        value.clamp(self.low, self.high)
    }

    /// The ticks: position and text.
    pub(super) fn ticks(&self) -> Vec<(f64, String)> {
        let digits = (-self.step.log10()).ceil().max(0.0) as usize;
        // Rounding must not lose the tick at an end.
        let first = (self.low / self.step - 1e-9).ceil() as i64;
        let last = (self.high / self.step + 1e-9).floor() as i64;
        let tick = |n: i64| {
            let value = n as f64 * self.step;
            // A proper minus sign is as wide as a digit.
            (self.place(value), format!("{value:.digits$}").replace('-', "\u{2212}"))
        };
        (first..=last).map(tick).collect()
    }
}

/// The next value up of 1, 2 or 5 times a power of ten.
fn round_step(raw: f64) -> f64 {
    let power = 10_f64.powf(raw.log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|n| n * power).find(|step| *step >= raw * 0.999).unwrap_or(raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENDS: Ends = Ends { low: 0.0, high: 1.0 };

    fn texts(axis: &Axis) -> String {
        axis.ticks().into_iter().map(|(_, text)| text).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn ticks_are_round() {
        assert_eq!(texts(&Axis::exact(-2.0..=3.0, ENDS, 5)), "−2 −1 0 1 2 3");
        assert_eq!(texts(&Axis::exact(-0.05..=0.1, ENDS, 3)), "−0.05 0.00 0.05 0.10");
        assert_eq!(texts(&Axis::from_zero(0.93, ENDS, 5)), "0.0 0.2 0.4 0.6 0.8 1.0");
        assert_eq!(texts(&Axis::from_zero(40.0, ENDS, 4)), "0 10 20 30 40");
    }

    #[test]
    fn places_follow_the_values() {
        let axis = Axis::exact(0.0..=10.0, Ends { low: 200.0, high: 100.0 }, 5);
        assert_eq!((axis.place(0.0), axis.place(5.0), axis.place(10.0)), (200.0, 150.0, 100.0));
        assert!(axis.shows(10.0) && !axis.shows(10.1));
        assert_eq!(axis.clamp(-3.0), 0.0);
    }

    #[test]
    fn a_range_without_length_still_has_a_scale() {
        for max in [0.0, -1.0, f64::NAN] {
            let axis = Axis::from_zero(max, ENDS, 5);
            assert_eq!(texts(&axis), "0.0 0.2 0.4 0.6 0.8 1.0");
        }
    }
}
