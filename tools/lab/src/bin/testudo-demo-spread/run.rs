//! The traffic, the nodes that join, and the kill.

use crate::outcome::{Outcome, Reading, Sample, Stage};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};
use testudo_lab::bed::{Bed, Failure};
use testudo_lab::demo::{Done, Progress};
use testudo_lab::testudo::Testudo;
use testudo_lab::{Error, Result, wait_until};

/// Time between two datagrams in each direction.
pub(crate) const INTERVAL: Duration = Duration::from_micros(400);
/// Time between two readings of what the nodes have done.
const SAMPLING: Duration = Duration::from_millis(250);
/// For shards to come to a node.
const LIMIT: Duration = Duration::from_secs(60);

/// Runs traffic through the tunnel over one node, two and so on, and kills one of them.
pub(crate) fn run(bed: &mut Bed, length: Duration, progress: &mut Progress) -> Result<Outcome> {
    progress.title("One tunnel, over more and more nodes")?;
    let all = bed.nodes.len() as u8;
    let tunnel = bed.tunnel_spi(1)?;
    progress.step("all nodes but the first are drained", || {
        (2..=all).try_for_each(|node| drain(bed, &[&node.to_string()])).map(Done::new)
    })?;
    let probes = bed.probes_of(1, INTERVAL)?;
    let mut samples = Vec::new();
    let mut stages = Vec::new();
    for nodes in 1..=all {
        if nodes > 1 {
            progress.step(&format!("node {nodes} joins in"), || {
                drain(bed, &["--undo", &nodes.to_string()])?;
                await_work(&bed.nodes[usize::from(nodes) - 1]).map(Done::new)
            })?;
        }
        let name = if nodes == 1 { "one node".to_owned() } else { format!("{nodes} nodes") };
        stages.push(stage(bed, name, (1..=nodes).collect(), length, &mut samples, progress)?);
    }
    // Nothing worse can happen to the tunnel.
    let victim = progress.step("which node speaks IKE for it", || {
        let victim = bed.owner(1)?;
        Ok(Done::saying(victim, format!("node {victim}")))
    })?;
    let (kill, day) = (Instant::now(), SystemTime::now());
    bed.strike(victim, Failure::Testudod)?;
    let left: Vec<u8> = (1..=all).filter(|node| *node != victim).collect();
    let name = format!("node {victim} killed");
    stages.push(stage(bed, name, left, length, &mut samples, progress)?);
    let [up, down] = probes;
    Ok(Outcome {
        traces: [up.stop()?, down.stop()?],
        samples,
        stages,
        victim,
        kill,
        detection: bed.detection(victim, day)?,
        is_kept: tunnel.is_some() && bed.tunnel_spi(1)? == tunnel && bed.carries(1)?,
    })
}

/// Watches the nodes for that long.
fn stage(
    bed: &Bed,
    name: String,
    nodes: Vec<u8>,
    length: Duration,
    samples: &mut Vec<Sample>,
    progress: &mut Progress,
) -> Result<Stage> {
    progress.step(&name.clone(), || {
        let begun = Instant::now();
        let first = samples.len();
        while begun.elapsed() < length {
            samples.push(sample(bed));
            sleep(SAMPLING);
        }
        samples.push(sample(bed));
        let stage = Stage::between(name, nodes, &samples[first..]);
        let said = stage.said();
        Ok(Done::saying(stage, said))
    })
}

fn sample(bed: &Bed) -> Sample {
    Sample { at: Instant::now(), nodes: bed.nodes.iter().map(reading).collect() }
}

/// `None` of a node that does not answer: it was killed.
fn reading(node: &Testudo) -> Option<Reading> {
    let counters = node.status().ok()?["counters"].take();
    let of = |kind: &str, name: &str| counters[kind][name].as_u64();
    Some(Reading {
        packets: of("totals", "out_forwarded")? + of("totals", "in_forwarded")?,
        fenced: of("drops", "fenced")? + of("drops", "fenced_late")?,
        cpu: node.cpu().ok()?.seconds(),
    })
}

/// Waits until the node works on packets of the tunnel.
fn await_work(node: &Testudo) -> Result<()> {
    let before = reading(node);
    wait_until("packets at the node", LIMIT, || {
        let now = reading(node);
        let is_at_work = before.zip(now).is_some_and(|(before, now)| now.packets > before.packets);
        Ok(if is_at_work { Ok(()) } else { Err(format!("{now:?}")) })
    })
}

fn drain(bed: &Bed, arguments: &[&str]) -> Result<()> {
    let drained = bed.nodes[0].drain(arguments)?;
    if drained["done"] == true {
        return Ok(());
    }
    Err(Error::unexpected(format!("testudo drain {}", arguments.join(" ")), "its end", drained.to_string()))
}
