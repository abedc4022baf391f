//! The kernel's tables, read and turned into a forwarding table.

use super::connection::Connection;
use super::error::Result;
use super::links::{Address, Link, dump_addresses, dump_links};
use super::neighbours::Neighbours;
use super::routes::{KernelRoute, TABLE_LOCAL, TABLE_MAIN, Target, dump_routes};
use crate::fib::{Fib, Neighbour, NextHop, Out, PortIndex, PortLink, Route};
use crate::mac::MacAddr;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::route::RouteProtocol;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

/// Which interfaces matter.
#[derive(Clone, Debug, Default)]
pub struct Interfaces {
    /// Name of each port's interface.
    pub ports: BTreeMap<PortIndex, String>,
    /// The host TUN. Routes through it are our own, so workers do not use them.
    pub tun: Option<String>,
}

/// The kernel's tables without the neighbours.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Tables {
    links: Vec<Link>,
    addresses: Vec<Address>,
    local: Vec<KernelRoute>,
    main: Vec<KernelRoute>,
}

impl Tables {
    /// Reads all of them.
    pub(super) fn read(connection: &mut Connection) -> Result<Self> {
        let mut tables = Self {
            links: dump_links(connection)?,
            addresses: dump_addresses(connection)?,
            local: Vec::new(),
            main: Vec::new(),
        };
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            tables.local.extend(dump_routes(connection, family, TABLE_LOCAL)?);
            tables.main.extend(dump_routes(connection, family, TABLE_MAIN)?);
        }
        // A stable sort: among routes of equal metrics the kernel's first counts.
        tables.main.sort_by_key(|r| (r.prefix, r.metric));
        Ok(tables)
    }

    /// The port of each interface that is one.
    pub(super) fn ports(&self, interfaces: &Interfaces) -> BTreeMap<u32, PortIndex> {
        let number = |name: &str| self.links.iter().find(|l| l.name == name).map(|l| l.ifindex);
        interfaces.ports.iter().filter_map(|(port, name)| Some((number(name)?, *port))).collect()
    }

    /// The forwarding table.
    pub(super) fn fib(&self, generation: u64, interfaces: &Interfaces, neighbours: &Neighbours) -> Fib {
        let ports = self.ports(interfaces);
        let mtus = self.links.iter().map(|l| (l.ifindex, l.mtu)).collect();
        let tun = self.links.iter().find(|l| Some(&l.name) == interfaces.tun.as_ref()).map(|l| l.ifindex);
        let mut builder = Fib::builder().generation(generation);
        for (port, name) in &interfaces.ports {
            builder = builder.port(self.port_link(*port, name));
        }
        for address in &self.addresses {
            builder = builder.address(address.addr);
        }
        for route in &self.local {
            builder = builder.local(route.prefix, Route::Local);
        }
        let foreign =
            |r: &&KernelRoute| !matches!(r.target, Target::Interface { ifindex, .. } if Some(ifindex) == tun);
        for route in self.main.iter().filter(foreign) {
            if self.is_connected(route) {
                builder = builder.connected(route.prefix);
            }
            let others = route.others.iter().filter_map(|ifindex| ports.get(ifindex).copied());
            builder = builder.multipath(route.prefix, forwarding(route.target, &ports, &mtus), others);
        }
        for (port, addr, neighbour) in on_ports(neighbours, &ports) {
            builder = builder.shared_neighbour(port, addr, neighbour);
        }
        builder.build()
    }

    /// True for a route that the kernel made for an address that an administrator gave the
    /// interface. A route without a router that somebody else made may or may not be meant as an
    /// exception from a protected prefix, so it does not count. Neither does what the network
    /// announces: otherwise a single Router Advertisement (RFC 4861 §4.6.2), which anybody on the
    /// link can send, would open a protected prefix.
    fn is_connected(&self, route: &KernelRoute) -> bool {
        let Target::Interface { ifindex, gateway: None, .. } = route.target else { return false };
        let holds = |a: &Address| a.ifindex == ifindex && a.on_link == Some(route.prefix);
        route.protocol == RouteProtocol::Kernel && !route.expires && self.addresses.iter().any(holds)
    }

    fn port_link(&self, index: PortIndex, name: &str) -> PortLink {
        let absent = PortLink {
            index,
            name: name.to_owned(),
            ifindex: 0,
            mac: MacAddr([0; 6]),
            mtu: 0,
            up: false,
            addresses: Vec::new(),
        };
        let Some(link) = self.links.iter().find(|l| l.name == name) else { return absent };
        let own = self.addresses.iter().filter(|a| a.ifindex == link.ifindex);
        PortLink {
            ifindex: link.ifindex,
            mac: link.mac,
            mtu: to_mtu(link.mtu),
            up: link.up,
            addresses: own.map(|a| a.addr).collect(),
            ..absent
        }
    }
}

