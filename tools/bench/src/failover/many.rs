//! Very many tunnels: any node lists all of them, and a node that has lost its memory is
//! synchronized while traffic flows.

use super::FailoverArgs;
use super::site::{NODES, Places, Site};
use crate::error::BenchError;
use crate::figures::{Aim, Row};
use crate::setup::shape::Shape;
use crate::setup::swarm::{Ended, Swarm};
use std::thread::sleep;
use std::time::{Duration, Instant};
use testudo_lab::bed::{Bed, Failure};
use testudo_lab::gateway::Kind;
use testudo_lab::probe::Probe;
use testudo_lab::stats::Statistics;
use testudo_lab::{Error, Result};
use testudo_terminal::progress::Progress;
use testudo_vici::client::Client;
use testudo_vici::message::Message;

/// Limit for the setups.
const SETUP_LIMIT: Duration = Duration::from_secs(1800);
/// Limit for a node to have the whole state.
const REJOIN_LIMIT: Duration = Duration::from_secs(120);
/// Limit for one part of an answer.
const READ_LIMIT: Duration = Duration::from_secs(30);
/// How often a node is asked whether it has the whole state.
const LOOK: Duration = Duration::from_millis(50);
/// Traffic without a failure, for comparison.
const CALM: Duration = Duration::from_secs(5);
/// Traffic before a failure.
const BEFORE: Duration = Duration::from_millis(500);

#[derive(Default)]
struct Measured {
    list: Vec<f64>,
    /// The same for a client that only reads.
    read: Vec<f64>,
    rejoin: Vec<f64>,
    /// The 99th percentile of the probe's delay, in milliseconds: undisturbed, while the node is
    /// synchronized, and the ratio.
    calm: Vec<f64>,
    busy: Vec<f64>,
    ratio: Vec<f64>,
    lost: Vec<f64>,
    /// The longest silence of the probe when its node dies, in milliseconds, and the losses.
    silence: Vec<f64>,
    killed: Vec<f64>,
    /// IKE SAs that were replaced.
    renewed: Vec<f64>,
    /// Octets per tunnel that the nodes have sent to each other on their link.
    octets: Vec<f64>,
}

pub(super) fn measure(args: &FailoverArgs, progress: &Progress) -> std::result::Result<Vec<Row>, BenchError> {
    let mut site = Site::start(Kind::Strongswan)?;
    site.bed.bring_up(1)?;
    let across = site.across().clone();
    let up = across.enter(|| -> std::result::Result<usize, BenchError> {
        let mut swarm = Swarm::open(Shape::OneForAll, Places::CLUSTER)?;
        let initiators = swarm.prepare(0..args.tunnels)?;
        // Nothing is measured yet.
        progress.begin("failover, many: setting tunnels up", args.tunnels.into());
        let look = |ended: &Ended| {
            progress.reach(ended.done.len() as u64);
            Ok::<_, BenchError>(())
        };
        Ok(swarm.follow(initiators, args.width as usize, SETUP_LIMIT, look)?.done.len())
    })??;
    progress.begin("failover, many", args.repeats.into());
    // Pending work of the setups does not count.
    sleep(CALM);
    let mut measured = Measured::default();
    for repeat in 0..args.repeats {
        let asked = (repeat % u32::from(NODES) + 1) as u8;
        measured.list.push(list(&site.bed, asked, up)?);
        measured.read.push(read(&site.bed, asked, up)?);
        let node = site.bed.owner(1)?;
        measured.death(&mut site, node)?;
        measured.rejoin(&mut site, node, up)?;
        progress.step();
    }
    Ok(measured.rows(up))
}

/// Seconds in which swanctl lists all tunnels of all nodes.
fn list(bed: &Bed, node: u8, up: usize) -> Result<f64> {
    let swanctl = bed.nodes[usize::from(node) - 1].swanctl();
    let begun = Instant::now();
    let shown = swanctl.run(["--list-sas"])?.stdout;
    let took = begun.elapsed().as_secs_f64();
    let found = shown.lines().filter(|line| line.contains(", ESTABLISHED, IKEv2")).count();
    if_all("swanctl --list-sas", up, found, took)
}

/// The time, if all tunnels were found, including the first one.
fn if_all(what: &str, up: usize, found: usize, took: f64) -> Result<f64> {
    match found > up {
        true => Ok(took),
        false => Err(Error::unexpected(what, format!("{} tunnels", up + 1), found.to_string())),
    }
}

/// Seconds in which a client reads all tunnels without processing them.
fn read(bed: &Bed, node: u8, up: usize) -> Result<f64> {
    let failed = |error: testudo_vici::Error| Error::unexpected("list-sas", "an answer", error.to_string());
    let mut client = Client::connect(bed.nodes[usize::from(node) - 1].socket()).map_err(failed)?;
    client.set_timeout(Some(READ_LIMIT)).map_err(failed)?;
    let begun = Instant::now();
    let found = client.stream("list-sas", "list-sa", Message::new()).map_err(failed)?.len();
    if_all("list-sas", up, found, begun.elapsed().as_secs_f64())
}

