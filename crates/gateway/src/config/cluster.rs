//! `[cluster]`: this node's part in a cluster. Who else is in it stands here too, and must be the
//! same on every node.

use crate::reader::{ConfigError, Section};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;
use testudo_cluster::group::{GroupConfig, Ingress, NoQuorum, QuorumRule};
use testudo_cluster::node::NodeId;
use testudo_fastpath::mac::MacAddr;

/// UDP port of heartbeats.
const HEARTBEAT_PORT: u16 = 5406;
/// How long routers are given by default to learn that a node serves no more.
const WITHDRAW: Duration = Duration::from_millis(500);
/// The table of protected prefixes, and the kernel's own: default, main and local.
const RESERVED_TABLES: [u64; 4] = [220, 253, 254, 255];
/// Links by which heartbeats go.
const MAX_LINKS: usize = 8;

/// `[cluster]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClusterSettings {
    /// Which of the nodes this is.
    pub(crate) node: NodeId,
    /// All of them, this one too.
    pub(crate) nodes: Vec<NodeSettings>,
    /// File with the key that all nodes share.
    pub(crate) key: PathBuf,
    /// Names the cluster among those that share its corosync.
    pub(crate) group: String,
    /// Addresses that all nodes own together.
    pub(crate) vips: Vec<IpAddr>,
    /// How packets come to the nodes.
    pub(crate) ingress: Ingress,
    /// The routing table by which a routing daemon learns that this node serves.
    pub(crate) announce_table: Option<u32>,
    /// How long routers need to learn that it serves no more.
    pub(crate) withdraw: Duration,
    /// Shards of this node move to the nodes that their packets reach.
    pub(crate) follow_traffic: bool,
    /// What kind of Ethernet address these resolve to.
    pub(crate) mac: ClusterMac,
    /// What a node does that is cut off from the majority.
    pub(crate) no_quorum: NoQuorum,
    /// Which nodes may go on without the others.
    pub(crate) quorum: QuorumRule,
    /// What is loaded on one node is loaded on all.
    pub(crate) replicate_config: bool,
    /// The highest version of the replication protocol that this node speaks.
    pub(crate) protocol: u8,
    /// How fast failures are noticed.
    pub(crate) timers: Timers,
    /// UDP port of heartbeats.
    pub(crate) heartbeat_port: u16,
    /// Directory for what must outlive the daemon.
    pub(crate) state: PathBuf,
    /// Make sure of Message IDs after a takeover (RFC 6311).
    pub(crate) message_id_sync: bool,
    /// What tells the generation of the virtual machine.
    pub(crate) generation: Option<PathBuf>,
    /// File, line and key that name the key file, for complaints about it.
    pub(crate) key_place: String,
    /// Where the nodes stand, for the same.
    pub(crate) nodes_place: String,
}

impl ClusterSettings {
    /// What the cluster's addresses resolve to on a port, given by its place in the file: the same
    /// on every node, and another for every port and every cluster.
    pub(crate) fn mac_on(&self, port: usize) -> MacAddr {
        let mut text = format!("cluster MAC {port}");
        let vips: BTreeSet<&IpAddr> = self.vips.iter().collect();
        vips.iter().for_each(|vip| text.push_str(&format!(" {vip}")));
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, text.as_bytes());
        let mut mac = [0; 6];
        mac.iter_mut().zip(digest.as_ref()).for_each(|(octet, random)| *octet = *random);
        // Locally administered (IEEE 802), and not one of those that IPv6 makes of groups (33:33).
        mac[0] = match self.mac {
            ClusterMac::Group => 0x03,
            ClusterMac::Unicast => 0x02,
        };
        MacAddr(mac)
    }
}

/// `[[cluster.nodes]]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeSettings {
    /// Its number: corosync's `nodeid`.
    pub(crate) id: NodeId,
    /// Where its heartbeats come from and go to: on the cluster link first, then on each port.
    pub(crate) addresses: Vec<IpAddr>,
}

/// How fast failures are noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timers {
    /// Time between two heartbeats.
    pub(crate) heartbeat: Duration,
    /// How long packets may leave after the last proof of a majority.
    pub(crate) fence: Duration,
    /// Silence after which a node is suspected at the earliest, however steady its heartbeats have
    /// been.
    pub(crate) suspicion_min: Duration,
    /// And at the latest, however unsteady.
    pub(crate) suspicion_max: Duration,
}

/// Which Ethernet address the cluster's addresses resolve to, so that a switch gives every frame to
/// every node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClusterMac {
    /// A group address, which switches flood by themselves.
    Group,
    /// A unicast address that no frame ever comes from, for neighbours that refuse a group address
    /// (RFC 1812 §3.3.2).
    Unicast,
}

