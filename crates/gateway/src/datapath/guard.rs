//! What keeps clear text in: the prefixes in the filter, the routes into the TUN.
//!
//! Both survive the daemon. A prefix that an earlier run left is *inherited*, and so is one whose connection was
//! unloaded: it stays shut until a connection claims it.

use super::plan::{Inherited, Plan};
use crate::policies::Protection;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use testudo_fastpath::fib::{Fib, PortIndex};
use testudo_fastpath::filter::{CounterSet, Counters, Filter, FilterPort};
use testudo_fastpath::netlink::Guard as RouteGuard;
use testudo_fastpath::prefix::Prefix;

/// The filter and the routes of one gateway.
pub(super) struct Guard {
    filter: Filter,
    routes: RouteGuard,
    ports: Vec<FilterPort>,
    wanted: Protection,
    inherited: Inherited,
    /// What filter and routes were given last.
    applied: Plan,
    /// False while they may have something else, because a change has begun and not ended.
    settled: bool,
}

impl Guard {
    /// Takes over what an earlier run protected.
    pub(super) fn new(filter: Filter, routes: RouteGuard, ports: Vec<FilterPort>) -> Result<Self, String> {
        let left = filter.prefixes().map_err(|e| e.to_string())?;
        Ok(Self {
            filter,
            routes,
            ports,
            wanted: Protection::default(),
            inherited: Inherited::new(left),
            applied: Plan::default(),
            settled: false,
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
        self.inherited.prefixes()
    }

    /// What the filter has counted on a port.
    pub(super) fn counters(&self, port: &FilterPort) -> Result<Counters, String> {
        self.filter.counters(CounterSet::Port(port.index)).map_err(|e| e.to_string())
    }

    /// The ports with the filter.
    pub(super) fn ports(&self) -> &[FilterPort] {
        &self.ports
    }

    /// Holds back what the policies want held back. What else is held back stays so until [`Guard::release`].
    pub(super) fn hold(&mut self, wanted: Protection, fib: &Fib) -> Result<(), String> {
        self.wanted = wanted;
        let plan = self.plan(fib).and_still(&self.applied);
        if self.settled && plan == self.applied {
            return Ok(());
        }
        // Should a step fail, the next call begins anew.
        self.settled = false;
        self.lay(&plan)
    }

    /// Holds back no more than what is wanted.
    pub(super) fn release(&mut self, fib: &Fib) -> Result<(), String> {
        let plan = self.plan(fib);
        if self.settled && plan == self.applied {
            return Ok(());
        }
        self.settled = false;
        self.lay(&plan)?;
        for prefix in plan.connected.difference(&self.applied.connected) {
            tracing::info!(
                "{prefix} is directly connected: not protected, though a protected prefix covers it"
            );
        }
        (self.applied, self.settled) = (plan, true);
        Ok(())
    }

    /// Leaves to the policies what they hold back by themselves. Only for policies that are there to stay: those of a
    /// connection that is refused in the end must not take an inherited prefix along when they go.
    /// True if there was anything to leave: then filter and routes have to follow.
    pub(super) fn claim_inherited(&mut self) -> bool {
        self.inherited.claim(&self.wanted)
    }

    /// Keeps prefixes shut that no connection wants held back any more. To be called before [`Guard::hold`].
    pub(super) fn keep(&mut self, abandoned: &BTreeSet<Prefix>) {
        self.inherited.keep(abandoned, &self.applied.uses);
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
        self.hold(self.wanted.clone(), fib)?;
        self.release(fib)
    }

    fn plan(&self, fib: &Fib) -> Plan {
        Plan::new(&self.wanted, &self.inherited, fib)
    }

    fn lay(&mut self, plan: &Plan) -> Result<(), String> {
        self.routes.set(&plan.routes).map_err(|e| e.to_string())?;
        self.filter.set_prefixes(&plan.uses).map_err(|e| e.to_string())
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
    pub(super) fn reassert(&mut self, routes: RouteGuard) -> Result<(), String> {
        self.routes = routes;
        let changes = self.routes.set(&self.applied.routes).map_err(|e| e.to_string())?;
        if changes.set > 0 {
            tracing::warn!("{} routes of table 220 were missing, and are back", changes.set);
        }
        Ok(())
    }
}
