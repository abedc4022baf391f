//! The kernel's own packets to protected prefixes: a routing table that leads them into the TUN.
//!
//! A rule sends every packet without our mark through this table before the main one. Each
//! protected prefix has two routes there: one into the TUN and, if the TUN vanishes, an
//! `unreachable` one. Exceptions have a `throw` route, which continues with the next rule. Rules
//! and routes outlive the daemon; [`remove`] deletes them.

use super::connection::Connection;
use super::error::Result;
use super::routes::{KernelRoute, Target, dump_routes};
use super::rules;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteMessage, RouteMetric, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::Path;
use testudo_base::prefix::Prefix;

/// Protocol number that marks our routes and rules (`/etc/iproute2/rt_protos`): T, for Testudo.
pub(super) const PROTOCOL: RouteProtocol = RouteProtocol::Other(84);
/// Metric of the route into the TUN, and of the other routes that come first.
const PREFERRED_METRIC: u32 = 16;
/// Metric of the route that counts when the preferred one is gone.
const FALLBACK_METRIC: u32 = 65536;

/// The table, its rule, and the mark of packets that bypass it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuardConfig {
    /// Number of the routing table.
    pub table: u32,
    /// Priority of the rule.
    pub priority: u32,
    /// Mark of the packets that bypass the table: our own IKE.
    pub mark: u32,
}

impl Default for GuardConfig {
    /// The numbers that IPsec daemons use on Linux.
    fn default() -> Self {
        Self { table: 220, priority: 220, mark: 220 }
    }
}

/// What the table does with a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuardUse {
    /// Into the TUN, or nowhere.
    Protect {
        /// Largest packet that a connection of this machine should send.
        mtu: Option<u16>,
        /// Source address for packets that have none yet: one that the policy covers.
        source: Option<IpAddr>,
    },
    /// As if the table did not exist: the prefix is bypassed, or directly connected.
    Exempt,
}

/// The table's prefixes.
pub type GuardRoutes = BTreeMap<Prefix, GuardUse>;

/// How many routes changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GuardChanges {
    /// Routes added or replaced.
    pub set: usize,
    /// Routes removed.
    pub removed: usize,
}

/// The table, and the rule that leads to it.
pub struct Guard {
    connection: Connection,
    config: GuardConfig,
    tun: u32,
}

/// Prefix and metric, by which the kernel tells routes apart.
type RouteKey = (Prefix, u32);

impl Guard {
    /// Makes the rules if they do not exist. `tun` is the number of the TUN's interface.
    pub fn open(config: GuardConfig, tun: u32) -> Result<Self> {
        let mut connection = Connection::open()?;
        for family in families() {
            rules::install(&mut connection, family, &config)?;
        }
        Ok(Self { connection, config, tun })
    }

    /// Sets our routes to exactly these; other programs' routes in the table stay. At every moment
    /// in between, a prefix that was protected and stays protected is protected.
    pub fn set(&mut self, routes: &GuardRoutes) -> Result<GuardChanges> {
        let wanted = places(routes, self.tun);
        let found = self.current()?;
        let set = wanted.iter().filter(|(place, to)| found.get(place) != Some(to));
        let removed = found.keys().filter(|place| !wanted.contains_key(place));
        self.perform(set.map(|(place, to)| (*place, *to)).collect(), removed.copied().collect())
    }

    /// Sets the routes of the changed prefixes to those in `routes`, which must hold all other
    /// prefixes too, and leaves the others. Protection holds at every moment as for [`Guard::set`].
    /// The kernel is not asked which routes exist: routes that another program has removed come
    /// back with the next [`Guard::set`].
    pub fn change(
        &mut self,
        changed: &BTreeSet<Prefix>,
        routes: impl Fn(&Prefix) -> Option<GuardUse>,
    ) -> Result<GuardChanges> {
        let (set, removed) = changed_places(changed, routes, self.tun);
        self.perform(set, removed)
    }

    fn perform(
        &mut self,
        mut set: Vec<(RouteKey, Target)>,
        mut removed: Vec<RouteKey>,
    ) -> Result<GuardChanges> {
        let changes = GuardChanges { set: set.len(), removed: removed.len() };
        // As in the filter, longer prefixes are set first and removed last. Of one prefix, the less
        // preferred route is set first.
        set.sort_by_key(|((prefix, metric), _)| (Reverse(prefix.length()), Reverse(*metric)));
        for ((prefix, metric), target) in &set {
            self.add(*prefix, *metric, target)?;
        }
        removed.sort_by_key(|(prefix, metric)| (prefix.length(), *metric));
        for (prefix, metric) in removed {
            delete(&mut self.connection, self.config.table, prefix, metric)?;
        }
        Ok(changes)
    }

