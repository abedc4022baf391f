//! `testudo.toml`: what strongSwan has no word for. Connections live in `swanctl.conf`.
//!
//! A file is taken whole or refused whole, before anything changes.

mod alarms;
mod cluster;
mod spread;

pub(crate) use cluster::ClusterSettings;
#[cfg(test)]
pub(crate) use cluster::{ClusterMac, NodeSettings, Timers};

use crate::error::Error;
use crate::log::{LogFormat, LogSettings};
use crate::queue_assignment::MIN_RING_ENTRIES;
use crate::reader::{ConfigError, Section, Source};
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;
use testudo_alarms::Rules;
use testudo_base::lane::Spread;
use testudo_fastpath::frame::{FrameMemory, JUMBO_MTU};
use testudo_fastpath::port::xdp::RING_ENTRIES;
use testudo_fastpath::worker::Sharing;
use testudo_ike::endpoint::EndpointConfig;
use testudo_wire::ipv6;

/// All settings of the daemon.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Config {
    /// The file that they come from.
    pub(crate) file: PathBuf,
    /// Names the pins, the TUN and the log lines of this gateway.
    pub(crate) instance: String,
    /// Connections may name weak algorithms too.
    pub(crate) legacy: bool,
    /// Where `swanctl` and `testudo status` connect.
    pub(crate) vici_socket: PathBuf,
    /// What is logged, and how.
    pub(crate) log: LogSettings,
    /// Interfaces that carry packets to and from workers.
    pub(crate) ports: Vec<PortConfig>,
    /// The worker threads.
    pub(crate) worker: WorkerSettings,
    /// The slow path's interface.
    pub(crate) tun: String,
    /// The key exchange daemon.
    pub(crate) ike: IkeSettings,
    /// The cluster, if there is one.
    pub(crate) cluster: Option<ClusterSettings>,
    /// Connections that are spread over its nodes.
    pub(crate) spread: BTreeMap<String, Spread>,
    /// How many numbers the smallest replay window of their peers holds.
    pub(crate) peer_window: u64,
    /// What the watch judges by; `None`: there is none.
    pub(crate) alarms: Option<Rules>,
}

/// `[[port]]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PortConfig {
    /// Name of the interface.
    pub(crate) interface: String,
    /// How the filter attaches.
    pub(crate) mode: XdpMode,
    /// Protect only what comes from where the route to its source leads (RFC 3704 §2.2).
    pub(crate) source_check: bool,
    /// What is done about checksums that a neighbour has left open.
    pub(crate) checksum: Checksum,
    /// Decrypted packets may leave in clear by the default route of this port, though their peer is
    /// reached by it too.
    pub(crate) clear_by_default: bool,
    /// The MTU that the interface is given. `None`: it keeps its own.
    pub(crate) mtu: Option<PortMtu>,
    /// File, line and key that name the interface, for complaints about it.
    pub(crate) place: String,
}

/// `port.mtu`
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PortMtu {
    pub(crate) octets: u16,
    /// File, line and key, for complaints about it.
    pub(crate) place: String,
}

/// Where on the receive path the filter runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum XdpMode {
    /// In the driver.
    Native,
    /// In the stack, for drivers without XDP; slower.
    Generic,
}

/// What is done about checksums that a neighbour has left to a virtual device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Checksum {
    /// Filled in where the port's driver may hand such packets over.
    Auto,
    /// Filled in.
    Fill,
    /// Nothing.
    Trust,
}

/// `[worker]`
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct WorkerSettings {
    /// How many workers there are. `None`: one.
    pub(crate) count: Option<usize>,
    /// Processors to run on, one for each worker. Empty: the scheduler decides.
    pub(crate) cpus: Vec<usize>,
    /// Cipher library.
    pub(crate) cipher: Cipher,
    /// Frames in each worker's pool.
    pub(crate) frames: u32,
    /// Entries of each ring of a port: a power of two.
    pub(crate) ring: u32,
    /// How far workers come before other threads of the machine.
    pub(crate) priority: u8,
    /// How long an idle worker polls its ports before it sleeps.
    pub(crate) busy_poll: Duration,
    /// How workers share the packets of one flow.
    pub(crate) sharing: Sharing,
}

