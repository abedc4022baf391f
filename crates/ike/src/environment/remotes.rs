//! An index of connections by their peers' addresses: it finds the connections that may match a
//! request, however many are loaded.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use testudo_ipsec::selector::AddrRange;

/// Names of connections, by `remote_addrs`.
#[derive(Debug, Default)]
pub(crate) struct Remotes {
    /// By prefix; a single address is the longest prefix. A search looks once for each existing
    /// length.
    prefixes: BTreeMap<Prefix, BTreeSet<String>>,
    /// Number of entries of `prefixes` with this length.
    lengths: BTreeMap<(Family, u8), usize>,
    /// Connections that any address matches, or with a range that is no prefix.
    others: BTreeSet<String>,
    /// By single address: names, not a count, so that a second removal changes nothing.
    singles: BTreeMap<IpAddr, BTreeSet<String>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Family {
    V4,
    V6,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Prefix {
    family: Family,
    /// Prefix length, of 32 or 128 bits.
    length: u8,
    first: u128,
}

impl Remotes {
    pub(crate) fn add(&mut self, name: &str, addrs: &[AddrRange]) {
        for addr in singles(addrs) {
            self.singles.entry(addr).or_default().insert(name.to_owned());
        }
        let Some(prefixes) = all_prefixes(addrs) else {
            self.others.insert(name.to_owned());
            return;
        };
        for prefix in prefixes {
            let names = self.prefixes.entry(prefix).or_default();
            if names.is_empty() {
                *self.lengths.entry((prefix.family, prefix.length)).or_default() += 1;
            }
            names.insert(name.to_owned());
        }
    }

    /// Removes what [`Self::add`] has added; does nothing if it is removed already.
    pub(crate) fn remove(&mut self, name: &str, addrs: &[AddrRange]) {
        for addr in singles(addrs) {
            let Some(names) = self.singles.get_mut(&addr) else { continue };
            names.remove(name);
            if names.is_empty() {
                self.singles.remove(&addr);
            }
        }
        let Some(prefixes) = all_prefixes(addrs) else {
            self.others.remove(name);
            return;
        };
        for prefix in prefixes {
            let Some(names) = self.prefixes.get_mut(&prefix) else { continue };
            names.remove(name);
            if names.is_empty() {
                self.prefixes.remove(&prefix);
                self.forget(prefix);
            }
        }
    }

    fn forget(&mut self, prefix: Prefix) {
        let length = (prefix.family, prefix.length);
        if let Some(count) = self.lengths.get_mut(&length) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.lengths.remove(&length);
            }
        }
    }

    /// Number of connections that name exactly this address.
    pub(crate) fn naming(&self, addr: IpAddr) -> usize {
        self.singles.get(&addr).map_or(0, BTreeSet::len)
    }

    /// All connections that may match a peer at this address, in the order of names.
    pub(crate) fn with(&self, addr: IpAddr) -> BTreeSet<&str> {
        let (family, bits) = of(addr);
        let lengths = self.lengths.range((family, 0)..=(family, u8::MAX));
        let prefixes = lengths.map(|((_, length), _)| Prefix {
            family,
            length: *length,
            first: bits & !host_bits(family, *length),
        });
        let named = prefixes.filter_map(|prefix| self.prefixes.get(&prefix)).flatten();
        named.chain(&self.others).map(String::as_str).collect()
    }
}

/// The single addresses among the ranges, each once.
fn singles(addrs: &[AddrRange]) -> BTreeSet<IpAddr> {
    addrs.iter().filter(|range| range.start() == range.end()).map(AddrRange::start).collect()
}

/// The ranges as prefixes; `None` if there is none, or one is no prefix.
fn all_prefixes(addrs: &[AddrRange]) -> Option<Vec<Prefix>> {
    let prefixes: Option<Vec<Prefix>> = addrs.iter().map(prefix).collect();
    prefixes.filter(|prefixes| !prefixes.is_empty())
}

fn prefix(range: &AddrRange) -> Option<Prefix> {
    let ((family, first), (_, last)) = (of(range.start()), of(range.end()));
    let host = first ^ last;
    let length = width(family).checked_sub(u8::try_from(u128::BITS - host.leading_zeros()).ok()?)?;
    let is_prefix = host == host_bits(family, length) && first & host == 0;
    is_prefix.then_some(Prefix { family, length, first })
}

fn host_bits(family: Family, length: u8) -> u128 {
    let bits = u32::from(width(family).saturating_sub(length));
    u128::MAX.checked_shr(u128::BITS - bits).unwrap_or_default()
}

