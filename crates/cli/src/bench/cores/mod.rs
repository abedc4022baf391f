//! `testudo bench cores`: what one SA, one flow, gets from several workers.
//!
//! All its packets come by one port to one worker; the others have none, and help. Beside it as many SAs as there are workers, each
//! with a port, a worker and a flow of its own: what the machine gives to so many workers that need no help. Rounds of
//! all cases alternate. Where there are fewer processors than workers, throughput says how they share them and not how
//! the work scales: there the processor time of a packet counts, of all workers together, as far as they worked.

mod rig;

use crate::bench::esp::{Suite, positive};
use crate::bench::machine::Machine;
use crate::bench::report::Report;
use crate::table::{Align, Table};
use rig::{Figure, Rig};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::Duration;
use testudo_crypto::{CryptoError, Library};
use testudo_lab::plot::{Chart, Series, Style};

const DIRECTIONS: [&str; 2] = ["out", "in"];

/// Options of `testudo bench cores`.
#[derive(Debug, clap::Args)]
pub(crate) struct CoresArgs {
    /// Also write the report as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Also draw the throughput over the workers.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Cipher library: ipsec-mb or aws-lc [default: the faster one that is there].
    #[arg(long)]
    library: Option<Library>,
    /// Cipher, by strongSwan's name.
    #[arg(long, default_value = "aes128gcm16")]
    cipher: Suite,
    /// Numbers of workers.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 4], value_parser = clap::value_parser!(u8).range(1..=64))]
    workers: Vec<u8>,
    /// Octets of the inner IP packets.
    #[arg(long, value_delimiter = ',', default_values_t = [64, 512, 1420],
          value_parser = clap::value_parser!(u16).range(crate::bench::esp::traffic::SIZES))]
    sizes: Vec<u16>,
    /// Time of each row, both directions and what lies between them.
    #[arg(long, default_value_t = 4.0, value_parser = positive)]
    seconds: f64,
    /// Rounds that this time is divided into.
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
}