/// Which cipher library carries ESP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cipher {
    /// The fastest one on this machine.
    Auto,
    /// intel-ipsec-mb.
    IpsecMb,
    /// aws-lc-rs.
    AwsLc,
}

/// `[ike]`
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct IkeSettings {
    /// First retransmission after this long; each next one after 1.8 times as long.
    pub(crate) retransmit_timeout: Duration,
    /// Retransmissions before the peer counts as dead.
    pub(crate) retransmit_tries: u32,
    /// Silence after which a NAT in front of us is reminded of its mapping; zero: never.
    pub(crate) keepalive_interval: Duration,
    /// Octets of an IP datagram with a fragment of an IKE message at most.
    pub(crate) fragment_size: u32,
    /// Half-open IKE SAs from which on cookies are demanded.
    pub(crate) cookie_threshold: u32,
    /// Half-open IKE SAs at most, in total.
    pub(crate) half_open_limit: u32,
    /// Half-open IKE SAs at most, from one address.
    pub(crate) half_open_per_source: u32,
    /// Half-open IKE SAs at most, from one network.
    pub(crate) half_open_per_network: u32,
    /// IKE SAs at most of one identity, on one connection.
    pub(crate) ike_sas_per_peer: u32,
    /// Child SAs of single workers at most, of one child in one IKE SA.
    pub(crate) worker_sas_per_child: u32,
    /// How long a replaced Child SA still takes packets in.
    pub(crate) rekeyed_linger: Duration,
}

impl Config {
    /// Reads and checks a file.
    pub(crate) fn load(file: &Path) -> Result<Self, Error> {
        let unreadable = |source| Error::Unreadable { file: file.to_owned(), source };
        let text = std::fs::read_to_string(file).map_err(unreadable)?;
        Ok(Self::parse(file, &text)?)
    }

    /// Checks a file's text; `file` is for the messages.
    pub(crate) fn parse(file: &Path, text: &str) -> Result<Self, ConfigError> {
        let source = Source { file, text };
        let table = source.parse()?;
        let root = Section::root(source, &table);
        let instance = root
            .string("instance", "a name of 1 to 12 letters, digits or '-'", instance_name)?
            .unwrap_or_else(|| "default".to_owned());
        let ports = parse_ports(&root)?;
        let cluster = cluster::parse(&root, ports.len())?;
        let (spread, peer_window) = spread::parse(&root, cluster.as_ref())?;
        let config = Self {
            file: file.to_owned(),
            legacy: root.boolean("legacy")?.unwrap_or(false),
            vici_socket: parse_vici(&root)?,
            log: parse_log(&root)?,
            worker: parse_worker(&root)?,
            tun: parse_tun(&root, &instance)?,
            ike: parse_ike(&root)?,
            spread,
            peer_window,
            alarms: alarms::parse(&root)?,
            cluster,
            ports,
            instance,
        };
        let no_port = root.missing("port", "at least one [[port]] with an interface");
        root.finish()?;
        if config.ports.is_empty() { Err(no_port) } else { Ok(config) }
    }
}

impl Config {
    /// The sections and keys, `[ike]` excepted, in which another configuration differs. A running
    /// gateway cannot follow these.
    pub(crate) fn fixed_differences(&self, other: &Self) -> Vec<&'static str> {
        let Self {
            file: _,
            instance,
            legacy,
            vici_socket,
            log,
            ports,
            worker,
            tun,
            ike: _,
            cluster,
            spread,
            peer_window,
            alarms,
        } = self;
        // A port that has only moved to another line of the file does not differ.
        let placeless = |port: &PortConfig| {
            let mtu = port.mtu.as_ref().map(|mtu| PortMtu { place: String::new(), ..mtu.clone() });
            PortConfig { mtu, place: String::new(), ..port.clone() }
        };
        let differs = [
            ("instance", *instance != other.instance),
            ("legacy", *legacy != other.legacy),
            ("[vici]", *vici_socket != other.vici_socket),
            ("[log]", *log != other.log),
            ("[[port]]", !ports.iter().map(placeless).eq(other.ports.iter().map(placeless))),
            ("[worker]", *worker != other.worker),
            ("[tun]", *tun != other.tun),
            ("[cluster]", *cluster != other.cluster),
            ("[[spread]]", (spread, *peer_window) != (&other.spread, other.peer_window)),
            ("[alarms]", *alarms != other.alarms),
        ];
        differs.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect()
    }
}

