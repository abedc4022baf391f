//! `testudo bench cores`: the throughput of one SA with one flow on several workers.
//!
//! All its packets arrive through one port at one worker; the others have none, and help: an idle
//! one steals a burst, or a hash chooses the worker of each burst (`worker.spread`). For comparison,
//! there are as many SAs as workers, each with its own port, worker and flow: this is the throughput
//! of the machine with that many workers that need no help. Rounds of all cases alternate.
//!
//! Throughput is measured by the wall clock: workers with packets begin each stretch together, and
//! it lasts until the last of them is done. With more workers than processors it would show how the
//! kernel divides the processors, so it is not printed. Then the processor time per packet counts:
//! the working time of all workers together.

mod gate;
mod rig;

use crate::error::BenchError;
use crate::esp::{Suite, positive};
use crate::machine::Machine;
use crate::report::{self, Report};
use crate::stopwatch::median;
use rig::{Figure, Rig, processors};
use serde::Serialize;
use std::path::PathBuf;
use std::time::Duration;
use testudo_crypto::Library;
use testudo_fastpath::worker::Sharing;
use testudo_lab::plot::{Chart, Series, Style};
use testudo_terminal::progress::Progress;
use testudo_terminal::table::Align;

const DIRECTIONS: [&str; 2] = ["out", "in"];

/// Options of `testudo bench cores`.
#[derive(Debug, clap::Args)]
pub(crate) struct CoresArgs {
    /// Also write the report as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Also draw the throughput for each number of workers.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Cipher library: ipsec-mb or aws-lc [default: the faster one available].
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
          value_parser = clap::value_parser!(u16).range(crate::esp::traffic::SIZES))]
    sizes: Vec<u16>,
    /// Time of each row, for both directions and the transfer between them.
    #[arg(long, default_value_t = 4.0, value_parser = positive)]
    seconds: f64,
    /// Rounds that this time is divided into.
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
}

const COLUMNS: [(&str, Align); 14] = [
    ("dir", Align::Left),
    ("octets", Align::Right),
    ("workers", Align::Right),
    ("SAs", Align::Right),
    ("by", Align::Left),
    ("Mpps", Align::Right),
    ("Gb/s", Align::Right),
    ("CPU ns", Align::Right),
    ("cycles", Align::Right),
    ("% helped", Align::Right),
    ("% counted", Align::Right),
    ("x of SAs", Align::Right),
    ("x cycles", Align::Right),
    ("", Align::Left),
];

/// Percentage of counted stretches below which a row is marked: other processes disturbed it.
const QUIET: f64 = 50.0;

/// One measured case.
#[derive(Debug, Serialize)]
struct Row {
    direction: &'static str,
    cipher: &'static str,
    /// Octets of the inner IP packet; rates count these.
    size: u16,
    workers: u8,
    sas: u8,
    /// How workers share the packets of one SA: `steal` or `hash`. `-`: each has its own.
    by: &'static str,
    /// Processors that the workers run on. If there are fewer than workers, there is no throughput.
    processors: usize,
    /// By the wall clock.
    mpps: Option<f64>,
    gbps: Option<f64>,
    /// Processor time per packet, of all workers.
    cpu_ns: f64,
    /// The same in cycles of the time-stamp counter, if there is one.
    cycles: Option<f64>,
    /// Packets that another worker has processed in the pipeline, in percent.
    helped: f64,
    /// Stretches that count, in percent: in the others a worker had no processor.
    undisturbed: Option<f64>,
    /// For one SA: throughput relative to as many SAs as workers, in the same rounds.
    of_many: Option<f64>,
    /// Processor time per packet relative to one worker, in the same rounds.
    of_one_worker: Option<f64>,
}

/// How the workers of a case share the packets of one SA; `None` if each has its own.
type By = Option<Sharing>;

fn name(by: By) -> &'static str {
    match by {
        Some(Sharing::Steal) => "steal",
        Some(Sharing::Hash { .. }) => "hash",
        None => "-",
    }
}

/// The SAs of the cases with this many workers, and how these share them. A worker that a hash has
/// chosen, and that has no processor, holds all others up: that measures the kernel's scheduler.
fn ways(workers: u8, processors: usize) -> Vec<(u8, By)> {
    let hash = Sharing::Hash { over: workers.into() };
    let is_crowded = usize::from(workers) > processors;
    match workers {
        1 => vec![(1, None)],
        _ if is_crowded => vec![(1, Some(Sharing::Steal)), (workers, None)],
        _ => vec![(1, Some(Sharing::Steal)), (1, Some(hash)), (workers, None)],
    }
}

/// The workers and SAs of a case, and the figures of each round, by direction.
struct Case {
    workers: u8,
    sas: u8,
    by: By,
    rig: Rig,
    rounds: Vec<[Figure; 2]>,
}

