//! Sets of addresses, to tell whether a range lies in several others together.

use crate::prefix::following;
use testudo_ipsec::selector::AddrRange;

/// Addresses of both families.
#[derive(Debug, Default)]
pub(super) struct AddrSet {
    /// In order; no two overlap or touch.
    ranges: Vec<AddrRange>,
}

impl AddrSet {
    /// True if there is no address in the set.
    pub(super) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// True if every address of the range is in the set.
    pub(super) fn holds(&self, range: &AddrRange) -> bool {
        let after = self.ranges.partition_point(|held| held.start() <= range.start());
        let before = after.checked_sub(1).and_then(|at| self.ranges.get(at));
        before.is_some_and(|held| held.contains(range.start()) && held.contains(range.end()))
    }
}

impl FromIterator<AddrRange> for AddrSet {
    fn from_iter<I: IntoIterator<Item = AddrRange>>(ranges: I) -> Self {
        let mut sorted: Vec<AddrRange> = ranges.into_iter().collect();
        // IPv4 comes before IPv6.
        sorted.sort_by_key(|range| (range.start(), range.end()));
        let mut merged: Vec<AddrRange> = Vec::new();
        for range in sorted {
            let joined = merged.last().and_then(|last| join(last, &range));
            match (joined, merged.last_mut()) {
                (Some(joined), Some(last)) => *last = joined,
                _ => merged.push(range),
            }
        }
        Self { ranges: merged }
    }
}

/// True if they share an address.
pub(super) fn overlap(a: &AddrRange, b: &AddrRange) -> bool {
    a.contains(b.start()) || b.contains(a.start())
}

/// The union of both, if `next` begins in `range` or directly behind it.
fn join(range: &AddrRange, next: &AddrRange) -> Option<AddrRange> {
    let touches = range.contains(next.start()) || following(range.end()) == Some(next.start());
    touches.then(|| AddrRange::new(range.start(), range.end().max(next.end()))).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(text: &str) -> AddrRange {
        let (start, end) = text.split_once('-').unwrap_or((text, text));
        AddrRange::new(start.parse().unwrap(), end.parse().unwrap()).unwrap()
    }

    fn set(texts: &[&str]) -> AddrSet {
        texts.iter().map(|text| range(text)).collect()
    }

    #[test]
    fn ranges_that_overlap_or_touch_are_one() {
        let set =
            set(&["10.0.0.4-10.0.0.9", "fd00::-fd00::ff", "10.0.0.0-10.0.0.3", "10.0.0.2", "10.0.0.11"]);
        assert_eq!(set.ranges, [range("10.0.0.0-10.0.0.9"), range("10.0.0.11"), range("fd00::-fd00::ff")]);
        assert!(set.holds(&range("10.0.0.2-10.0.0.9")));
        assert!(set.holds(&range("fd00::-fd00::ff")));
        for outside in ["10.0.0.9-10.0.0.11", "10.0.0.10", "9.255.255.255-10.0.0.1", "fd00::-fd00::100", "::"]
        {
            assert!(!set.holds(&range(outside)), "{outside}");
        }
    }

    #[test]
    fn the_ends_of_a_family_touch_nothing() {
        let set =
            set(&["0.0.0.0-255.255.255.255", "::-::1", "ffff::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"]);
        assert_eq!(set.ranges.len(), 3);
        assert!(set.holds(&range("255.255.255.255")) && !set.holds(&range("::2")));
    }

    #[test]
    fn ranges_overlap_if_they_share_an_address() {
        assert!(overlap(&range("10.0.0.0-10.0.0.9"), &range("10.0.0.9-10.0.0.11")));
        assert!(overlap(&range("10.0.0.5"), &range("10.0.0.0-10.0.0.9")));
        assert!(!overlap(&range("10.0.0.0-10.0.0.9"), &range("10.0.0.10")));
        assert!(!overlap(&range("0.0.0.0-255.255.255.255"), &range("::")));
    }
}
