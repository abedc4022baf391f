//! Maps from prefixes to values that find the prefixes around a prefix and inside it without a walk
//! through all.

use crate::prefix::{last_address, widest_at};
use std::collections::BTreeMap;
use std::ops::Deref;
use testudo_base::prefix::Prefix;
use testudo_ipsec::selector::AddrRange;

/// Maps prefixes to values. It is read as the `BTreeMap` inside, and changed by its own methods
/// alone.
#[derive(Clone, Debug)]
pub(crate) struct PrefixMap<V> {
    /// In its order, the prefixes inside a prefix follow that prefix.
    map: BTreeMap<Prefix, V>,
    /// How many prefixes there are of each family (true: IPv6) and length. As a rule there are few
    /// lengths.
    lengths: BTreeMap<(bool, u8), usize>,
}

/// Prefixes and nothing else.
pub(crate) type PrefixSet = PrefixMap<()>;

impl<V> Default for PrefixMap<V> {
    fn default() -> Self {
        Self { map: BTreeMap::new(), lengths: BTreeMap::new() }
    }
}

impl<V: PartialEq> PartialEq for PrefixMap<V> {
    fn eq(&self, other: &Self) -> bool {
        self.map == other.map
    }
}

impl<V: Eq> Eq for PrefixMap<V> {}

impl<V> Deref for PrefixMap<V> {
    type Target = BTreeMap<Prefix, V>;

    fn deref(&self) -> &Self::Target {
        &self.map
    }
}

impl<V> PrefixMap<V> {
    /// Sets the value of a prefix, and gives the former one.
    pub(crate) fn insert(&mut self, prefix: Prefix, value: V) -> Option<V> {
        let former = self.map.insert(prefix, value);
        if former.is_none() {
            *self.lengths.entry(length(&prefix)).or_default() += 1;
        }
        former
    }

    /// Takes a prefix out.
    pub(crate) fn remove(&mut self, prefix: &Prefix) -> Option<V> {
        let former = self.map.remove(prefix)?;
        if let Some(count) = self.lengths.get_mut(&length(prefix)) {
            *count -= 1;
            if *count == 0 {
                self.lengths.remove(&length(prefix));
            }
        }
        Some(former)
    }

    /// The value of a prefix, to be changed.
    pub(crate) fn get_mut(&mut self, prefix: &Prefix) -> Option<&mut V> {
        self.map.get_mut(prefix)
    }

    /// The prefixes that hold all of this one, itself included, the widest first.
    pub(crate) fn around<'a>(
        &'a self,
        prefix: &Prefix,
    ) -> impl DoubleEndedIterator<Item = (&'a Prefix, &'a V)> + use<'a, V> {
        let (addr, (v6, longest)) = (prefix.addr(), length(prefix));
        let lengths = self.lengths.range((v6, 0)..=(v6, longest)).map(|((_, length), _)| *length);
        lengths.filter_map(move |length| {
            meter::visit();
            self.map.get_key_value(&Prefix::new(addr, length)?)
        })
    }

    /// The prefixes that lie in this one, itself included.
    pub(crate) fn inside<'a>(
        &'a self,
        prefix: &Prefix,
    ) -> impl Iterator<Item = (&'a Prefix, &'a V)> + use<'a, V> {
        let last = Prefix::host(last_address(prefix));
        self.map.range(*prefix..=last).inspect(|_| meter::visit())
    }

    /// The prefixes that share an address with this one.
    pub(crate) fn meeting<'a>(
        &'a self,
        prefix: &Prefix,
    ) -> impl Iterator<Item = (&'a Prefix, &'a V)> + use<'a, V> {
        let length = prefix.length();
        let wider = self.around(prefix).filter(move |(found, _)| found.length() < length);
        wider.chain(self.inside(prefix))
    }

    /// The prefixes that share an address with a range.
    pub(crate) fn meeting_range<'a>(
        &'a self,
        range: &AddrRange,
    ) -> impl Iterator<Item = (&'a Prefix, &'a V)> + use<'a, V> {
        let (start, end) = (range.start(), range.end());
        let (first, last) = (widest_at(start), Prefix::host(end));
        let begin_before = self.around(&Prefix::host(start)).filter(move |(found, _)| found.addr() != start);
        begin_before.chain(self.map.range(first..=last).inspect(|_| meter::visit()))
    }

    /// True if one of the prefixes holds all of this one.
    pub(crate) fn covers(&self, prefix: &Prefix) -> bool {
        self.around(prefix).next().is_some()
    }

    /// The value of the longest prefix that holds all of this one.
    pub(crate) fn longest(&self, prefix: &Prefix) -> Option<&V> {
        self.around(prefix).next_back().map(|(_, value)| value)
    }
}