impl Case {
    /// The median over the rounds of a figure in a direction; none if no round has it.
    fn median(&self, direction: usize, figure: impl Fn(&Figure) -> Option<f64>) -> Option<f64> {
        median(self.rounds.iter().filter_map(|round| figure(&round[direction])))
    }

    /// The median over the rounds of the quotient with another case.
    fn ratio(&self, to: &Self, direction: usize, figure: impl Fn(&Figure) -> Option<f64>) -> Option<f64> {
        let pairs = self.rounds.iter().zip(&to.rounds);
        median(pairs.filter_map(|(a, b)| Some(figure(&a[direction])? / figure(&b[direction])?)))
    }

    fn row(&self, direction: usize, cipher: Suite, size: u16, all: &[Self]) -> Row {
        let mpps = self.median(direction, |figure| figure.mpps);
        let of = |workers, sas| all.iter().find(|case| (case.workers, case.sas) == (workers, sas));
        let many = of(self.workers, self.workers).filter(|_| self.workers > self.sas);
        let percent = |part: Option<f64>| part.map(|part| 100.0 * part);
        Row {
            direction: DIRECTIONS[direction],
            cipher: cipher.name(),
            size,
            workers: self.workers,
            sas: self.sas,
            by: name(self.by),
            processors: processors(),
            mpps,
            gbps: mpps.map(|mpps| mpps * f64::from(size) * 8.0 / 1e3),
            cpu_ns: self.median(direction, |figure| Some(figure.cpu_ns)).unwrap_or(f64::NAN),
            cycles: self.median(direction, |figure| Some(figure.cpu_ns * figure.cycles_per_ns?)),
            helped: percent(self.median(direction, |figure| Some(figure.helped))).unwrap_or(f64::NAN),
            undisturbed: percent(self.median(direction, |figure| figure.undisturbed)),
            of_many: many.and_then(|many| self.ratio(many, direction, |figure| figure.mpps)),
            of_one_worker: of(1, 1).and_then(|one| self.ratio(one, direction, |figure| Some(figure.cpu_ns))),
        }
    }
}

impl Row {
    fn cells(&self) -> Vec<String> {
        let Self { workers, processors, .. } = self;
        let digits =
            |value: Option<f64>, digits| value.map_or("-".into(), |value| format!("{value:.digits$}"));
        let is_crowded = usize::from(*workers) > *processors;
        let is_disturbed = self.undisturbed.is_some_and(|part| part < QUIET);
        let note = match (is_crowded, is_disturbed) {
            (true, _) => format!("{workers} workers on {processors} processors"),
            (false, true) => "other processes were in the way".to_owned(),
            (false, false) => String::new(),
        };
        vec![
            self.direction.to_owned(),
            self.size.to_string(),
            workers.to_string(),
            self.sas.to_string(),
            self.by.to_owned(),
            digits(self.mpps, 2),
            digits(self.gbps, 2),
            format!("{:.1}", self.cpu_ns),
            digits(self.cycles, 0),
            digits((!is_crowded).then_some(self.helped), 0),
            digits(self.undisturbed, 0),
            digits(self.of_many, 2),
            digits(self.of_one_worker, 2),
            note,
        ]
    }
}

/// Explains the columns, and why some have no figure.
fn legend(args: &CoresArgs, processors: usize) -> String {
    let mut text = "Mpps, Gb/s: by the wall clock. CPU ns, cycles: processor time of a packet, of all workers together. x of SAs: \
                    throughput against as many SAs as workers. by: how workers share one SA (worker.spread). x cycles: processor time of a packet against one worker."
        .to_owned();
    if args.workers.iter().any(|workers| usize::from(*workers) > processors) {
        text += "\nMore workers than processors take turns on them: of these rows only the processor time of a packet says \
                 something, and no throughput is printed.";
    }
    text
}

/// Measures, prints the table, writes report and picture.
pub(crate) fn run(args: &CoresArgs, progress: &Progress) -> Result<(), BenchError> {
    let library = args.library.unwrap_or_else(Library::detect);
    library.available()?;
    let report = Report::new("cores", Machine::here(library, None));
    println!("{}, {}\n", report.machine(), args.cipher.name());
    let mut rows = Vec::new();
    // Each size has an additional first round.
    progress.begin("cores", args.sizes.len() as u64 * u64::from(args.rounds + 1));
    for &size in &args.sizes {
        progress.doing(format!("cores, {size} octets"));
        rows.extend(measure(args, library, size, progress)?);
    }
    report::show(&COLUMNS, rows.iter().map(Row::cells), progress);
    progress.aside(|| println!("\n{}", legend(args, processors())));
    report::draw(args.svg.as_deref(), || picture(args, &rows))?;
    report.write(rows, args.json.as_deref())
}