impl IkeSettings {
    /// Hands the settings to the endpoint.
    pub(crate) fn apply(&self, settings: &mut EndpointConfig) {
        settings.retransmit.timeout = self.retransmit_timeout;
        settings.retransmit.tries = self.retransmit_tries;
        settings.keepalive_interval = self.keepalive_interval;
        settings.cookie_threshold = self.cookie_threshold as usize;
        settings.half_open_limit = self.half_open_limit as usize;
        settings.fragment_size = self.fragment_size as usize;
        settings.source_half_open_limit = self.half_open_per_source as usize;
        settings.network_half_open_limit = self.half_open_per_network as usize;
        settings.twin_limit = NonZeroUsize::new(self.ike_sas_per_peer as usize);
        settings.resource_limit = self.worker_sas_per_child as usize;
        settings.rekeyed_linger = self.rekeyed_linger;
    }
}

fn instance_name(s: &str) -> Option<String> {
    let fits = (1..=12).contains(&s.len()) && s.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    fits.then(|| s.to_owned())
}

/// IFNAMSIZ is 16 with the closing NUL; the kernel refuses '/', ':' and white space.
fn interface_name(s: &str) -> Option<String> {
    let printable = s.bytes().all(|b| b.is_ascii_graphic() && b != b'/' && b != b':');
    ((1..=15).contains(&s.len()) && printable && s != "." && s != "..").then(|| s.to_owned())
}

fn parse_vici(root: &Section<'_>) -> Result<PathBuf, ConfigError> {
    let default = PathBuf::from("/run/testudo/vici.sock");
    let Some(vici) = root.section("vici")? else { return Ok(default) };
    // sockaddr_un holds 108 octets with the closing NUL.
    let path = |s: &str| (s.starts_with('/') && s.len() < 108).then(|| PathBuf::from(s));
    let socket = vici.string("socket", "an absolute path of at most 107 octets", path)?.unwrap_or(default);
    vici.finish()?;
    Ok(socket)
}

fn parse_log(root: &Section<'_>) -> Result<LogSettings, ConfigError> {
    let mut settings = LogSettings { level: tracing::Level::INFO, format: LogFormat::Text };
    let Some(log) = root.section("log")? else { return Ok(settings) };
    let levels = "\"error\", \"warn\", \"info\", \"debug\" or \"trace\"";
    if let Some(level) = log.string("level", levels, |s| s.parse().ok())? {
        settings.level = level;
    }
    let format = |s: &str| match s {
        "text" => Some(LogFormat::Text),
        "json" => Some(LogFormat::Json),
        _ => None,
    };
    if let Some(format) = log.string("format", "\"text\" or \"json\"", format)? {
        settings.format = format;
    }
    log.finish()?;
    Ok(settings)
}

fn parse_ports(root: &Section<'_>) -> Result<Vec<PortConfig>, ConfigError> {
    let mut ports: Vec<PortConfig> = Vec::new();
    for section in root.sections("port")? {
        let unused = |s: &str| interface_name(s).filter(|n| ports.iter().all(|p| &p.interface != n));
        let expected = "the name of a network interface that no other [[port]] has, of at most 15 characters";
        let interface = section.string("interface", expected, unused)?;
        let mode = section
            .string("xdp", "\"native\" or \"generic\"", |s| match s {
                "native" => Some(XdpMode::Native),
                "generic" => Some(XdpMode::Generic),
                _ => None,
            })?
            .unwrap_or(XdpMode::Native);
        let source_check = section.boolean("source_check")?.unwrap_or(true);
        let checksum = section
            .string("checksum", "\"auto\", \"fill\" or \"trust\"", |s| match s {
                "auto" => Some(Checksum::Auto),
                "fill" => Some(Checksum::Fill),
                "trust" => Some(Checksum::Trust),
                _ => None,
            })?
            .unwrap_or(Checksum::Auto);
        let clear_by_default = section.boolean("clear_by_default")?.unwrap_or(false);
        let mtu = section.integer("mtu", ipv6::MIN_MTU.into(), JUMBO_MTU.into())?;
        let mtu = mtu.map(|octets| PortMtu { octets: octets as u16, place: section.place("mtu") });
        let missing = section.missing("interface", expected);
        let place = section.place("interface");
        // A misspelt key is reported before the missing one.
        section.finish()?;
        let interface = interface.ok_or(missing)?;
        ports.push(PortConfig { interface, mode, source_check, checksum, clear_by_default, mtu, place });
    }
    Ok(ports)
}

