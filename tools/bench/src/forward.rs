//! `testudo bench forward`: the throughput of two gateways between the hosts behind them, through
//! real interfaces, compared with other systems.
//!
//! Each system has two hosts and two gateways in a row, joined by veths. All systems exist at the
//! same time and take turns, round by round, so that disturbances affect all alike. Hosts and
//! gateways share the processors. Both hosts send datagrams as fast as they can, more than arrives:
//! the throughput is what arrives.

pub(super) mod flood;
pub(super) mod site;

use crate::error::BenchError;
use crate::esp::positive;
use crate::machine::Machine;
use crate::rates::{Rates, Run};
use crate::report::{self, Report};
use serde::Serialize;
use site::{Site, System};
use std::path::PathBuf;
use std::time::Duration;
use testudo_crypto::Library;
use testudo_lab::Lab;
use testudo_lab::iperf::{Direction, Throughput};
use testudo_lab::plot::{Chart, Series, Style};
use testudo_lab::topology::Side;
use testudo_terminal::progress::Progress;
use testudo_terminal::table::Align;

/// Usual octets of a TCP packet.
const TCP_SIZE: u16 = 1500;

/// Options of `testudo bench forward`.
#[derive(Debug, clap::Args)]
pub(crate) struct ForwardArgs {
    /// Also write the report as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Also draw the throughput.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// What to compare.
    #[arg(long, value_delimiter = ',', value_enum, default_values_t = System::ALL)]
    systems: Vec<System>,
    /// Octets of the packets, from the IP header on.
    #[arg(long, value_delimiter = ',', default_values_t = [64, 256, 512, 1024, 1420],
          value_parser = clap::value_parser!(u16).range(64..=1420))]
    sizes: Vec<u16>,
    /// TCP streams at the same time; 0: no TCP.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(0..=128))]
    streams: u32,
    /// Seconds of a run.
    #[arg(long, default_value_t = 2.0, value_parser = positive)]
    seconds: f64,
    /// Runs of each system; the figures are medians.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
}

/// The traffic of the hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Traffic {
    /// Datagrams of that many octets, in both directions at once.
    Udp(u16),
    /// TCP, in one direction and then in the other.
    Tcp,
}

impl Traffic {
    fn size(self) -> u16 {
        match self {
            Self::Udp(size) => size,
            Self::Tcp => TCP_SIZE,
        }
    }

    fn name(self) -> String {
        match self {
            Self::Udp(size) => size.to_string(),
            Self::Tcp => "tcp".into(),
        }
    }
}

/// One system and one kind of traffic.
#[derive(Debug, Serialize)]
struct Row {
    system: System,
    /// The size, or `tcp`.
    traffic: String,
    /// Octets of a packet, which rates count; for TCP those of a full packet, while rates count the
    /// payload.
    size: u16,
    /// Those of hosts and gateways.
    #[serde(flatten)]
    rates: Rates,
}

impl Row {
    fn new(system: System, traffic: Traffic, runs: &[Run]) -> Self {
        let rates = Rates::of(runs, traffic.size());
        Self { system, traffic: traffic.name(), size: traffic.size(), rates }
    }

    fn cells(&self) -> Vec<String> {
        let [mpps, cpu] = self.rates.cells();
        let gbps = format!("{:.3}", self.rates.gbps);
        vec![self.traffic.clone(), self.system.name().to_owned(), gbps, mpps, cpu]
    }
}

const COLUMNS: [(&str, Align); 5] = [
    ("octets", Align::Right),
    ("system", Align::Left),
    ("Gb/s", Align::Right),
    ("Mpps", Align::Right),
    ("CPU s/Gbit", Align::Right),
];

/// Measures, prints the table, writes report and picture.
pub(crate) fn run(args: &ForwardArgs, progress: &Progress) -> Result<(), BenchError> {
    let report = Report::new("forward", Machine::here(Library::detect(), None));
    println!("{}, both directions\n", report.machine());
    progress.begin("forward: starting the gateways", 0);
    let lab = Lab::new("bench-forward")?;
    let sites: Vec<Site> =
        args.systems.iter().map(|system| Site::start(&lab, *system)).collect::<Result<_, _>>()?;
    let tcp = (args.streams > 0).then_some(Traffic::Tcp);
    let traffic = args.sizes.iter().map(|size| Traffic::Udp(*size)).chain(tcp);
    let runs = (args.sizes.len() + usize::from(tcp.is_some())) * sites.len();
    progress.begin("forward", runs as u64 * u64::from(args.rounds));
    let mut rows = Vec::new();
    for traffic in traffic {
        rows.extend(measure(args, &sites, traffic, progress)?);
    }
    report::show(&COLUMNS, rows.iter().map(Row::cells), progress);
    report::draw(args.svg.as_deref(), || picture(args, &rows))?;
    report.write(rows, args.json.as_deref())
}

