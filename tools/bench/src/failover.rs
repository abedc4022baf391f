//! `testudo bench failover`: the cluster with real daemons in the lab: three nodes with corosync,
//! peers, traffic.
//!
//! Each part is one row of the table or several, with the figures of other systems and their
//! sources, and the goal. The nodes, the peers and the load share the processors of one machine, so
//! that times of the wall clock depend on it; processor time and cycles do not.
//!
//! [HA]: *High Availability for IPsec VPN Platforms: The ClusterIP Evaluation*, ARES 2013.

mod copies;
pub(super) mod crash;
mod download;
mod homes;
mod idle;
mod load;
mod many;
mod noticed;
mod outage;
mod owner;
mod planned;
mod rate;
mod site;
mod storm;

use crate::error::{BenchError, TimeError};
use crate::figures::{self, Row};
use crate::machine::Machine;
use crate::report::Report;
use std::path::PathBuf;
use testudo_crypto::Library;
use testudo_terminal::progress::Progress;

/// Options of `testudo bench failover`.
#[derive(Debug, clap::Args)]
pub(crate) struct FailoverArgs {
    /// Also write the report as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Also write box plots (SVG) into this directory.
    #[arg(long, value_name = "DIRECTORY")]
    plots: Option<PathBuf>,
    /// Measure these parts only.
    #[arg(long, value_delimiter = ',', value_enum, default_values_t = Part::ALL)]
    only: Vec<Part>,
    /// How often each part is repeated.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    repeats: u32,
    /// Setups at each node in a repeat of the part `rate`.
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    setups: u32,
    /// Tunnels that are set up in the parts `storm` and `many`.
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    tunnels: u32,
    /// Size of the download.
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    megabytes: u32,
    /// Duration of the part `load`; it is not repeated.
    #[arg(long, default_value_t = 10.0, value_parser = minutes)]
    minutes: f64,
    /// Handshakes in progress at the same time.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    width: u32,
}

fn minutes(text: &str) -> Result<f64, TimeError> {
    TimeError::check(text, "minutes", 1440.0)
}

/// A part of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Part {
    /// The outage when a node dies.
    Outage,
    /// A node is drained, and nodes are restarted one after another.
    Planned,
    /// A download during which a node dies.
    Download,
    /// Tunnels lost when a node dies while many are set up.
    Storm,
    /// Listing very many tunnels, and the return of a node to them.
    Many,
    /// Processor time of idle nodes.
    Idle,
    /// The cost of a packet for its owner, compared with a gateway that is not in a cluster, and
    /// for the other nodes.
    Owner,
    /// Setups with replication.
    Rate,
    /// A long run on an overloaded machine.
    Load,
}

impl Part {
    const ALL: [Self; 9] = [
        Self::Outage,
        Self::Planned,
        Self::Download,
        Self::Storm,
        Self::Many,
        Self::Idle,
        Self::Owner,
        Self::Rate,
        Self::Load,
    ];

    fn measure(self, args: &FailoverArgs, progress: &Progress) -> Result<Vec<Row>, BenchError> {
        match self {
            Self::Outage => outage::measure(args.repeats, progress),
            Self::Planned => planned::measure(args.repeats, progress),
            Self::Download => download::measure(args.repeats, args.megabytes, progress),
            Self::Storm => storm::measure(args, progress),
            Self::Many => many::measure(args, progress),
            Self::Load => load::measure(args, progress),
            Self::Idle => idle::measure(args.repeats, progress),
            Self::Owner => {
                let mut rows = owner::measure(args.repeats, progress)?;
                rows.extend(copies::measure(args.repeats, progress)?);
                Ok(rows)
            }
            Self::Rate => rate::measure(args, progress),
        }
    }
}

/// Measures, prints the table, writes report and plots.
pub(crate) fn run(args: &FailoverArgs, progress: &Progress) -> Result<(), BenchError> {
    let mut report = Report::new("failover", Machine::here(Library::detect(), None));
    println!("{}", report.machine());
    for part in &args.only {
        let name =
            clap::ValueEnum::to_possible_value(part).map_or_else(String::new, |v| v.get_name().to_owned());
        progress.aside(|| println!("\n{name}:"));
        progress.begin(format!("failover, {name}: starting the nodes"), 0);
        let rows = part.measure(args, progress)?;
        progress.aside(|| println!("{}", figures::table(&rows)));
        if let Some(directory) = &args.plots {
            for (n, plot) in figures::plots("Three nodes, one gateway", &rows).iter().enumerate() {
                figures::draw(&directory.join(format!("failover-{name}-{}.svg", n + 1)), plot)?;
            }
        }
        rows.into_iter().for_each(|row| report.push(row));
        // Results so far are written before a later part can fail.
        if let Some(path) = &args.json {
            report.write_json(path)?;
        }
    }
    Ok(())
}
