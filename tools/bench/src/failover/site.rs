//! The hosts of the benchmark: a cluster, a gateway that is not in a cluster at the same switches,
//! and a host from which swarms set up tunnels with either.

use super::homes::Homes;
use crate::error::BenchError;
use crate::setup::initiator::Place;
use crate::setup::rig::{connections, limits};
use crate::setup::shape::Shape;
use crate::setup::usage::Cpu;
use std::net::{IpAddr, Ipv4Addr};
use testudo_lab::bed::{Bed, BedOptions, connection};
use testudo_lab::cluster::{Cluster, Net};
use testudo_lab::gateway::Kind;
use testudo_lab::namespace::{Namespace, Offloads};
use testudo_lab::testudo::Testudo;
use testudo_lab::topology::{Family, INNER, OUTER};
use testudo_lab::{Error, Lab, Result};

/// Number of nodes.
pub(super) const NODES: u8 = 3;
const MTU: u16 = 1500;
/// Addresses of all initiators.
const INITIATORS: &str = "100.64.0.0/10";
const LONE: [Ipv4Addr; 2] = [Ipv4Addr::new(192, 0, 2, 50), Ipv4Addr::new(10, 1, 0, 50)];

/// Everything that runs.
pub(super) struct Site {
    /// Dropped before its hosts.
    pub(super) lone: Testudo,
    pub(super) bed: Bed,
    pub(super) homes: Homes,
}

/// The places of a swarm.
pub(super) struct Places;

impl Places {
    /// At the cluster.
    pub(super) const CLUSTER: Place =
        Place { responder: Ipv4Addr::new(192, 0, 2, 1), first: Ipv4Addr::new(100, 64, 0, 0), port: 10_500 };
    /// At the gateway that is not in a cluster.
    pub(super) const LONE: Place =
        Place { responder: LONE[0], first: Ipv4Addr::new(100, 80, 0, 0), port: 10_501 };
}

impl Site {
    /// Starts everything, with connections for swarms of any size.
    pub(super) fn start(peer: Kind) -> std::result::Result<Self, BenchError> {
        let lab = Lab::new("failover")?;
        let options = BedOptions { peers: vec![peer], settings: limits(), ..BedOptions::default() };
        let bed = Bed::start(&lab, &options)?;
        let across = bed.cluster.peers[0].clone();
        across.ip(&format!("route add local {INITIATORS} dev lo"))?;
        let lone = start_lone(&lab, &bed.cluster)?;
        for node in &bed.nodes {
            let swarm = connections(Shape::OneForAll, 0, &Places::CLUSTER);
            node.swanctl().load(&format!("{}{swarm}", connection(1)))?;
        }
        for namespace in &bed.cluster.nodes {
            route_to_initiators(namespace)?;
        }
        let homes = Homes::of(&lab, NODES)?;
        Ok(Self { lone, bed, homes })
    }

    /// The host of the swarms.
    pub(super) fn across(&self) -> &Namespace {
        &self.bed.cluster.peers[0]
    }

    /// Processor time of each node's testudod.
    pub(super) fn nodes_cpu(&mut self) -> std::result::Result<Vec<Cpu>, BenchError> {
        self.bed.nodes.iter_mut().map(|node| Cpu::of(node.process().pid())).collect()
    }

    /// Processor time of each node's corosync.
    pub(super) fn corosyncs_cpu(&mut self) -> std::result::Result<Vec<Cpu>, BenchError> {
        self.bed.corosyncs.iter_mut().map(|corosync| Cpu::of(corosync.process().pid())).collect()
    }

    /// Processor time of the gateway that is not in a cluster.
    pub(super) fn lone_cpu(&mut self) -> std::result::Result<Cpu, BenchError> {
        Cpu::of(self.lone.process().pid())
    }

    /// Octets that the nodes have sent to each other on their own link.
    pub(super) fn link_octets(&self) -> Result<u64> {
        self.bed.cluster.nodes.iter().map(|node| node.statistic(Net::Cluster.interface(), "tx_bytes")).sum()
    }

    /// Messages that the group has delivered.
    pub(super) fn delivered(&self) -> Result<u64> {
        let shown = self.bed.nodes[0].cluster()?;
        let missing = || Error::unexpected("testudo cluster --json", "a number delivered", shown.to_string());
        shown["delivered"].as_u64().ok_or_else(missing)
    }
}

fn start_lone(lab: &Lab, cluster: &Cluster) -> Result<Testudo> {
    let lone = lab.namespace("lone")?;
    lone.forward()?;
    for (net, interface, address) in [(Net::Outer, OUTER, LONE[0]), (Net::Inner, INNER, LONE[1])] {
        cluster.plug(lone.end(interface), net, MTU, Offloads::None)?;
        lone.address(interface, &format!("{address}/24"))?;
    }
    route_to_initiators(&lone)?;
    let testudod = Testudo::start_with(&lone, &limits())?;
    testudod.swanctl().load(&connections(Shape::OneForAll, 0, &Places::LONE))?;
    Ok(testudod)
}

fn route_to_initiators(namespace: &Namespace) -> Result<()> {
    let across: IpAddr = Cluster::peer_address(1, Family::V4);
    namespace.route(INITIATORS, &across.to_string())
}
