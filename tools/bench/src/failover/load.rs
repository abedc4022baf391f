//! Minutes without failures on an overloaded machine: no node may be declared dead with
//! consequences.

use super::FailoverArgs;
use super::site::{Places, Site};
use crate::error::BenchError;
use crate::figures::{Aim, Row};
use crate::setup::initiator::Initiator;
use crate::setup::shape::Shape;
use crate::setup::swarm::{Ended, Swarm};
use std::thread::sleep;
use std::time::{Duration, Instant};
use testudo_lab::cluster::Cluster;
use testudo_lab::gateway::Kind;
use testudo_lab::probe::{INTERVAL, Probe};
use testudo_lab::process::Process;
use testudo_lab::topology::Family;
use testudo_lab::{Result, interrupt};
use testudo_terminal::progress::Progress;

/// Tunnels besides the one of the probe.
const TUNNELS: u32 = 200;
/// Busy processes for each processor.
const BUSY: usize = 3;
const LIMIT: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(200);
/// How often the progress line is drawn: rarely, because this process is part of the load.
const SHOW: Duration = Duration::from_secs(5);
/// Log lines of the nodes.
const LEFT: &str = "has left the view";
const PROVISIONAL: &str = "shards of suspects provisionally";

pub(super) fn measure(args: &FailoverArgs, progress: &Progress) -> std::result::Result<Vec<Row>, BenchError> {
    let site = Site::start(Kind::Strongswan)?;
    site.bed.bring_up(1)?;
    let across = site.across().clone();
    let tunnel = site.bed.tunnel_spi(1)?;
    let mut swarm = across.enter(|| Swarm::open(Shape::OneForAll, Places::CLUSTER))??;
    let width = args.width as usize;
    let look = |_: &Ended| Ok::<_, BenchError>(());
    let initiators = swarm.prepare(0..TUNNELS)?;
    let up = swarm.follow(initiators, width, LIMIT, look)?;
    let before = (count(&site, LEFT)?, count(&site, PROVISIONAL)?);
    let (client, host) = (&site.bed.cluster.client, &site.bed.cluster.hosts[0]);
    let probe = Probe::start(client, host, Cluster::behind(1, Family::V4, 2), INTERVAL)?;
    let busy = keep_busy(&site)?;
    let (start, length) = (Instant::now(), Duration::from_secs_f64(args.minutes * 60.0));
    progress.begin("failover, load, seconds", length.as_secs());
    let mut shown = start;
    while start.elapsed() < length {
        interrupt::check()?;
        if shown.elapsed() >= SHOW {
            progress.reach(start.elapsed().as_secs());
            shown = Instant::now();
        }
        sleep(LOOK.min(length.saturating_sub(start.elapsed())));
    }
    drop(busy);
    let seen = probe.stop()?.summary();
    let mut initiators = up.done;
    initiators.iter_mut().for_each(|(_, initiator)| Initiator::renew(initiator));
    let checked = swarm.follow(initiators, width, LIMIT, look)?;
    let kept = site.bed.tunnel_spi(1)? == tunnel && site.bed.carries(1)?;
    let disturbed = up.failed.len() + checked.failed.len() + usize::from(!kept);
    let after = (count(&site, LEFT)?, count(&site, PROVISIONAL)?);
    let one = |what: &str, unit: &'static str, value: f64| {
        Row::new(format!("{} minutes under load: {what}", args.minutes), unit, vec![value])
    };
    let none = Aim::none_above(0.0);
    Ok(vec![
        one(&format!("tunnels disturbed of {}", TUNNELS + 1), "tunnels", disturbed as f64).aim(none),
        one("confirmed false takeovers", "takeovers", (after.0 - before.0) as f64).aim(none),
        one("provisional takeovers", "takeovers", (after.1 - before.1) as f64),
        one("longest silence of the probe", "ms", seen.outage.length.as_secs_f64() * 1e3),
        one("datagrams lost", "datagrams", seen.lost as f64),
        one("datagrams doubled", "datagrams", seen.duplicates as f64).aim(none),
    ])
}

/// Processes that compute endlessly, at normal priority.
fn keep_busy(site: &Site) -> Result<Vec<Process>> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let client = &site.bed.cluster.client;
    let start = |_| client.start("busy", client.cmd("sh").args(["-c", "while :; do :; done"]));
    (0..BUSY * processors).map(start).collect()
}

/// Number of log lines with that text, on all nodes.
fn count(site: &Site, said: &str) -> Result<usize> {
    let logs: Vec<String> = site.bed.nodes.iter().map(|node| node.log()).collect::<Result<_>>()?;
    Ok(logs.iter().flat_map(|log| log.lines()).filter(|line| line.contains(said)).count())
}
