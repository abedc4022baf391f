//! Median, quartiles and other statistics of repeated measurements.

/// Statistics of a set of measurements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Statistics {
    /// Number of measurements.
    pub count: usize,
    /// The smallest.
    pub min: f64,
    /// A quarter of the values is below.
    pub lower_quartile: f64,
    /// Half of the values is below.
    pub median: f64,
    /// Three quarters of the values are below.
    pub upper_quartile: f64,
    /// 99 of 100 values are below; of fewer than about a hundred values it is almost the largest.
    pub p99: f64,
    /// The largest.
    pub max: f64,
    /// The smallest and the largest value within 1.5 times the interquartile range from the
    /// quartiles (Tukey's whiskers).
    pub whiskers: (f64, f64),
}

impl Statistics {
    /// The statistics of these values; `None` if there are none or one is NaN.
    pub fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        if !sorted.iter().all(|value| value.is_finite()) {
            return None;
        }
        let (lower, upper) = (quantile(&sorted, 0.25), quantile(&sorted, 0.75));
        let reach = 1.5 * (upper - lower);
        let is_near = |value: &&f64| **value >= lower - reach && **value <= upper + reach;
        Some(Self {
            count: sorted.len(),
            min,
            lower_quartile: lower,
            median: quantile(&sorted, 0.5),
            upper_quartile: upper,
            p99: quantile(&sorted, 0.99),
            max,
            whiskers: (
                sorted.iter().find(is_near).copied().unwrap_or(min),
                sorted.iter().rev().find(is_near).copied().unwrap_or(max),
            ),
        })
    }
}

/// Interpolates between the two nearest sorted values (type 7 of Hyndman and Fan, as most programs
/// do).
fn quantile(sorted: &[f64], part: f64) -> f64 {
    let place = part * (sorted.len() - 1) as f64;
    let (below, above) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
    below + (above - below) * place.fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_are_those_of_r() {
        // quantile(c(7, 15, 36, 39, 40, 41), c(.25, .5, .75, .99))
        let s = Statistics::of(&[36.0, 7.0, 41.0, 15.0, 40.0, 39.0]).unwrap();
        assert_eq!((s.lower_quartile, s.median, s.upper_quartile), (20.25, 37.5, 39.75));
        assert!((s.p99 - 40.95).abs() < 1e-9, "{s:?}");
        assert_eq!((s.count, s.min, s.max, s.whiskers), (6, 7.0, 41.0, (7.0, 41.0)));
    }

    #[test]
    fn whiskers_leave_outliers_out() {
        let s = Statistics::of(&[10.0, 11.0, 12.0, 13.0, 14.0, 100.0, -50.0]).unwrap();
        assert_eq!((s.whiskers, s.min, s.max), ((10.0, 14.0), -50.0, 100.0));
    }

    #[test]
    fn one_is_enough_and_none_is_not() {
        let s = Statistics::of(&[3.0]).unwrap();
        assert_eq!((s.min, s.median, s.p99, s.whiskers), (3.0, 3.0, 3.0, (3.0, 3.0)));
        assert_eq!(Statistics::of(&[]), None);
        assert_eq!(Statistics::of(&[1.0, f64::NAN]), None);
    }
}
