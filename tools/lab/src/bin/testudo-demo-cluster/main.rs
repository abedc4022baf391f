//! The demo of a cluster: three nodes form one gateway with tunnels and traffic; the node that
//! carries it is killed.
//!
//! Measures the outage and the loss, writes the figures as JSON and draws a plot. Fails if a tunnel
//! is lost, if a datagram arrives twice, or if the download is damaged.
#![forbid(unsafe_code)]

mod picture;
mod run;

use clap::Parser;
use std::error::Error;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use testudo_lab::bed::{Bed, BedOptions};
use testudo_lab::cluster_report::write_whole;
use testudo_lab::demo::{Done, Progress, guard};
use testudo_lab::gateway::Kind;
use testudo_lab::{Lab, interrupt};

/// Kills a node of a cluster, and measures what its users notice.
#[derive(Parser)]
#[command(name = "testudo-demo-cluster", version)]
struct Arguments {
    /// Where to write the figures as JSON.
    #[arg(long, value_name = "FILE", default_value = "target/demo/cluster.json")]
    report: PathBuf,
    /// Where to write the plot as SVG.
    #[arg(long, value_name = "FILE", default_value = "target/demo/cluster.svg")]
    plot: PathBuf,
    /// Number of nodes.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(3..=7))]
    nodes: u8,
    /// Number of peers, each with a tunnel. The first is Testudo, the others are strongSwan.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=20))]
    peers: u8,
    /// Size of the download in millions of octets.
    #[arg(long, value_name = "MB", default_value_t = 500)]
    download: u64,
    /// Set by the guard for the process that does the work.
    #[arg(long, hide = true)]
    guarded: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = if arguments.guarded { demo(&arguments) } else { guard::run("testudo-demo-cluster") };
    done.unwrap_or_else(|error| {
        // Nothing can be done if stderr is closed too.
        let _ = writeln!(std::io::stderr(), "testudo-demo-cluster: {error}");
        ExitCode::FAILURE
    })
}

fn demo(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    interrupt::watch()?;
    for old in [&arguments.report, &arguments.plot] {
        // If this run fails, the figures of an earlier one must not remain.
        let _absent = std::fs::remove_file(old);
    }
    let mut progress = Progress::start();
    progress.title("Preparation")?;
    let lab =
        progress.step("wait for other labs, sweep leftovers", || Ok(Done::new(Lab::new("demo-cluster")?)))?;
    // The first carries the load and is fast; the others know nothing of clusters.
    let kind = |peer| if peer == 1 { Kind::Testudo } else { Kind::Strongswan };
    let peers: Vec<Kind> = (1..=arguments.peers).map(kind).collect();
    let options = BedOptions { nodes: arguments.nodes, peers: peers.clone(), ..BedOptions::default() };
    let what = format!("{} nodes with corosync, {} peers", options.nodes, peers.len());
    let mut bed = progress.step(&what, || Ok(Done::new(Bed::start(&lab, &options)?)))?;
    for (peer, kind) in (1..).zip(&peers) {
        progress.step(&format!("tunnel from peer {peer}, {kind}"), || Ok(Done::new(bed.bring_up(peer)?)))?;
    }
    let outcome = run::run(&mut bed, arguments.download * 1_000_000, &mut progress)?;
    write_whole(&arguments.plot, &picture::draw(&outcome).render())?;
    let mut stdout = std::io::stdout();
    writeln!(stdout, "\n{}", outcome.text())?;
    outcome.report()?.write(&arguments.report)?;
    let (seconds, report, plot) = (progress.seconds(), arguments.report.display(), arguments.plot.display());
    writeln!(stdout, "{seconds} s in all; figures in {report}, plot in {plot}")?;
    let problems = outcome.problems();
    for problem in &problems {
        writeln!(stdout, "FAILED: {problem}")?;
    }
    Ok(if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
