//! The forwarding table: an immutable picture of the kernel's routes, neighbours and addresses.
//!
//! Workers only read it; [`crate::netlink`] makes a new one when the kernel's tables change.
//! Nothing here asks the kernel, so tests build tables of their own with [`Fib::builder`].

mod builder;
mod neighbours;
mod table;
#[cfg(test)]
mod tests;

pub use builder::FibBuilder;
pub use neighbours::Neighbour;

use crate::mac::MacAddr;
use neighbours::NeighbourTable;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use table::RangeTable;
use testudo_base::prefix::Prefix;
use testudo_wire::icmp::Sources;

/// Number of a port within the instance: its place in the configuration, the same for every queue
/// and worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PortIndex(pub u16);

/// A set of the instance's ports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PortSet(u64);

impl PortSet {
    fn bit(port: PortIndex) -> u64 {
        1u64.checked_shl(port.0.into()).unwrap_or(0)
    }

    /// True if the port is in the set.
    #[inline]
    pub fn contains(self, port: PortIndex) -> bool {
        self.0 & Self::bit(port) != 0
    }

    /// The set with the port in it, or without it.
    pub(crate) fn put(self, port: PortIndex, is_in: bool) -> Self {
        if is_in { self.with(port) } else { Self(self.0 & !Self::bit(port)) }
    }

    /// The ports in ascending order.
    fn iter(self) -> impl Iterator<Item = PortIndex> {
        (0..64).map(PortIndex).filter(move |port| self.contains(*port))
    }

    fn with(self, port: PortIndex) -> Self {
        Self(self.0 | Self::bit(port))
    }
}

impl FromIterator<PortIndex> for PortSet {
    fn from_iter<I: IntoIterator<Item = PortIndex>>(ports: I) -> Self {
        ports.into_iter().fold(Self::default(), Self::with)
    }
}

/// Where packets to a destination go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Route {
    /// Out of an interface.
    Forward(NextHop),
    /// To the kernel: an address of this machine, a broadcast or a multicast address.
    Local,
    /// Discarded with an ICMP "host unreachable".
    Unreachable,
    /// Discarded with an ICMP "administratively prohibited".
    Prohibit,
    /// Discarded silently.
    Blackhole,
    /// No route matches: discarded with an ICMP "net unreachable".
    NoRoute,
}

/// A way out of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NextHop {
    /// The interface.
    pub out: Out,
    /// The router to send to. `None`: the destination itself is on the link. May be of the other
    /// family (RFC 5549).
    pub gateway: Option<IpAddr>,
    /// Largest IP packet: the route's MTU if it has one, else the link's.
    pub mtu: u16,
}

impl NextHop {
    /// The address whose MAC address the frame is for.
    pub fn neighbour(&self, destination: IpAddr) -> IpAddr {
        self.gateway.unwrap_or(destination)
    }
}

/// The interface of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Out {
    /// One of our ports.
    Port(PortIndex),
    /// An interface that only the kernel can send on: such packets go through the TUN.
    Other {
        /// Its number in the kernel.
        ifindex: u32,
    },
}

/// The kernel's data about a port's interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortLink {
    /// Number of the port.
    pub index: PortIndex,
    /// Name of the interface.
    pub name: String,
    /// Number of the interface in the kernel; 0 while there is no such interface.
    pub ifindex: u32,
    /// Address of the interface.
    pub mac: MacAddr,
    /// Largest IP packet that the interface takes.
    pub mtu: u16,
    /// True if the interface is up and has a carrier.
    pub up: bool,
    /// Addresses of the interface in the kernel's order, primary ones first, link-local ones last.
    pub addresses: Vec<IpAddr>,
}

/// A route, and all ports behind which its next hops lie. A route with several next hops is used by
/// its first alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Paths {
    route: Route,
    behind: PortSet,
    /// True for the default route: packets that no other route matches take it.
    is_default: bool,
}

/// The part of the table that stays when only neighbours change.
#[derive(Debug)]
struct Routing {
    ports: Vec<PortLink>,
    addresses: Vec<IpAddr>,
    connected: Vec<Prefix>,
    routes: Vec<Paths>,
    /// Routes of the main table through each port, by its number.
    through: Vec<usize>,
    v4: RangeTable<u32>,
    v6: RangeTable<u128>,
}

/// The answer for destinations that no prefix holds.
const NO_PATHS: Paths = Paths { route: Route::NoRoute, behind: PortSet(0), is_default: false };

