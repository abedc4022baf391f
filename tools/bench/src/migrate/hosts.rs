//! Two hosts and a virtual machine that moves between them.

use super::channel::Channel;
use super::row::Link;
use super::tls::{Listener, Tls};
use super::way::Way;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};
use testudo_lab::guest::Migrant;
use testudo_lab::namespace::{Offloads, veth};
use testudo_lab::ping::Ping;
use testudo_lab::topology::{Family, INNER, OUTER, Side};
use testudo_lab::{Error, Lab, Namespace, Result, cpu, wait_until};
use testudo_qmp::Client;

const SIDES: [Side; 2] = [Side::One, Side::Two];
const SECRET: &str = "TheSecretOfTheVirtualMachine";
const LIMIT: Duration = Duration::from_secs(300);
/// An emulated virtual machine has to move in one round (docs/how-to/migrate-vm.md); in
/// milliseconds.
const PAUSE: u64 = 2_000_000;
/// Octets a second: no limit.
const FAST: u64 = 1 << 40;
/// Between two readings of the processor time. /proc counts hundredths of a second.
const SAMPLING: Duration = Duration::from_millis(200);

/// One migration.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trip {
    pub(super) from: Side,
    /// As QEMU has it.
    pub(super) seconds: f64,
    /// Packets that the source has sent.
    pub(super) packets: u64,
    /// Octets that it has sent, with all headers.
    pub(super) octets: u64,
    /// Processor time of each of [`STAGES`].
    pub(super) stage_seconds: [f64; STAGES.len()],
    /// The most processor time at the source in [`SAMPLING`], as a share of one processor.
    pub(super) peak: f64,
}

/// What the memory passes through, in this order. What the kernel does counts for the process in
/// whose time it runs.
pub(super) const STAGES: [&str; 4] =
    ["QEMU at the source", "gateway at the source", "gateway at the destination", "QEMU at the destination"];

/// Two hosts on one wire, with the virtual machine at one of them.
#[derive(Debug)]
pub(super) struct Hosts {
    pub(super) way: Way,
    lab: Lab,
    machines: [Namespace; 2],
    channel: Channel,
    at: Side,
    vm: Migrant,
    /// Of the virtual machine, in MiB.
    memory: u32,
    trips: u32,
    /// Further connections by which QEMU sends memory.
    multifd: u8,
    /// QEMU's own.
    tls: Tls,
    /// The cipher suite of its first migration.
    suite: Option<&'static str>,
    _stub: Namespace,
}

impl Hosts {
    /// Boots the virtual machine at the first host, and stops it there.
    pub(super) fn start(lab: &Lab, way: Way, memory: u32, tls: Tls) -> Result<Self> {
        let role = |number: u8| lab.namespace(&format!("{}{number}", way.letter()));
        let (machines, stub) = ([role(1)?, role(2)?], role(0)?);
        veth(machines[0].end(OUTER), machines[1].end(OUTER))?;
        for (side, machine) in SIDES.into_iter().zip(&machines) {
            machine.up(OUTER, 1500)?;
            machine.address(OUTER, &format!("{}/24", side.outer(Family::V4)))?;
            // Complete frames, as on a wire.
            machine.offloads(OUTER, Offloads::None)?;
            // testudod's second port.
            let end = format!("stub{}", side.index());
            veth(machine.end(INNER), stub.end(&end))?;
            stub.up(&end, 1500)?;
            machine.up(INNER, 1500)?;
        }
        let vm = Migrant::boot_with(&machines[0], "0", SECRET, memory)?;
        execute(&vm, "stop", json!({}))?;
        let (lab, channel) = (lab.clone(), Channel::Bare);
        Ok(Self {
            way,
            lab,
            machines,
            channel,
            at: Side::One,
            vm,
            memory,
            trips: 0,
            multifd: 0,
            tls,
            suite: None,
            _stub: stub,
        })
    }

    /// Opens the channel anew, over a link like this.
    pub(super) fn open(&mut self, link: Link) -> Result<()> {
        let Link { mtu, segment, multifd } = link;
        self.multifd = multifd;
        self.channel = Channel::Bare;
        for machine in &self.machines {
            machine.up(OUTER, mtu)?;
            machine.run("nft", ["flush ruleset"])?;
            if let Some(mss) = segment {
                let rule = format!("tcp flags syn tcp option maxseg size set {mss}");
                let chain = "type filter hook output priority mangle;";
                machine.run("nft", [format!("table inet mss {{ chain out {{ {chain} {rule}\n }}\n }}")])?;
            }
        }
        self.channel = Channel::open(self.way, &self.lab, &self.machines)?;
        Ok(())
    }

    /// The mean round-trip time of pings through the channel, in microseconds.
    pub(super) fn latency(&self, count: u16) -> Result<f64> {
        let interval = Duration::from_millis(2);
        let ping = Ping { interval, ..Ping::new(Side::Two.outer(Family::V4)).count(count) };
        let none = || Error::unexpected("ping", "answers", "none");
        Ok(ping.run(&self.machines[0])?.mean.ok_or_else(none)?.as_secs_f64() * 1e6)
    }

    /// The alarms of both hosts since the channel was opened.
    pub(super) fn alarms(&self) -> Result<u64> {
        self.channel.alarms()
    }

