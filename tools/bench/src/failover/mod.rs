//! `testudo bench failover`: what the cluster is worth, on real daemons in the lab: three nodes
//! with corosync, peers, traffic.
//!
//! Each part is a row or more of the table, beside what others reach, with the source of each such
//! figure, and what is aimed at. The nodes, the peers and the load share the processors of one
//! machine, so times of the wall clock say as much about that; processor time and cycles do not.
//!
//! [HA]: *High Availability for IPsec VPN Platforms: The ClusterIP Evaluation*, ARES 2013.

mod copies;
mod crash;
mod download;
mod figures;
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

use crate::error::BenchError;
use crate::machine::Machine;
use crate::report::Report;
use figures::Row;
use std::path::PathBuf;
use testudo_crypto::Library;
use testudo_lab::plot::BoxPlot;
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
    /// How often each is repeated.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    repeats: u32,
    /// Setups of a repeat in the part `rate`, at each node.
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    setups: u32,
    /// Tunnels that are set up in the parts `storm` and `many`.
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    tunnels: u32,
    /// Size of the download.
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    megabytes: u32,
    /// How long the part `load` takes; it is not repeated.
    #[arg(long, default_value_t = 10.0, value_parser = minutes)]
    minutes: f64,
    /// Handshakes under way at a time.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    width: u32,
}

fn minutes(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(minutes) if minutes > 0.0 && minutes <= 1440.0 => Ok(minutes),
        _ => Err("expected minutes, above 0 and at most 1440".into()),
    }
}

/// A part of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Part {
    /// How long nothing comes through when a node dies.
    Outage,
    /// A node that is drained, and nodes that are restarted one after another.
    Planned,
    /// A download in which a node dies.
    Download,
    /// Tunnels that are lost when a node dies while many are set up.
    Storm,
    /// Listing very many tunnels, and a node that comes back to them.
    Many,
    /// Processor time of nodes that have nothing to do.
    Idle,
    /// What a packet costs the node that carries it, more than a gateway that stands alone, and
    /// what it costs the others.
    Owner,
    /// Setups with replication.
    Rate,
    /// A long run on a machine that has too much to do.
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
            for (n, plot) in figures::plots(&rows).iter().enumerate() {
                draw(&directory.join(format!("failover-{name}-{}.svg", n + 1)), plot)?;
            }
        }
        rows.into_iter().for_each(|row| report.push(row));
        // What has been measured is not lost with what fails later.
        if let Some(path) = &args.json {
            report.write_json(path)?;
        }
    }
    Ok(())
}

fn draw(path: &std::path::Path, plot: &BoxPlot) -> Result<(), BenchError> {
    Ok(testudo_lab::cluster_report::write_whole(path, &plot.render())?)
}
