//! What connects a member of a cluster with the world: corosync, heartbeats, the disk, and the
//! links on which VIPs are requested.

use super::{Announcer, Disk, Heartbeats, Received, Writer, key, roster};
use crate::config::{ClusterSettings, Config};
use crate::datapath::RelayPeer;
use crate::entropy::OsEntropy;
use crate::error::{Error, Result};
use crate::queue_assignment::is_there;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, Instant};
use testudo_base::lane::Spread;
use testudo_base::prefix::Prefix;
use testudo_cluster::corosync::{Corosync, Electorate, Libraries};
use testudo_cluster::engine::{Engine, EngineEvent};
use testudo_cluster::group::{
    ClusterKey, Durable, GroupConfig, Ingress, Majorities, RelayKeys, Rosters, SuspicionConfig,
};
use testudo_cluster::member::{FollowConfig, Member, MemberConfig};
use testudo_cluster::node::NodeId;
use testudo_fastpath::fib::{Fib, PortIndex, PortLink};
use testudo_fastpath::netlink::AnnouncedRoutes;
use testudo_fastpath::vip::{Speaker, VipLink};
use testudo_ike::endpoint::EndpointConfig;
use testudo_ike::output::Time;

/// At most this many datagrams of other nodes are handled, for at most this long, before others get
/// their turn.
const MAX_DATAGRAMS_AT_ONCE: usize = 256;
const DATAGRAMS_FOR: Duration = Duration::from_millis(5);
/// No datagram is longer.
const MAX_DATAGRAM_OCTETS: usize = 1 << 16;

/// This node's connections to the others.
pub(crate) struct Node {
    engine: Corosync,
    heartbeats: Heartbeats,
    disk: Writer,
    speaker: Speaker,
    /// What routers are told of this node, if anything.
    announcer: Option<Announcer>,
    /// The links that are ports, with the interfaces behind them.
    ports: Vec<(u8, PortIndex)>,
    settings: ClusterSettings,
    /// Why requests for VIPs cannot be answered on some link, as last logged.
    complaint: Option<String>,
    buffer: Vec<u8>,
}

/// What is opened before the data path starts.
pub(crate) struct Prepared {
    libraries: Libraries,
    heartbeats: Heartbeats,
    disk: Disk,
    group: GroupConfig,
    durable: Durable,
    /// The nodes of the cluster.
    rosters: Rosters,
    replicate_config: bool,
    message_id_sync: bool,
    withdraw: Duration,
    follow_traffic: bool,
    spread: BTreeMap<String, Spread>,
    announced: Option<AnnouncedRoutes>,
}

impl Prepared {
    /// Loads corosync's libraries, reads the key and this node's state, and opens the sockets of
    /// the heartbeats.
    pub(crate) fn open(config: &Config, settings: &ClusterSettings, mark: u32) -> Result<Self> {
        let libraries = corosync_libraries()?;
        let key = key::load(&settings.key_place, &settings.key)?;
        let disk = Disk::open(&settings.state, &config.instance)?;
        let durable = disk.last()?;
        let rosters = roster::at_start(settings, &durable);
        let incomplete = config.ports.iter().any(|port| !is_there(&port.interface));
        let heartbeats = Heartbeats::open(settings, &rosters, mark, incomplete)?;
        let timers = &settings.timers;
        let group = GroupConfig {
            links: heartbeats.links(),
            heartbeat: timers.heartbeat,
            fence: timers.fence,
            suspicion: SuspicionConfig {
                floor: timers.suspicion_min,
                ceiling: timers.suspicion_max,
                ..SuspicionConfig::default()
            },
            no_quorum: settings.no_quorum,
            quorum: settings.quorum,
            ingress: settings.ingress,
            peer_window: config.peer_window,
            speaks: settings.protocol,
            roster: roster::configured(settings),
            ..GroupConfig::new(settings.node, Vec::new(), ClusterKey::new(*key))
        };
        let ClusterSettings { replicate_config, message_id_sync, .. } = *settings;
        let spread = config.spread.clone();
        let vips = settings.vips.iter().copied();
        let device = announcing_device(&config.tun);
        let announced = settings.announce_table.map(|table| AnnouncedRoutes::open(&device, table, vips));
        Ok(Self {
            libraries,
            heartbeats,
            disk,
            group,
            durable,
            rosters,
            replicate_config,
            message_id_sync,
            withdraw: settings.withdraw,
            follow_traffic: settings.follow_traffic,
            spread,
            announced: announced.transpose()?,
        })
    }

