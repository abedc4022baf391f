//! `local_addrs` and `remote_addrs`: addresses, ranges, DNS names.

use super::Connection;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use testudo_ipsec::selector::AddrRange;

/// The DNS names of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostNames {
    /// Those in `local_addrs`.
    pub local: Vec<HostName>,
    /// Those in `remote_addrs`.
    pub remote: Vec<HostName>,
}

impl HostNames {
    /// The names of both.
    pub fn iter(&self) -> impl Iterator<Item = &HostName> {
        self.local.iter().chain(&self.remote)
    }

    /// The same, to be changed.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut HostName> {
        self.local.iter_mut().chain(&mut self.remote)
    }
}

/// A DNS name in place of an address.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HostName {
    /// The name.
    pub name: String,
    /// Number of ranges before it.
    pub place: usize,
    /// Its present addresses; none before it is resolved.
    pub addrs: Vec<IpAddr>,
}

/// The addresses of a name are not part of the configuration: if they change, the connection has
/// not changed.
impl PartialEq for HostName {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, self.place) == (&other.name, other.place)
    }
}

impl Eq for HostName {}

/// The addresses of one side, with the present addresses of names.
#[derive(Clone, Copy, Debug)]
pub struct Hosts<'a> {
    ranges: &'a [AddrRange],
    names: &'a [HostName],
}

impl Connection {
    /// The addresses of our side.
    pub fn local_hosts(&self) -> Hosts<'_> {
        Hosts { ranges: &self.local_addrs, names: &self.names.local }
    }

    /// The addresses of the peer's side.
    pub fn remote_hosts(&self) -> Hosts<'_> {
        Hosts { ranges: &self.remote_addrs, names: &self.names.remote }
    }
}

impl<'a> Hosts<'a> {
    /// True if any address is allowed. A name that is not resolved allows none.
    pub fn is_any(self) -> bool {
        self.ranges.is_empty() && self.names.is_empty()
    }

    /// True if there is an address to initiate to: a single address, or a name.
    pub fn has_single(self) -> bool {
        !self.names.is_empty() || self.singles().next().is_some()
    }

    /// All ranges and addresses, in the order of the configuration.
    pub fn ranges(self) -> impl Iterator<Item = AddrRange> + 'a {
        let named = move |place: usize| {
            let there = self.names.iter().filter(move |name| name.place == place);
            there.flat_map(|name| name.addrs.iter().filter_map(|addr| AddrRange::new(*addr, *addr)))
        };
        let ranges = self.ranges.iter().enumerate();
        let before = ranges.flat_map(move |(place, range)| named(place).chain([*range]));
        before.chain(named(self.ranges.len()))
    }

    /// Single addresses, in the order of the configuration.
    pub fn singles(self) -> impl Iterator<Item = IpAddr> + 'a {
        self.ranges().filter(|range| range.start() == range.end()).map(|range| range.start())
    }

    /// True if the address is among them.
    pub fn contains(self, addr: IpAddr) -> bool {
        self.is_any() || self.ranges().any(|range| range.contains(addr))
    }

    /// The items as configured; `show` writes a range. None means any.
    pub fn describe(self, show: impl Fn(&AddrRange) -> String) -> Vec<String> {
        let named = |place: usize| self.names.iter().filter(move |name| name.place == place);
        let mut items = Vec::new();
        for place in 0..=self.ranges.len() {
            items.extend(named(place).map(|name| name.name.clone()));
            items.extend(self.ranges.get(place).map(&show));
        }
        items
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(text: &str) -> AddrRange {
        let (start, end) = text.split_once('-').unwrap_or((text, text));
        AddrRange::new(start.parse().unwrap(), end.parse().unwrap()).unwrap()
    }

    fn named(place: usize, addrs: &[&str]) -> HostName {
        let addrs = addrs.iter().map(|addr| addr.parse().unwrap()).collect();
        HostName { name: format!("gw{place}.example.org"), place, addrs }
    }

    fn addr(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_name_that_is_not_resolved_is_nobody() {
        let names = [named(0, &[])];
        let hosts = Hosts { ranges: &[], names: &names };
        assert!(!hosts.is_any() && hosts.has_single());
        assert!(!hosts.contains(addr("192.0.2.1")) && !hosts.contains(addr("2001:db8::1")));
        assert_eq!(hosts.ranges().count(), 0);
        let anybody = Hosts { ranges: &[], names: &[] };
        assert!(anybody.is_any() && !anybody.has_single() && anybody.contains(addr("192.0.2.1")));
    }

    #[test]
    fn the_order_is_that_of_the_configuration() {
        let ranges = [range("192.0.2.1"), range("198.51.100.0-198.51.100.255")];
        let names = [named(0, &["203.0.113.1", "2001:db8::1"]), named(2, &["203.0.113.9"])];
        let hosts = Hosts { ranges: &ranges, names: &names };
        let singles: Vec<IpAddr> = hosts.singles().collect();
        assert_eq!(singles, ["203.0.113.1", "2001:db8::1", "192.0.2.1", "203.0.113.9"].map(addr));
        assert!(hosts.contains(addr("203.0.113.9")) && hosts.contains(addr("198.51.100.7")));
        assert!(!hosts.contains(addr("203.0.113.2")));
        let shown = hosts.describe(|range| range.start().to_string());
        assert_eq!(shown, ["gw0.example.org", "192.0.2.1", "198.51.100.0", "gw2.example.org"]);
    }

    #[test]
    fn the_addresses_of_a_name_are_no_change() {
        assert_eq!(named(0, &["192.0.2.1"]), named(0, &["192.0.2.2"]));
        assert_ne!(named(0, &[]), named(1, &[]));
    }
}
