//! A cluster: several nodes that form one gateway, on switches that flood, with peers on one side
//! and a client on the other.
//!
//! ```text
//!            inner (floods)     node1..nodeN       outer (floods)     peer1..peerM   host1..hostM
//! client:eth0 ── port   portN ── inner0  outer0 ── portN   portM ── outer0  inner0 ── eth0
//!                                 link0
//!                                   └── portN  cluster
//! ```
//!
//! The cluster replaces gw1 of the usual lab ([`Side::One`]), and the first peer replaces gw2
//! ([`Side::Two`]). They have the same addresses and networks, so that the same configuration fits.
//! Further peers are numbered on. The cluster's addresses belong to no single node; each node has
//! addresses of its own too.

pub mod routed;

use crate::batch::Batch;
use crate::namespace::{Offloads, VethEnd};
use crate::topology::{Family, HOST, INNER, OUTER, Side};
use crate::{Lab, Namespace, Result, ip};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The nodes' interface to each other.
pub const LINK: &str = "link0";

const BRIDGE: &str = "br0";
/// The bridge for the other part of a divided switch.
const OTHER_BRIDGE: &str = "br1";
const FAMILIES: [(Family, u8); 2] = [(Family::V4, 24), (Family::V6, 64)];

/// How packets for the shared addresses reach the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Ingress {
    /// Switches flood them to all nodes.
    #[default]
    Flood,
    /// Each node is behind a link of its own, and a router chooses one for each packet. IPv4 only.
    /// See [`Cluster::start_routing`].
    Routed,
}

/// Options of a cluster.
#[derive(Clone, Debug)]
pub struct Options {
    /// Number of nodes.
    pub nodes: u8,
    /// Number of peers, each with a host behind it.
    pub peers: u8,
    /// MTU of all networks except the peers' protected networks.
    pub mtu: u16,
    /// Queues of the interfaces at the switches, in each direction.
    pub queues: u32,
    /// Offloads of the hosts that send to the peers; [`Offloads::None`] if the peers receive by
    /// AF_XDP, as the nodes do.
    pub towards_peers: Offloads,
    /// How packets reach the nodes.
    pub ingress: Ingress,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            nodes: 3,
            peers: 1,
            mtu: 1500,
            queues: 1,
            towards_peers: Offloads::None,
            ingress: Ingress::Flood,
        }
    }
}

/// One of the switches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Net {
    /// The untrusted network, with the peers.
    Outer,
    /// The protected network, with the client.
    Inner,
    /// The nodes' own network.
    Cluster,
}

impl Net {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Outer, Self::Inner, Self::Cluster];

    /// The nodes' interface to this network.
    pub fn interface(self) -> &'static str {
        match self {
            Self::Outer => OUTER,
            Self::Inner => INNER,
            Self::Cluster => LINK,
        }
    }
}

/// How a link is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// The node notices: its interface has no carrier.
    Carrier,
    /// The node does not notice: what it sends is lost, and nothing arrives.
    Silent,
}

/// The hosts.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// `node1` and following.
    pub nodes: Vec<Namespace>,
    /// The switch to the peers. Its ports have the names of the hosts they lead to.
    pub outer: Namespace,
    /// The switch to the client.
    pub inner: Namespace,
    /// The switch between the nodes.
    pub link: Namespace,
    /// The peer gateways.
    pub peers: Vec<Namespace>,
    /// The hosts behind the peers.
    pub hosts: Vec<Namespace>,
    /// The host behind the cluster.
    pub client: Namespace,
    queues: u32,
    mtu: u16,
    ingress: Ingress,
}

impl Cluster {
    /// Builds it, with all addresses and routes except the shared ones.
    pub fn build(lab: &Lab, options: &Options) -> Result<Self> {
        let many = |count: u8, role: &str| -> Result<Vec<Namespace>> {
            (1..=count).map(|n| lab.namespace(&format!("{role}{n}"))).collect()
        };
        let cluster = Self {
            nodes: many(options.nodes, "node")?,
            outer: lab.namespace("outer")?,
            inner: lab.namespace("inner")?,
            link: lab.namespace("link")?,
            peers: many(options.peers, "peer")?,
            hosts: many(options.peers, "host")?,
            client: lab.namespace("client")?,
            queues: options.queues,
            mtu: options.mtu,
            ingress: options.ingress,
        };
        for net in Net::ALL {
            let switch = cluster.switch(net);
            switch.sysctl(&[("net.ipv6.conf.default.disable_ipv6", "1")])?;
            for bridge in [BRIDGE, OTHER_BRIDGE] {
                switch.bridge(bridge, &[], options.mtu)?;
                // Without ageing time it learns no address, so that it floods every frame.
                switch.ip(&format!("link set {bridge} type bridge ageing_time 0"))?;
            }
            if cluster.is_routed(net) {
                cluster.make_router(net)?;
            }
        }
        for n in 1..=options.nodes {
            cluster.connect_node(n)?;
        }
        cluster.connect_client(options)?;
        for n in 1..=options.peers {
            cluster.connect_peer(n, options)?;
        }
        Ok(cluster)
    }

