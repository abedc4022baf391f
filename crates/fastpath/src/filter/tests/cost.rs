//! What a test run costs with the filter and without it.

use super::bench::Bench;
use super::frames::{ESP, PEER4, US4, esp, ipv4};
use crate::filter::{cost_of_a_test_run, time_of};
use std::time::Duration;

const RUNS: u32 = 20_000;
const REPEATS: u32 = 20;

/// The best of several: other processes only ever add time.
fn best(mut run: impl FnMut() -> Duration) -> Duration {
    (0..REPEATS).map(|_| run()).min().unwrap()
}

#[test]
fn a_test_run_without_the_filter_costs_less_than_one_with_it() {
    let bench = Bench::new();
    let frame = ipv4(PEER4, US4, ESP).frame(&esp());
    let nothing = cost_of_a_test_run(&frame, RUNS, REPEATS).unwrap();
    let filter = best(|| time_of(&bench.program(), &frame, RUNS).unwrap());
    assert!(Duration::ZERO < nothing && nothing < filter, "{nothing:?} without, {filter:?} with the filter");
}
