//! The source of what the gateway itself sends to each protected prefix: an address of this machine
//! that a policy carries there. Packets from any other address would match no policy, and be
//! dropped (`no_policy`).

use crate::policies::SenderDifference;
use crate::prefix_map::PrefixMap;
use std::cmp::Reverse;
use std::net::IpAddr;
use testudo_base::prefix::Prefix;
use testudo_ipsec::selector::AddrRange;

/// By the prefixes of the peers' sides that policies name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Sources(PrefixMap<Choice>);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Choice {
    /// The ranges that policies carry to the prefix, in order.
    ranges: Vec<AddrRange>,
    source: Option<IpAddr>,
}

impl Sources {
    /// Follows the policies. True if the source for the prefix has changed: that of prefixes inside
    /// may have changed, too.
    pub(super) fn apply(&mut self, difference: &SenderDifference, addresses: &[IpAddr]) -> bool {
        let SenderDifference { prefix, range, is_there } = *difference;
        let mut choice = self.0.remove(&prefix).unwrap_or_default();
        match (is_there, choice.ranges.binary_search(&range)) {
            (true, Err(at)) => choice.ranges.insert(at, range),
            (false, Ok(at)) => drop(choice.ranges.remove(at)),
            _ => {}
        }
        let before = choice.source;
        choice.source = choose(&choice.ranges, addresses);
        let is_new = choice.source != before;
        if !choice.ranges.is_empty() {
            self.0.insert(prefix, choice);
        }
        is_new
    }

    /// Follows the addresses of this machine.
    pub(super) fn follow(&mut self, addresses: &[IpAddr]) {
        let chosen = |(prefix, choice): (&Prefix, &Choice)| {
            let ranges = choice.ranges.clone();
            (*prefix, Choice { source: choose(&ranges, addresses), ranges })
        };
        self.0 = self.0.iter().map(chosen).collect();
    }

    /// The source for a prefix: that of the closest prefix around that has one.
    pub(super) fn towards(&self, prefix: &Prefix) -> Option<IpAddr> {
        self.0.around(prefix).rev().find_map(|(_, choice)| choice.source)
    }
}

/// The address of this machine in the narrowest range that has one: a virtual IP, or a range that a
/// peer has narrowed, comes before the range that a child is configured with.
fn choose(ranges: &[AddrRange], addresses: &[IpAddr]) -> Option<IpAddr> {
    let first_in = |range: &AddrRange| addresses.iter().copied().find(|addr| range.contains(*addr));
    let owned = ranges.iter().filter_map(|range| Some((size(range), first_in(range)?)));
    // Among ranges of one size the first one counts.
    owned.max_by_key(|(size, addr)| (Reverse(*size), Reverse(*addr))).map(|(_, addr)| addr)
}

