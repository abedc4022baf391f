//! Host routes by which a routing daemon learns that this node serves addresses, and announces them
//! to routers.
//!
//! They stand in a table of their own, which no rule leads to: the kernel routes nothing by them.
//! They lead to a TUN that ends with the process. So when the daemon dies, however it dies, the
//! kernel removes the device with its routes, and the routing daemon withdraws the addresses.

use super::connection::Connection;
use super::error::Result;
use super::guard::{PROTOCOL, message};
use crate::tun::{Tun, TunError};
use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::route::{RouteAttribute, RouteScope, RouteType};
use std::collections::BTreeSet;
use std::net::IpAddr;
use testudo_base::prefix::Prefix;

/// The smallest MTU of an interface with IPv6 (RFC 8200 §5). No packet is sent there.
const MTU: u16 = 1280;
const METRIC: u32 = 16;

/// The routes, and the device that they lead to. Both go when this is dropped.
pub struct AnnouncedRoutes {
    connection: Connection,
    device: Tun,
    table: u32,
    prefixes: BTreeSet<Prefix>,
}

impl AnnouncedRoutes {
    /// Makes a device of this name. There are no routes yet.
    pub fn open(
        device: &str,
        table: u32,
        addresses: impl Iterator<Item = IpAddr>,
    ) -> std::result::Result<Self, TunError> {
        let device = Tun::open_for_process(device, MTU)?;
        let host = |addr: IpAddr| Prefix::new(addr, if addr.is_ipv4() { 32 } else { 128 });
        let prefixes = addresses.filter_map(host).collect();
        Ok(Self { connection: Connection::open()?, device, table, prefixes })
    }

    /// Sets the routes, or removes them. Routes that are there already stay.
    pub fn set(&mut self, announced: bool) -> Result<()> {
        for prefix in self.prefixes.clone() {
            match announced {
                true => self.add(prefix)?,
                false => self.remove(prefix)?,
            }
        }
        Ok(())
    }

    fn add(&mut self, prefix: Prefix) -> Result<()> {
        let mut message = message(self.table, prefix, METRIC);
        message.header.protocol = PROTOCOL;
        message.header.kind = RouteType::Unicast;
        message.header.scope = RouteScope::Link;
        message.attributes.push(RouteAttribute::Oif(self.device.ifindex()));
        let table = self.table;
        let operation = || format!("cannot set the route to {prefix} in table {table}");
        let request = RouteNetlinkMessage::NewRoute(message);
        self.connection.request(operation, request, NLM_F_CREATE | NLM_F_REPLACE)
    }

    fn remove(&mut self, prefix: Prefix) -> Result<()> {
        super::guard::delete(&mut self.connection, self.table, prefix, METRIC)
    }
}
