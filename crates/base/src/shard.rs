//! Sets of shards.

use crate::spi::Shard;
use serde::{Deserialize, Serialize};

/// How many shards there are.
pub const SHARDS: usize = 256;

/// A set of shards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ShardSet([u64; SHARDS / 64]);

impl ShardSet {
    /// The empty set.
    pub const EMPTY: Self = Self([0; SHARDS / 64]);
    /// Every shard.
    pub const ALL: Self = Self([u64::MAX; SHARDS / 64]);

    /// True if the shard is in the set.
    #[inline]
    #[cfg_attr(not(test), expect(clippy::indexing_slicing, reason = "a shard is below 256"))]
    pub fn contains(&self, shard: Shard) -> bool {
        self.0[usize::from(shard.0) / 64] >> (shard.0 % 64) & 1 == 1
    }

    /// Adds a shard.
    #[cfg_attr(not(test), expect(clippy::indexing_slicing, reason = "a shard is below 256"))]
    pub fn insert(&mut self, shard: Shard) {
        self.0[usize::from(shard.0) / 64] |= 1 << (shard.0 % 64);
    }

    /// Removes a shard.
    #[cfg_attr(not(test), expect(clippy::indexing_slicing, reason = "a shard is below 256"))]
    pub fn remove(&mut self, shard: Shard) {
        self.0[usize::from(shard.0) / 64] &= !(1 << (shard.0 % 64));
    }

    /// The shards of either set.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        self.zip(other, |a, b| a | b)
    }

    /// The shards that `other` lacks.
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        self.zip(other, |a, b| a & !b)
    }

    /// The shards of both sets.
    #[must_use]
    pub fn intersection(self, other: Self) -> Self {
        self.zip(other, |a, b| a & b)
    }

    /// Number of shards.
    pub fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// True if the set is empty.
    pub fn is_empty(&self) -> bool {
        *self == Self::EMPTY
    }

    /// The shards in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = Shard> + '_ {
        (0..=u8::MAX).map(Shard).filter(|shard| self.contains(*shard))
    }

    /// One of these shards, chosen by a hash: each for about as many hashes. `None` if there are
    /// none.
    pub fn pick(&self, hash: Shard) -> Option<Shard> {
        self.iter().nth(usize::from(hash.0) * self.len() / SHARDS)
    }

    /// The set from its words ([`Self::words`]).
    pub fn from_words(words: [u64; SHARDS / 64]) -> Self {
        Self(words)
    }

    /// The set as words of 64 bits, shard 0 first.
    pub fn words(&self) -> &[u64; SHARDS / 64] {
        &self.0
    }

    fn zip(self, other: Self, op: impl Fn(u64, u64) -> u64) -> Self {
        let mut words = self.0;
        words.iter_mut().zip(other.0).for_each(|(word, other)| *word = op(*word, other));
        Self(words)
    }
}

impl FromIterator<Shard> for ShardSet {
    fn from_iter<I: IntoIterator<Item = Shard>>(shards: I) -> Self {
        let mut set = Self::EMPTY;
        shards.into_iter().for_each(|shard| set.insert(shard));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_what_was_put_into_it() {
        let mut set: ShardSet = [0, 63, 64, 255].map(Shard).into_iter().collect();
        set.insert(Shard(7));
        set.remove(Shard(63));
        assert_eq!(set.iter().map(|shard| shard.0).collect::<Vec<_>>(), [0, 7, 64, 255]);
        assert_eq!((set.len(), ShardSet::ALL.without(set).len()), (4, 252));
        assert_eq!(ShardSet::ALL.without(set).union(set), ShardSet::ALL);
        let other: ShardSet = [7, 8, 255].map(Shard).into_iter().collect();
        assert_eq!(set.intersection(other), [7, 255].map(Shard).into_iter().collect());
    }

    #[test]
    fn a_hash_picks_each_shard_about_as_often() {
        let set: ShardSet = [3, 70, 255].map(Shard).into_iter().collect();
        let picked = |shard| (0..=255).filter(|hash| set.pick(Shard(*hash)) == Some(Shard(shard))).count();
        assert_eq!([3, 70, 255].map(picked), [86, 85, 85]);
        assert_eq!(ShardSet::ALL.pick(Shard(17)), Some(Shard(17)));
        assert_eq!(ShardSet::EMPTY.pick(Shard(0)), None);
    }

    #[test]
    fn each_shard_has_its_bit() {
        let of = |words| ShardSet::from_words(words).iter().map(|shard| shard.0).collect::<Vec<_>>();
        assert_eq!(of([1, 1 << 63, 0, 3 << 62]), [0, 127, 254, 255]);
        assert!(of([0; 4]).is_empty());
        assert!((0..=255).all(|shard| ShardSet::ALL.contains(Shard(shard))));
    }
}