/// Addresses in a range, without the first.
fn size(range: &AddrRange) -> u128 {
    match (range.start(), range.end()) {
        (IpAddr::V4(start), IpAddr::V4(end)) => (end.to_bits() - start.to_bits()).into(),
        (IpAddr::V6(start), IpAddr::V6(end)) => end.to_bits() - start.to_bits(),
        _ => u128::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(text: &str) -> IpAddr {
        text.parse().expect(text)
    }

    fn range(text: &str) -> AddrRange {
        let (start, end) = text.split_once('-').unwrap_or((text, text));
        AddrRange::new(addr(start), addr(end)).expect(text)
    }

    fn prefix(text: &str) -> Prefix {
        text.parse().expect(text)
    }

    const ONE: &str = "10.1.0.0-10.1.255.255";
    const TWO: &str = "10.11.0.0-10.11.255.255";

    /// Sources by our ranges and the peer's prefixes, on a machine with these addresses.
    fn sources(carried: &[(&str, &str)], addresses: &[&str]) -> Sources {
        let addresses: Vec<IpAddr> = addresses.iter().map(|text| addr(text)).collect();
        let mut sources = Sources::default();
        for (local, remote) in carried {
            let (prefix, range) = (prefix(remote), range(local));
            sources.apply(&SenderDifference { prefix, range, is_there: true }, &addresses);
        }
        sources
    }

    #[track_caller]
    fn expect(sources: &Sources, expected: &[(&str, Option<&str>)]) {
        for (to, source) in expected {
            assert_eq!(sources.towards(&prefix(to)), source.map(addr), "{to}");
        }
    }

    #[test]
    fn each_prefix_has_a_source_that_its_own_child_carries() {
        let carried = [(ONE, "10.2.0.0/16"), (TWO, "10.12.0.0/16"), ("fd00:1::-fd00:1::ff", "fd00:2::/32")];
        let owned = ["192.0.2.1", "10.1.0.1", "10.11.0.1", "fd00:9::1", "fd00:1::1"];
        let expected = [
            ("10.2.0.0/16", Some("10.1.0.1")),
            ("10.12.0.0/16", Some("10.11.0.1")),
            ("10.3.0.0/16", None),
            ("fd00:2::/32", Some("fd00:1::1")),
            ("fd00:3::/32", None),
        ];
        expect(&sources(&carried, &owned), &expected);
        expect(&sources(&carried, &["192.0.2.1", "10.11.0.1"]), &[("10.2.0.0/16", None)]);
    }

    #[test]
    fn of_several_ranges_the_narrowest_that_has_an_address_counts() {
        let carried = [(ONE, "10.2.0.0/16"), ("10.1.7.0-10.1.7.255", "10.2.0.0/16"), (TWO, "10.2.0.0/16")];
        for (owned, source) in [
            (&["10.1.0.1", "10.1.7.1", "10.11.0.1"][..], "10.1.7.1"),
            (&["10.1.0.1", "10.11.0.1"], "10.1.0.1"),
            (&["10.11.0.1", "10.1.0.1"], "10.1.0.1"),
            (&["10.11.0.2", "10.11.0.1"], "10.11.0.2"),
        ] {
            expect(&sources(&carried, owned), &[("10.2.0.0/16", Some(source))]);
        }
        let road = [("10.3.0.1", "0.0.0.0/0"), (ONE, "0.0.0.0/0")];
        expect(&sources(&road, &["10.1.0.1", "10.3.0.1"]), &[("0.0.0.0/0", Some("10.3.0.1"))]);
    }

    /// What a narrower policy does not take a wider one does.
    #[test]
    fn nested_prefixes_have_their_own_and_else_that_of_the_closest_around() {
        let carried = [(ONE, "10.0.0.0/8"), (TWO, "10.2.0.0/16")];
        let inside = [("10.0.0.0/8", Some("10.1.0.1")), ("10.2.0.0/16", Some("10.11.0.1"))];
        let both = sources(&carried, &["10.1.0.1", "10.11.0.1"]);
        expect(&both, &inside);
        expect(&both, &[("10.2.3.0/24", Some("10.11.0.1")), ("10.9.0.0/16", Some("10.1.0.1"))]);
        let one = sources(&carried, &["10.1.0.1"]);
        expect(&one, &[("10.2.0.0/16", Some("10.1.0.1"))]);
        let two = sources(&carried, &["10.11.0.1"]);
        expect(&two, &[("10.2.0.0/16", Some("10.11.0.1")), ("10.0.0.0/8", None)]);
    }

    #[test]
    fn addresses_and_policies_that_come_and_go_are_followed() {
        let mut sources = sources(&[(ONE, "10.2.0.0/16")], &[]);
        expect(&sources, &[("10.2.0.0/16", None)]);
        let owned = [addr("10.1.0.1"), addr("10.11.0.1")];
        sources.follow(&owned);
        expect(&sources, &[("10.2.0.0/16", Some("10.1.0.1"))]);
        let to = prefix("10.2.0.0/16");
        let change = |range, is_there| SenderDifference { prefix: to, range, is_there };
        assert!(!sources.apply(&change(range(TWO), true), &owned), "the same source");
        assert!(sources.apply(&change(range(ONE), false), &owned));
        expect(&sources, &[("10.2.0.0/16", Some("10.11.0.1"))]);
        sources.follow(&[]);
        assert!(!sources.apply(&change(range(TWO), false), &[]));
        assert_eq!(sources, Sources::default());
    }
}
