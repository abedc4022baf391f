//! An index that finds the policies for a packet's addresses, without a walk over all.
//!
//! Policies stand in tries under prefixes around their address ranges, on the narrower side:
//! otherwise very many look-ups would compare all of them. If both sides are equally narrow, they
//! stand on the side where fewer others stand. The selectors under a prefix are compared in full,
//! so a prefix may be wider than the range.

use super::trie::{Trie, TriePrefix};
use super::{Rank, RankedPolicy};
use crate::packet_selector::PacketSelector;
use crate::selector::{AddrRange, SelectorPair, TrafficSelector, addr_bits};
use arrayvec::ArrayVec;
use std::cmp::Ordering;
use std::sync::Arc;

/// Policies by address.
#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    remote: Families<Arc<RankedPolicy>>,
    local: Families<Arc<RankedPolicy>>,
    /// Remote ranges that policies in `local` hold back, and those that no policy is about.
    held: Families<HeldRange>,
}

/// A side of a policy's selectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SelectorSide {
    Local,
    Remote,
}

#[derive(Clone, Debug)]
struct Families<T> {
    v4: Trie<T>,
    v6: Trie<T>,
}

/// Why a range is held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    /// The selectors of a policy, which stands on its local side.
    Selectors,
    /// It stays shut, without a policy ([`super::Spd::hold_back`]).
    Itself,
}

/// A range, and how often it is held back.
#[derive(Clone, Debug)]
struct HeldRange {
    range: Range,
    by_selectors: usize,
    by_itself: usize,
}

impl HeldRange {
    fn count(&mut self, holder: Holder) -> &mut usize {
        match holder {
            Holder::Selectors => &mut self.by_selectors,
            Holder::Itself => &mut self.by_itself,
        }
    }
}

/// First and last address; IPv4 addresses are in the leftmost 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    v6: bool,
    first: u128,
    last: u128,
}

impl<T> Default for Families<T> {
    fn default() -> Self {
        Self { v4: Trie::default(), v6: Trie::default() }
    }
}

impl<T: Clone> Families<T> {
    fn of(&self, v6: bool) -> &Trie<T> {
        if v6 { &self.v6 } else { &self.v4 }
    }

    fn of_mut(&mut self, v6: bool) -> &mut Trie<T> {
        if v6 { &mut self.v6 } else { &mut self.v4 }
    }

    /// The lists under the prefixes of a selector.
    fn lists_of(&self, selector: TrafficSelector) -> impl Iterator<Item = &[T]> {
        let range = Range::of(&selector.addrs);
        range.prefixes().into_iter().map(move |prefix| self.of(range.v6).list(prefix))
    }

    /// Length of the longest of these lists.
    fn longest(&self, selectors: impl Iterator<Item = TrafficSelector>) -> usize {
        selectors.flat_map(|selector| self.lists_of(selector).map(<[T]>::len).max()).max().unwrap_or(0)
    }

    fn lists(&self, v6: bool, addr: u128) -> impl Iterator<Item = &[T]> {
        self.of(v6).lists(leftmost(addr, v6))
    }
}

fn leftmost(addr: u128, v6: bool) -> u128 {
    if v6 { addr } else { addr << 96 }
}

impl Range {
    pub(super) fn of(addrs: &AddrRange) -> Self {
        let v6 = addrs.start().is_ipv6();
        let bits = |addr| leftmost(addr_bits(addr), v6);
        let below = if v6 { 0 } else { u128::MAX >> 32 };
        Self { v6, first: bits(addrs.start()), last: bits(addrs.end()) | below }
    }

    /// One or two prefixes that cover the range, and no more than as much again beside it: for a
    /// range across a border, a single prefix could cover everything.
    fn prefixes(self) -> ArrayVec<TriePrefix, 2> {
        let whole = TriePrefix::around(self.first, self.last);
        // The border in its middle.
        let middle = 1_u128.checked_shl(127 - whole.length().min(127)).unwrap_or(0);
        let border = self.last & !(middle.wrapping_sub(1));
        if whole.length() == u128::BITS || border <= self.first {
            return ArrayVec::from_iter([whole]);
        }
        let halves = [TriePrefix::around(self.first, border - 1), TriePrefix::around(border, self.last)];
        let is_whole = halves.iter().all(|half| half.length() == whole.length() + 1);
        if is_whole { ArrayVec::from_iter([whole]) } else { ArrayVec::from(halves) }
    }

