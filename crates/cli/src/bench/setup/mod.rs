//! `testudo bench setup`: a swarm of initiators against a real `testudod`, over the loopback of a namespace.
//!
//! Every setup is a whole one: IKE_SA_INIT and IKE_AUTH with a Child SA that the daemon's worker has in the end. What counts
//! is the processor time that the daemon uses for it, all threads together: the swarm shares the machine with it, so the rate
//! says as much about the swarm.

mod figures;
mod initiator;
mod limit;
mod rig;
mod storm;
mod swarm;
mod usage;

use crate::bench::machine::Machine;
use crate::bench::report::Report;
use figures::{Batch, Header, Row};
use rig::Rig;
use std::io;
use std::path::PathBuf;
use swarm::Swarm;
use testudo_crypto::Library;

/// Options of `testudo bench setup`.
#[derive(Debug, clap::Args)]
pub(crate) struct SetupArgs {
    /// Also write the report as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Tunnels to set up, and to hold in the end.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    tunnels: u32,
    /// Rounds that they are divided into, one figure each.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Handshakes under way at a time.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    width: u32,
    /// Then forward TCP for so many seconds without a storm of handshakes, with one, and without; 0: do not.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(0..=600))]
    forward: u64,
}

/// Why there are no figures.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SetupError {
    /// The responder could not be started or asked.
    #[error(transparent)]
    Lab(#[from] testudo_lab::Error),
    /// The swarm's socket failed.
    #[error("the swarm's socket: {source}")]
    Socket {
        /// Why.
        source: io::Error,
    },
    /// The swarm's configuration is wrong.
    #[error("the swarm's connection: {0}")]
    Template(String),
    /// A handshake failed.
    #[error("a handshake of the swarm failed: {reason}")]
    Refused {
        /// What the initiator says.
        reason: String,
    },
    /// The responder does not answer.
    #[error("the responder has answered none of {waiting} handshakes for a minute")]
    Silent {
        /// How many wait.
        waiting: usize,
    },
    /// The daemon has not what the swarm has set up.
    #[error("found {found} IKE SAs at the responder, expected {expected}")]
    Lost {
        /// What it has.
        found: u64,
        /// What it should have.
        expected: u32,
    },
    /// The daemon's usage cannot be read.
    #[error("cannot read the daemon's {what}: {source}")]
    Usage {
        /// Of what.
        what: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// The cryptography of the limit failed.
    #[error("the bare cryptography failed")]
    Limit,
    /// The report could not be written.
    #[error("cannot write {}: {source}", .path.display())]
    Write {
        /// Where to.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

/// Measures, prints the table, writes the report.
pub(crate) fn run(args: &SetupArgs) -> Result<(), SetupError> {
    let machine = Machine::here(Library::detect(), None);
    println!("{machine}\n");
    let limit = limit::measure().map_err(|_| SetupError::Limit)?;
    let mut rig = Rig::start()?;
    let namespace = rig.namespace.clone();
    let (batches, memory) = namespace.enter(|| set_up(args, &mut rig))??;
    drop(namespace);
    drop(rig);
    let mut row = Row::new(limit, batches, memory);
    println!("\n{row}");
    if args.forward > 0 {
        let storm = storm::measure(args.forward, args.width as usize)?;
        println!("{storm}");
        row.set_storm(storm);
    }
    if let Some(path) = &args.json {
        let mut report = Report::new("setup", machine);
        report.push(row);
        report.write_json(path).map_err(|source| SetupError::Write { path: path.clone(), source })?;
    }
    Ok(())
}

/// All rounds; the figures of each, and the octets that the daemon has taken meanwhile.
fn set_up(args: &SetupArgs, rig: &mut Rig) -> Result<(Vec<Batch>, u64), SetupError> {
    let mut swarm = Swarm::open()?;
    let width = args.width as usize;
    println!("{Header}");
    // The first handshake of all finds cold caches, and makes what is made once.
    let first = swarm.prepare(0..1)?;
    swarm.run(first, width)?;
    let (mut batches, mut up) = (Vec::new(), 1);
    let before = rig.memory()?;
    for round in 1..=args.rounds {
        let until = 1 + (u64::from(args.tunnels) * u64::from(round) / u64::from(args.rounds)) as u32;
        let initiators = swarm.prepare(up..until)?;
        let cpu = rig.cpu()?;
        let done = swarm.run(initiators, width)?;
        let batch = Batch::new(until - 1, (until - up).max(1), done, &rig.cpu()?.since(&cpu));
        println!("{batch}");
        batches.push(batch);
        up = until;
    }
    let taken = rig.memory()?.saturating_sub(before);
    match rig.tunnels()? {
        found if found == u64::from(up) => Ok((batches, taken)),
        found => Err(SetupError::Lost { found, expected: up }),
    }
}
