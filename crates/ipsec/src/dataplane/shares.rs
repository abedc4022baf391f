//! Which shares of the tunnels this node carries.

use crate::spi::Share;
use testudo_planted::{Plant, planted};

/// Some of the 256 shares.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shares([u64; 4]);

impl Shares {
    /// Every one: the gateway stands alone.
    pub(super) const ALL: Self = Self([u64::MAX; 4]);

    /// From words of 64 bits, share 0 first.
    pub(super) fn new(words: [u64; 4]) -> Self {
        Self(words)
    }

    #[inline]
    pub(super) fn has(&self, share: Share) -> bool {
        let word = self.0[usize::from(share.0 >> 6)];
        word >> (share.0 & 63) & 1 != 0 || planted(Plant::ShareNotChecked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_share_has_its_bit() {
        let has = |words| (0..=255).filter(|share| Shares::new(words).has(Share(*share))).collect::<Vec<_>>();
        assert_eq!(has([1, 1 << 63, 0, 3 << 62]), [0, 127, 254, 255]);
        assert_eq!(has([0; 4]), []);
        assert!((0..=255).all(|share| Shares::ALL.has(Share(share))));
    }
}
