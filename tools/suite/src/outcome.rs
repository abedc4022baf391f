//! The results of the tests.

use crate::libtest::Verdict;
use std::path::PathBuf;
use std::time::Duration;

/// The result of a test, or of a command beside the tests.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    /// Package, target and name of a test; the purpose of a command.
    pub(crate) name: String,
    /// The verdict.
    pub(crate) verdict: Verdict,
    /// Its duration, without the time that a lab waited for its turn.
    pub(crate) took: Duration,
    /// Its message if it failed.
    pub(crate) said: String,
    /// The path of all its output.
    pub(crate) log: PathBuf,
    /// The number of tests that it counts as, passed and failed: a command counts as none.
    pub(crate) tests: (u64, u64),
}

impl Outcome {
    /// Whether it is a command or a build instead of a test.
    pub(crate) fn is_phase(&self) -> bool {
        self.tests == (0, 0)
    }

    /// Failed tests. A command that failed without a failed test counts as one.
    pub(crate) fn failures(&self) -> u64 {
        self.tests.1.max(u64::from(self.failed()))
    }

    /// Whether it failed.
    pub(crate) fn failed(&self) -> bool {
        self.verdict == Verdict::Failed
    }
}