/// `None` if the file has no `[cluster]`: the gateway stands alone.
pub(super) fn parse(root: &Section<'_>, ports: usize) -> Result<Option<ClusterSettings>, ConfigError> {
    let Some(cluster) = root.section("cluster")? else { return Ok(None) };
    let nodes = parse_nodes(&cluster, ports)?;
    let node = cluster.integer("node", 1, NodeId::MAX.into())?.and_then(node_id);
    let absolute = |s: &str| s.starts_with('/').then(|| PathBuf::from(s));
    let key = cluster.string("key", "an absolute path", absolute)?;
    let expected = "different addresses that no node has alone";
    let vips: Vec<IpAddr> = cluster.strings("vips", expected, |s| s.parse().ok())?.unwrap_or_default();
    let modes = |s: &str| match s {
        "forward" => Some(NoQuorum::Forward),
        "stop" => Some(NoQuorum::Stop),
        _ => None,
    };
    let no_quorum = cluster.string("no_quorum", "\"forward\" or \"stop\"", modes)?;
    let rules = |s: &str| {
        [QuorumRule::Majority, QuorumRule::LastManStanding].into_iter().find(|rule| rule.name() == s)
    };
    let quorum = cluster.string("quorum", "\"majority\" or \"last_man_standing\"", rules)?;
    let routed = parse_routed(&cluster)?;
    let kinds = |s: &str| match s {
        "group" => Some(ClusterMac::Group),
        "unicast" => Some(ClusterMac::Unicast),
        _ => None,
    };
    let mac = cluster.string("mac", "\"group\" or \"unicast\"", kinds)?;
    let group =
        cluster.string("group", "a name of 1 to 64 printable ASCII characters, without spaces", |s| {
            ((1..=64).contains(&s.len()) && s.bytes().all(|b| b.is_ascii_graphic())).then(|| s.to_owned())
        })?;
    let replicate_config = cluster.boolean("replicate_config")?;
    let (oldest, newest) = (GroupConfig::OLDEST, GroupConfig::NEWEST);
    let protocol = cluster.integer("protocol", oldest.into(), newest.into())?;
    let timers = parse_timers(&cluster)?;
    let heartbeat_port = cluster.integer("pulse_port", 1, 65535)?;
    let state = cluster.string("state", "an absolute path", absolute)?;
    let message_id_sync = cluster.boolean("message_id_sync")?;
    let generation = cluster.string("generation", "an absolute path", absolute)?;

    let wrong_mac = cluster.unfit("mac", "no such key with cluster.ingress = \"routed\": nothing is flooded");
    let (key_place, nodes_place) = (cluster.place("key"), cluster.place("nodes"));
    let no_nodes = cluster.missing("nodes", "[[cluster.nodes]] with every node of the cluster");
    let no_node = cluster.unfit("node", "the id of one of [[cluster.nodes]]");
    let no_key =
        cluster.missing("key", "the path of a file with 64 hexadecimal digits, the same on all nodes");
    let no_vips = cluster.missing("vips", "at least one address that all nodes own together");
    let wrong_vips = cluster.unfit("vips", expected);
    // A misspelt key is named before the one that it should have been is missed.
    cluster.finish()?;

    if nodes.is_empty() {
        return Err(no_nodes);
    }
    if mac.is_some() && routed.ingress == Ingress::Routed {
        return Err(wrong_mac);
    }
    if vips.is_empty() {
        return Err(no_vips);
    }
    if !all_different(nodes.iter().flat_map(|node| &node.addresses).chain(&vips)) {
        return Err(wrong_vips);
    }
    Ok(Some(ClusterSettings {
        node: node.filter(|own| nodes.iter().any(|node| node.id == *own)).ok_or(no_node)?,
        nodes,
        key: key.ok_or(no_key)?,
        group: group.unwrap_or_else(|| "testudo".to_owned()),
        ingress: routed.ingress,
        announce_table: routed.announce_table,
        withdraw: routed.withdraw,
        follow_traffic: routed.follow_traffic,
        mac: mac.unwrap_or(ClusterMac::Group),
        vips,
        no_quorum: no_quorum.unwrap_or_default(),
        quorum: quorum.unwrap_or_default(),
        replicate_config: replicate_config.unwrap_or(true),
        protocol: protocol.map_or(newest, |version| version as u8),
        timers,
        heartbeat_port: heartbeat_port.map_or(HEARTBEAT_PORT, |n| n as u16),
        state: state.unwrap_or_else(|| PathBuf::from("/var/lib/testudo")),
        message_id_sync: message_id_sync.unwrap_or(false),
        generation,
        key_place,
        nodes_place,
    }))
}

