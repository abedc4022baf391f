//! Two gateways with a tunnel that carries traffic, and an attacker between them.

use super::alarms::Alarms;
use super::attack::Attack;
use crate::error::BenchError;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};
use testudo_lab::capture::Capture;
use testudo_lab::frames::{Random, Road};
use testudo_lab::inject::Injector;
use testudo_lab::namespace::Offloads;
use testudo_lab::ping::Ping;
use testudo_lab::swanctl_conf::Connection;
use testudo_lab::testudo::Testudo;
use testudo_lab::topology::{BRIDGE, Family, OUTER, Options, Side, WIRE_PORTS};
use testudo_lab::{Error, Lab, Namespace, Topology};

const LIMIT: Duration = Duration::from_secs(60);
/// An attack that is not noticed by then is not noticed.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two parts of an attack.
const BETWEEN: Duration = Duration::from_millis(20);
/// Between two packets of the traffic.
const INTERVAL: Duration = Duration::from_millis(2);
/// Packets that the attacker keeps on their way, to send them in another order.
const HELD: u16 = 1024;
const SPIED: u32 = 40;

/// What the attacker knows.
pub(super) struct Spied {
    /// To the gateway that is attacked, as if from its peer.
    pub(super) road: Road,
    /// Of the SA towards it.
    pub(super) spi: u32,
    pub(super) ike_spis: (u64, u64),
    /// Packets of the SA towards it.
    pub(super) theirs: Vec<Vec<u8>>,
    /// Packets that it has sent.
    pub(super) ours: Vec<Vec<u8>>,
    /// The attacker's MAC address.
    pub(super) thief: [u8; 6],
    /// Packets that have not arrived yet.
    pub(super) held: Vec<Vec<u8>>,
}

pub(super) struct Site {
    t: Topology,
    daemons: [Testudo; 2],
    alarms: Alarms,
    traffic: Traffic,
    injector: Injector,
    random: Random,
}

impl Site {
    pub(super) fn start(lab: &Lab) -> Result<Self, BenchError> {
        let t = Topology::build(lab, &Options { towards: [Offloads::None; 2], ..Options::default() })?;
        let start = |side: Side| {
            let testudod = Testudo::start(t.gateway(side))?;
            testudod.swanctl().load(&Connection::of(side, Family::V4).to_string())?;
            Ok::<_, Error>(testudod)
        };
        let daemons = [start(Side::One)?, start(Side::Two)?];
        daemons[1].swanctl().initiate("lab", LIMIT)?;
        // While its packets are held back, the peer does not notice that nobody answers.
        neighbour(&t.gw2, Side::One, t.gw1.mac(OUTER)?, "permanent")?;
        let alarms = Alarms::listen(daemons[0].socket())?;
        let traffic = Traffic::start(&t.server);
        let injector = Injector::open(&t.wire, WIRE_PORTS[0])?;
        Ok(Self { t, daemons, alarms, traffic, injector, random: Random::new(1) })
    }

    /// The time from the first frame of an attack to the alarm, in seconds.
    pub(super) fn time(&mut self, attack: Attack) -> Result<Option<f64>, BenchError> {
        self.alarms.await_end(attack.alarm())?;
        let mut spied = self.spy()?;
        if attack.is_alone() {
            self.traffic.pause();
        }
        if attack == Attack::Reorder {
            spied.held = self.hold()?;
        }
        let begun = Instant::now();
        let mut found = None;
        for number in 0.. {
            for frame in attack.part(number, &spied, &mut self.random) {
                self.injector.send(&frame)?;
            }
            found = self.alarms.raised(attack.alarm(), BETWEEN)?;
            if found.is_some() || begun.elapsed() > PATIENCE {
                break;
            }
        }
        match attack {
            Attack::Reorder => {
                self.t.wire.ip(&format!("link set {} master {BRIDGE}", WIRE_PORTS[0])).map(drop)?
            }
            Attack::Steal => neighbour(&self.t.gw1, Side::Two, self.t.gw2.mac(OUTER)?, "reachable")?,
            _ => {}
        }
        self.traffic.go_on();
        Ok(found.map(|at| at.saturating_duration_since(begun).as_secs_f64()))
    }

