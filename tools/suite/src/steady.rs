//! `testudo-suite steady`: repeats the labs of `make test` on fully loaded processors.

use crate::error::{Error, Result};
use crate::inventory::{Inventory, Test, Tier, Wanted};
use crate::job::{Job, Plan};
use crate::load::Load;
use crate::outcome::Outcome;
use crate::progress::Progress;
use crate::report::sum;
use crate::run::{build_all, clear_logs, say};
use crate::schedule::Schedule;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Log numbers of a round: `7003` is the third job of round 7.
const LOGS_PER_ROUND: usize = 1000;

/// Runs the labs that many times. Returns true if none has ever failed.
pub(crate) fn repeat(times: u32, load: Option<usize>, only: &[String]) -> Result<bool> {
    let inventory = Inventory::take(&build_all()?)?;
    let mut labs = inventory.wanted(&Wanted { tier: Tier::Test, only: only.to_vec() });
    labs.retain(|test| test.lab);
    if labs.is_empty() {
        return Err(Error::NoTest { wanted: only.to_vec() });
    }
    let load = Load::start(load);
    say(&format!("{} labs, {times} times, with {} threads of artificial load", labs.len(), load.threads()))?;
    clear_logs()?;
    let (mut passed, mut failed) = (0, 0);
    let mut failures: BTreeMap<String, u32> = BTreeMap::new();
    let mut longest: BTreeMap<String, Duration> = BTreeMap::new();
    for round in 1..=times {
        let outcomes = one(round, times, &labs)?;
        let (round_passed, round_failed) = sum(&outcomes);
        (passed, failed) = (passed + round_passed, failed + round_failed);
        for outcome in outcomes {
            let most = longest.entry(outcome.name.clone()).or_default();
            *most = outcome.took.max(*most);
            if outcome.failed() {
                *failures.entry(outcome.name).or_default() += 1;
            }
        }
    }
    let mut slow: Vec<(&String, &Duration)> = longest.iter().collect();
    slow.sort_by_key(|(_, took)| std::cmp::Reverse(**took));
    say("Longest of all rounds:")?;
    for (name, took) in slow.into_iter().take(10) {
        say(&format!("{:7.1} s  {name}", took.as_secs_f64()))?;
    }
    for (name, count) in &failures {
        say(&format!("failed in {count} of {times}: {name}"))?;
    }
    say(&format!("{passed} passed, {failed} failed"))?;
    Ok(failed == 0)
}

/// One round.
fn one(round: u32, times: u32, labs: &[Test]) -> Result<Vec<Outcome>> {
    let begun = Instant::now();
    let plan = Plan { jobs: Job::for_tests(labs, Tier::Test), tests: labs.len(), left: 0 };
    let mut progress = Progress::start();
    progress.more(&plan);
    // The logs of each round are kept.
    let schedule = Schedule::new(plan.jobs).under_load().numbered_behind(round as usize * LOGS_PER_ROUND);
    let outcomes = schedule.run(&mut progress);
    progress.end();
    let failed: Vec<_> = outcomes.iter().filter(|outcome| outcome.failed()).collect();
    for outcome in &failed {
        say(&format!("{}\n{}", outcome.name, outcome.said))?;
    }
    let seconds = begun.elapsed().as_secs();
    say(&format!("round {round} of {times}: {} labs, {} failed, {seconds} s", outcomes.len(), failed.len()))?;
    Ok(outcomes)
}