/// All systems, alternating.
fn measure(
    args: &ForwardArgs,
    sites: &[Site],
    traffic: Traffic,
    progress: &Progress,
) -> Result<Vec<Row>, BenchError> {
    let mut runs: Vec<Vec<Run>> = sites.iter().map(|_| Vec::new()).collect();
    for _ in 0..args.rounds {
        for (site, runs) in sites.iter().zip(&mut runs) {
            progress.doing(format!("forward, {}, {}", traffic.name(), site.system.name()));
            runs.push(one(args, site, traffic)?);
            progress.step();
        }
    }
    Ok(sites.iter().zip(&runs).map(|(site, runs)| Row::new(site.system, traffic, runs)).collect())
}

fn one(args: &ForwardArgs, site: &Site, traffic: Traffic) -> Result<Run, BenchError> {
    let length = Duration::from_secs_f64(args.seconds);
    let before = site.cpu()?;
    let (gigabits, elapsed, hosts) = match traffic {
        Traffic::Udp(size) => {
            let flood = flood::run(site, size, length, None)?;
            (flood.octets as f64 * 8.0 / 1e9, flood.elapsed, flood.cpu)
        }
        Traffic::Tcp => {
            let (client, to) = (site.host(Side::One), Site::address(Side::Two));
            let run = |direction| Throughput::run(client, to, direction, length, args.streams);
            let (up, down) = (run(Direction::Up)?, run(Direction::Down)?);
            (up.gigabits() + down.gigabits(), up.elapsed + down.elapsed, up.cpu + down.cpu)
        }
    };
    let cpu = (site.cpu()? - before).seconds() + hosts.as_secs_f64();
    Ok(Run::new(gigabits, elapsed, cpu))
}

fn picture(args: &ForwardArgs, rows: &[Row]) -> String {
    let mut cases: Vec<String> = Vec::new();
    for row in rows {
        if !cases.contains(&row.traffic) {
            cases.push(row.traffic.clone());
        }
    }
    let value = |system: System, case: &String| {
        rows.iter().find(|row| row.system == system && row.traffic == *case).map(|row| row.rates.gbps)
    };
    let series = args.systems.iter().map(|system| Series {
        name: system.name().into(),
        values: cases.iter().map(|case| value(*system, case)).collect(),
    });
    Chart {
        title: "Between two gateways, in both directions".into(),
        subtitle: "Hosts and gateways share the processors of one machine".into(),
        x_name: "octets of a packet".into(),
        y_name: "Gb/s".into(),
        series: series.collect(),
        cases,
        style: Style::Bars,
        limits: Vec::new(),
    }
    .render()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(system: System, traffic: Traffic) -> Row {
        Row::new(system, traffic, &[Run::new(2.0, Duration::from_secs(1), 1.0)])
    }

    #[test]
    fn a_row_tells_rates() {
        let row = row(System::Testudo, Traffic::Udp(1000));
        let json = serde_json::to_value(&row).expect("it serialises");
        assert_eq!((&json["system"], &json["size"]), (&"testudo".into(), &1000.into()));
        for key in ["gbps", "mpps", "cpu_s_per_gbit"] {
            assert!(json[key].is_f64(), "{key}");
        }
    }

    #[test]
    fn the_picture_has_a_bar_for_each_row() {
        let args = ForwardArgs {
            json: None,
            svg: None,
            systems: vec![System::Kernel, System::Testudo],
            sizes: vec![64],
            streams: 1,
            seconds: 1.0,
            rounds: 1,
        };
        let rows: Vec<Row> = [Traffic::Udp(64), Traffic::Tcp]
            .into_iter()
            .flat_map(|traffic| args.systems.iter().map(move |system| row(*system, traffic)))
            .collect();
        let svg = picture(&args, &rows);
        assert!(["testudo", "kernel", "64", "tcp"].iter().all(|text| svg.contains(text)), "{svg}");
    }
}