fn parse_ring(worker: &Section<'_>) -> Result<Option<u32>, ConfigError> {
    let least = u64::from(MIN_RING_ENTRIES);
    let Some(ring) = worker.integer("ring", least, RING_ENTRIES.into())? else { return Ok(None) };
    if !ring.is_power_of_two() {
        return Err(worker.unfit("ring", "a power of two"));
    }
    Ok(Some(ring as u32))
}

fn parse_worker(root: &Section<'_>) -> Result<WorkerSettings, ConfigError> {
    let default = WorkerSettings {
        count: None,
        cpus: Vec::new(),
        cipher: Cipher::Auto,
        frames: 16384,
        ring: RING_ENTRIES,
        priority: 0,
        busy_poll: Duration::ZERO,
        sharing: Sharing::Steal,
    };
    let Some(worker) = root.section("worker")? else { return Ok(default) };
    let cipher = |s: &str| match s {
        "auto" => Some(Cipher::Auto),
        "ipsec-mb" => Some(Cipher::IpsecMb),
        "aws-lc" => Some(Cipher::AwsLc),
        _ => None,
    };
    let (count, cpus) = parse_workers(&worker)?;
    let settings = WorkerSettings {
        count,
        cpus,
        cipher: worker
            .string("cipher", "\"auto\", \"ipsec-mb\" or \"aws-lc\"", cipher)?
            .unwrap_or(default.cipher),
        frames: worker
            .integer("frames", 4096, FrameMemory::MAX_FRAMES as u64)?
            .map_or(default.frames, |n| n as u32),
        ring: parse_ring(&worker)?.unwrap_or(default.ring),
        priority: worker.integer("priority", 0, 20)?.map_or(default.priority, |n| n as u8),
        busy_poll: worker
            .integer("busy_poll", 0, MAX_BUSY_POLL_MICROS)?
            .map_or(default.busy_poll, Duration::from_micros),
        sharing: parse_sharing(&worker)?,
    };
    worker.finish()?;
    Ok(settings)
}

/// `spread`, and `spread_over` where a hash chooses.
fn parse_sharing(worker: &Section<'_>) -> Result<Sharing, ConfigError> {
    let by_hash = |text: &str| match text {
        "steal" => Some(false),
        "hash" => Some(true),
        _ => None,
    };
    let by_hash = worker.string("spread", "\"steal\" or \"hash\"", by_hash)?.unwrap_or(false);
    let over = worker.integer("spread_over", 1, MAX_WORKERS)?.map(|n| n as usize);
    match (by_hash, over) {
        (true, over) => Ok(Sharing::Hash { over: over.unwrap_or(usize::MAX) }),
        (false, None) => Ok(Sharing::Steal),
        (false, Some(_)) => Err(worker.unfit("spread_over", "spread = \"hash\" beside it")),
    }
}

/// A worker's number has six bits in its IVs.
const MAX_WORKERS: u64 = 64;
/// A worker that polls for longer might as well never sleep.
const MAX_BUSY_POLL_MICROS: u64 = 1_000_000;
/// The highest number of a processor.
const MAX_CPU: u64 = 1023;

