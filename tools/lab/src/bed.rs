//! A running cluster: corosync and testudod on each node, a peer gateway for each connection, and
//! every kind of failure.

mod config;
mod detection;
mod failure;
mod nodes;

pub use config::{connection, replay_window};
pub use failure::Failure;

use crate::cluster::routed::{Liveness, Routing};
use crate::cluster::{Cluster, Ingress, Net, Options};
use crate::corosync::{Corosync, Ring, Timers};
use crate::gateway::{Gateway, Kind};
use crate::namespace::Offloads;
use crate::ping::Ping;
use crate::probe::{INTERVAL, Probe};
use crate::swanctl::IkeSa;
use crate::swanctl_conf::Connection;
use crate::testudo::Testudo;
use crate::topology::{Family, Side};
use crate::witness::{self, Witness};
use crate::{Error, Lab, Namespace, Result, wait_until};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// For a view or the start of a daemon on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);

/// Options of a [`Bed`].
#[derive(Clone, Debug)]
pub struct BedOptions {
    /// Number of nodes.
    pub nodes: u8,
    /// Number of further hosts, without daemons, for nodes that are added later.
    pub spare: u8,
    /// The kind of each peer.
    pub peers: Vec<Kind>,
    /// Family of the addresses on the untrusted network, of peers and cluster, and of the nodes'
    /// heartbeats there.
    pub outside: Family,
    /// Further lines of `[cluster]`.
    pub cluster: String,
    /// Further sections of testudo.toml, or keys at its top.
    pub settings: String,
    /// Queues of the nodes' ports, in each direction.
    pub queues: u32,
    /// How packets reach the nodes.
    pub ingress: Ingress,
    /// Corosync's timers.
    pub timers: Timers,
    /// The voters of the cluster.
    pub votes: Votes,
    /// The connections are loaded on the first node only.
    pub loads_one: bool,
}

/// The voters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Votes {
    /// The nodes.
    Nodes,
    /// The two nodes, each of which is quorate alone: corosync's `two_node: 1`.
    TwoNode,
    /// The nodes that are left, after this window: corosync's `last_man_standing: 1`.
    LastManStanding(Duration),
    /// The nodes and a witness, for which a node is dead after 1.2 times this timeout.
    Witness(Duration),
}

impl Default for BedOptions {
    fn default() -> Self {
        Self {
            nodes: 3,
            spare: 0,
            peers: vec![Kind::Strongswan],
            outside: Family::V4,
            cluster: String::new(),
            settings: String::new(),
            queues: 1,
            ingress: Ingress::Flood,
            timers: Timers::default(),
            votes: Votes::Nodes,
            loads_one: false,
        }
    }
}

/// All daemons and their hosts. Nodes and peers are counted from 1.
#[derive(Debug)]
pub struct Bed {
    /// testudod of each node.
    pub nodes: Vec<Testudo>,
    /// testudod of nodes that have ended for good, in the order of their ends.
    pub gone: Vec<Testudo>,
    /// The peer gateways.
    pub peers: Vec<Gateway>,
    /// corosync of each node.
    pub corosyncs: Vec<Corosync>,
    /// The witness, if there is one.
    pub witness: Option<Witness>,
    /// BIRD of nodes and routers, if there are routers.
    pub routing: Option<Routing>,
    /// The nodes' common key.
    pub key: Vec<u8>,
    key_file: PathBuf,
    ring: Ring,
    options: BedOptions,
    /// What each node loads.
    connections: String,
    /// The hosts.
    pub cluster: Cluster,
}

impl Bed {
    /// Starts everything and loads the connections. Initiates nothing.
    pub fn start(lab: &Lab, options: &BedOptions) -> Result<Self> {
        Self::start_with(lab, options, |_, _| {})
    }

