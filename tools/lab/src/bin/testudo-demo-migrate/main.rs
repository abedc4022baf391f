//! The demo of a migration: a virtual machine moves between two hosts in clear, then by `testudo
//! migrate`, and then an attacker interferes.
//!
//! The memory of the virtual machine holds a secret. Somebody on the wire finds it in the first
//! migration, and must not find it in the others. The attack must cancel the third. Fails if one of
//! these is otherwise, or if the virtual machine does not run at exactly one host.
#![forbid(unsafe_code)]

mod attack;
mod outcome;
mod picture;
mod run;

use clap::Parser;
use std::error::Error;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use testudo_lab::cluster_report::{write_json, write_whole};
use testudo_lab::demo::{self, Done, Progress};
use testudo_lab::namespace::Offloads;
use testudo_lab::topology::Options;
use testudo_lab::{Lab, Topology, interrupt};

/// Moves a virtual machine in clear, protected, and under attack, and shows what crosses the wire.
#[derive(Parser)]
#[command(name = "testudo-demo-migrate", version)]
struct Arguments {
    /// Where to write the figures as JSON.
    #[arg(long, value_name = "FILE", default_value = "target/demo/migrate.json")]
    report: PathBuf,
    /// Where to write the plot as SVG.
    #[arg(long, value_name = "FILE", default_value = "target/demo/migrate.svg")]
    plot: PathBuf,
    /// Set by the guard for the process that does the work.
    #[arg(long, hide = true)]
    guarded: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    demo::main("testudo-demo-migrate", arguments.guarded, || show(&arguments))
}

fn show(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    interrupt::watch()?;
    let files = [&*arguments.report, &*arguments.plot];
    demo::discard(files);
    let mut progress = Progress::start();
    progress.title("Preparation")?;
    let lab =
        progress.step("wait for other labs, sweep leftovers", || Ok(Done::new(Lab::new("demo-migrate")?)))?;
    let hosts = progress.step("two hosts on one wire", || {
        let options = Options { towards: [Offloads::None; 2], ..Options::default() };
        Topology::build(&lab, &options).map(Done::new)
    })?;
    let moves = run::run(&hosts, &mut progress)?;
    write_whole(&arguments.plot, &picture::draw(&moves).render())?;
    writeln!(std::io::stdout(), "\n{}", outcome::text(&moves))?;
    write_json(&arguments.report, &moves)?;
    Ok(demo::conclude(&progress, files, &outcome::problems(&moves))?)
}
