//! `testudo bench spread`: one tunnel that all nodes of a cluster work on.
//!
//! The parts `cost`, `balance` and `routed` run in this process: the pipelines and the filter of a
//! node are measured, and the speed-up of several nodes is computed from that, by the formula of
//! [FLAT] where all nodes receive everything. The parts `order` and `takeover` run real daemons in
//! the lab.
//!
//! [FLAT]: *A Clustered Architecture for High-Speed IPsec Gateway*, Shieh and Lai.

mod balance;
mod costs;
mod filter;
mod formula;
mod lanes;
mod lockstep;
mod order;
mod routed;
mod scheme;
mod speed;
mod takeover;
mod traffic;
mod wire;

use crate::error::BenchError;
use crate::esp::positive;
use crate::figures::{self, Row};
use crate::machine::Machine;
use crate::report::{self, Report};
use costs::Costs;
use serde::Serialize;
use std::path::{Path, PathBuf};
use testudo_cluster::node::NodeId;
use testudo_crypto::Library;
use testudo_terminal::progress::Progress;

/// Options of `testudo bench spread`.
#[derive(Debug, clap::Args)]
pub(crate) struct SpreadArgs {
    /// Also write the report as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Also draw the speed-up, and box plots (SVG), into this directory.
    #[arg(long, value_name = "DIRECTORY")]
    plots: Option<PathBuf>,
    /// Measure these parts only.
    #[arg(long, value_delimiter = ',', value_enum, default_values_t = Part::ALL)]
    only: Vec<Part>,
    /// Numbers of nodes for which the speed-up is computed.
    #[arg(long, value_delimiter = ',', default_values_t = [2, 3, 6],
          value_parser = clap::value_parser!(u8).range(1..=i64::from(NodeId::MAX)))]
    nodes: Vec<u8>,
    /// Octets of the inner IP packets whose cost is measured.
    #[arg(long, default_value_t = 1446,
          value_parser = clap::value_parser!(u16).range(128..=*crate::esp::traffic::SIZES.end()))]
    size: u16,
    /// Measured time of each pipeline in the parts `cost` and `routed`, and of each run in the part
    /// `order`.
    #[arg(long, default_value_t = 2.0, value_parser = positive)]
    seconds: f64,
    /// Rounds that the time of the parts `cost` and `routed` is divided into.
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Samples of each traffic in the parts `balance` and `routed`, each with keys of its own.
    #[arg(long, default_value_t = balance::SAMPLES, value_parser = clap::value_parser!(u64).range(1..=1000))]
    samples: u64,
    /// How often the parts `order` and `takeover` are repeated.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    repeats: u32,
    /// Numbers in the replay windows of peers and nodes in the parts `order` and `takeover`. Those
    /// of Testudo hold multiples of 64.
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u16).range(32..=8192))]
    window: u16,
    /// CPU that the parts `cost` and `routed` run on [default: the last one allowed].
    #[arg(long)]
    cpu: Option<usize>,
}

/// A part of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Part {
    /// The cost of a packet for the node that works on it, and for one that drops it; and the
    /// speed-up that follows.
    Cost,
    /// How evenly each scheme deals traffic out to the nodes, computed.
    Balance,
    /// The same behind routers, which bring each packet to one node.
    Routed,
    /// Reordering, and the throughput of TCP, by each scheme.
    Order,
    /// What is lost when one of the nodes dies.
    Takeover,
}

impl Part {
    const ALL: [Self; 5] = [Self::Cost, Self::Balance, Self::Routed, Self::Order, Self::Takeover];

    fn name(self) -> &'static str {
        match self {
            Self::Cost => "cost",
            Self::Balance => "balance",
            Self::Routed => "routed",
            Self::Order => "order",
            Self::Takeover => "takeover",
        }
    }
}

/// Direction of a packet through the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Direction {
    /// To the peer.
    Out = 0,
    /// From the peer.
    In = 1,
}

