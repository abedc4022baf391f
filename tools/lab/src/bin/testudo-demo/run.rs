//! One run: two gateways, a tunnel, traffic through it, and what was measured.

use crate::report::{Measured, RunReport};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;
use testudo_lab::capture::Capture;
use testudo_lab::count::Counters;
use testudo_lab::cpu::CpuTime;
use testudo_lab::demo::{Done, Progress};
use testudo_lab::download::Download;
use testudo_lab::files::{self, Sha256};
use testudo_lab::gateway::{Gateway, Kind};
use testudo_lab::iperf::{Direction, IperfServer, Throughput};
use testudo_lab::nginx::Nginx;
use testudo_lab::ping::Ping;
use testudo_lab::swanctl_conf::Connection;
use testudo_lab::topology::{Family, Options, Side};
use testudo_lab::{Error, Lab, Result, Topology};

const UP_LIMIT: Duration = Duration::from_secs(60);
const DOWNLOAD_LIMIT: Duration = Duration::from_secs(90);
/// Data of the echo requests, which must not be readable on the untrusted network.
const MARK: [u8; 8] = *b"in clear";
/// Number of clear packets of each gateway that are shown, if there are any.
const SHOWN_CLEAR: u32 = 10;
const SETUP_PACKETS: u32 = 40;

/// A file to download.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    path: PathBuf,
    sha256: Sha256,
}

/// The files to download, by size; created when first needed.
#[derive(Debug)]
pub(crate) struct Files {
    dir: PathBuf,
    by_size: BTreeMap<u64, Source>,
}

impl Files {
    /// Files in the lab's directory.
    pub(crate) fn of(lab: &Lab) -> Self {
        Self { dir: lab.dir().to_owned(), by_size: BTreeMap::new() }
    }

    fn get(&mut self, size: u64, progress: &mut Progress) -> Result<Source> {
        if let Some(made) = self.by_size.get(&size) {
            return Ok(made.clone());
        }
        let name = format!("random-{}MiB", size >> 20);
        let path = self.dir.join(&name);
        let made = progress.step(&format!("generate {name}"), || {
            let sha256 = files::write_random(&path, size, size)?;
            let said = format!("sha256 {}...", &sha256.0[..16]);
            Ok(Done::saying(Source { path, sha256 }, said))
        })?;
        self.by_size.insert(size, made.clone());
        Ok(made)
    }
}

/// The options of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// The gateway measured, and its peer.
    pub(crate) gateways: [Kind; 2],
    /// Octets to download.
    pub(crate) download: u64,
    /// Length of each iperf3 run.
    pub(crate) iperf: Duration,
}

/// Executes the plan. An error of it goes into the report; only an interruption ends the demo.
pub(crate) fn run(lab: &Lab, files: &mut Files, plan: &Plan, progress: &mut Progress) -> Result<RunReport> {
    let [gateway, peer] = plan.gateways;
    progress.title(&format!("{gateway} to {peer}"))?;
    let mut report = RunReport::new(gateway, peer, plan.download);
    let file = files.get(plan.download, progress)?;
    match Run::start(lab, plan, progress).and_then(|run| run.measure(&file, progress, &mut report.measured)) {
        Err(Error::Interrupted) => return Err(Error::Interrupted),
        Err(error) => {
            progress.complain(&error.to_string())?;
            report.error = Some(error.to_string());
        }
        Ok(()) => {}
    }
    Ok(report)
}

/// A lab with both gateways running. Fields are dropped in this order: daemons before namespaces.
struct Run<'a> {
    gateways: [Gateway; 2],
    nginx: Nginx,
    _iperf: IperfServer,
    clear: Capture,
    setup: Capture,
    counters: Counters,
    topology: Topology,
    plan: &'a Plan,
}

impl<'a> Run<'a> {
    fn start(lab: &Lab, plan: &'a Plan, progress: &mut Progress) -> Result<Self> {
        let topology = progress.step("client - gateway - untrusted - peer - server", || {
            let towards = plan.gateways.map(Kind::offloads_towards);
            Ok(Done::saying(
                Topology::build(lab, &Options { towards, ..Options::default() })?,
                "5 namespaces",
            ))
        })?;
        let (counters, clear, setup) = progress.step("capture on the untrusted network", || {
            let counters = Counters::start(&topology.wire)?;
            let clear = Capture::clear_text(&topology.wire)?;
            Ok(Done::new((counters, clear, Capture::everything(&topology.wire, SETUP_PACKETS)?)))
        })?;
        let (nginx, iperf) = progress.step("nginx and iperf3 on the server", || {
            Ok(Done::new((Nginx::start(&topology.server)?, IperfServer::start(&topology.server)?)))
        })?;
        let gateways = progress.step("gateways, swanctl --load-all on both", || {
            Ok(Done::new(Self::start_gateways(&topology, plan)?))
        })?;
        Ok(Self { gateways, nginx, _iperf: iperf, clear, setup, counters, topology, plan })
    }

    fn start_gateways(topology: &Topology, plan: &Plan) -> Result<[Gateway; 2]> {
        let start = |side: Side| {
            let mut gateway = Gateway::start(plan.gateways[side.index()], topology.gateway(side))?;
            gateway.receive_in_threads()?;
            gateway.swanctl().load(&Connection::of(side, Family::V4).to_string())?;
            Ok(gateway)
        };
        Ok([start(Side::One)?, start(Side::Two)?])
    }

