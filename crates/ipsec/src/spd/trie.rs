//! A trie of address prefixes whose copies share all equal parts: a change costs a few nodes,
//! however large the trie is, and readers of the former version are not disturbed.

use std::sync::Arc;

/// Addresses with equal leading bits. IPv4 addresses are in the leftmost 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TriePrefix {
    /// As octets, which need no alignment: there are two prefixes for each tunnel.
    bits: [u8; 16],
    length: u8,
}

impl TriePrefix {
    /// The longest prefix that covers both addresses.
    pub(super) fn around(first: u128, last: u128) -> Self {
        Self::new(first, (first ^ last).leading_zeros())
    }

    /// The first `length` bits of an address.
    fn new(addr: u128, length: u32) -> Self {
        Self { bits: (addr & mask(length)).to_ne_bytes(), length: length as u8 }
    }

    fn bits(self) -> u128 {
        u128::from_ne_bytes(self.bits)
    }

    /// Number of equal bits.
    pub(super) fn length(self) -> u32 {
        self.length.into()
    }

    fn contains(self, addr: u128) -> bool {
        (self.bits() ^ addr) & mask(self.length()) == 0
    }

    /// Number of leading bits that both have in common.
    fn common(self, other: Self) -> u32 {
        (self.bits() ^ other.bits()).leading_zeros().min(self.length()).min(other.length())
    }
}

fn mask(length: u32) -> u128 {
    u128::MAX.checked_shl(u128::BITS - length).unwrap_or(0)
}

/// The branch of an address behind this many bits.
fn branch(bits: u128, length: u32) -> usize {
    (bits.checked_shl(length).unwrap_or(0) >> 127) as usize
}

/// Lists by prefix. A clone costs nothing: it shares its nodes until they change.
#[derive(Clone, Debug)]
pub(super) struct Trie<T> {
    root: NodeLink<T>,
}

type NodeLink<T> = Option<Arc<Node<T>>>;

/// A node. One without a list stands at a fork.
#[derive(Clone, Debug)]
struct Node<T> {
    prefix: TriePrefix,
    list: ValueList<T>,
    ways: [NodeLink<T>; 2],
}

/// Usually one entry, which needs no memory of its own.
#[derive(Clone, Debug)]
enum ValueList<T> {
    Empty,
    One(T),
    Several(Vec<T>),
}

impl<T> ValueList<T> {
    fn as_slice(&self) -> &[T] {
        match self {
            Self::Empty => &[],
            Self::One(entry) => std::slice::from_ref(entry),
            Self::Several(entries) => entries,
        }
    }

    fn change<R>(&mut self, change: impl FnOnce(&mut Vec<T>) -> R) -> R {
        let mut entries = match std::mem::replace(self, Self::Empty) {
            Self::Empty => Vec::new(),
            Self::One(entry) => vec![entry],
            Self::Several(entries) => entries,
        };
        let result = change(&mut entries);
        if entries.len() > 1 {
            *self = Self::Several(entries);
        } else if let Some(entry) = entries.pop() {
            *self = Self::One(entry);
        }
        result
    }
}

impl<T> Default for Trie<T> {
    fn default() -> Self {
        Self { root: None }
    }
}

impl<T: Clone> Trie<T> {
    /// Changes the list of a prefix, which is empty if there was none.
    pub(super) fn change<R>(&mut self, prefix: TriePrefix, change: impl FnOnce(&mut Vec<T>) -> R) -> R {
        change_at(&mut self.root, prefix, change)
    }

    /// The list of a prefix.
    pub(super) fn list(&self, prefix: TriePrefix) -> &[T] {
        let mut at = self.root.as_deref();
        while let Some(node) = at.filter(|node| node.prefix.common(prefix) == node.prefix.length()) {
            if node.prefix.length() == prefix.length() {
                return node.list.as_slice();
            }
            let way = node.ways.get(branch(prefix.bits(), node.prefix.length()));
            at = way.and_then(Option::as_deref);
        }
        &[]
    }

    /// The lists of all prefixes that cover the address, the shortest prefix first.
    pub(super) fn lists(&self, addr: u128) -> impl Iterator<Item = &[T]> {
        let mut at = self.root.as_deref();
        std::iter::from_fn(move || {
            let node = at.filter(|node| node.prefix.contains(addr))?;
            at = node.ways.get(branch(addr, node.prefix.length())).and_then(Option::as_deref);
            Some(node.list.as_slice())
        })
    }

    /// Bound on the entries that a look-up has to compare.
    #[cfg(test)]
    pub(super) fn longest_walk(&self) -> usize {
        fn below<T>(link: &NodeLink<T>) -> usize {
            link.as_deref().map_or(0, |node| {
                node.list.as_slice().len() + node.ways.iter().map(below).max().unwrap_or_default()
            })
        }
        below(&self.root)
    }
}

