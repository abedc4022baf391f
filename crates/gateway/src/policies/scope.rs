//! The part of the traffic to a prefix that a policy takes.

use super::addr_set::{AddrSet, overlap};
use crate::prefix::{cover, cover_within, last_address};
use std::collections::BTreeSet;
use std::net::IpAddr;
use testudo_base::prefix::Prefix;
use testudo_ipsec::selector::{AddrRange, SelectorPair, TrafficSelector};

/// The most prefixes that an SA is about. The filter's room is limited, and a peer chooses the
/// selectors of its SAs.
const MAX_SA_PREFIXES: usize = 32;

/// The prefixes that a policy is about: exactly, if an operator wrote it.
pub(super) fn footprint(selectors: &SelectorPair, is_configured: bool) -> BTreeSet<Prefix> {
    let mut ranges: Vec<AddrRange> = selectors.remote_selectors().map(|ts| ts.addrs).collect();
    ranges.sort_unstable_by_key(|range| (range.start(), range.end()));
    ranges.dedup();
    if is_configured {
        return ranges.iter().flat_map(cover).collect();
    }
    match MAX_SA_PREFIXES.checked_div(ranges.len()).filter(|each| *each >= 2) {
        Some(each) => ranges.iter().flat_map(|range| cover_within(range, each)).collect(),
        None => {
            let families = [true, false].map(|v4| hull(ranges.iter().filter(|r| r.start().is_ipv4() == v4)));
            families.iter().flatten().flat_map(|range| cover_within(range, MAX_SA_PREFIXES / 2)).collect()
        }
    }
}

/// The range from the first address to the last.
fn hull<'a>(ranges: impl Iterator<Item = &'a AddrRange>) -> Option<AddrRange> {
    let ends = ranges.map(|range| (range.start(), range.end()));
    let (start, end) = ends.reduce(|all, one| (all.0.min(one.0), all.1.max(one.1)))?;
    AddrRange::new(start, end)
}

/// Which senders, protocols and ports a policy takes, of the traffic to a prefix.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Scope {
    /// True if it takes them to every address of the prefix.
    is_whole: bool,
    /// Our side.
    local: Vec<(Limit, IpAddr, IpAddr)>,
    /// The peer's side.
    remote: BTreeSet<Limit>,
}

/// What a selector asks for besides addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Limit {
    protocol: u8,
    ports: (u16, u16),
}

impl Limit {
    fn of(ts: &TrafficSelector) -> Self {
        Self { protocol: ts.protocol, ports: (ts.port_start, ts.port_end) }
    }

    /// OPAQUE lies within ANY and itself only (RFC 4301 §4.4.1.1).
    fn covers(&self, other: &Self) -> bool {
        let ((first, last), (start, end)) = (self.ports, other.ports);
        let ports = (first, last) == (0, u16::MAX)
            || self.ports == other.ports
            || first <= start && start <= end && end <= last;
        ports && (self.protocol == 0 || self.protocol == other.protocol)
    }
}

impl Scope {
    /// The part of the traffic to the prefix that the selectors take. Narrower prefixes in them do
    /// not count.
    pub(super) fn of(selectors: &SelectorPair, prefix: &Prefix) -> Self {
        let (start, end) = (prefix.addr(), last_address(prefix));
        let is_whole = |ts: &&TrafficSelector| ts.addrs.contains(start) && ts.addrs.contains(end);
        let named: Vec<TrafficSelector> = selectors.remote_selectors().collect();
        let mut remote: BTreeSet<Limit> = named.iter().filter(is_whole).map(Limit::of).collect();
        let whole = !remote.is_empty();
        if !whole && let Some(range) = AddrRange::new(start, end) {
            remote = named.iter().filter(|ts| overlap(&ts.addrs, &range)).map(Limit::of).collect();
        }
        let alike = |ts: &TrafficSelector| ts.addrs.start().is_ipv4() == prefix.is_ipv4();
        let local = selectors.local_selectors().filter(alike);
        let mut local: Vec<_> = local.map(|ts| (Limit::of(&ts), ts.addrs.start(), ts.addrs.end())).collect();
        local.sort_unstable();
        Self { is_whole: whole, local, remote }
    }

    /// True if no address of our side can send any of it.
    pub(super) fn is_empty(&self) -> bool {
        self.local.is_empty()
    }

    /// True if it takes everything that the other one takes, to any prefix of both.
    pub(super) fn covers(&self, other: &Self) -> bool {
        let is_sent = |(limit, start, end): &(Limit, IpAddr, IpAddr)| {
            let wider = self.local.iter().filter(|(own, _, _)| own.covers(limit));
            let senders: AddrSet = wider.filter_map(|(_, start, end)| AddrRange::new(*start, *end)).collect();
            AddrRange::new(*start, *end).is_some_and(|range| senders.holds(&range))
        };
        self.is_whole
            && other.remote.iter().all(|limit| self.remote.iter().any(|own| own.covers(limit)))
            && other.local.iter().all(is_sent)
    }
}

#[cfg(test)]
mod tests;