    /// How many nodes the cluster has.
    pub(crate) fn node_count(&self) -> u64 {
        self.rosters.nodes().len() as u64
    }

    /// The member, which has not heard of any other yet.
    pub(crate) fn member(&self, endpoint: EndpointConfig, now: Time) -> Member {
        let config = MemberConfig {
            endpoint,
            replicate_configuration: self.replicate_config,
            message_id_sync: self.message_id_sync,
            withdraw: self.withdraw,
            follow: FollowConfig { follows: self.follow_traffic, ..FollowConfig::default() },
            spread: self.spread.clone(),
            ..MemberConfig::new(self.group.clone())
        };
        Member::new(config, self.durable.clone(), [Box::new(OsEntropy), Box::new(OsEntropy)], now)
    }

    /// Joins the others. The data path has started, and stays shut until a view says more.
    pub(crate) fn join(self, settings: &ClusterSettings, fib: &Fib) -> Result<Node> {
        let speaker = Speaker::open(links(settings, fib))?;
        let begin = || {
            // The thread computes little, and a late view costs much.
            if let Err(error) = testudo_fastpath::thread::go_ahead() {
                tracing::debug!("cannot raise the priority of corosync's thread: {error}");
            }
        };
        let Self { libraries, heartbeats, disk, durable, rosters, announced, .. } = self;
        let electorate = electorate(settings, (rosters.settled.number, rosters.majorities()));
        let engine = Corosync::start(libraries, settings.node, electorate, &settings.group, begin)
            .map_err(Error::io("start the thread for corosync"))?;
        let disk =
            disk.writer(durable).map_err(Error::io("start the thread that writes this node's state"))?;
        let own = settings.nodes.iter().find(|node| node.id == settings.node);
        let ports = ports(own.map(|node| node.addresses.as_slice()).unwrap_or_default(), fib);
        let buffer = vec![0; MAX_DATAGRAM_OCTETS];
        let announcer = announced.map(Announcer::new);
        let settings = settings.clone();
        Ok(Node { engine, heartbeats, disk, speaker, announcer, ports, settings, complaint: None, buffer })
    }
}

fn electorate(settings: &ClusterSettings, (number, nodes): (u64, Majorities)) -> Electorate {
    Electorate { nodes, number, rule: settings.quorum }
}

/// Corosync's libraries, which only a gateway with `[cluster]` needs.
pub(crate) fn corosync_libraries() -> Result<Libraries> {
    Libraries::load().map_err(Error::CorosyncLibraries)
}

/// The links on which this node's address is that of a port. Where an interface is missing, the
/// order tells which it is: the cluster's own link comes first, then the ports.
fn ports(own: &[IpAddr], fib: &Fib) -> Vec<(u8, PortIndex)> {
    let port = |(link, address): (u8, &IpAddr)| {
        let has = fib.ports().iter().find(|port| port.addresses.contains(address));
        let in_order = || {
            let port = fib.port(PortIndex(u16::from(link).checked_sub(1)?))?;
            (port.ifindex == 0).then_some(port)
        };
        Some((link, has.or_else(in_order)?.index))
    };
    // The configuration allows eight links.
    (0_u8..).zip(own).filter_map(port).collect()
}

/// The device of the routes by which routers learn of this node. Interfaces have names of at most
/// 15 characters.
fn announcing_device(tun: &str) -> String {
    let stem: String = tun.chars().take(11).collect();
    format!("{stem}-bgp")
}

/// The ports whose interfaces are there, with those of the VIPs that lie in their networks. None if
/// routers know the way to the VIPs, and nobody has to answer for them.
fn links(settings: &ClusterSettings, fib: &Fib) -> Vec<VipLink> {
    if settings.ingress == Ingress::Routed {
        return Vec::new();
    }
    let link = |port: &PortLink| {
        let is_on_link = |net: &&Prefix| port.addresses.iter().any(|own| net.contains(*own));
        let networks: Vec<&Prefix> = fib.connected().iter().filter(is_on_link).collect();
        let belongs = |vip: &&IpAddr| networks.iter().any(|net| net.contains(**vip));
        VipLink {
            name: port.name.clone(),
            ifindex: port.ifindex,
            mac: port.mac,
            cluster_mac: settings.mac_on(port.index.0.into()),
            vips: settings.vips.iter().filter(belongs).copied().collect(),
        }
    };
    fib.ports().iter().filter(|port| port.ifindex != 0).map(link).collect()
}