    /// The switch of a network.
    pub fn switch(&self, net: Net) -> &Namespace {
        match net {
            Net::Outer => &self.outer,
            Net::Inner => &self.inner,
            Net::Cluster => &self.link,
        }
    }

    /// A node, counted from 1.
    pub fn node(&self, number: u8) -> &Namespace {
        &self.nodes[usize::from(number) - 1]
    }

    /// The address in a network that all nodes share.
    pub fn shared(net: Net, family: Family) -> Option<IpAddr> {
        match net {
            Net::Outer => Some(Side::One.outer(family)),
            Net::Inner => Some(Side::One.inner(family)),
            Net::Cluster => None,
        }
    }

    /// A node's own address.
    pub fn own(node: u8, net: Net, family: Family) -> IpAddr {
        let host = 100 + node;
        match (net, family) {
            (Net::Outer, Family::V4) => Ipv4Addr::new(192, 0, 2, host).into(),
            (Net::Outer, Family::V6) => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, host.into()).into(),
            (Net::Inner, Family::V4) => Ipv4Addr::new(10, 1, 0, host).into(),
            (Net::Inner, Family::V6) => Ipv6Addr::new(0xfd00, 1, 0, 0, 0, 0, 0, host.into()).into(),
            (Net::Cluster, Family::V4) => Ipv4Addr::new(10, 99, 0, node).into(),
            (Net::Cluster, Family::V6) => Ipv6Addr::new(0xfd00, 99, 0, 0, 0, 0, 0, node.into()).into(),
        }
    }

    /// The address of a peer, counted from 1.
    pub fn peer_address(peer: u8, family: Family) -> IpAddr {
        match family {
            Family::V4 => Ipv4Addr::new(192, 0, 2, 1 + peer).into(),
            Family::V6 => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(1 + peer)).into(),
        }
    }

    /// An address in the network behind a peer: 1 is the peer itself, 2 is its host.
    pub fn behind(peer: u8, family: Family, host: u8) -> IpAddr {
        match family {
            Family::V4 => Ipv4Addr::new(10, 1 + peer, 0, host).into(),
            Family::V6 => Ipv6Addr::new(0xfd00, u16::from(1 + peer), 0, 0, 0, 0, 0, host.into()).into(),
        }
    }

    /// The network behind a peer, as a prefix.
    pub fn network_behind(peer: u8, family: Family) -> String {
        match family {
            Family::V4 => format!("10.{}.0.0/24", 1 + peer),
            Family::V6 => format!("fd00:{}::/64", 1 + peer),
        }
    }

    /// Cuts a node off from a network.
    pub fn cut(&self, node: u8, net: Net, how: Cut) -> Result<()> {
        self.switch(net).ip(&self.words_to_cut(node, how)).map(drop)
    }

    fn words_to_cut(&self, node: u8, how: Cut) -> String {
        let port = self.node(node).role();
        match how {
            Cut::Carrier => format!("link set {port} down"),
            Cut::Silent => format!("link set {port} nomaster"),
        }
    }

    fn words_to_divide(&self, node: u8) -> String {
        format!("link set {} master {OTHER_BRIDGE}", self.node(node).role())
    }

    /// Cuts a node off from all networks at once.
    pub fn isolate(&self, node: u8, how: Cut) -> Result<()> {
        self.everywhere(&self.words_to_cut(node, how))
    }

    /// Divides all networks at once: these nodes on one side, everything else on the other.
    pub fn split(&self, apart: &[u8]) -> Result<()> {
        let words = apart.iter().map(|node| self.words_to_divide(*node));
        self.everywhere(&words.collect::<Vec<_>>().join("\n"))
    }

    /// Runs `ip` with these lines at all switches at almost the same time: a node that has lost one
    /// network but not yet the others would give its shards away.
    fn everywhere(&self, lines: &str) -> Result<()> {
        let switches = Net::ALL.map(|net| self.switch(net));
        let batches: Vec<Batch> =
            switches.iter().map(|switch| Batch::start(switch)).collect::<Result<_>>()?;
        let told: Vec<Batch> = batches.into_iter().map(|batch| batch.tell(lines)).collect::<Result<_>>()?;
        told.into_iter().try_for_each(Batch::finish)
    }

    /// Divides a network: these nodes on one side, everything else on the other.
    pub fn divide(&self, net: Net, apart: &[u8]) -> Result<()> {
        apart.iter().try_for_each(|node| self.switch(net).ip(&self.words_to_divide(*node)).map(drop))
    }

    /// Joins a node to a network again, after any kind of cut.
    pub fn join(&self, node: u8, net: Net) -> Result<()> {
        let port = self.node(node).role();
        self.switch(net).ip(&format!("link set {port} master {BRIDGE}"))?;
        self.switch(net).ip(&format!("link set {port} up")).map(drop)
    }

    /// Joins every node to every network again.
    pub fn heal(&self) -> Result<()> {
        (1..)
            .zip(&self.nodes)
            .try_for_each(|(node, _)| Net::ALL.iter().try_for_each(|net| self.join(node, *net)))
    }

    fn connect_node(&self, n: u8) -> Result<()> {
        self.node(n).forward()?;
        Net::ALL.iter().try_for_each(|net| self.connect_node_to(n, *net))
    }

    /// Deletes a node's interface in a network.
    pub fn unplug(&self, node: u8, net: Net) -> Result<()> {
        self.node(node).ip(&format!("link delete {}", net.interface())).map(drop)
    }

    /// Creates a node's interface to a network, with its addresses and routes.
    pub fn connect_node_to(&self, n: u8, net: Net) -> Result<()> {
        let (node, interface) = (self.node(n), net.interface());
        if self.is_routed(net) {
            return self.connect_node_to_router(n, net);
        }
        self.plug(node.end(interface), net, self.mtu, Offloads::None)?;
        let own =
            |(family, prefix)| ip::address(interface, &format!("{}/{prefix}", Self::own(n, net, family)));
        let mut lines: Vec<String> = FAMILIES.into_iter().map(own).collect();
        // Without a tunnel, clear packets must be able to pass: otherwise the absence of clear
        // packets proves nothing.
        let peers = if net == Net::Outer { self.peers.len() } else { 0 };
        for peer in (1..).take(peers) {
            let route = |(family, _)| {
                let across = Self::peer_address(peer, family).to_string();
                ip::route(&Self::network_behind(peer, family), &across)
            };
            lines.extend(FAMILIES.map(route));
        }
        node.ip_each(lines)
    }

    fn connect_client(&self, options: &Options) -> Result<()> {
        self.plug(self.client.end(HOST), Net::Inner, options.mtu, Offloads::Default)?;
        // It sends to nodes that receive by AF_XDP.
        self.client.offloads(HOST, Offloads::None)?;
        let mut lines = Vec::new();
        for (family, prefix) in FAMILIES {
            lines.push(ip::address(HOST, &format!("{}/{prefix}", Side::One.host(family))));
            lines.push(ip::route("default", &self.gateway(Net::Inner, family).to_string()));
        }
        if self.is_routed(Net::Inner) {
            let (shared, router) = (Side::One.inner(Family::V4), self.gateway(Net::Inner, Family::V4));
            lines.push(ip::route(&shared.to_string(), &router.to_string()));
        }
        self.client.ip_each(lines)
    }

    fn connect_peer(&self, n: u8, options: &Options) -> Result<()> {
        let index = usize::from(n) - 1;
        let (peer, host) = (&self.peers[index], &self.hosts[index]);
        peer.forward()?;
        self.plug(peer.end(OUTER), Net::Outer, options.mtu, options.towards_peers)?;
        // It sends to nodes that receive by AF_XDP.
        peer.offloads(OUTER, Offloads::None)?;
        let mut of_host = vec![ip::veth(HOST, peer.end(INNER), 1), ip::up(HOST, options.mtu)];
        let mut of_peer = vec![ip::up(INNER, options.mtu)];
        for (family, prefix) in FAMILIES {
            let (router, across) = (Self::behind(n, family, 1), self.gateway(Net::Outer, family));
            of_peer.push(ip::address(OUTER, &format!("{}/{prefix}", Self::peer_address(n, family))));
            of_peer.push(ip::address(INNER, &format!("{router}/{prefix}")));
            of_peer.push(ip::route(&Side::One.network(family), &across.to_string()));
            of_host.push(ip::address(HOST, &format!("{}/{prefix}", Self::behind(n, family, 2))));
            of_host.push(ip::route("default", &router.to_string()));
        }
        host.ip_each(of_host)?;
        host.offloads(HOST, options.towards_peers)?;
        peer.ip_each(of_peer)?;
        if self.is_routed(Net::Outer) {
            self.connect_peer_to_router(n)?;
        }
        Ok(())
    }

    /// Joins a host to a switch, at a port with the name of the host.
    pub fn plug(&self, host: VethEnd<'_>, net: Net, mtu: u16, towards: Offloads) -> Result<()> {
        let VethEnd { namespace, interface } = host;
        let (switch, port) = (self.switch(net), namespace.role());
        switch.ip_each([ip::veth(port, host, self.queues), ip::up(port, mtu)])?;
        namespace.up(interface, mtu)?;
        switch.offloads(port, towards)?;
        switch.ip(&ip::join(port, BRIDGE)).map(drop)
    }
}