    fn measure(self, file: &Source, progress: &mut Progress, measured: &mut Measured) -> Result<()> {
        self.tunnel(progress, measured)?;
        self.pings(progress, measured)?;
        let before = self.cpu()?;
        let mut gigabits = self.download(file, progress, measured)?;
        gigabits += self.throughput(Direction::Up, progress, &mut measured.iperf_gbps_out)?;
        gigabits += self.throughput(Direction::Down, progress, &mut measured.iperf_gbps_in)?;
        let after = self.cpu()?;
        measured.cpu_s_per_gbit = (after[0] - before[0]).seconds() / gigabits;
        measured.peer_cpu_s_per_gbit = (after[1] - before[1]).seconds() / gigabits;
        measured.list_sas = self.gateways[0].swanctl().list_sas_text()?;
        measured.drops = self.gateways[0].drops()?;
        self.verdict(progress, measured)
    }

    fn tunnel(&self, progress: &mut Progress, measured: &mut Measured) -> Result<()> {
        let swanctl = self.gateways[0].swanctl();
        progress.step("swanctl --initiate --child lab", || {
            swanctl.initiate("lab", UP_LIMIT)?;
            let sas = [swanctl.list_sas()?, self.gateways[1].swanctl().list_sas()?];
            if sas.iter().any(|sas| !sas.iter().any(|sa| sa.is_up())) {
                let found = format!("{sas:?}");
                return Err(Error::unexpected(
                    "swanctl --list-sas",
                    "an established tunnel on both sides",
                    found,
                ));
            }
            Ok(Done::saying((), "established on both sides"))
        })?;
        measured.tunnel_established = true;
        Ok(())
    }

    fn pings(&self, progress: &mut Progress, measured: &mut Measured) -> Result<()> {
        let client = &self.topology.client;
        for family in [Family::V4, Family::V6] {
            progress.step(&format!("ping the server over {family}"), || {
                let pong = Ping::new(Side::Two.host(family)).pattern(MARK).run(client)?;
                measured.ping_sent += pong.sent;
                measured.ping_received += pong.received;
                let mean = pong.mean.map_or(f64::NAN, |mean| mean.as_secs_f64() * 1e3);
                Ok(Done::saying((), format!("{} of {} answered, {mean:.2} ms", pong.received, pong.sent)))
            })?;
        }
        Ok(())
    }

    fn cpu(&self) -> Result<[CpuTime; 2]> {
        Ok([self.gateways[0].cpu()?, self.gateways[1].cpu()?])
    }

    fn download(&self, file: &Source, progress: &mut Progress, measured: &mut Measured) -> Result<f64> {
        self.nginx.link_file(&file.path)?;
        let name = file.path.file_name().unwrap_or_default().to_string_lossy();
        let server = Side::Two.host(Family::V4);
        progress.step(&format!("HTTP download of {name}"), || {
            let download = Download::run(&self.topology.client, server, &name, DOWNLOAD_LIMIT)?;
            measured.download_bytes = download.bytes;
            measured.download_sha256_ok = download.sha256 == file.sha256;
            measured.download_gbps = download.gbps();
            let sha256 = if measured.download_sha256_ok { "sha256 right" } else { "sha256 WRONG" };
            Ok(Done::saying(download.gigabits(), format!("{:.2} Gb/s, {sha256}", download.gbps())))
        })
    }

    fn throughput(&self, direction: Direction, progress: &mut Progress, gbps: &mut f64) -> Result<f64> {
        let way = match direction {
            Direction::Up => "out, client to server",
            Direction::Down => "in, server to client",
        };
        let server = Side::Two.host(Family::V4);
        progress.step(&format!("iperf3 {way}"), || {
            let run = Throughput::run(&self.topology.client, server, direction, self.plan.iperf, 1)?;
            *gbps = run.gbps();
            let said = format!("{:.2} Gb/s, {} retransmissions", run.gbps(), run.retransmits);
            Ok(Done::saying(run.gigabits(), said))
        })
    }

    /// Reads the instruments, then closes the tunnel: strongSwan sends in clear whatever follows
    /// its end.
    fn verdict(self, progress: &mut Progress, measured: &mut Measured) -> Result<()> {
        progress.step("captures and counters", || {
            let setup = self.setup.stop()?;
            measured.setup = setup.show(SETUP_PACKETS)?;
            measured.ping_data_seen = setup.contains(&MARK)?;
            let captured = self.clear.stop()?;
            measured.clear_packets_shown = captured.show(SHOWN_CLEAR)?;
            measured.capture_lost = captured.lost;
            measured.esp_packets = self.counters.esp_packets()?;
            let clear = captured.packets.max(self.counters.clear_packets()?);
            measured.cleartext_packets = Some(clear);
            Ok(Done::saying((), format!("{} ESP packets, {clear} in clear", measured.esp_packets)))
        })?;
        progress.step("swanctl --terminate --ike lab", || {
            self.gateways[0].swanctl().terminate("lab")?;
            let left = self.gateways[1].swanctl().list_sas()?;
            if left.is_empty() {
                return Ok(Done::saying((), "deleted on both sides"));
            }
            Err(Error::unexpected("swanctl --list-sas on the peer", "nothing", format!("{left:?}")))
        })
    }
}
