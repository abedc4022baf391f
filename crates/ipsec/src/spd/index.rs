//! Finds the policies that a packet's addresses allow, without walking all.
//!
//! The address space of one side and family is cut at every border of a selector. Each segment lists the policies that
//! cover it, in order of precedence; a look-up is a binary search and a walk through that short list. A policy is cut on
//! the side where its selectors are narrow: remote if possible, else local. Policies that are broad on both sides would
//! stand in very many segments; they stay in one list, that every look-up walks as far as needed.

use super::Policy;
use crate::packet_selector::PacketSelector;
use crate::selector::{TrafficSelector, addr_bits};

/// A policy that covers more segments than this on one side counts as broad there.
const BROAD: usize = 64;

/// Policies by address.
#[derive(Debug)]
pub(super) struct Index {
    remote: Families,
    local: Families,
    broad: Vec<u32>,
    /// Those that `remote` does not have.
    broad_remote: Vec<u32>,
}

#[derive(Debug)]
struct Families {
    v4: Segments,
    v6: Segments,
}

/// Disjoint segments: each begins at its entry in `starts` and ends before the next.
#[derive(Debug, Default)]
struct Segments {
    starts: Vec<u128>,
    /// `candidates[from..to]` of each segment.
    lists: Vec<(u32, u32)>,
    candidates: Vec<u32>,
}

impl Index {
    /// `policies` in order of precedence.
    pub(super) fn new(policies: &[Policy]) -> Self {
        let all: Vec<u32> = (0..policies.len() as u32).collect();
        let (remote, left) = Families::new(policies, &all, |policy| &policy.remote);
        let (local, broad) = Families::new(policies, &left, |policy| &policy.local);
        Self { remote, local, broad, broad_remote: left }
    }

    /// The lowest rank for which `matches` holds, among those that the addresses allow.
    pub(super) fn first(&self, packet: &PacketSelector, matches: impl Fn(u32) -> bool) -> Option<u32> {
        let lists = [
            self.remote.of(packet).list(packet.remote),
            self.local.of(packet).list(packet.local),
            &self.broad,
        ];
        let mut best = None;
        for list in lists {
            let better = |rank: &&u32| best.is_none_or(|best| **rank < best);
            best = list.iter().take_while(better).copied().find(|rank| matches(*rank)).or(best);
        }
        best
    }

    /// Ranks of the policies that may have the packet's remote address.
    pub(super) fn by_remote(&self, packet: &PacketSelector) -> impl Iterator<Item = u32> + '_ {
        self.remote.of(packet).list(packet.remote).iter().chain(&self.broad_remote).copied()
    }
}

impl Families {
    /// Takes those of `ranks` that are narrow on this side, and returns the others.
    fn new(
        policies: &[Policy],
        ranks: &[u32],
        side: impl Fn(&Policy) -> &[TrafficSelector],
    ) -> (Self, Vec<u32>) {
        let selectors = |rank: &u32| policies.get(*rank as usize).map_or(&[][..], &side);
        let borders = |v6: bool| {
            let mut borders: Vec<u128> = ranks
                .iter()
                .flat_map(selectors)
                .filter(|selector| selector.addrs.start().is_ipv6() == v6)
                .flat_map(|selector| borders_of(selector, v6))
                .collect();
            borders.sort_unstable();
            borders.dedup();
            borders
        };
        let (borders_v4, borders_v6) = (borders(false), borders(true));
        let spans = |rank: &u32| -> usize {
            let span = |selector: &TrafficSelector| {
                let v6 = selector.addrs.start().is_ipv6();
                let (from, to) = span_of(if v6 { &borders_v6 } else { &borders_v4 }, selector);
                to - from
            };
            selectors(rank).iter().map(span).sum()
        };
        let (narrow, broad): (Vec<u32>, Vec<u32>) = ranks.iter().partition(|rank| spans(rank) <= BROAD);
        let segments = |v6: bool, borders: Vec<u128>| {
            let entries = narrow.iter().flat_map(|rank| {
                let family = move |selector: &&TrafficSelector| selector.addrs.start().is_ipv6() == v6;
                selectors(rank).iter().filter(family).map(|selector| (*rank, selector))
            });
            Segments::new(borders, entries)
        };
        (Self { v4: segments(false, borders_v4), v6: segments(true, borders_v6) }, broad)
    }

    fn of(&self, packet: &PacketSelector) -> &Segments {
        if packet.is_ipv6() { &self.v6 } else { &self.v4 }
    }
}

/// Where a selector's range begins, and where what follows it begins (nothing follows the last address).
fn borders_of(selector: &TrafficSelector, v6: bool) -> impl Iterator<Item = u128> {
    let (start, end) = (addr_bits(selector.addrs.start()), addr_bits(selector.addrs.end()));
    let last = if v6 { u128::MAX } else { u128::from(u32::MAX) };
    [Some(start), (end < last).then(|| end + 1)].into_iter().flatten()
}

/// The segments that a selector covers: a half-open range of indices into `borders`.
fn span_of(borders: &[u128], selector: &TrafficSelector) -> (usize, usize) {
    let from = borders.partition_point(|border| *border < addr_bits(selector.addrs.start()));
    let to = borders.partition_point(|border| *border <= addr_bits(selector.addrs.end()));
    (from, to)
}

impl Segments {
    /// `entries` in order of rank; a rank may come several times.
    fn new<'a>(starts: Vec<u128>, entries: impl Iterator<Item = (u32, &'a TrafficSelector)>) -> Self {
        let mut members: Vec<(usize, u32)> = entries
            .flat_map(|(rank, selector)| {
                let (from, to) = span_of(&starts, selector);
                (from..to).map(move |segment| (segment, rank))
            })
            .collect();
        members.sort_unstable();
        members.dedup();
        let mut lists = vec![(0, 0); starts.len()];
        for (at, (segment, _)) in members.iter().enumerate() {
            if let Some(list) = lists.get_mut(*segment) {
                let first = if list.1 == 0 { at as u32 } else { list.0 };
                *list = (first, at as u32 + 1);
            }
        }
        let candidates = members.into_iter().map(|(_, rank)| rank).collect();
        Self { starts, lists, candidates }
    }

    /// The policies that cover the address, in order of precedence.
    fn list(&self, addr: u128) -> &[u32] {
        let after = self.starts.partition_point(|start| *start <= addr);
        let list = after.checked_sub(1).and_then(|segment| self.lists.get(segment));
        list.and_then(|(from, to)| self.candidates.get(*from as usize..*to as usize)).unwrap_or(&[])
    }
}

#[cfg(test)]
impl Index {
    /// The most policies that a look-up may have to compare.
    pub(super) fn longest_walk(&self) -> usize {
        let longest = |segments: &Segments| {
            segments.lists.iter().map(|(from, to)| (to - from) as usize).max().unwrap_or(0)
        };
        let of = |families: &Families| longest(&families.v4).max(longest(&families.v6));
        of(&self.remote) + of(&self.local) + self.broad.len()
    }
}