fn length(prefix: &Prefix) -> (bool, u8) {
    (!prefix.is_ipv4(), prefix.length())
}

impl<V> FromIterator<(Prefix, V)> for PrefixMap<V> {
    fn from_iter<I: IntoIterator<Item = (Prefix, V)>>(entries: I) -> Self {
        let mut map = Self::default();
        for (prefix, value) in entries {
            map.insert(prefix, value);
        }
        map
    }
}

impl FromIterator<Prefix> for PrefixSet {
    fn from_iter<I: IntoIterator<Item = Prefix>>(prefixes: I) -> Self {
        prefixes.into_iter().map(|prefix| (prefix, ())).collect()
    }
}

impl<V, const N: usize> From<[(Prefix, V); N]> for PrefixMap<V> {
    fn from(entries: [(Prefix, V); N]) -> Self {
        entries.into_iter().collect()
    }
}

impl<const N: usize> From<[Prefix; N]> for PrefixSet {
    fn from(prefixes: [Prefix; N]) -> Self {
        prefixes.into_iter().collect()
    }
}

/// Counts the entries that are looked at: tests prove that the count does not grow with the map.
pub(crate) mod meter {
    #[cfg(test)]
    thread_local!(static VISITED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) });

    /// An entry is looked at.
    #[cfg(not(test))]
    pub(crate) fn visit() {}

    /// An entry is looked at.
    #[cfg(test)]
    pub(crate) fn visit() {
        VISITED.set(VISITED.get() + 1);
    }

    /// Entries looked at since the last call.
    #[cfg(test)]
    pub(crate) fn take() -> usize {
        VISITED.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn prefix(text: &str) -> Prefix {
        text.parse().expect(text)
    }

    /// Nested prefixes in a small space at the end of a family, and the whole other one.
    pub(crate) fn arb_prefix() -> impl Strategy<Value = Prefix> {
        let v4 = (240u8..=255, prop::sample::select(vec![0, 8, 27, 28, 29, 30, 31, 32]))
            .prop_map(|(host, len)| Prefix::new([255, 255, 255, host].into(), len).expect("at most 32"));
        prop_oneof![9 => v4, 1 => Just(prefix("::/0"))]
    }

    proptest! {
        #[test]
        fn finds_what_a_walk_finds(
            steps in prop::collection::vec((arb_prefix(), any::<bool>()), 0..30),
            asked in arb_prefix(),
            ends in (235u8..=255, 235u8..=255),
        ) {
            let mut set = PrefixSet::default();
            for (prefix, add) in steps {
                if add { set.insert(prefix, ()); } else { set.remove(&prefix); }
            }
            let is = |found: Vec<&Prefix>, expected: &dyn Fn(&Prefix) -> bool| {
                let mut found: Vec<Prefix> = found.into_iter().copied().collect();
                found.sort();
                prop_assert_eq!(found, set.keys().filter(|p| expected(p)).copied().collect::<Vec<_>>());
                Ok(())
            };
            let covers = crate::prefix::covers;
            is(set.around(&asked).map(|(p, _)| p).collect(), &|p| covers(p, &asked))?;
            is(set.inside(&asked).map(|(p, _)| p).collect(), &|p| covers(&asked, p))?;
            is(set.meeting(&asked).map(|(p, _)| p).collect(), &|p| covers(&asked, p) || covers(p, &asked))?;
            let [start, end] = [ends.0.min(ends.1), ends.0.max(ends.1)].map(|host| [255, 255, 255, host].into());
            let range = AddrRange::new(start, end).expect("in order");
            is(set.meeting_range(&range).map(|(p, _)| p).collect(), &|p| {
                p.is_ipv4() && p.addr() <= end && last_address(p) >= start
            })?;
            let widest = set.around(&asked).map(|(p, _)| p.length()).collect::<Vec<_>>();
            prop_assert!(widest.is_sorted());
        }
    }
}
