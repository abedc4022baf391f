//! What came of the tests.

use crate::libtest::Verdict;
use std::path::PathBuf;
use std::time::Duration;

/// A test, or a command beside the tests, that has ended.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    /// Package, target and name; of a command what it is for.
    pub(crate) name: String,
    /// How it ended.
    pub(crate) verdict: Verdict,
    /// How long it took, without what a lab waited for its turn.
    pub(crate) took: Duration,
    /// What it said when it failed.
    pub(crate) said: String,
    /// All that it has printed.
    pub(crate) log: PathBuf,
    /// How many tests it stands for, passed and failed: a command has run none.
    pub(crate) tests: (u64, u64),
}

impl Outcome {
    /// Whether it is a command or a build instead of a test.
    pub(crate) fn is_phase(&self) -> bool {
        self.tests == (0, 0)
    }

    /// Tests that failed. A command that failed without a test that did counts as one.
    pub(crate) fn failures(&self) -> u64 {
        self.tests.1.max(u64::from(self.failed()))
    }

    /// Whether it failed.
    pub(crate) fn failed(&self) -> bool {
        self.verdict == Verdict::Failed
    }
}
