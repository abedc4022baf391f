//! Our own addresses on an interface: virtual ones that a peer has assigned to us.

use super::connection::Connection;
use super::error::{NetlinkError, Result};
use super::links::dump_addresses;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage, AddressScope};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use std::net::IpAddr;

/// The addresses of one interface to which no other program adds addresses.
pub struct Addresses {
    connection: Connection,
    ifindex: u32,
}

impl Addresses {
    /// Opens the addresses of the interface with this number.
    pub fn open(ifindex: u32) -> Result<Self> {
        Ok(Self { connection: Connection::open()?, ifindex })
    }

    /// Adds an address, usable at once. An address that is there already stays.
    pub fn add(&mut self, addr: IpAddr) -> Result<()> {
        let request = RouteNetlinkMessage::NewAddress(self.message(addr));
        let operation = || format!("cannot add address {addr}");
        self.connection.request(operation, request, NLM_F_CREATE | NLM_F_REPLACE)
    }

    /// Adds an address that the kernel does not choose as a source by itself.
    pub(crate) fn add_to_host(&mut self, addr: IpAddr) -> Result<()> {
        let mut message = self.message(addr);
        if addr.is_ipv4() {
            message.header.scope = AddressScope::Host;
        }
        let operation = || format!("cannot add virtual address {addr}");
        let request = RouteNetlinkMessage::NewAddress(message);
        self.connection.request(operation, request, NLM_F_CREATE | NLM_F_REPLACE)
    }

    /// Removes an address, if it is there.
    pub(crate) fn remove_if_there(&mut self, addr: IpAddr) -> Result<()> {
        match self.remove(addr) {
            Err(NetlinkError::Request { source, .. })
                if source.raw_os_error() == Some(libc::EADDRNOTAVAIL) =>
            {
                Ok(())
            }
            result => result,
        }
    }

    /// Removes an address.
    pub fn remove(&mut self, addr: IpAddr) -> Result<()> {
        let request = RouteNetlinkMessage::DelAddress(self.message(addr));
        self.connection.request(|| format!("cannot remove address {addr}"), request, 0)
    }

    /// Removes the addresses that a killed run has left.
    pub fn clear(&mut self) -> Result<()> {
        let here = self.ifindex;
        for address in dump_addresses(&mut self.connection)?.into_iter().filter(|a| a.ifindex == here) {
            let host = if address.addr.is_ipv4() { 32 } else { 128 };
            // The kernel's own link-local addresses have a network (/64) and stay.
            if address.on_link.is_some_and(|network| network.length() == host) {
                self.remove(address.addr)?;
            }
        }
        Ok(())
    }

    /// A single address without a network. There is no duplicate address detection: no other host
    /// is on a tunnel's interface.
    fn message(&self, addr: IpAddr) -> AddressMessage {
        let mut message = AddressMessage::default();
        let (family, length) = match addr {
            IpAddr::V4(_) => (AddressFamily::Inet, 32),
            IpAddr::V6(_) => (AddressFamily::Inet6, 128),
        };
        message.header.family = family;
        message.header.prefix_len = length;
        message.header.index = self.ifindex;
        message.header.flags = AddressHeaderFlags::Nodad;
        message.attributes = vec![AddressAttribute::Local(addr), AddressAttribute::Address(addr)];
        message
    }
}
