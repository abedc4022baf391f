//! The outage when the node that carries a tunnel dies, and how much of it passes until the others
//! notice.

use super::crash::Crash;
use super::noticed::Noticed;
use crate::error::BenchError;
use crate::figures::{Aim, Row, Source};
use std::thread::sleep;
use std::time::{Duration, SystemTime};
use testudo_lab::bed::{Bed, BedOptions};
use testudo_lab::{Lab, Result};
use testudo_terminal::progress::Progress;

/// Before a failure the nodes hear each other for this long: a node that has just started sends its
/// first heartbeats late, and gets more time.
const QUIET: Duration = Duration::from_secs(3);
/// Traffic before the failure, and after it: longer than corosync needs to agree on the survivors.
const BEFORE: Duration = Duration::from_millis(300);
const AFTER: Duration = Duration::from_millis(1500);

/// The measurements of one kind of failure.
#[derive(Default)]
struct Outages {
    noticed: Noticed,
    detection: Vec<f64>,
    /// The silence after which the others would suspect the node, before the failure: the mean of
    /// both.
    threshold: Vec<f64>,
    /// The rest of the outage, from then until packets flow.
    rest: Vec<f64>,
}

pub(super) fn measure(repeats: u32, progress: &Progress) -> std::result::Result<Vec<Row>, BenchError> {
    let bed = &mut Bed::start(&Lab::new("failover")?, &BedOptions::default())?;
    bed.bring_up(1)?;
    let mut rows = Vec::new();
    progress.begin("failover, outage", 2 * u64::from(repeats));
    for crash in [Crash::Killed, Crash::CutOff] {
        let mut outages = Outages::default();
        for _ in 0..repeats {
            progress.doing(format!("failover, outage, {crash}"));
            outages.repeat(bed, crash)?;
            progress.step();
        }
        rows.extend(outages.rows(crash));
    }
    Ok(rows)
}

impl Outages {
    fn repeat(&mut self, bed: &mut Bed, crash: Crash) -> Result<()> {
        let victim = bed.owner(1)?;
        let tunnel = bed.tunnel_spi(1)?;
        sleep(QUIET);
        self.threshold.extend(threshold(bed, victim)?);
        let probes = bed.probes()?;
        sleep(BEFORE);
        let struck = SystemTime::now();
        crash.strike(bed, victim)?;
        sleep(AFTER);
        let outage = self.noticed.end(bed, probes, tunnel)?;
        if let Some(detection) = bed.detection(victim, struck)? {
            self.detection.push(milliseconds(detection));
            self.rest.push(milliseconds(outage) - milliseconds(detection));
        }
        crash.mend(bed, victim)
    }

    fn rows(self, crash: Crash) -> Vec<Row> {
        let of = |what: &str| format!("{what}: {crash}");
        let aim = Aim { p99_at_most: Some(100.0), ..Aim::median_at_most(40.0) };
        vec![
            Row::new(of("outage"), "ms", self.noticed.silence).others(Source::Ha, "1.63-1.66 s").aim(aim),
            Row::new(of("detection"), "ms", self.detection),
            Row::new(of("silence that makes a suspect"), "ms", self.threshold),
            Row::new(of("outage after detection"), "ms", self.rest).aim(Aim::median_at_most(10.0)),
            Row::new(of("datagrams lost, both ways"), "datagrams", self.noticed.lost),
            Row::new(of("datagrams doubled"), "datagrams", self.noticed.duplicates).aim(Aim::none_above(0.0)),
            Row::new(of("tunnels lost"), "tunnels", self.noticed.tunnels).aim(Aim::none_above(0.0)),
        ]
    }
}

/// The mean threshold of the nodes that report one.
fn threshold(bed: &Bed, node: u8) -> Result<Option<f64>> {
    let others = (1..).zip(&bed.nodes).filter(|(other, _)| *other != node);
    let shown = others.map(|(_, other)| other.cluster()).collect::<Result<Vec<_>>>()?;
    let told = shown.iter().filter_map(|shown| shown["nodes"][usize::from(node) - 1]["threshold"].as_f64());
    let told: Vec<f64> = told.collect();
    Ok((!told.is_empty()).then(|| told.iter().sum::<f64>() / told.len() as f64))
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
