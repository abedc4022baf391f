//! The policies of configured children: their selectors before there is an SA, and their
//! priorities.

use super::ChildName;
use super::table::{Configured, PolicyEntry};
use crate::prefix::{self, cover};
use testudo_ike::config::{Child, ChildMode, Connection, TsSpec};
use testudo_ipsec::selector::{AddrRange, SelectorPair, TrafficSelector};
use testudo_ipsec::spd::Rank;

/// The policy of a child as it is configured. `None` for a peer with any address and `dynamic`
/// selectors: nothing is known before it comes.
pub(super) fn configure(connection: &Connection, child: &Child, leased: &[AddrRange]) -> Option<PolicyEntry> {
    // A bypass or discard policy is there only once it is installed.
    if !child.mode.is_negotiated() && !child.start_action.traps() {
        return None;
    }
    let (local, remote) = (local_side(child), remote_side(connection, child, leased));
    if remote.is_empty() {
        return None;
    }
    let name = ChildName { connection: connection.name.clone(), child: child.name.clone() };
    let rank = Rank { priority: order(child.mode, child.priority, &local, &remote), place: 0, part: 0 };
    let is_for_anybody = traps_anybody(connection, child);
    let configured = Configured { name, named: named(child), is_for_anybody, since: 0 };
    Some(PolicyEntry::of_child(child, rank, SelectorPair::new(&local, &remote), configured))
}

/// Computed priorities lie where strongSwan's do, at 100 000 and above: bypass before protect
/// before discard. So a small explicit `priority` comes before all of them.
const BASE_PASS: u32 = 100_000;
const BASE_TUNNEL: u32 = 200_000;
const BASE_DROP: u32 = 300_000;

/// The priority of a policy. `priority` is the child's; 0 means computed.
fn order(mode: ChildMode, priority: u32, local: &[TrafficSelector], remote: &[TrafficSelector]) -> u32 {
    if priority != 0 {
        return priority;
    }
    let base = match mode {
        ChildMode::Pass => BASE_PASS,
        ChildMode::Tunnel | ChildMode::Transport => BASE_TUNNEL,
        ChildMode::Drop => BASE_DROP,
    };
    base + width(local) + width(remote)
}

/// The priority of a Child SA's policy, from the child that it was made for and its selectors.
pub(super) fn priority_of(child: Option<&Child>, selectors: &SelectorPair) -> u32 {
    let [local, remote]: [Vec<TrafficSelector>; 2] =
        [selectors.local_selectors().collect(), selectors.remote_selectors().collect()];
    order(ChildMode::Tunnel, child.map_or(0, |child| child.priority), &local, &remote)
}

/// How much a side admits. A wider side is less specific, and comes later.
fn width(selectors: &[TrafficSelector]) -> u32 {
    let one = |ts: &TrafficSelector| {
        let host_bits =
            cover(&ts.addrs).iter().map(|p| if p.is_ipv4() { 32 } else { 128 } - p.length()).max();
        let any_port = ts.port_start == 0 && ts.port_end == u16::MAX;
        u32::from(host_bits.unwrap_or(0)) * 4 + u32::from(ts.protocol == 0) * 2 + u32::from(any_port)
    };
    selectors.iter().map(one).max().unwrap_or(0)
}

/// Our side. Before there is an SA, `dynamic` may be any address, so all traffic to the remote side
/// is held back.
fn local_side(child: &Child) -> Vec<TrafficSelector> {
    let everything = [prefix::whole(false), prefix::whole(true)];
    child.local_ts.iter().flat_map(|spec| resolve(spec, &everything)).collect()
}

/// The selectors that a child's configuration names itself. `dynamic` may be any address, and names
/// none.
pub(crate) fn named_selectors(child: &Child) -> SelectorPair {
    SelectorPair::new(&fixed(&child.local_ts), &fixed(&child.remote_ts))
}

/// The addresses of our side that the configuration names itself.
pub(super) fn named(child: &Child) -> Box<[AddrRange]> {
    fixed(&child.local_ts).into_iter().map(|ts| ts.addrs).collect()
}

/// The selectors that are not `dynamic`.
fn fixed(specs: &[TsSpec]) -> Vec<TrafficSelector> {
    specs.iter().flat_map(|spec| resolve(spec, &[])).collect()
}

/// True if any host that a packet is for may become the child's peer.
fn traps_anybody(connection: &Connection, child: &Child) -> bool {
    child.start_action.traps() && connection.takes_anybody(child)
}

/// The peer's side: `dynamic` is any address of the pools, or the peer's address, if the connection
/// names just one; where a packet names the peer, any address that the peer may have.
fn remote_side(connection: &Connection, child: &Child, leased: &[AddrRange]) -> Vec<TrafficSelector> {
    let hosts = connection.remote_hosts();
    let peers: Vec<AddrRange> = match traps_anybody(connection, child) {
        true if hosts.is_any() => vec![prefix::whole(false), prefix::whole(true)],
        true => hosts.ranges().collect(),
        false => hosts.singles().filter_map(|addr| AddrRange::new(addr, addr)).collect(),
    };
    let dynamic = if leased.is_empty() { &peers } else { leased };
    child.remote_ts.iter().flat_map(|spec| resolve(spec, dynamic)).collect()
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
