//! What connects a member of a cluster with the world: corosync, pulses, the disk, and the links on which VIPs are asked for.

use super::{Disk, Pulses, Received, Writer, key};
use crate::config::{ClusterSettings, Config};
use crate::entropy::OsEntropy;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, Instant};
use testudo_cluster::corosync::Corosync;
use testudo_cluster::engine::{Engine, EngineEvent};
use testudo_cluster::group::{ClusterKey, Durable, GroupConfig, SuspicionConfig};
use testudo_cluster::member::{Member, MemberConfig};
use testudo_cluster::node::NodeId;
use testudo_fastpath::fib::{Fib, PortIndex, PortLink};
use testudo_fastpath::prefix::Prefix;
use testudo_fastpath::vip::{Link, Speaker};
use testudo_ike::endpoint::EndpointConfig;
use testudo_ike::output::Time;

/// Datagrams of other nodes are taken for so long, and so many at most, before others get their turn.
const PULSES_BURST: usize = 256;
const PULSES_TIME: Duration = Duration::from_millis(5);
/// No datagram is longer.
const DATAGRAM: usize = 1 << 16;

/// This node's ties to the others.
pub(crate) struct Node {
    engine: Corosync,
    pulses: Pulses,
    disk: Writer,
    speaker: Speaker,
    /// The links that are ports, with the interfaces behind them.
    ports: Vec<(u8, PortIndex)>,
    buffer: Vec<u8>,
}

/// What is opened before anything changes.
pub(crate) struct Prepared {
    pulses: Pulses,
    disk: Disk,
    group: GroupConfig,
    durable: Durable,
    replicate_config: bool,
    message_id_sync: bool,
}

impl Prepared {
    /// Reads the key and what this node must not forget, and opens the sockets of the pulses.
    pub(crate) fn open(config: &Config, settings: &ClusterSettings, mark: u32) -> Result<Self, String> {
        let key = key::load(&settings.key_place, &settings.key)?;
        let disk = Disk::open(&settings.state, &config.instance)?;
        let durable = disk.last()?;
        let pulses = Pulses::open(settings, mark)?;
        let nodes: Vec<NodeId> = settings.nodes.iter().map(|node| node.id).collect();
        let timers = &settings.timers;
        let group = GroupConfig {
            links: pulses.links(),
            pulse: timers.pulse,
            fence: timers.fence,
            suspicion: SuspicionConfig {
                floor: timers.suspicion_min,
                ceiling: timers.suspicion_max,
                ..SuspicionConfig::default()
            },
            no_quorum: settings.no_quorum,
            speaks: settings.protocol,
            ..GroupConfig::new(settings.node, nodes, ClusterKey::new(*key))
        };
        let ClusterSettings { replicate_config, message_id_sync, .. } = *settings;
        Ok(Self { pulses, disk, group, durable, replicate_config, message_id_sync })
    }

    /// The member, which has heard of nobody yet.
    pub(crate) fn member(&self, endpoint: EndpointConfig, now: Time) -> Member {
        let config = MemberConfig {
            endpoint,
            replicate_configuration: self.replicate_config,
            message_id_sync: self.message_id_sync,
            ..MemberConfig::new(self.group.clone())
        };
        Member::new(config, self.durable, [Box::new(OsEntropy), Box::new(OsEntropy)], now)
    }

    /// Joins the others. The data path stands, and is shut until they say more.
    pub(crate) fn join(self, settings: &ClusterSettings, fib: &Fib) -> Result<Node, String> {
        let speaker = Speaker::open(links(settings, fib)).map_err(|e| e.to_string())?;
        let begin = || {
            // Late views cost more than the little that this thread computes.
            if let Err(error) = testudo_fastpath::thread::go_ahead() {
                tracing::debug!("corosync's thread has no higher priority: {error}");
            }
        };
        let engine = Corosync::start(settings.node, settings.nodes.len(), &settings.group, begin)
            .map_err(|e| format!("cannot start the thread for corosync: {e}"))?;
        let Self { pulses, disk, durable, .. } = self;
        let disk = disk.writer(durable).map_err(|e| format!("cannot start the thread that writes: {e}"))?;
        let ports = ports(settings, fib);
        Ok(Node { engine, pulses, disk, speaker, ports, buffer: vec![0; DATAGRAM] })
    }
}

