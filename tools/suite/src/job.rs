//! The jobs: a process for each lab, one for some dozens of small tests, and commands beside them.

use crate::cargo::{self, Built, Program, Which, bound, nice};
use crate::error::Result;
use crate::inventory::{Inventory, Test, Tier, Wanted};
use crate::libtest::{self, Follower, Verdict};
use crate::outcome::Outcome;
use crate::output::{Output, tail};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Tests in one process: few enough that two processors are busy until the end.
const TESTS_PER_PROCESS: usize = 40;
/// The job that builds the tests without labs.
pub(crate) const BUILD: &str = "build of the other tests";
/// The lints of that build.
const LINTS: &str = "lints";
/// The line of a lab that had to wait for others: see `Lab` of testudo-lab.
const WAITED: &str = "lab: its turn came after ";

/// Tells labs how many places the machine has, all in all. As in `lock.rs` of testudo-lab.
const ALL_PLACES: &str = "TESTUDO_LAB_ALL_PLACES";

/// The lane of a job, which decides what may run beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Labs: they have priority, and wait for places among themselves.
    Lab,
    /// A processor's worth of work, at the lowest priority.
    Processor,
    /// Builds at the lowest priority: cargo allows only one build at a time.
    Cargo,
}

/// A unit of work.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    /// Beside what it may run.
    pub(crate) lane: Lane,
    work: Work,
}

#[derive(Clone, Debug)]
enum Work {
    /// Tests of one program.
    Tests { program: Arc<Program>, names: Vec<String>, tier: Tier },
    /// A command beside the tests.
    Command { name: &'static str, program: &'static str, args: &'static [&'static str] },
    /// Builds the test programs without labs, and plans their tests.
    Build { wanted: Wanted },
}

/// An event of a running job.
#[derive(Debug)]
pub(crate) enum Event {
    /// A test or the command has ended.
    Ended(Outcome),
    /// There are more jobs.
    More(Plan),
    /// The job has ended.
    Over,
}

/// The requested tests of some programs.
#[derive(Debug)]
pub(crate) struct Plan {
    /// In the order in which they should begin.
    pub(crate) jobs: Vec<Job>,
    /// Number of tests that they run.
    pub(crate) tests: usize,
    /// Number of tests that are not requested.
    pub(crate) left: usize,
}

impl Plan {
    /// A plan for these programs.
    pub(crate) fn of(programs: &[Program], wanted: &Wanted) -> Result<Self> {
        let inventory = Inventory::take(programs)?;
        inventory.check(programs)?;
        let tests = inventory.wanted(wanted);
        let left = inventory.tests.len() - tests.len();
        Ok(Self { jobs: Job::for_tests(&tests, wanted.tier), tests: tests.len(), left })
    }
}

impl Job {
    /// A job for a command beside the tests, with that name.
    pub(crate) fn command(name: &'static str, program: &'static str, args: &'static [&'static str]) -> Self {
        Self { lane: Lane::Processor, work: Work::Command { name, program, args } }
    }

    /// A job that builds the test programs that [`Which::Labs`] leaves out, and plans their tests.
    pub(crate) fn build(wanted: Wanted) -> Self {
        Self { lane: Lane::Cargo, work: Work::Build { wanted } }
    }

    /// Jobs for these tests, in the order in which they should begin.
    pub(crate) fn for_tests(tests: &[Test], tier: Tier) -> Vec<Self> {
        let (long, short): (Vec<&Test>, Vec<&Test>) = tests.iter().partition(|test| test.is_long());
        let alone = |test: &&Test| Self::of(test, tier, vec![test.name.clone()]);
        let mut jobs: Vec<Self> = long.iter().map(alone).collect();
        jobs.extend(short.iter().filter(|test| test.lab).map(alone));
        let small: Vec<&&Test> = short.iter().filter(|test| !test.lab).collect();
        for of_program in small.chunk_by(|a, b| Arc::ptr_eq(&a.program, &b.program)) {
            for some in of_program.chunks(TESTS_PER_PROCESS) {
                jobs.push(Self::of(some[0], tier, some.iter().map(|test| test.name.clone()).collect()));
            }
        }
        jobs
    }

    fn of(test: &Test, tier: Tier, names: Vec<String>) -> Self {
        let lane = if test.lab { Lane::Lab } else { Lane::Processor };
        Self { lane, work: Work::Tests { program: Arc::clone(&test.program), names, tier } }
    }

    /// Its name for the user.
    pub(crate) fn name(&self) -> String {
        match &self.work {
            Work::Command { name, .. } => (*name).to_owned(),
            Work::Build { .. } => BUILD.to_owned(),
            Work::Tests { program, names, .. } => match names.as_slice() {
                [name] => format!("{} {} {name}", program.package, program.target),
                _ => format!("{} {}", program.package, program.target),
            },
        }
    }

    /// Runs it, and reports its events. The name of its log has the number. A lab is told how many
    /// places the machine has for labs.
    pub(crate) fn run(&self, number: usize, places: usize, tell: &dyn Fn(Event)) {
        // Reports the end even after a panic.
        let _over = Over(tell);
        let log = log_path(number, &self.name());
        let begun = Instant::now();
        let ended = &mut |outcome| tell(Event::Ended(outcome));
        let done = match &self.work {
            Work::Build { wanted } => more(wanted).map(|(plan, findings)| {
                tell(Event::More(plan));
                ended(phase(BUILD, begun.elapsed(), cargo::log(Which::All), None));
                let said = (!findings.is_empty()).then(|| findings.into_iter().collect());
                ended(phase(LINTS, Duration::ZERO, cargo::log(Which::All), said));
            }),
            Work::Command { name, program, args } => command(name, program, args, &log).map(ended),
            Work::Tests { program, names, tier } => {
                let output = Output::start(self.harness(program, names, *tier, places), &log);
                output.and_then(|output| Tests::new(program, names, &log).follow(output, ended))
            }
        };
        if let Err(error) = done {
            let (name, took, said) = (self.name(), begun.elapsed(), error.to_string());
            tell(Event::Ended(Outcome { name, verdict: Verdict::Failed, took, said, log, tests: (0, 1) }));
        }
    }

    /// The command that runs tests of a program one after another.
    fn harness(&self, program: &Program, names: &[String], tier: Tier, places: usize) -> Command {
        let is_lab = self.lane == Lane::Lab;
        let mut command = if is_lab { bound(&program.path) } else { nice(&program.path) };
        command.current_dir(&program.directory).envs(tier.environment().iter().copied());
        command.env(ALL_PLACES, places.to_string());
        command.args(["--exact", "--include-ignored", "--test-threads=1"]);
        // The output of a lab is in the log even if it hangs.
        command.args(is_lab.then_some("--nocapture")).args(names);
        command
    }
}

