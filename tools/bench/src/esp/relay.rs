//! `testudo bench esp --relayed`: what a packet costs that routers have brought to the wrong node of
//! a cluster, at the node that relays it and at the node that carries it, beside a packet that
//! reached the right node at once.

mod line;

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
use testudo_crypto::Library;
use testudo_terminal::progress::Progress;
use testudo_terminal::table::Align::{Left, Right};

/// The pipelines alternate after this time, so that a disturbance affects all.
const TURN: Duration = Duration::from_millis(2);

/// The costs of one direction and size, in nanoseconds and cycles of a packet.
#[derive(Debug, Serialize)]
struct Row {
    direction: &'static str,
    cipher: &'static str,
    traffic: String,
    right_ns: f64,
    right_cycles: Option<f64>,
    relaying_ns: f64,
    relaying_cycles: Option<f64>,
    carrying_ns: f64,
    carrying_cycles: Option<f64>,
}

impl Row {
    fn new(direction: &'static str, suite: Suite, traffic: Traffic, costs: [PerPacket; 3]) -> Self {
        let [right, relaying, carrying] = costs;
        Self {
            direction,
            cipher: suite.name(),
            traffic: traffic.to_string(),
            right_ns: right.ns,
            right_cycles: right.cycles,
            relaying_ns: relaying.ns,
            relaying_cycles: relaying.cycles,
            carrying_ns: carrying.ns,
            carrying_cycles: carrying.cycles,
        }
    }

    fn cells(&self) -> Vec<String> {
        let times = |ns: f64| format!("{:.2}", ns / self.right_ns);
        let whole = |cycles: Option<f64>| cycles.map_or("-".into(), |cycles| format!("{cycles:.0}"));
        vec![
            self.direction.into(),
            self.cipher.into(),
            self.traffic.clone(),
            format!("{:.1}", self.right_ns),
            whole(self.right_cycles),
            format!("{:.1}", self.relaying_ns),
            whole(self.relaying_cycles),
            times(self.relaying_ns),
            format!("{:.1}", self.carrying_ns),
            whole(self.carrying_cycles),
            times(self.carrying_ns),
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
        ("cipher", Left),
        ("octets", Right),
        ("right ns", Right),
        ("cycles", Right),
        ("relaying ns", Right),
        ("cycles", Right),
        ("x", Right),
        ("carrying ns", Right),
        ("cycles", Right),
        ("x", Right),
    ];
    progress.aside(|| println!("{}\n", report.machine()));
    report::show(&columns, rows.iter().map(Row::cells), progress);
    report.write(rows, args.json.as_deref())
}

/// Both directions of one case.
fn measure(
    args: &EspArgs,
    library: Library,
    suite: Suite,
    traffic: Traffic,
    progress: &Progress,
) -> Result<[Row; 2], BenchError> {
    let mut rig = Rig::new(library, suite, traffic, Membership::Home)?;
    let mut line = RelayLine::new(library, suite, traffic)?;
    let mut right = [const { Stopwatch::new() }; 2];
    let mut wrong = [const { [const { Stopwatch::new() }; 2] }; 2];
    let round = Duration::from_secs_f64(args.seconds / f64::from(args.rounds));
    for number in 0..=args.rounds {
        // The first round warms up and does not count.
        if number == 1 {
            right.iter_mut().chain(wrong.iter_mut().flatten()).for_each(Stopwatch::reset);
        }
        let end = round * number.max(1);
        while right[0].time() < end {
            let (outward, inward) = (right[0].time() + TURN, wrong[0][0].time() + TURN);
            while right[0].time() < outward {
                let [out, back] = &mut right;
                rig.run(out, back)?;
            }
            while wrong[0][0].time() < inward {
                line.run(&mut wrong)?;
            }
        }
        progress.step();
    }
    let row = |direction, at: usize| {
        let [relaying, carrying] = &wrong[at];
        Row::new(direction, suite, traffic, [right[at].median(), relaying.median(), carrying.median()])
    };
    Ok([row("out", 0), row("in", 1)])
}
