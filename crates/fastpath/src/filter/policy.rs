//! Changes from one set of prefixes to another, at no moment of which a packet meets neither.

use super::layout::PrefixUse;
use std::collections::BTreeMap;
use testudo_base::prefix::Prefix;

/// What the filter does with the packets of each prefix.
pub type PrefixUses = BTreeMap<Prefix, PrefixUse>;

/// One change of a trie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PolicyStep {
    Set(Prefix, PrefixUse),
    Remove(Prefix),
}

/// The new use of some prefixes; `None` for one that is removed.
pub type PrefixChanges = BTreeMap<Prefix, Option<PrefixUse>>;

/// The changes from `old` to `new`.
pub(super) fn changes(old: &PrefixUses, new: &PrefixUses) -> PrefixChanges {
    let set = new.iter().filter(|(p, to)| old.get(p) != Some(to)).map(|(p, to)| (*p, Some(*to)));
    let removed = old.keys().filter(|p| !new.contains_key(p)).map(|p| (*p, None));
    set.chain(removed).collect()
}

/// Orders the changes so that after each step every address is treated as before the first step, or
/// as after the last.
///
/// An address has one longest match in each set. Longer prefixes are written first, so its new
/// match is in place before any shorter new prefix could hide the old one. Shorter ones are removed
/// first, so its old match is the last to go of those that could show through.
pub(super) fn in_order(changes: &PrefixChanges) -> Vec<PolicyStep> {
    let mut set: Vec<_> = changes.iter().filter_map(|(p, to)| Some(PolicyStep::Set(*p, (*to)?))).collect();
    set.sort_by_key(|step| std::cmp::Reverse(step.length()));
    let removed = changes.iter().filter(|(_, to)| to.is_none());
    let mut removed: Vec<_> = removed.map(|(p, _)| PolicyStep::Remove(*p)).collect();
    removed.sort_by_key(PolicyStep::length);
    set.into_iter().chain(removed).collect()
}

impl PolicyStep {
    fn length(&self) -> u8 {
        let (Self::Set(prefix, _) | Self::Remove(prefix)) = self;
        prefix.length()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::{IpAddr, Ipv4Addr};

    fn treatment(set: &PrefixUses, addr: IpAddr) -> PrefixUse {
        let holding = set.iter().filter(|(p, _)| p.contains(addr));
        holding.max_by_key(|(p, _)| p.length()).map(|(_, to)| *to).unwrap_or_default()
    }

    /// Nested prefixes in a small space: every address of 10.0.0.0/28 can be checked.
    fn arb_set() -> impl Strategy<Value = PrefixUses> {
        let entry =
            (0..16u8, 26..=32u8, any::<[bool; 4]>()).prop_map(|(host, len, [to, from, judge, open])| {
                let addr = IpAddr::from(Ipv4Addr::new(10, 0, 0, host));
                let prefix = Prefix::new(addr, len).expect("at most 32");
                (
                    prefix,
                    PrefixUse {
                        protect_to: to,
                        refuse_from: from,
                        judge_from: judge,
                        open_to_host: open,
                        ..PrefixUse::default()
                    },
                )
            });
        prop::collection::btree_map(entry.clone().prop_map(|(p, _)| p), entry.prop_map(|(_, u)| u), 0..10)
    }

    fn steps(old: &PrefixUses, new: &PrefixUses) -> Vec<PolicyStep> {
        in_order(&changes(old, new))
    }

    proptest! {
        #[test]
        fn every_address_is_always_treated_the_old_or_the_new_way(old in arb_set(), new in arb_set()) {
            let mut now = old.clone();
            for step in steps(&old, &new) {
                match step {
                    PolicyStep::Set(prefix, to) => now.insert(prefix, to),
                    PolicyStep::Remove(prefix) => now.remove(&prefix),
                };
                for host in 0..16 {
                    let addr = IpAddr::from(Ipv4Addr::new(10, 0, 0, host));
                    let (then, found, later) =
                        (treatment(&old, addr), treatment(&now, addr), treatment(&new, addr));
                    prop_assert!(found == then || found == later, "{addr} after {step:?}: {found:?}");
                }
            }
            prop_assert_eq!(now, new);
        }
    }

    #[test]
    fn nothing_changes_nothing() {
        let set = PrefixUses::from([("10.0.0.0/8".parse().unwrap(), PrefixUse::PROTECT)]);
        assert_eq!(steps(&set, &set), []);
    }
}
