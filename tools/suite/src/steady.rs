//! `testudo-suite steady`: the labs of `make test` again and again, on processors that are full.

use crate::cargo::{self, Which};
use crate::error::{Error, Result};
use crate::inventory::{Inventory, Test, Tier, Wanted};
use crate::job::{Job, Plan};
use crate::load::Load;
use crate::progress::Progress;
use crate::run::{clear_logs, say};
use crate::schedule::Schedule;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Runs the labs so many times. True if none has ever failed.
pub(crate) fn repeat(times: u32, only: &[String]) -> Result<bool> {
    let inventory = Inventory::take(&cargo::build(Which::All, &mut |_| ())?)?;
    let mut labs = inventory.wanted(&Wanted { tier: Tier::Test, only: only.to_vec() });
    labs.retain(|test| test.lab);
    if labs.is_empty() {
        return Err(Error::NoTest { wanted: only.to_vec() });
    }
    let load = Load::start();
    say(&format!("{} labs, {times} times, beside {} threads that never rest", labs.len(), load.threads()))?;
    let mut failures: BTreeMap<String, u32> = BTreeMap::new();
    let mut longest: BTreeMap<String, Duration> = BTreeMap::new();
    for round in 1..=times {
        let failed = one(round, times, &labs, &mut longest)?;
        failed.into_iter().for_each(|name| *failures.entry(name).or_default() += 1);
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
    let total = u64::from(times) * labs.len() as u64;
    let failed: u64 = failures.values().map(|count| u64::from(*count)).sum();
    say(&format!("{} passed, {failed} failed", total - failed))?;
    Ok(failures.is_empty())
}

/// One round: the labs that failed.
fn one(
    round: u32,
    times: u32,
    labs: &[Test],
    longest: &mut BTreeMap<String, Duration>,
) -> Result<Vec<String>> {
    // What failed in an earlier round has said so; its logs are kept until the end.
    if round == 1 {
        clear_logs()?;
    }
    let begun = Instant::now();
    let plan = Plan { jobs: Job::for_tests(labs, Tier::Test), tests: labs.len(), left: 0 };
    let mut progress = Progress::start();
    progress.more(&plan);
    let outcomes = Schedule::new(plan.jobs).run(&mut progress);
    progress.end();
    for outcome in &outcomes {
        let most = longest.entry(outcome.name.clone()).or_default();
        *most = outcome.took.max(*most);
    }
    let failed: Vec<_> = outcomes.iter().filter(|outcome| outcome.failed()).collect();
    for outcome in &failed {
        say(&format!("{}\n{}", outcome.name, outcome.said))?;
    }
    let seconds = begun.elapsed().as_secs();
    say(&format!("round {round} of {times}: {} labs, {} failed, {seconds} s", outcomes.len(), failed.len()))?;
    Ok(failed.into_iter().map(|outcome| outcome.name.clone()).collect())
}
