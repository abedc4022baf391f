//! Routers in place of the outer and the inner switch: each node is at the end of a link of its own,
//! in a network of its own.
//!
//! ```text
//! node1:outer0 ── node1 ┐
//! node2:outer0 ── node2 ┤ router "outer" ── br0 ── peers
//! node3:outer0 ── node3 ┘
//! ```
//!
//! The inner side, with the client, is the same. The nodes tell both routers by BGP which shared
//! addresses they serve. A router chooses one of these nodes by the addresses of a packet (ECMP).

use super::{BRIDGE, Cluster, Ingress, Net};
use crate::bird::Bird;
use crate::namespace::Offloads;
use crate::topology::{Family, Side};
use crate::{Result, ip, wait_until};
use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// Routing table in which a node's testudod has the shared addresses that it serves.
pub const ANNOUNCED: u32 = 5406;

/// The autonomous systems of the nodes, and of the routers.
const NODES: u32 = 65001;
const ROUTERS: u32 = 65000;
/// For sessions of BGP on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);
/// The networks with a router.
const ROUTED: [Net; 2] = [Net::Outer, Net::Inner];

impl Cluster {
    /// True if a router connects the nodes to this network.
    pub(super) fn is_routed(&self, net: Net) -> bool {
        self.ingress == Ingress::Routed && ROUTED.contains(&net)
    }

    /// Where this network's hosts send packets for others.
    pub(super) fn gateway(&self, net: Net, family: Family) -> IpAddr {
        match (family, net) {
            (Family::V4, _) if self.is_routed(net) => router(net),
            (_, Net::Outer) => Side::One.outer(family),
            (_, Net::Inner | Net::Cluster) => Side::One.inner(family),
        }
    }

    /// Makes the switch of this network a router between its bridge and the nodes' links.
    pub(super) fn make_router(&self, net: Net) -> Result<()> {
        let namespace = self.switch(net);
        namespace.forward()?;
        namespace.address(BRIDGE, &format!("{}/24", router(net)))
    }

    /// Connects a node to a router.
    pub(super) fn connect_node_to_router(&self, n: u8, net: Net) -> Result<()> {
        let (node, namespace) = (self.node(n), self.switch(net));
        let (interface, port) = (net.interface(), node.role());
        let (own, router) = (Self::own(n, net, Family::V4), router(net));
        namespace.ip_each([
            ip::veth(port, node.end(interface), self.queues),
            format!("address add {router} peer {own} dev {port}"),
            ip::up(port, self.mtu),
        ])?;
        // It sends to nodes that receive by AF_XDP.
        namespace.offloads(port, Offloads::None)?;
        let mut lines = vec![
            // With `arp_ignore = 1`, as nodes have it, Linux answers for no address that has a peer:
            // the router would lose the node as soon as its neighbour entry is stale.
            format!("address add {own}/24 dev {interface} noprefixroute"),
            ip::up(interface, self.mtu),
            format!("route add {router} dev {interface} src {own}"),
            ip::route(&format!("{}/24", network(net)), &router.to_string()),
        ];
        // As with switches: without a tunnel, clear packets can pass.
        let peers = if net == Net::Outer { self.peers.len() } else { 0 };
        let behind = |peer| ip::route(&Self::network_behind(peer, Family::V4), &router.to_string());
        lines.extend((1..).take(peers).map(behind));
        node.ip_each(lines)
    }

    /// Sends a peer's packets for the cluster to the router, and the router's for its network to the
    /// peer.
    pub(super) fn connect_peer_to_router(&self, n: u8) -> Result<()> {
        let (shared, router) = (Side::One.outer(Family::V4), router(Net::Outer));
        self.peers[usize::from(n) - 1].route(&shared.to_string(), &router.to_string())?;
        let (network, peer) = (Self::network_behind(n, Family::V4), Self::peer_address(n, Family::V4));
        self.outer.route(&network, &peer.to_string())
    }

    /// Starts BGP between the nodes and both routers.
    pub fn start_routing(&self, liveness: Liveness) -> Result<Routing> {
        let router = |net| Bird::start(self.switch(net), &self.router_config(net, liveness));
        let behind = self.networks_behind();
        let node = |(number, namespace)| Bird::start(namespace, &node_config(number, &behind, liveness));
        let routing = Routing {
            routers: [router(Net::Outer)?, router(Net::Inner)?],
            nodes: (1..).zip(&self.nodes).map(node).collect::<Result<_>>()?,
        };
        Ok(routing)
    }