/// All cases of one size, alternating.
fn measure(
    args: &CoresArgs,
    library: Library,
    size: u16,
    progress: &Progress,
) -> Result<Vec<Row>, BenchError> {
    let mut cases = Vec::new();
    for &workers in &args.workers {
        for (sas, by) in ways(workers, processors()) {
            let rig = Rig::new(library, args.cipher, [workers, sas].map(usize::from), size, by)?;
            cases.push(Case { workers, sas, by, rig, rounds: Vec::new() });
        }
    }
    let time = Duration::from_secs_f64(args.seconds / f64::from(args.rounds));
    for round in 0..=args.rounds {
        for case in &mut cases {
            let figures = case.rig.round(time)?;
            // The first round warms up caches, branch predictor and clock; it does not count.
            if round > 0 {
                case.rounds.push(figures);
            }
        }
        progress.step();
    }
    let rows = [0, 1].into_iter().flat_map(|direction| {
        let cases = &cases;
        cases.iter().map(move |case| case.row(direction, args.cipher, size, cases))
    });
    Ok(rows.collect())
}

fn picture(args: &CoresArgs, rows: &[Row]) -> String {
    let lines = args.sizes.iter().flat_map(|size| DIRECTIONS.map(|direction| (*size, direction)));
    let line = |(size, direction): (u16, &'static str), by: &'static str| Series {
        name: format!("{size} octets, {direction}, {}", if by == "-" { "an SA each" } else { by }),
        values: args
            .workers
            .iter()
            .map(|workers| {
                let of = |row: &&Row| {
                    (row.size, row.direction, row.workers) == (size, direction, *workers)
                        && (row.by == by || *workers == 1)
                };
                rows.iter().find(of).and_then(|row| row.gbps)
            })
            .collect(),
    };
    Chart {
        title: "One SA on many cores".into(),
        subtitle: format!(
            "{}; beside it an SA for each worker, in the same run; {} processors",
            args.cipher.name(),
            processors()
        ),
        x_name: "workers".into(),
        y_name: "Gb/s".into(),
        cases: args.workers.iter().map(u8::to_string).collect(),
        series: lines.flat_map(|case| ["steal", "hash", "-"].map(|by| line(case, by))).collect(),
        style: Style::Lines,
        limits: Vec::new(),
    }
    .render()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(workers: u8, sas: u8, mpps: Option<f64>, cpu_ns: f64) -> Case {
        let by = (workers > sas).then_some(Sharing::Steal);
        let rig = Rig::new(Library::detect(), Suite::AES128GCM16, [workers, sas].map(usize::from), 1000, by);
        let undisturbed = mpps.map(|_| 1.0);
        let figure = Figure { mpps, cpu_ns, cycles_per_ns: Some(2.0), helped: 0.5, undisturbed };
        Case { workers, sas, by, rig: rig.expect("a rig"), rounds: vec![[figure; 2]; 3] }
    }

    #[test]
    fn a_hash_is_measured_where_each_worker_has_a_processor() {
        let by = |workers| ways(workers, 2).into_iter().map(|(_, by)| name(by)).collect::<Vec<_>>();
        assert_eq!([by(1), by(2), by(4)], [vec!["-"], vec!["steal", "hash", "-"], vec!["steal", "-"]]);
    }

    #[test]
    fn a_row_of_more_workers_than_processors_has_no_throughput() {
        let cases = [case(1, 1, Some(5.0), 200.0), case(4, 1, None, 250.0), case(4, 4, None, 220.0)];
        let row = Row { processors: 2, ..cases[1].row(0, Suite::AES128GCM16, 1000, &cases) };
        assert_eq!((row.mpps, row.gbps, row.of_many), (None, None, None));
        let expected = [
            "out",
            "1000",
            "4",
            "1",
            "steal",
            "-",
            "-",
            "250.0",
            "500",
            "-",
            "-",
            "-",
            "1.25",
            "4 workers on 2 processors",
        ];
        assert_eq!(row.cells(), expected);
        let json = serde_json::to_value(&row).expect("it serialises");
        assert!(json["gbps"].is_null() && json["cpu_ns"] == 250.0, "{json}");
    }

    #[test]
    fn a_row_of_workers_with_a_processor_each_tells_throughput() {
        let cases =
            [case(1, 1, Some(5.0), 200.0), case(2, 1, Some(8.0), 250.0), case(2, 2, Some(10.0), 210.0)];
        let row = Row { processors: 2, ..cases[1].row(1, Suite::AES128GCM16, 1000, &cases) };
        let expected = [
            "in", "1000", "2", "1", "steal", "8.00", "64.00", "250.0", "500", "50", "100", "0.80", "1.25", "",
        ];
        assert_eq!(row.cells(), expected);
        let busy = Row { undisturbed: Some(20.0), ..row };
        assert_eq!(busy.cells().last().map(String::as_str), Some("other processes were in the way"));
    }
}