fn width(family: Family) -> u8 {
    match family {
        Family::V4 => 32,
        Family::V6 => 128,
    }
}

fn of(addr: IpAddr) -> (Family, u128) {
    match addr {
        IpAddr::V4(v4) => (Family::V4, v4.to_bits().into()),
        IpAddr::V6(v6) => (Family::V6, v6.to_bits()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn addr() -> impl Strategy<Value = IpAddr> {
        // Few enough that ranges meet addresses, at both ends of the space.
        prop_oneof![
            (0_u32..64).prop_map(|low| IpAddr::V4((0xC000_0200 | low).into())),
            prop_oneof![Just(0), Just(u32::MAX)].prop_map(|bits: u32| IpAddr::V4(bits.into())),
            (0_u128..64).prop_map(|low| IpAddr::V6((0x2001_0db8 << 96 | low).into())),
            prop_oneof![Just(0), Just(u128::MAX)].prop_map(|bits: u128| IpAddr::V6(bits.into())),
        ]
    }

    fn range() -> impl Strategy<Value = AddrRange> {
        let single = addr().prop_filter_map("no range", |addr| AddrRange::new(addr, addr));
        let any = (addr(), addr()).prop_filter_map("no range", |(start, end)| AddrRange::new(start, end));
        let prefix = (0_u32..64, 0_u32..=6).prop_filter_map("no range", |(low, bits)| {
            let (start, host) = (0xC000_0200 | low, (1 << bits) - 1);
            AddrRange::new(IpAddr::V4((start & !host).into()), IpAddr::V4((start | host).into()))
        });
        prop_oneof![single, any, prefix]
    }

    proptest! {
        /// Compared with a walk through all connections.
        #[test]
        fn whoever_may_fit_is_found(
            loaded in proptest::collection::vec(proptest::collection::vec(range(), 0..3), 1..12),
            gone in proptest::collection::vec(any::<prop::sample::Index>(), 0..6),
            peer in addr(),
        ) {
            let mut remotes = Remotes::default();
            let mut model: BTreeMap<String, &[AddrRange]> = BTreeMap::new();
            for (number, addrs) in loaded.iter().enumerate() {
                remotes.add(&number.to_string(), addrs);
                model.insert(number.to_string(), addrs);
            }
            for index in gone {
                let number = index.index(loaded.len());
                remotes.remove(&number.to_string(), &loaded[number]);
                model.remove(&number.to_string());
            }
            let found = remotes.with(peer);
            for (name, addrs) in &model {
                if addrs.is_empty() || addrs.iter().any(|range| range.contains(peer)) {
                    prop_assert!(found.contains(name.as_str()), "{name} is missing in {found:?}");
                }
            }
            prop_assert!(found.iter().all(|name| model.contains_key(*name)), "{found:?} holds one that is gone");
            if model.is_empty() {
                prop_assert!(remotes.prefixes.is_empty() && remotes.lengths.is_empty());
                prop_assert!(remotes.singles.is_empty() && remotes.others.is_empty());
            }
            let is_peer = |range: &AddrRange| (range.start(), range.end()) == (peer, peer);
            let naming = model.values().filter(|addrs| addrs.iter().any(is_peer)).count();
            prop_assert_eq!(remotes.naming(peer), naming);
        }
    }

    /// Both name the address; removing one, however often, leaves the other counted.
    #[test]
    fn a_second_removal_changes_nothing() {
        let addr = IpAddr::V4(0.into());
        let single = AddrRange::new(addr, addr).unwrap();
        let mut remotes = Remotes::default();
        remotes.add("a", &[single]);
        remotes.add("b", &[single]);
        remotes.remove("a", &[single]);
        remotes.remove("a", &[single]);
        assert_eq!(remotes.naming(addr), 1);
    }

    #[test]
    fn the_peers_of_others_are_not_looked_at() {
        let single = |last: u32| {
            let addr = IpAddr::V4((0x0A00_0000 | last).into());
            AddrRange::new(addr, addr).unwrap()
        };
        let mut remotes = Remotes::default();
        for number in 0..10_000 {
            remotes.add(&number.to_string(), &[single(number)]);
        }
        assert_eq!(remotes.with("10.0.4.1".parse().unwrap()), BTreeSet::from(["1025"]));
        assert!(remotes.with("192.0.2.1".parse().unwrap()).is_empty());
        assert_eq!(remotes.lengths.len(), 1);
    }
}
