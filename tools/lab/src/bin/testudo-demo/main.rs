//! The demo: real traffic through tunnels between strongSwan and Testudo, in labs of network
//! namespaces.
//!
//! Runs strongSwan against itself for comparison, then Testudo against strongSwan, then Testudo
//! against itself. Prints the results and writes them as JSON. Fails if anything does not work, if
//! a download differs, or if a single clear packet crosses the untrusted network.
#![forbid(unsafe_code)]

mod report;
mod run;
mod table;

use clap::Parser;
use report::Report;
use std::error::Error;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use testudo_lab::demo::{self, Done, Progress};
use testudo_lab::gateway::Kind;
use testudo_lab::{Lab, interrupt, sweep};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Demonstrates Testudo and strongSwan, and measures them.
#[derive(Parser)]
#[command(name = "testudo-demo", version)]
struct Arguments {
    /// Where to write the figures as JSON.
    #[arg(long, value_name = "FILE", default_value = "target/demo/report.json")]
    report: PathBuf,
    /// Length of each iperf3 run in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    iperf: u64,
    /// Only remove what killed labs have left.
    #[arg(long)]
    sweep: bool,
    /// Set by the guard for the process that does the work.
    #[arg(long, hide = true)]
    guarded: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // A sweep leaves nothing behind that needs a guard.
    demo::main("testudo-demo", arguments.guarded || arguments.sweep, || match arguments.sweep {
        true => sweep_only(),
        false => show(&arguments),
    })
}

fn sweep_only() -> Result<ExitCode, Box<dyn Error>> {
    let swept = sweep::run()?;
    let (namespaces, directories) = (swept.namespaces.len(), swept.directories.len());
    writeln!(
        std::io::stdout(),
        "removed {namespaces} namespaces, {} processes, {directories} directories",
        swept.processes
    )?;
    Ok(ExitCode::SUCCESS)
}

fn show(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    interrupt::watch()?;
    report::discard(&arguments.report)?;
    let mut progress = Progress::start();
    progress.title("Preparation")?;
    let lab = progress.step("wait for other labs, sweep leftovers", || Ok(Done::new(Lab::new("demo")?)))?;
    let mut files = run::Files::of(&lab);
    let iperf = Duration::from_secs(arguments.iperf);
    let mut one = |gateways, download| {
        let plan = run::Plan { gateways, download, iperf };
        run::run(&lab, &mut files, &plan, &mut progress)
    };
    let report = Report::new(
        one([Kind::Strongswan, Kind::Strongswan], 256 * MIB)?,
        vec![one([Kind::Testudo, Kind::Strongswan], 256 * MIB)?, one([Kind::Testudo, Kind::Testudo], GIB)?],
    );
    report.write(&arguments.report)?;
    let text = table::render(&report);
    let mut stdout = std::io::stdout();
    writeln!(stdout, "{text}\n{} s in all; figures in {}", progress.seconds(), arguments.report.display())?;
    Ok(if report.problems().is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
