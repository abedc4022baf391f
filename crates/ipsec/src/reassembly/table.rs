//! A bounded table whose entries are found by a keyed hash, and lists over its places. Each step
//! takes the same time however many entries there are, and whoever chose their keys. All memory is
//! allocated at the start.

use testudo_base::siphash::SipKey;

/// Index of an entry.
pub(super) type PlaceIndex = u16;

/// No place.
const NONE: PlaceIndex = PlaceIndex::MAX;

/// The neighbours of a place in its list.
#[derive(Clone, Copy, Debug)]
struct Links {
    before: PlaceIndex,
    behind: PlaceIndex,
}

/// Links for lists over the places of a table. Each place is in at most one list.
#[derive(Debug)]
pub(super) struct Chain(Vec<Links>);

/// One list: places in the order of their insertion.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlaceList {
    first: PlaceIndex,
    last: PlaceIndex,
}

impl PlaceList {
    pub(super) const EMPTY: Self = Self { first: NONE, last: NONE };

    /// The place that has been in the list for longest.
    pub(super) fn first(self) -> Option<PlaceIndex> {
        (self.first != NONE).then_some(self.first)
    }

    pub(super) fn push(&mut self, place: PlaceIndex, chain: &mut Chain) {
        chain.0[usize::from(place)] = Links { before: self.last, behind: NONE };
        match self.last {
            NONE => self.first = place,
            last => chain.0[usize::from(last)].behind = place,
        }
        self.last = place;
    }

    /// Removes a place that is in the list.
    pub(super) fn remove(&mut self, place: PlaceIndex, chain: &mut Chain) {
        let Links { before, behind } = chain.0[usize::from(place)];
        match before {
            NONE => self.first = behind,
            before => chain.0[usize::from(before)].behind = behind,
        }
        match behind {
            NONE => self.last = before,
            behind => chain.0[usize::from(behind)].before = before,
        }
    }

    fn places(self, chain: &Chain) -> impl Iterator<Item = PlaceIndex> {
        let behind =
            |place: &PlaceIndex| Some(chain.0[usize::from(*place)].behind).filter(|place| *place != NONE);
        std::iter::successors(self.first(), behind)
    }
}

impl Chain {
    pub(super) fn new(places: usize) -> Self {
        Self(vec![Links { before: NONE, behind: NONE }; places])
    }
}

/// A key of a table.
pub(super) trait TableKey: Copy + Eq {
    /// The hash. Nobody without its key can choose colliding keys.
    fn hash(&self, key: SipKey) -> u64;
}

/// A key and its hash, which costs more to compute than all the rest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hashed<K> {
    key: K,
    bucket: usize,
}

/// Keys by places and places by keys.
#[derive(Debug)]
pub(super) struct KeyTable<K> {
    hash: SipKey,
    keys: Vec<Option<Hashed<K>>>,
    free: Vec<PlaceIndex>,
    chain: Chain,
    buckets: Vec<PlaceList>,
}

impl<K: TableKey> KeyTable<K> {
    /// A table with room for `places` keys, at most 65535.
    pub(super) fn new(places: usize, hash: SipKey) -> Self {
        let places = places.min(NONE.into());
        Self {
            hash,
            keys: vec![None; places],
            free: (0..places as PlaceIndex).rev().collect(),
            chain: Chain::new(places),
            buckets: vec![PlaceList::EMPTY; places.next_power_of_two()],
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    pub(super) fn hashed(&self, key: K) -> Hashed<K> {
        Hashed { key, bucket: key.hash(self.hash) as usize & (self.buckets.len() - 1) }
    }

    pub(super) fn find(&self, wanted: &Hashed<K>) -> Option<PlaceIndex> {
        let mut places = self.buckets[wanted.bucket].places(&self.chain);
        places.find(|place| self.keys[usize::from(*place)].is_some_and(|found| found.key == wanted.key))
    }

    /// Inserts a key that is not in the table. `None` if there is no room.
    pub(super) fn insert(&mut self, key: Hashed<K>) -> Option<PlaceIndex> {
        let place = self.free.pop()?;
        self.keys[usize::from(place)] = Some(key);
        self.buckets[key.bucket].push(place, &mut self.chain);
        Some(place)
    }

    pub(super) fn remove(&mut self, place: PlaceIndex) {
        if let Some(Hashed { bucket, .. }) = self.keys[usize::from(place)].take() {
            self.buckets[bucket].remove(place, &mut self.chain);
            self.free.push(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    impl TableKey for u32 {
        // Many keys share a hash.
        fn hash(&self, _: SipKey) -> u64 {
            u64::from(*self) % 3
        }
    }

    proptest! {
        /// Compared with a plain list of keys, oldest first.
        #[test]
        fn it_finds_what_is_there_and_nothing_else(steps in proptest::collection::vec((0..12_u32, any::<bool>()), 0..200)) {
            let mut table = KeyTable::new(7, SipKey::new([5; 16]));
            let (mut list, mut chain) = (PlaceList::EMPTY, Chain::new(7));
            let mut model: Vec<(u32, PlaceIndex)> = Vec::new();
            for (key, add) in steps {
                let hashed = table.hashed(key);
                let known = model.iter().position(|(other, _)| *other == key);
                prop_assert_eq!(table.find(&hashed), known.map(|at| model[at].1));
                match (known, add) {
                    (None, true) => {
                        let place = table.insert(hashed);
                        prop_assert_eq!(place.is_none(), model.len() == 7);
                        if let Some(place) = place {
                            list.push(place, &mut chain);
                            model.push((key, place));
                        }
                    }
                    (Some(at), false) => {
                        let (_, place) = model.remove(at);
                        list.remove(place, &mut chain);
                        table.remove(place);
                    }
                    _ => {}
                }
                prop_assert_eq!(table.is_full(), model.len() == 7);
                let places: Vec<PlaceIndex> = model.iter().map(|(_, place)| *place).collect();
                prop_assert_eq!(list.places(&chain).collect::<Vec<_>>(), places);
            }
        }
    }
}