impl Measured {
    /// Kills the node that carries the probe and a third of all tunnels.
    fn death(&mut self, site: &mut Site, node: u8) -> Result<()> {
        let others: Vec<u8> = (1..=NODES).filter(|other| *other != node).collect();
        let seen = delays(&mut site.bed, |bed| {
            sleep(BEFORE);
            bed.strike(node, Failure::Testudod)?;
            bed.await_members(&others)?;
            sleep(CALM);
            Ok(())
        })?;
        self.silence.push(seen.silence);
        self.killed.push(seen.lost as f64);
        Ok(())
    }

    /// Starts the node again.
    fn rejoin(&mut self, site: &mut Site, node: u8, up: usize) -> Result<()> {
        let tunnel = site.bed.tunnel_spi(1)?;
        let calm = delays(&mut site.bed, |_| {
            sleep(CALM);
            Ok(())
        })?;
        let mut took = Duration::ZERO;
        let octets = site.link_octets()?;
        let busy = delays(&mut site.bed, |bed| {
            let begun = Instant::now();
            bed.node(node).restart()?;
            await_all(bed, node, up, begun)?;
            took = begun.elapsed();
            Ok(())
        })?;
        let octets = site.link_octets()? - octets;
        site.bed.await_balance()?;
        self.octets.push(octets as f64 / up as f64);
        self.rejoin.push(took.as_secs_f64());
        self.calm.push(calm.p99);
        self.busy.push(busy.p99);
        self.ratio.push(busy.p99 / calm.p99);
        self.lost.push(busy.lost as f64);
        self.renewed.push(if site.bed.tunnel_spi(1)? == tunnel { 0.0 } else { 1.0 });
        Ok(())
    }

    fn rows(self, up: usize) -> Vec<Row> {
        let at_most = |bound| Aim { max_at_most: Some(bound), ..Aim::default() };
        vec![
            Row::new(format!("swanctl --list-sas of {up} tunnels"), "s", self.list).aim(at_most(3.0)),
            Row::new("the same for a client that only reads", "s", self.read),
            Row::new("the probe's silence when its node dies", "ms", self.silence),
            Row::new("datagrams lost then, both ways", "datagrams", self.killed),
            Row::new("a node's start until it holds all of them", "s", self.rejoin)
                .aim(Aim::median_at_most(5.0)),
            Row::new("what that takes on the nodes' link, a tunnel", "octets", self.octets),
            Row::new("p99 of a datagram's delay, in calm", "ms", self.calm),
            Row::new("the same, while the node is brought up to date", "ms", self.busy),
            Row::new("ratio of the two", "", self.ratio).aim(Aim::median_at_most(2.0)),
            Row::new("datagrams lost meanwhile, both ways", "datagrams", self.lost).aim(Aim::none_above(0.0)),
            Row::new("tunnels with new keys", "tunnels", self.renewed).aim(Aim::none_above(0.0)),
        ]
    }
}

fn await_all(bed: &Bed, node: u8, up: usize, begun: Instant) -> Result<()> {
    loop {
        let shown = bed.nodes[usize::from(node) - 1].cluster()?;
        if shown["synced"] == true && shown["child_sas"].as_u64() > Some(up as u64) {
            return Ok(());
        }
        if begun.elapsed() > REJOIN_LIMIT {
            return Err(Error::unexpected(
                format!("node {node}"),
                "one that holds all tunnels",
                shown.to_string(),
            ));
        }
        sleep(LOOK);
    }
}

/// The observations of the probes' datagrams.
struct Delays {
    /// The 99th percentile of the delay of those that arrived, in milliseconds.
    p99: f64,
    /// The longest silence in either direction, in milliseconds.
    silence: f64,
    lost: u64,
}

fn delays(bed: &mut Bed, happen: impl FnOnce(&mut Bed) -> Result<()>) -> Result<Delays> {
    let probes = bed.probes()?;
    happen(bed)?;
    let (mut all, mut lost, mut silence) = (Vec::new(), 0, 0.0_f64);
    for trace in probes.map(Probe::stop) {
        let trace = trace?;
        let summary = trace.summary();
        lost += summary.lost;
        silence = silence.max(summary.outage.length.as_secs_f64() * 1e3);
        all.extend(trace.delays().filter_map(|(_, delay)| Some(delay?.as_secs_f64() * 1e3)));
    }
    let none = || Error::unexpected("a probe", "datagrams that arrive", "none");
    let p99 = Statistics::of(&all).ok_or_else(none)?.p99;
    Ok(Delays { p99, silence, lost })
}
