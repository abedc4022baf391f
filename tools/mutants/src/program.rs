//! The programs of tests and the simulator, and runs of some of their tests or of a world.

use crate::error::{Error, Result};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use std::fmt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A mutant may allocate without end.
const MEMORY: &str = "--as=6442450944";
/// How often a run is asked whether it has ended.
const POLL: Duration = Duration::from_millis(5);

/// A test, or a world of the simulator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Test {
    pub(crate) program: Arc<PathBuf>,
    pub(crate) kind: Kind,
}

/// What a program runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The test with this name.
    Test(String),
    /// The world of this seed. Each third has operators that add and remove nodes, and each third
    /// nodes of which all but one may die.
    World(u64),
}

impl Test {
    /// Tests for which this is the same can share a run.
    pub(crate) fn group(&self) -> (&Path, Option<u64>) {
        match self.kind {
            Kind::Test(_) => (&self.program, None),
            Kind::World(seed) => (&self.program, Some(seed)),
        }
    }

    /// The arguments that choose it, which follow those of other tests.
    fn arguments(&self) -> Vec<String> {
        match &self.kind {
            Kind::Test(name) => vec![name.clone()],
            Kind::World(seed) => {
                let mut arguments = vec![format!("--from={seed}")];
                arguments.extend(["--seeds=1", "--threads=1", "--lines=0"].map(str::to_owned));
                let kind = match seed % 3 {
                    0 => None,
                    1 => Some("--changes"),
                    _ => Some("--last-man-standing"),
                };
                arguments.extend(kind.map(str::to_owned));
                arguments
            }
        }
    }
}

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::Test(name) => f.write_str(name),
            Kind::World(seed) => write!(f, "world {seed}"),
        }
    }
}

/// The first worlds of the simulator.
pub(crate) fn worlds(simulator: PathBuf, number: u64) -> impl Iterator<Item = Test> {
    let program = Arc::new(simulator);
    (0..number).map(move |seed| Test { program: Arc::clone(&program), kind: Kind::World(seed) })
}

/// The tests of these programs.
pub(crate) fn tests(programs: Vec<PathBuf>, skip: &[String]) -> Result<Vec<Test>> {
    let mut tests = Vec::new();
    for program in programs.into_iter().map(Arc::new) {
        let mut command = Command::new(&*program);
        let output = command.args(["--list", "--format", "terse"]).output();
        let output = output.map_err(Error::io(format!("start {}", program.display())))?;
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            let Some(name) = line.strip_suffix(": test") else { continue };
            if !skip.iter().any(|text| name.contains(text.as_str())) {
                tests.push(Test { program: Arc::clone(&program), kind: Kind::Test(name.to_owned()) });
            }
        }
    }
    Ok(tests)
}

/// A run of tests of one group, one after the other.
#[derive(Debug)]
pub(crate) struct Run<'a> {
    /// One at least.
    pub(crate) tests: Vec<&'a Test>,
    /// The package's, which some tests read files from.
    pub(crate) directory: &'a Path,
    /// A variable for the switch.
    pub(crate) variable: (&'a str, String),
    /// The run ends after this time at the latest.
    pub(crate) limit: Duration,
}

impl Run<'_> {
    /// Runs them. Returns true if all have passed in time.
    pub(crate) fn passes(&self) -> Result<bool> {
        let Some(first) = self.tests.first() else { return Ok(true) };
        let mut command = Command::new("prlimit");
        command.arg(MEMORY).arg(&*first.program);
        if let Kind::Test(_) = first.kind {
            command.args(["--exact", "--test-threads=1"]);
        }
        command.args(self.tests.iter().flat_map(|test| test.arguments()));
        command.env(self.variable.0, &self.variable.1).env("RUST_BACKTRACE", "0").current_dir(self.directory);
        // A test may start others, which end with it.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        let mut child = command.spawn().map_err(Error::io("start prlimit"))?;
        let begin = Instant::now();
        loop {
            if let Some(status) = child.try_wait().map_err(Error::io("await a test"))? {
                return Ok(ExitStatus::success(&status));
            }
            if begin.elapsed() > self.limit {
                let group = i32::try_from(child.id()).map(Pid::from_raw);
                // It may have ended by itself.
                let _ = group.map(|group| killpg(group, Signal::SIGKILL));
                child.wait().map_err(Error::io("await a test"))?;
                return Ok(false);
            }
            std::thread::sleep(POLL);
        }
    }
}
