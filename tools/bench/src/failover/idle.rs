//! The processor time of idle nodes: corosync, and testudod with heartbeats compared with one that
//! is not in a cluster.

use super::site::Site;
use crate::error::BenchError;
use crate::figures::Row;
use crate::setup::usage::Cpu;
use std::thread::sleep;
use std::time::{Duration, Instant};
use testudo_lab::gateway::Kind;
use testudo_terminal::progress::Progress;

/// One repeat.
const STRETCH: Duration = Duration::from_secs(2);

pub(super) fn measure(repeats: u32, progress: &Progress) -> Result<Vec<Row>, BenchError> {
    let mut site = Site::start(Kind::Strongswan)?;
    let [mut corosync, mut node, mut lone] = [const { Vec::new() }; 3];
    progress.begin("failover, idle", repeats.into());
    for _ in 0..repeats {
        let before = (site.corosyncs_cpu()?, site.nodes_cpu()?, site.lone_cpu()?);
        let start = Instant::now();
        sleep(STRETCH);
        let after = (site.corosyncs_cpu()?, site.nodes_cpu()?, site.lone_cpu()?);
        let time = start.elapsed();
        corosync.push(mean(&before.0, &after.0, time));
        node.push(mean(&before.1, &after.1, time));
        lone.push(percent(&before.2, &after.2, time));
        progress.step();
    }
    let unit = "% of a core";
    Ok(vec![
        Row::new("idle: corosync, a node", unit, corosync),
        Row::new("idle: testudod, a node", unit, node),
        Row::new("idle: testudod alone", unit, lone),
    ])
}

fn percent(before: &Cpu, after: &Cpu, time: Duration) -> f64 {
    after.since(before).total.as_secs_f64() / time.as_secs_f64() * 100.0
}

fn mean(before: &[Cpu], after: &[Cpu], time: Duration) -> f64 {
    let sum: f64 = before.iter().zip(after).map(|(before, after)| percent(before, after, time)).sum();
    sum / before.len() as f64
}
