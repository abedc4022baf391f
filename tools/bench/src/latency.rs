//! `testudo bench latency`: the time of a packet from host to host through two gateways under load,
//! compared with the kernel, which forwards the same traffic without encryption.
//!
//! A load is a percentage of what the slowest system can carry, and the same for all. A probe sends
//! one datagram each millisecond; its arrival has the receiving kernel's time. The hosts, their
//! load, the probe and the gateways share the processors: if there are fewer than threads, the time
//! that they wait for each other counts too.

use crate::error::BenchError;
use crate::esp::positive;
use crate::forward::flood;
use crate::forward::site::{Site, System};
use crate::machine::Machine;
use crate::report::{self, Report};
use serde::Serialize;
use std::path::PathBuf;
use std::time::Duration;
use testudo_crypto::Library;
use testudo_lab::Lab;
use testudo_lab::plot::{Chart, Series, Style};
use testudo_lab::probe::{INTERVAL, Probe};
use testudo_lab::topology::Side;
use testudo_terminal::progress::Progress;
use testudo_terminal::table::Align;

const SYSTEMS: [System; 2] = [System::Kernel, System::Testudo];

/// Options of `testudo bench latency`.
#[derive(Debug, clap::Args)]
pub(crate) struct LatencyArgs {
    /// Also write the report as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Also draw the times.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// What to compare.
    #[arg(long, value_delimiter = ',', value_enum, default_values_t = SYSTEMS)]
    systems: Vec<System>,
    /// Percent of what the slowest of them carries.
    #[arg(long, value_delimiter = ',', default_values_t = [10, 50, 90],
          value_parser = clap::value_parser!(u32).range(0..=100))]
    loads: Vec<u32>,
    /// Octets of the load's packets, from the IP header on.
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u16).range(64..=1420))]
    size: u16,
    /// Seconds of a run.
    #[arg(long, default_value_t = 2.0, value_parser = positive)]
    seconds: f64,
    /// Runs of each system, evaluated together.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
}

/// One system under one load.
#[derive(Debug, Serialize)]
struct Row {
    system: System,
    /// Percent.
    load: u32,
    /// Octets of the load's packets, and their number per second.
    size: u16,
    mpps: f64,
    /// From host to host, in microseconds.
    p50_us: f64,
    p99_us: f64,
    p999_us: f64,
    /// Datagrams of the probe that have arrived, and that have not.
    probes: usize,
    lost: usize,
}

impl Row {
    fn new(system: System, load: u32, size: u16, mpps: f64, mut delays: Vec<Duration>, sent: usize) -> Self {
        delays.sort_unstable();
        let at = |part: f64| {
            let place = ((delays.len() as f64 * part).ceil() as usize).clamp(1, delays.len().max(1)) - 1;
            delays.get(place).map_or(0.0, |delay| (delay.as_secs_f64() * 1e7).round() / 10.0)
        };
        let (p50_us, p99_us, p999_us) = (at(0.5), at(0.99), at(0.999));
        let probes = delays.len();
        Self { system, load, size, mpps, p50_us, p99_us, p999_us, probes, lost: sent - probes }
    }

    fn cells(&self) -> Vec<String> {
        let mut cells =
            vec![format!("{} %", self.load), self.system.name().to_owned(), format!("{:.3}", self.mpps)];
        cells.extend([self.p50_us, self.p99_us, self.p999_us].map(|value| format!("{value:.1}")));
        cells.push(self.lost.to_string());
        cells
    }
}

const COLUMNS: [(&str, Align); 7] = [
    ("load", Align::Right),
    ("system", Align::Left),
    ("Mpps", Align::Right),
    ("p50 us", Align::Right),
    ("p99 us", Align::Right),
    ("p99.9 us", Align::Right),
    ("lost", Align::Right),
];