fn is_on_port(fib: &Fib, address: IpAddr) -> bool {
    fib.ports().iter().any(|port| port.addresses.contains(&address))
}

impl Node {
    /// The links that are ports: whether each carries packets.
    pub(crate) fn carriers(&self, carries: impl Fn(PortIndex) -> bool) -> Vec<(u8, bool)> {
        self.ports.iter().map(|(link, port)| (*link, carries(*port))).collect()
    }

    /// Interfaces or their addresses may have changed: answers requests for the VIPs on those that
    /// there are. Gives the new descriptors to poll.
    pub(crate) fn follow_links(&mut self, fib: &Fib) -> Vec<RawFd> {
        let (fresh, result) = self.speaker.follow(links(&self.settings, fib));
        let complaint = result.err().map(|error| error.to_string());
        if let Some(complaint) = complaint.as_ref().filter(|_| complaint != self.complaint) {
            tracing::warn!("cannot answer for the cluster's addresses on a link yet: {complaint}");
        }
        let fresh = fresh.into_iter().map(|fd| fd.as_raw_fd()).collect();
        self.complaint = complaint;
        fresh
    }

    /// What is wrong with how packets come to this node.
    pub(crate) fn ingress_faults(&self, fib: &Fib) -> Vec<String> {
        if self.settings.ingress == Ingress::Flood {
            return Vec::new();
        }
        let misplaced = self.relays_to(self.settings.node).filter(|own| !is_on_port(fib, *own)).map(|own| {
            format!(
                "relayed packets cannot come here: {own}, the first of this node's addresses in testudo.toml, is on no \
                 [[port]]. Packets that routers give to other nodes, and that this node carries, are lost"
            )
        });
        let is_silent = self.announcer.as_ref().is_some_and(|announcer| !announcer.is_announced());
        let silent = is_silent.then(|| {
            "routers are not told of this node: it carries no shard, gives its shards away, or its fence is shut"
                .to_owned()
        });
        misplaced.into_iter().chain(silent).collect()
    }

    /// The address to which packets for a node are relayed.
    fn relays_to(&self, node: NodeId) -> Option<IpAddr> {
        let of = self.settings.nodes.iter().find(|settings| settings.id == node)?;
        of.addresses.first().copied()
    }

    /// What the data path relays with these keys.
    pub(crate) fn relay_peers(&self, keys: Vec<RelayKeys>) -> Vec<RelayPeer> {
        let peer = |RelayKeys { node, spi_in, spi_out, key_in, key_out }| {
            let (local, remote) = (self.relays_to(self.settings.node)?, self.relays_to(node)?);
            Some(RelayPeer { node, local, remote, spi_in, spi_out, key_in, key_out })
        };
        keys.into_iter().filter_map(peer).collect()
    }

    /// This node carries shards and is not giving them away, or no longer: routers learn it.
    pub(crate) fn set_serves(&mut self, now: Time, serves: bool) {
        if let Some(announcer) = &mut self.announcer {
            announcer.set_serves(now, serves);
        }
    }

    /// Packets may leave until then.
    pub(crate) fn set_fence(&mut self, until: Time) {
        if let Some(announcer) = &mut self.announcer {
            announcer.set_fence(until);
        }
    }

    /// Tells routers what has changed with time. To be called with every heartbeat.
    pub(crate) fn tell_routers(&mut self, now: Time) {
        if let Some(announcer) = &mut self.announcer {
            announcer.look(now);
        }
    }

    /// Readable when corosync reports something, or takes messages again.
    pub(crate) fn engine_fd(&self) -> RawFd {
        self.engine.wake_fd().as_raw_fd()
    }