    /// Number of bits in which addresses of its widest prefix differ.
    fn width(self) -> u32 {
        let bits = if self.v6 { 128 } else { 32 };
        self.prefixes().iter().map(|prefix| bits - prefix.length().min(bits)).max().unwrap_or(0)
    }
}

fn width(side: impl Iterator<Item = TrafficSelector>) -> u32 {
    side.map(|selector| Range::of(&selector.addrs).width()).max().unwrap_or(0)
}

impl Index {
    /// Adds an entry.
    pub(super) fn insert(&mut self, entry: &Arc<RankedPolicy>) {
        let rank = entry.rank;
        let side = self.side(&entry.selectors);
        self.at(&entry.selectors, side, |list| {
            let at = list.partition_point(|other| other.rank < rank);
            let there = list.get(at).filter(|other| other.rank == rank);
            // Two of its ranges may lie under one prefix.
            debug_assert!(there.is_none_or(|other| Arc::ptr_eq(other, entry)), "two policies have one rank");
            if there.is_none() {
                list.insert(at, Arc::clone(entry));
            }
        });
        if side == SelectorSide::Local && entry.holds_back() {
            entry
                .selectors
                .remote_selectors()
                .for_each(|selector| self.hold(Range::of(&selector.addrs), Holder::Selectors));
        }
    }

    /// Removes the policy with these selectors and this rank. Returns false if there is none.
    pub(super) fn remove(&mut self, selectors: &SelectorPair, rank: Rank) -> bool {
        let mut removed = None;
        let side = self.side_of(selectors, rank);
        self.at(selectors, side, |list| {
            if let Ok(at) = list.binary_search_by_key(&rank, |other| other.rank) {
                removed = Some(list.remove(at));
            }
        });
        if removed.as_ref().is_some_and(|entry| entry.holds_back() && side == SelectorSide::Local) {
            selectors
                .remote_selectors()
                .for_each(|selector| self.let_go(Range::of(&selector.addrs), Holder::Selectors));
        }
        removed.is_some()
    }

    /// Changes the lists of the side on which a policy stands.
    fn at(
        &mut self,
        selectors: &SelectorPair,
        side: SelectorSide,
        mut change: impl FnMut(&mut Vec<Arc<RankedPolicy>>),
    ) {
        let mut change_side = |families: &mut Families<Arc<RankedPolicy>>, selector: TrafficSelector| {
            let range = Range::of(&selector.addrs);
            for prefix in range.prefixes() {
                families.of_mut(range.v6).change(prefix, &mut change);
            }
        };
        if side == SelectorSide::Local {
            selectors.local_selectors().for_each(|selector| change_side(&mut self.local, selector));
        } else {
            selectors.remote_selectors().for_each(|selector| change_side(&mut self.remote, selector));
        }
    }

    /// The side for a new policy. If both are equally narrow, it is the one with fewer others: of
    /// many tunnels to one address, each from another, all but one stand on our side.
    fn side(&self, selectors: &SelectorPair) -> SelectorSide {
        narrower(selectors).unwrap_or_else(|| {
            let local = self.local.longest(selectors.local_selectors());
            if local < self.remote.longest(selectors.remote_selectors()) {
                SelectorSide::Local
            } else {
                SelectorSide::Remote
            }
        })
    }

    /// The side on which a policy stands.
    fn side_of(&self, selectors: &SelectorPair, rank: Rank) -> SelectorSide {
        narrower(selectors).unwrap_or_else(|| {
            let mut lists = selectors.remote_selectors().flat_map(|selector| self.remote.lists_of(selector));
            let is_there = lists.any(|list| list.binary_search_by_key(&rank, |other| other.rank).is_ok());
            if is_there { SelectorSide::Remote } else { SelectorSide::Local }
        })
    }

    /// Holds a range back once more.
    pub(super) fn hold(&mut self, range: Range, holder: Holder) {
        for prefix in range.prefixes() {
            self.held.of_mut(range.v6).change(prefix, |list| {
                match list.iter_mut().find(|held| held.range == range) {
                    Some(held) => *held.count(holder) += 1,
                    None => {
                        let mut held = HeldRange { range, by_selectors: 0, by_itself: 0 };
                        *held.count(holder) = 1;
                        list.push(held);
                    }
                }
            });
        }
    }

