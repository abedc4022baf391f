//! Runs many seeds, on any number of threads, and adds up the results.

use crate::world::Outcome;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The results of many seeds.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Seeds run.
    pub seeds: u64,
    /// Steps made.
    pub steps: u64,
    /// Faults, by name.
    pub faults: BTreeMap<&'static str, u64>,
    /// Sums of the counters.
    pub counters: BTreeMap<&'static str, u64>,
    /// Seeds that failed, in order.
    pub failed: Vec<Outcome>,
}

impl Totals {
    fn add(&mut self, outcome: Outcome) {
        self.seeds += 1;
        self.steps += outcome.steps;
        let add = |sums: &mut BTreeMap<&'static str, u64>, counts: &BTreeMap<&'static str, u64>| {
            counts.iter().for_each(|(name, count)| *sums.entry(name).or_insert(0) += count);
        };
        add(&mut self.faults, &outcome.faults);
        add(&mut self.counters, &outcome.counters);
        if !outcome.violations.is_empty() {
            self.failed.push(outcome);
        }
    }
}

/// The last line says how many seeds, steps, faults and violations.
impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |counts: &BTreeMap<&'static str, u64>| {
            let each: Vec<String> = counts.iter().map(|(name, count)| format!("{name} {count}")).collect();
            each.join(", ")
        };
        writeln!(f, "faults: {}", list(&self.faults))?;
        writeln!(f, "counted: {}", list(&self.counters))?;
        let faults: u64 = self.faults.values().sum();
        let violations: usize = self.failed.iter().map(|outcome| outcome.violations.len()).sum();
        let Self { seeds, steps, .. } = self;
        write!(f, "{seeds} seeds, {steps} steps, {faults} faults, {violations} violations")
    }
}

/// Runs the seeds. `until_first`: stop after the first failure.
pub fn run(
    seeds: Range<u64>,
    threads: usize,
    until_first: bool,
    one: &(dyn Fn(u64) -> Outcome + Sync),
) -> Totals {
    let next = AtomicU64::new(seeds.start);
    let stop = AtomicBool::new(false);
    let totals = Mutex::new(Totals::default());
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        break;
                    }
                    let outcome = one(seed);
                    if until_first && !outcome.violations.is_empty() {
                        stop.store(true, Ordering::Relaxed);
                    }
                    totals.lock().unwrap_or_else(PoisonError::into_inner).add(outcome);
                }
            });
        }
    });
    let mut totals = totals.into_inner().unwrap_or_else(PoisonError::into_inner);
    totals.failed.sort_by_key(|outcome| outcome.seed);
    totals
}
