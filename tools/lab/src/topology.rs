//! The usual lab: `client — gw1 — (untrusted network) — gw2 — server`, with IPv4 and IPv6
//! everywhere.
//!
//! ```text
//!  client      gw1               wire (bridge)             gw2      server
//!   eth0 ── inner0  outer0 ── port1   port2 ── outer0  inner0 ── eth0
//! ```
//!
//! The gateways have routes to each other's networks through the untrusted one, so that without a
//! tunnel packets *do* cross it in clear: a lab in which clear text cannot flow proves nothing when
//! none is seen.

use crate::namespace::Offloads;
use crate::nat::Nat;
use crate::{Lab, Namespace, Result, count, ip};
use std::fmt::{self, Display, Formatter};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Display for Family {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}

/// One of the two gateways.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// `gw1`, in front of the client.
    One,
    /// `gw2`, in front of the server.
    Two,
}

impl Side {
    /// 0 for one, 1 for two.
    pub fn index(self) -> usize {
        usize::from(self.number() - 1)
    }

    fn number(self) -> u8 {
        match self {
            Self::One => 1,
            Self::Two => 2,
        }
    }

    /// The other side.
    pub fn other(self) -> Self {
        match self {
            Self::One => Self::Two,
            Self::Two => Self::One,
        }
    }

    /// The gateway's address in the untrusted network.
    pub fn outer(self, family: Family) -> IpAddr {
        match family {
            Family::V4 => Ipv4Addr::new(192, 0, 2, self.number()).into(),
            Family::V6 => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, self.number().into()).into(),
        }
    }

    /// The gateway's address in its protected network.
    pub fn inner(self, family: Family) -> IpAddr {
        self.inside(family, 1)
    }

    /// The address of the host behind the gateway: the client or the server.
    pub fn host(self, family: Family) -> IpAddr {
        self.inside(family, 2)
    }

    /// The protected network, as a prefix.
    pub fn network(self, family: Family) -> String {
        match family {
            Family::V4 => format!("10.{}.0.0/24", self.number()),
            Family::V6 => format!("fd00:{}::/64", self.number()),
        }
    }

    fn inside(self, family: Family, host: u8) -> IpAddr {
        match family {
            Family::V4 => Ipv4Addr::new(10, self.number(), 0, host).into(),
            Family::V6 => Ipv6Addr::new(0xfd00, self.number().into(), 0, 0, 0, 0, 0, host.into()).into(),
        }
    }
}

/// Options of a topology.
#[derive(Clone, Debug)]
pub struct Options {
    /// MTU of the untrusted network and of the gateways' interfaces in it.
    pub outer_mtu: u16,
    /// MTU of the protected networks.
    pub inner_mtu: u16,
    /// Offloads of the interfaces that send to gw1 and to gw2. [`Offloads::None`] if the gateway
    /// receives by AF_XDP.
    pub towards: [Offloads; 2],
    /// Queues of the interfaces of gw1 and of gw2, in each direction.
    pub queues: [u32; 2],
    /// The side whose gateway is behind a NAT; this side has IPv4 only in the untrusted network.
    pub nat: Option<Side>,
}

impl Default for Options {
    fn default() -> Self {
        Self { outer_mtu: 1500, inner_mtu: 1500, towards: [Offloads::Default; 2], queues: [1; 2], nat: None }
    }
}

/// The five hosts, and the router if there is a NAT.
#[derive(Clone, Debug)]
pub struct Topology {
    /// The host behind gw1.
    pub client: Namespace,
    /// The gateway under test.
    pub gw1: Namespace,
    /// The untrusted network; see [`WIRE_PORTS`].
    pub wire: Namespace,
    /// The peer.
    pub gw2: Namespace,
    /// The host behind gw2.
    pub server: Namespace,
    /// The router between a gateway and the untrusted network.
    pub nat: Option<Nat>,
}

/// The interfaces of the untrusted network to gw1 and gw2: packets received there have just left
/// the gateway.
pub const WIRE_PORTS: [&str; 2] = ["port1", "port2"];
/// The bridge that joins them.
pub const BRIDGE: &str = "br0";
/// The gateways' interface to the untrusted network.
pub const OUTER: &str = "outer0";
/// The gateways' interface to their protected network.
pub const INNER: &str = "inner0";
/// The interface of client and server.
pub const HOST: &str = "eth0";