    /// Like [`Self::start`]; `adjust` changes the connection to a peer, on the cluster and (with
    /// `true`) on the peer.
    pub fn start_with(
        lab: &Lab,
        options: &BedOptions,
        adjust: impl Fn(bool, &mut Connection),
    ) -> Result<Self> {
        let is_testudo = |kind: &Kind| kind.offloads_towards() == Offloads::None;
        let plain = options.peers.iter().any(is_testudo);
        let towards_peers = if plain { Offloads::None } else { Offloads::Default };
        let peers = options.peers.len() as u8;
        let all = options.nodes + options.spare;
        let (queues, ingress) = (options.queues, options.ingress);
        let hosts = Options { nodes: all, peers, towards_peers, queues, ingress, ..Options::default() };
        let cluster = Cluster::build(lab, &hosts)?;
        let (ring, corosyncs) = start_corosyncs(lab, &cluster, options)?;
        let witness = start_witness(&cluster, &corosyncs, options.votes)?;
        let loaded = |from_peer: bool| -> Vec<Connection> {
            let adjusted = |peer: u8| {
                let mut connection = config::connection_over(peer, options.outside);
                if from_peer {
                    connection = config::mirrored(connection);
                }
                adjust(from_peer, &mut connection);
                connection
            };
            (1..=peers).map(adjusted).collect()
        };
        let (key, key_file) = config::write_key(lab)?;
        let connections: String = loaded(false).iter().map(ToString::to_string).collect();
        let start = |(number, namespace)| start_node(namespace, number, options, &key_file, &connections);
        let first = cluster.nodes.iter().take(usize::from(options.nodes));
        let nodes = (1..).zip(first).map(start).collect::<Result<_>>()?;
        let across = options.peers.iter().zip(&cluster.peers).zip(loaded(true));
        let peers = across.map(|((kind, namespace), connection)| {
            let gateway = Gateway::start(*kind, namespace)?;
            gateway.swanctl().load(&connection.to_string())?;
            Ok(gateway)
        });
        let peers = peers.collect::<Result<_>>()?;
        let routing =
            (ingress == Ingress::Routed).then(|| cluster.start_routing(Liveness::Bgp)).transpose()?;
        let options = options.clone();
        let bed = Self {
            nodes,
            gone: Vec::new(),
            peers,
            corosyncs,
            witness,
            routing,
            key,
            key_file,
            ring,
            options,
            connections,
            cluster,
        };
        bed.await_all()?;
        // On a busy machine, nodes that have just joined wait for their shards for seconds. A tunnel
        // that moves only for that reason is none of what a lab asks about.
        bed.await_shards()?;
        if bed.routing.is_some() {
            bed.cluster.await_served_by(&bed.numbers())?;
        }
        Ok(bed)
    }

    /// testudod of a node.
    pub fn node(&mut self, node: u8) -> &mut Testudo {
        &mut self.nodes[index(node)]
    }

    /// corosync of a node.
    pub fn corosync(&mut self, node: u8) -> &mut Corosync {
        &mut self.corosyncs[index(node)]
    }

    /// The gateway of a peer.
    pub fn peer(&mut self, peer: u8) -> &mut Gateway {
        &mut self.peers[index(peer)]
    }

    /// The numbers of all nodes.
    pub fn numbers(&self) -> Vec<u8> {
        (1..).zip(&self.nodes).map(|(node, _)| node).collect()
    }

    /// [`Self::await_members`] with all nodes.
    pub fn await_all(&self) -> Result<()> {
        self.await_members(&self.numbers())
    }

    /// Waits until the diagnosis of every node is empty.
    pub fn await_balance(&self) -> Result<()> {
        self.await_diagnosis("nothing to tell", |_| false)
    }

    /// Waits until no shard is on its way to another node, whatever else a diagnosis tells.
    pub fn await_shards(&self) -> Result<()> {
        self.await_diagnosis("shards where they belong", |sentence| !sentence.contains("shard"))
    }

    /// Waits until the diagnosis of every node has only sentences that do not matter.
    fn await_diagnosis(&self, what: &str, is_idle: impl Fn(&str) -> bool) -> Result<()> {
        wait_until(what, LIMIT, || {
            let why = |node: &Testudo| Ok(node.cluster()?["why"].clone());
            let why = self.nodes.iter().map(why).collect::<Result<Vec<_>>>()?;
            let is_well = |of: &Value| {
                of.as_array().is_some_and(|told| told.iter().all(|one| one.as_str().is_some_and(&is_idle)))
            };
            Ok(if why.iter().all(is_well) { Ok(()) } else { Err(format!("{why:?}")) })
        })
    }

    /// Waits until exactly these nodes form a quorate view, as each of them reports, and all of
    /// them are synchronized.
    pub fn await_members(&self, members: &[u8]) -> Result<()> {
        for node in members {
            wait_until(&format!("a view of {members:?} at node {node}"), LIMIT, || {
                let shown = self.nodes[index(*node)].cluster()?;
                let there = shown["phase"] == "running"
                    && shown["view"]["members"] == serde_json::json!(members)
                    && shown["nodes"]
                        .as_array()
                        .is_some_and(|nodes| nodes.iter().all(|one| one["state"] != "fresh"))
                    && shown["sender"].is_u64();
                Ok(if there { Ok(()) } else { Err(shown.to_string()) })
            })?;
        }
        Ok(())
    }

    /// The peer initiates its tunnel; waits until packets pass in both directions.
    pub fn bring_up(&self, peer: u8) -> Result<()> {
        let swanctl = self.peers[index(peer)].swanctl();
        wait_until(&format!("the tunnel of peer {peer}"), LIMIT, || {
            let error = match swanctl.initiate(&config::name(peer), Duration::from_secs(5)) {
                Ok(_) => return Ok(Ok(())),
                Err(error) => error.to_string(),
            };
            // On a busy machine it may come up after the time limit. charon makes none twice.
            let is_up = self.tunnel(peer)?.is_some();
            Ok(if is_up { Ok(()) } else { Err(error) })
        })?;
        // On a busy machine the fence of a node may be shut for a moment.
        wait_until(&format!("ping through the tunnel of peer {peer}"), LIMIT, || {
            Ok(if self.carries(peer)? { Ok(()) } else { Err("no replies".to_owned()) })
        })
    }

