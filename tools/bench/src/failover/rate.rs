//! Setups with replication: the cost for the node that answers, for those that keep its state, and
//! for a gateway that is not in a cluster.
//!
//! Handshakes go to one node at a time: the benchmark knows the key by which they find their home.
//! So the costs of the owner and of the others can be separated. The daemons' idle usage is
//! subtracted.

use super::FailoverArgs;
use super::site::{NODES, Places, Site};
use crate::error::BenchError;
use crate::figures::{Aim, Row};
use crate::setup::initiator::Initiator;
use crate::setup::shape::Shape;
use crate::setup::swarm::Swarm;
use crate::setup::usage::Cpu;
use std::collections::VecDeque;
use std::thread::sleep;
use std::time::{Duration, Instant};
use testudo_lab::gateway::Kind;
use testudo_terminal::progress::Progress;

/// How long the idle daemons are measured, before the setups.
const IDLE: Duration = Duration::from_secs(5);
/// More initiators than needed are prepared, because their homes are random.
const PREPARED: u32 = 64;

/// Processor time by node, and messages.
struct Used {
    nodes: Vec<Duration>,
    corosyncs: Vec<Duration>,
    messages: u64,
    octets: u64,
    time: Duration,
}

struct Reading {
    nodes: Vec<Cpu>,
    corosyncs: Vec<Cpu>,
    messages: u64,
    octets: u64,
    at: Instant,
}

/// The measurements of each repeat.
#[derive(Default)]
struct Figures {
    owner_ms: Vec<f64>,
    holder_ms: Vec<f64>,
    lone_ms: Vec<f64>,
    corosync_ms: Vec<f64>,
    messages: Vec<f64>,
    octets: Vec<f64>,
    rate: Vec<f64>,
    lone_rate: Vec<f64>,
    ratio: Vec<f64>,
}

pub(super) fn measure(args: &FailoverArgs, progress: &Progress) -> Result<Vec<Row>, BenchError> {
    let mut site = Site::start(Kind::Strongswan)?;
    let across = site.across().clone();
    let before = read(&mut site)?;
    let lone_before = site.lone_cpu()?;
    sleep(IDLE);
    let idle = used(&mut site, &before)?;
    let lone_idle = site.lone_cpu()?.since(&lone_before).total.as_secs_f64() / idle.time.as_secs_f64();
    let mut figures = Figures::default();
    across.enter(|| -> Result<(), BenchError> {
        let mut swarms =
            [Swarm::open(Shape::OneForAll, Places::CLUSTER)?, Swarm::open(Shape::OneForAll, Places::LONE)?];
        let mut supply = Supply::new();
        progress.begin("failover, rate", args.repeats.into());
        for repeat in 0..args.repeats {
            let owner = repeat % u32::from(NODES) + 1;
            let ready = supply.take(&site, &swarms[0], owner, args.setups)?;
            let ready_alone = swarms[1].prepare(args.setups * repeat..args.setups * (repeat + 1))?;
            let before = read(&mut site)?;
            let round = swarms[0].run(ready, args.width as usize)?;
            let used = used(&mut site, &before)?;
            figures.add(&used, &idle, owner, args.setups, round.time);

            let before = (site.lone_cpu()?, Instant::now());
            let round = swarms[1].run(ready_alone, args.width as usize)?;
            let cpu = site.lone_cpu()?.since(&before.0).total.as_secs_f64();
            let taken_off = lone_idle * before.1.elapsed().as_secs_f64();
            figures.add_lone(cpu - taken_off, args.setups, round.time);
            progress.step();
        }
        Ok(())
    })??;
    Ok(figures.rows())
}

