//! The checks bite: each bug that can be planted is found within 1000 worlds. Only with the feature `plants`, in a build of its own.
#![cfg(feature = "plants")]
#![allow(clippy::print_stdout, reason = "what was found is to be seen")]

use std::collections::BTreeSet;
use testudo_planted::{Plant, plant};
use testudo_sim::{cluster, runner, scenario::Scenario};

/// Seeds in which a bug must show itself.
const SEEDS: u64 = 1000;

#[test]
fn every_planted_bug_is_found() {
    // A seed that fails by itself proves nothing of a bug.
    let alone = runner::run(0..SEEDS, 2, false, &|seed| cluster(Scenario::random(seed)));
    let open: BTreeSet<u64> = alone.failed.iter().map(|outcome| outcome.seed).collect();
    let open = &open;
    let mut missed = Vec::new();
    for bug in Plant::ALL.iter().copied() {
        let one = move |seed| {
            plant(Some(bug));
            let mut outcome = cluster(Scenario::random(seed));
            if open.contains(&seed) {
                outcome.violations.clear();
            }
            outcome
        };
        let totals = runner::run(0..SEEDS, 2, true, &one);
        match totals.failed.first() {
            Some(outcome) => println!("{}: seed {}: {}", bug.name(), outcome.seed, outcome.violations[0]),
            None => missed.push(bug.name()),
        }
    }
    assert!(missed.is_empty(), "not found within {SEEDS} seeds: {missed:?}");
    assert!(Plant::ALL.len() >= 12);
}
