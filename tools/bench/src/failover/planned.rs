//! Planned work: a node is drained and gets its shards back, and all nodes are restarted one after
//! another. Nothing may be lost.

use super::noticed::Noticed;
use crate::error::BenchError;
use crate::figures::{Aim, Row};
use std::thread::sleep;
use std::time::{Duration, Instant};
use testudo_lab::bed::{Bed, BedOptions, Failure};
use testudo_lab::corosync::Timers;
use testudo_lab::gateway::Kind;
use testudo_lab::{Error, Lab, Result};
use testudo_terminal::progress::Progress;

/// Traffic before and after the event.
const AROUND: Duration = Duration::from_millis(300);
/// Nodes of the rolling restart, each of which is restarted once.
const NODES: u8 = 5;

/// The measurements of one kind of planned work.
struct Planned {
    what: &'static str,
    took: Vec<f64>,
    noticed: Noticed,
}

pub(super) fn measure(repeats: u32, progress: &Progress) -> std::result::Result<Vec<Row>, BenchError> {
    let mut rows = drains(repeats, progress)?;
    rows.extend(restarts(progress)?);
    Ok(rows)
}

/// Drains the node that carries the tunnel, by a command at another node.
fn drains(repeats: u32, progress: &Progress) -> Result<Vec<Row>> {
    let bed = &mut Bed::start(&Lab::new("drains")?, &BedOptions::default())?;
    bed.bring_up(1)?;
    let (mut away, mut back) = (Planned::new("drain"), Planned::new("end of a drain"));
    progress.begin("failover, drains", repeats.into());
    for _ in 0..repeats {
        let owner = bed.owner(1)?;
        let other = owner % 3 + 1;
        let node = &owner.to_string();
        away.during(bed, |bed| done(&bed.node(other).drain(&[node])?))?;
        back.during(bed, |bed| {
            done(&bed.node(other).drain(&["--undo", node])?)?;
            bed.await_balance()
        })?;
        progress.step();
    }
    Ok(away.rows().into_iter().chain(back.rows()).collect())
}

/// Restarts all nodes with SIGTERM, as for a new version.
fn restarts(progress: &Progress) -> Result<Vec<Row>> {
    // Ten daemons on one machine need longer for a view than the default time of the fence.
    let timers = Timers { token: Duration::from_millis(300), consensus: Duration::from_millis(360) };
    let options = BedOptions {
        nodes: NODES,
        peers: vec![Kind::Strongswan; 3],
        timers,
        cluster: "fence_ms = 300".into(),
        ..BedOptions::default()
    };
    progress.begin("failover, restarts: starting five nodes", 0);
    let bed = &mut Bed::start(&Lab::new("restarts")?, &options)?;
    for peer in 1..=3 {
        bed.bring_up(peer)?;
    }
    let mut restarts = Planned::new("restart of one of five nodes");
    progress.begin("failover, restarts", NODES.into());
    for node in 1..=NODES {
        restarts.during(bed, |bed| {
            bed.node(node).stop()?;
            bed.mend(node, Failure::Testudod)?;
            bed.await_all()?;
            bed.await_balance()
        })?;
        progress.step();
    }
    Ok(restarts.rows())
}

fn done(drained: &serde_json::Value) -> Result<()> {
    if drained["done"] == true {
        Ok(())
    } else {
        Err(Error::unexpected("a drain", "its end", drained.to_string()))
    }
}

impl Planned {
    fn new(what: &'static str) -> Self {
        Self { what, took: Vec::new(), noticed: Noticed::default() }
    }

    fn during(&mut self, bed: &mut Bed, happen: impl FnOnce(&mut Bed) -> Result<()>) -> Result<()> {
        let tunnel = bed.tunnel_spi(1)?;
        let probes = bed.probes()?;
        sleep(AROUND);
        let begun = Instant::now();
        happen(bed)?;
        self.took.push(begun.elapsed().as_secs_f64());
        sleep(AROUND);
        self.noticed.end(bed, probes, tunnel).map(drop)
    }

    fn rows(self) -> Vec<Row> {
        let Self { what: happened, took, noticed } = self;
        let of = |what: &str| format!("{happened}: {what}");
        vec![
            Row::new(of("took"), "s", took),
            Row::new(of("longest silence of the probe"), "ms", noticed.silence),
            Row::new(of("datagrams lost, both ways"), "datagrams", noticed.lost).aim(Aim::none_above(0.0)),
            Row::new(of("datagrams doubled"), "datagrams", noticed.duplicates).aim(Aim::none_above(0.0)),
            Row::new(of("tunnels lost"), "tunnels", noticed.tunnels).aim(Aim::none_above(0.0)),
        ]
    }
}
