//! Runs the tests of the workspace: `make test`, `make test-all`, `make steady`.
//!
//! Cargo builds every test program; this program runs their tests. Labs (network namespaces, real
//! daemons) mostly wait, so several run at the same time, and jobs that need a processor run beside
//! them at the lowest priority: unit tests, the simulator, lints, the planted bugs. The program
//! knows nothing about the content of the tests. A package lists in its Cargo.toml, under
//! `[package.metadata.suite]`, which of its test programs hold labs. A test that only `make
//! test-all` runs has the attribute `#[ignore = "make test-all: ..."]`.
#![forbid(unsafe_code)]

mod cargo;
mod compile;
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
    /// Runs lints and tests, and reports the time of each
    Run {
        /// Run the whole matrix: what `make test-all` runs
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
    /// Repeats the labs of `make test` while other processes load all processors, and reports which
    /// fail
    Steady {
        /// Number of rounds
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
        times: u32,
        /// Threads of artificial load [default: one for each processor]; 0 if other work loads the
        /// processors
        #[arg(long, value_name = "THREADS")]
        load: Option<usize>,
        /// Only labs whose name contains one of these
        #[arg(value_name = "TEXT")]
        only: Vec<String>,
    },
}

fn main() -> ExitCode {
    let done = match compile::arguments() {
        Some(arguments) => Err(compile::run(&arguments)),
        None => ask(Arguments::parse().command),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            // Nothing can be done if standard error is closed too.
            let _ = writeln!(std::io::stderr(), "testudo-suite: {error}");
            ExitCode::FAILURE
        }
    }
}

fn ask(command: Command) -> Result<bool> {
    match command {
        Command::Run { all, only } => {
            run::suite(Wanted { tier: if all { Tier::All } else { Tier::Test }, only })
        }
        Command::List { labs } => list(labs).map(|()| true),
        Command::Steady { times, load, only } => steady::repeat(times, load, &only),
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
