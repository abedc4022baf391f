//! Progress output: one line that is updated on a terminal, otherwise a line from time to time.

use crate::job::{BUILD, Plan};
use crate::outcome::Outcome;
use crate::schedule::Running;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// Minimum interval of lines without a terminal.
const QUIET: Duration = Duration::from_secs(30);
/// How many of the running jobs are named.
const NAMED: usize = 3;

/// Writes to standard output.
#[derive(Debug)]
pub(crate) struct Progress {
    begun: Instant,
    total: usize,
    left: usize,
    passed: u64,
    failed: u64,
    terminal: bool,
    told: Option<Instant>,
}

impl Progress {
    /// Begins now.
    pub(crate) fn start() -> Self {
        let (terminal, begun) = (io::stdout().is_terminal(), Instant::now());
        Self { begun, total: 0, left: 0, passed: 0, failed: 0, terminal, told: None }
    }

    /// Adds the tests of a plan.
    pub(crate) fn more(&mut self, plan: &Plan) {
        self.total += plan.tests;
        self.left += plan.left;
    }

    /// Number of tests that no plan has requested.
    pub(crate) fn left(&self) -> usize {
        self.left
    }

    /// A test has ended; a failure is printed at once.
    pub(crate) fn ended(&mut self, outcome: &Outcome) {
        self.passed += outcome.tests.0;
        self.failed += outcome.failures();
        if outcome.failed() {
            self.line(&format!(
                "FAILED {} after {:.1} s: {}",
                outcome.name,
                outcome.took.as_secs_f64(),
                outcome.log.display()
            ));
        }
    }

    /// Shows the running jobs.
    pub(crate) fn show(&mut self, running: &[Running]) {
        self.draw(|progress| progress.text(running));
    }

    /// Shows the progress of a build.
    pub(crate) fn building(&mut self, units: &str) {
        if units.is_empty() {
            return;
        }
        self.draw(|progress| format!("[{}] building {units}", progress.clock()));
    }

    fn draw(&mut self, text: impl FnOnce(&Self) -> String) {
        if !self.terminal && self.told.is_some_and(|told| told.elapsed() < QUIET) {
            return;
        }
        self.told = Some(Instant::now());
        let text = text(self);
        if self.terminal {
            self.write(&format!("\r\x1b[K{}", text.chars().take(width()).collect::<String>()));
        } else {
            self.write(&format!("{text}\n"));
        }
    }

    /// Removes the updated line.
    pub(crate) fn end(&mut self) {
        if self.terminal {
            self.write("\r\x1b[K");
        }
    }

    fn text(&self, running: &[Running]) -> String {
        let mut text = format!(
            "[{}] {} of {}{} tests, {} failed",
            self.clock(),
            self.passed + self.failed,
            self.total,
            // Tests of programs that are not built yet are unknown.
            if running.iter().any(|running| running.name == BUILD) { " and more" } else { "" },
            self.failed
        );
        let mut oldest: Vec<&Running> = running.iter().collect();
        oldest.sort_by_key(|running| running.since);
        for running in oldest.iter().take(NAMED) {
            text += &format!("; {} {} s", running.name, running.since.elapsed().as_secs());
        }
        if oldest.len() > NAMED {
            text += &format!("; {} more", oldest.len() - NAMED);
        }
        text
    }

    /// Minutes and seconds since the start.
    fn clock(&self) -> String {
        let seconds = self.begun.elapsed().as_secs();
        format!("{}:{:02}", seconds / 60, seconds % 60)
    }

    fn line(&mut self, text: &str) {
        let clear = if self.terminal { "\r\x1b[K" } else { "" };
        self.write(&format!("{clear}{text}\n"));
    }

    fn write(&mut self, text: &str) {
        let mut out = io::stdout().lock();
        // The tests continue even if nobody can see the output.
        let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    }
}

/// Columns of the terminal, minus one that many terminals need to stay on the line.
fn width() -> usize {
    let told = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse::<usize>().ok());
    told.unwrap_or(120).saturating_sub(1)
}
