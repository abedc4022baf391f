//! `testudo bench host`: TCP between the stacks of two machines through a tunnel, compared with
//! other systems.
//!
//! Each system has two network namespaces, joined by a veth. All systems exist at the same time and
//! take turns, round by round, so that disturbances affect all alike. Clients, servers and daemons
//! share the processors, so a packet's whole path costs the same processors; over a real link there
//! are two machines.

mod system;

use crate::error::BenchError;
use crate::esp::positive;
use crate::machine::Machine;
use crate::rates::{Rates, Run};
use crate::report::{self, Report};
use serde::Serialize;
use std::path::PathBuf;
use std::time::Duration;
use system::{Machines, System};
use testudo_crypto::Library;
use testudo_lab::Lab;
use testudo_lab::iperf::{Direction, Throughput};
use testudo_lab::plot::{Chart, Series, Style};
use testudo_terminal::progress::Progress;
use testudo_terminal::table::Align;

/// Options of `testudo bench host`.
#[derive(Debug, clap::Args)]
pub(crate) struct HostArgs {
    /// Also write the report as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Also draw the throughput.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// What to compare.
    #[arg(long, value_delimiter = ',', value_enum, default_values_t = System::ALL)]
    systems: Vec<System>,
    /// MTUs of the link between the machines.
    #[arg(long, value_delimiter = ',', default_values_t = [1500, 9000],
          value_parser = clap::value_parser!(u16).range(1400..=15_000))]
    mtus: Vec<u16>,
    /// TCP streams at the same time.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=128))]
    streams: u32,
    /// Seconds of a run.
    #[arg(long, default_value_t = 3.0, value_parser = positive)]
    seconds: f64,
    /// Runs of each system; the figures are medians.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
}

/// So much of the throughput of the bare veth Testudo is to reach, in percent.
const LEAST_OF_VETH: f64 = 60.0;

/// One system over a link of one MTU.
#[derive(Debug, Serialize)]
struct Row {
    system: System,
    /// MTU of the link.
    size: u16,
    streams: u32,
    /// Of TCP's payload, as if each packet filled the MTU; processor time of daemons and iperf3 on
    /// both machines.
    #[serde(flatten)]
    rates: Rates,
    /// Of the throughput of the bare veth with complete frames, in percent.
    percent_of_veth: Option<f64>,
}

impl Row {
    fn new(system: System, size: u16, streams: u32, runs: &[Run]) -> Self {
        Self { system, size, streams, rates: Rates::of(runs, size), percent_of_veth: None }
    }

    fn cells(&self) -> Vec<String> {
        let [mpps, cpu] = self.rates.cells();
        let gbps = format!("{:.2}", self.rates.gbps);
        let percent = self.percent_of_veth.map_or_else(|| "-".to_owned(), |percent| format!("{percent:.0}"));
        vec![self.system.name().to_owned(), self.size.to_string(), gbps, percent, mpps, cpu]
    }

    /// Whether it reaches the aim; none unless there is one for it.
    fn aim(&self) -> Option<String> {
        let percent = self.percent_of_veth.filter(|_| self.system == System::Testudo)?;
        let what = format!("testudo carries {percent:.0} % of what the bare veth carries, MTU {}", self.size);
        Some(report::aim(&what, &format!("at least {LEAST_OF_VETH} %"), percent >= LEAST_OF_VETH))
    }
}

/// Compares with the bare veth over a link of the same MTU.
fn compare(rows: &mut [Row]) {
    let bare = rows.iter().filter(|row| row.system == System::Veth);
    let bare: Vec<_> = bare.map(|row| (row.size, row.rates.gbps)).collect();
    for row in rows {
        let veth = bare.iter().find(|(size, _)| *size == row.size);
        row.percent_of_veth = veth.map(|(_, gbps)| 100.0 * row.rates.gbps / gbps);
    }
}

const COLUMNS: [(&str, Align); 6] = [
    ("system", Align::Left),
    ("MTU", Align::Right),
    ("Gb/s", Align::Right),
    ("% of veth", Align::Right),
    ("Mpps", Align::Right),
    ("CPU s/Gbit", Align::Right),
];

/// Measures, prints the table, writes report and picture.
pub(crate) fn run(args: &HostArgs, progress: &Progress) -> Result<(), BenchError> {
    let report = Report::new("host", Machine::here(Library::detect(), None));
    println!("{}, {} TCP streams\n", report.machine(), args.streams);
    let lab = Lab::new("bench-host")?;
    let mut rows = Vec::new();
    progress.begin("host", (args.mtus.len() * args.systems.len()) as u64 * u64::from(args.rounds));
    for &mtu in &args.mtus {
        rows.extend(measure(args, &lab, mtu, progress)?);
    }
    compare(&mut rows);
    report::show(&COLUMNS, rows.iter().map(Row::cells), progress);
    let aims: String = rows.iter().filter_map(Row::aim).collect();
    progress.aside(|| print!("{aims}"));
    report::draw(args.svg.as_deref(), || picture(args, &rows))?;
    report.write(rows, args.json.as_deref())
}

