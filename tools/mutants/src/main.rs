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
use std::collections::{BTreeMap, BTreeSet};
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
    let mutants = compile(&tree, &package.name, &arguments.paths)?;
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
    let judged = plan.judge(&mutants, Duration::from_secs(arguments.seconds), jobs)?;
    report(&judged)
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
            tree.replace(file, &planted.text)?;
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

fn report(judged: &[Judged<'_>]) -> Result<()> {
    let of = |verdict| judged.iter().filter(|judged| judged.verdict == verdict).count();
    let mut lines = String::new();
    let mut files: BTreeMap<&str, Vec<&Judged<'_>>> = BTreeMap::new();
    for alive in judged.iter().filter(|judged| judged.verdict != Verdict::Killed) {
        files.entry(&alive.mutant.file).or_default().push(alive);
    }
    for (file, alive) in files {
        lines.push_str(&format!("\n{file}\n"));
        for Judged { mutant, verdict, ran, reached_by } in alive {
            let tests = match verdict {
                Verdict::Unreached => "no test reaches it".to_owned(),
                _ => format!("{ran} of {reached_by} tests"),
            };
            let Mutant { line, function, label, .. } = mutant;
            lines.push_str(&format!("  {line}: {function}: {label} ({tests})\n"));
        }
    }
    lines.push_str(&format!(
        "\n{} mutants: {} killed, {} lived, {} not reached\n",
        judged.len(),
        of(Verdict::Killed),
        of(Verdict::Lived),
        of(Verdict::Unreached)
    ));
    std::io::stdout().write_all(lines.as_bytes()).map_err(Error::io("write the report"))
}

/// Tells what happens, beside the report.
fn tell(line: &str) -> Result<()> {
    writeln!(std::io::stderr(), "{line}").map_err(Error::io("write to standard error"))
}