    /// Holds it back once less.
    pub(super) fn let_go(&mut self, range: Range, holder: Holder) {
        for prefix in range.prefixes() {
            self.held.of_mut(range.v6).change(prefix, |list| {
                let held = list.iter_mut().filter(|held| held.range == range);
                held.for_each(|held| *held.count(holder) -= 1);
                list.retain(|held| held.by_selectors + held.by_itself > 0);
            });
        }
    }

    /// The first policy, in order of precedence, that accepts the packet.
    pub(super) fn first(&self, packet: &PacketSelector) -> Option<&RankedPolicy> {
        let v6 = packet.is_ipv6();
        let lists = self.remote.lists(v6, packet.remote).chain(self.local.lists(v6, packet.local));
        let mut best: Option<&RankedPolicy> = None;
        for list in lists {
            let better = |entry: &&Arc<RankedPolicy>| best.is_none_or(|best| entry.rank < best.rank);
            let found = list.iter().take_while(better).find(|entry| entry.selectors.accepts(packet));
            best = found.map(|entry| &**entry).or(best);
        }
        best
    }

    /// True if a policy before the first one that accepts the packet would accept it with certain
    /// ports.
    pub(super) fn needs_ports(&self, later: &PacketSelector, counts: impl Fn(&RankedPolicy) -> bool) -> bool {
        let first = self.first(later);
        if first.is_some_and(|first| first.selectors.wants_no_ports(later)) {
            return false;
        }
        let v6 = later.is_ipv6();
        let mut lists = self.remote.lists(v6, later.remote).chain(self.local.lists(v6, later.local));
        lists.any(|list| {
            let before = |entry: &&Arc<RankedPolicy>| first.is_none_or(|first| entry.rank < first.rank);
            let wants =
                |entry: &Arc<RankedPolicy>| counts(entry) && entry.selectors.accepts_but_for_ports(later);
            list.iter().take_while(before).any(wants)
        })
    }

    /// Width of the narrowest range that holds back packets to the packet's remote address.
    pub(super) fn held_back(&self, packet: &PacketSelector) -> Option<u8> {
        let v6 = packet.is_ipv6();
        let entries = self.remote.lists(v6, packet.remote).flatten();
        let holding = entries.filter(|entry| entry.holds_back());
        let here = holding.filter_map(|entry| entry.selectors.remote_width(packet));
        let shift = if v6 { 0 } else { 96 };
        let others = self.held_around(packet).map(|HeldRange { range, .. }| {
            (u128::BITS - ((range.last >> shift) - (range.first >> shift)).leading_zeros()) as u8
        });
        here.chain(others).min()
    }

    /// True if a range that stays shut holds the packet's remote address.
    pub(super) fn is_shut(&self, packet: &PacketSelector) -> bool {
        self.held_around(packet).any(|held| held.by_itself > 0)
    }

    /// The held ranges in which the packet's remote address lies.
    fn held_around(&self, packet: &PacketSelector) -> impl Iterator<Item = &HeldRange> {
        let v6 = packet.is_ipv6();
        let addr = leftmost(packet.remote, v6);
        let ranges = self.held.lists(v6, packet.remote).flatten();
        ranges.filter(move |held| held.range.first <= addr && addr <= held.range.last)
    }
}

/// The side on which a policy is narrower.
fn narrower(selectors: &SelectorPair) -> Option<SelectorSide> {
    match width(selectors.local_selectors()).cmp(&width(selectors.remote_selectors())) {
        Ordering::Less => Some(SelectorSide::Local),
        Ordering::Equal => None,
        Ordering::Greater => Some(SelectorSide::Remote),
    }
}

#[cfg(test)]
impl Index {
    /// Bound on the policies that a look-up has to compare.
    pub(super) fn longest_walk(&self) -> usize {
        let of = |families: &Families<Arc<RankedPolicy>>| {
            families.v4.longest_walk().max(families.v6.longest_walk())
        };
        of(&self.remote) + of(&self.local)
    }
}
