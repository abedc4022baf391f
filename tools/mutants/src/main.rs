//! Changes the source in thousands of small ways (mutants), and lists the changes that no test
//! notices: operators, `match` arms, guards, and the values that functions return.
//!
//! All mutants of a crate are compiled into one build, each behind a condition that a variable of
//! the environment chooses when a test starts. First each test runs alone and notes which mutants it
//! reaches. Then each mutant costs only the tests that reach it, and no build. See "What mutants
//! taught" in `docs/testing.md`.
#![forbid(unsafe_code)]

mod cargo;
mod error;
mod find;
mod judge;
mod plant;
mod program;
mod tree;

use clap::Parser;
use error::{Error, Result};
use judge::{Judged, Plan, Verdict};
use plant::Mutant;
use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use tree::Tree;

#[derive(Parser)]
#[command(about = "Lists the small changes of the source that no test notices")]
struct Arguments {
    /// Files and directories with the source of one crate
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Seconds of tests at most for each mutant
    #[arg(long, default_value_t = 12)]
    seconds: u64,
    /// Tests that run at the same time [default: one for each processor]
    #[arg(long, value_name = "NUMBER")]
    jobs: Option<usize>,
    /// Runs this many worlds of the simulator, too, for a mutant that all tests let live
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    worlds: u64,
    /// Judges only the mutants that this report of an earlier run lists, on whichever line they are
    #[arg(long, value_name = "FILE")]
    again: Option<PathBuf>,
    /// Leaves out the tests whose name contains this
    #[arg(long, value_name = "TEXT")]
    skip: Vec<String>,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nothing can be done if standard error is closed too.
            let _ = writeln!(std::io::stderr(), "testudo-mutants: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    let tree = Tree::copy()?;
    let package = cargo::package_of(&tree, &arguments.paths)?;
    let mut mutants = compile(&tree, &package.name, &arguments.paths)?;
    if let Some(report) = &arguments.again {
        let failed = Error::io(format!("read {}", report.display()));
        let listed = std::fs::read_to_string(report).map_err(failed)?;
        let listed: BTreeSet<String> = listed.lines().filter_map(without_line).collect();
        mutants.retain(|mutant| listed.contains(&mutant.without_line()));
    }
    let mut tests = program::tests(cargo::build_tests(&tree, &package)?, &arguments.skip)?;
    if arguments.worlds > 0 {
        tests.extend(program::worlds(cargo::build_simulator(&tree)?, arguments.worlds));
    }
    tell(&format!("{} mutants, {} tests", mutants.len(), tests.len()))?;
    let jobs =
        arguments.jobs.or_else(|| std::thread::available_parallelism().ok().map(Into::into)).unwrap_or(1);
    let plan = Plan::of(tests, &package.directory, jobs)?;
    for test in &plan.failing {
        tell(&format!("left out, because it fails without a mutant: {test}"))?;
    }
    print(&summary(&plan.judge(&mutants, Duration::from_secs(arguments.seconds), jobs)?))
}

/// A mutant of a report, without its line, which may be another one by now.
fn without_line(reported: &str) -> Option<String> {
    let (mutant, _) = reported.rsplit_once(" (")?;
    let (file, rest) = mutant.split_once(':')?;
    let (_, rest) = rest.split_once(": ")?;
    Some(format!("{file}: {rest}"))
}

/// Plants all mutants that compile.
fn compile(tree: &Tree, package: &str, paths: &[PathBuf]) -> Result<Vec<Mutant>> {
    let files = tree.sources(paths)?;
    let mut left_out = BTreeSet::new();
    loop {
        let mut mutants = Vec::new();
        let mut next = 1;
        for file in &files {
            let planted = plant::plant(file, &tree.original(file)?, &mut next, &left_out)?;
            tree.replace(file, planted.text.as_bytes())?;
            mutants.extend(planted.mutants);
        }
        let refused = cargo::refused(tree, package)?;
        if refused.is_empty() {
            return Ok(mutants);
        }
        tell(&format!("{} mutants do not compile", refused.len()))?;
        let known = left_out.len();
        left_out.extend(refused);
        if left_out.len() == known {
            return Err(Error::DoesNotCompile { package: package.to_owned() });
        }
    }
}

/// Prints a mutant that no test has noticed.
fn report(alive: &Judged<'_>) -> Result<()> {
    let tests = match alive.verdict {
        Verdict::Unreached => "no test reaches it".to_owned(),
        _ => format!("{} of {} tests", alive.ran, alive.reached_by),
    };
    print(&format!("{} ({tests})", alive.mutant))
}

fn summary(judged: &[Verdict]) -> String {
    let of = |verdict| judged.iter().filter(|judged| **judged == verdict).count();
    let [killed, lived, unreached] = [Verdict::Killed, Verdict::Lived, Verdict::Unreached].map(of);
    format!("{} mutants: {killed} killed, {lived} lived, {unreached} not reached", judged.len())
}

fn print(line: &str) -> Result<()> {
    writeln!(std::io::stdout(), "{line}").map_err(Error::io("write the report"))
}

/// Tells what happens, beside the report.
fn tell(line: &str) -> Result<()> {
    writeln!(std::io::stderr(), "{line}").map_err(Error::io("write to standard error"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reported_mutant_is_found_again_when_its_line_has_moved() {
        let mutant = |line| {
            let (file, function) = ("crates/a/src/b.rs".to_owned(), "C::d".to_owned());
            Mutant { number: 1, file, line, function, label: "> -> >= in `a > b`".to_owned() }
        };
        let reported = format!("{} (3 of 7 tests)", mutant(12));
        assert_eq!(without_line(&reported), Some(mutant(15).without_line()));
        assert_eq!(without_line("2 mutants: 1 killed, 1 lived, 0 not reached"), None);
    }
}