/// The number of workers, and their processors. `cpu` is for a single worker.
fn parse_workers(worker: &Section<'_>) -> Result<(Option<usize>, Vec<usize>), ConfigError> {
    let count = worker.integer("count", 1, MAX_WORKERS)?.map(|n| n as usize);
    let cpu = worker.integer("cpu", 0, MAX_CPU)?.map(|n| n as usize);
    let cpus = worker.integers("cpus", 0, MAX_CPU)?;
    let Some(cpus) = cpus else {
        return match (cpu, count) {
            (None, count) => Ok((count, Vec::new())),
            (Some(cpu), None | Some(1)) => Ok((Some(1), vec![cpu])),
            (Some(_), Some(_)) => Err(worker.unfit("cpu", "cpus = [...], one for each of several workers")),
        };
    };
    if cpu.is_some() {
        return Err(worker.unfit("cpu", "either cpu, for one worker, or cpus"));
    }
    let cpus: Vec<usize> = cpus.into_iter().map(|n| n as usize).collect();
    let each_once = cpus.iter().collect::<BTreeSet<_>>().len() == cpus.len();
    let wanted = count.unwrap_or(cpus.len());
    if cpus.len() != wanted || cpus.is_empty() || cpus.len() > MAX_WORKERS as usize || !each_once {
        let many = count.map_or_else(|| format!("1 to {MAX_WORKERS}"), |count| count.to_string());
        return Err(worker.unfit("cpus", format!("{many} different processors, one for each worker")));
    }
    Ok((Some(wanted), cpus))
}

fn parse_tun(root: &Section<'_>, instance: &str) -> Result<String, ConfigError> {
    let default = if instance == "default" { "testudo0".to_owned() } else { format!("tu-{instance}") };
    let Some(tun) = root.section("tun")? else { return Ok(default) };
    let expected = "the name of a network interface, at most 15 characters";
    let name = tun.string("name", expected, interface_name)?.unwrap_or(default);
    tun.finish()?;
    Ok(name)
}

fn parse_ike(root: &Section<'_>) -> Result<IkeSettings, ConfigError> {
    let mut settings = IkeSettings {
        retransmit_timeout: Duration::from_secs(4),
        retransmit_tries: 5,
        keepalive_interval: Duration::from_secs(20),
        fragment_size: 1280,
        cookie_threshold: 30,
        half_open_limit: 10_000,
        half_open_per_source: 32,
        half_open_per_network: 256,
        ike_sas_per_peer: 256,
        worker_sas_per_child: 64,
        rekeyed_linger: Duration::from_secs(5),
    };
    let Some(ike) = root.section("ike")? else { return Ok(settings) };
    if let Some(n) = ike.integer("retransmit_timeout_ms", 10, 60_000)? {
        settings.retransmit_timeout = Duration::from_millis(n);
    }
    if let Some(n) = ike.integer("rekeyed_linger_ms", 10, 60_000)? {
        settings.rekeyed_linger = Duration::from_millis(n);
    }
    if let Some(n) = ike.integer("keepalive_interval", 0, 3600)? {
        settings.keepalive_interval = Duration::from_secs(n);
    }
    let set = |key, min, max, field: &mut u32| {
        ike.integer(key, min, max).map(|n| {
            if let Some(n) = n {
                *field = n as u32;
            }
        })
    };
    set("retransmit_tries", 1, 20, &mut settings.retransmit_tries)?;
    // With fewer octets than every IPv4 host accepts, a message could need more fragments than it
    // may have.
    set("fragment_size", 576, 9000, &mut settings.fragment_size)?;
    set("cookie_threshold", 0, 1 << 20, &mut settings.cookie_threshold)?;
    set("half_open_limit", 1, 1 << 20, &mut settings.half_open_limit)?;
    set("half_open_per_source", 1, 1 << 20, &mut settings.half_open_per_source)?;
    // Where only the limit of an address is set, and is higher, it holds for the network too.
    settings.half_open_per_network = settings.half_open_per_network.max(settings.half_open_per_source);
    set("half_open_per_network", 1, 1 << 20, &mut settings.half_open_per_network)?;
    set("ike_sas_per_peer", 0, 1 << 20, &mut settings.ike_sas_per_peer)?;
    set("worker_sas_per_child", 0, 255, &mut settings.worker_sas_per_child)?;
    ike.finish()?;
    Ok(settings)
}

#[cfg(test)]
mod tests;