    /// Whether packets pass through a peer's tunnel in both directions.
    pub fn carries(&self, peer: u8) -> Result<bool> {
        let pong =
            Ping::new(Cluster::behind(peer, Family::V4, 2)).count(5).brief().run(&self.cluster.client)?;
        Ok(pong.received > 0)
    }

    /// Starts a probe in each direction through the tunnel of peer 1: from the client to the host
    /// behind the peer, and back.
    pub fn probes(&self) -> Result<[Probe; 2]> {
        self.probes_of(1, INTERVAL)
    }

    /// The same through any peer's tunnel, with this time between two datagrams.
    pub fn probes_of(&self, peer: u8, interval: Duration) -> Result<[Probe; 2]> {
        let (client, host) = (&self.cluster.client, &self.cluster.hosts[index(peer)]);
        Ok([
            Probe::start(client, host, Cluster::behind(peer, Family::V4, 2), interval)?,
            Probe::start(host, client, Side::One.host(Family::V4), interval)?,
        ])
    }

    /// The established IKE SA of a peer, as the peer reports it.
    pub fn tunnel(&self, peer: u8) -> Result<Option<IkeSa>> {
        let sas = self.peers[index(peer)].swanctl().list_sas()?;
        Ok(sas.into_iter().find(IkeSa::is_up))
    }

    /// The initiator's SPI of that IKE SA, which tells IKE SAs apart.
    pub fn tunnel_spi(&self, peer: u8) -> Result<Option<String>> {
        Ok(self.tunnel(peer)?.and_then(|sa| sa.get("initiator-spi").map(str::to_owned)))
    }

    /// The node among these that speaks IKE with a peer.
    pub fn owner_among(&self, peer: u8, nodes: &[u8]) -> Result<Option<u8>> {
        for node in nodes {
            let sas = self.nodes[index(*node)].swanctl().list_sas()?;
            let number = node.to_string();
            let own = |sa: &&IkeSa| sa.get("node") == Some(&*number);
            if sas.iter().filter(own).any(|sa| sa.name == config::name(peer) && sa.is_up()) {
                return Ok(Some(*node));
            }
        }
        Ok(None)
    }

    /// The node that speaks IKE with a peer. All daemons must answer.
    pub fn owner(&self, peer: u8) -> Result<u8> {
        let found = self.owner_among(peer, &self.numbers())?;
        found.ok_or_else(|| Error::unexpected(format!("the owner of peer {peer}'s tunnel"), "a node", "none"))
    }
}

fn index(number: u8) -> usize {
    usize::from(number) - 1
}

fn start_corosyncs(lab: &Lab, cluster: &Cluster, options: &BedOptions) -> Result<(Ring, Vec<Corosync>)> {
    let numbers = 1..=options.nodes;
    let addresses = numbers.map(|node| Cluster::own(node, Net::Cluster, Family::V4)).collect();
    let ring = Ring::new(lab, addresses, options.timers)?;
    let ring = match options.votes {
        Votes::Nodes => ring,
        Votes::TwoNode => ring.quorum("two_node: 1"),
        Votes::LastManStanding(window) => ring
            .quorum("last_man_standing: 1")
            .quorum(&format!("last_man_standing_window: {}", window.as_millis()))
            .quorum("auto_tie_breaker: 1")
            .quorum("wait_for_all: 1"),
        Votes::Witness(timeout) => ring.quorum(&witness::quorum_lines(timeout)),
    };
    let started: Vec<_> =
        (1..=options.nodes).map(|node| Corosync::start(cluster.node(node), &ring)).collect::<Result<_>>()?;
    for corosync in &started {
        corosync.wait_for_members(started.len(), LIMIT)?;
    }
    Ok((ring, started))
}

fn start_witness(cluster: &Cluster, corosyncs: &[Corosync], votes: Votes) -> Result<Option<Witness>> {
    if !matches!(votes, Votes::Witness(_)) {
        return Ok(None);
    }
    let witness = Witness::start(cluster)?;
    for corosync in corosyncs {
        corosync.wait_for_votes(corosyncs.len() + 1, LIMIT)?;
    }
    Ok(Some(witness))
}

fn start_node(
    namespace: &Namespace,
    number: u8,
    options: &BedOptions,
    key: &Path,
    connections: &str,
) -> Result<Testudo> {
    let state = namespace.lab().subdir(&format!("node{number}-state"))?;
    let generation = state.join(config::GENERATION);
    let failed = Error::io(format!("write {}", generation.display()));
    std::fs::write(&generation, [0; 8]).map_err(failed)?;
    let section = config::section(namespace.lab().company(), number, options, [key, &state]);
    let ports = config::ports(options.ingress);
    let testudod = Testudo::start_with(namespace, &format!("{}\n{ports}\n{section}", options.settings))?;
    match options.loads_one && number > 1 {
        true => testudod.swanctl().write_conf("")?,
        false => drop(testudod.swanctl().load(connections)?),
    }
    Ok(testudod)
}
