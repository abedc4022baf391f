//! What keeps clear text in: the prefixes in the filter, the routes into the TUN.
//!
//! Both survive the daemon. A prefix that an earlier run left is *inherited*: it stays shut until a connection claims
//! it, and then goes when that connection goes.

use crate::policies::Protection;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use testudo_fastpath::fib::{Fib, PortIndex};
use testudo_fastpath::filter::{CounterSet, Counters, Filter, FilterPort, PrefixUse, PrefixUses};
use testudo_fastpath::netlink::{Guard as RouteGuard, GuardRoutes, GuardUse};
use testudo_fastpath::prefix::Prefix;

/// The filter and the routes of one gateway.
pub(super) struct Guard {
    filter: Filter,
    routes: RouteGuard,
    ports: Vec<FilterPort>,
    wanted: Protection,
    inherited: BTreeSet<Prefix>,
    shut: BTreeSet<Prefix>,
    exceptions: BTreeSet<Prefix>,
}

impl Guard {
    /// Takes over what an earlier run protected.
    pub(super) fn new(filter: Filter, routes: RouteGuard, ports: Vec<FilterPort>) -> Result<Self, String> {
        let left = filter.prefixes().map_err(|e| e.to_string())?;
        let inherited: BTreeSet<Prefix> =
            left.iter().filter(|(_, usage)| usage.protect_to).map(|(prefix, _)| *prefix).collect();
        Ok(Self {
            filter,
            routes,
            ports,
            wanted: Protection::default(),
            inherited,
            shut: BTreeSet::new(),
            exceptions: BTreeSet::new(),
        })
    }

    /// Puts the filter on the ports.
    pub(super) fn attach(&mut self) -> Result<(), String> {
        for port in &self.ports {
            let mode = self.filter.attach(port).map_err(|e| e.to_string())?;
            tracing::info!("port {}: filter attached, {mode:?}", port.name);
        }
        Ok(())
    }

    /// Gives a port's packets to an AF_XDP socket.
    pub(super) fn set_socket(&mut self, port: PortIndex, socket: BorrowedFd<'_>) -> Result<(), String> {
        self.filter.set_socket(port, 0, socket).map_err(|e| e.to_string())
    }

    /// Prefixes that an earlier run left and that nobody has claimed.
    pub(super) fn inherited(&self) -> impl Iterator<Item = &Prefix> {
        self.inherited.iter()
    }

    /// What the filter has counted on a port.
    pub(super) fn counters(&self, port: &FilterPort) -> Result<Counters, String> {
        self.filter.counters(CounterSet::Port(port.index)).map_err(|e| e.to_string())
    }

    /// The ports with the filter.
    pub(super) fn ports(&self) -> &[FilterPort] {
        &self.ports
    }

    /// Holds back what the policies want held back.
    pub(super) fn set(&mut self, wanted: Protection, fib: &Fib) -> Result<(), String> {
        self.inherited.retain(|prefix| !wanted.protected.contains(prefix));
        self.wanted = wanted;
        self.apply(fib)
    }

    /// Addresses, links or connected prefixes may have changed.
    pub(super) fn follow(&mut self, fib: &Fib) -> Result<(), String> {
        let addresses: BTreeSet<IpAddr> = fib.addresses().iter().copied().collect();
        self.filter.set_addresses(&addresses).map_err(|e| e.to_string())?;
        for port in &mut self.ports {
            if let Some(link) = fib.port(port.index)
                && link.mac != port.mac
                && link.ifindex == port.ifindex
            {
                port.mac = link.mac;
                self.filter.set_port(port).map_err(|e| e.to_string())?;
            }
        }
        self.apply(fib)
    }

    fn apply(&mut self, fib: &Fib) -> Result<(), String> {
        let shut: BTreeSet<Prefix> = self.wanted.protected.union(&self.inherited).copied().collect();
        let whole = Protection { protected: shut.clone(), local: self.wanted.local.clone() };
        let exceptions = whole.exceptions(fib.connected().iter().chain(&self.wanted.local));
        if shut == self.shut && exceptions == self.exceptions {
            return Ok(());
        }
        let shrunk = self.routes_for(&shut, &exceptions, fib);
        let grown = self.routes_for(&self.shut.union(&shut).copied().collect(), &exceptions, fib);
        let mut uses = PrefixUses::new();
        uses.extend(exceptions.iter().map(|prefix| (*prefix, PrefixUse::PASS)));
        uses.extend(shut.iter().map(|prefix| (*prefix, self.usage(prefix))));
        // Shutting comes first on both sides; a prefix that opens, opens in the filter last.
        self.routes.set(&grown).map_err(|e| e.to_string())?;
        self.filter.set_prefixes(&uses).map_err(|e| e.to_string())?;
        self.routes.set(&shrunk).map_err(|e| e.to_string())?;
        (self.shut, self.exceptions) = (shut, exceptions);
        Ok(())
    }

    fn routes_for(&self, shut: &BTreeSet<Prefix>, exceptions: &BTreeSet<Prefix>, fib: &Fib) -> GuardRoutes {
        // What the gateway itself sends takes an address that the policies cover, if it has one.
        let covered = |addr: &IpAddr| self.wanted.local.iter().any(|local| local.contains(*addr));
        let own: Vec<IpAddr> = fib.addresses().iter().copied().filter(covered).collect();
        let source = |prefix: &Prefix| own.iter().copied().find(|addr| addr.is_ipv4() == prefix.is_ipv4());
        let protect = |p: &Prefix| (*p, GuardUse::Protect { mtu: None, source: source(p) });
        let exempt = exceptions.iter().map(|p| (*p, GuardUse::Exempt));
        shut.iter().map(protect).chain(exempt).collect()
    }

    /// A prefix on both sides of a policy (any to any) says nothing about where a packet comes from.
    fn usage(&self, prefix: &Prefix) -> PrefixUse {
        PrefixUse { protect_to: true, refuse_from: !self.wanted.local.contains(prefix) }
    }
}