/// The links on which this node's address is that of a port.
fn ports(settings: &ClusterSettings, fib: &Fib) -> Vec<(u8, PortIndex)> {
    let own = settings.nodes.iter().find(|node| node.id == settings.node);
    // The configuration allows eight links.
    let links = own.into_iter().flat_map(|node| (0_u8..).zip(&node.addresses));
    let port = |(link, address)| {
        let port = fib.ports().iter().find(|port| port.addresses.contains(address))?;
        Some((link, port.index))
    };
    links.filter_map(port).collect()
}

/// The ports with those of the VIPs that lie in their networks.
fn links(settings: &ClusterSettings, fib: &Fib) -> Vec<Link> {
    let link = |port: &PortLink| {
        let is_on_link = |net: &&Prefix| port.addresses.iter().any(|own| net.contains(*own));
        let networks: Vec<&Prefix> = fib.connected().iter().filter(is_on_link).collect();
        let belongs = |vip: &&IpAddr| networks.iter().any(|net| net.contains(**vip));
        Link {
            name: port.name.clone(),
            ifindex: port.ifindex,
            mac: port.mac,
            cluster_mac: settings.mac_on(port.index.0.into()),
            vips: settings.vips.iter().filter(belongs).copied().collect(),
        }
    };
    fib.ports().iter().map(link).collect()
}

impl Node {
    /// The links that are ports: whether each is up, and has a carrier.
    pub(crate) fn carriers(&self, fib: &Fib) -> Vec<(u8, bool)> {
        let up = |port: PortIndex| fib.ports().iter().any(|it| it.index == port && it.up);
        self.ports.iter().map(|(link, port)| (*link, up(*port))).collect()
    }

    /// Readable when corosync tells something, or takes messages again.
    pub(crate) fn engine_fd(&self) -> RawFd {
        self.engine.wake_fd().as_raw_fd()
    }

    /// Readable when another node says something.
    pub(crate) fn pulse_fds(&self) -> impl Iterator<Item = RawFd> + '_ {
        self.pulses.fds()
    }

    /// Readable when somebody asks where a VIP is.
    pub(crate) fn speaker_fds(&self) -> impl Iterator<Item = RawFd> + '_ {
        self.speaker.descriptors().map(|fd| fd.as_raw_fd())
    }

    /// Whether the witness votes, if there is one.
    pub(crate) fn witness(&self) -> Option<bool> {
        self.engine.witness()
    }

    /// What the engine tells next.
    pub(crate) fn next_event(&mut self) -> Option<EngineEvent> {
        self.engine.next_event()
    }

    /// Gives a message to the engine, or gives it back.
    pub(crate) fn multicast(&mut self, bytes: Vec<u8>) -> Result<(), Vec<u8>> {
        self.engine.multicast(bytes)
    }

    /// Leaves the engine's group and joins it again.
    pub(crate) fn rejoin(&mut self) {
        self.engine.rejoin();
    }

    /// Hands over what other nodes have said, with the link that it came by. True if there may be more.
    pub(crate) fn datagrams(&mut self, mut take: impl FnMut(u8, &[u8])) -> bool {
        let begun = Instant::now();
        for _ in 0..PULSES_BURST {
            match self.pulses.receive(&mut self.buffer) {
                Some(Received::Node { link, len }) => take(link, self.buffer.get(..len).unwrap_or_default()),
                Some(Received::Nothing) => {}
                None => return false,
            }
            if begun.elapsed() >= PULSES_TIME {
                break;
            }
        }
        true
    }

    /// Sends to another node.
    pub(crate) fn send(&self, to: NodeId, link: u8, bytes: &[u8]) {
        self.pulses.send(to, link, bytes);
    }

    /// Begins to write what this node must not forget. Gives what is on the disk by now.
    pub(crate) fn persist(&mut self, durable: Durable) -> Result<Vec<Durable>, String> {
        self.disk.write(durable)
    }

    /// What else is on the disk by now. Nobody wakes the control thread for that: its own pulses do, before it matters.
    pub(crate) fn written(&mut self) -> Result<Option<Durable>, String> {
        self.disk.written()
    }

    /// Answers whoever asks where a VIP is.
    pub(crate) fn answer(&mut self) {
        if let Err(error) = self.speaker.answer() {
            tracing::debug!("cannot answer for the cluster's addresses: {error}");
        }
    }

    /// This node is the default host, or no longer.
    pub(crate) fn set_default_host(&mut self, default_host: bool) {
        self.speaker.set_default_host(default_host);
    }

    /// Tells the neighbours where the VIPs are.
    pub(crate) fn announce(&self) {
        if let Err(error) = self.speaker.announce() {
            tracing::warn!("cannot announce the cluster's addresses: {error}");
        }
    }
}
