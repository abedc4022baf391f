//! Routes, as the kernel lists them.

use super::connection::Connection;
use super::error::Result;
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteMetric, RouteNextHop, RouteNextHopFlags,
    RouteProtocol, RouteType, RouteVia,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use testudo_base::prefix::Prefix;

/// Number of the local table.
pub(super) const TABLE_LOCAL: u32 = libc::RT_TABLE_LOCAL as u32;
/// Number of the main table.
pub(super) const TABLE_MAIN: u32 = libc::RT_TABLE_MAIN as u32;

/// A route of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KernelRoute {
    pub(super) prefix: Prefix,
    /// Among routes to one prefix the lowest metric counts.
    pub(super) metric: u32,
    pub(super) protocol: RouteProtocol,
    /// True if the kernel removes the route after a while, unless it is renewed.
    pub(super) expires: bool,
    pub(super) target: Target,
    /// Interfaces of the further next hops.
    pub(super) others: Vec<u32>,
}

/// Where a route leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Local,
    Blackhole,
    Unreachable,
    Prohibit,
    /// Ends the search in this table.
    Throw,
    Interface {
        ifindex: u32,
        gateway: Option<IpAddr>,
        mtu: Option<u32>,
        /// Source address of packets that this machine sends.
        source: Option<IpAddr>,
    },
}

/// All routes of a table, in the kernel's order.
pub(super) fn dump_routes(
    connection: &mut Connection,
    family: AddressFamily,
    table: u32,
) -> Result<Vec<KernelRoute>> {
    let mut message = RouteMessage::default();
    message.header.address_family = family;
    message.header.table = u8::try_from(table).unwrap_or(0);
    message.attributes.push(RouteAttribute::Table(table));
    let request = RouteNetlinkMessage::GetRoute(message);
    let operation = format!("cannot list routing table {table}");
    connection.dump(&operation, &request, |routes: &mut Vec<KernelRoute>, object| {
        if let RouteNetlinkMessage::NewRoute(message) = object
            && table_of(&message) == table
        {
            routes.extend(read(&message));
        }
    })
}

fn table_of(message: &RouteMessage) -> u32 {
    let attribute = message.attributes.iter().find_map(|a| match a {
        RouteAttribute::Table(table) => Some(*table),
        _ => None,
    });
    attribute.unwrap_or(message.header.table.into())
}

/// Reads a route. `None` for a route that does not forward every packet to a destination alike: a
/// route by type of service or by source (IPv6), a cached exception, or a route whose interfaces
/// are all dead.
fn read(message: &RouteMessage) -> Option<KernelRoute> {
    let header = &message.header;
    let special = header.tos != 0 || header.source_prefix_length != 0;
    if special || header.flags.intersects(RouteFlags::Cloned | RouteFlags::Dead) {
        return None;
    }
    let mut destination = match header.address_family {
        AddressFamily::Inet => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        AddressFamily::Inet6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        _ => return None,
    };
    let (mut metric, mut expires) = (0, false);
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Destination(addr) => destination = address(addr)?,
            RouteAttribute::Priority(value) => metric = *value,
            RouteAttribute::CacheInfo(info) => expires = info.expires != 0,
            _ => {}
        }
    }
    let prefix = Prefix::new(destination, header.destination_prefix_length)?;
    let (protocol, target, others) = (header.protocol, target(message)?, others(message));
    Some(KernelRoute { prefix, metric, protocol, expires, target, others })
}

fn target(message: &RouteMessage) -> Option<Target> {
    Some(match message.header.kind {
        RouteType::Local | RouteType::Broadcast | RouteType::Anycast | RouteType::Multicast => Target::Local,
        RouteType::BlackHole => Target::Blackhole,
        RouteType::Unreachable => Target::Unreachable,
        RouteType::Prohibit => Target::Prohibit,
        RouteType::Throw => Target::Throw,
        RouteType::Unicast => interface(message)?,
        _ => return None,
    })
}

fn interface(message: &RouteMessage) -> Option<Target> {
    let (mut ifindex, mut gateway, mut mtu, mut source) = (None, None, None, None);
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Oif(index) => ifindex = Some(*index),
            RouteAttribute::Gateway(_) | RouteAttribute::Via(_) => gateway = gateway_of(attribute),
            RouteAttribute::PrefSource(addr) => source = address(addr),
            RouteAttribute::Metrics(metrics) => mtu = mtu_of(metrics),
            RouteAttribute::MultiPath(hops) => {
                // One path for all packets keeps flows in order. Packets are not spread over next
                // hops.
                let alive = alive(hops).next()?;
                ifindex = Some(alive.interface_index);
                gateway = hop_gateway(alive);
            }
            _ => {}
        }
    }
    Some(Target::Interface { ifindex: ifindex?, gateway, mtu, source })
}

/// The interfaces of all next hops but the first.
fn others(message: &RouteMessage) -> Vec<u32> {
    let hops = message.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::MultiPath(hops) => Some(hops.as_slice()),
        _ => None,
    });
    alive(hops.unwrap_or_default()).skip(1).map(|hop| hop.interface_index).collect()
}

fn alive(hops: &[RouteNextHop]) -> impl Iterator<Item = &RouteNextHop> {
    hops.iter().filter(|hop| !hop.flags.contains(RouteNextHopFlags::Dead))
}

fn hop_gateway(hop: &RouteNextHop) -> Option<IpAddr> {
    hop.attributes.iter().find_map(gateway_of)
}

fn gateway_of(attribute: &RouteAttribute) -> Option<IpAddr> {
    match attribute {
        RouteAttribute::Gateway(addr) => address(addr),
        RouteAttribute::Via(RouteVia::Inet(addr)) => Some((*addr).into()),
        RouteAttribute::Via(RouteVia::Inet6(addr)) => Some((*addr).into()),
        _ => None,
    }
}

fn mtu_of(metrics: &[RouteMetric]) -> Option<u32> {
    metrics.iter().find_map(|m| match m {
        RouteMetric::Mtu(mtu) if *mtu != 0 => Some(*mtu),
        _ => None,
    })
}

fn address(addr: &RouteAddress) -> Option<IpAddr> {
    match addr {
        RouteAddress::Inet(addr) => Some((*addr).into()),
        RouteAddress::Inet6(addr) => Some((*addr).into()),
        _ => None,
    }
}
