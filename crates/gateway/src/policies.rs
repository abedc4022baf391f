//! From connections and Child SAs to the SPD, and to the prefixes that the filter and the routes must hold back.
//!
//! A configured child stands in the SPD from the moment it is loaded, without an SA: what it protects never leaves in
//! clear. An installed Child SA adds a policy of its own, with the selectors that were negotiated, before that one.

mod addr_set;
mod protection;

pub(crate) use protection::Protection;

use crate::prefix::{self, cover};
use std::collections::{BTreeMap, BTreeSet};
use testudo_ike::config::{Child, ChildMode, Connection, TsSpec};
use testudo_ike::output::ChildSaId;
use testudo_ipsec::selector::{AddrRange, TrafficSelector};
use testudo_ipsec::spd::{Action, Policy, PolicyId};

/// A child of a connection, by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ChildName {
    /// `connections.<name>`
    pub(crate) connection: String,
    /// `children.<name>`
    pub(crate) child: String,
}

/// Everything that the SPD is made of.
#[derive(Debug, Default)]
pub(crate) struct Policies {
    configured: BTreeMap<ChildName, Entry>,
    installed: BTreeMap<ChildSaId, Entry>,
    /// Numbers below `next_id` that nobody has: workers index tables by them, so they stay small.
    free_ids: BTreeSet<PolicyId>,
    next_id: u32,
}

#[derive(Clone, Debug)]
struct Entry {
    id: PolicyId,
    mode: ChildMode,
    /// Lower is looked at first.
    order: u32,
    local: Vec<TrafficSelector>,
    /// Of our side, what the configuration names itself: `dynamic` may be any address, and says nothing.
    named: Vec<AddrRange>,
    remote: Vec<TrafficSelector>,
}

impl Policies {
    /// Takes a connection's children in the place of those that it had.
    pub(crate) fn load(&mut self, connection: &Connection) {
        let mut old = self.take_connection(&connection.name);
        for child in &connection.children {
            let name = ChildName { connection: connection.name.clone(), child: child.name.clone() };
            let (local, remote) = (local_side(child), remote_side(connection, child));
            if remote.is_empty() {
                // A peer with any address and `dynamic` selectors: nothing is known before it comes.
                continue;
            }
            let id = old.remove(&name).map_or_else(|| self.take_id(), |entry| entry.id);
            let order = order(child.mode, child.priority, &local, &remote);
            let entry = Entry { id, mode: child.mode, order, local, named: named(child), remote };
            self.configured.insert(name, entry);
        }
        self.free_ids.extend(old.into_values().map(|entry| entry.id));
    }

    /// Forgets a connection's children; its Child SAs stay.
    pub(crate) fn unload(&mut self, connection: &str) {
        let old = self.take_connection(connection);
        self.free_ids.extend(old.into_values().map(|entry| entry.id));
    }

    fn take_connection(&mut self, connection: &str) -> BTreeMap<ChildName, Entry> {
        let (old, kept) = std::mem::take(&mut self.configured)
            .into_iter()
            .partition(|(name, _)| name.connection == connection);
        self.configured = kept;
        old
    }

    fn take_id(&mut self) -> PolicyId {
        self.free_ids.pop_first().unwrap_or_else(|| {
            self.next_id += 1;
            PolicyId(self.next_id - 1)
        })
    }

    /// Adds the policy of a new Child SA.
    pub(crate) fn install(
        &mut self,
        sa: ChildSaId,
        child: Option<&Child>,
        local: &[TrafficSelector],
        remote: &[TrafficSelector],
    ) -> PolicyId {
        let id = self.take_id();
        let priority = child.map_or(0, |c| c.priority);
        let entry = Entry {
            id,
            mode: ChildMode::Tunnel,
            order: order(ChildMode::Tunnel, priority, local, remote),
            local: local.to_vec(),
            named: Vec::new(),
            remote: remote.to_vec(),
        };
        self.installed.insert(sa, entry);
        id
    }

    /// Takes the policy of a Child SA that is gone.
    pub(crate) fn remove(&mut self, sa: ChildSaId) -> Option<PolicyId> {
        let id = self.installed.remove(&sa)?.id;
        self.free_ids.insert(id);
        Some(id)
    }