    fn router_config(&self, net: Net, liveness: Liveness) -> String {
        let (own, (bfd, of_session)) = (router(net), liveness.config());
        let mut text = format!(
            "log stderr all;
             router id {own};
             protocol device {{ scan time 1; }}
             protocol direct {{ ipv4; }}
             protocol kernel {{ merge paths on; scan time 1; ipv4 {{ import none; export where source != RTS_DEVICE; }}; }}
             {bfd}\n"
        );
        // What is behind the nodes is where their shared address is. On the inner side nodes announce
        // that themselves: a recursive route would take one of them, and not all.
        if net != Net::Inner {
            let behind = Side::One.network(Family::V4);
            let shared = Self::shared(net, Family::V4).map(|shared| shared.to_string()).unwrap_or_default();
            let _ = writeln!(text, "protocol static {{ ipv4; route {behind} recursive {shared}; }}");
        }
        for node in (1..).take(self.nodes.len()) {
            let neighbour = Self::own(node, net, Family::V4);
            let _ = writeln!(
                text,
                "protocol bgp node{node} {{ local {own} as {ROUTERS}; neighbor {neighbour} as {NODES}; {of_session}
                 connect retry time 1; connect delay time 1; error wait time 1, 2;
                 ipv4 {{ import all; export none; }}; }}"
            );
        }
        text
    }

    fn networks_behind(&self) -> Vec<String> {
        (1..).take(self.peers.len()).map(|peer| Self::network_behind(peer, Family::V4)).collect()
    }

    /// Has both routers send all packets to this node, whatever they have learned by BGP.
    pub fn steer(&self, node: u8) -> Result<()> {
        for net in ROUTED {
            let (own, port) = (Self::own(node, net, Family::V4), self.node(node).role());
            let shared = Self::shared(net, Family::V4).map(|shared| shared.to_string());
            let behind = if net == Net::Inner { self.networks_behind() } else { Vec::new() };
            for to in shared.into_iter().chain(behind) {
                // BIRD's routes have the metric 32.
                self.switch(net).ip(&format!("route replace {to} via {own} dev {port} metric 1"))?;
            }
        }
        Ok(())
    }

    /// The nodes that the router of a network sends packets for its shared address to.
    pub fn served_by(&self, net: Net) -> Result<Vec<u8>> {
        let Some(shared) = Self::shared(net, Family::V4) else { return Ok(Vec::new()) };
        let shown = self.switch(net).ip(&format!("route show {shared}"))?.stdout;
        let is_named = |node: &u8| shown.split_whitespace().any(|word| word == self.node(*node).role());
        Ok((1..).take(self.nodes.len()).filter(is_named).collect())
    }

    /// Waits until both routers send to exactly these nodes.
    pub fn await_served_by(&self, nodes: &[u8]) -> Result<()> {
        wait_until(&format!("routes to nodes {nodes:?}"), LIMIT, || {
            let seen = [self.served_by(Net::Outer)?, self.served_by(Net::Inner)?];
            Ok(if seen.iter().all(|seen| seen == nodes) { Ok(()) } else { Err(format!("{seen:?}")) })
        })
    }
}

/// How a router notices that a node is gone which closes no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// After minutes, by BGP's hold time.
    Bgp,
    /// By BFD, as `docs/how-to/routed.md` has it: after 150 ms, which a host without a processor may
    /// miss too.
    Bfd,
}

impl Liveness {
    /// The protocol, and the word in each session of BGP.
    fn config(self) -> (&'static str, &'static str) {
        match self {
            Self::Bgp => ("", ""),
            Self::Bfd => ("protocol bfd { interface \"*\" { interval 50 ms; multiplier 3; }; }", "bfd on;"),
        }
    }
}

/// BIRD of all routers and nodes.
#[derive(Debug)]
pub struct Routing {
    /// Of the outer and the inner router.
    pub routers: [Bird; 2],
    /// Of the nodes, counted from 1.
    pub nodes: Vec<Bird>,
}

/// A router's address, the same on all of its links.
fn router(net: Net) -> IpAddr {
    match net {
        Net::Outer => Ipv4Addr::new(192, 0, 2, 254).into(),
        Net::Inner | Net::Cluster => Ipv4Addr::new(10, 1, 0, 254).into(),
    }
}

/// The network of the router and its hosts; the nodes' own addresses lie in it too.
fn network(net: Net) -> IpAddr {
    match net {
        Net::Outer => Ipv4Addr::new(192, 0, 2, 0).into(),
        Net::Inner | Net::Cluster => Ipv4Addr::new(10, 1, 0, 0).into(),
    }
}

/// What `docs/how-to/routed.md` tells operators to write.
fn node_config(number: u8, behind: &[String], liveness: Liveness) -> String {
    let (bfd, of_session) = liveness.config();
    let mut text = format!(
        "log stderr all;
         router id 10.99.0.{number};
         protocol device {{ scan time 1; }}
         protocol kernel {{ kernel table {ANNOUNCED}; learn; scan time 1; ipv4 {{ import all; export none; }}; }}
         {bfd}\n"
    );
    for net in ROUTED {
        let (name, interface) = (format!("{net:?}").to_lowercase(), net.interface());
        let (own, router) = (Cluster::own(number, net, Family::V4), router(net));
        let shared = Cluster::shared(net, Family::V4).map(|shared| shared.to_string()).unwrap_or_default();
        let mut announced = format!("net = {shared}/32");
        for behind in behind.iter().filter(|_| net == Net::Inner) {
            let _ = writeln!(text, "protocol static {{ ipv4; route {behind} recursive {shared}; }}");
            announced += &format!(" || net = {behind} && dest = RTD_UNICAST");
        }
        let _ = writeln!(
            text,
            "protocol bgp {name} {{ local {own} as {NODES}; neighbor {router} as {ROUTERS}; interface \"{interface}\"; {of_session}
             connect retry time 1; connect delay time 1; error wait time 1, 2;
             ipv4 {{ import none; next hop self; export where {announced}; }}; }}"
        );
    }
    text
}
