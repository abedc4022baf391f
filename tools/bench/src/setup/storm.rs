//! The effect of a storm of handshakes on established tunnels: TCP through the gateway, with and
//! without the storm.
//!
//! Everything shares the processors of one machine, including the swarm, so that the throughput
//! depends on them too. The processor time of the gateway's worker per gigabit does not.

use super::initiator::{Initiator, Place, Template};
use super::rig::{connections, limits};
use super::shape::Shape;
use super::swarm::{Stretch, Swarm};
use super::usage::Cpu;
use crate::error::BenchError;
use serde::Serialize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender, SyncSender, TrySendError};
use std::time::Duration;
use testudo_lab::Lab;
use testudo_lab::iperf::{Direction, IperfServer, Throughput};
use testudo_lab::namespace::Offloads;
use testudo_lab::swanctl_conf::Connection;
use testudo_lab::testudo::Testudo;
use testudo_lab::topology::{Family, Options, Side, Topology};
use testudo_terminal::progress::Progress;

/// Enough streams that a lost segment does not idle the path.
const STREAMS: u32 = 4;
/// Initiators that are prepared before the measurement, and then by a separate thread: making keys
/// is not part of the storm.
const READY: usize = 4096;
const UP_LIMIT: Duration = Duration::from_secs(60);

/// Forwarding, with and without a storm.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Storm {
    /// TCP payload without a storm: the mean of before and after.
    pub(super) quiet_gbps: f64,
    /// TCP payload with a storm.
    pub(super) storm_gbps: f64,
    /// The quotient.
    pub(super) ratio: f64,
    /// Setups per second in the storm.
    pub(super) setups_per_s: f64,
    /// Fraction of the time in which the intended number of handshakes was in progress.
    pub(super) at_full_width: f64,
    /// Processor time of the worker per gigabit.
    pub(super) quiet_worker_ms: f64,
    /// The same in the storm.
    pub(super) storm_worker_ms: f64,
}

/// One transfer: its rate, and the worker's time per gigabit.
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

/// Measures for that many seconds each: without, with, without.
pub(super) fn measure(seconds: u64, width: usize, progress: &Progress) -> Result<Storm, BenchError> {
    progress.begin("setup: starting two gateways", 0);
    let mut site = Site::start()?;
    let length = Duration::from_secs(seconds);
    progress.begin("setup: TCP without a storm of handshakes", 3);
    let before = site.transfer(length)?;
    progress.step();
    progress.doing("setup: TCP in a storm of handshakes");
    let (storm, stretch) = site.transfer_in_storm(length, width)?;
    progress.step();
    progress.doing("setup: TCP without a storm again");
    let after = site.transfer(length)?;
    let mean = |of: fn(&Transfer) -> f64| (of(&before) + of(&after)) / 2.0;
    let quiet_gbps = mean(|transfer| transfer.gbps);
    Ok(Storm {
        quiet_gbps,
        storm_gbps: storm.gbps,
        ratio: storm.gbps / quiet_gbps,
        setups_per_s: f64::from(stretch.up) / stretch.time.as_secs_f64(),
        at_full_width: stretch.at_full_width.as_secs_f64() / stretch.time.as_secs_f64(),
        quiet_worker_ms: mean(|transfer| transfer.worker_ms),
        storm_worker_ms: storm.worker_ms,
    })
}

impl Site {
    fn start() -> Result<Self, BenchError> {
        let lab = Lab::new("storm")?;
        let options = Options { towards: [Offloads::None; 2], ..Options::default() };
        let topology = Topology::build(&lab, &options)?;
        let server = IperfServer::start(&topology.server)?;
        let gateway = Testudo::start_with(topology.gateway(Side::One), &limits())?;
        let peer = Testudo::start(topology.gateway(Side::Two))?;
        let own = Connection::of(Side::One, Family::V4);
        gateway.swanctl().load(&format!("{own}{}", connections(Shape::OneForAll, 0, &Place::LOOPBACK)))?;
        peer.swanctl().load(&Connection::of(Side::Two, Family::V4).to_string())?;
        gateway.swanctl().initiate("lab", UP_LIMIT)?;
        Ok(Self { gateway, _peer: peer, _server: server, topology })
    }

    fn worker(&mut self) -> Result<Duration, BenchError> {
        let cpu = Cpu::of(self.gateway.process().pid())?;
        Ok(cpu.threads.get("worker").copied().unwrap_or_default())
    }

    fn transfer(&mut self, length: Duration) -> Result<Transfer, BenchError> {
        let before = self.worker()?;
        let server = Side::Two.host(Family::V4);
        let moved = Throughput::run(&self.topology.client, server, Direction::Up, length, STREAMS)?;
        let used = self.worker()?.saturating_sub(before);
        Ok(Transfer { gbps: moved.gbps(), worker_ms: used.as_secs_f64() * 1e3 / moved.gigabits() })
    }

    /// The transfer, and the storm's figures.
    fn transfer_in_storm(
        &mut self,
        length: Duration,
        width: usize,
    ) -> Result<(Transfer, Stretch), BenchError> {
        let over = AtomicBool::new(false);
        let namespace = self.topology.gateway(Side::One).clone();
        let (prepared, ready) = mpsc::sync_channel(READY);
        let (full, is_full) = mpsc::channel();
        std::thread::scope(|scope| {
            let supply = scope.spawn(move || supply(&prepared, &full));
            // Either it is full or it has failed: then the supply reports the reason.
            let _ = is_full.recv();
            let over = &over;
            let storm = scope.spawn(move || {
                namespace.enter(move || {
                    Swarm::open(Shape::OneForAll, Place::LOOPBACK)?.run_until(&ready, width, over)
                })
            });
            let transfer = self.transfer(length);
            over.store(true, Ordering::Relaxed);
            let stretch = storm.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            supply.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            Ok((transfer?, stretch?))
        })
    }
}

/// Prepares initiators until no one takes them any more; reports when the channel was filled for
/// the first time.
fn supply(prepared: &SyncSender<(u32, Initiator)>, full: &Sender<()>) -> Result<(), BenchError> {
    let template = Template::new(Shape::OneForAll, Place::LOOPBACK)?;
    for number in 0.. {
        let initiator = (number, Initiator::new(&template, number)?);
        match prepared.try_send(initiator) {
            Ok(()) => {}
            Err(TrySendError::Disconnected(_)) => break,
            Err(TrySendError::Full(initiator)) => {
                // The receiver may be gone after the first report.
                let _ = full.send(());
                if prepared.send(initiator).is_err() {
                    break;
                }
            }
        }
    }
    Ok(())
}
