//! `testudo bench detect`: the time from the first frame of an attack to the alarm that a client of
//! VICI hears of.
//!
//! Two gateways have a tunnel, which carries traffic, and the attacker is on the path between them.
//! The attacks take turns, round by round: an alarm that lasts is not raised again, so each attack
//! waits until the alarm of the round before is over.

mod alarms;
mod attack;
mod site;

use crate::error::BenchError;
use crate::machine::Machine;
use crate::report::{self, Report};
use attack::Attack;
use serde::Serialize;
use site::Site;
use std::path::PathBuf;
use testudo_crypto::Library;
use testudo_lab::Lab;
use testudo_lab::stats::Statistics;
use testudo_terminal::progress::Progress;
use testudo_terminal::table::Align::{self, Left, Right};

/// Seconds within which every attack is to be found.
const AIM: f64 = 1.0;

/// Options of `testudo bench detect`.
#[derive(Debug, clap::Args)]
pub(crate) struct DetectArgs {
    /// Also write the report as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// What to do to the tunnel.
    #[arg(long, value_delimiter = ',', value_enum, default_values_t = Attack::ALL)]
    attacks: Vec<Attack>,
    /// How often each attack is made.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeats: u32,
}

/// All times of one attack.
#[derive(Debug, Serialize)]
struct Row {
    attack: Attack,
    /// The kind of its alarm.
    alarm: &'static str,
    /// From its first frame to the event; null: there was none in time.
    seconds: Vec<Option<f64>>,
    aim: f64,
    reached: bool,
}

const COLUMNS: [(&str, Align); 8] = [
    ("attack", Left),
    ("alarm", Left),
    ("made", Right),
    ("found", Right),
    ("median s", Right),
    ("max s", Right),
    ("aim s", Right),
    ("", Left),
];

impl Row {
    fn new(attack: Attack) -> Self {
        Self { attack, alarm: attack.alarm(), seconds: Vec::new(), aim: AIM, reached: true }
    }

    fn add(&mut self, seconds: Option<f64>) {
        self.reached &= seconds.is_some_and(|seconds| seconds <= AIM);
        self.seconds.push(seconds.map(|seconds| (seconds * 1e3).round() / 1e3));
    }

    fn cells(&self) -> Vec<String> {
        let found: Vec<f64> = self.seconds.iter().copied().flatten().collect();
        let statistics = Statistics::of(&found);
        let with = |figure: Option<f64>| figure.map_or_else(|| "-".to_owned(), |s| format!("{s:.3}"));
        vec![
            self.attack.name().to_owned(),
            self.alarm.to_owned(),
            self.seconds.len().to_string(),
            found.len().to_string(),
            with(statistics.as_ref().map(|all| all.median)),
            with(found.into_iter().reduce(f64::max)),
            self.aim.to_string(),
            if self.reached { "reached" } else { "MISSED" }.to_owned(),
        ]
    }
}

/// Attacks, prints the table and writes the report.
pub(crate) fn run(args: &DetectArgs, progress: &Progress) -> Result<(), BenchError> {
    let report = Report::new("detect", Machine::here(Library::detect(), None));
    println!("{}, from the first frame to the VICI event\n", report.machine());
    progress.begin("detect: bringing the tunnel up", 0);
    let lab = Lab::new("bench-detect")?;
    let mut site = Site::start(&lab)?;
    let mut rows: Vec<Row> = args.attacks.iter().copied().map(Row::new).collect();
    progress.begin("detect", rows.len() as u64 * u64::from(args.repeats));
    for _ in 0..args.repeats {
        for row in &mut rows {
            progress.doing(format!("detect: {}", row.attack.name()));
            row.add(site.time(row.attack)?);
            progress.step();
        }
    }
    report::show(&COLUMNS, rows.iter().map(Row::cells), progress);
    report.write(rows, args.json.as_deref())
}