/// Recurses no deeper than an address has bits.
fn change_at<T: Clone, R>(
    link: &mut NodeLink<T>,
    prefix: TriePrefix,
    change: impl FnOnce(&mut Vec<T>) -> R,
) -> R {
    let common = link.as_deref().map(|node| node.prefix.common(prefix));
    let result = match (link.as_mut(), common) {
        (Some(node), Some(common)) if common == node.prefix.length() => {
            let node = Arc::make_mut(node);
            match node.ways.get_mut(branch(prefix.bits(), common)) {
                Some(way) if common < prefix.length() => change_at(way, prefix, change),
                _ => node.list.change(change),
            }
        }
        (Some(_), Some(common)) => {
            // It ends before this node, or they part here.
            let length = common;
            let parting = TriePrefix::new(prefix.bits(), length);
            let mut ways = [None, None];
            let below = link.take();
            let bits = below.as_deref().map_or(0, |node| node.prefix.bits());
            if let Some(way) = ways.get_mut(branch(bits, length)) {
                *way = below;
            }
            let mut node = Node { prefix: parting, list: ValueList::Empty, ways };
            let result = match node.ways.get_mut(branch(prefix.bits(), length)) {
                Some(way) if length < prefix.length() => change_at(way, prefix, change),
                _ => node.list.change(change),
            };
            *link = Some(Arc::new(node));
            result
        }
        _ => {
            let mut node = Node { prefix, list: ValueList::Empty, ways: [None, None] };
            let result = node.list.change(change);
            *link = Some(Arc::new(node));
            result
        }
    };
    prune(link);
    result
}

/// Removes a node that has neither a list nor two branches.
fn prune<T>(link: &mut NodeLink<T>) {
    let Some(node) = link.as_deref() else { return };
    if node.list.as_slice().is_empty()
        && let [one, other] = &node.ways
        && (one.is_none() || other.is_none())
    {
        let only = one.as_ref().or(other.as_ref()).cloned();
        *link = only;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// Few bits at both ends, so that prefixes nest and part everywhere.
    fn arb_prefix() -> impl Strategy<Value = TriePrefix> {
        let bits = (0u128..16, 0u128..4).prop_map(|(high, low)| high << 124 | low);
        let length = prop::sample::select(vec![0, 1, 2, 3, 4, 60, 126, 127, 128]);
        (bits, length).prop_map(|(bits, length)| TriePrefix::new(bits, length))
    }

    proptest! {
        #[test]
        fn finds_what_a_list_finds_and_former_copies_stay(
            steps in prop::collection::vec((arb_prefix(), any::<bool>(), 0u8..3), 1..60)
        ) {
            let (mut trie, mut model) = (Trie::default(), BTreeMap::<(u8, [u8; 16]), Vec<u8>>::new());
            let mut former = Vec::new();
            for (prefix, add, value) in steps {
                former.push((trie.clone(), model.clone()));
                let edit = |list: &mut Vec<u8>| if add { list.push(value) } else { list.retain(|v| *v != value) };
                trie.change(prefix, edit);
                let list = model.entry((prefix.length, prefix.bits)).or_default();
                edit(list);
                if list.is_empty() {
                    model.remove(&(prefix.length, prefix.bits));
                }
            }
            former.push((trie, model));
            for (trie, model) in &former {
                prop_assert_eq!(trie.root.is_none(), model.is_empty());
                for (high, low) in (0u128..16).flat_map(|high| (0u128..4).map(move |low| (high, low))) {
                    let addr = high << 124 | low;
                    let found: Vec<&[u8]> = trie.lists(addr).filter(|list| !list.is_empty()).collect();
                    let holds = |(length, bits): &(u8, [u8; 16])| TriePrefix { bits: *bits, length: *length }.contains(addr);
                    let expected: Vec<&[u8]> =
                        model.iter().filter(|(key, _)| holds(key)).map(|(_, list)| list.as_slice()).collect();
                    prop_assert_eq!(found, expected);
                }
            }
        }
    }

    #[test]
    fn a_change_copies_a_path_and_no_more() {
        let mut trie = Trie::default();
        for n in 0..10_000u128 {
            trie.change(TriePrefix::around(n << 96, n << 96 | ((1 << 96) - 1)), |list| list.push(n));
        }
        let former = trie.clone();
        trie.change(TriePrefix::around(77 << 96, 77 << 96 | ((1 << 96) - 1)), Vec::clear);
        fn nodes<T>(link: &NodeLink<T>, into: &mut Vec<*const Node<T>>) {
            if let Some(node) = link {
                into.push(Arc::as_ptr(node));
                node.ways.iter().for_each(|way| nodes(way, into));
            }
        }
        let (mut before, mut after) = (Vec::new(), Vec::new());
        nodes(&former.root, &mut before);
        nodes(&trie.root, &mut after);
        let before: std::collections::BTreeSet<_> = before.into_iter().collect();
        let copied = after.iter().filter(|node| !before.contains(*node)).count();
        assert!(copied <= 16, "{copied} nodes of {}", after.len());
    }
}
