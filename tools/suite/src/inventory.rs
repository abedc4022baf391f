//! The tests, and the commands that run them.

use crate::cargo::Program;
use crate::error::{Error, Result};
use crate::libtest;
use std::collections::BTreeSet;
use std::process::Command;
use std::sync::Arc;

/// The set of tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tier {
    /// `make test`.
    Test,
    /// `make test-all`.
    All,
}

impl Tier {
    /// Environment variables for the tests: the number of the simulator's worlds
    /// (`sim/tests/it/main.rs`), the number of random sizes for Scapy (`ipsec/tests/it/scapy.rs`),
    /// and that others may take longer too (`fuzz/tests/replay.rs`, `cluster/tests/it/crash.rs`, ...).
    pub(crate) fn environment(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Test => &[],
            Self::All => {
                &[("TESTUDO_SEEDS", "2000"), ("TESTUDO_RANDOM_SIZES", "10"), ("TESTUDO_THOROUGH", "1")]
            }
        }
    }
}

/// A test of a program.
#[derive(Clone, Debug)]
pub(crate) struct Test {
    /// Its program.
    pub(crate) program: Arc<Program>,
    /// Its path in the program.
    pub(crate) name: String,
    /// It has `#[ignore]`.
    pub(crate) only_in_all: bool,
    /// It holds a lab.
    pub(crate) lab: bool,
}

impl Test {
    /// Package, target and name.
    pub(crate) fn full_name(&self) -> String {
        let Program { package, target, .. } = &*self.program;
        format!("{package} {target} {}", self.name)
    }

    /// Whether it is one of the slowest.
    pub(crate) fn is_long(&self) -> bool {
        self.program.long.iter().any(|prefix| self.name.starts_with(prefix))
    }
}

/// All tests of the workspace.
#[derive(Debug)]
pub(crate) struct Inventory {
    /// By program, in the program's order.
    pub(crate) tests: Vec<Test>,
}

impl Inventory {
    /// Lists the tests of every program.
    pub(crate) fn take(programs: &[Program]) -> Result<Self> {
        let mut tests = Vec::new();
        for program in programs {
            let program = Arc::new(program.clone());
            let ignored: BTreeSet<String> = names(&program, &["--ignored"])?.into_iter().collect();
            tests.extend(names(&program, &[])?.into_iter().map(|name| Test {
                only_in_all: ignored.contains(&name),
                lab: program.labs,
                program: Arc::clone(&program),
                name,
            }));
        }
        Ok(Self { tests })
    }

    /// Refuses a program that lacks tests named in `[package.metadata.suite]`: otherwise nobody
    /// would notice.
    pub(crate) fn check(&self, programs: &[Program]) -> Result<()> {
        for program in programs {
            let names = || self.tests.iter().filter(|test| test.program.path == program.path);
            let lacks = |beginning: &&String| !names().any(|test| test.name.starts_with(beginning.as_str()));
            let missing = match program.long.iter().find(lacks) {
                Some(beginning) => format!("no test {beginning}..."),
                None if program.labs && names().next().is_none() => "no test".to_owned(),
                None => continue,
            };
            return Err(Error::Output {
                program: program.path.display().to_string(),
                found: missing,
                expected: "the tests named in [package.metadata.suite]",
            });
        }
        Ok(())
    }

    /// The tests that are requested.
    pub(crate) fn wanted(&self, wanted: &Wanted) -> Vec<Test> {
        self.tests.iter().filter(|test| wanted.includes(test)).cloned().collect()
    }
}

/// The tests that a user requests.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    /// The tier.
    pub(crate) tier: Tier,
    /// A test is requested if its name contains one of these; empty for all.
    pub(crate) only: Vec<String>,
}

impl Wanted {
    fn includes(&self, test: &Test) -> bool {
        let name = test.full_name();
        let named = self.only.is_empty() || self.only.iter().any(|text| name.contains(text.as_str()));
        named && (self.tier == Tier::All || !test.only_in_all)
    }
}

fn names(program: &Program, more: &[&str]) -> Result<Vec<String>> {
    let mut command = Command::new(&program.path);
    command.args(["--list", "--format", "terse"]).args(more).current_dir(&program.directory);
    let output = command.output().map_err(Error::io(format!("run {}", program.path.display())))?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        return Err(Error::Output {
            program: program.path.display().to_string(),
            found: String::from_utf8_lossy(&output.stderr).into_owned(),
            expected: "a list of tests",
        });
    }
    Ok(text.lines().filter_map(libtest::listed).map(str::to_owned).collect())
}