    /// Packets of the traffic and of its answers, as they cross the untrusted network.
    fn spy(&self) -> Result<Spied, BenchError> {
        let taps = [WIRE_PORTS[1], WIRE_PORTS[0]].map(|port| Capture::esp(&self.t.wire, port, SPIED));
        Ping::new(Side::Two.host(Family::V4)).run(&self.t.client)?;
        let [theirs, ours] = taps.map(|tap| {
            let tap = tap?;
            tap.await_packets(SPIED as usize, LIMIT)?;
            tap.stop()?.frames()
        });
        let (theirs, ours) = (theirs?, ours?);
        let none = || Error::unexpected("a capture of ESP", "packets with an SPI", "none");
        let spi = theirs.first().and_then(|frame| frame.get(34..38)?.try_into().ok()).ok_or_else(none)?;
        let sas = self.daemons[0].swanctl().list_sas()?;
        let ike_spi = |key: &str| {
            let text = sas.first().and_then(|sa| sa.get(key)).unwrap_or_default();
            u64::from_str_radix(text, 16).unwrap_or_default()
        };
        Ok(Spied {
            road: Road::to(Side::One, Family::V4, self.t.gw1.mac(OUTER)?),
            spi: u32::from_be_bytes(spi),
            ike_spis: (ike_spi("initiator-spi"), ike_spi("responder-spi")),
            theirs,
            ours,
            thief: self.injector.address(),
            held: Vec::new(),
        })
    }

    /// Lets packets of the peer come as far as the untrusted network, and keeps them there.
    fn hold(&self) -> Result<Vec<Vec<u8>>, BenchError> {
        self.t.wire.ip(&format!("link set {} nomaster", WIRE_PORTS[0]))?;
        let tap = Capture::esp(&self.t.wire, WIRE_PORTS[1], HELD.into())?;
        let quick = Duration::from_millis(1);
        let ping = Ping::new(Side::One.host(Family::V4)).count(HELD + HELD / 8);
        Ping { interval: quick, patience: quick, ..ping }.run(&self.t.server)?;
        tap.await_packets(HELD.into(), LIMIT)?;
        Ok(tap.stop()?.frames()?)
    }
}

/// Says to a host where a gateway is.
fn neighbour(host: &Namespace, side: Side, mac: [u8; 6], state: &str) -> Result<(), BenchError> {
    let mac = mac.map(|octet| format!("{octet:02x}")).join(":");
    let address = side.outer(Family::V4);
    host.ip(&format!("neighbour replace {address} lladdr {mac} dev {OUTER} nud {state}"))?;
    Ok(())
}

/// Pings through the tunnel, from the peer's side.
struct Traffic {
    wanted: Arc<AtomicBool>,
    flows: Arc<AtomicBool>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Traffic {
    fn start(server: &Namespace) -> Self {
        let (wanted, flows, over) = (Arc::new(AtomicBool::new(true)), Arc::default(), Arc::default());
        let server = server.clone();
        let thread = {
            let (wanted, flows, over) = (Arc::clone(&wanted), Arc::clone(&flows), Arc::clone(&over));
            spawn(move || flow(&server, &wanted, &flows, &over))
        };
        Self { wanted, flows, over, thread: Some(thread) }
    }

    /// Returns when none is under way.
    fn pause(&self) {
        self.wanted.store(false, Ordering::SeqCst);
        while self.flows.load(Ordering::SeqCst) {
            sleep(INTERVAL);
        }
    }

    fn go_on(&self) {
        self.wanted.store(true, Ordering::SeqCst);
    }
}

fn flow(server: &Namespace, wanted: &AtomicBool, flows: &AtomicBool, over: &AtomicBool) {
    let ping = Ping { interval: INTERVAL, patience: 4 * INTERVAL, ..Ping::new(Side::One.host(Family::V4)) };
    while !over.load(Ordering::SeqCst) {
        flows.store(true, Ordering::SeqCst);
        // A ping that fails is no traffic, and whoever spies then waits in vain and says so.
        if !wanted.load(Ordering::SeqCst) || ping.clone().count(50).run(server).is_err() {
            flows.store(false, Ordering::SeqCst);
            sleep(INTERVAL);
        }
    }
    flows.store(false, Ordering::SeqCst);
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
    }
}