    /// Our routes as they are.
    pub fn routes(&mut self) -> Result<GuardRoutes> {
        let current = self.current()?;
        let first = current.into_iter().filter(|((_, metric), _)| *metric == PREFERRED_METRIC);
        let uses = first.filter_map(|((prefix, _), target)| match target {
            Target::Throw => Some((prefix, GuardUse::Exempt)),
            Target::Interface { mtu, source, .. } => {
                let mtu = mtu.and_then(|m| u16::try_from(m).ok());
                Some((prefix, GuardUse::Protect { mtu, source }))
            }
            _ => None,
        });
        Ok(uses.collect())
    }

    fn current(&mut self) -> Result<BTreeMap<RouteKey, Target>> {
        let routes = ours(&mut self.connection, self.config.table)?;
        Ok(routes.into_iter().map(|r| ((r.prefix, r.metric), r.target)).collect())
    }

    fn add(&mut self, prefix: Prefix, metric: u32, target: &Target) -> Result<()> {
        let mut message = message(self.config.table, prefix, metric);
        message.header.protocol = PROTOCOL;
        match *target {
            Target::Throw => message.header.kind = RouteType::Throw,
            Target::Interface { ifindex, mtu, source, .. } => {
                message.header.kind = RouteType::Unicast;
                message.header.scope = RouteScope::Link;
                message.attributes.push(RouteAttribute::Oif(ifindex));
                message.attributes.extend(mtu.map(|m| RouteAttribute::Metrics(vec![RouteMetric::Mtu(m)])));
                message.attributes.extend(source.map(|s| RouteAttribute::PrefSource(route_address(s))));
            }
            _ => message.header.kind = RouteType::Unreachable,
        }
        let table = self.config.table;
        let operation = || format!("cannot set the route to {prefix} in table {table}");
        self.connection.request(
            operation,
            RouteNetlinkMessage::NewRoute(message),
            NLM_F_CREATE | NLM_F_REPLACE,
        )
    }
}

/// Removes our rules, and our routes in the table.
pub fn remove(config: &GuardConfig) -> Result<()> {
    let mut connection = Connection::open()?;
    for family in families() {
        rules::remove(&mut connection, family, config)?;
    }
    for route in ours(&mut connection, config.table)? {
        delete(&mut connection, config.table, route.prefix, route.metric)?;
    }
    Ok(())
}

/// Destinations that never go into a tunnel, whatever prefix covers them: they do not leave their
/// link, or are no unicast.
const NEVER_TUNNELLED: &[&str] = &["224.0.0.0/4", "255.255.255.255/32", "fe80::/10", "ff00::/8"];

/// The kernel's routes for `routes`.
fn places(routes: &GuardRoutes, tun: u32) -> BTreeMap<RouteKey, Target> {
    let mut places = BTreeMap::new();
    for prefix in routes.keys().copied().chain(never()) {
        let targets = targets(&prefix, |prefix| routes.get(prefix).copied(), tun);
        places.extend(targets.into_iter().filter_map(|(metric, to)| Some(((prefix, metric), to?))));
    }
    places
}

/// The kernel's routes to set and those to remove when these prefixes change.
fn changed_places(
    changed: &BTreeSet<Prefix>,
    routes: impl Fn(&Prefix) -> Option<GuardUse>,
    tun: u32,
) -> (Vec<(RouteKey, Target)>, Vec<RouteKey>) {
    let covers =
        |wider: &Prefix, never: &Prefix| wider.length() < never.length() && wider.contains(never.addr());
    let covered = never().filter(|never| changed.iter().any(|wider| covers(wider, never)));
    let (mut set, mut removed) = (Vec::new(), Vec::new());
    for prefix in changed.iter().copied().chain(covered).collect::<BTreeSet<_>>() {
        for (metric, target) in targets(&prefix, &routes, tun) {
            match target {
                Some(target) => set.push(((prefix, metric), target)),
                None => removed.push((prefix, metric)),
            }
        }
    }
    (set, removed)
}

/// The kernel's routes to a prefix, by metric.
fn targets(
    prefix: &Prefix,
    routes: impl Fn(&Prefix) -> Option<GuardUse>,
    tun: u32,
) -> [(u32, Option<Target>); 2] {
    let (first, last) = match routes(prefix) {
        Some(GuardUse::Exempt) => (Some(Target::Throw), None),
        Some(GuardUse::Protect { mtu, source }) => {
            let mtu = mtu.map(u32::from);
            (Some(Target::Interface { ifindex: tun, gateway: None, mtu, source }), Some(Target::Unreachable))
        }
        None => {
            let around = (0..prefix.length()).filter_map(|length| Prefix::new(prefix.addr(), length));
            let is_protect = |to: GuardUse| to != GuardUse::Exempt;
            let exempt = never().any(|never| never == *prefix)
                && around.into_iter().any(|wider| routes(&wider).is_some_and(is_protect));
            (exempt.then_some(Target::Throw), None)
        }
    };
    [(PREFERRED_METRIC, first), (FALLBACK_METRIC, last)]
}

