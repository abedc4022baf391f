//! The demo of a spread tunnel: one tunnel that one node works on, then two, then all; then one of
//! them is killed.
//!
//! Measures what each node does for it, writes the figures as JSON and draws a plot. Fails if the
//! tunnel is lost, if a datagram arrives twice, or if a node takes no part.
#![forbid(unsafe_code)]

mod outcome;
mod picture;
mod run;

use clap::Parser;
use std::error::Error;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use testudo_lab::bed::{Bed, BedOptions, replay_window};
use testudo_lab::cluster_report::{write_json, write_whole};
use testudo_lab::demo::{self, Done, Progress};
use testudo_lab::gateway::Kind;
use testudo_lab::{Lab, interrupt};

/// Spreads one tunnel over more and more nodes, kills one, and shows what each of them does.
#[derive(Parser)]
#[command(name = "testudo-demo-spread", version)]
struct Arguments {
    /// Where to write the figures as JSON.
    #[arg(long, value_name = "FILE", default_value = "target/demo/spread.json")]
    report: PathBuf,
    /// Where to write the plot as SVG.
    #[arg(long, value_name = "FILE", default_value = "target/demo/spread.svg")]
    plot: PathBuf,
    /// Number of nodes.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(3..=7))]
    nodes: u8,
    /// Seconds of traffic for each number of nodes.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(2..=600))]
    seconds: u64,
    /// Set by the guard for the process that does the work.
    #[arg(long, hide = true)]
    guarded: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    demo::main("testudo-demo-spread", arguments.guarded, || show(&arguments))
}

fn show(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    interrupt::watch()?;
    let files = [&*arguments.report, &*arguments.plot];
    demo::discard(files);
    let mut progress = Progress::start();
    progress.title("Preparation")?;
    let lab =
        progress.step("wait for other labs, sweep leftovers", || Ok(Done::new(Lab::new("demo-spread")?)))?;
    let options = BedOptions {
        nodes: arguments.nodes,
        peers: vec![Kind::Testudo],
        settings: "[[spread]]\nconnection = \"peer1\"\nscheme = \"packet-hash\"\n".into(),
        ..BedOptions::default()
    };
    let mut bed = progress.step(&format!("{} nodes with corosync, a peer", options.nodes), || {
        // All nodes send on one SA, so that its numbers come in another order.
        Ok(Done::new(Bed::start_with(&lab, &options, replay_window(1024))?))
    })?;
    progress.step("one tunnel, spread by packet-hash", || Ok(Done::new(bed.bring_up(1)?)))?;
    let outcome = run::run(&mut bed, Duration::from_secs(arguments.seconds), &mut progress)?;
    write_whole(&arguments.plot, &picture::draw(&outcome).render())?;
    writeln!(std::io::stdout(), "\n{}", outcome.text())?;
    write_json(&arguments.report, &outcome.report())?;
    Ok(demo::conclude(&progress, files, &outcome.problems())?)
}