    /// The configured child that a policy came from.
    pub(crate) fn child_of(&self, id: PolicyId) -> Option<&ChildName> {
        self.configured.iter().find(|(_, entry)| entry.id == id).map(|(name, _)| name)
    }

    /// The SPD in the order of look-up: by priority, then Child SAs (the newest first) before configured children.
    pub(crate) fn spd(&self) -> Vec<Policy> {
        let installed = self.installed.values().rev().map(|entry| (0, entry));
        let configured = self.configured.values().map(|entry| (1, entry));
        let mut entries: Vec<(u8, &Entry)> = installed.chain(configured).collect();
        // Stable: what is equal keeps the order given above.
        entries.sort_by_key(|(class, entry)| (entry.order, *class));
        entries.iter().map(|(_, entry)| entry.policy()).collect()
    }
}

/// Computed priorities lie where strongSwan's lie: 100 000 and more, bypass before protect before discard, so that a
/// small explicit `priority` comes before all of them.
const BASE_PASS: u32 = 100_000;
const BASE_TUNNEL: u32 = 200_000;
const BASE_DROP: u32 = 300_000;

/// Where a policy stands among others. `priority` is the child's; 0 means computed.
fn order(mode: ChildMode, priority: u32, local: &[TrafficSelector], remote: &[TrafficSelector]) -> u32 {
    if priority != 0 {
        return priority;
    }
    let base = match mode {
        ChildMode::Pass => BASE_PASS,
        ChildMode::Tunnel => BASE_TUNNEL,
        ChildMode::Drop => BASE_DROP,
    };
    base + width(local) + width(remote)
}

impl Entry {
    fn policy(&self) -> Policy {
        let action = match self.mode {
            ChildMode::Pass => Action::Bypass,
            ChildMode::Tunnel => Action::Protect(self.id),
            ChildMode::Drop => Action::Discard,
        };
        Policy { priority: self.order, local: self.local.clone(), remote: self.remote.clone(), action }
    }
}

/// How much a side admits: more is less specific and looked at later.
fn width(selectors: &[TrafficSelector]) -> u32 {
    let one = |ts: &TrafficSelector| {
        let host_bits =
            cover(&ts.addrs).iter().map(|p| if p.is_ipv4() { 32 } else { 128 } - p.length()).max();
        let any_port = ts.port_start == 0 && ts.port_end == u16::MAX;
        u32::from(host_bits.unwrap_or(0)) * 4 + u32::from(ts.protocol == 0) * 2 + u32::from(any_port)
    };
    selectors.iter().map(one).max().unwrap_or(0)
}

/// Our side. Before there is an SA, `dynamic` may be any address: whatever goes to the remote side is held back.
fn local_side(child: &Child) -> Vec<TrafficSelector> {
    let everything = [prefix::whole(false), prefix::whole(true)];
    child.local_ts.iter().flat_map(|spec| resolve(spec, &everything)).collect()
}

/// What of our side the configuration names itself.
fn named(child: &Child) -> Vec<AddrRange> {
    let fixed = |spec: &TsSpec| match spec {
        TsSpec::Fixed(ts) => Some(ts.addrs),
        TsSpec::Dynamic { .. } => None,
    };
    child.local_ts.iter().filter_map(fixed).collect()
}

/// The peer's side: `dynamic` is the peer's address, if the connection names just one.
fn remote_side(connection: &Connection, child: &Child) -> Vec<TrafficSelector> {
    let single: Vec<AddrRange> =
        connection.remote_addrs.iter().filter(|range| range.start() == range.end()).copied().collect();
    child.remote_ts.iter().flat_map(|spec| resolve(spec, &single)).collect()
}

fn resolve(spec: &TsSpec, dynamic: &[AddrRange]) -> Vec<TrafficSelector> {
    match *spec {
        TsSpec::Fixed(ts) => vec![ts],
        TsSpec::Dynamic { protocol, port_start, port_end } => {
            let one = |addrs: &AddrRange| TrafficSelector { addrs: *addrs, protocol, port_start, port_end };
            dynamic.iter().map(one).collect()
        }
    }
}

#[cfg(test)]
#[path = "policies_tests.rs"]
mod tests;