/// The prefixes that never go into a tunnel.
fn never() -> impl Iterator<Item = Prefix> {
    NEVER_TUNNELLED.iter().filter_map(|prefix| prefix.parse().ok())
}

/// Our routes in the table, which other daemons use too.
fn ours(connection: &mut Connection, table: u32) -> Result<Vec<KernelRoute>> {
    let mut routes = Vec::new();
    for family in families() {
        routes.extend(dump_routes(connection, family, table)?);
    }
    routes.retain(|route| route.protocol == PROTOCOL);
    Ok(routes)
}

pub(super) fn delete(connection: &mut Connection, table: u32, prefix: Prefix, metric: u32) -> Result<()> {
    let mut message = message(table, prefix, metric);
    message.header.scope = RouteScope::NoWhere;
    message.header.protocol = PROTOCOL;
    let operation = || format!("cannot remove the route to {prefix} from table {table}");
    match connection.request(operation, RouteNetlinkMessage::DelRoute(message), 0) {
        // The route vanished with its interface.
        Err(e) if e.errno() == Some(libc::ESRCH) => Ok(()),
        result => result,
    }
}

pub(super) fn message(table: u32, prefix: Prefix, metric: u32) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = if prefix.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    message.header.destination_prefix_length = prefix.length();
    message.header.table = u8::try_from(table).unwrap_or(0);
    message.attributes.push(RouteAttribute::Table(table));
    message.attributes.push(RouteAttribute::Destination(route_address(prefix.addr())));
    message.attributes.push(RouteAttribute::Priority(metric));
    message
}

fn route_address(addr: IpAddr) -> RouteAddress {
    match addr {
        IpAddr::V4(addr) => RouteAddress::Inet(addr),
        IpAddr::V6(addr) => RouteAddress::Inet6(addr),
    }
}

/// The address families that the kernel supports.
fn families() -> impl Iterator<Item = AddressFamily> {
    let ipv6 = Path::new("/proc/sys/net/ipv6").exists();
    std::iter::once(AddressFamily::Inet).chain(ipv6.then_some(AddressFamily::Inet6))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn prefix(text: &str) -> Prefix {
        text.parse().expect(text)
    }

    const PROTECT: GuardUse = GuardUse::Protect { mtu: None, source: None };

    #[test]
    fn a_protected_prefix_has_a_way_in_and_a_dead_end_behind_it() {
        let routes =
            GuardRoutes::from([(prefix("10.0.0.0/8"), PROTECT), (prefix("10.1.0.0/16"), GuardUse::Exempt)]);
        let places = places(&routes, 9);
        let tun = Target::Interface { ifindex: 9, gateway: None, mtu: None, source: None };
        let expected = [
            ((prefix("10.0.0.0/8"), PREFERRED_METRIC), tun),
            ((prefix("10.0.0.0/8"), FALLBACK_METRIC), Target::Unreachable),
            ((prefix("10.1.0.0/16"), PREFERRED_METRIC), Target::Throw),
        ];
        assert_eq!(places, BTreeMap::from(expected));
    }

    #[test]
    fn protecting_everything_leaves_the_links_alone() {
        let routes = GuardRoutes::from([(prefix("0.0.0.0/0"), PROTECT), (prefix("::/0"), PROTECT)]);
        let places = places(&routes, 9);
        for never in NEVER_TUNNELLED {
            assert_eq!(places.get(&(prefix(never), PREFERRED_METRIC)), Some(&Target::Throw), "{never}");
        }
        assert_eq!(places.len(), 8);
    }

    /// Routes within and around the prefixes that never go into a tunnel.
    fn arb_routes() -> impl Strategy<Value = GuardRoutes> {
        let prefixes =
            ["0.0.0.0/0", "224.0.0.0/3", "224.0.0.0/4", "239.0.0.0/8", "10.0.0.0/8", "::/0", "fe80::/9"];
        let uses = prop_oneof![Just(PROTECT), Just(GuardUse::Exempt)];
        let entry = prop::sample::select(prefixes.to_vec()).prop_map(prefix);
        prop::collection::btree_map(entry, uses, 0..prefixes.len())
    }

    proptest! {
        #[test]
        fn changing_some_prefixes_is_like_setting_all(before in arb_routes(), after in arb_routes()) {
            let differs = |p: &&Prefix| before.get(p) != after.get(p);
            let changed = before.keys().chain(after.keys()).filter(differs).copied().collect();
            let (set, removed) = changed_places(&changed, |p| after.get(p).copied(), 9);
            let mut kernel = places(&before, 9);
            kernel.extend(set);
            for place in &removed {
                kernel.remove(place);
            }
            prop_assert_eq!(kernel, places(&after, 9));
        }
    }
}
