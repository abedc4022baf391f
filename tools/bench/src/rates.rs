//! What several runs of the same traffic come to.

use serde::Serialize;
use std::time::Duration;
use testudo_lab::stats::Statistics;

/// One run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    gbps: f64,
    cpu_s_per_gbit: f64,
}

impl Run {
    /// `cpu`: seconds of processors.
    pub(crate) fn new(gigabits: f64, elapsed: Duration, cpu: f64) -> Self {
        Self { gbps: gigabits / elapsed.as_secs_f64(), cpu_s_per_gbit: cpu / gigabits.max(f64::EPSILON) }
    }
}

/// The medians of some runs.
#[derive(Debug, Serialize)]
pub(crate) struct Rates {
    pub(crate) gbps: f64,
    /// Packets, if each has the size that they are for.
    mpps: f64,
    /// Processor time of all that works on the packets.
    cpu_s_per_gbit: f64,
    /// Each run.
    runs_gbps: Vec<f64>,
}

impl Rates {
    /// Of packets of `size` octets.
    pub(crate) fn of(runs: &[Run], size: u16) -> Self {
        let median = |of: fn(&Run) -> f64| {
            let values: Vec<f64> = runs.iter().map(of).collect();
            Statistics::of(&values).map_or(0.0, |statistics| statistics.median)
        };
        let gbps = median(|run| run.gbps);
        Self {
            gbps,
            mpps: gbps * 1e3 / 8.0 / f64::from(size),
            cpu_s_per_gbit: median(|run| run.cpu_s_per_gbit),
            runs_gbps: runs.iter().map(|run| run.gbps).collect(),
        }
    }

    /// Behind the throughput, with a column each: packets, and what they cost.
    pub(crate) fn cells(&self) -> [String; 2] {
        [self.mpps, self.cpu_s_per_gbit].map(|value| format!("{value:.3}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_medians() {
        let run = |gigabits| Run::new(gigabits, Duration::from_secs(2), 4.0);
        let rates = Rates::of(&[6.0, 2.0, 4.0].map(run), 1000);
        assert_eq!((rates.gbps, rates.mpps, rates.cpu_s_per_gbit), (2.0, 0.25, 1.0));
        assert_eq!(rates.runs_gbps, [3.0, 1.0, 2.0]);
    }
}
