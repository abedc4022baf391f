//! Putting a table together.

use super::table::{Entry, NOTHING, RangeTable, Tier};
use super::{Fib, Neighbour, PortIndex, PortLink, Route};
use crate::mac::MacAddr;
use crate::prefix::Prefix;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// A forwarding table in the making.
#[derive(Debug, Default)]
pub struct FibBuilder {
    generation: u64,
    ports: Vec<PortLink>,
    routes: Vec<Route>,
    /// Where each route stands in the finished table, in which [`NOTHING`] comes before all others.
    numbers: HashMap<Route, u32>,
    entries: Vec<Entry>,
    neighbours4: Vec<((PortIndex, Ipv4Addr), Arc<Neighbour>)>,
    neighbours6: Vec<((PortIndex, Ipv6Addr), Arc<Neighbour>)>,
}

impl FibBuilder {
    /// Sets the generation.
    #[must_use]
    pub fn generation(mut self, generation: u64) -> Self {
        self.generation = generation;
        self
    }

    /// Adds a port.
    #[must_use]
    pub fn port(mut self, link: PortLink) -> Self {
        self.ports.push(link);
        self
    }

    /// Adds a route of the main table. Of routes to the same prefix the first counts.
    #[must_use]
    pub fn route(self, prefix: Prefix, route: Route) -> Self {
        self.entry(Tier::Main, prefix, route)
    }

    /// Adds a route of the local table.
    #[must_use]
    pub fn local(self, prefix: Prefix, route: Route) -> Self {
        self.entry(Tier::Local, prefix, route)
    }

    fn entry(mut self, tier: Tier, prefix: Prefix, route: Route) -> Self {
        // Thousands of prefixes share a handful of routers: one copy of each keeps the table small.
        let value = *self.numbers.entry(route).or_insert_with(|| {
            self.routes.push(route);
            u32::try_from(self.routes.len()).unwrap_or(NOTHING)
        });
        self.entries.push(Entry { tier, prefix, value });
        self
    }

    /// Adds a neighbour that nobody has used yet.
    #[must_use]
    pub fn neighbour(self, port: PortIndex, addr: IpAddr, mac: MacAddr) -> Self {
        self.shared_neighbour(port, addr, Arc::new(Neighbour::new(mac)))
    }

    /// Adds a neighbour of an earlier table, with its mark of use.
    #[must_use]
    pub fn shared_neighbour(mut self, port: PortIndex, addr: IpAddr, neighbour: Arc<Neighbour>) -> Self {
        match addr {
            IpAddr::V4(a) => self.neighbours4.push(((port, a), neighbour)),
            IpAddr::V6(a) => self.neighbours6.push(((port, a), neighbour)),
        }
        self
    }

    /// The table. Multicast addresses are local in it: we forward none.
    pub fn build(self) -> Fib {
        let multicast = ["224.0.0.0/4", "255.255.255.255/32", "ff00::/8"];
        let multicast = multicast.iter().filter_map(|p| p.parse().ok());
        let mut this = multicast.fold(self, |b, p| b.local(p, Route::Local));
        this.ports.sort_by_key(|p| p.index);
        this.neighbours4.sort_by_key(|(key, _)| *key);
        this.neighbours6.sort_by_key(|(key, _)| *key);
        let mut routes = vec![Route::NoRoute];
        routes.append(&mut this.routes);
        Fib {
            generation: this.generation,
            ports: this.ports,
            routes,
            v4: RangeTable::v4(&this.entries),
            v6: RangeTable::v6(&this.entries),
            neighbours4: this.neighbours4,
            neighbours6: this.neighbours6,
        }
    }
}
