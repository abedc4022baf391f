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
use testudo_lab::demo::{self, Done, Progress};
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
    demo::main("testudo-demo-cluster", arguments.guarded, || show(&arguments))
}

fn show(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    interrupt::watch()?;
    let files = [&*arguments.report, &*arguments.plot];
    demo::discard(files);
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
    writeln!(std::io::stdout(), "\n{}", outcome.text())?;
    outcome.report()?.write(&arguments.report)?;
    Ok(demo::conclude(&progress, files, &outcome.problems())?)
}
