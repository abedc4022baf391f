//! testudo-sim: runs seeds of the simulator.
#![allow(clippy::print_stdout, reason = "a command line tool speaks on its terminal")]

use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use std::process::ExitCode;
#[cfg(debug_assertions)]
use testudo_planted::Plant;
use testudo_sim::engine::Votes;
use testudo_sim::faults::Kind;
use testudo_sim::runner;
use testudo_sim::scenario::{Lasting, Scenario};

/// Runs the cluster in virtual time, and checks the invariants after every step.
#[derive(Parser)]
#[command(name = "testudo-sim", version)]
struct Arguments {
    /// How many seeds to run.
    #[arg(long, value_name = "N", default_value_t = 100)]
    seeds: u64,
    /// The first of them.
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    from: u64,
    /// Threads; by default, as many as there are processors.
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Lines of the trace to show of a seed that fails.
    #[arg(long, value_name = "N", default_value_t = 100)]
    lines: usize,
    /// Only faults of these kinds, such as "crash" or "one way".
    #[arg(long, value_name = "FAULT", value_parser = fault)]
    only: Vec<Kind>,
    /// Operators add nodes and remove others.
    #[arg(long)]
    changes: bool,
    /// All nodes but one may die (`quorum = "last_man_standing"`).
    #[arg(long)]
    last_man_standing: bool,
    /// Plants a bug, and stops at the first seed that finds it.
    #[cfg(debug_assertions)]
    #[arg(long, value_name = "BUG", value_parser = bug)]
    plant: Option<Plant>,
}

/// Nothing has the name of an argument.
#[derive(Debug, thiserror::Error)]
#[error("there are: {}", known.join(", "))]
struct UnknownName {
    known: Vec<&'static str>,
}

#[cfg(debug_assertions)]
fn bug(name: &str) -> Result<Plant, UnknownName> {
    let unknown = || UnknownName { known: Plant::ALL.iter().map(|bug| bug.name()).collect() };
    Plant::ALL.iter().copied().find(|bug| bug.name() == name).ok_or_else(unknown)
}

fn fault(name: &str) -> Result<Kind, UnknownName> {
    let unknown = || UnknownName { known: Kind::ALL.map(Kind::name).to_vec() };
    Kind::ALL.into_iter().find(|kind| kind.name() == name).ok_or_else(unknown)
}

#[cfg(debug_assertions)]
fn plant(arguments: &Arguments) -> bool {
    testudo_planted::plant(arguments.plant);
    arguments.plant.is_some()
}

#[cfg(not(debug_assertions))]
fn plant(_arguments: &Arguments) -> bool {
    false
}

/// A line on standard error, if that is a terminal.
fn progress(seeds: u64) -> ProgressBar {
    let bar = ProgressBar::new(seeds);
    match ProgressStyle::with_template("{pos} of {len} seeds, {elapsed}, {eta} left") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let Arguments { seeds, from, threads, lines, .. } = arguments;
    let threads = threads.or_else(|| std::thread::available_parallelism().ok().map(usize::from));
    let seeds = from..from.saturating_add(seeds);
    let only = &arguments.only;
    let progress = progress(seeds.end - seeds.start);
    let totals = runner::run(seeds, threads.unwrap_or(1), plant(&arguments), &|seed| {
        // Planting applies to the thread only.
        plant(&arguments);
        let scenario = if arguments.changes { Scenario::changing(seed) } else { Scenario::random(seed) };
        let scenario = if arguments.last_man_standing {
            Scenario { votes: Votes::LastManStanding, lasting: Lasting::None, ..scenario }
        } else {
            scenario
        };
        let outcome = testudo_sim::cluster(Scenario { lines, only: only.clone(), ..scenario });
        progress.inc(1);
        outcome
    });
    progress.finish_and_clear();
    totals.failed.iter().for_each(|outcome| println!("{outcome}"));
    println!("{totals}");
    if totals.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