/// Builds the remaining programs and plans their tests; those built first are already planned. Also
/// returns the findings of lints, including those of the first build.
fn more(wanted: &Wanted) -> Result<(Plan, BTreeSet<String>)> {
    let Built { mut programs, findings } = cargo::build(Which::All, &mut |_| ())?;
    programs.retain(|program| !program.first);
    Ok((Plan::of(&programs, wanted)?, findings))
}

fn command(name: &str, program: &str, args: &[&str], log: &Path) -> Result<Outcome> {
    let begun = Instant::now();
    let mut command = nice(Path::new(program));
    command.args(args);
    let mut output = Output::start(command, log)?;
    let success = output.lines(&mut |_| ())?.success();
    let said = (!success).then(|| tail(&output.text()));
    Ok(phase(name, begun.elapsed(), log.to_owned(), said))
}

/// The outcome of a command beside the tests; it has failed if `said` is a text.
fn phase(name: &str, took: Duration, log: PathBuf, said: Option<String>) -> Outcome {
    let verdict = if said.is_some() { Verdict::Failed } else { Verdict::Passed };
    Outcome { name: name.to_owned(), verdict, took, said: said.unwrap_or_default(), log, tests: (0, 0) }
}

/// Reports the end of a job when it is dropped.
struct Over<'a>(&'a dyn Fn(Event));

impl Drop for Over<'_> {
    fn drop(&mut self) {
        (self.0)(Event::Over);
    }
}

/// The state of a process that runs tests.
struct Tests<'a> {
    program: &'a Program,
    left: Vec<&'a str>,
    log: &'a Path,
    begun: Instant,
}

impl<'a> Tests<'a> {
    fn new(program: &'a Program, names: &'a [String], log: &'a Path) -> Self {
        Self { program, left: names.iter().map(String::as_str).collect(), log, begun: Instant::now() }
    }

    fn follow(mut self, mut output: Output, ended: &mut dyn FnMut(Outcome)) -> Result<()> {
        let mut follower = Follower::default();
        let mut waited = Duration::ZERO;
        let mut failed = Vec::new();
        let end = output.lines(&mut |line| {
            // The harness leaves its own line unfinished.
            if let Some((_, wait)) = line.split_once(WAITED) {
                let seconds = wait.split(' ').next().and_then(|number| number.parse().ok());
                waited +=
                    seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).unwrap_or_default();
            }
            let Some((name, verdict)) = follower.line(line) else { return };
            let took = self.begun.elapsed().saturating_sub(std::mem::take(&mut waited));
            self.begun = Instant::now();
            self.left.retain(|left| *left != name);
            let outcome = self.outcome(&name, verdict, took, String::new());
            match verdict {
                Verdict::Passed => ended(outcome),
                // Its messages are at the end of the output.
                Verdict::Failed => failed.push((name, outcome)),
            }
        })?;
        let text = output.text();
        // A program that dies after its last test, or whose output was mistaken for a verdict.
        if !end.success() && failed.is_empty() && self.left.is_empty() {
            let said = format!("no test has failed, but the program ended: {end}\n{}", tail(&text));
            ended(self.outcome("(all its tests)", Verdict::Failed, self.begun.elapsed(), said));
        }
        for (name, outcome) in failed {
            ended(Outcome { said: libtest::said(&text, &name), ..outcome });
        }
        // If a program ends too early, the test that was running has failed; the others are
        // unknown.
        for name in &self.left {
            let running = follower.current() == Some(name);
            let said = if running {
                format!("the program ended in this test: {end}\n{}", tail(&text))
            } else {
                format!("did not run: the program ended before: {end}")
            };
            ended(self.outcome(name, Verdict::Failed, self.begun.elapsed(), said));
        }
        Ok(())
    }

    fn outcome(&self, name: &str, verdict: Verdict, took: Duration, said: String) -> Outcome {
        let tests = if verdict == Verdict::Passed { (1, 0) } else { (0, 1) };
        let name = format!("{} {} {name}", self.program.package, self.program.target);
        Outcome { name, verdict, took, said, log: self.log.to_owned(), tests }
    }
}

/// The directory for the logs of jobs.
pub(crate) fn log_dir() -> PathBuf {
    cargo::target_dir().join("log/tests")
}

fn log_path(number: usize, name: &str) -> PathBuf {
    let plain: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(100).collect();
    log_dir().join(format!("{number:04}-{plain}.log"))
}