/// Why there are no figures.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CoresError {
    /// The library cannot be used.
    #[error(transparent)]
    Library(#[from] CryptoError),
    /// The gateways could not be set up.
    #[error(transparent)]
    Setup(#[from] crate::bench::esp::node::SetupError),
    /// A packet was lost, damaged or out of order: the figures would be of something else.
    #[error(transparent)]
    Pipeline(#[from] crate::bench::esp::rig::Fault),
    /// The report could not be written.
    #[error("cannot write {}: {source}", .path.display())]
    Write {
        /// Where to.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
}

const COLUMNS: [(&str, Align); 12] = [
    ("dir", Align::Left),
    ("octets", Align::Right),
    ("workers", Align::Right),
    ("SAs", Align::Right),
    ("Mpps", Align::Right),
    ("Gb/s", Align::Right),
    ("CPU ns", Align::Right),
    ("cycles", Align::Right),
    ("% helped", Align::Right),
    ("% counted", Align::Right),
    ("x of SAs", Align::Right),
    ("x cycles", Align::Right),
];

/// One measured case.
#[derive(Debug, Serialize)]
struct Row {
    direction: &'static str,
    cipher: &'static str,
    /// Octets of the inner IP packet; rates count these.
    size: u16,
    workers: u8,
    sas: u8,
    mpps: f64,
    gbps: f64,
    /// Processor time of a packet, of all workers.
    cpu_ns: f64,
    /// The same in cycles of the time-stamp counter, where there is one.
    cycles: Option<f64>,
    /// Packets that another worker has taken through the pipeline, in percent.
    helped: f64,
    /// Stretches that counted, in percent: in the others a helper had no processor.
    undisturbed: f64,
    /// Throughput against as many SAs as workers, in the same rounds; for one SA.
    of_many: Option<f64>,
    /// Processor time of a packet against one worker, in the same rounds.
    of_one_worker: Option<f64>,
}

/// Workers and SAs of a case, and what each round has measured of it, one direction after the other.
struct Case {
    workers: u8,
    sas: u8,
    rig: Rig,
    rounds: Vec<[Figure; 2]>,
}

impl Case {
    /// The median over the rounds of what is measured in a direction.
    fn median(&self, direction: usize, figure: impl Fn(&Figure) -> f64) -> f64 {
        median(self.rounds.iter().map(|round| figure(&round[direction])))
    }

    /// The same of the quotient with another case of the same rounds.
    fn ratio(&self, to: &Self, direction: usize, figure: impl Fn(&Figure) -> f64) -> f64 {
        let pairs = self.rounds.iter().zip(&to.rounds);
        median(pairs.map(|(a, b)| figure(&a[direction]) / figure(&b[direction])))
    }

    fn row(&self, direction: usize, (cipher, size): (Suite, u16), all: &[Self]) -> Row {
        let mpps = self.median(direction, |figure| figure.mpps);
        let cycles = self.rounds.iter().all(|round| round[direction].cycles_per_ns.is_some());
        let of = |workers, sas| all.iter().find(|case| (case.workers, case.sas) == (workers, sas));
        let many = of(self.workers, self.workers).filter(|_| self.workers > self.sas);
        Row {
            direction: DIRECTIONS[direction],
            cipher: cipher.name(),
            size,
            workers: self.workers,
            sas: self.sas,
            mpps,
            gbps: mpps * f64::from(size) * 8.0 / 1e3,
            cpu_ns: self.median(direction, |figure| figure.cpu_ns),
            cycles: cycles.then(|| {
                self.median(direction, |figure| figure.cpu_ns * figure.cycles_per_ns.unwrap_or(f64::NAN))
            }),
            helped: 100.0 * self.median(direction, |figure| figure.helped),
            undisturbed: 100.0 * self.median(direction, |figure| figure.undisturbed),
            of_many: many.map(|many| self.ratio(many, direction, |figure| figure.mpps)),
            of_one_worker: of(1, 1).map(|one| self.ratio(one, direction, |figure| figure.cpu_ns)),
        }
    }
}

impl Row {
    fn cells(&self) -> Vec<String> {
        let ratio = |ratio: Option<f64>| ratio.map_or("-".into(), |ratio| format!("{ratio:.2}"));
        vec![
            self.direction.to_owned(),
            self.size.to_string(),
            self.workers.to_string(),
            self.sas.to_string(),
            format!("{:.2}", self.mpps),
            format!("{:.2}", self.gbps),
            format!("{:.1}", self.cpu_ns),
            self.cycles.map_or("-".into(), |cycles| format!("{cycles:.0}")),
            format!("{:.0}", self.helped),
            format!("{:.0}", self.undisturbed),
            ratio(self.of_many),
            ratio(self.of_one_worker),
        ]
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    crate::bench::stopwatch::median(values).unwrap_or(f64::NAN)
}

/// Measures, prints the table, writes report and picture.
pub(crate) fn run(args: &CoresArgs) -> Result<(), CoresError> {
    let library = args.library.unwrap_or_else(Library::detect);
    library.available()?;
    let mut report = Report::new("cores", Machine::here(library, None));
    println!("{}, {}\n", report.machine(), args.cipher.name());
    let mut table = Table::new(&COLUMNS);
    let mut rows = Vec::new();
    for &size in &args.sizes {
        for row in measure(args, library, size)? {
            table.row(row.cells());
            rows.push(row);
        }
    }
    let mut text = String::new();
    table.write(&mut text, "");
    print!("{text}");
    println!(
        "\nx of SAs: throughput against as many SAs as workers. x cycles: processor time of a packet against one worker."
    );
    if let Some(path) = &args.svg {
        write(path, |path| std::fs::write(path, picture(args, &rows)))?;
    }
    if let Some(path) = &args.json {
        rows.into_iter().for_each(|row| report.push(row));
        write(path, |path| report.write_json(path))?;
    }
    Ok(())
}

fn write(path: &Path, how: impl FnOnce(&Path) -> std::io::Result<()>) -> Result<(), CoresError> {
    how(path).map_err(|source| CoresError::Write { path: path.to_owned(), source })
}

/// All cases of one size, in turns.
fn measure(args: &CoresArgs, library: Library, size: u16) -> Result<Vec<Row>, CoresError> {
    let mut cases = Vec::new();
    for &workers in &args.workers {
        for sas in if workers == 1 { vec![1] } else { vec![1, workers] } {
            let rig = Rig::new(library, args.cipher, (workers.into(), sas.into()), size)?;
            cases.push(Case { workers, sas, rig, rounds: Vec::new() });
        }
    }
    let time = Duration::from_secs_f64(args.seconds / f64::from(args.rounds));
    for round in 0..=args.rounds {
        for case in &mut cases {
            let figures = case.rig.round(time)?;
            // The first round warms caches, branch predictor and clock up; it does not count.
            if round > 0 {
                case.rounds.push(figures);
            }
        }
    }
    let rows = [0, 1].into_iter().flat_map(|direction| {
        let cases = &cases;
        cases.iter().map(move |case| case.row(direction, (args.cipher, size), cases))
    });
    Ok(rows.collect())
}

fn picture(args: &CoresArgs, rows: &[Row]) -> String {
    let lines = args.sizes.iter().flat_map(|size| DIRECTIONS.map(|direction| (*size, direction)));
    let line = |(size, direction): (u16, &'static str), many: bool| Series {
        name: format!("{size} octets, {direction}, {}", if many { "an SA each" } else { "one SA" }),
        values: args
            .workers
            .iter()
            .map(|workers| {
                let sas = if many { *workers } else { 1 };
                let of = |row: &&Row| {
                    (row.size, row.direction, row.workers, row.sas) == (size, direction, *workers, sas)
                };
                rows.iter().find(of).map(|row| row.gbps)
            })
            .collect(),
    };
    Chart {
        title: "One SA on many cores".into(),
        subtitle: format!("{}; beside it an SA for each worker, in the same run", args.cipher.name()),
        x_name: "workers".into(),
        y_name: "Gb/s".into(),
        cases: args.workers.iter().map(u8::to_string).collect(),
        series: lines.flat_map(|case| [line(case, false), line(case, true)]).collect(),
        style: Style::Lines,
        limits: Vec::new(),
    }
    .render()
}