/// All systems over links of this MTU, alternating.
fn measure(args: &HostArgs, lab: &Lab, mtu: u16, progress: &Progress) -> Result<Vec<Row>, BenchError> {
    let mut all = Vec::new();
    for &system in &args.systems {
        progress.doing(format!("host, MTU {mtu}: starting {}", system.name()));
        all.push((Machines::start(lab, system, mtu)?, Vec::new()));
    }
    for _ in 0..args.rounds {
        for (machines, runs) in &mut all {
            progress.doing(format!("host, MTU {mtu}, {}", machines.system.name()));
            runs.push(stream(args, machines)?);
            progress.step();
        }
    }
    Ok(all.iter().map(|(machines, runs)| Row::new(machines.system, mtu, args.streams, runs)).collect())
}

fn stream(args: &HostArgs, machines: &Machines) -> Result<Run, BenchError> {
    let before = machines.cpu()?;
    let length = Duration::from_secs_f64(args.seconds);
    let run = Throughput::run(&machines.client, machines.to, Direction::Up, length, args.streams)?;
    let daemons = machines.cpu()? - before;
    let cpu = daemons.seconds() + run.cpu.as_secs_f64();
    Ok(Run::new(run.gigabits(), run.elapsed, cpu))
}

fn picture(args: &HostArgs, rows: &[Row]) -> String {
    let value = |system: System, mtu: u16| {
        rows.iter().find(|row| row.system == system && row.size == mtu).map(|row| row.rates.gbps)
    };
    Chart {
        title: "TCP between two machines' own stacks".into(),
        subtitle: format!("{} streams; both machines share the processors of one", args.streams),
        x_name: String::new(),
        y_name: "Gb/s".into(),
        cases: args.mtus.iter().map(|mtu| format!("MTU {mtu}")).collect(),
        series: args
            .systems
            .iter()
            .map(|system| Series {
                name: system.name().into(),
                values: args.mtus.iter().map(|mtu| value(*system, *mtu)).collect(),
            })
            .collect(),
        style: Style::Bars,
        limits: Vec::new(),
    }
    .render()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_tells_rates() {
        let run = Run::new(1.2, Duration::from_secs(1), 2.0);
        let row = Row::new(System::Testudo, 1500, 1, &[run]);
        let json = serde_json::to_value(&row).expect("it serialises");
        assert_eq!((&json["system"], &json["size"]), (&"testudo".into(), &1500.into()));
        for key in ["gbps", "mpps", "cpu_s_per_gbit"] {
            assert!(json[key].is_f64(), "{key}");
        }
    }

    #[test]
    fn testudo_is_compared_with_the_bare_veth_of_the_same_mtu() {
        let row = |system, size, gigabits| {
            Row::new(system, size, 1, &[Run::new(gigabits, Duration::from_secs(1), 1.0)])
        };
        let mut rows = [
            row(System::VethOffloads, 1500, 40.0),
            row(System::Veth, 1500, 4.0),
            row(System::Testudo, 1500, 1.4),
            row(System::Veth, 9000, 10.0),
            row(System::Testudo, 9000, 6.1),
        ];
        compare(&mut rows);
        assert_eq!(rows.each_ref().map(|row| row.cells()[3].clone()), ["1000", "100", "35", "100", "61"]);
        let aims: String = rows.iter().filter_map(Row::aim).collect();
        assert_eq!(
            aims,
            "\
testudo carries 35 % of what the bare veth carries, MTU 1500 (aim: at least 60 %): NOT REACHED
testudo carries 61 % of what the bare veth carries, MTU 9000 (aim: at least 60 %): reached
"
        );
        compare(&mut rows[2..3]);
        assert_eq!((rows[2].cells()[3].as_str(), rows[2].aim()), ("-", None), "without a veth");
    }

    #[test]
    fn the_picture_has_a_bar_for_each_row() {
        let args = HostArgs {
            json: None,
            svg: None,
            systems: vec![System::Testudo, System::Veth],
            mtus: vec![1500],
            streams: 1,
            seconds: 1.0,
            rounds: 1,
        };
        let row = |system| Row::new(system, 1500, 1, &[Run::new(1.0, Duration::from_secs(1), 1.0)]);
        let svg = picture(&args, &[row(System::Testudo), row(System::Veth)]);
        assert!(svg.contains("testudo") && svg.contains("veth") && svg.contains("MTU 1500"), "{svg}");
    }
}
