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
    /// What filter and routes have: shut, exceptions, our own sides, prefixes on both sides.
    applied: Option<[BTreeSet<Prefix>; 4]>,
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
            applied: None,
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
        self.wanted = wanted;
        self.apply(fib)
    }

    /// Leaves to the policies what they hold back by themselves. Only for policies that are there to stay: those of a
    /// connection that is refused in the end must not take an inherited prefix along when they go.
    pub(super) fn claim_inherited(&mut self) {
        self.inherited.retain(|prefix| !self.wanted.protected.contains(prefix));
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
        let whole = Protection { protected: shut.clone(), ..Protection::default() };
        let exceptions = whole.inside(fib.connected());
        for prefix in exceptions.difference(&self.exceptions) {
            tracing::info!(
                "{prefix} is directly connected: not protected, though a protected prefix covers it"
            );
        }
        let ours = whole.inside(&self.wanted.local);
        let state = [shut.clone(), exceptions.clone(), ours.clone(), self.wanted.both.clone()];
        if self.applied.as_ref() == Some(&state) {
            return Ok(());
        }
        // Should a step fail, the next call begins anew.
        self.applied = None;
        let shrunk = self.routes_for(&shut, &exceptions, fib);
        let grown = self.routes_for(&self.shut.union(&shut).copied().collect(), &exceptions, fib);
        let mut uses = PrefixUses::new();
        uses.extend(ours.iter().map(|prefix| (*prefix, PrefixUse { protect_to: true, refuse_from: false })));
        uses.extend(exceptions.iter().map(|prefix| (*prefix, PrefixUse::PASS)));
        uses.extend(shut.iter().map(|prefix| (*prefix, self.usage(prefix))));
        // Shutting comes first on both sides; a prefix that opens, opens in the filter last.
        self.routes.set(&grown).map_err(|e| e.to_string())?;
        self.filter.set_prefixes(&uses).map_err(|e| e.to_string())?;
        self.routes.set(&shrunk).map_err(|e| e.to_string())?;
        (self.shut, self.exceptions, self.applied) = (shut, exceptions, Some(state));
        Ok(())
    }

    fn routes_for(&self, shut: &BTreeSet<Prefix>, exceptions: &BTreeSet<Prefix>, fib: &Fib) -> GuardRoutes {
        // What the gateway itself sends takes an address that the policies cover, if it has one.
        // A side that is everything says nothing about which.
        let sides = || self.wanted.local.iter().filter(|local| !local.is_default());
        let covered = |addr: &IpAddr| sides().any(|local| local.contains(*addr));
        let own: Vec<IpAddr> = fib.addresses().iter().copied().filter(covered).collect();
        let source = |prefix: &Prefix| own.iter().copied().find(|addr| addr.is_ipv4() == prefix.is_ipv4());
        let protect = |p: &Prefix| (*p, GuardUse::Protect { mtu: None, source: source(p) });
        let exempt = exceptions.iter().map(|p| (*p, GuardUse::Exempt));
        shut.iter().map(protect).chain(exempt).collect()
    }

    /// True if every port still is the interface that it was.
    pub(super) fn check_ports(&self, fib: &Fib) -> Result<(), String> {
        for port in &self.ports {
            let now = fib.port(port.index).map_or(0, |link| link.ifindex);
            if now != port.ifindex {
                return Err(format!(
                    "port {}: the interface is gone, or another one has its name",
                    port.name
                ));
            }
        }
        Ok(())
    }

    /// Makes sure that nobody has taken our rules and routes away: a network manager may remove what it does not know.
    pub(super) fn reassert(&mut self, routes: RouteGuard, fib: &Fib) -> Result<(), String> {
        self.routes = routes;
        let wanted = self.routes_for(&self.shut, &self.exceptions, fib);
        let changes = self.routes.set(&wanted).map_err(|e| e.to_string())?;
        if changes.set > 0 {
            tracing::warn!("{} routes of table 220 were missing, and are back", changes.set);
        }
        Ok(())
    }

    /// A prefix on both sides of a policy (any to any) says nothing about where a packet comes from.
    fn usage(&self, prefix: &Prefix) -> PrefixUse {
        PrefixUse { protect_to: true, refuse_from: !self.wanted.both.contains(prefix) }
    }
}
