//! The machine that is checked: the real one, or one that a test makes up.

use crate::cluster::corosync_libraries;
use crate::error::Result;
use nix::ifaddrs::InterfaceAddress;
use nix::sys::socket::SockaddrStorage;
use std::io;
use std::net::IpAddr;
use std::path::Path;
use testudo_fastpath::port::{Facts, facts_of};
use testudo_vici::conf::{Disk, Files};

/// What the check asks of a machine.
pub(super) trait Host {
    /// The text of a file below /proc or /sys. `None`: it is missing or empty.
    fn read(&self, path: &str) -> Option<String>;

    /// The facts about an interface. `None`: there is none of that name.
    fn interface(&self, name: &str) -> Result<Option<Facts>>;

    /// The interface that has this address; `None`: none has it.
    fn interface_of(&self, address: IpAddr) -> Option<String>;

    /// The files of a swanctl.conf.
    fn files(&self) -> &dyn Files;

    /// Whether a file can be opened.
    fn open(&self, path: &Path) -> io::Result<()>;

    /// Loads corosync's libraries.
    fn corosync(&self) -> Result<()>;
}

/// This machine.
pub(super) struct System;

impl Host for System {
    fn read(&self, path: &str) -> Option<String> {
        std::fs::read_to_string(path).ok()
    }

    fn interface(&self, name: &str) -> Result<Option<Facts>> {
        Ok(facts_of(name)?)
    }

    fn interface_of(&self, address: IpAddr) -> Option<String> {
        let mut all = nix::ifaddrs::getifaddrs().ok()?;
        let is_it = |found: &InterfaceAddress| found.address.as_ref().and_then(ip) == Some(address);
        all.find(is_it).map(|found| found.interface_name)
    }

    fn files(&self) -> &dyn Files {
        &Disk
    }

    fn open(&self, path: &Path) -> io::Result<()> {
        std::fs::File::open(path).map(drop)
    }

    fn corosync(&self) -> Result<()> {
        corosync_libraries().map(drop)
    }
}

fn ip(address: &SockaddrStorage) -> Option<IpAddr> {
    let v4 = address.as_sockaddr_in().map(|v4| v4.ip().into());
    v4.or_else(|| address.as_sockaddr_in6().map(|v6| v6.ip().into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    #[test]
    fn the_interface_of_an_address_is_found() {
        for address in [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()] {
            // A machine may have no IPv6.
            let found = System.interface_of(address);
            assert!(found.as_deref() == Some("lo") || found.is_none() && address.is_ipv6(), "{found:?}");
        }
        assert_eq!(System.interface_of([192, 0, 2, 77].into()), None);
    }
}
