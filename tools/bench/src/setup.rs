//! `testudo bench setup`: a swarm of initiators and a real `testudod`, over the loopback interface
//! of a namespace.
//!
//! Every setup is complete: IKE_SA_INIT and IKE_AUTH with a Child SA that the daemon's worker has
//! at the end. The figure is the daemon's processor time, of all threads together: the swarm shares
//! the machine with it, so the rate depends on the swarm too.

mod figures;
pub(super) mod initiator;
mod limit;
pub(super) mod rig;
pub(super) mod shape;
mod storm;
pub(super) mod swarm;
pub(super) mod usage;

use crate::error::BenchError;
use crate::machine::Machine;
use crate::report::Report;
use figures::{Batch, Header, Loaded, Row};
use initiator::Place;
use limit::Limit;
use rig::Rig;
use shape::Shape;
use std::path::PathBuf;
use swarm::Swarm;
use testudo_crypto::Library;
use testudo_terminal::progress::Progress;

/// Options of `testudo bench setup`.
#[derive(Debug, clap::Args)]
pub(crate) struct SetupArgs {
    /// Also write the report as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Tunnels to set up, and to hold in the end.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    tunnels: u32,
    /// Repeat with that many peers, each of which has its own connection and secret at the
    /// responder; 0: do not.
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    connections: u32,
    /// Rounds that they are divided into, one figure each; fewer if there are fewer tunnels.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Handshakes in progress at the same time.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    width: u32,
    /// Then forward TCP for that many seconds without handshakes, with a storm of them, and
    /// without; 0: do not.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(0..=600))]
    forward: u64,
}

/// Measures, prints the table, writes the report.
pub(crate) fn run(args: &SetupArgs, progress: &Progress) -> Result<(), BenchError> {
    let machine = Machine::here(Library::detect(), None);
    println!("{machine}\n");
    progress.begin("setup: the bare cryptography", 0);
    let limit = limit::measure().map_err(|_| BenchError::Limit)?;
    let mut rows = vec![measure(args, Shape::OneForAll, args.tunnels, limit, progress)?];
    if args.connections > 0 {
        rows.push(measure(args, Shape::Each, args.connections, limit, progress)?);
    }
    if args.forward > 0 {
        let storm = storm::measure(args.forward, args.width as usize, progress)?;
        progress.aside(|| println!("\n{storm}"));
        if let Some(row) = rows.first_mut() {
            row.set_storm(storm);
        }
    }
    Report::new("setup", machine).write(rows, args.json.as_deref())
}

/// Starts a responder of that shape and sets up that many tunnels.
fn measure(
    args: &SetupArgs,
    shape: Shape,
    tunnels: u32,
    limit: Limit,
    progress: &Progress,
) -> Result<Row, BenchError> {
    progress.aside(|| println!("{shape}:"));
    // One more for the cold caches.
    let peers = tunnels + 1;
    progress.begin(format!("setup, {shape}: loading connections"), 0);
    let mut rig = Rig::start(shape, peers)?;
    let connections = if shape == Shape::Each { peers } else { 1 };
    let loaded = Loaded { shape, connections, time: rig.loading };
    let namespace = rig.namespace.clone();
    let (batches, memory) = namespace.enter(|| set_up(args, shape, tunnels, &mut rig, progress))??;
    let row = Row::new(loaded, limit, batches, memory);
    progress.aside(|| println!("\n{row}\n"));
    Ok(row)
}

/// All rounds; returns the figures of each, and the octets that the daemon has allocated meanwhile.
fn set_up(
    args: &SetupArgs,
    shape: Shape,
    tunnels: u32,
    rig: &mut Rig,
    progress: &Progress,
) -> Result<(Vec<Batch>, u64), BenchError> {
    let mut swarm = Swarm::open(shape, Place::LOOPBACK)?;
    let width = args.width as usize;
    progress.aside(|| println!("{Header}"));
    // The very first handshake finds cold caches, and triggers one-time work.
    let first = swarm.prepare(0..1)?;
    swarm.run(first, width)?;
    let (mut batches, mut up) = (Vec::new(), 1);
    let before = rig.memory()?;
    // Each round sets up at least one.
    let rounds = args.rounds.min(tunnels);
    progress.begin(format!("setup, {shape}, rounds"), rounds.into());
    for round in 1..=rounds {
        let until = 1 + (u64::from(tunnels) * u64::from(round) / u64::from(rounds)) as u32;
        let initiators = swarm.prepare(up..until)?;
        let cpu = rig.cpu()?;
        let done = swarm.run(initiators, width)?;
        let batch = Batch::new(until - 1, until - up, done, &rig.cpu()?.since(&cpu));
        progress.aside(|| println!("{batch}"));
        progress.step();
        batches.push(batch);
        up = until;
    }
    let taken = rig.memory()?.saturating_sub(before);
    let found = rig.found(up.into())?;
    for (what, found) in [
        ("IKE SAs at the responder", found.ike),
        ("Child SAs with the responder's worker, in both directions", found.children),
    ] {
        if found != u64::from(up) {
            return Err(BenchError::Lost { what, found, expected: up });
        }
    }
    Ok((batches, taken))
}
