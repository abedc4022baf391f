//! Interfaces and their addresses.

use super::connection::Connection;
use super::error::{NetlinkError, Result};
use crate::mac::MacAddr;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage, AddressScope};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use std::io;
use std::net::IpAddr;
use testudo_base::prefix::Prefix;

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) ifindex: u32,
    pub(crate) name: String,
    pub(crate) mac: MacAddr,
    pub(crate) mtu: u32,
    /// The largest MTU that its driver takes; 0: it has no limit.
    pub(crate) max_mtu: u32,
    /// True if the interface is up and has a carrier.
    pub(crate) up: bool,
}

impl Link {
    fn read(message: &LinkMessage) -> Option<Self> {
        let up = LinkFlags::Up | LinkFlags::LowerUp;
        let mut link = Self {
            ifindex: message.header.index,
            name: String::new(),
            mac: MacAddr([0; 6]),
            mtu: 0,
            max_mtu: 0,
            up: message.header.flags.contains(up),
        };
        for attribute in &message.attributes {
            match attribute {
                LinkAttribute::IfName(name) => link.name.clone_from(name),
                LinkAttribute::Mtu(mtu) => link.mtu = *mtu,
                LinkAttribute::MaxMtu(largest) => link.max_mtu = *largest,
                LinkAttribute::Address(octets) => {
                    link.mac = MacAddr(<[u8; 6]>::try_from(octets.as_slice()).unwrap_or_default());
                }
                _ => {}
            }
        }
        (!link.name.is_empty()).then_some(link)
    }
}

/// All interfaces.
pub(crate) fn dump_links(connection: &mut Connection) -> Result<Vec<Link>> {
    let request = RouteNetlinkMessage::GetLink(LinkMessage::default());
    connection.dump("cannot list the interfaces", &request, |links: &mut Vec<Link>, object| {
        if let RouteNetlinkMessage::NewLink(message) = object {
            links.extend(Link::read(&message));
        }
    })
}

/// The number of an interface.
pub(crate) fn ifindex_of(name: &str) -> Result<u32> {
    nix::net::if_::if_nametoindex(name).map_err(|errno| NetlinkError::Request {
        operation: format!("cannot find interface {name}"),
        source: io::Error::from(errno),
    })
}

/// Packets that the kernel was to send by an interface, and has dropped since the interface exists.
pub(crate) fn dropped_sending(connection: &mut Connection, name: &str, ifindex: u32) -> Result<u64> {
    let mut message = LinkMessage::default();
    message.header.index = ifindex;
    let mut dropped = 0;
    let operation = || format!("cannot read the counters of interface {name}");
    connection.get(operation, RouteNetlinkMessage::GetLink(message), |object| {
        let RouteNetlinkMessage::NewLink(link) = object else { return };
        for attribute in &link.attributes {
            if let LinkAttribute::Stats64(statistics) = attribute {
                dropped = statistics.tx_dropped;
            }
        }
    })?;
    Ok(dropped)
}

/// Sets the MTU of an interface, and brings it up.
pub(crate) fn bring_up(connection: &mut Connection, name: &str, ifindex: u32, mtu: u32) -> Result<()> {
    let mut message = LinkMessage::default();
    message.header.index = ifindex;
    message.header.flags = LinkFlags::Up;
    message.header.change_mask = LinkFlags::Up;
    message.attributes.push(LinkAttribute::Mtu(mtu));
    let operation = || format!("cannot bring interface {name} up with MTU {mtu}");
    connection.request(operation, RouteNetlinkMessage::SetLink(message), 0)
}

/// Sets the MTU of an interface, and gives the one that it had. `None` if it is the same, or there is
/// no interface of that name.
pub fn set_mtu(interface: &str, mtu: u16) -> Result<Option<u32>> {
    let mut connection = Connection::open()?;
    let found = dump_links(&mut connection)?.into_iter().find(|link| link.name == interface);
    let Some(link) = found.filter(|link| link.mtu != mtu.into()) else { return Ok(None) };
    // The kernel says no more than that the argument is invalid.
    let largest = Some(link.max_mtu).filter(|largest| (1..u32::from(mtu)).contains(largest));
    let operation = || {
        let limit = largest.map_or_else(String::new, |largest| format!(", which takes at most {largest}"));
        format!("cannot change the MTU of interface {interface} from {} to {mtu}{limit}", link.mtu)
    };
    let mut wanted = LinkMessage::default();
    wanted.header.index = link.ifindex;
    wanted.attributes.push(LinkAttribute::Mtu(mtu.into()));
    connection.request(operation, RouteNetlinkMessage::SetLink(wanted), 0)?;
    Ok(Some(link.mtu))
}

/// An address of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) ifindex: u32,
    pub(crate) addr: IpAddr,
    /// The prefix that it makes reachable without a router. `None` if the address is temporary:
    /// configured from Router Advertisements or by DHCP.
    pub(crate) on_link: Option<Prefix>,
    /// Sort key: global and primary addresses first, link-local ones last.
    pub(crate) rank: u8,
}

impl Address {
    /// Reads an address. `None` if it cannot be used yet, or never.
    fn read(message: &AddressMessage) -> Option<Self> {
        let flags = message.header.flags;
        if flags.intersects(AddressHeaderFlags::Tentative | AddressHeaderFlags::Dadfailed) {
            return None;
        }
        let local = message.attributes.iter().find_map(|a| match a {
            AddressAttribute::Local(addr) => Some(*addr),
            _ => None,
        });
        // On a point-to-point link this attribute is the other side's address.
        let other = message.attributes.iter().find_map(|a| match a {
            AddressAttribute::Address(addr) => Some(*addr),
            _ => None,
        });
        let addr = local.or(other)?;
        let stays = flags.contains(AddressHeaderFlags::Permanent);
        let on_link = other.or(local).filter(|_| stays);
        let on_link = on_link.and_then(|addr| Prefix::new(addr, message.header.prefix_len));
        let wide = message.header.scope == AddressScope::Universe;
        let secondary = flags.contains(AddressHeaderFlags::Secondary);
        let rank = u8::from(secondary) + 2 * u8::from(!wide);
        Some(Self { ifindex: message.header.index, addr, on_link, rank })
    }
}

/// All addresses, best ones first.
pub(crate) fn dump_addresses(connection: &mut Connection) -> Result<Vec<Address>> {
    let request = RouteNetlinkMessage::GetAddress(AddressMessage::default());
    let mut addresses =
        connection.dump("cannot list the addresses", &request, |list: &mut Vec<Address>, object| {
            if let RouteNetlinkMessage::NewAddress(message) = object {
                list.extend(Address::read(&message));
            }
        })?;
    addresses.sort_by_key(|a| a.rank);
    Ok(addresses)
}