impl Topology {
    /// Builds it, with all addresses and routes.
    pub fn build(lab: &Lab, options: &Options) -> Result<Self> {
        let topology = Self {
            client: lab.namespace("client")?,
            gw1: lab.namespace("gw1")?,
            wire: lab.namespace("wire")?,
            gw2: lab.namespace("gw2")?,
            server: lab.namespace("server")?,
            nat: options.nat.map(|side| Nat::create(lab, side)).transpose()?,
        };
        // The bridge's own stack stays silent, so that every packet comes from a host.
        topology.wire.sysctl(&[("net.ipv6.conf.default.disable_ipv6", "1")])?;
        for side in [Side::One, Side::Two] {
            topology.connect(side, options)?;
        }
        topology.wire.bridge(BRIDGE, &WIRE_PORTS, options.outer_mtu)?;
        count::install(&topology.wire)?;
        Ok(topology)
    }

    /// The gateway of that side.
    pub fn gateway(&self, side: Side) -> &Namespace {
        match side {
            Side::One => &self.gw1,
            Side::Two => &self.gw2,
        }
    }

    /// The host behind the gateway of that side.
    pub fn host(&self, side: Side) -> &Namespace {
        match side {
            Side::One => &self.client,
            Side::Two => &self.server,
        }
    }

    fn connect(&self, side: Side, options: &Options) -> Result<()> {
        self.gateway(side).forward()?;
        self.connect_inside(side, options)?;
        match &self.nat {
            Some(nat) if nat.side() == side => nat.connect(self.gateway(side), &self.wire, options)?,
            _ => self.connect_outside(side, options)?,
        }
        self.wire.offloads(WIRE_PORTS[side.index()], options.towards[side.index()])
    }

    /// Deletes an interface of a gateway together with its other end: [`HOST`] of the host behind
    /// it, or its port of the untrusted network, where [`crate::count`] then stops counting.
    pub fn delete(&self, side: Side, interface: &str) -> Result<()> {
        self.gateway(side).ip(&format!("link delete {interface}")).map(drop)
    }

    /// Creates a gateway's interface to the untrusted network again.
    pub fn connect_outside_again(&self, side: Side, options: &Options) -> Result<()> {
        let port = WIRE_PORTS[side.index()];
        self.connect_outside(side, options)?;
        self.wire.offloads(port, options.towards[side.index()])?;
        self.wire.ip(&ip::join(port, BRIDGE)).map(drop)
    }

    /// Joins a gateway and the host behind it.
    pub fn connect_inside(&self, side: Side, options: &Options) -> Result<()> {
        let (gateway, host) = (self.gateway(side), self.host(side));
        let pair = ip::veth(HOST, gateway.end(INNER), options.queues[side.index()]);
        let mut of_host = vec![pair, ip::up(HOST, options.inner_mtu)];
        let mut of_gateway = vec![ip::up(INNER, options.inner_mtu)];
        for (family, prefix) in [(Family::V4, 24), (Family::V6, 64)] {
            of_gateway.push(ip::address(INNER, &format!("{}/{prefix}", side.inner(family))));
            of_host.push(ip::address(HOST, &format!("{}/{prefix}", side.host(family))));
            of_host.push(ip::route("default", &side.inner(family).to_string()));
        }
        host.ip_each(of_host)?;
        host.offloads(HOST, options.towards[side.index()])?;
        gateway.ip_each(of_gateway)
    }

    fn connect_outside(&self, side: Side, options: &Options) -> Result<()> {
        let (gateway, port) = (self.gateway(side), WIRE_PORTS[side.index()]);
        let pair = ip::veth(port, gateway.end(OUTER), options.queues[side.index()]);
        self.wire.ip_each([pair, ip::up(port, options.outer_mtu)])?;
        let mut of_gateway = vec![ip::up(OUTER, options.outer_mtu)];
        for (family, prefix) in [(Family::V4, 24), (Family::V6, 64)] {
            of_gateway.push(ip::address(OUTER, &format!("{}/{prefix}", side.outer(family))));
            let across = side.other().outer(family).to_string();
            of_gateway.push(ip::route(&side.other().network(family), &across));
        }
        gateway.ip_each(of_gateway)
    }
}
