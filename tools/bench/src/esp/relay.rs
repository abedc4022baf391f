//! `testudo bench esp --relayed`: what a packet costs that routers have brought to the wrong node of
//! a cluster, at the node that relays it and at the node that carries it, beside a packet that
//! reached the right node at once.

pub(crate) mod line;

use super::gateway::Membership;
use super::rig::Rig;
use super::traffic::Traffic;
use super::{EspArgs, Suite};
use crate::error::BenchError;
use crate::machine::Machine;
use crate::pin::pin;
use crate::report::{self, Report};
use crate::stopwatch::{PerPacket, Stopwatch};
use line::RelayLine;
use serde::Serialize;
use std::time::Duration;
use testudo_base::spi::RelayKind;
use testudo_crypto::Library;
use testudo_terminal::progress::Progress;
use testudo_terminal::table::Align::{Left, Right};

/// The pipelines alternate after this time, so that a disturbance affects all.
const TURN: Duration = Duration::from_millis(2);

/// What a misrouted packet may cost all nodes together, as a multiple of a right one.
const AIM: f64 = 1.5;

/// What is relayed, and how.
#[derive(Clone, Copy, Debug)]
enum Relayed {
    /// Clear packets, encrypted whole.
    Clear,
    /// ESP, of which the head is encrypted.
    Esp,
    /// ESP beside a node of an older version, encrypted whole.
    EspWhole,
}

impl Relayed {
    const ALL: [Self; 3] = [Self::Clear, Self::Esp, Self::EspWhole];

    fn name(self) -> &'static str {
        match self {
            Self::Clear => "clear",
            Self::Esp => "ESP",
            Self::EspWhole => "ESP, whole",
        }
    }

    fn direction(self) -> &'static str {
        match self {
            Self::Clear => "out",
            Self::Esp | Self::EspWhole => "in",
        }
    }
}

/// The costs of one kind and size, in nanoseconds and cycles of a packet.
#[derive(Debug, Serialize)]
struct Row {
    direction: &'static str,
    relayed: &'static str,
    cipher: &'static str,
    traffic: String,
    right_ns: f64,
    right_cycles: Option<f64>,
    relaying_ns: f64,
    relaying_cycles: Option<f64>,
    carrying_ns: f64,
    carrying_cycles: Option<f64>,
    /// Of both nodes together, as a multiple of `right_ns`.
    times_right: f64,
}

impl Row {
    fn new(relayed: Relayed, suite: Suite, traffic: Traffic, costs: [PerPacket; 3]) -> Self {
        let [right, relaying, carrying] = costs;
        Self {
            direction: relayed.direction(),
            relayed: relayed.name(),
            cipher: suite.name(),
            traffic: traffic.to_string(),
            right_ns: right.ns,
            right_cycles: right.cycles,
            relaying_ns: relaying.ns,
            relaying_cycles: relaying.cycles,
            carrying_ns: carrying.ns,
            carrying_cycles: carrying.cycles,
            times_right: (relaying.ns + carrying.ns) / right.ns,
        }
    }

    fn cells(&self) -> Vec<String> {
        let cycles = [self.right_cycles, self.relaying_cycles, self.carrying_cycles];
        let [right, relaying, carrying] =
            cycles.map(|cycles| cycles.map_or("-".into(), |cycles| format!("{cycles:.0}")));
        vec![
            self.direction.into(),
            self.relayed.into(),
            self.cipher.into(),
            self.traffic.clone(),
            format!("{:.1}", self.right_ns),
            right,
            format!("{:.1}", self.relaying_ns),
            relaying,
            format!("{:.1}", self.carrying_ns),
            carrying,
            format!("{:.1}", self.relaying_ns + self.carrying_ns - self.right_ns),
            format!("{:.2}", self.times_right),
            format!("{AIM}"),
        ]
    }
}

/// Measures, prints the table, writes the report.
pub(super) fn run(args: &EspArgs, library: Library, progress: &Progress) -> Result<(), BenchError> {
    let cpu = pin(args.cpu)?;
    let report = Report::new("esp relayed", Machine::here(library, Some(cpu)));
    let cases = || args.ciphers.iter().flat_map(|suite| args.sizes.iter().map(move |size| (*suite, *size)));
    progress.begin("esp, relayed", cases().count() as u64 * u64::from(args.rounds + 1));
    let mut rows = Vec::new();
    for (suite, traffic) in cases() {
        rows.extend(measure(args, library, suite, traffic, progress)?);
    }
    let columns = [
        ("dir", Left),
        ("relayed", Left),
        ("cipher", Left),
        ("octets", Right),
        ("right ns", Right),
        ("cycles", Right),
        ("relaying ns", Right),
        ("cycles", Right),
        ("carrying ns", Right),
        ("cycles", Right),
        ("extra ns", Right),
        ("in all x", Right),
        ("aim x", Right),
    ];
    progress.aside(|| println!("{}\n", report.machine()));
    report::show(&columns, rows.iter().map(Row::cells), progress);
    report.write(rows, args.json.as_deref())
}

/// All kinds of one case.
fn measure(
    args: &EspArgs,
    library: Library,
    suite: Suite,
    traffic: Traffic,
    progress: &Progress,
) -> Result<[Row; 3], BenchError> {
    let mut rig = Rig::new(library, suite, traffic, Membership::Home)?;
    let line = |kinds| RelayLine::new(library, suite, traffic, kinds);
    let mut lines = [line(&RelayKind::SAS)?, line(&[RelayKind::Whole])?];
    let mut right = [const { Stopwatch::new() }; 2];
    let mut wrong = [const { [const { [const { Stopwatch::new() }; 2] }; 2] }; 2];
    let round = Duration::from_secs_f64(args.seconds / f64::from(args.rounds));
    for number in 0..=args.rounds {
        // The first round warms up and does not count.
        if number == 1 {
            right.iter_mut().chain(wrong.iter_mut().flatten().flatten()).for_each(Stopwatch::reset);
        }
        let end = round * number.max(1);
        while right[0].time() < end {
            let until = right[0].time() + TURN;
            while right[0].time() < until {
                let [out, back] = &mut right;
                rig.run(out, back)?;
            }
            for (line, watches) in lines.iter_mut().zip(&mut wrong) {
                let until = watches[0][0].time() + TURN;
                while watches[0][0].time() < until {
                    line.run(watches)?;
                }
            }
        }
        progress.step();
    }
    let row = |relayed| {
        let (line, way) = match relayed {
            Relayed::Clear => (0, 0),
            Relayed::Esp => (0, 1),
            Relayed::EspWhole => (1, 1),
        };
        let [relaying, carrying] = &wrong[line][way];
        Row::new(relayed, suite, traffic, [right[way].median(), relaying.median(), carrying.median()])
    };
    Ok(Relayed::ALL.map(row))
}