    /// The cipher suite of QEMU's TLS, after a migration.
    pub(super) fn suite(&self) -> Option<&'static str> {
        self.suite
    }

    /// Moves the virtual machine to the other host.
    pub(super) fn trip(&mut self) -> Result<Trip> {
        let (from, to) = (self.at, self.at.other());
        self.trips += 1;
        let name = self.trips.to_string();
        let destination = Migrant::expect_with(&self.machines[to.index()], &name, SECRET, self.memory)?;
        let [connect, listen] = self.channel.ends(to).map(|end| json!({ "uri": format!("tcp:{end}") }));
        self.prepare(&destination, "server")?;
        self.prepare(&self.vm, "client")?;
        execute(&destination, "migrate-incoming", listen)?;
        execute(&self.vm, "cont", json!({}))?;
        let [sender, receiver] = [from, to].map(|side| self.channel.pids(side));
        let stages = [vec![self.vm.pid()], sender, receiver, vec![destination.pid()]];
        let source = &self.machines[from.index()];
        let sent = || -> Result<[u64; 2]> {
            Ok([source.statistic(OUTER, "tx_packets")?, source.statistic(OUTER, "tx_bytes")?])
        };
        let listens = self.way == Way::Tls && self.suite.is_none();
        let listener = listens.then(|| Listener::start(source)).transpose()?;
        let (before, over) = (sent()?, AtomicBool::new(false));
        let (done, usage) = std::thread::scope(|scope| {
            let meter = scope.spawn(|| usage(&stages, &over));
            let done = execute(&self.vm, "migrate", connect).and_then(|_| self.completed());
            over.store(true, Ordering::Relaxed);
            (done, meter.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        });
        let (seconds, after, (stage_seconds, peak)) = (done?, sent()?, usage?);
        if let Some(listener) = listener {
            self.suite = Some(listener.suite()?);
        }
        // It runs there.
        destination.await_counts(LIMIT)?;
        execute(&destination, "stop", json!({}))?;
        (self.vm, self.at) = (destination, to);
        let [packets, octets] = [0, 1].map(|n| after[n] - before[n]);
        Ok(Trip { from, seconds, packets, octets, stage_seconds, peak })
    }

    fn prepare(&self, vm: &Migrant, endpoint: &str) -> Result<()> {
        let multifd = json!([{ "capability": "multifd", "state": self.multifd > 0 }]);
        execute(vm, "migrate-set-capabilities", json!({ "capabilities": multifd }))?;
        let mut parameters = json!({ "max-bandwidth": FAST, "downtime-limit": PAUSE });
        if self.multifd > 0 {
            parameters["multifd-channels"] = self.multifd.into();
        }
        if self.way == Way::Tls {
            // One for each trip: a QEMU that has received sends the next time.
            let id = format!("{endpoint}{}", self.trips);
            execute(vm, "object-add", self.tls.object(&id, endpoint))?;
            parameters["tls-creds"] = id.into();
        }
        execute(vm, "migrate-set-parameters", parameters).map(drop)
    }

    /// Waits for the end of the migration, and returns the seconds that it took. QEMU has that figure
    /// only after it has said that the migration is complete.
    fn completed(&self) -> Result<f64> {
        wait_until("the migration", LIMIT, || {
            let state = execute(&self.vm, "query-migrate", json!({}))?;
            let took = state["total-time"].as_u64().filter(|milliseconds| *milliseconds > 0);
            match (state["status"].as_str(), took) {
                (Some("completed"), Some(milliseconds)) => Ok(Ok(milliseconds as f64 / 1e3)),
                (Some("failed"), _) => Err(Error::unexpected("a migration", "its end", state.to_string())),
                _ => Ok(Err(state.to_string())),
            }
        })
    }
}

fn execute(vm: &Migrant, command: &str, arguments: Value) -> Result<Value> {
    let answer =
        Client::connect(vm.monitor(), LIMIT).and_then(|mut client| client.execute(command, arguments));
    answer.map_err(|error| Error::unexpected("QEMU", format!("an answer to {command}"), error.to_string()))
}

/// Processor time of each stage until the end, and the most of the first two, which are at the
/// source, between two readings, as a share of one processor.
fn usage(stages: &[Vec<u32>; STAGES.len()], over: &AtomicBool) -> Result<([f64; STAGES.len()], f64)> {
    let of_stage = |pids: &Vec<u32>| -> Result<f64> {
        Ok(pids.iter().map(|pid| cpu::of_tree(*pid)).sum::<Result<cpu::CpuTime>>()?.seconds())
    };
    let all = || -> Result<[f64; STAGES.len()]> {
        let mut times = [0.0; STAGES.len()];
        for (time, pids) in times.iter_mut().zip(stages) {
            *time = of_stage(pids)?;
        }
        Ok(times)
    };
    let at_source = |times: &[f64; STAGES.len()]| times[0] + times[1];
    let (begin, first) = (Instant::now(), all()?);
    let (mut at, mut last, mut peak) = (begin, first, 0.0_f64);
    loop {
        sleep(SAMPLING);
        let ends = over.load(Ordering::Relaxed);
        let (now, used) = (Instant::now(), all()?);
        peak = peak.max((at_source(&used) - at_source(&last)) / (now - at).as_secs_f64());
        (at, last) = (now, used);
        if ends {
            return Ok((std::array::from_fn(|stage| last[stage] - first[stage]), peak));
        }
    }
}