fn forwarding(target: Target, ports: &BTreeMap<u32, PortIndex>, mtus: &HashMap<u32, u32>) -> Route {
    match target {
        Target::Local => Route::Local,
        Target::Blackhole => Route::Blackhole,
        Target::Unreachable => Route::Unreachable,
        Target::Prohibit => Route::Prohibit,
        Target::Throw => Route::NoRoute,
        Target::Interface { ifindex, gateway, mtu, .. } => {
            let out = ports.get(&ifindex).map_or(Out::Other { ifindex }, |port| Out::Port(*port));
            let link = mtus.get(&ifindex).copied().unwrap_or(0);
            Route::Forward(NextHop { out, gateway, mtu: to_mtu(mtu.map_or(link, |m| m.min(link))) })
        }
    }
}

/// The neighbours on our ports.
pub(super) fn on_ports(
    neighbours: &Neighbours,
    ports: &BTreeMap<u32, PortIndex>,
) -> Vec<(PortIndex, IpAddr, Arc<Neighbour>)> {
    let on_port = |((ifindex, addr), neighbour): ((u32, IpAddr), &Arc<Neighbour>)| {
        ports.get(&ifindex).map(|port| (*port, addr, Arc::clone(neighbour)))
    };
    neighbours.iter().filter_map(on_port).collect()
}

/// Limits an MTU to 65535: no IP packet without a jumbogram option is larger.
fn to_mtu(mtu: u32) -> u16 {
    u16::try_from(mtu).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(ifindex: u32, name: &str) -> Link {
        let mac = MacAddr([2, 0, 0, 0, 0, 1]);
        Link { ifindex, name: name.to_owned(), mac, mtu: 1500, max_mtu: 0, up: true }
    }

    fn route(prefix: &str, target: Target) -> KernelRoute {
        let prefix = prefix.parse().expect(prefix);
        let others = Vec::new();
        KernelRoute { prefix, metric: 0, protocol: RouteProtocol::Static, expires: false, target, others }
    }

    fn through(ifindex: u32, gateway: Option<&str>, mtu: Option<u32>) -> Target {
        let gateway = gateway.map(|g| g.parse().expect(g));
        Target::Interface { ifindex, gateway, mtu, source: None }
    }

    #[test]
    fn routes_lead_to_ports_to_the_kernel_or_nowhere() {
        let tables = Tables {
            links: vec![link(2, "eth0"), link(3, "eth1"), link(4, "testudo0")],
            addresses: vec![Address {
                ifindex: 2,
                addr: "192.0.2.1".parse().unwrap(),
                on_link: "192.0.2.0/24".parse().ok(),
                rank: 0,
            }],
            local: vec![route("192.0.2.1/32", Target::Local)],
            main: vec![
                route("0.0.0.0/0", through(2, Some("192.0.2.254"), Some(1400))),
                route("10.0.0.0/8", through(4, None, None)),
                route("10.1.0.0/16", through(3, None, Some(9000))),
                route("10.2.0.0/16", Target::Throw),
                KernelRoute {
                    protocol: RouteProtocol::Kernel,
                    ..route("192.0.2.0/24", through(2, None, None))
                },
            ],
        };
        let interfaces = Interfaces {
            ports: BTreeMap::from([(PortIndex(7), "eth0".to_owned()), (PortIndex(8), "gone0".to_owned())]),
            tun: Some("testudo0".to_owned()),
        };
        let fib = tables.fib(5, &interfaces, &Neighbours::default());
        let lookup = |addr: &str| fib.lookup(addr.parse().expect(addr));
        let hop = |out, gateway: Option<&str>, mtu| {
            Route::Forward(NextHop { out, gateway: gateway.map(|g| g.parse().expect(g)), mtu })
        };
        assert_eq!(fib.generation(), 5);
        assert_eq!(lookup("192.0.2.1"), Route::Local);
        assert_eq!(lookup("192.0.2.2"), hop(Out::Port(PortIndex(7)), None, 1500));
        assert_eq!(lookup("8.8.8.8"), hop(Out::Port(PortIndex(7)), Some("192.0.2.254"), 1400));
        assert_eq!(lookup("10.1.0.1"), hop(Out::Other { ifindex: 3 }, None, 1500));
        assert_eq!(lookup("10.2.0.1"), Route::NoRoute);
        assert_eq!(lookup("10.3.0.1"), lookup("8.8.8.8"));
        assert_eq!(fib.connected(), ["192.0.2.0/24".parse().unwrap()]);
        let ports: Vec<_> = fib.ports().iter().map(|p| (p.index.0, p.ifindex, p.up)).collect();
        assert_eq!(ports, [(7, 2, true), (8, 0, false)]);
        assert_eq!(fib.sources(PortIndex(7)).v4, "192.0.2.1".parse().ok());
    }
}