/// Measures, prints the table, writes report and picture.
pub(crate) fn run(args: &LatencyArgs, progress: &Progress) -> Result<(), BenchError> {
    let report = Report::new("latency", Machine::here(Library::detect(), None));
    println!("{}, loads of {} octets in both directions\n", report.machine(), args.size);
    progress.begin("latency: starting the gateways", 0);
    let lab = Lab::new("bench-latency")?;
    let sites: Vec<Site> =
        args.systems.iter().map(|system| Site::start(&lab, *system)).collect::<Result<_, _>>()?;
    progress.doing("latency: what the systems carry at most");
    let most = capacity(args, &sites)?;
    progress.begin("latency", (args.loads.len() * sites.len()) as u64 * u64::from(args.rounds));
    let mut rows = Vec::new();
    for &load in &args.loads {
        progress.doing(format!("latency, {load} % load"));
        rows.extend(measure(args, &sites, load, most, progress)?);
    }
    report::show(&COLUMNS, rows.iter().map(Row::cells), progress);
    report::draw(args.svg.as_deref(), || picture(args, &rows))?;
    report.write(rows, args.json.as_deref())
}

/// Packets per second that each of them carries.
fn capacity(args: &LatencyArgs, sites: &[Site]) -> Result<f64, BenchError> {
    let mut least = f64::INFINITY;
    for site in sites {
        let flood = flood::run(site, args.size, Duration::from_secs(1), None)?;
        least = least.min(flood.octets as f64 / f64::from(args.size) / flood.elapsed.as_secs_f64());
    }
    Ok(least)
}

/// All systems under a load, alternating.
fn measure(
    args: &LatencyArgs,
    sites: &[Site],
    load: u32,
    most: f64,
    progress: &Progress,
) -> Result<Vec<Row>, BenchError> {
    let pace = most * f64::from(load) / 100.0;
    let mut found: Vec<(Vec<Duration>, usize)> = sites.iter().map(|_| (Vec::new(), 0)).collect();
    for _ in 0..args.rounds {
        for (site, (delays, sent)) in sites.iter().zip(&mut found) {
            let (from, to) = (site.host(Side::One), site.host(Side::Two));
            let probe = Probe::start(from, to, Site::address(Side::Two), INTERVAL)?;
            flood::run(site, args.size, Duration::from_secs_f64(args.seconds), Some(pace / 2.0))?;
            for (_, delay) in probe.stop()?.delays() {
                *sent += 1;
                delays.extend(delay);
            }
            progress.step();
        }
    }
    let row = |(site, (delays, sent)): (&Site, (Vec<Duration>, usize))| {
        Row::new(site.system, load, args.size, (pace / 1e3).round() / 1e3, delays, sent)
    };
    Ok(sites.iter().zip(found).map(row).collect())
}

fn picture(args: &LatencyArgs, rows: &[Row]) -> String {
    let value = |system: System, load: u32| {
        rows.iter().find(|row| row.system == system && row.load == load).map(|row| row.p99_us)
    };
    let series = args.systems.iter().map(|system| Series {
        name: system.name().into(),
        values: args.loads.iter().map(|load| value(*system, *load)).collect(),
    });
    Chart {
        title: "From host to host through two gateways, p99".into(),
        subtitle: format!("{} octets; hosts and gateways share the processors of one machine", args.size),
        x_name: "load".into(),
        y_name: "us".into(),
        cases: args.loads.iter().map(|load| format!("{load} %")).collect(),
        series: series.collect(),
        style: Style::Bars,
        limits: Vec::new(),
    }
    .render()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_tells_quantiles_and_losses() {
        let delays: Vec<Duration> = (1..=1000).rev().map(Duration::from_micros).collect();
        let row = Row::new(System::Testudo, 50, 512, 0.1, delays, 1003);
        assert_eq!((row.p50_us, row.p99_us, row.p999_us), (500.0, 990.0, 999.0));
        assert_eq!((row.probes, row.lost), (1000, 3));
        let none = Row::new(System::Kernel, 50, 512, 0.1, Vec::new(), 7);
        assert_eq!((none.p50_us, none.lost), (0.0, 7));
    }
}
