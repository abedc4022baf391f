//! What a storm of handshakes costs those whose tunnel is up: TCP through the gateway, with and without the storm.
//!
//! All of it shares the processors of one machine, the swarm too, so the throughput says as much about them as about the
//! gateway. What a gigabit costs the gateway's worker does not.

use super::SetupError;
use super::rig::{connections, limits};
use super::swarm::Swarm;
use super::usage::Cpu;
use serde::Serialize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use testudo_lab::Lab;
use testudo_lab::iperf::{Direction, IperfServer, Throughput};
use testudo_lab::namespace::Offloads;
use testudo_lab::swanctl_conf::Connection;
use testudo_lab::testudo::Testudo;
use testudo_lab::topology::{Family, Options, Side, Topology};

/// Enough streams that the loss of a segment does not idle the path.
const STREAMS: u32 = 4;
/// Initiators that the swarm prepares together.
const BATCH: u32 = 256;
const UP_LIMIT: Duration = Duration::from_secs(15);

/// Forwarding, with and without a storm.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Storm {
    /// Payload of TCP without a storm: the mean of before and after.
    pub(super) quiet_gbps: f64,
    /// And with one.
    pub(super) storm_gbps: f64,
    /// What is left.
    pub(super) ratio: f64,
    /// The storm's strength.
    pub(super) setups_per_s: f64,
    /// Processor time of the worker for a gigabit.
    pub(super) quiet_worker_ms: f64,
    /// And in the storm.
    pub(super) storm_worker_ms: f64,
}

/// One transfer: its rate, and the worker's time for a gigabit.
#[derive(Clone, Copy)]
struct Transfer {
    gbps: f64,
    worker_ms: f64,
}

/// Hosts and gateways with a tunnel between them.
struct Site {
    gateway: Testudo,
    _peer: Testudo,
    _server: IperfServer,
    topology: Topology,
}

/// Measures for so many seconds each: without, with, without.
pub(super) fn measure(seconds: u64, width: usize) -> Result<Storm, SetupError> {
    let mut site = Site::start()?;
    let length = Duration::from_secs(seconds);
    let before = site.transfer(length)?;
    let (storm, rate) = site.transfer_in_storm(length, width)?;
    let after = site.transfer(length)?;
    let mean = |of: fn(&Transfer) -> f64| (of(&before) + of(&after)) / 2.0;
    let quiet_gbps = mean(|transfer| transfer.gbps);
    Ok(Storm {
        quiet_gbps,
        storm_gbps: storm.gbps,
        ratio: storm.gbps / quiet_gbps,
        setups_per_s: rate,
        quiet_worker_ms: mean(|transfer| transfer.worker_ms),
        storm_worker_ms: storm.worker_ms,
    })
}

impl Site {
    fn start() -> Result<Self, SetupError> {
        let lab = Lab::new("storm")?;
        let options = Options { towards: [Offloads::None; 2], ..Options::default() };
        let topology = Topology::build(&lab, &options)?;
        let server = IperfServer::start(&topology.server)?;
        let gateway = Testudo::start_with(topology.gateway(Side::One), &limits())?;
        let peer = Testudo::start(topology.gateway(Side::Two))?;
        let own = Connection::of(Side::One, Family::V4);
        gateway.swanctl().load(&format!("{own}{}", connections()))?;
        peer.swanctl().load(&Connection::of(Side::Two, Family::V4).to_string())?;
        gateway.swanctl().initiate("lab", UP_LIMIT)?;
        Ok(Self { gateway, _peer: peer, _server: server, topology })
    }

    fn worker(&mut self) -> Result<Duration, SetupError> {
        let cpu = Cpu::of(self.gateway.process().pid())?;
        Ok(cpu.threads.get("worker").copied().unwrap_or_default())
    }

    fn transfer(&mut self, length: Duration) -> Result<Transfer, SetupError> {
        let before = self.worker()?;
        let server = Side::Two.host(Family::V4);
        let moved = Throughput::run(&self.topology.client, server, Direction::Up, length, STREAMS)?;
        let used = self.worker()?.saturating_sub(before);
        Ok(Transfer { gbps: moved.gbps(), worker_ms: used.as_secs_f64() * 1e3 / moved.gigabits() })
    }

    /// The transfer, and how many tunnels a second came up meanwhile.
    fn transfer_in_storm(&mut self, length: Duration, width: usize) -> Result<(Transfer, f64), SetupError> {
        let over = AtomicBool::new(false);
        let namespace = self.topology.gateway(Side::One).clone();
        std::thread::scope(|scope| {
            let storm = scope.spawn(|| namespace.enter(|| storm(width, &over)));
            let transfer = self.transfer(length);
            over.store(true, Ordering::Relaxed);
            let rate = storm.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))??;
            Ok((transfer?, rate))
        })
    }
}

/// Tunnels a second, until it is over.
fn storm(width: usize, over: &AtomicBool) -> Result<f64, SetupError> {
    let mut swarm = Swarm::open()?;
    let (start, mut up) = (Instant::now(), 0);
    while !over.load(Ordering::Relaxed) {
        let initiators = swarm.prepare(up..up + BATCH)?;
        swarm.run(initiators, width)?;
        up += BATCH;
    }
    Ok(f64::from(up) / start.elapsed().as_secs_f64())
}
