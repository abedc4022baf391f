//! Runs the tests of the workspace: `make test`, `make test-all`, `make steady`.
//!
//! Cargo builds every test program; this program runs their tests. Labs (network namespaces, real
//! daemons) mostly wait, so several are there at a time, and what needs a processor runs beside
//! them at the lowest priority: unit tests, the simulator, lints, the planted bugs. It knows
//! nothing of what the tests prove: a package says in its Cargo.toml, under
//! `[package.metadata.suite]`, which of its test programs hold labs, and a test that only `make
//! test-all` runs says so by `#[ignore = "make test-all: ..."]`.
#![forbid(unsafe_code)]

mod cargo;
mod error;
mod inventory;
mod job;
mod libtest;
mod load;
mod outcome;
mod output;
mod progress;
mod report;
mod run;
mod schedule;
mod steady;

use clap::{Parser, Subcommand};
use error::Result;
use inventory::{Inventory, Tier, Wanted};
use std::io::Write;
use std::process::ExitCode;

#[derive(Parser)]
#[command(about = "Runs the tests of the workspace")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs lints and tests, and tells what took how long
    Run {
        /// The whole matrix too: what `make test-all` runs
        #[arg(long)]
        all: bool,
        /// Only tests whose name contains one of these
        #[arg(value_name = "TEXT")]
        only: Vec<String>,
    },
    /// Lists tests with the command that runs them: `test` or `test-all`
    List {
        /// Labs only
        #[arg(long)]
        labs: bool,
    },
    /// Repeats the labs of `make test` while other processes load all processors, and tells which
    /// fail
    Steady {
        /// How often
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
        times: u32,
        /// Threads that never rest [default: one for each processor]; 0 where other work fills the
        /// processors
        #[arg(long, value_name = "THREADS")]
        load: Option<usize>,
        /// Only labs whose name contains one of these
        #[arg(value_name = "TEXT")]
        only: Vec<String>,
    },
}

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Run { all, only } => {
            run::suite(Wanted { tier: if all { Tier::All } else { Tier::Test }, only })
        }
        Command::List { labs } => list(labs).map(|()| true),
        Command::Steady { times, load, only } => steady::repeat(times, load, &only),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            // Nothing is left to do if standard error is gone too.
            let _ = writeln!(std::io::stderr(), "testudo-suite: {error}");
            ExitCode::FAILURE
        }
    }
}

fn list(labs: bool) -> Result<()> {
    let inventory = Inventory::take(&run::build_all()?)?;
    let mut out = std::io::stdout().lock();
    for test in inventory.tests.iter().filter(|test| test.lab || !labs) {
        let tier = if test.only_in_all { "test-all" } else { "test" };
        writeln!(out, "{tier:8}  {}", test.full_name()).map_err(error::Error::io("write the list"))?;
    }
    Ok(())
}
