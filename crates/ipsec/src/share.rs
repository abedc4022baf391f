//! Sets of shares.

use crate::spi::Share;
use serde::{Deserialize, Serialize};

/// How many shares there are.
pub const SHARES: usize = 256;

/// Some of the shares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ShareSet([u64; SHARES / 64]);

impl ShareSet {
    /// None.
    pub const EMPTY: Self = Self([0; SHARES / 64]);
    /// Every share.
    pub const ALL: Self = Self([u64::MAX; SHARES / 64]);

    /// True if the share is one of them.
    #[inline]
    pub fn contains(&self, share: Share) -> bool {
        self.0[usize::from(share.0) / 64] >> (share.0 % 64) & 1 == 1
    }

    /// Adds a share.
    pub fn insert(&mut self, share: Share) {
        self.0[usize::from(share.0) / 64] |= 1 << (share.0 % 64);
    }

    /// Takes a share away.
    pub fn remove(&mut self, share: Share) {
        self.0[usize::from(share.0) / 64] &= !(1 << (share.0 % 64));
    }

    /// Those of either.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        self.zip(other, |a, b| a | b)
    }

    /// Those that `other` lacks.
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        self.zip(other, |a, b| a & !b)
    }

    /// Those of both.
    #[must_use]
    pub fn intersection(self, other: Self) -> Self {
        self.zip(other, |a, b| a & b)
    }

    /// How many they are.
    pub fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        *self == Self::EMPTY
    }

    /// In ascending order.
    pub fn iter(&self) -> impl Iterator<Item = Share> + '_ {
        (0..=u8::MAX).map(Share).filter(|share| self.contains(*share))
    }

    /// What [`Self::words`] gave.
    pub fn from_words(words: [u64; SHARES / 64]) -> Self {
        Self(words)
    }

    /// As words of 64 bits, share 0 first.
    pub fn words(&self) -> &[u64; SHARES / 64] {
        &self.0
    }

    fn zip(self, other: Self, op: impl Fn(u64, u64) -> u64) -> Self {
        let mut words = self.0;
        words.iter_mut().zip(other.0).for_each(|(word, other)| *word = op(*word, other));
        Self(words)
    }
}

impl FromIterator<Share> for ShareSet {
    fn from_iter<I: IntoIterator<Item = Share>>(shares: I) -> Self {
        let mut set = Self::EMPTY;
        shares.into_iter().for_each(|share| set.insert(share));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_what_was_put_into_it() {
        let mut set: ShareSet = [0, 63, 64, 255].map(Share).into_iter().collect();
        set.insert(Share(7));
        set.remove(Share(63));
        assert_eq!(set.iter().map(|share| share.0).collect::<Vec<_>>(), [0, 7, 64, 255]);
        assert_eq!((set.len(), ShareSet::ALL.without(set).len()), (4, 252));
        assert_eq!(ShareSet::ALL.without(set).union(set), ShareSet::ALL);
        let other: ShareSet = [7, 8, 255].map(Share).into_iter().collect();
        assert_eq!(set.intersection(other), [7, 255].map(Share).into_iter().collect());
    }

    #[test]
    fn each_share_has_its_bit() {
        let of = |words| ShareSet::from_words(words).iter().map(|share| share.0).collect::<Vec<_>>();
        assert_eq!(of([1, 1 << 63, 0, 3 << 62]), [0, 127, 254, 255]);
        assert!(of([0; 4]).is_empty());
        assert!((0..=255).all(|share| ShareSet::ALL.contains(Share(share))));
    }
}
