//! testudo-sim: runs seeds of the simulator.
#![allow(clippy::print_stdout, reason = "a command line tool speaks on its terminal")]

use clap::Parser;
use std::process::ExitCode;
use std::rc::Rc;
use testudo_sim::lone::{Flaw, Lone};
use testudo_sim::random::Random;
use testudo_sim::runner;
use testudo_sim::scenario::Scenario;
use testudo_sim::world::{Outcome, World};

/// Runs the cluster in virtual time, and checks after every step what must always hold.
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
}

fn main() -> ExitCode {
    let Arguments { seeds, from, threads } = Arguments::parse();
    let threads = threads.or_else(|| std::thread::available_parallelism().ok().map(usize::from));
    let totals = runner::run(from..from.saturating_add(seeds), threads.unwrap_or(1), false, &lone);
    totals.failed.iter().for_each(|outcome| println!("{outcome}"));
    println!("{totals}");
    if totals.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn lone(seed: u64) -> Outcome {
    let scenario = Scenario { nodes: 1, ..Scenario::random(seed) };
    World::new(
        scenario,
        Rc::new(move |scenario, birth| {
            let mut random = Random::new(seed ^ birth.boot);
            Box::new(Lone::new(birth.now, &scenario.manners, Flaw::None, &mut random))
        }),
    )
    .run()
}