/// How packets come to the nodes, and what routers learn of this one.
struct Routed {
    ingress: Ingress,
    announce_table: Option<u32>,
    withdraw: Duration,
    follow_traffic: bool,
}

fn parse_routed(cluster: &Section<'_>) -> Result<Routed, ConfigError> {
    let named = |s: &str| [Ingress::Flood, Ingress::Routed].into_iter().find(|ingress| ingress.name() == s);
    let ingress = cluster.string("ingress", "\"flood\" or \"routed\"", named)?.unwrap_or_default();
    let announce_table = cluster.integer("announce_table", 1, u32::MAX.into())?;
    let withdraw = cluster.integer("withdraw_ms", 0, 10_000)?;
    let follow_traffic = cluster.boolean("follow_traffic")?;
    for (key, is_set) in [
        ("announce_table", announce_table.is_some()),
        ("withdraw_ms", withdraw.is_some()),
        ("follow_traffic", follow_traffic.is_some()),
    ] {
        if is_set && ingress == Ingress::Flood {
            return Err(cluster.unfit(key, "cluster.ingress = \"routed\" beside it"));
        }
    }
    if announce_table.is_some_and(|table| RESERVED_TABLES.contains(&table)) {
        let expected = "a routing table that nothing else uses: not 220, 253, 254 or 255";
        return Err(cluster.unfit("announce_table", expected));
    }
    Ok(Routed {
        ingress,
        announce_table: announce_table.and_then(|table| u32::try_from(table).ok()),
        withdraw: withdraw.map_or(WITHDRAW, Duration::from_millis),
        follow_traffic: follow_traffic.unwrap_or(true),
    })
}

fn parse_timers(cluster: &Section<'_>) -> Result<Timers, ConfigError> {
    let millis = |key, min, max, default| -> Result<Duration, ConfigError> {
        Ok(Duration::from_millis(cluster.integer(key, min, max)?.unwrap_or(default)))
    };
    let timers = Timers {
        heartbeat: millis("pulse_ms", 5, 1000, 10)?,
        fence: millis("fence_ms", 10, 10_000, 50)?,
        suspicion_min: millis("suspicion_min_ms", 10, 10_000, 25)?,
        suspicion_max: millis("suspicion_max_ms", 10, 10_000, 200)?,
    };
    let two_heartbeats = 2 * timers.heartbeat;
    if timers.fence < two_heartbeats {
        return Err(cluster.unfit("fence_ms", "at least twice pulse_ms: a heartbeat may be lost"));
    }
    if timers.suspicion_min < two_heartbeats {
        return Err(cluster.unfit("suspicion_min_ms", "at least twice pulse_ms: a heartbeat may be lost"));
    }
    if timers.suspicion_max < timers.suspicion_min {
        return Err(cluster.unfit("suspicion_max_ms", "at least suspicion_min_ms"));
    }
    Ok(timers)
}

fn parse_nodes(cluster: &Section<'_>, ports: usize) -> Result<Vec<NodeSettings>, ConfigError> {
    let mut nodes: Vec<NodeSettings> = Vec::new();
    for section in cluster.sections("nodes")? {
        let expected = "a number that no other node has, from 1 to 31: its nodeid in corosync.conf";
        let id = section.integer("id", 1, NodeId::MAX.into())?.and_then(node_id);
        let id = id.ok_or_else(|| section.missing("id", expected))?;
        if nodes.iter().any(|other| other.id == id) {
            return Err(section.unfit("id", expected));
        }
        let expected = "the node's own addresses, on the cluster link first, then on each [[port]] in its order: as many \
                        as every node has, one a [[port]] and one more at most, none twice";
        let addresses: Option<Vec<IpAddr>> = section.strings("addresses", expected, |s| s.parse().ok())?;
        let addresses = addresses.ok_or_else(|| section.missing("addresses", expected))?;
        let as_many = nodes.first().is_none_or(|first| first.addresses.len() == addresses.len());
        let known = nodes.iter().flat_map(|other| &other.addresses);
        let fits = (1..=ports.saturating_add(1).min(MAX_LINKS)).contains(&addresses.len()) && as_many;
        if !fits || !all_different(known.chain(&addresses)) {
            return Err(section.unfit("addresses", expected));
        }
        section.finish()?;
        nodes.push(NodeSettings { id, addresses });
    }
    nodes.sort_by_key(|node| node.id);
    Ok(nodes)
}

fn node_id(number: u64) -> Option<NodeId> {
    u32::try_from(number).ok().and_then(NodeId::new)
}

fn all_different<'a>(addresses: impl Iterator<Item = &'a IpAddr>) -> bool {
    let mut seen = BTreeSet::new();
    addresses.into_iter().all(|addr| seen.insert(*addr))
}
