//! Building a table.

use super::table::{FibEntry, NO_ANSWER, RangeTable, Tier};
use super::{Fib, NO_PATHS, Neighbour, NextHop, Out, Paths, PortIndex, PortLink, PortSet, Route, Routing};
use crate::mac::MacAddr;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use testudo_base::prefix::Prefix;

/// Builds a forwarding table.
#[derive(Debug, Default)]
pub struct FibBuilder {
    generation: u64,
    ports: Vec<PortLink>,
    routes: Vec<Paths>,
    /// Number of each route in the finished table, in which [`NO_ANSWER`] comes first.
    numbers: HashMap<Paths, u32>,
    entries: Vec<FibEntry>,
    addresses: Vec<IpAddr>,
    connected: Vec<Prefix>,
    neighbours: Vec<(PortIndex, IpAddr, Arc<Neighbour>)>,
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

    /// Adds a route of the main table. Of several routes to one prefix the first counts.
    #[must_use]
    pub fn route(self, prefix: Prefix, route: Route) -> Self {
        self.multipath(prefix, route, [])
    }

    /// Adds a route of the main table that has further next hops, behind these ports.
    #[must_use]
    pub fn multipath(
        self,
        prefix: Prefix,
        route: Route,
        others: impl IntoIterator<Item = PortIndex>,
    ) -> Self {
        let first = match route {
            Route::Forward(NextHop { out: Out::Port(port), .. }) => Some(port),
            _ => None,
        };
        let behind: PortSet = first.into_iter().chain(others).collect();
        self.entry(Tier::Main, prefix, Paths { route, behind, is_default: prefix.length() == 0 })
    }

    /// Adds a route of the local table.
    #[must_use]
    pub fn local(self, prefix: Prefix, route: Route) -> Self {
        self.entry(Tier::Local, prefix, Paths { route, behind: PortSet::default(), is_default: false })
    }

    fn entry(mut self, tier: Tier, prefix: Prefix, paths: Paths) -> Self {
        // Thousands of prefixes share a handful of routers: one copy of each keeps the table small.
        let value = *self.numbers.entry(paths).or_insert_with(|| {
            self.routes.push(paths);
            u32::try_from(self.routes.len()).unwrap_or(NO_ANSWER)
        });
        self.entries.push(FibEntry { tier, prefix, value });
        self
    }

    /// Adds a neighbour without a mark of use.
    #[must_use]
    pub fn neighbour(self, port: PortIndex, addr: IpAddr, mac: MacAddr) -> Self {
        self.shared_neighbour(port, addr, Arc::new(Neighbour::new(mac)))
    }

    /// Adds a neighbour of an earlier table, with its mark of use.
    #[must_use]
    pub fn shared_neighbour(mut self, port: PortIndex, addr: IpAddr, neighbour: Arc<Neighbour>) -> Self {
        self.neighbours.push((port, addr, neighbour));
        self
    }

    /// Adds an address of this machine.
    #[must_use]
    pub fn address(mut self, addr: IpAddr) -> Self {
        self.addresses.push(addr);
        self
    }

    /// Adds a prefix in which this machine has an address.
    #[must_use]
    pub fn connected(mut self, prefix: Prefix) -> Self {
        self.connected.push(prefix);
        self
    }

    /// The table. Multicast and link-local addresses are local in it, because they are not
    /// forwarded.
    pub fn build(self) -> Fib {
        let kernels = ["224.0.0.0/4", "255.255.255.255/32", "ff00::/8", "fe80::/10"];
        let kernels = kernels.iter().filter_map(|p| p.parse().ok());
        let mut this = kernels.fold(self, |b, p| b.local(p, Route::Local));
        this.ports.sort_by_key(|p| p.index);
        let mut routes = vec![NO_PATHS];
        routes.append(&mut this.routes);
        let through = through(&this.entries, &routes);
        let routing = Routing {
            ports: this.ports,
            addresses: this.addresses,
            connected: this.connected,
            routes,
            through,
            v4: RangeTable::v4(&this.entries),
            v6: RangeTable::v6(&this.entries),
        };
        Fib {
            generation: this.generation,
            routing: Arc::new(routing),
            neighbours: this.neighbours.into_iter().collect(),
        }
    }
}

/// How many entries lead through each port.
fn through(entries: &[FibEntry], routes: &[Paths]) -> Vec<usize> {
    let mut of_route = vec![0_usize; routes.len()];
    for entry in entries {
        if let Some(count) = of_route.get_mut(entry.value as usize) {
            *count += 1;
        }
    }
    let mut through = Vec::new();
    for (paths, count) in routes.iter().zip(of_route) {
        for port in paths.behind.iter().map(|port| usize::from(port.0)) {
            through.resize(through.len().max(port + 1), 0);
            if let Some(sum) = through.get_mut(port) {
                *sum += count;
            }
        }
    }
    through
}