    /// Readable when a datagram of another node waits.
    pub(crate) fn heartbeat_fds(&self) -> impl Iterator<Item = RawFd> + '_ {
        self.heartbeats.fds()
    }

    /// Readable when a request for a VIP waits.
    pub(crate) fn speaker_fds(&self) -> impl Iterator<Item = RawFd> + '_ {
        self.speaker.descriptors().map(|fd| fd.as_raw_fd())
    }

    /// Whether the witness votes, if there is one.
    pub(crate) fn witness(&self) -> Option<bool> {
        self.engine.witness()
    }

    /// What in corosync.conf does not fit `quorum` of testudo.toml.
    pub(crate) fn misfit(&self) -> Option<String> {
        self.engine.misfit()
    }

    /// The nodes that corosync is configured with.
    pub(crate) fn engine_nodes(&self) -> Option<Vec<NodeId>> {
        self.engine.nodes()
    }

    /// The nodes of the cluster are these from now on, and the engine judges by the `counted` ones.
    pub(crate) fn follow_nodes(&mut self, rosters: &Rosters, counted: (u64, Majorities)) {
        self.heartbeats.follow(rosters);
        self.engine.set_electorate(electorate(&self.settings, counted));
    }

    /// Whether a new node may have these addresses.
    pub(crate) fn check_addresses(&self, rosters: &Rosters, addresses: &[IpAddr]) -> Result<()> {
        roster::check_addresses(&self.settings, rosters, addresses)
    }

    /// Leaves the engine's group for good.
    pub(crate) fn leave(&self) {
        self.engine.leave();
    }

    /// The engine's next event.
    pub(crate) fn next_event(&mut self) -> Option<EngineEvent> {
        self.engine.next_event()
    }

    /// Gives a message to the engine, or gets it back.
    pub(crate) fn multicast(&mut self, bytes: Vec<u8>) -> std::result::Result<(), Vec<u8>> {
        self.engine.multicast(bytes)
    }

    /// Leaves the engine's group and joins it again.
    pub(crate) fn rejoin(&mut self) {
        self.engine.rejoin();
    }

    /// Hands over datagrams of other nodes, with the link that each came by. True if there may be
    /// more.
    pub(crate) fn datagrams(&mut self, mut take: impl FnMut(u8, &[u8])) -> bool {
        let begun = Instant::now();
        for _ in 0..MAX_DATAGRAMS_AT_ONCE {
            match self.heartbeats.receive(&mut self.buffer) {
                Some(Received::Node { link, len }) => take(link, self.buffer.get(..len).unwrap_or_default()),
                Some(Received::Nothing) => {}
                None => return false,
            }
            if begun.elapsed() >= DATAGRAMS_FOR {
                break;
            }
        }
        true
    }

    /// Sends to another node.
    pub(crate) fn send(&self, to: NodeId, link: u8, bytes: &[u8]) {
        self.heartbeats.send(to, link, bytes);
    }

    /// Begins to write this node's state. Gives the states that are on disk by now.
    pub(crate) fn persist(&mut self, durable: Durable) -> Result<Vec<Durable>> {
        self.disk.write(durable)
    }

    /// A further state that is on disk by now. Nothing wakes the control thread for that: its own
    /// heartbeats do, soon enough.
    pub(crate) fn written(&mut self) -> Result<Option<Durable>> {
        self.disk.written()
    }

    /// Answers the requests for VIPs.
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

#[cfg(test)]
mod tests {
    use super::*;
    use testudo_fastpath::mac::MacAddr;

    fn addr(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn port(index: u16, ifindex: u32, addresses: &[&str]) -> PortLink {
        PortLink {
            index: PortIndex(index),
            name: format!("port{index}"),
            ifindex,
            mac: MacAddr([0; 6]),
            mtu: 1500,
            up: true,
            addresses: addresses.iter().map(|text| addr(text)).collect(),
        }
    }

    #[test]
    fn every_tun_has_a_device_beside_it() {
        assert_eq!(announcing_device("testudo0"), "testudo0-bgp");
        assert_eq!(announcing_device("a23456789012345").len(), 15);
    }

    #[test]
    fn a_link_is_the_port_that_has_its_address_or_that_is_missing_at_its_place() {
        let own = ["10.99.0.1", "192.0.2.101", "10.1.0.101"].map(addr);
        let of = |ports: [PortLink; 2]| {
            let fib = ports.into_iter().fold(Fib::builder(), |fib, port| fib.port(port)).build();
            self::ports(&own, &fib).into_iter().map(|(link, port)| (link, port.0)).collect::<Vec<_>>()
        };
        let (outer, inner) = (["192.0.2.101"], ["10.1.0.101"]);
        assert_eq!(of([port(0, 5, &outer), port(1, 6, &inner)]), [(1, 0), (2, 1)]);
        assert_eq!(of([port(0, 5, &inner), port(1, 6, &outer)]), [(1, 1), (2, 0)]);
        assert_eq!(of([port(0, 5, &outer), port(1, 0, &[])]), [(1, 0), (2, 1)]);
        assert_eq!(of([port(0, 0, &[]), port(1, 0, &[])]), [(1, 0), (2, 1)]);
        assert_eq!(of([port(0, 5, &outer), port(1, 6, &["10.7.0.1"])]), [(1, 0)], "no link of its own");
    }
}
