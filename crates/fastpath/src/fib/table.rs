//! Longest-prefix match by binary search over disjoint ranges.
//!
//! Prefixes either nest or are disjoint, so n of them cut the address space into at most 2n + 1
//! ranges, each with one answer. An index by the first 16 bits of the address leaves few ranges to
//! search: none in most tables.

use std::net::IpAddr;
use testudo_base::prefix::Prefix;

/// Routes of a higher table hide those of a lower one, however specific.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Tier {
    Main,
    Local,
}

/// A prefix and the number of its answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct FibEntry {
    pub(super) tier: Tier,
    pub(super) prefix: Prefix,
    pub(super) value: u32,
}

/// Number of the answer for addresses that no prefix holds.
pub(super) const NO_ANSWER: u32 = 0;

/// An address as a number.
pub(super) trait AddressBits: Copy + Ord {
    /// The first 16 bits.
    fn top(self) -> u16;
}

impl AddressBits for u32 {
    fn top(self) -> u16 {
        (self >> 16) as u16
    }
}

impl AddressBits for u128 {
    fn top(self) -> u16 {
        (self >> 112) as u16
    }
}

#[derive(Debug)]
pub(super) struct RangeTable<A> {
    /// For each value of the first 16 bits, and one more: how many ranges start below.
    index: Vec<u32>,
    starts: Vec<A>,
    values: Vec<u32>,
}

impl<A: AddressBits> RangeTable<A> {
    fn new(ranges: impl Iterator<Item = (A, u32)>) -> Self {
        let (starts, values): (Vec<A>, Vec<u32>) = ranges.unzip();
        let mut below = 0;
        let count = |top: u32| {
            while starts.get(below).is_some_and(|start| u32::from(start.top()) < top) {
                below += 1;
            }
            u32::try_from(below).unwrap_or(u32::MAX)
        };
        let index = (0..=1 << 16).map(count).collect();
        Self { index, starts, values }
    }

    #[inline]
    pub(super) fn lookup(&self, addr: A) -> u32 {
        let top = usize::from(addr.top());
        let (Some(&from), Some(&to)) = (self.index.get(top), self.index.get(top + 1)) else {
            return NO_ANSWER;
        };
        let candidates = self.starts.get(from as usize..to as usize).unwrap_or_default();
        let above = from as usize + candidates.partition_point(|&start| start <= addr);
        above.checked_sub(1).and_then(|i| self.values.get(i)).copied().unwrap_or(NO_ANSWER)
    }
}

impl RangeTable<u32> {
    /// The table of the IPv4 entries. Of equal prefixes of a tier the first counts.
    pub(super) fn v4(entries: &[FibEntry]) -> Self {
        let ranges = cut(spans(entries, true)).into_iter();
        // A prefix that ends with 255.255.255.255 makes a range behind the last address.
        Self::new(ranges.filter_map(|(s, v)| Some((u32::try_from(s).ok()?, v))))
    }
}

impl RangeTable<u128> {
    /// The table of the IPv6 entries. Of equal prefixes of a tier the first counts.
    pub(super) fn v6(entries: &[FibEntry]) -> Self {
        Self::new(cut(spans(entries, false)).into_iter())
    }
}

#[derive(Clone, Copy)]
struct Span {
    first: u128,
    last: u128,
    /// Where spans overlap, the larger rank wins.
    rank: (Tier, u8),
    value: u32,
}

fn spans(entries: &[FibEntry], ipv4: bool) -> Vec<Span> {
    let family = entries.iter().filter(|e| e.prefix.is_ipv4() == ipv4);
    let mut spans: Vec<Span> = family.map(span).collect();
    // Stable, so that of equal prefixes the first stays first.
    spans.sort_by_key(|s| (s.first, std::cmp::Reverse(s.last)));
    spans
}

fn span(entry: &FibEntry) -> Span {
    let (first, width) = match entry.prefix.addr() {
        IpAddr::V4(a) => (u128::from(u32::from(a)), 32),
        IpAddr::V6(a) => (u128::from(a), 128),
    };
    let host_bits = width - u32::from(entry.prefix.length());
    let hosts = u128::MAX.checked_shr(128 - host_bits).unwrap_or(0);
    Span { first, last: first | hosts, rank: (entry.tier, entry.prefix.length()), value: entry.value }
}

/// Cuts nested spans, outer before inner, into ranges: the start of each and its answer.
fn cut(spans: Vec<Span>) -> Vec<(u128, u32)> {
    let mut ranges = vec![(0, NO_ANSWER)];
    // The spans that hold the current address, each with its rank and answer.
    let mut open: Vec<Span> = Vec::new();
    for span in spans {
        close_before(&mut open, Some(span.first), &mut ranges);
        let best = open.last().filter(|outer| outer.rank >= span.rank).copied().unwrap_or(span);
        open.push(Span { first: span.first, last: span.last, ..best });
        start_range(&mut ranges, span.first, best.value);
    }
    close_before(&mut open, None, &mut ranges);
    ranges
}

/// Closes the spans that end before `limit`; all of them, if there is none.
fn close_before(open: &mut Vec<Span>, limit: Option<u128>, ranges: &mut Vec<(u128, u32)>) {
    while let Some(ended) = open.pop_if(|s| limit.is_none_or(|l| s.last < l)) {
        if let Some(next) = ended.last.checked_add(1) {
            start_range(ranges, next, open.last().map_or(NO_ANSWER, |outer| outer.value));
        }
    }
}

fn start_range(ranges: &mut Vec<(u128, u32)>, start: u128, value: u32) {
    match ranges.last_mut() {
        Some(last) if last.0 == start => last.1 = value,
        _ => ranges.push((start, value)),
    }
}