impl Direction {
    const ALL: [Self; 2] = [Self::Out, Self::In];

    fn name(self) -> &'static str {
        match self {
            Self::Out => "out",
            Self::In => "in",
        }
    }
}

/// Measures, prints the tables, writes report and plots.
pub(crate) fn run(args: &SpreadArgs, progress: &Progress) -> Result<(), BenchError> {
    let mut report = Report::new("spread", Machine::here(Library::detect(), None));
    println!("{}", report.machine());
    // Balance is computed from the costs.
    let mut known: Option<Costs> = None;
    for part in &args.only {
        let name = part.name();
        progress.aside(|| println!("\n{name}: {}", legend(*part)));
        let rows = match part {
            Part::Cost | Part::Balance => {
                let costs = match known.take() {
                    Some(costs) => costs,
                    None => costs::measure(args, progress)?,
                };
                let costs = known.insert(costs);
                if *part == Part::Cost {
                    draw_speed(args, costs)?;
                    speed::rows(args, costs)
                } else {
                    balance::compute(args, costs, progress)
                }
            }
            Part::Routed => routed::measure(args, progress)?,
            Part::Order => order::measure(args, progress)?,
            Part::Takeover => takeover::measure(args, progress)?,
        };
        progress.aside(|| println!("{}", figures::table(&rows)));
        if let Some(directory) = &args.plots {
            draw(directory, name, &rows)?;
        }
        rows.into_iter().for_each(|row| report.push(row));
        // Results so far are written before a later part can fail.
        if let Some(path) = &args.json {
            report.write_json(path)?;
        }
    }
    Ok(())
}

/// Which figures are measured, and which are computed from which formula.
fn legend(part: Part) -> &'static str {
    match part {
        Part::Cost => {
            "R is the worker's time for a packet and the filter's, Q the filter's for another node's packet; both \
             measured, without the driver. Speed-up: computed, R / max(s R + (1 - s) Q), where s is a node's share of \
             the lanes."
        }
        Part::Balance => {
            "computed: the traffic is dealt out by the lanes of real packets, and each node's work is the sum of R \
             and Q of its packets. How many times as much as one node all of them carry. [FLAT]'s own schemes are a model \
             here: each node counts all packets and computes by itself which of them are its own."
        }
        Part::Routed => {
            "R is the time of worker and filter for a packet that its node works on, F that of a node which relays \
             it, C that of the carrier to which it was relayed; measured, without the driver. Speed-up: computed. Out: \
             all work / that of the busiest node, to which the routers' hash brings the most. In: the peer's packets \
             reach one node, R / max(R / n + F (n - 1) / n, C / n)."
        }
        Part::Order => {
            "measured in the lab, by a datagram each 0.2 ms in each direction and by TCP; metrics of RFC 4737. Hosts, nodes and peers \
             share the processors."
        }
        Part::Takeover => {
            "measured in the lab: one of three nodes is killed while datagrams pass, one each 0.4 ms in each direction. What the \
             nodes send is captured; what the peer has sent is sent to the other nodes once more."
        }
    }
}

fn draw_speed(args: &SpreadArgs, costs: &Costs) -> Result<(), BenchError> {
    let path = args.plots.as_ref().map(|directory| directory.join("spread-speed-up.svg"));
    report::draw(path.as_deref(), || speed::picture(args, costs))
}

fn draw(directory: &Path, name: &str, rows: &[Row]) -> Result<(), BenchError> {
    for (n, plot) in figures::plots("One tunnel on all nodes", rows).iter().enumerate() {
        figures::draw(&directory.join(format!("spread-{name}-{}.svg", n + 1)), plot)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum as _;

    #[test]
    fn a_part_is_called_by_one_name() {
        for part in Part::ALL {
            assert_eq!(part.to_possible_value().expect("it is not hidden").get_name(), part.name());
        }
    }
}
