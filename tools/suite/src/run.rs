//! `testudo-suite run`: the build with its lints, and the tests.

use crate::cargo::{self, Program, Which};
use crate::error::{Error, Result};
use crate::inventory::Wanted;
use crate::job::{self, Job, Plan};
use crate::progress::Progress;
use crate::report::Report;
use crate::schedule::Schedule;
use std::fs;
use std::io::{self, Write};

/// Runs all tests of a tier, or those with a matching name. Returns true if nothing has failed.
///
/// Labs begin as soon as they are built; the rest is built meanwhile.
pub(crate) fn suite(wanted: Wanted) -> Result<bool> {
    let mut report = Report::start();
    clear_logs()?;
    say("Building the labs and what runs in them")?;
    let mut progress = Progress::start();
    let labs = Plan::of(&build(Which::Labs, &mut progress)?, &wanted)?;
    report.phase("build of the labs");
    say("Running the labs, while building and running everything else")?;
    progress.more(&labs);
    let everything = wanted.only.is_empty();
    let mut jobs = vec![Job::build(wanted.clone())];
    if everything {
        jobs.push(Job::command("format", "cargo", &["fmt", "--all", "--check"]));
    }
    jobs.extend(labs.jobs);
    let outcomes = Schedule::new(jobs).run(&mut progress);
    progress.end();
    report.phase("tests, and what runs beside them:");
    if outcomes.is_empty() {
        return Err(Error::NoTest { wanted: wanted.only });
    }
    if everything && progress.left() > 0 {
        say(&format!("{} tests of the whole matrix are left to make test-all", progress.left()))?;
    }
    report.print(&outcomes)
}

/// Builds every test program, and shows the progress.
pub(crate) fn build_all() -> Result<Vec<Program>> {
    say("Building all tests")?;
    build(Which::All, &mut Progress::start())
}

fn build(which: Which, progress: &mut Progress) -> Result<Vec<Program>> {
    let built = cargo::build(which, &mut |units| progress.building(units));
    progress.end();
    Ok(built?.programs)
}

/// Removes the logs of the last run.
pub(crate) fn clear_logs() -> Result<()> {
    match fs::remove_dir_all(job::log_dir()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other.map_err(Error::io(format!("remove {}", job::log_dir().display()))),
    }
}

/// Prints a line for the user.
pub(crate) fn say(line: &str) -> Result<()> {
    writeln!(io::stdout(), "{line}").map_err(Error::io("write to standard output"))
}
