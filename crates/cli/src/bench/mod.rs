//! `testudo bench`: what the packet path costs on this machine, without a network.

mod esp;
mod machine;
mod pin;
mod report;
mod stopwatch;

use std::process::ExitCode;

/// Benchmarks.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Bench {
    /// Measure the whole ESP pipeline on one core, and beside it the bare cipher.
    Esp(esp::EspArgs),
}

/// Runs a benchmark; failures go to standard error.
pub(crate) fn run(bench: &Bench) -> ExitCode {
    let result = match bench {
        Bench::Esp(args) => esp::run(args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("testudo bench: {error}");
            ExitCode::FAILURE
        }
    }
}
