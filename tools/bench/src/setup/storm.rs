//! What a storm of handshakes costs those whose tunnel is up: TCP through the gateway, with and
//! without the storm.
//!
//! All of it shares the processors of one machine, the swarm too, so the throughput says as much
//! about them as about the gateway. What a gigabit costs the gateway's worker does not.

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

/// Enough streams that the loss of a segment does not idle the path.
const STREAMS: u32 = 4;
/// Initiators that are ready before the clock starts, and kept ready by a thread of their own:
/// making keys is not the storm's business.
const READY: usize = 4096;
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
    /// Share of the time in which as many handshakes were under way as there should be.
    pub(super) at_full_width: f64,
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

    /// The transfer, and what the storm came to meanwhile.
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
            // Whether it is full or has failed: the supply goes on, or tells why not.
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

/// Keeps initiators ready until nobody takes them any more; says when the channel has been filled
/// once.
fn supply(prepared: &SyncSender<(u32, Initiator)>, full: &Sender<()>) -> Result<(), BenchError> {
    let template = Template::new(Shape::OneForAll, Place::LOOPBACK)?;
    for number in 0.. {
        let initiator = (number, Initiator::new(&template, number)?);
        match prepared.try_send(initiator) {
            Ok(()) => {}
            Err(TrySendError::Disconnected(_)) => break,
            Err(TrySendError::Full(initiator)) => {
                // Who is not interested any more has heard it.
                let _ = full.send(());
                if prepared.send(initiator).is_err() {
                    break;
                }
            }
        }
    }
    Ok(())
}
