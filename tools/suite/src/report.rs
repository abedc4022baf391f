//! The report at the end of a run: failures with their messages, the slowest tests, the time of
//! each phase, the closing line.

use crate::error::{Error, Result};
use crate::job::{BUILD, log_dir};
use crate::outcome::Outcome;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::time::{Duration, Instant};

/// How many of the slowest are listed.
const SLOWEST: usize = 20;

/// The phases of a run and their times.
#[derive(Debug)]
pub(crate) struct Report {
    begun: Instant,
    phase: Instant,
    phases: Vec<(&'static str, Duration)>,
}

impl Report {
    /// Starts the first phase.
    pub(crate) fn start() -> Self {
        Self { begun: Instant::now(), phase: Instant::now(), phases: Vec::new() }
    }

    /// Ends a phase: the time since the last one is its time.
    pub(crate) fn phase(&mut self, name: &'static str) {
        self.phases.push((name, self.phase.elapsed()));
        self.phase = Instant::now();
    }

    /// Prints everything. Returns true if nothing has failed.
    pub(crate) fn print(&self, outcomes: &[Outcome]) -> Result<bool> {
        let text = self.text(outcomes);
        std::io::stdout().write_all(text.as_bytes()).map_err(Error::io("write the report"))?;
        let times = log_dir().join("times.txt");
        // There is none if nothing has been run because a test does not build.
        fs::create_dir_all(log_dir()).map_err(Error::io(format!("make {}", log_dir().display())))?;
        fs::write(&times, slowest_first(outcomes, usize::MAX))
            .map_err(Error::io(format!("write {}", times.display())))?;
        Ok(!outcomes.is_empty() && outcomes.iter().all(|outcome| !outcome.failed()))
    }

    fn text(&self, outcomes: &[Outcome]) -> String {
        let mut text = format!("\nSlowest:\n{}Phases:\n", slowest_first(outcomes, SLOWEST));
        let mut phase = |name: &str, took: Duration| {
            let _infallible = writeln!(text, "{:7.0} s  {name}", took.as_secs_f64());
        };
        self.phases.iter().for_each(|(name, took)| phase(name, *took));
        for outcome in outcomes.iter().filter(|outcome| outcome.is_phase()) {
            phase(&format!("  {}", outcome.name), outcome.took);
        }
        phase("in all", self.begun.elapsed());
        for outcome in outcomes.iter().filter(|outcome| outcome.failed()) {
            let _infallible = writeln!(
                text,
                "\nFAILED {}; all it said: {}\n{}",
                outcome.name,
                outcome.log.display(),
                outcome.said
            );
        }
        let (passed, failed) = sum(outcomes);
        text + &format!("\n{passed} passed, {failed} failed\n")
    }
}

/// The times of the slowest tests, at most that many of them.
fn slowest_first(outcomes: &[Outcome], most: usize) -> String {
    let mut slowest: Vec<&Outcome> = outcomes.iter().filter(|outcome| outcome.name != BUILD).collect();
    slowest.sort_by_key(|outcome| std::cmp::Reverse(outcome.took));
    let mut text = String::new();
    for outcome in slowest.iter().take(most) {
        let _infallible = writeln!(text, "{:7.1} s  {}", outcome.took.as_secs_f64(), outcome.name);
    }
    text
}

/// Tests passed and failed.
pub(crate) fn sum(outcomes: &[Outcome]) -> (u64, u64) {
    outcomes
        .iter()
        .fold((0, 0), |(passed, failed), outcome| (passed + outcome.tests.0, failed + outcome.failures()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::libtest::Verdict;

    fn outcome(name: &str, seconds: u64, verdict: Verdict, tests: (u64, u64)) -> Outcome {
        let (name, took, log) = (name.to_owned(), Duration::from_secs(seconds), "x.log".into());
        Outcome { name, verdict, took, said: "left: 1".into(), log, tests }
    }

    #[test]
    fn the_last_line_counts_tests_and_commands_that_failed_without_one() {
        let outcomes = [
            outcome("quick", 1, Verdict::Passed, (1, 0)),
            outcome("slow", 9, Verdict::Failed, (0, 1)),
            outcome("lints", 3, Verdict::Failed, (0, 0)),
            outcome(BUILD, 30, Verdict::Passed, (0, 0)),
        ];
        let text = Report::start().text(&outcomes);
        assert!(text.ends_with("\n1 passed, 2 failed\n"), "{text}");
        let place = |what: &str| text.find(what).unwrap();
        assert!(place("9.0 s  slow") < place("3.0 s  lints") && place("lints") < place("1.0 s  quick"));
        assert!(text.contains(&format!("     30 s    {BUILD}")) && !text.contains("30.0 s"), "{text}");
        assert!(text.contains("FAILED slow; all it said: x.log\nleft: 1"), "{text}");
    }
}