/// The forwarding table.
#[derive(Debug)]
pub struct Fib {
    generation: u64,
    routing: Arc<Routing>,
    neighbours: NeighbourTable,
}

impl Fib {
    /// Starts a table.
    pub fn builder() -> FibBuilder {
        FibBuilder::default()
    }

    /// Number of this table; each change of the kernel's tables makes one. 0 before the first.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The most specific route. The kernel's local table comes before its main table, whatever the
    /// prefix lengths.
    #[inline]
    pub fn lookup(&self, destination: IpAddr) -> Route {
        match destination {
            IpAddr::V4(addr) => self.lookup4(addr),
            IpAddr::V6(addr) => self.lookup6(addr),
        }
    }

    /// [`Self::lookup`] of an IPv4 address.
    #[inline]
    pub fn lookup4(&self, destination: Ipv4Addr) -> Route {
        self.paths(destination.into()).route
    }

    /// [`Self::lookup`] of an IPv6 address.
    #[inline]
    pub fn lookup6(&self, destination: Ipv6Addr) -> Route {
        self.paths(destination.into()).route
    }

    /// True if the route to an address leads out of this port, by at least one of its next hops:
    /// the check of strict reverse path forwarding for the source of a packet that came in there
    /// (RFC 3704 §2.2).
    pub fn leads_through(&self, port: PortIndex, addr: IpAddr) -> bool {
        self.paths(addr).behind.contains(port)
    }

    /// How many routes of the main table lead out of a port, by at least one of their next hops.
    pub fn routes_through(&self, port: PortIndex) -> usize {
        self.routing.through.get(usize::from(port.0)).copied().unwrap_or(0)
    }

    /// True if only the default route leads to an address.
    pub fn is_by_default(&self, addr: IpAddr) -> bool {
        self.paths(addr).is_default
    }

    #[inline]
    fn paths(&self, addr: IpAddr) -> Paths {
        let number = match addr {
            IpAddr::V4(addr) => self.routing.v4.lookup(addr.into()),
            IpAddr::V6(addr) => self.routing.v6.lookup(addr.into()),
        };
        self.routing.routes.get(number as usize).copied().unwrap_or(NO_PATHS)
    }

    /// All neighbours, by port and address: IPv4 first.
    pub fn neighbours(&self) -> impl Iterator<Item = (PortIndex, IpAddr)> + '_ {
        self.neighbours.keys()
    }

    /// The MAC address of a neighbour, if the kernel knows it. Marks the neighbour as used.
    #[inline]
    pub fn neighbour(&self, port: PortIndex, addr: IpAddr) -> Option<MacAddr> {
        let found = self.neighbours.find(port, addr)?;
        found.mark_used();
        Some(found.mac())
    }

    /// The same routes with other neighbours.
    #[must_use]
    pub fn with_neighbours(
        &self,
        generation: u64,
        neighbours: impl IntoIterator<Item = (PortIndex, IpAddr, Arc<Neighbour>)>,
    ) -> Self {
        let neighbours = neighbours.into_iter().collect();
        Self { generation, routing: Arc::clone(&self.routing), neighbours }
    }

    /// All addresses of this machine, including those of interfaces that are no port.
    pub fn addresses(&self) -> &[IpAddr] {
        &self.routing.addresses
    }

    /// The prefixes in which an administrator gave this machine an address: exceptions in any
    /// larger protected prefix. Addresses and routes that the network hands out do not count.
    pub fn connected(&self) -> &[Prefix] {
        &self.routing.connected
    }

    /// The ports, by number.
    pub fn ports(&self) -> &[PortLink] {
        &self.routing.ports
    }

    /// A port's interface.
    pub fn port(&self, index: PortIndex) -> Option<&PortLink> {
        let ports = &self.routing.ports;
        ports.binary_search_by_key(&index, |p| p.index).ok().and_then(|i| ports.get(i))
    }

    /// Addresses of the port: the sources of ICMP errors about packets that came in there (RFC 1812
    /// §4.3.2.4). Link-local addresses are left out, because such an error would not leave the
    /// link.
    pub fn sources(&self, port: PortIndex) -> Sources {
        let mut sources = Sources::default();
        for addr in self.port(port).map(|link| link.addresses.as_slice()).unwrap_or_default() {
            match *addr {
                IpAddr::V4(addr) => sources.v4 = sources.v4.or(Some(addr)),
                IpAddr::V6(addr) if addr.is_unicast_link_local() => {}
                IpAddr::V6(addr) => sources.v6 = sources.v6.or(Some(addr)),
            }
        }
        sources
    }
}