impl Figures {
    fn add(&mut self, used: &Used, idle: &Used, owner: u32, setups: u32, time: Duration) {
        let per_setup = |used_by: Duration, idles: Duration| {
            let taken_off = idles.as_secs_f64() * used.time.as_secs_f64() / idle.time.as_secs_f64();
            (used_by.as_secs_f64() - taken_off) * 1e3 / f64::from(setups)
        };
        let of_nodes: Vec<f64> = used.nodes.iter().zip(&idle.nodes).map(|(u, i)| per_setup(*u, *i)).collect();
        let of_corosyncs = used.corosyncs.iter().zip(&idle.corosyncs).map(|(u, i)| per_setup(*u, *i));
        let all: f64 = of_nodes.iter().sum();
        let of_owner = of_nodes.get(owner as usize - 1).copied().unwrap_or(f64::NAN);
        self.owner_ms.push(of_owner);
        self.holder_ms.push((all - of_owner) / (of_nodes.len() as f64 - 1.0));
        self.corosync_ms.push(of_corosyncs.sum::<f64>() / of_nodes.len() as f64);
        self.messages.push(used.messages as f64 / f64::from(setups));
        let idle_octets = idle.octets as f64 * used.time.as_secs_f64() / idle.time.as_secs_f64();
        self.octets.push((used.octets as f64 - idle_octets) / f64::from(setups));
        self.rate.push(f64::from(setups) / time.as_secs_f64());
    }

    /// Always after [`Self::add`]: the two are compared, so they must run under the same
    /// conditions.
    fn add_lone(&mut self, seconds: f64, setups: u32, time: Duration) {
        let lone = seconds * 1e3 / f64::from(setups);
        self.lone_ms.push(lone);
        self.lone_rate.push(f64::from(setups) / time.as_secs_f64());
        self.ratio.extend(self.owner_ms.last().map(|owner| lone / owner * 100.0));
    }

    fn rows(self) -> Vec<Row> {
        let aim = Aim::median_at_least(60.0);
        vec![
            Row::new("CPU of a setup alone, of that at its owner", "%", self.ratio).aim(aim),
            Row::new("setups per second by the wall clock: all at one owner", "1/s", self.rate),
            Row::new("setups per second by the wall clock: alone", "1/s", self.lone_rate),
            Row::new("CPU of a setup: owner", "ms", self.owner_ms),
            Row::new("CPU of a setup: each other node", "ms", self.holder_ms),
            Row::new("CPU of a setup: corosync, each node", "ms", self.corosync_ms),
            Row::new("CPU of a setup: alone", "ms", self.lone_ms),
            Row::new("CPG messages of a setup", "messages", self.messages),
            Row::new("octets on the cluster's link for a setup, all nodes", "octets", self.octets),
        ]
    }
}

/// Initiators by their home.
struct Supply {
    next: u32,
    by_home: Vec<VecDeque<(u32, Initiator)>>,
}

impl Supply {
    fn new() -> Self {
        Self { next: 0, by_home: (0..NODES).map(|_| VecDeque::new()).collect() }
    }

    fn take(
        &mut self,
        site: &Site,
        swarm: &Swarm,
        home: u32,
        count: u32,
    ) -> Result<Vec<(u32, Initiator)>, BenchError> {
        let home = home as usize - 1;
        while self.by_home[home].len() < count as usize {
            for (number, initiator) in swarm.prepare(self.next..self.next + PREPARED)? {
                if let Some(node) = site.homes.node(&initiator) {
                    self.by_home[node as usize - 1].push_back((number, initiator));
                }
            }
            self.next += PREPARED;
        }
        Ok(self.by_home[home].drain(..count as usize).collect())
    }
}

fn read(site: &mut Site) -> Result<Reading, BenchError> {
    Ok(Reading {
        messages: site.delivered()?,
        octets: site.link_octets()?,
        nodes: site.nodes_cpu()?,
        corosyncs: site.corosyncs_cpu()?,
        at: Instant::now(),
    })
}

fn used(site: &mut Site, before: &Reading) -> Result<Used, BenchError> {
    let now = read(site)?;
    let since = |now: &[Cpu], before: &[Cpu]| now.iter().zip(before).map(|(n, b)| n.since(b).total).collect();
    Ok(Used {
        nodes: since(&now.nodes, &before.nodes),
        corosyncs: since(&now.corosyncs, &before.corosyncs),
        messages: now.messages.saturating_sub(before.messages),
        octets: now.octets.saturating_sub(before.octets),
        time: now.at - before.at,
    })
}
